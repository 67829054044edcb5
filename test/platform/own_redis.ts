import { type Service, startRedis } from "../../scripts/services.ts";

export type OwnRedis = {
  url: string;
  /** SIGSTOP: it takes connections and answers nothing. */
  freeze(): void;
  thaw(): void;
  stop(): Promise<void>;
  /** On the same port, with nothing in memory. */
  start(): Promise<void>;
};

/** A Redis that a test may freeze, stop and start again. */
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
      signal("SIGCONT"); // A stopped process would not hear that it is to end.
      await running?.stop();
      running = undefined;
    },
    async start() {
      running = await startRedis({ port: first.port });
    },
  };
}

/** Waits for `holds` to be true; throws after `maxMs`. */
export async function until(holds: () => boolean | Promise<boolean>, maxMs = 5000): Promise<void> {
  const endsAt = performance.now() + maxMs;
  while (!(await holds())) {
    if (performance.now() > endsAt) throw new Error(`not so after ${maxMs} ms: ${holds}`);
    await sleep(10);
  }
}

export const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
