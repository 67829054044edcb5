import { afterAll, beforeAll, expect } from "bun:test";
import { type FakeProvider, startFakeProvider } from "../fake_provider.ts";
import { createWorld, type World } from "../world.ts";
import { type Run, runCli, runCliProcess } from "./cli_process.ts";

/** What the tests of the command line share: commands that run against the one world of a test file. */

export const SECRET_KEY = "5e".repeat(32);
/** The commands wait for each other. */
export const SLOW_MS = 180_000;
/** Commands that a test machine runs well at once. */
const RUNS_AT_ONCE = 4;

/** Of the file that runs. */
export let world: World;
export let provider: FakeProvider;

/** Starts the world and the provider of a file before its tests, and ends them after them. */
export function startCliWorld(): void {
  beforeAll(async () => {
    world = await createWorld();
    provider = await startFakeProvider();
  });
  afterAll(async () => {
    await provider.stop();
    await world.close();
  });
}

type CliOptions = { stdin?: string; env?: Record<string, string> };

let running = 0;
const waiting: (() => void)[] = [];

/** Runs one command with only the given environment, in this process. At most RUNS_AT_ONCE run at once. */
export function cli(args: string, options?: CliOptions): Promise<Run> {
  return takeTurn(() => runCli(args, optionsOf(options)));
}

/** Runs one command as an operator would: a process, which must end by itself. */
export function cliProcess(args: string, options?: CliOptions): Promise<Run> {
  return takeTurn(() => runCliProcess(args, optionsOf(options)));
}

async function takeTurn(run: () => Promise<Run>): Promise<Run> {
  if (running === RUNS_AT_ONCE) await new Promise<void>((resolve) => waiting.push(resolve));
  else running++;
  try {
    return await run();
  } finally {
    const next = waiting.shift();
    if (next) next();
    else running--;
  }
}

function optionsOf({ stdin = "", env = {} }: CliOptions = {}) {
  const own = {
    DATABASE_URL: world.url,
    SPOOL_DIR: world.spoolDir,
    PROVIDER_ALLOW_PRIVATE: new URL(provider.url).host,
  };
  return { stdin, env: { ...own, ...env } };
}

/** Runs a command that must succeed, and reads its JSON. */
export async function json(args: string, options?: CliOptions) {
  const { code, out, err } = await cli(`${args} --json`, options);
  expect({ args, code, err }).toEqual({ args, code: 0, err: "" });
  return JSON.parse(out);
}

/** Runs a command that must fail with one line, and returns that line. */
export async function refused(args: string, options?: CliOptions): Promise<string> {
  const { code, out, err } = await cli(args, options);
  expect({ args, code, out }).toEqual({ args, code: 1, out: "" });
  expect(err.trimEnd().split("\n")).toHaveLength(1);
  return err;
}
