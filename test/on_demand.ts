import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

/**
 * Installs packages that only a few tests use, on demand into a cache folder: they are not needed to run or change the
 * product.
 */

export const INSTALL_MS_MAX = 240_000;
const repository = dirname(import.meta.dirname);

type Packages = {
  /** Of the folder: it changes with the versions. */
  name: string;
  /** With exact versions. */
  dependencies: Readonly<Record<string, string>>;
  /** Options for `bun install`. */
  options?: readonly string[];
};

/** The folder with the packages in it, installed there by the first run on this machine. */
export async function installOnDemand({ name, dependencies, options = [] }: Packages): Promise<string> {
  const places = [process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), join(repository, ".cache")];
  const folders = places.map((place) => join(place, "tollgate", name));
  const isWhole = (folder: string) =>
    Object.keys(dependencies).every((one) => existsSync(join(folder, "node_modules", one, "package.json")));
  const installed = folders.find(isWhole);
  if (installed !== undefined) return installed;
  const parent = places.map((place) => join(place, "tollgate")).find(canMake);
  if (parent === undefined) throw new Error(`None of ${places.join(" and ")} can be written.`);
  console.log(`installing ${name} into ${parent}`);
  // Installed in another folder and renamed when complete, so that concurrent or interrupted runs leave no incomplete
  // folder.
  const made = mkdtempSync(join(parent, `${name}.new-`));
  try {
    writeFileSync(join(made, "package.json"), JSON.stringify({ private: true, dependencies }));
    await run(["install", ...options, "--ignore-scripts"], made);
    renameSync(made, join(parent, name));
  } catch (error) {
    rmSync(made, { recursive: true, force: true });
    if (!existsSync(join(parent, name))) throw error;
  }
  return join(parent, name);
}

function canMake(folder: string): boolean {
  try {
    mkdirSync(folder, { recursive: true });
    rmSync(mkdtempSync(join(folder, "try-")), { recursive: true });
    return true;
  } catch {
    return false; // Another user's, or a read-only home.
  }
}

/** Runs bun. Rejects with its output when it fails. */
function run(args: string[], cwd: string): Promise<void> {
  const outputFile = join(cwd, "install.log");
  const child = spawn("/bin/sh", ["-c", 'exec "$0" "$@" >install.log 2>&1', process.execPath, ...args], {
    cwd,
    stdio: "ignore",
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), INSTALL_MS_MAX);
  return new Promise((done, fail) => {
    child.once("exit", (code) => {
      clearTimeout(timer);
      if (code === 0) done();
      else fail(new Error(`bun ${args.join(" ")} ended with ${code}:\n${readFileSync(outputFile, "utf8")}`));
    });
  });
}
