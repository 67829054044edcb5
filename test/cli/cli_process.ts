import { spawn } from "node:child_process";
import { join } from "node:path";
import { Readable } from "node:stream";
import { runCommand } from "../../src/cli.ts";
import { TEST_SECRET_KEY } from "../replica.ts";

/** Runs commands of the command line with only the given environment. Words in double quotes stay together. */

const CLI = join(import.meta.dirname, "../../src/cli.ts");

export type Run = { code: number | null; out: string; err: string };
export type RunOptions = { stdin?: string; env: Record<string, string> };

/** Runs a command as a process of its own. */
export async function runCliProcess(args: string, { stdin = "", env }: RunOptions): Promise<Run> {
  const child = spawn(process.execPath, [CLI, ...wordsOf(args)], { env: { PATH: process.env.PATH ?? "", ...env } });
  const run: Run = { code: null, out: "", err: "" };
  child.stdout.on("data", (chunk) => (run.out += chunk));
  child.stderr.on("data", (chunk) => (run.err += chunk));
  child.stdin.end(stdin);
  run.code = await new Promise((resolve) => child.on("close", resolve));
  return run;
}

/** Runs a command in this process: the same, without the third of a second that a process needs to start. */
export async function runCli(args: string, { stdin = "", env }: RunOptions): Promise<Run> {
  const run: Run = { code: 0, out: "", err: "" };
  await runCommand(wordsOf(args), {
    env,
    stdin: Readable.from(stdin === "" ? [] : [Buffer.from(stdin)]),
    out(text) {
      run.out += text;
    },
    err(text) {
      run.err += text;
    },
    exitsWith(code) {
      run.code = code;
    },
  });
  return run;
}

/** What `doctor --full` says of the books of a database. */
export async function fullCheck({ url }: { url: string }): Promise<string[]> {
  const env = { DATABASE_URL: url, REDIS_URL: process.env.REDIS_URL ?? "", SECRET_KEY: TEST_SECRET_KEY };
  const { out } = await runCli("doctor --full --json", { env });
  const findings: { what: string; state: string }[] = JSON.parse(out).findings;
  return findings.filter(({ what }) => what === "books").map(({ state }) => state);
}

function wordsOf(args: string): string[] {
  return args.match(/"[^"]*"|\S+/g)?.map((word) => word.replaceAll('"', "")) ?? [];
}
