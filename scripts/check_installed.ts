/**
 * Exits with one line if a dependency is missing or has another version than in package.json. Bun runs this file before every
 * script (bunfig.toml, `preload`), so no entry point starts with unchecked packages. It imports no dependency. `src/platform/db.ts`
 * checks that postgres.js is patched.
 */
import { readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import process from "node:process";

const repository = dirname(import.meta.dirname);
/** Not checked: this script installs what is missing, then starts others. */
const INSTALLER = "ensure_installed.ts";

/** Describes the first dependency that is missing or has the wrong version. Undefined if there is none. */
function missingDependency(): string | undefined {
  const { dependencies } = readManifest(repository);
  for (const [name, wanted] of Object.entries(dependencies ?? {})) {
    const found = installedVersion(name);
    if (found === undefined) return `${name} is not installed`;
    if (found !== wanted) return `${name} is installed in version ${found}, but package.json has ${wanted}`;
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
