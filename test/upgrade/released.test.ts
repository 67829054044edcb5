import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { readMigrationFiles } from "drizzle-orm/migrator";
import { changedMigrations, dataFileOf, MIGRATIONS, type Migration, migrationsOf, readReleases } from "./releases.ts";

/** A released migration is never changed: a database that has had it, and a new one, would differ. Source: REL-10. */

test("every released migration is as it was released, and in its place", () => {
  expect(changedMigrations(readReleases(), migrationsOf())).toEqual([]);
});

test("the data of the last release is recorded, for the upgrade test", () => {
  const last = readReleases().at(-1);
  expect(last === undefined || existsSync(dataFileOf(last.version))).toBe(true);
});

test("the hashes are those that databases have", () => {
  const inDatabases = readMigrationFiles({ migrationsFolder: MIGRATIONS }).map(({ hash }) => hash);
  expect(migrationsOf().map(({ hash }) => hash)).toEqual(inDatabases);
});

test("a migration that was changed, moved, removed or put in between is found; one that was added is not", () => {
  const made = (tag: string, hash = tag): Migration => ({ tag, hash });
  const [a, b, c] = [made("a"), made("b"), made("c")];
  const released = [{ version: "1.0.0", migrations: [a, b] }];
  const findings = (now: readonly Migration[]) => changedMigrations(released, now);
  expect(findings([a, b])).toEqual([]);
  expect(findings([a, b, c])).toEqual([]);
  expect(findings([a, made("b", "other")])).toEqual(["1.0.0: b was changed; add a migration instead"]);
  expect(findings([a])).toEqual(["1.0.0: b has moved or is gone; nothing is in its place"]);
  expect(findings([b, a])).toHaveLength(2);
  expect(findings([a, c, b])).toEqual(["1.0.0: b has moved or is gone; c is in its place"]);
  const later = [...released, { version: "1.1.0", migrations: [a, made("b", "other"), c] }];
  expect(changedMigrations(later, [a, made("b", "other"), c])).toEqual([
    "1.0.0: b was changed; add a migration instead",
  ]);
});
