#!/usr/bin/env node
/**
 * Runs the demo with nothing but Node 20 and npm: what `npx` starts when it has fetched this package. Arguments are the demo's. It copies the
 * package to a cache folder, because the folder of an installed package may be read-only and has no place for dependencies of its own, lets
 * npm fetch the Bun that package.json names, and runs the demo there. Signals are passed on, and its exit status is the demo's.
 */
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, relative, sep } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const NODE_MIN = 20;
const HASH_CHARS = 16;
/** In a clone, not in a package. */
const NOT_COPIED = new Set(["node_modules", ".git", ".data", ".cache", ".bun", "dist"]);
const IS_WINDOWS = process.platform === "win32";

const packageDir = dirname(dirname(fileURLToPath(import.meta.url)));

function main() {
  if (Number(process.versions.node.split(".")[0]) < NODE_MIN)
    fail(`The demo needs Node ${NODE_MIN} or newer; this is ${process.versions.node}.`);
  const { version, devDependencies } = JSON.parse(readFileSync(join(packageDir, "package.json"), "utf8"));
  const copy = copyOnce(version);
  const bun = bunOf(devDependencies.bun);
  run(bun, ["scripts/ensure_installed.ts", "--panel", "src/demo.ts", ...process.argv.slice(2)], copy);
}

/** Copies the package to a folder named after its contents, unless it is there already. Returns the folder. */
function copyOnce(version) {
  const files = readdirSync(packageDir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(packageDir, join(entry.parentPath ?? entry.path, entry.name)))
    .filter((path) => !NOT_COPIED.has(path.split(sep)[0]))
    .sort();
  const hash = createHash("sha256");
  for (const path of files) hash.update(`${path}\0`).update(readFileSync(join(packageDir, path)));
  const folder = join(cacheDir(), `${version}-${hash.digest("hex").slice(0, HASH_CHARS)}`);
  if (existsSync(folder)) return folder;
  mkdirSync(cacheDir(), { recursive: true });
  const fresh = mkdtempSync(join(cacheDir(), ".new-"));
  try {
    for (const path of files) {
      mkdirSync(dirname(join(fresh, path)), { recursive: true });
      cpSync(join(packageDir, path), join(fresh, path));
    }
    // In one step, so that a copy is never half there. Another process may have made it meanwhile.
    renameSync(fresh, folder);
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    if (!existsSync(folder)) throw error;
  }
  return folder;
}

function cacheDir() {
  const { XDG_CACHE_HOME, LOCALAPPDATA } = process.env;
  if (IS_WINDOWS && LOCALAPPDATA) return join(LOCALAPPDATA, "tollgate");
  if (process.platform === "darwin") return join(homedir(), "Library", "Caches", "tollgate");
  return join(XDG_CACHE_HOME || join(homedir(), ".cache"), "tollgate");
}

/** The path of Bun in this version, which npm fetches if it must. */
function bunOf(version) {
  const { status, stdout, error } = spawnSync("npx", ["-y", `bun@${version}`, "--print", "process.execPath"], {
    // Not in the copy, whose bunfig.toml refuses to run anything before its dependencies are installed.
    cwd: cacheDir(),
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    // npx is a script there.
    shell: IS_WINDOWS,
  });
  const path = stdout?.trim().split("\n").at(-1) ?? "";
  if (error || status !== 0 || !existsSync(path))
    fail(`npm could not fetch bun@${version}${error ? ` (${error.message})` : ""}. See the output above.`);
  return path;
}

/** Runs a program, passes signals on, and exits with its status. */
function run(program, args, cwd) {
  const child = spawn(program, args, { cwd, stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"])
    process.on(signal, () => {
      // A Ctrl-C reaches the child from the terminal too.
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  child.once("error", ({ message }) => fail(message));
  child.once("exit", (code, signal) => process.exit(code ?? (signal === "SIGINT" ? 130 : 1)));
}

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}

try {
  main();
} catch (error) {
  fail(error instanceof Error ? error.message : String(error));
}
