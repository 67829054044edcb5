/**
 * Installs the locked dependencies when they are missing or older than bun.lock, then runs a script with the same bun:
 * `bun scripts/ensure_installed.ts src/demo.ts [arguments]`. So every command works on a fresh clone. It needs no dependency.
 */
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";

const repository = dirname(import.meta.dirname);
const modules = join(repository, "node_modules");
/** Holds what was installed; node_modules made by hand or for another machine lacks it or differs. */
const stamp = join(modules, ".tollgate-installed");
const holderCheckMs = 1_000;

function main(): void {
  const [script, ...args] = process.argv.slice(2);
  if (!script) fail("Usage: bun scripts/ensure_installed.ts <script> [arguments]");
  ensureInstalled();
  run(script, args);
}

function ensureInstalled(): void {
  const wanted = whatToInstall();
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return;
  console.error("Installing the locked dependencies.");
  // Its output goes to our stderr: the caller's stdout belongs to the script.
  const { status } = spawnSync(process.execPath, ["install", "--frozen-lockfile"], {
    cwd: repository,
    stdio: ["ignore", 2, 2],
  });
  if (status !== 0) fail("The dependencies could not be installed: see above.");
  writeFileSync(stamp, wanted);
}

function whatToInstall(): string {
  const lock = readFileSync(join(repository, "bun.lock"));
  return `${createHash("sha256").update(lock).digest("hex")} ${process.platform}-${process.arch}\n`;
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

main();
