import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { startBooksCheck } from "../../src/books/check_schedule.ts";
import { brokenEarnings, creditEarnings } from "../../src/books/earnings_store.ts";
import { openSlices } from "../../src/books/short_transactions_store.ts";
import type { Db } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { until } from "../platform/own_redis.ts";
import { createWorld, type Person, type World } from "../world.ts";

/** A reseller that cannot be credited now delays nobody else. What is credited: markups.test.ts. Source: MRK-6, REL-5, REL-8. */

const BALANCE_MAX = 9_000_000_000_000_000n;
let world: World;
let db: Db;

beforeAll(async () => {
  world = await createWorld();
  db = world.openDb();
});
afterEach(async () => {
  await world.sql`truncate earnings`;
  await world.sql`
    with taken as (delete from balance_entries where kind = 'earning' returning account_id, amount_nano_usd)
    update balances b set balance_nano_usd = balance_nano_usd - amount_nano_usd from taken where b.account_id = taken.account_id`;
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await db.close();
  await world.close();
});

/** A reseller that has earned 5 nano-USD on a closed day. */
async function addEarner(): Promise<Person> {
  const reseller = await world.addReseller();
  await world.sql`
    insert into earnings (reseller_id, day, requests, earned_nano_usd) values (${reseller.accountId}, '2026-01-01', 1, 5)`;
  return reseller;
}

const credited = async ({ accountId }: Person) =>
  (await world.sql`select credited_nano_usd::int as nano from earnings where reseller_id = ${accountId}`)[0]?.nano;

test("a reseller whose account stays locked delays no other reseller's credit", async () => {
  const [locked, other] = [await addEarner(), await addEarner()];
  await world.sql.begin(async (holder) => {
    await holder`select lock_accounts(array[${locked.accountId}]::bigint[])`;
    await expect(creditEarnings(db.sql)).rejects.toThrow("lock timeout");
    expect([await credited(locked), await credited(other)]).toEqual([0, 5]);
  });
  expect(await creditEarnings(db.sql)).toBe(1);
  expect(await credited(locked)).toBe(5);
});

test("two replicas that credit a reseller at once, and wait for its lock, credit it once", async () => {
  const { accountId } = await addEarner();
  const credits = await world.sql.begin(async (holder) => {
    await holder`select lock_accounts(array[${accountId}]::bigint[])`;
    const both = [1, 2].map(() => db.sql`select credit_earnings(${accountId})`.execute());
    await until(async () => {
      const waiting = await holder`
        select 1 from pg_locks where locktype = 'advisory' and not granted and objid = ${accountId}
          and database = (select oid from pg_database where datname = current_database())`;
      return waiting.length === 2;
    });
    return { ended: Promise.allSettled(both) };
  });
  await credits.ended;
  const entries =
    await world.sql`select amount_nano_usd::int as nano from balance_entries where account_id = ${accountId}`;
  expect(entries.map(({ nano }) => nano)).toEqual([5]);
});

test("a reseller whose balance is full is credited when there is room; meanwhile the books are checked, and their result is known", async () => {
  const full = await addEarner();
  await world.setBalance(full, BALANCE_MAX);
  const config = { databaseUrl: world.url, dbPrepare: true };
  const check = startBooksCheck({ config, log: createLog("silent"), tickMs: 50 });
  await until(() => check.last().checkedUnix > 0);
  expect(await credited(full)).toBe(0);
  await world.sql`select add_balance(${full.accountId}, -5, 'correction', 'test', null)`;
  await until(async () => (await credited(full)) === 5);
  await check.close();
});

test("earnings that nobody's receipts explain are found, of more resellers than a slice compares", async () => {
  const people = await Promise.all(Array.from({ length: 120 }, addEarner));
  // One has only an entry, and no day.
  const { accountId } = await world.addReseller();
  await world.sql`select add_balance(${accountId}, 7, 'earning', 'test', null)`;
  const refs = (await brokenEarnings(openSlices(db.sql))).map(({ ref }) => ref);
  const inView = await world.sql`select reseller_id || ' ' || day as ref from inv_earnings`;
  expect(refs.toSorted()).toEqual(inView.map(({ ref }) => String(ref)).toSorted());
  expect(refs).toHaveLength(people.length + 1);
});
