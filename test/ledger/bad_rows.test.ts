import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { mkdir, readFile, rename, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { verifySeals } from "../../src/books/seal_check_store.ts";
import { sealDue } from "../../src/books/seals_store.ts";
import type { Hold } from "../../src/ledger/ledger.ts";
import { inSlicesOf } from "../books/sealed_months.ts";
import { until } from "../platform/own_redis.ts";
import { createWorld, type World } from "../world.ts";
import { drawn, type OpenLedger, openWorldLedger, requestFor, usageOf } from "./ledger_world.ts";

/** Rows that the database rejects: the other rows of their batch are not affected, and only a row that can never succeed is set aside. */

let world: World;
let open: OpenLedger;

beforeAll(async () => {
  world = await createWorld();
  open = await openWorldLedger(world, { escrowUnitsMax: 0, spool: "rows" });
});
afterEach(async () => void (await world.sql`drop trigger if exists bad_row on receipts`));
afterAll(async () => {
  await open.close();
  await world.close();
});

/** Ten accounts with one hold each. */
async function tenHolds(): Promise<Hold[]> {
  const people = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const person = await world.addCustomer();
      await world.givePackage(person, { dailyLimit: 100 });
      return requestFor(person, await world.addKey(person));
    }),
  );
  return Promise.all(people.map((request) => open.ledger.reserve(request)));
}

/** From now on a receipt of this account fails with this error. */
async function fail(accountId: number, state: string): Promise<void> {
  await world.sql.unsafe(`
    create or replace function bad_row() returns trigger language plpgsql as $$ begin
      if new.account_id = ${accountId} then raise exception 'bad' using errcode = '${state}'; end if;
      return new;
    end $$;
    create trigger bad_row before insert on receipts for each row execute function bad_row()`);
}

async function settledOf(holds: readonly Hold[]): Promise<string[]> {
  const ids = holds.map(({ requestId }) => requestId);
  const rows = await world.sql<
    { request_id: string }[]
  >`select request_id from receipts where outcome = 'settled' and request_id = any(${ids})`;
  return rows.map((row) => row.request_id).sort();
}

/** Settles all at once. Returns the ids of those that the database took. */
async function settleAll(holds: readonly Hold[]): Promise<string[]> {
  const ends = await Promise.all(holds.map((hold) => open.ledger.settle(hold, usageOf())));
  return holds.filter((_, i) => ends[i]?.spooled === false).map(({ requestId }) => requestId);
}

const idsOf = (holds: readonly Hold[]) => holds.map(({ requestId }) => requestId).sort();

test.each(["XX001", "42501", "P0001"])(
  "one account's rows fail with %s: the others are settled, and its settlement waits in the spool until it succeeds",
  async (state) => {
    const holds = await tenHolds();
    const bad = holds[3] as Hold;
    const others = holds.filter((hold) => hold !== bad);
    await fail(bad.accountId, state);
    const asideBefore = open.ledger.aside();
    expect((await settleAll(holds)).sort()).toEqual(idsOf(others));
    expect(await settledOf(holds)).toEqual(idsOf(others));
    await expect(open.ledger.replaySpool()).rejects.toThrow("unreachable");
    await world.sql`drop trigger bad_row on receipts`;
    expect(await open.ledger.replaySpool()).toBe(1);
    expect(await settledOf(holds)).toEqual(idsOf(holds));
    expect(open.ledger.aside()).toBe(asideBefore);
  },
);

test("one row has a value that the database never takes: it alone is set aside, and the unit that was drawn for it goes back", async () => {
  const holds = await tenHolds();
  const bad = holds[7] as Hold;
  await fail(bad.accountId, "22003");
  const asideBefore = open.ledger.aside();
  const others = holds.filter((hold) => hold !== bad);
  expect((await settleAll(holds)).sort()).toEqual(idsOf(others));
  expect(open.ledger.aside()).toBe(asideBefore + 1);
  await until(async () => (await drawn(world, bad.accountId)).units === 0);
  expect(await open.ledger.replaySpool()).toBe(0);
});

test("while the disk takes nothing that is set aside, such a row waits in the spool, and counts as set aside for the alarm; others are served; then it is set aside, and nothing is lost", async () => {
  const holds = await tenHolds();
  const bad = holds[2] as Hold;
  await fail(bad.accountId, "22003");
  const asideBefore = open.ledger.aside();
  const file = join(world.spoolDir, "rows", "aside.jsonl");
  await rename(file, `${file}.kept`);
  // Nothing can be appended to a folder.
  await mkdir(file);
  const others = holds.filter((hold) => hold !== bad);
  expect((await settleAll(holds)).sort()).toEqual(idsOf(others));
  const waits = () => [open.ledger.aside(), open.ledger.spooled().settlements, open.ledger.ready()];
  expect(waits()).toEqual([asideBefore + 1, 1, true]);
  await expect(open.ledger.replaySpool()).rejects.toThrow();
  expect(waits()).toEqual([asideBefore + 1, 1, true]);
  // One row that waits safely on the disk does not keep the replica from serving others.
  const more = await tenHolds();
  expect((await settleAll(more)).sort()).toEqual(idsOf(more));
  await rmdir(file);
  await rename(`${file}.kept`, file);
  await open.ledger.replaySpool();
  expect([open.ledger.aside(), open.ledger.spooled().settlements]).toEqual([asideBefore + 1, 0]);
  expect(await readFile(file, "utf8")).toContain(bad.requestId);
  await until(async () => (await drawn(world, bad.accountId)).units === 0);
});

// The last one: the month in which the others write is closed for good.
test("a settlement that comes after its month was sealed is set aside and charged to nobody; the seal holds, and the books balance", async () => {
  const { sql } = world;
  const late = (await tenHolds())[0] as Hold;
  const asideBefore = open.ledger.aside();
  const [at] =
    await sql`select to_char(ledger_now() at time zone 'UTC', 'YYYY-MM-01')::date + interval '1 month 8 days' as later`;
  await world.setClock(`${new Date(at?.later).toISOString().slice(0, 19).replace("T", " ")}+00`);
  try {
    const sealed = await inSlicesOf(world, 1_000, sealDue);
    expect(sealed.length).toBeGreaterThan(0);
    expect(await settleAll([late])).toEqual([]);
    expect(open.ledger.aside()).toBe(asideBefore + 1);
    expect(await open.ledger.replaySpool()).toBe(0);
    expect(await readFile(join(world.spoolDir, "rows", "aside.jsonl"), "utf8")).toContain(late.requestId);
    expect(await settledOf([late])).toEqual([]);
    await until(async () => (await drawn(world, late.accountId)).units === 0);
    expect(await inSlicesOf(world, 1_000, verifySeals)).toEqual([]);
  } finally {
    await world.setClock(null);
  }
  expect(await world.unbalanced()).toEqual([]);
});
