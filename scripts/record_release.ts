import { existsSync, writeFileSync } from "node:fs";
import process from "node:process";
import packageFacts from "../package.json" with { type: "json" };
import { changedMigrations, dataFileOf, migrationsOf, RELEASED, readReleases } from "../test/upgrade/releases.ts";
import { startPostgres } from "./services.ts";

/**
 * Records what the upgrade tests of later releases need of this one: `bun scripts/record_release.ts`, once for each minor version, in the commit
 * that is tagged. It adds the migrations to `test/upgrade/released.json`, from when on they are never changed, and writes the data of a
 * shop that has traded on this schema to `test/upgrade/`. The data of the release before is no longer needed.
 */

const { version } = packageFacts;
const releases = readReleases();
const migrations = migrationsOf();
const changed = changedMigrations(releases, migrations);
if (changed.length > 0) stop(changed.join("\n"));
if (releases.some((release) => release.version === version)) stop(`${version} is recorded already.`);
if (existsSync(dataFileOf(version))) stop(`There is data of ${version} already.`);
const postgres = await startPostgres();
try {
  process.env.DATABASE_URL = postgres.url;
  // It reads DATABASE_URL when it is loaded.
  const { recordTrade } = await import("../test/upgrade/trade.ts");
  writeFileSync(dataFileOf(version), await recordTrade());
  writeFileSync(RELEASED, `${JSON.stringify([...releases, { version, migrations }], null, 2)}\n`);
  console.log(`${version}: ${migrations.length} migrations, and the data of a shop. Commit test/upgrade/.`);
} finally {
  await postgres.stop();
}

function stop(message: string): never {
  console.error(message);
  process.exit(1);
}
