/**
 * A child process that belongs to us: it has its own session (a Ctrl-C in the terminal reaches us, and we decide when the
 * child stops), writes to a file (a full pipe would block it), and is stopped even when we are killed with SIGKILL.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, existsSync, openSync, statSync, truncateSync } from "node:fs";
import process from "node:process";

const stopWaitMs = 20_000;
const killWaitMs = 5_000;
const outputBytesMax = 10 * 1024 * 1024;

/** Waits for its standard input to end, which happens when we exit in whatever way, then stops the process it guards. */
const guardScript = `read -r _
kill -"$1" "$2" && kill -CONT "$2" || exit 0
tries=0
while [ $tries -lt 60 ] && kill -0 "$2"; do sleep 0.5; tries=$((tries + 1)); done
kill -KILL "$2"`;

export interface OwnedProcessOptions {
  command: string;
  args: string[];
  env: Record<string, string>;
  /** Standard output and error are appended here; a file over 10 MiB is emptied first. */
  outputFile: string;
  /** The signal that asks for an orderly end. */
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
  /** Asks for an orderly end and waits for it; after 20 s the process is killed. May be called more than once. */
  stop(): Promise<void>;
}

/** Starts a process that belongs to us. Throws when the command cannot be started. */
export function startOwnedProcess(options: OwnedProcessOptions): OwnedProcess {
  const child = spawnToFile(options);
  const { pid } = child;
  let ended = false;
  const exited = new Promise<string>((resolve) => {
    const finish = (reason: string) => {
      ended = true;
      resolve(reason);
    };
    child.once("exit", (code, signal) => finish(signal ? `signal ${signal}` : `code ${code}`));
    child.once("error", (error) => finish(error.message));
  });
  if (pid === undefined) throw new Error(`${options.command} could not be started.`);

  const guard = startGuard(pid, options.stopSignal);
  // The guard dies first: left alone it would signal a process number that by then may be somebody else's.
  exited.then(() => guard.kill("SIGKILL"));
  child.unref();

  const stop = async () => {
    if (ended) return;
    child.ref();
    signal(pid, options.stopSignal);
    // A frozen process acts on a signal only once it runs again.
    signal(pid, "SIGCONT");
    if (await settlesWithin(exited, stopWaitMs)) return;
    signal(pid, "SIGKILL");
    if (await settlesWithin(exited, killWaitMs)) return;
    throw new Error(`${options.command} (process ${pid}) does not end.`);
  };
  return { pid, exited, hasExited: () => ended, stop };
}

/** True while a process of that number exists, whoever owns it. */
export function processExists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}

function spawnToFile({ command, args, env, outputFile, cwd, uid, gid }: OwnedProcessOptions): ChildProcess {
  if (existsSync(outputFile) && statSync(outputFile).size > outputBytesMax) truncateSync(outputFile);
  const output = openSync(outputFile, "a", 0o600);
  try {
    return spawn(command, args, { env, cwd, uid, gid, detached: true, stdio: ["ignore", output, output] });
  } finally {
    closeSync(output);
  }
}

function startGuard(pid: number, stopSignal: string): ChildProcess {
  const args = ["-c", guardScript, "guard", stopSignal.replace("SIG", ""), String(pid)];
  // From the root folder, so that the guard keeps no folder or mount busy.
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
    // It ended in the meantime, which is what we wanted.
  }
}

async function settlesWithin(promise: Promise<unknown>, waitMs: number): Promise<boolean> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), waitMs);
  });
  const settled = await Promise.race([promise.then(() => true), late]);
  clearTimeout(timer);
  return settled;
}
