/**
 * Ends the process with one line where a dependency is missing, or is another version than package.json names. Bun runs it before
 * every script (bunfig.toml, `preload`), so that no entry point starts on packages that nobody checked. It needs no dependency.
 * That postgres.js is the patched one is checked where it is loaded: `src/platform/db.ts`.
 */
import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import process from "node:process";

const repository = dirname(import.meta.dirname);
/** It installs what is missing, and starts other scripts when it has. */
const INSTALLER = "ensure_installed.ts";

/** The first dependency that is not installed as package.json names it; undefined: all of them are. */
export function missingDependency(): string | undefined {
  const { dependencies } = readManifest(repository);
  for (const [name, wanted] of Object.entries(dependencies ?? {})) {
    const found = installedVersion(name);
    if (found === undefined) return `${name} is not installed`;
    if (found !== wanted) return `${name} is installed in version ${found}, and package.json names ${wanted}`;
  }
  return undefined;
}

function installedVersion(name: string): string | undefined {
  try {
    return readManifest(join(repository, "node_modules", name)).version;
  } catch {
    return undefined;
  }
}

type Manifest = { version?: string; dependencies?: Record<string, string> };

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
}

if (basename(process.argv[1] ?? "") !== INSTALLER) {
  const problem = missingDependency();
  if (problem !== undefined) {
    process.stderr.write(`The dependency ${problem}. Run: bun install --frozen-lockfile\n`);
    process.exit(1);
  }
}
