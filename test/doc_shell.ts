import { spawn } from "node:child_process";
import { sleep } from "./platform/own_redis.ts";

/** Commands of documents, run as a reader pastes them: with all that they start, which ends with them. */

/** Time for a program to answer, and to end. */
export const SCRIPT_MS_MAX = 600_000;
const END_MS_MAX = 20_000;

export type Run = { code: number | null; output: string };
export type Started = ReturnType<typeof start>;
type Where = { env: Record<string, string>; cwd: string };

/** Starts a program in its own process group, so that all of it can be stopped. */
export function start(program: string, args: string[], { env, cwd }: Where) {
  const child = spawn(program, args, {
    cwd,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env,
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8");
    stream.on("data", (bytes: string) => {
      output += bytes;
    });
  }
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  return {
    exited,
    hasExited: () => child.exitCode !== null || child.signalCode !== null,
    output: () => output,
    end: () => endGroup(child.pid ?? 0),
    /** Waits for a 200. Throws with the output when the program ends before, or takes too long. */
    async untilAnswers(address: string): Promise<void> {
      for (const deadline = performance.now() + SCRIPT_MS_MAX; performance.now() < deadline; ) {
        if (child.exitCode !== null) break;
        const answer = await fetch(address).catch(() => undefined); // It does not listen yet.
        if (answer?.status === 200) return;
        await sleep(200);
      }
      throw new Error(`${address} does not answer:\n${output}`);
    },
  };
}

export async function toItsEnd({ exited, output, end }: ReturnType<typeof start>): Promise<Run> {
  const late = sleep(SCRIPT_MS_MAX).then(() => "late" as const);
  const code = await Promise.race([exited, late]);
  await end();
  if (code === "late") throw new Error(`a program did not end:\n${output()}`);
  return { code, output: output() };
}

/** SIGTERM to the group, then SIGKILL to what is left. */
async function endGroup(pid: number): Promise<void> {
  const signal = (name: NodeJS.Signals | 0) => {
    try {
      return process.kill(-pid, name);
    } catch {
      return false; // Nothing of it is left.
    }
  };
  signal("SIGTERM");
  for (const deadline = performance.now() + END_MS_MAX; signal(0) && performance.now() < deadline; ) await sleep(50);
  signal("SIGKILL");
}
