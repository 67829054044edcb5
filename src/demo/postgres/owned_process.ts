/**
 * A child process that never outlives its parent. It has its own session (a Ctrl-C in the terminal reaches only the parent, which
 * decides when the child stops) and writes to a file (a full pipe would block it). A guard stops it even if the parent is killed.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, openSync, statSync, truncateSync } from "node:fs";
import process from "node:process";

const STOP_MS_MAX = 20_000;
const KILL_MS_MAX = 5_000;
const OUTPUT_BYTES_MAX = 10 * 1024 * 1024;

/** Waits for the end of its standard input, which comes when the parent ends in any way. Then stops the process it guards. */
const GUARD_SCRIPT = `read -r _
kill -"$1" "$2" && kill -CONT "$2" || exit 0
tries=0
while [ $tries -lt 60 ] && kill -0 "$2"; do sleep 0.5; tries=$((tries + 1)); done
kill -KILL "$2"`;

export interface OwnedProcessOptions {
  command: string;
  args: string[];
  env: Record<string, string>;
  /** Standard output and error are appended here. A file over 10 MiB is emptied first. */
  outputFile: string;
  /** The signal for an orderly shutdown. */
  stopSignal: "SIGINT" | "SIGTERM";
  cwd?: string;
  uid?: number;
  gid?: number;
}

export interface OwnedProcess {
  pid: number;
  /** Resolves with the reason, e.g. "code 1" or "signal SIGKILL", when the process has ended. */
  exited: Promise<string>;
  hasExited(): boolean;
  /** Sends `stopSignal` and waits for the end. Kills the process after 20 s. Idempotent. */
  stop(): Promise<void>;
}

/** Starts a process with a guard. Throws an Error if the command cannot be started. */
export function startOwnedProcess(options: OwnedProcessOptions): OwnedProcess {
  const child = spawnToFile(options);
  const { pid } = child;
  let isEnded = false;
  const exited = new Promise<string>((resolve) => {
    const finish = (reason: string) => {
      isEnded = true;
      resolve(reason);
    };
    child.once("exit", (code, signal) => finish(signal ? `signal ${signal}` : `code ${code}`));
    child.once("error", (error) => finish(error.message));
  });
  if (pid === undefined) throw new Error(`${options.command} could not be started.`);

  const guard = startGuard(pid, options.stopSignal);
  // Otherwise the guard would later signal a process id that may have been reused.
  exited.then(() => guard.kill("SIGKILL"));
  child.unref();

  const stop = async () => {
    if (isEnded) return;
    child.ref();
    signal(pid, options.stopSignal);
    // A frozen process acts on a signal only once it runs again.
    signal(pid, "SIGCONT");
    if (await settlesWithin(exited, STOP_MS_MAX)) return;
    signal(pid, "SIGKILL");
    if (await settlesWithin(exited, KILL_MS_MAX)) return;
    throw new Error(`${options.command} (process ${pid}) did not end.`);
  };
  return { pid, exited, hasExited: () => isEnded, stop };
}

/** Whether a process with this id exists, of any user. */
export function processExists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}

function spawnToFile({ command, args, env, outputFile, cwd, uid, gid }: OwnedProcessOptions): ChildProcess {
  if (existsSync(outputFile) && statSync(outputFile).size > OUTPUT_BYTES_MAX) truncateSync(outputFile);
  const output = openSync(outputFile, "a", 0o600);
  try {
    return spawn(command, args, { env, cwd, uid, gid, detached: true, stdio: ["ignore", output, output] });
  } finally {
    closeSync(output);
  }
}

function startGuard(pid: number, stopSignal: string): ChildProcess {
  const args = ["-c", GUARD_SCRIPT, "guard", stopSignal.replace("SIG", ""), String(pid)];
  // In the root folder, so that the guard keeps no other folder or mount busy.
  const guard = spawn("/bin/sh", args, { cwd: "/", detached: true, stdio: ["pipe", "ignore", "ignore"] });
  guard.on("error", () => {});
  guard.stdin?.on("error", () => {});
  guard.unref();
  const input = guard.stdin;
  if (input && "unref" in input && typeof input.unref === "function") input.unref();
  return guard;
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // The process has already ended.
  }
}

async function settlesWithin(promise: Promise<unknown>, waitMs: number): Promise<boolean> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), waitMs);
  });
  const settled = await Promise.race([promise.then(() => true), timeout]);
  clearTimeout(timer);
  return settled;
}
