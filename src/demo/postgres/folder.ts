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
  statSync,
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

/** Gives the data to who runs it now, if that was somebody else before. Not while an earlier server is still at work on it. */
export function takeOverData({ data, identity }: PostgresFolder): void {
  if (process.getuid?.() === 0 && statSync(data).uid !== identity.ownerUid) giveTo(identity, data);
}

/** Nothing of the caller's: PGDATA, PGPORT or a locale would change what is started. */
export function serverEnv(): Record<string, string> {
  return { PATH: process.env.PATH ?? "/usr/bin:/bin", LC_ALL: "C", TZ: "UTC" };
}

type Place = Omit<PostgresFolder, "password">;

/** In place if any user may run it there; for root also with the programs, or programs and data, moved to where others may go. */
function choosePlace(dataDir: string, log: (message: string) => void): Place {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const native = postgresBinaries(dataDir);
  const tried: string[] = [];
  const placeAt = (folder: string, programs: string): Place | undefined => {
    const identity = whoCanRun(folder, programs, tried);
    if (!identity) return;
    if (process.getuid?.() === 0) chownSync(folder, identity.ownerUid, identity.gid ?? 0);
    return { native: programs, identity, folder, data: join(realpathSync(folder), "pgdata") };
  };
  const inPlace = placeAt(dataDir, native);
  if (inPlace) return inPlace;
  if (process.getuid?.() === 0) {
    const copy = copyBinaries(native, placeForRoot);
    const dataInPlace = placeAt(dataDir, copy);
    if (dataInPlace) return dataInPlace;
    const elsewhere = folderForOtherUser(dataDir);
    log(`PostgreSQL may not run as root, and no other user may enter ${dataDir}: its data is kept in ${elsewhere}.`);
    const moved = placeAt(elsewhere, copy);
    if (moved) return moved;
  }
  throw new Error(`The built-in PostgreSQL cannot run here (${tried.join("; ")}): set DATABASE_URL instead.`);
}

function whoCanRun(folder: string, native: string, tried: string[]): Identity | undefined {
  return possibleIdentities(folder).find((identity) => {
    const obstacle = whyCannotRun(identity, join(native, "bin", "postgres"), folder);
    if (obstacle !== null) tried.push(`${identity.name}: ${obstacle}`);
    return obstacle === null;
  });
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
  // Sorted by bytes, but with all of Unicode's upper and lower case: people search for Zoë Ünal too.
  const locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"];
  const fixed = ["--username=postgres", "--auth=scram-sha-256", ...locale, "--no-instructions"];
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
