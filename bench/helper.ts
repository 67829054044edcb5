/** The bench's own processes: each answers requests over a channel to the process that started it, and ends with it. */

const START_MS_MAX = 10_000;

export type Helper<Question, Reply> = {
  pid: number;
  /** One question at a time. Rejects when the process ends. */
  ask(question: Question, msMax: number): Promise<Reply>;
  stop(): Promise<void>;
};

/** Starts `file`, and waits for its first message, which is also returned. Throws if there is none. */
export async function startHelper<Question, Reply, Ready>(
  file: string,
  env: Record<string, string>,
): Promise<{ helper: Helper<Question, Reply>; ready: Ready }> {
  let waiting = Promise.withResolvers<unknown>();
  const child = Bun.spawn([process.execPath, file], {
    env: { PATH: process.env.PATH ?? "", ...env },
    stdio: ["ignore", "inherit", "inherit"],
    ipc: (message) => waiting.resolve(message),
  });
  const ended = child.exited.then((code) => {
    waiting.reject(new Error(`${file} ended with ${code}`));
  });
  const next = async (msMax: number): Promise<unknown> => {
    const timer = setTimeout(() => waiting.reject(new Error(`${file} does not answer`)), msMax);
    try {
      return await waiting.promise;
    } finally {
      clearTimeout(timer);
    }
  };
  const ready = (await next(START_MS_MAX)) as Ready;
  waiting.promise.catch(() => {}); // No request is pending.
  return {
    ready,
    helper: {
      pid: child.pid,
      async ask(question, msMax) {
        waiting = Promise.withResolvers();
        child.send(question);
        return (await next(msMax)) as Reply;
      },
      async stop() {
        waiting.promise.catch(() => {});
        child.kill("SIGKILL");
        await ended;
      },
    },
  };
}

/** In a helper's process: reports that it is ready, answers requests, and ends when its parent has ended. */
export function answerQuestions<Question, Reply>(ready: unknown, answer: (question: Question) => Promise<Reply>): void {
  process.on("message", (question: Question) => {
    answer(question).then(
      (reply) => process.send?.(reply),
      (error: unknown) => {
        console.error(error);
        process.exit(1);
      },
    );
  });
  process.on("disconnect", () => process.exit());
  process.send?.(ready);
}

/** Microseconds of a clock that all processes of this machine share. */
export function sharedMicros(): number {
  return (performance.timeOrigin + performance.now()) * 1000;
}
