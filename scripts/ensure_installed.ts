/**
 * Installs the locked dependencies when they are missing or older than bun.lock, then runs a script with the same bun:
 * `bun scripts/ensure_installed.ts src/demo.ts [arguments]`. So every command works on a fresh clone. It needs no dependency.
 * With `--panel` before the script the panel is built too, if it was not built from these very sources. Without a script it
 * only installs.
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
/** Holds what was installed; node_modules made by hand or for another machine lacks it or differs. */
const stamp = join(modules, ".tollgate-installed");
const lock = join(repository, ".cache", "installing");
const lockWaitMs = 10 * 60_000;
const lockCheckMs = 200;
const holderCheckMs = 1_000;

async function main(): Promise<void> {
  const given = process.argv.slice(2);
  const withPanel = given[0] === "--panel";
  const [script, ...args] = withPanel ? given.slice(1) : given;
  await ensureInstalled();
  if (withPanel) ensurePanel();
  if (script) run(script, args);
}

async function ensureInstalled(): Promise<void> {
  const wanted = whatToInstall();
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
  // Its output goes to our stderr: the caller's stdout belongs to the script.
  const { status } = spawnSync(process.execPath, ["install", "--frozen-lockfile", "--no-summary"], {
    cwd: repository,
    stdio: ["ignore", 2, 2],
  });
  if (status !== 0) throw new Error("The dependencies could not be installed: see above.");
  writeFileSync(stamp, wanted);
}

/** In a process of its own: this one looked for packages before they were installed, and remembers that there were none. */
function ensurePanel(): void {
  const { status } = spawnSync(process.execPath, ["scripts/build_panel.ts", "--if-needed"], {
    cwd: repository,
    stdio: ["ignore", 2, 2],
  });
  if (status !== 0) throw new Error("The panel could not be built: see above.");
}

/** Two installations in one folder break each other. The lock is a link "to" its owner's process: made at once, with content. */
async function takeLock(): Promise<void> {
  mkdirSync(dirname(lock), { recursive: true });
  for (const deadline = performance.now() + lockWaitMs; performance.now() < deadline; await sleep(lockCheckMs)) {
    try {
      return symlinkSync(String(process.pid), lock);
    } catch {
      if (isOwnerDead()) rmSync(lock, { force: true });
    }
  }
  throw new Error(`Another command has been installing for too long; if none is running, remove ${lock}.`);
}

/** False also when the lock was let go in the meantime: the next try will tell. */
function isOwnerDead(): boolean {
  try {
    process.kill(Number(readlinkSync(lock)), 0);
    return false;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "ESRCH";
  }
}

function whatToInstall(): string {
  const hash = createHash("sha256").update(readFileSync(join(repository, "bun.lock")));
  // The lock file names the patches and not what is in them.
  const patches = join(repository, "patches");
  for (const name of readdirSync(patches).sort()) hash.update(readFileSync(join(patches, name)));
  return `${hash.digest("hex")} ${process.platform}-${process.arch}\n`;
}

/** Runs the script in its own process, passes signals on and ends the way it ends. */
function run(script: string, args: string[]): void {
  const child = spawn(process.execPath, [script, ...args], { cwd: repository, stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    // A Ctrl-C reaches the child from the terminal as well; a second signal would cut its orderly end short.
    process.on(signal, () => {
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  }
  child.once("error", (error) => fail(error.message));
  child.once("exit", (code, signal) => process.exit(code ?? (signal === "SIGINT" ? 130 : 1)));
  stopWithHolders(() => child.kill("SIGTERM"));
}

/** Whoever holds us may die without a signal to us: `bun run` of SIGKILL, npx of any signal. We see it by our ancestors. */
function stopWithHolders(stop: () => void): void {
  const atStart = holders();
  const timer = setInterval(() => {
    if (holders() === atStart) return;
    clearInterval(timer);
    stop();
  }, holderCheckMs);
}

/** `bun run`, and what is above it as far as npx, if that is what was called. Without /proc, as on macOS, just `bun run`. */
function holders(): string {
  const above = [process.ppid];
  try {
    // npx, the shell that it uses, bun run.
    while (above.length <= 3) {
      const pid = above.at(-1);
      if (/\bnp[mx]\b/.test(readFileSync(`/proc/${pid}/cmdline`, "utf8"))) return above.join(" ");
      above.push(Number(/\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1]));
    }
  } catch {
    // The end of the line.
  }
  // No npx: any other caller, such as a shell, may end and leave us running.
  return String(process.ppid);
}

function fail(message: string): never {
  console.error(message);
  process.exit(1);
}

main().catch((error: unknown) => fail(error instanceof Error ? error.message : String(error)));
