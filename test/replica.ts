import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { denoReplicaCommand } from "../scripts/test_deno.ts";

/** A replica as in production: a separate process, called over a socket. */
export type ReplicaProcess = {
  /** http://localhost:port */
  origin: string;
  port: number;
  process: ChildProcess;
  /** Its log so far. */
  logged(): string;
  /** Sends SIGTERM and waits; the exit code. */
  stop(): Promise<number>;
  /** SIGKILL. */
  kill(): Promise<void>;
};

export const TEST_SECRET_KEY = randomBytes(32).toString("base64");
/** A busy machine needs half a minute, and each step of the start waits for Postgres. */
const READY_MS_MAX = 120_000;
/** Time to read the rest of the output of a process that has ended. */
const GONE_MS = 5_000;
const GONE_POLL_MS = 100;
/**
 * For a replica that counts tokens. Others do not load the tables, which take a second of a processor at each start.
 */
export const COUNTING = { BUN_OPTIONS: "" };
export const NO_TABLES = `--preload=${fileURLToPath(new URL("no_token_tables.ts", import.meta.url))}`;
const ESTIMATING = { BUN_OPTIONS: NO_TABLES };
/** What users run. */
export const FROM_SOURCE = [process.execPath, fileURLToPath(new URL("../src/main.ts", import.meta.url))];
/** The same, bundled by the runner of tests (scripts/build_replica.ts): it starts at half the cost. */
const BUNDLED = process.env.TOLLGATE_REPLICA;
/**
 * Bun's maximum. A replica with a lower limit replaces itself when all is loaded, and loads everything again: half a
 * second of a processor.
 */
const ROOMY = { BUN_CONFIG_MAX_HTTP_REQUESTS: "65535" };

/** Test machines pause for longer than a replica may, so these limits would refuse requests. A test of them sets its own. */
export const PATIENT = { EVENT_LOOP_LAG_MAX_MS: "20000", LEDGER_TIMEOUT_MS: "20000" };

/** What replicas run on: the contract suite is run once on each (`scripts/run_tests.ts`). Any other name is refused. */
export const RUNTIME = runtimeNamed(process.env.TOLLGATE_RUNTIME ?? "bun");

/**
 * Starts src/main.ts, bundled if the runner of tests has built it, on RUNTIME, unless a command is given. Waits until it listens. It
 * estimates texts unless told to count (COUNTING). Rejects with its output if it does not listen.
 */
export async function startReplicaProcess(env: Record<string, string>, command?: string[]): Promise<ReplicaProcess> {
  const [program = "", ...args] = command ?? commandOn(RUNTIME, env);
  const child = spawn(program, args, {
    env: {
      PATH: process.env.PATH ?? "",
      HOME: process.env.HOME ?? "/tmp",
      PORT: "0",
      LISTEN_HOST: "127.0.0.1",
      SECRET_KEY: TEST_SECRET_KEY,
      BASE_URL: "http://api.tollgate.test/v1",
      ALIAS_URL: "http://tollgate.test/v1",
      PANEL_URL: "http://panel.tollgate.test",
      DB_POOL_MAX: "5",
      LEDGER_LANES: "2",
      ...PATIENT,
      // A replica whose Redis is late counts rates by itself.
      RATE_REDIS_MS: "300",
      ...ESTIMATING,
      ...(command === undefined && ROOMY),
      ...env,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  // With its output read to the end.
  const exited = new Promise<number>((resolve) =>
    child.once("close", (code, signal) => resolve(code ?? (signal ? 128 : 0))),
  );
  child.stderr.on("data", (bytes) => {
    output += bytes;
  });
  const port = await new Promise<number>((resolve, reject) => {
    const timer = setTimeout(() => {
      // Nobody else knows of it, and it would run on.
      child.kill("SIGKILL");
      reject(new Error(`the replica does not listen:\n${output}`));
    }, READY_MS_MAX);
    exited.then((code) => reject(new Error(`the replica exited with ${code}:\n${output}`)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      output += `${line}\n`;
      const match = /"port":(\d+).*"message":"listening"/.exec(line);
      if (!match) return;
      clearTimeout(timer);
      resolve(Number(match[1]));
    });
  });
  return {
    origin: `http://localhost:${port}`,
    port,
    process: child,
    logged: () => output,
    stop() {
      child.kill("SIGTERM");
      return exited;
    },
    async kill() {
      child.kill("SIGKILL");
      await Promise.race([exited, longGone(child)]);
    },
  };
}

/**
 * Resolves some seconds after the kernel has ended a process. Of some thousand killed replicas, Bun does not report that one's output has
 * ended: nothing else waits for that then.
 */
async function longGone({ pid }: ChildProcess): Promise<void> {
  const isThere = () => {
    try {
      return !/^\d+ \(.*\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
    } catch {
      return false; // The kernel knows it no more.
    }
  };
  while (isThere()) await sleep(GONE_POLL_MS);
  await sleep(GONE_MS);
}

function commandOn(runtime: typeof RUNTIME, env: Record<string, string>): string[] {
  if (runtime === "bun") return BUNDLED === undefined ? FROM_SOURCE : [process.execPath, BUNDLED];
  // Deno has no variable for options. Those of the tests are modules to preload.
  return denoReplicaCommand((env.BUN_OPTIONS ?? ESTIMATING.BUN_OPTIONS).split(" ").filter((option) => option !== ""));
}

function runtimeNamed(name: string): "bun" | "deno" {
  if (name !== "bun" && name !== "deno") throw new Error(`TOLLGATE_RUNTIME is bun or deno, not ${name}`);
  return name;
}

/** Whether the kernel has stopped the process. */
export function isFrozen({ process: { pid } }: ReplicaProcess): boolean {
  return /^\d+ \(.*\) T/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
}
