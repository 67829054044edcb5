import { spawn } from "node:child_process";

/** Runs clients that are programs of their own. */

export const CLIENT_MS_MAX = 90_000;
const OUTPUT_CHARS_MAX = 1024 * 1024;

type Run = {
  args: readonly string[];
  cwd: string;
  env?: Record<string, string>;
  /** Default: this runtime, with Node's interface. */
  program?: string;
};

export type Ended = {
  code: number | null;
  /** The lines of its output. */
  lines: string[];
  /** Output and errors. */
  all: string;
};

/** Runs a program to its end, with `cwd` as its home. It is killed if it takes too long. */
export function runToEnd({ args, cwd, env = {}, program = process.execPath }: Run): Promise<Ended> {
  const child = spawn(program, [...args], {
    cwd,
    env: { PATH: process.env.PATH ?? "", HOME: cwd, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let printed = "";
  let all = "";
  const take = (part: Buffer, isOutput: boolean) => {
    if (isOutput && printed.length < OUTPUT_CHARS_MAX) printed += part;
    if (all.length < OUTPUT_CHARS_MAX) all += part;
  };
  child.stdout.on("data", (part) => take(part, true));
  child.stderr.on("data", (part) => take(part, false));
  const timer = setTimeout(() => child.kill("SIGKILL"), CLIENT_MS_MAX);
  return new Promise((done, fail) => {
    child.once("error", fail);
    child.once("close", (code) => {
      clearTimeout(timer);
      done({ code, lines: printed.trim().split("\n"), all });
    });
  });
}

/** Runs a program. Rejects with its output if it fails or takes too long. Returns the lines that it printed. */
export async function run(options: Run): Promise<string[]> {
  const { code, lines, all } = await runToEnd(options);
  if (code === 0) return lines;
  throw new Error(`${options.args.join(" ")} ended with ${code}:\n${all}`);
}
