/** Finds a Redis (or Valkey) server program; on Debian it is fetched and unpacked into a cache folder, without root. */
import { execFile, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";

const commandWaitMs = 180_000;
const outputBytesMax = 16 * 1024 * 1024;
const repository = dirname(import.meta.dirname);

/** Server packages in order of preference; the tools package holds the program that the server package links to. */
const choices = [
  { program: "redis-server", packages: ["redis-server", "redis-tools"] },
  { program: "valkey-server", packages: ["valkey-server", "valkey-tools"] },
];
/** The C library of the machine must stay in use: programs and their loader fit only together. */
const keptFromMachine = new Set(["libc6", "libc-bin", "libgcc-s1", "gcc-12-base"]);

export interface RedisProgram {
  command: string;
  /** Added to the environment, so that the program finds the libraries that were unpacked with it. */
  env: Record<string, string>;
}

/** Throws one sentence that says what to install when there is no Redis and none can be fetched. */
export async function redisProgram(log: (message: string) => void): Promise<RedisProgram> {
  for (const { program } of choices) {
    const command = onPath(program);
    if (command) return { command, env: {} };
  }
  const folder = join(cacheFolder(), `redis-${process.arch}`);
  const unpacked = programIn(folder);
  if (unpacked) return unpacked;
  if (!onPath("apt-get") || !onPath("dpkg-deb")) throw new Error(whatToInstall);
  log("No Redis here: fetching Debian's package, this takes some seconds once.");
  const fetched = await fetchFromDebian(folder);
  if (!fetched) throw new Error(whatToInstall);
  return fetched;
}

const whatToInstall =
  "The tests need a Redis: install redis-server or valkey-server (apt, dnf or brew), or set REDIS_URL to one that may be emptied.";

/** `$XDG_CACHE_HOME/tollgate` or `~/.cache/tollgate`; without a usable home folder `.cache` in the repository. */
export function cacheFolder(): string {
  const { XDG_CACHE_HOME, HOME } = process.env;
  const places = [XDG_CACHE_HOME, HOME && join(HOME, ".cache")].filter((place) => place?.startsWith("/"));
  for (const place of places) {
    const folder = join(place ?? "", "tollgate");
    try {
      mkdirSync(folder, { recursive: true });
      accessSync(folder, constants.W_OK);
      return folder;
    } catch {
      // A home that is missing or read-only: the next place will do.
    }
  }
  const folder = join(repository, ".cache");
  mkdirSync(folder, { recursive: true });
  return folder;
}

async function fetchFromDebian(folder: string): Promise<RedisProgram | null> {
  const made = `${folder}.${randomBytes(6).toString("hex")}`;
  const aptFolder = join(made, "apt");
  for (const name of ["state/lists/partial", "cache/archives/partial"]) {
    mkdirSync(join(aptFolder, name), { recursive: true });
  }
  try {
    // First with the machine's package lists; if they are missing or too old, with fresh ones of our own.
    const own = ["-o", `Dir::State=${aptFolder}/state`, "-o", `Dir::Cache=${aptFolder}/cache`];
    const isFetched =
      (await fetchPackages([], made)) ||
      ((await succeeds("apt-get", [...own, ...quietly, "update"])) && (await fetchPackages(own, made)));
    if (!isFetched) return null;
    rmSync(aptFolder, { recursive: true, force: true });
    if (!programIn(made)) return null;
    if (existsSync(folder)) rmSync(folder, { recursive: true, force: true });
    renameSync(made, folder);
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
  return programIn(folder);
}

/** As any user, without locks; root's downloads need no user of their own. */
const quietly = ["-q", "-o", "Debug::NoLocking=true", "-o", "APT::Sandbox::User=root"];

async function fetchPackages(options: string[], folder: string): Promise<boolean> {
  for (const { packages } of choices) {
    const missing = await missingPackages([...options, ...quietly], packages);
    if (!missing) continue;
    const archives = join(folder, "archives");
    mkdirSync(archives, { recursive: true });
    if (!(await succeeds("apt-get", [...options, ...quietly, "download", ...missing], archives))) continue;
    for (const archive of readdirSync(archives)) {
      if (!(await succeeds("dpkg-deb", ["-x", join(archives, archive), folder]))) return false;
    }
    rmSync(archives, { recursive: true, force: true });
    return true;
  }
  return false;
}

/** The packages themselves and whatever they need that the machine lacks; null when apt knows none of that name. */
async function missingPackages(options: string[], packages: string[]): Promise<string[] | null> {
  const plan = await output("apt-get", [...options, "-s", "--no-install-recommends", "install", ...packages]);
  if (plan === null) return null;
  const needed = [...plan.matchAll(/^Inst (\S+)/gm)].map((line) => line[1] ?? "");
  return [...new Set([...packages, ...needed])].filter((name) => !keptFromMachine.has(name));
}

/** The server program below `folder`, if it runs. */
function programIn(folder: string): RedisProgram | null {
  const env = { LD_LIBRARY_PATH: libraryFolders(folder).join(":") };
  for (const { program } of choices) {
    const command = join(folder, "usr/bin", program);
    if (!existsSync(command)) continue;
    const tried = spawnSync(command, ["--version"], { env: { ...process.env, ...env } });
    if (tried.status === 0) return { command, env };
  }
  return null;
}

/** Debian keeps libraries in lib and usr/lib, below a folder named after the machine's kind. */
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
    const options = { cwd, timeout: commandWaitMs, maxBuffer: outputBytesMax, env: { ...process.env, LC_ALL: "C" } };
    return (await promisify(execFile)(command, args, options)).stdout;
  } catch {
    return null;
  }
}
