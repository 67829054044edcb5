/** The folder of one embedded PostgreSQL: which user runs it there, its database, its password. */
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { copyBinaries, postgresBinaries } from "./binaries.ts";
import { processExists } from "./owned_process.ts";
import { candidateIdentities, chownTree, type Identity, whyCannotRun } from "./unprivileged.ts";

const MAJOR_VERSION = "18";
/** Where data and programs go if root starts the demo and no other user can reach `dataDir`. */
const FOLDER_FOR_ROOT = "/var/lib/tollgate";

/** Programs, data and the user who runs the programs and owns the data. */
export interface PostgresFolder {
  /** The package's folder with bin, lib and share. */
  native: string;
  path: string;
  /** PostgreSQL's data directory, inside `path`. */
  data: string;
  password: string;
  identity: Identity;
}

/**
 * Prepares the folder for a start: finds a user who can run PostgreSQL there, and creates the database if it is missing.
 * Throws an Error with one sentence if no user can, or if the database has another version.
 */
export function preparePostgresFolder(dataDir: string, log: (message: string) => void): PostgresFolder {
  const location = chooseLocation(dataDir, log);
  removeLeftovers(location.path);
  if (!isCluster(location.data)) createCluster(location, log);
  checkVersion(location.data);
  return { ...location, password: readFileSync(passwordFile(location.data), "utf8").trim() };
}

/** Makes the user who runs PostgreSQL the owner of the data. Must not be called while an earlier server uses it. */
export function takeOwnership({ data, identity }: PostgresFolder): void {
  if (process.getuid?.() === 0 && statSync(data).uid !== identity.ownerUid) chownTree(identity, data);
}

/** A clean environment: the caller's PGDATA, PGPORT or locale would change what is started. */
export function serverEnv(): Record<string, string> {
  return { PATH: process.env.PATH ?? "/usr/bin:/bin", LC_ALL: "C", TZ: "UTC" };
}

type PostgresLocation = Omit<PostgresFolder, "password">;

/** Prefers programs and data where they are. For root, tries a copy of the programs next, then another folder for the data too. */
function chooseLocation(dataDir: string, log: (message: string) => void): PostgresLocation {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const native = postgresBinaries(dataDir);
  const tried: string[] = [];
  const locationAt = (folder: string, programs: string): PostgresLocation | undefined => {
    const identity = findIdentity(folder, programs, tried);
    if (!identity) return;
    if (process.getuid?.() === 0) chownSync(folder, identity.ownerUid, identity.gid ?? 0);
    return { native: programs, identity, path: folder, data: join(realpathSync(folder), "pgdata") };
  };
  const inPlace = locationAt(dataDir, native);
  if (inPlace) return inPlace;
  if (process.getuid?.() === 0) {
    const copy = copyBinaries(native, FOLDER_FOR_ROOT);
    const dataInPlace = locationAt(dataDir, copy);
    if (dataInPlace) return dataInPlace;
    const elsewhere = folderForOtherUser(dataDir);
    log(`PostgreSQL cannot run as root, and no other user can enter ${dataDir}: its data is kept in ${elsewhere}.`);
    const moved = locationAt(elsewhere, copy);
    if (moved) return moved;
  }
  throw new Error(`The built-in PostgreSQL cannot run here (${tried.join("; ")}): set DATABASE_URL instead.`);
}

function findIdentity(folder: string, native: string, tried: string[]): Identity | undefined {
  return candidateIdentities(folder).find((identity) => {
    const obstacle = whyCannotRun(identity, join(native, "bin", "postgres"), folder);
    if (obstacle !== null) tried.push(`${identity.name}: ${obstacle}`);
    return obstacle === null;
  });
}

/** A folder that any user can reach. A note in dataDir has its path, so deleting dataDir starts with an empty database. */
function folderForOtherUser(dataDir: string): string {
  const note = join(dataDir, "moved_to");
  if (!existsSync(note)) writeFileSync(note, join(FOLDER_FOR_ROOT, `data-${randomBytes(6).toString("hex")}`));
  const folder = readFileSync(note, "utf8").trim();
  mkdirSync(FOLDER_FOR_ROOT, { recursive: true });
  chmodSync(FOLDER_FOR_ROOT, 0o755);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  return folder;
}

/** Removes what an interrupted creation left behind, unless its process still runs. */
function removeLeftovers(folder: string): void {
  for (const name of readdirSync(folder)) {
    const maker = /^(?:pgdata|password)\.new-(\d+)-/.exec(name)?.[1];
    if (maker && (Number(maker) === process.pid || !processExists(Number(maker)))) {
      rmSync(join(folder, name), { recursive: true, force: true });
    }
  }
}

/** The password is written last, so a folder without it is incomplete. */
function isCluster(data: string): boolean {
  return existsSync(join(data, "PG_VERSION")) && existsSync(passwordFile(data));
}

/** Creates the database under another name and renames it when complete, so a crash or a second start never sees half of it. */
function createCluster({ native, path, data, identity }: PostgresLocation, log: (message: string) => void): void {
  log("Creating a new database. This takes a few seconds, only the first time.");
  const suffix = `new-${process.pid}-${randomBytes(6).toString("hex")}`;
  const temporary = `${data}.${suffix}`;
  const password = join(path, `password.${suffix}`);
  mkdirSync(temporary, { mode: 0o700 });
  writeFileSync(password, randomBytes(24).toString("hex"), { mode: 0o600, flag: "wx" });
  if (process.getuid?.() === 0) for (const created of [temporary, password]) chownTree(identity, created);
  runInitdb(join(native, "bin", "initdb"), identity, ["-D", temporary, `--pwfile=${password}`]);
  renameSync(password, passwordFile(temporary));
  sync(passwordFile(temporary));
  sync(temporary);
  if (existsSync(data) && !isCluster(data)) renameSync(data, `${data}.broken-${suffix}`);
  try {
    renameSync(temporary, data);
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true });
    if (!isCluster(data)) throw error;
  }
  sync(path);
}

function runInitdb(initdb: string, { prefix, uid, gid }: Identity, paths: string[]): void {
  // Sorts by bytes, but knows upper and lower case of all of Unicode, for searches such as "zoë ünal".
  const locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"];
  const fixed = ["--username=postgres", "--auth=scram-sha-256", ...locale, "--no-instructions"];
  const [command = "", ...args] = [...prefix, initdb, ...paths, ...fixed];
  const done = spawnSync(command, args, { uid, gid, cwd: "/", env: serverEnv(), encoding: "utf8" });
  if (done.status === 0) return;
  throw new Error(`The database could not be created: ${(done.error?.message ?? done.stderr).trim()}`);
}

function checkVersion(data: string): void {
  const version = readFileSync(join(data, "PG_VERSION"), "utf8").trim();
  if (version === MAJOR_VERSION) return;
  throw new Error(`${data} was created by PostgreSQL ${version}, but this is ${MAJOR_VERSION}: use another folder.`);
}

function passwordFile(data: string): string {
  return join(data, "tollgate_password");
}

/** Flushes a file, or a folder's entries, to disk. */
function sync(path: string): void {
  const handle = openSync(path, "r");
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}
