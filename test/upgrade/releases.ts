import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";

/**
 * The migrations of each release, as `bun scripts/record_release.ts` has written them: a released migration is never changed. Empty before
 * the first release.
 */

const repository = join(import.meta.dirname, "..", "..");
export const MIGRATIONS = join(repository, "drizzle");
export const RELEASED = join(import.meta.dirname, "released.json");

export type Migration = {
  /** Its file, without `.sql`. */
  tag: string;
  /** SHA-256 of the file, as databases have it. */
  hash: string;
};
export type Release = { version: string; migrations: readonly Migration[] };

const Releases = Type.Array(
  Type.Object({
    version: Type.String({ pattern: "^\\d+\\.\\d+\\.\\d+$" }),
    migrations: Type.Array(Type.Object({ tag: Type.String(), hash: Type.String({ pattern: "^[0-9a-f]{64}$" }) }), {
      minItems: 1,
    }),
  }),
);
const Journal = Type.Object({ entries: Type.Array(Type.Object({ tag: Type.String() })) });

/** The releases, oldest first. Throws an Error if the file is not as the script writes it. */
export function readReleases(): Release[] {
  return Value.Parse(Releases, JSON.parse(readFileSync(RELEASED, "utf8")));
}

/** The migrations of a folder, in their order. */
export function migrationsOf(folder = MIGRATIONS): Migration[] {
  const { entries } = Value.Parse(Journal, JSON.parse(readFileSync(join(folder, "meta", "_journal.json"), "utf8")));
  return entries.map(({ tag }) => ({
    tag,
    hash: new Bun.CryptoHasher("sha256").update(readFileSync(join(folder, `${tag}.sql`), "utf8")).digest("hex"),
  }));
}

/** What of released migrations is no longer as it was: each release's must be the first ones of the next, and of `now`. */
export function changedMigrations(releases: readonly Release[], now: readonly Migration[]): string[] {
  const later = [...releases.slice(1).map(({ migrations }) => migrations), now];
  return releases.flatMap(({ version, migrations }, place) =>
    migrations.flatMap(({ tag, hash }, index) => {
      const found = later[place]?.[index];
      if (found?.tag !== tag)
        return [`${version}: ${tag} has moved or is gone; ${found?.tag ?? "nothing"} is in its place`];
      return found.hash === hash ? [] : [`${version}: ${tag} was changed; add a migration instead`];
    }),
  );
}

/** The file with the recorded data of a release. */
export function dataFileOf(version: string): string {
  return join(import.meta.dirname, `data-${version}.json.gz`);
}
