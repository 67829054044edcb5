/** The folder of one embedded PostgreSQL: who may run it there, its database, its password. */
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
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { copyBinaries, postgresBinaries } from "./binaries.ts";
import { processExists } from "./owned_process.ts";
import { giveTo, type Identity, possibleIdentities, whyCannotRun } from "./unprivileged.ts";

const majorVersion = "18";
/** Where data and programs go when root may not run them in place. */
const placeForRoot = "/var/lib/tollgate";

/** Programs, data and user that go together. */
export interface PostgresFolder {
  /** The package's folder with bin, lib and share. */
  native: string;
  folder: string;
  /** PostgreSQL's own data directory, inside folder. */
  data: string;
  password: string;
  identity: Identity;
}

/**
 * Makes the folder ready to start from: finds a user who may run PostgreSQL on it, and creates the database once.
 * Throws one sentence when nobody may, or when the database is of another version.
 */
export function preparePostgresFolder(dataDir: string, log: (message: string) => void): PostgresFolder {
  const place = choosePlace(dataDir, log);
  removeLeftovers(place.folder);
  if (!isCluster(place.data)) createCluster(place, log);
  checkVersion(place.data);
  return { ...place, password: readFileSync(passwordFile(place.data), "utf8").trim() };
}

/** Nothing of the caller's: PGDATA, PGPORT or a locale would change what is started. */
export function serverEnv(): Record<string, string> {
  return { PATH: process.env.PATH ?? "/usr/bin:/bin", LC_ALL: "C", TZ: "UTC" };
}

type Place = Omit<PostgresFolder, "password">;

function choosePlace(dataDir: string, log: (message: string) => void): Place {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const native = postgresBinaries(dataDir);
  const tried: string[] = [];
  for (const identity of possibleIdentities(dataDir)) {
    const obstacle = whyCannotRun(identity, join(native, "bin", "postgres"), dataDir);
    if (obstacle === null) return placeAt(dataDir, native, identity);
    tried.push(`${identity.name}: ${obstacle}`);
  }
  if (process.getuid?.() === 0) {
    const folder = folderForOtherUser(dataDir);
    const copy = copyBinaries(native, placeForRoot);
    const identity = possibleIdentities(folder).at(-1);
    const obstacle = identity
      ? whyCannotRun(identity, join(copy, "bin", "postgres"), folder)
      : "there is no user nobody";
    if (identity && obstacle === null) {
      log(`PostgreSQL may not run as root, and no other user may enter ${dataDir}: its data is kept in ${folder}.`);
      return placeAt(folder, copy, identity);
    }
    tried.push(`${placeForRoot}: ${obstacle}`);
  }
  throw new Error(`The built-in PostgreSQL cannot run here (${tried.join("; ")}): set DATABASE_URL instead.`);
}

function placeAt(folder: string, native: string, identity: Identity): Place {
  const data = join(realpathSync(folder), "pgdata");
  if (process.getuid?.() === 0) {
    chownSync(folder, identity.ownerUid, identity.gid ?? 0);
    if (existsSync(data)) giveTo(identity, data);
  }
  return { native, identity, folder, data };
}

/** A folder of our own that any user may reach. Which one is noted in dataDir, so that deleting dataDir starts afresh. */
function folderForOtherUser(dataDir: string): string {
  const note = join(dataDir, "moved_to");
  if (!existsSync(note)) writeFileSync(note, join(placeForRoot, `data-${randomBytes(6).toString("hex")}`));
  const folder = readFileSync(note, "utf8").trim();
  mkdirSync(placeForRoot, { recursive: true });
  chmodSync(placeForRoot, 0o755);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  return folder;
}

/** What a creation that was cut half-way left behind. Folders of living processes are theirs. */
function removeLeftovers(folder: string): void {
  for (const name of readdirSync(folder)) {
    const maker = /^(?:pgdata|password)\.new-(\d+)-/.exec(name)?.[1];
    if (maker && (Number(maker) === process.pid || !processExists(Number(maker)))) {
      rmSync(join(folder, name), { recursive: true, force: true });
    }
  }
}

/** The password is written last: without it the folder is not one that we finished. */
function isCluster(data: string): boolean {
  return existsSync(join(data, "PG_VERSION")) && existsSync(passwordFile(data));
}

/** Made aside and renamed when whole: a crash half-way, or two starts at once, never show a half-made database. */
function createCluster({ native, folder, data, identity }: Place, log: (message: string) => void): void {
  log("Creating a new database, this takes some seconds once.");
  const suffix = `new-${process.pid}-${randomBytes(6).toString("hex")}`;
  const made = `${data}.${suffix}`;
  const password = join(folder, `password.${suffix}`);
  mkdirSync(made, { mode: 0o700 });
  writeFileSync(password, randomBytes(24).toString("hex"), { mode: 0o600, flag: "wx" });
  if (process.getuid?.() === 0) for (const path of [made, password]) giveTo(identity, path);
  runInitdb(join(native, "bin", "initdb"), identity, ["-D", made, `--pwfile=${password}`]);
  renameSync(password, passwordFile(made));
  sync(passwordFile(made));
  sync(made);
  if (existsSync(data) && !isCluster(data)) renameSync(data, `${data}.broken-${suffix}`);
  try {
    renameSync(made, data);
  } catch (error) {
    rmSync(made, { recursive: true, force: true });
    if (!isCluster(data)) throw error;
  }
  sync(folder);
}

function runInitdb(initdb: string, { prefix, uid, gid }: Identity, place: string[]): void {
  const fixed = ["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions"];
  const [command = "", ...args] = [...prefix, initdb, ...place, ...fixed];
  const done = spawnSync(command, args, { uid, gid, cwd: "/", env: serverEnv(), encoding: "utf8" });
  if (done.status === 0) return;
  throw new Error(`The database could not be created: ${(done.error?.message ?? done.stderr).trim()}`);
}

function checkVersion(data: string): void {
  const version = readFileSync(join(data, "PG_VERSION"), "utf8").trim();
  if (version === majorVersion) return;
  throw new Error(`${data} was made by PostgreSQL ${version}, this is ${majorVersion}: use another folder.`);
}

function passwordFile(data: string): string {
  return join(data, "tollgate_password");
}

/** Makes a file's content, or a folder's names, survive a power cut. */
function sync(path: string): void {
  const handle = openSync(path, "r");
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}
