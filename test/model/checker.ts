import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Runs Spin on a size of the escrow model (escrow.pml): `spin` makes a C program, `gcc` compiles it, and it visits every state. */

const MODEL = join(import.meta.dirname, "escrow.pml");
/** For two processors: more concurrent checks would take no less time, and more memory. */
const AT_ONCE_MAX = 2;
/** Of one check, in MB and in steps of a run. Above them the checker gives up, which counts as failed. */
const MEMORY_MAX_MB = 1_000;
const DEPTH_MAX = 2_000_000;
/** Beyond this many states, code that is compiled for speed saves more time than it costs. */
const STATES_WORTH_OPTIMIZING = 300_000;

/** A size of the model, or a size with a fault. */
export type Check = {
  name: string;
  /** Constants of the model, as `N=2`. */
  defines: readonly string[];
  /** About how many states it has. */
  states?: number;
};

export type Verdict = {
  states: number;
  errors: number;
  /** The assertion that failed, in the words of the model; null: none. */
  failed: string | null;
  /** The whole output of the checker. */
  output: string;
};

/** Starts the checks, a few at a time. Returns a function that waits for the verdict of one of them. */
export function startChecks(checks: readonly Check[]): (check: Check) => Promise<Verdict> {
  const verdicts = new Map(checks.map((check) => [check, Promise.withResolvers<Verdict>()]));
  const waiting = [...verdicts];
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [check, { resolve, reject }] = next;
      await run(check).then(resolve, reject);
    }
  };
  for (let i = 0; i < AT_ONCE_MAX; i++) void work();
  // The test that waits for it gets the rejection.
  for (const { promise } of verdicts.values()) promise.catch(() => {});
  return (check) => {
    const verdict = verdicts.get(check);
    if (verdict === undefined) throw new Error(`The check "${check.name}" was not started.`);
    return verdict.promise;
  };
}

async function run({ defines, states = 0 }: Check): Promise<Verdict> {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-model-"));
  try {
    await execute("spin", ["-a", ...defines.map((define) => `-D${define}`), MODEL], folder);
    // No unreached code, no temporal logic: assertions and ends only. All variables are global, so no orders can be left out.
    const options = ["-w", "-DSAFETY", "-DNOREDUCE", "-DCOLLAPSE", "-DVECTORSZ=2048", `-DMEMLIM=${MEMORY_MAX_MB}`];
    const level = states >= STATES_WORTH_OPTIMIZING ? "-O1" : "-O0";
    await execute("gcc", [level, ...options, "-o", "pan", "pan.c"], folder);
    return verdictOf(await execute("./pan", [`-m${DEPTH_MAX}`, "-w20"], folder));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Throws if the checker did not get to its end: then it has proved nothing. */
function verdictOf(output: string): Verdict {
  const errors = /errors: (\d+)/.exec(output)?.[1];
  const states = /^\s*([\d.e+]+) states, stored/m.exec(output)?.[1];
  if (errors === undefined || states === undefined) throw new Error(`The checker says:\n${output}`);
  const isCut = /max search depth too small|out of memory|memory limit|error: reached -DMEMLIM/i.test(output);
  if (isCut) throw new Error(`The checker gave up:\n${output}`);
  const failed = /assertion violated (.*?) \(at depth/.exec(output)?.[1] ?? null;
  return { states: Number(states), errors: Number(errors), failed, output };
}

/** Runs a program to its end. Returns what it printed; throws if it cannot be run or fails. */
function execute(program: string, args: string[], folder: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8");
      stream.on("data", (text: string) => {
        output += text;
      });
    }
    child.once("error", (error) => {
      reject(new Error(`This needs ${program}: apt-get install spin gcc libc6-dev`, { cause: error }));
    });
    child.once("close", (code) => {
      if (code === 0) resolve(output);
      else reject(new Error(`${program} ended with ${code}:\n${output}`));
    });
  });
}
