import { type Service, startRedis } from "../../scripts/services.ts";

const UNTIL_MS_MAX = 150_000;

export type OwnRedis = {
  url: string;
  /** SIGSTOP: it accepts connections and answers nothing. */
  freeze(): void;
  thaw(): void;
  stop(): Promise<void>;
  /** On the same port, with no data. */
  start(): Promise<void>;
};

/** A Redis that a test can freeze, stop and restart. */
export async function ownRedis(): Promise<OwnRedis> {
  const first = await startRedis();
  let running: Service | undefined = first;
  const signal = (name: "SIGSTOP" | "SIGCONT") => {
    if (running) process.kill(running.pid, name);
  };
  return {
    url: first.url,
    freeze: () => signal("SIGSTOP"),
    thaw: () => signal("SIGCONT"),
    async stop() {
      signal("SIGCONT"); // A stopped process would not handle SIGTERM.
      await running?.stop();
      running = undefined;
    },
    async start() {
      running = await startRedis({ port: first.port });
    },
  };
}

/** Waits for `holds` to be true. `maxMs` only ends a wait in vain: it is far longer than a busy machine needs. */
export async function until(holds: () => boolean | Promise<boolean>, maxMs = UNTIL_MS_MAX): Promise<void> {
  const endsAt = performance.now() + maxMs;
  while (!(await holds())) {
    if (performance.now() > endsAt) throw new Error(`not so after ${maxMs} ms: ${holds}`);
    await sleep(10);
  }
}

export const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/**
 * The result of `work`; throws if it takes longer than `ms` of this process's own time. The time is slept in pieces, so that a
 * pause of the machine counts as one of them. With 0 `work` must not wait.
 */
export async function before<T>(ms: number, work: Promise<T>): Promise<T> {
  const slept = async () => {
    let left = ms;
    do {
      await sleep(Math.min(left, 10));
      left -= 10;
    } while (left > 0);
    throw new Error(`no answer within ${ms} ms`);
  };
  return await Promise.race([work, slept()]);
}
