/** Finds a Redis (or Valkey) server program. On Debian, downloads one and unpacks it into a cache folder, without root. */
import { execFile, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";

const COMMAND_MS_MAX = 180_000;
const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;
const repository = dirname(import.meta.dirname);
const NOT_FOUND =
  "The tests need Redis: install redis-server or valkey-server (apt, dnf or brew), or set REDIS_URL to one whose data may be deleted.";

/** Server packages in order of preference. The tools package contains the program that the server package links to. */
const CANDIDATES = [
  { program: "redis-server", packages: ["redis-server", "redis-tools"] },
  { program: "valkey-server", packages: ["valkey-server", "valkey-tools"] },
];
/** Not downloaded: a program needs the loader and the C library of the same build, and the loader is the machine's. */
const MACHINE_PACKAGES = new Set(["libc6", "libc-bin", "libgcc-s1", "gcc-12-base"]);

export interface RedisProgram {
  command: string;
  /** To be added to the environment, so that the program finds the libraries that were unpacked with it. */
  env: Record<string, string>;
}

/** Throws an Error with one sentence that says what to install, if there is no Redis and none can be downloaded. */
export async function redisProgram(log: (message: string) => void): Promise<RedisProgram> {
  for (const { program } of CANDIDATES) {
    const command = onPath(program);
    if (command) return { command, env: {} };
  }
  const folder = join(cacheFolder(), `redis-${process.arch}`);
  const unpacked = programIn(folder);
  if (unpacked) return unpacked;
  if (!onPath("apt-get") || !onPath("dpkg-deb")) throw new Error(NOT_FOUND);
  log("Redis is not installed. Downloading Debian's package; this takes a few seconds, only the first time.");
  const downloaded = await downloadFromDebian(folder);
  if (!downloaded) throw new Error(NOT_FOUND);
  return downloaded;
}

/** `$XDG_CACHE_HOME/tollgate` or `~/.cache/tollgate`; without a writable home folder, `.cache` in the repository. */
function cacheFolder(): string {
  const { XDG_CACHE_HOME, HOME } = process.env;
  const parents = [XDG_CACHE_HOME, HOME && join(HOME, ".cache")].filter((parent) => parent?.startsWith("/"));
  for (const parent of parents) {
    const folder = join(parent ?? "", "tollgate");
    try {
      mkdirSync(folder, { recursive: true });
      accessSync(folder, constants.W_OK);
      return folder;
    } catch {
      // Missing or read-only: tries the next one.
    }
  }
  const folder = join(repository, ".cache");
  mkdirSync(folder, { recursive: true });
  return folder;
}

async function downloadFromDebian(folder: string): Promise<RedisProgram | null> {
  const temporary = `${folder}.${randomBytes(6).toString("hex")}`;
  const aptFolder = join(temporary, "apt");
  for (const name of ["state/lists/partial", "cache/archives/partial"]) {
    mkdirSync(join(aptFolder, name), { recursive: true });
  }
  try {
    // Tries the machine's package lists first. If they are missing or outdated, downloads its own lists.
    const ownLists = ["-o", `Dir::State=${aptFolder}/state`, "-o", `Dir::Cache=${aptFolder}/cache`];
    const isDownloaded =
      (await downloadPackages([], temporary)) ||
      ((await succeeds("apt-get", [...ownLists, ...APT_OPTIONS, "update"])) &&
        (await downloadPackages(ownLists, temporary)));
    if (!isDownloaded) return null;
    rmSync(aptFolder, { recursive: true, force: true });
    if (!programIn(temporary)) return null;
    if (existsSync(folder)) rmSync(folder, { recursive: true, force: true });
    renameSync(temporary, folder);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
  return programIn(folder);
}

/** Options that let any user run apt-get: no locks, and no separate user for root's downloads. */
const APT_OPTIONS = ["-q", "-o", "Debug::NoLocking=true", "-o", "APT::Sandbox::User=root"];

async function downloadPackages(options: string[], folder: string): Promise<boolean> {
  for (const { packages } of CANDIDATES) {
    const missing = await missingPackages([...options, ...APT_OPTIONS], packages);
    if (!missing) continue;
    const archives = join(folder, "archives");
    mkdirSync(archives, { recursive: true });
    if (!(await succeeds("apt-get", [...options, ...APT_OPTIONS, "download", ...missing], archives))) continue;
    for (const archive of readdirSync(archives)) {
      if (!(await succeeds("dpkg-deb", ["-x", join(archives, archive), folder]))) return false;
    }
    rmSync(archives, { recursive: true, force: true });
    return true;
  }
  return false;
}

/** The packages and their dependencies that are not installed. Null if apt does not know the packages. */
async function missingPackages(options: string[], packages: string[]): Promise<string[] | null> {
  const plan = await output("apt-get", [...options, "-s", "--no-install-recommends", "install", ...packages]);
  if (plan === null) return null;
  const needed = [...plan.matchAll(/^Inst (\S+)/gm)].map((line) => line[1] ?? "");
  return [...new Set([...packages, ...needed])].filter((name) => !MACHINE_PACKAGES.has(name));
}

/** The server program below `folder`. Null if there is none, or if it does not run. */
function programIn(folder: string): RedisProgram | null {
  const env = { LD_LIBRARY_PATH: libraryFolders(folder).join(":") };
  for (const { program } of CANDIDATES) {
    const command = join(folder, "usr/bin", program);
    if (!existsSync(command)) continue;
    const version = spawnSync(command, ["--version"], { env: { ...process.env, ...env } });
    if (version.status === 0) return { command, env };
  }
  return null;
}

/** Debian's libraries are in lib and usr/lib, in a folder named after the architecture. */
function libraryFolders(folder: string): string[] {
  const roots = [join(folder, "usr/lib"), join(folder, "lib")].filter((root) => existsSync(root));
  return roots.flatMap((root) => [
    ...readdirSync(root)
      .filter((name) => name.includes("-linux-"))
      .map((name) => join(root, name)),
    root,
  ]);
}

function onPath(program: string): string | null {
  for (const folder of (process.env.PATH ?? "").split(":")) {
    const path = join(folder, program);
    try {
      if (!folder) continue;
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not in this folder.
    }
  }
  return null;
}

async function succeeds(command: string, args: string[], cwd?: string): Promise<boolean> {
  return (await output(command, args, cwd)) !== null;
}

async function output(command: string, args: string[], cwd?: string): Promise<string | null> {
  try {
    const options = { cwd, timeout: COMMAND_MS_MAX, maxBuffer: OUTPUT_BYTES_MAX, env: { ...process.env, LC_ALL: "C" } };
    return (await promisify(execFile)(command, args, options)).stdout;
  } catch {
    return null;
  }
}
