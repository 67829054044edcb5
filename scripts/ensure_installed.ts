/**
 * Installs the locked dependencies if they are missing or differ from bun.lock, then runs a script with the same bun:
 * `bun scripts/ensure_installed.ts src/demo.ts [arguments]`. So every command works on a fresh clone. With `--panel` before the
 * script, it also builds the panel if its sources have changed. Without a script it only installs. It imports no dependency.
 */
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

const repository = dirname(import.meta.dirname);
const modules = join(repository, "node_modules");
/** Identifies what was installed. It is missing or differs if node_modules was created by hand or on another machine. */
const stamp = join(modules, ".tollgate-installed");
const lock = join(repository, ".cache", "installing");
const LOCK_MS_MAX = 10 * 60_000;
const LOCK_CHECK_MS = 200;
const CALLER_CHECK_MS = 1_000;

async function main(): Promise<void> {
  const given = process.argv.slice(2);
  const withPanel = given[0] === "--panel";
  const [script, ...args] = withPanel ? given.slice(1) : given;
  await ensureInstalled();
  if (withPanel) ensurePanel();
  if (script) run(script, args);
}

async function ensureInstalled(): Promise<void> {
  const wanted = installId();
  if (isInstalled(wanted)) return;
  await takeLock();
  try {
    // Another command may have installed while this one waited.
    if (!isInstalled(wanted)) install(wanted);
  } finally {
    rmSync(lock, { force: true });
  }
}

function isInstalled(wanted: string): boolean {
  return existsSync(stamp) && readFileSync(stamp, "utf8") === wanted;
}

function install(wanted: string): void {
  console.error("Installing the locked dependencies.");
  // Its output goes to stderr: stdout is for the script.
  const { status } = spawnSync(process.execPath, ["install", "--frozen-lockfile", "--no-summary"], {
    cwd: repository,
    stdio: ["ignore", 2, 2],
  });
  if (status !== 0) throw new Error("The dependencies could not be installed. See the output above.");
  writeFileSync(stamp, wanted);
}

/** Builds in a separate process: this one looked for packages before they were installed, and caches that they are missing. */
function ensurePanel(): void {
  const { status } = spawnSync(process.execPath, ["scripts/build_panel.ts", "--if-needed"], {
    cwd: repository,
    stdio: ["ignore", 2, 2],
  });
  if (status !== 0) throw new Error("The panel could not be built. See the output above.");
}

/** Two installations in one folder break each other. The lock is a symlink whose target is the owner's process id: creating it is atomic. */
async function takeLock(): Promise<void> {
  mkdirSync(dirname(lock), { recursive: true });
  for (const deadline = performance.now() + LOCK_MS_MAX; performance.now() < deadline; await sleep(LOCK_CHECK_MS)) {
    try {
      return symlinkSync(String(process.pid), lock);
    } catch {
      if (isOwnerDead()) rmSync(lock, { force: true });
    }
  }
  throw new Error(`Another command has been installing for too long. If none is running, delete ${lock}.`);
}

/** Also false if the lock was released meanwhile: the next try then succeeds. */
function isOwnerDead(): boolean {
  try {
    process.kill(Number(readlinkSync(lock)), 0);
    return false;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "ESRCH";
  }
}

function installId(): string {
  const hash = createHash("sha256").update(readFileSync(join(repository, "bun.lock")));
  // The lock file has the names of the patches, not their contents.
  const patches = join(repository, "patches");
  for (const name of readdirSync(patches).sort()) hash.update(readFileSync(join(patches, name)));
  return `${hash.digest("hex")} ${process.platform}-${process.arch}\n`;
}

/** Runs the script in its own process, forwards signals and exits with its exit code. */
function run(script: string, args: string[]): void {
  const child = spawn(process.execPath, [script, ...args], { cwd: repository, stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    // A Ctrl-C reaches the child from the terminal too. A second signal would interrupt its shutdown.
    process.on(signal, () => {
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  }
  child.once("error", (error) => fail(error.message));
  child.once("exit", (code, signal) => process.exit(code ?? (signal === "SIGINT" ? 130 : 1)));
  stopWithCallers(() => child.kill("SIGTERM"));
}

/** Calls `stop` when a caller has ended without sending us a signal: `bun run` after SIGKILL, npx after any signal. */
function stopWithCallers(stop: () => void): void {
  const atStart = callers();
  const timer = setInterval(() => {
    if (callers() === atStart) return;
    clearInterval(timer);
    stop();
  }, CALLER_CHECK_MS);
}

/** Process ids of `bun run` and its ancestors up to npx. Only `bun run` if npx was not used, or without /proc, as on macOS. */
function callers(): string {
  const ancestors = [process.ppid];
  try {
    // At most: bun run, the shell that npx starts, npx.
    while (ancestors.length <= 3) {
      const pid = ancestors.at(-1);
      if (/\bnp[mx]\b/.test(readFileSync(`/proc/${pid}/cmdline`, "utf8"))) return ancestors.join(" ");
      ancestors.push(Number(/\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1]));
    }
  } catch {
    // There is no further ancestor, or no /proc.
  }
  // Without npx: other ancestors, such as a shell, may end and leave us running.
  return String(process.ppid);
}

function fail(message: string): never {
  console.error(message);
  process.exit(1);
}

main().catch((error: unknown) => fail(error instanceof Error ? error.message : String(error)));
