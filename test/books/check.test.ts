import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { appendFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { check } from "../../src/books/check.ts";
import { compareDueCounters } from "../../src/books/check_counters_store.ts";
import { checkIfDue } from "../../src/books/check_runs_store.ts";
import { foldAll } from "../../src/books/folding_store.ts";
import { INVARIANTS, type InvariantName } from "../../src/books/invariants.ts";
import { openSlices } from "../../src/books/short_transactions_store.ts";
import { settlementOf } from "../../src/ledger/finisher.ts";
import type { Hold } from "../../src/ledger/ledger.ts";
import type { Finish } from "../../src/ledger/ledger_store.ts";
import { connect, type Sql } from "../../src/platform/db.ts";
import {
  drawn,
  type OpenLedger,
  openSqlReplica,
  openWorldLedger,
  reapLease,
  requestFor,
  type SqlReplica,
  usageOf,
} from "../ledger/ledger_world.ts";
import { createWorld, type World } from "../world.ts";

/**
 * Folding, and the check that depends on it: every receipt and balance transaction is folded exactly once, whatever
 * happens at the same time, and the check finds of each invariant what its view shows. Source: src/ledger/README.md, REL-8.
 */

let world: World;
let one: OpenLedger;
let two: OpenLedger;
let replica: SqlReplica;

beforeAll(async () => {
  world = await createWorld();
  one = await openWorldLedger(world, { leaseSeconds: 600 });
  two = await openWorldLedger(world, { leaseSeconds: 600 });
  replica = await openSqlReplica(world);
});
afterAll(async () => {
  await one.close();
  await two.close();
  await world.close();
});

const client = (connections = 1) => connect({ databaseUrl: world.url, dbPrepare: true }, connections);

/** Folds everything, at most `rows` rows per slice. */
async function fold(sql: Sql, rows = 50): Promise<boolean> {
  const slices = openSlices(sql, { onSlice: (all) => (all.rows = rows) });
  slices.rows = rows;
  return await foldAll(slices);
}

/** Starts a process that folds everything. */
function startFolding(): ChildProcess {
  const source = (name: string) => JSON.stringify(join(import.meta.dirname, "../../src", name));
  const script = `
    import { foldAll } from ${source("books/folding_store.ts")};
    import { openSlices } from ${source("books/short_transactions_store.ts")};
    import { connect } from ${source("platform/db.ts")};
    await foldAll(openSlices(connect({ databaseUrl: ${JSON.stringify(world.url)}, dbPrepare: true }, 1)));`;
  return spawn(process.execPath, ["-e", script], { stdio: "ignore" });
}

/** The server process that waits for a locked row of the sums. */
async function waitingPid(): Promise<number> {
  for (const deadline = performance.now() + 20_000; performance.now() < deadline; await Bun.sleep(20)) {
    const [row] = await world.sql`
      select pid from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query like '%with taken as%'`;
    if (row) return Number(row.pid);
  }
  throw new Error("no process waits for the sums");
}

/** Sums that differ from those of the rows. Must be empty. */
async function wrongSums(): Promise<unknown[]> {
  return [
    ...(await world.sql`
      with counted as (
        select 'package' as kind, package_id as id, day, sum(units) as units, sum(charged_tokens) as tokens, 0 as nano_usd
        from receipts where package_id is not null group by 2, 3
        union all select 'key', key_id, key_day, count(*), 0, sum(charged_nano_usd) from receipts
        where key_day is not null and outcome = 'settled' group by 2, 3
        union all select 'uncounted', key_id, (r.created_at at time zone k.time_zone)::date, 0, 0, sum(charged_nano_usd)
        from receipts r join keys k on k.id = key_id where key_day is null and outcome = 'settled' group by 2, 3
        union all select 'account', account_id, '-infinity', 0, 0, sum(amount_nano_usd) from balance_entries group by 2
      )
      select kind, id, day::text, c.units, s.units as closed_units, c.tokens, s.tokens as closed_tokens, c.nano_usd, s.nano_usd as closed_nano_usd
      from counted c full join (select * from book_sums where kind in ('package', 'key', 'uncounted', 'account')) s using (kind, id, day)
      where coalesce(c.units, 0) <> coalesce(s.units, 0) or coalesce(c.tokens, 0) <> coalesce(s.tokens, 0)
        or coalesce(c.nano_usd, 0) <> coalesce(s.nano_usd, 0)`),
    ...(await world.sql`
      select piece, r.rows, s.rows as closed_rows from (
        select receipts_piece(request_id) as piece, count(*) as rows from receipts where outcome = 'settled' group by 1) r
      full join (select id as piece, rows from book_sums where kind = 'receipts') s using (piece) where r.rows is distinct from s.rows`),
  ];
}

/** What a check finds, by invariant, without those that hold. */
async function brokenNow(onChanged?: (pieces: number) => void): Promise<Record<string, number | null>> {
  const sql = client();
  try {
    const results = await check(openSlices(sql), onChanged ? { onChanged } : {});
    return Object.fromEntries(results.filter(({ rows }) => rows !== 0).map(({ name, rows }) => [name, rows]));
  } finally {
    await sql.end();
  }
}

/** What the views show. */
async function brokenInViews(): Promise<Record<string, number>> {
  const counts = await Promise.all(
    INVARIANTS.map(async ({ name }): Promise<[InvariantName, number]> => {
      const [row] = await world.sql`select count(*)::int as n from ${world.sql(name)}`;
      return [name, Number(row?.n)];
    }),
  );
  return Object.fromEntries(counts.filter(([, rows]) => rows !== 0));
}

/** A customer with a package, whose key has spend and request limits. */
async function packager() {
  const person = await world.addCustomer();
  const key = await world.addKey(person);
  await world.sql`update keys set daily_units_max = 100000 where id = ${key.keyId}`;
  const packageId = await world.givePackage(person, { dailyLimit: 1000, days: 5, carryover: true, tokenLimit: 10_000 });
  return { ...person, ...key, packageId, ask: () => requestFor(person, key) };
}

/** A customer with a balance, whose key has a spend limit. */
async function payer() {
  const person = await world.addCustomer();
  const key = await world.addKey(person, { mode: "payg" });
  await world.sql`update keys set daily_spend_max_nano_usd = 9000000000 where id = ${key.keyId}`;
  await world.setBalance(person, 1_000_000_000n);
  return { ...person, ...key, ask: () => requestFor(person, key, { outputPico: 1000n }) };
}

/** A package whose receipts were written by one transaction. */
async function writeMany(count: number) {
  const person = await packager();
  await world.sql`
    insert into receipts (request_id, account_id, key_id, model_id, host, mode, package_id, day, outcome, reason, units, held_nano_usd,
      charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
    select (substr(request_id_floor(clock_timestamp() - n * interval '1 second')::text, 1, 24)
        || lpad((${person.packageId}::int * 10000 + n)::text, 12, '0'))::uuid,
      ${person.accountId}, ${person.keyId}, 'model-a', 'h', 'package', ${person.packageId}, current_date, 'settled', 'complete', 1, 0, 0, 0,
      1, 0, 1, 2, false, clock_timestamp(), clock_timestamp()
    from generate_series(1, ${count}::int) as n`;
  await world.sql`
    insert into package_days (package_id, day, units_taken, units_max) values (${person.packageId}, current_date, ${count}, 5000)`;
  await world.sql`update packages set units_taken = ${count}, tokens_taken = ${2 * count} where id = ${person.packageId}`;
  return person;
}

/** Ends the lease of a hold, and returns what was drawn under it. */
async function reap({ leaseId }: Hold): Promise<void> {
  expect(await reapLease(world, leaseId)).toBeGreaterThan(0);
}

const settlement = (hold: Hold, chargeNanoUsd = 0n) =>
  settlementOf(hold, usageOf({ chargeNanoUsd }), { strict: false, reason: "complete" });

const settleIn = (sql: Sql, finishes: Finish[]) => replica.finish(finishes, { sql });

describe("folded exactly once", () => {
  test("while two ledgers settle and release, and two processes fold at the same time", async () => {
    const people = [await packager(), await packager(), await payer()];
    const folders = [client(), client()];
    let busy = true;
    const folding = folders.map(async (sql) => {
      let folds = 0;
      for (; busy || folds < 2; folds++) await fold(sql, 20);
      return folds;
    });
    const work = async (i: number) => {
      const ledger = i % 2 === 0 ? one.ledger : two.ledger;
      const person = people[i % people.length] as (typeof people)[0];
      const hold = await ledger.reserve(person.ask());
      if (i % 7 === 0) await ledger.release(hold, "not_dispatched");
      else await ledger.settle(hold, usageOf({ chargeNanoUsd: "packageId" in person ? 0n : BigInt(i) }));
    };
    for (let round = 0; round < 20; round++)
      await Promise.all(Array.from({ length: 30 }, (_, i) => work(round * 30 + i)));
    busy = false;
    expect(Math.min(...(await Promise.all(folding)))).toBeGreaterThan(1);
    expect(await fold(folders[0] as Sql)).toBe(true);
    expect(await wrongSums()).toEqual([]);
    await Promise.all(folders.map((sql) => sql.end()));
  });

  test("a transaction that stays open while others are folded is folded once it commits; one that rolls back is not", async () => {
    const [slow, lost, busy] = [await packager(), await payer(), await packager()];
    const [slowHold, lostHold] = [await one.ledger.reserve(slow.ask()), await one.ledger.reserve(lost.ask())];
    const [commits, rollsBack, folder] = [client(), client(), client()];
    await commits`begin`;
    await settleIn(commits, [settlement(slowHold)]);
    await rollsBack`begin`;
    await settleIn(rollsBack, [settlement(lostHold, 5n)]);
    for (let i = 0; i < 5; i++) {
      await two.ledger.settle(await two.ledger.reserve(busy.ask()), usageOf());
      expect(await fold(folder, 2)).toBe(true);
      expect(await wrongSums()).toEqual([]);
    }
    await commits`commit`;
    await rollsBack`rollback`;
    const [late] = await world.sql`
      select r.finished_at < (select min(x.finished_at) from receipts x where x.package_id = ${busy.packageId}) as is_older
      from receipts r where r.request_id = ${slowHold.requestId}`;
    expect(late?.is_older).toBe(true);
    expect(await fold(folder)).toBe(true);
    expect(await wrongSums()).toEqual([]);
    await one.ledger.release(lostHold, "not_dispatched");
    expect(await brokenNow()).toEqual({});
    await Promise.all([commits, rollsBack, folder].map((sql) => sql.end()));
  });

  test("a release that becomes a late settlement, before or after it was folded", async () => {
    const [units, money] = [await packager(), await payer()];
    const folder = client();
    for (const foldsBetween of [true, false])
      for (const person of [units, money]) {
        const hold = await one.ledger.reserve(person.ask());
        await reap(hold);
        if (foldsBetween) await fold(folder);
        await one.ledger.settle(hold, usageOf({ chargeNanoUsd: "packageId" in person ? 0n : 300n }));
      }
    expect(await fold(folder)).toBe(true);
    expect(await wrongSums()).toEqual([]);
    const [closed] = await world.sql`
      select sum(units)::int as units from book_sums where kind = 'package' and id = ${units.packageId}`;
    expect(closed?.units).toBe(2);
    expect(await brokenNow()).toEqual({});
    await folder.end();
  });

  test("a settlement replayed twice from the spool after its hold was reaped and folded", async () => {
    const person = await packager();
    const hold = await one.ledger.reserve(person.ask());
    await reap(hold);
    const folder = client();
    await fold(folder);
    const line = `${JSON.stringify({ ...settlement(hold), heldNanoUsd: "0", chargeNanoUsd: "0" })}\n`;
    const directory = join(world.spoolDir, "waited");
    await mkdir(directory, { recursive: true });
    await appendFile(join(directory, "000000000000001-000000.spool"), line + line);
    const next = await openWorldLedger(world, { spool: "waited" });
    expect(await next.ledger.replaySpool()).toBe(2);
    await next.close();
    await fold(folder);
    expect(await wrongSums()).toEqual([]);
    const [closed] = await world.sql`
      select units::int from book_sums where kind = 'package' and id = ${person.packageId}`;
    expect(closed?.units).toBe(1);
    await folder.end();
  });

  test("a slice that is killed folds nothing; the next one folds everything", async () => {
    const person = await packager();
    const settle = async () => one.ledger.settle(await one.ledger.reserve(person.ask()), usageOf());
    const [holder, after] = [client(), client()];
    await settle();
    await fold(after);
    const sumsNow = async () => [
      ...(await world.sql`select kind, id, day::text, rows, units from book_sums order by 1, 2, 3`),
    ];
    const before = await sumsNow();
    await settle();
    // The slice has read its rows and waits for a sum that another transaction has locked.
    await holder`begin`;
    await holder`select from book_sums where kind = 'package' and id = ${person.packageId} for update`;
    const killed = startFolding();
    const pid = await waitingPid();
    await world.sql`select pg_terminate_backend(${pid})`;
    killed.kill("SIGKILL");
    await holder`rollback`;
    expect(await sumsNow()).toEqual(before);
    expect(await wrongSums()).not.toEqual([]);
    expect(await fold(after)).toBe(true);
    expect(await wrongSums()).toEqual([]);
    await Promise.all([holder, after].map((sql) => sql.end()));
  });

  test("a transaction that wrote more than a slice folds, also while another process folds it as a whole", async () => {
    const [folder, other] = [client(), client()];
    for (const takesWhole of [false, true]) {
      const { packageId } = await writeMany(900);
      const folds = [fold(folder, 10)];
      if (takesWhole) folds.push(Bun.sleep(30).then(() => fold(other, 5000)));
      expect(await Promise.all(folds)).not.toContain(false);
      const [row] = await world.sql`
        select count(distinct written_in)::int as transactions from receipts where package_id = ${packageId}`;
      expect(row?.transactions).toBeGreaterThan(takesWhole ? 0 : 44);
      expect(await wrongSums()).toEqual([]);
      expect(await brokenNow()).toEqual({});
    }
    await Promise.all([folder, other].map((sql) => sql.end()));
  });

  test("charges written by one large transaction are folded with their balance transactions: none is put on book_due", async () => {
    const person = await payer();
    await world.sql.begin(async (tx) => {
      await tx`
        insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd, charged_nano_usd,
          shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
        select (left(request_id_floor(clock_timestamp())::text, 14) || '7000-9000-' || lpad((${person.accountId}::int * 10000 + n)::text, 12, '0'))::uuid,
          ${person.accountId}, ${person.keyId}, 'model-a', 'h', 'payg', 'settled', 'complete', 0, 1, 1, 0, 1, 0, 1, 0, false, clock_timestamp(), clock_timestamp()
        from generate_series(1, 300) as n`;
      await tx`
        insert into balance_entries (account_id, amount_nano_usd, kind, request_id)
        select account_id, -1, 'charge', request_id from receipts where account_id = ${person.accountId}`;
      await tx`update balances set balance_nano_usd = balance_nano_usd - 300 where account_id = ${person.accountId}`;
    });
    const folder = client();
    expect(await fold(folder, 10)).toBe(true);
    const [noted] =
      await world.sql`select count(*)::int as n from book_due where kind = 'charge' and id = ${person.accountId}`;
    expect(noted?.n).toBe(0);
    expect(await wrongSums()).toEqual([]);
    expect(await brokenNow()).toEqual({});
    await folder.end();
  });

  test("after a restore on another server, whose transaction ids are behind those in the rows", async () => {
    for (const table of ["receipts", "balance_entries"])
      await world.sql`
        update ${world.sql(table)} set written_in = (1000000000000000 + written_in::text::bigint)::text::xid8`;
    await world.sql`update book_closing set server = 'another', folded = '1000000000000900:1000000000000900:'`;
    const person = await packager();
    await one.ledger.settle(await one.ledger.reserve(person.ask()), usageOf());
    expect(await brokenNow()).toEqual({});
    expect(await wrongSums()).toEqual([]);
    const [row] = await world.sql`
      select (select count(*) from receipts where written_in >= pg_snapshot_xmax(pg_current_snapshot()))::int as receipts,
        (select count(*) from balance_entries where written_in >= pg_snapshot_xmax(pg_current_snapshot()))::int as entries`;
    expect(row).toEqual({ receipts: 0, entries: 0 });
  });
});

describe("a check finds what the views show", () => {
  type Case = [
    what: string,
    broken: string[],
    breaks: (sql: Sql) => Promise<unknown>,
    repairs: (sql: Sql) => Promise<unknown>,
  ];
  let units: Awaited<ReturnType<typeof packager>>;
  let money: Awaited<ReturnType<typeof payer>>;

  beforeAll(async () => {
    units = await packager();
    money = await payer();
    for (let i = 1; i <= 3; i++) {
      await one.ledger.settle(await one.ledger.reserve(units.ask()), usageOf());
      await one.ledger.settle(await one.ledger.reserve(money.ask()), usageOf({ chargeNanoUsd: BigInt(i) }));
    }
    const reseller = await world.addReseller();
    const offering = await world.addOffering();
    await world.sql`insert into allotments (reseller_id, offering_id, granted) values (${reseller.accountId}, ${offering}, 5)`;
    await world.sql`select assign_package(${units.accountId}, ${offering}, 'after', ${reseller.accountId}, null, true)`;
    await world.sql`create table kept_receipts as select * from receipts limit 0`;
    await world.sql`create table kept_entries as select * from balance_entries limit 0`;
    expect(await brokenNow()).toEqual({});
  });

  const onPackage = (sql: Sql, change: string) =>
    sql.unsafe(`update packages set ${change} where id = ${units.packageId}`);
  const onDay = (sql: Sql, change: string) =>
    sql.unsafe(`update package_days set ${change} where package_id = ${units.packageId}`);
  const onBalance = (sql: Sql, change: string) =>
    sql.unsafe(`update balances set ${change} where account_id = ${money.accountId}`);
  const onKeyDay = (sql: Sql, change: string) =>
    sql.unsafe(`update key_days set ${change} where key_id = ${money.keyId}`);
  const firstOf = (account: { accountId: number }) =>
    `(select request_id from receipts where account_id = ${account.accountId} order by 1 limit 1)`;
  /** Deletes rows, and keeps them to be restored. */
  const remove = (sql: Sql, table: string, where: string) =>
    sql.unsafe(
      `with gone as (delete from ${table} where ${where} returning *)
      insert into ${table === "receipts" ? "kept_receipts" : "kept_entries"} select * from gone`,
    );
  const restore = (sql: Sql, table: string) =>
    sql.unsafe(
      table === "receipts"
        ? "with back as (delete from kept_receipts returning *) insert into receipts select * from back"
        : "with back as (delete from kept_entries returning *) insert into balance_entries overriding system value select * from back",
    );

  const CASES: Case[] = [
    [
      "a package's units",
      ["inv_package_units"],
      (sql) => onPackage(sql, "units_taken = units_taken + 1"),
      (sql) => onPackage(sql, "units_taken = units_taken - 1"),
    ],
    [
      "a package's tokens",
      ["inv_package_units"],
      (sql) => onPackage(sql, "tokens_taken = tokens_taken + 1"),
      (sql) => onPackage(sql, "tokens_taken = tokens_taken - 1"),
    ],
    [
      "a day's units",
      ["inv_package_days"],
      (sql) => onDay(sql, "units_taken = units_taken + 1"),
      (sql) => onDay(sql, "units_taken = units_taken - 1"),
    ],
    [
      "a carryover ahead of its days",
      ["inv_bounds"],
      (sql) => onPackage(sql, "first_day = first_day + 20"),
      (sql) => onPackage(sql, "first_day = first_day - 20"),
    ],
    [
      "a balance",
      ["inv_balance_entries"],
      (sql) => onBalance(sql, "balance_nano_usd = balance_nano_usd + 1"),
      (sql) => onBalance(sql, "balance_nano_usd = balance_nano_usd - 1"),
    ],
    [
      "the reserved amount of a balance",
      ["inv_balance_held"],
      (sql) => onBalance(sql, "held_nano_usd = held_nano_usd + 1"),
      (sql) => onBalance(sql, "held_nano_usd = held_nano_usd - 1"),
    ],
    [
      "a key's day",
      ["inv_key_days"],
      (sql) => onKeyDay(sql, "taken_nano_usd = taken_nano_usd + 1"),
      (sql) => onKeyDay(sql, "taken_nano_usd = taken_nano_usd - 1"),
    ],
    [
      "an allotment's used pieces",
      ["inv_allotments"],
      (sql) => sql`update allotments set used = used + 1`,
      (sql) => sql`update allotments set used = used - 1`,
    ],
    [
      "an order that is paid without a payment",
      ["inv_payments"],
      (sql) => sql`
        insert into orders (account_id, kind, amount_nano_usd, price_nano_usd, status, paid_at)
        select min(id), 'top_up', 5, 5, 'paid', now() from accounts`,
      (sql) => sql`delete from orders where amount_nano_usd = 5`,
    ],
    [
      "an old receipt removed",
      ["inv_package_units", "inv_package_days", "inv_key_days"],
      (sql) => remove(sql, "receipts", `request_id = ${firstOf(units)}`),
      (sql) => restore(sql, "receipts"),
    ],
    [
      "an old charge's balance transaction removed",
      ["inv_balance_entries", "inv_charges"],
      (sql) => remove(sql, "balance_entries", `request_id = ${firstOf(money)}`),
      (sql) => restore(sql, "balance_entries"),
    ],
    [
      "an old receipt's charge changed",
      ["inv_key_days", "inv_charges"],
      (sql) =>
        sql.unsafe(`update receipts set charged_nano_usd = charged_nano_usd + 1 where request_id = ${firstOf(money)}`),
      (sql) =>
        sql.unsafe(`update receipts set charged_nano_usd = charged_nano_usd - 1 where request_id = ${firstOf(money)}`),
    ],
    [
      "a balance transaction without a reason",
      ["inv_balance_entries"],
      (sql) =>
        sql`insert into balance_entries (account_id, amount_nano_usd, kind) values (${money.accountId}, 7, 'correction')`,
      (sql) => sql`delete from balance_entries where amount_nano_usd = 7`,
    ],
    [
      "a charge for a request that a package paid for",
      ["inv_balance_entries", "inv_charges"],
      (sql) =>
        sql.unsafe(`insert into balance_entries (account_id, amount_nano_usd, kind, request_id)
          values (${units.accountId}, -1, 'charge', ${firstOf(units)})`),
      (sql) => sql`delete from balance_entries where account_id = ${units.accountId}`,
    ],
    [
      "what a replica has drawn of a package",
      ["inv_package_units", "inv_package_days"],
      (sql) => sql.unsafe(`update escrows set units = units + 1 where package_id = ${units.packageId}`),
      (sql) => sql.unsafe(`update escrows set units = units - 1 where package_id = ${units.packageId}`),
    ],
    [
      "what a replica has drawn of a balance",
      ["inv_balance_held"],
      (sql) =>
        sql.unsafe(`update escrows set nano_usd = nano_usd + 1 where account_id = ${money.accountId} and key_id = 0`),
      (sql) =>
        sql.unsafe(`update escrows set nano_usd = nano_usd - 1 where account_id = ${money.accountId} and key_id = 0`),
    ],
    [
      "what a replica has drawn for a key with daily limits",
      ["inv_key_days"],
      (sql) => sql.unsafe(`update escrows set units = units + 1 where key_id = ${money.keyId}`),
      (sql) => sql.unsafe(`update escrows set units = units - 1 where key_id = ${money.keyId}`),
    ],
    [
      "a count of a key that was deleted",
      ["inv_key_days"],
      (sql) => sql`insert into key_days (key_id, day, units_taken) values (999999, current_date, 1)`,
      (sql) => sql`delete from key_days where key_id = 999999`,
    ],
  ];

  test.each(CASES)("%s", async (_, broken, breaks, repairs) => {
    const sql = client();
    await breaks(sql);
    const views = await brokenInViews();
    expect(Object.keys(views).sort()).toEqual([...broken].sort());
    expect(await brokenNow()).toEqual(views);
    // It stays broken until it is repaired, though nothing has changed since.
    expect(await brokenNow()).toEqual(views);
    await repairs(sql);
    expect(await brokenInViews()).toEqual({});
    expect(await brokenNow()).toEqual({});
    expect(await wrongSums()).toEqual([]);
    await sql.end();
  });

  test("wrong sums (a slice folded twice) are found and folded anew; no counter is reported as broken", async () => {
    for (const damage of [
      "update book_closing set folded = '3:3:'",
      "update book_sums set units = units + 1 where kind = 'package'",
      "update book_sums set nano_usd = nano_usd + 1 where kind = 'account'",
      "update book_sums set units = units + 1 where kind = 'key'",
      "delete from book_sums where kind = 'entries'",
    ]) {
      let changed = 0;
      await world.sql.unsafe(damage);
      expect(await brokenNow((pieces) => (changed += pieces))).toEqual({});
      expect(changed).toBeGreaterThan(0);
      expect(await wrongSums()).toEqual([]);
    }
  });

  test("a receipt whose balance transaction is written later is broken only until then", async () => {
    const [before] = await world.sql`select max(id) as id from balance_entries`;
    await world.sql.unsafe(`update receipts set charged_nano_usd = 0 where request_id = ${firstOf(money)}`);
    await world.sql.unsafe(`delete from balance_entries where request_id = ${firstOf(money)}`);
    await onBalance(client(), "balance_nano_usd = balance_nano_usd + 1");
    await onKeyDay(client(), "taken_nano_usd = taken_nano_usd - 1");
    expect(await brokenNow()).toEqual({});
    await world.sql.unsafe(
      `update receipts set charged_nano_usd = 1, written_in = default where request_id = ${firstOf(money)}`,
    );
    expect(await brokenNow()).toEqual(await brokenInViews());
    expect(await brokenInViews()).toMatchObject({ inv_charges: 1 });
    await world.sql.unsafe(`insert into balance_entries (account_id, amount_nano_usd, kind, request_id)
      values (${money.accountId}, -1, 'charge', ${firstOf(money)})`);
    await onBalance(client(), "balance_nano_usd = balance_nano_usd - 1");
    await onKeyDay(client(), "taken_nano_usd = taken_nano_usd + 1");
    expect(Number(before?.id)).toBeGreaterThan(0);
    expect(await brokenNow()).toEqual({});
  });

  test("with open holds of units and of money, and while requests run", async () => {
    const holds = [await one.ledger.reserve(units.ask()), await one.ledger.reserve(money.ask())];
    expect(await brokenNow()).toEqual({});
    let busy = true;
    const traffic = [units, money].map(async ({ ask }) => {
      // At most as many as the package has tokens for.
      for (let i = 0; busy && i < 200; i++) {
        await two.ledger.settle(await two.ledger.reserve(ask()), usageOf());
        await Bun.sleep(10);
      }
    });
    for (let i = 0; i < 5; i++) expect(await brokenNow()).toEqual({});
    busy = false;
    await Promise.all(traffic);
    for (const hold of holds) await one.ledger.release(hold, "not_dispatched");
  });
});

describe("ids with different numbers of digits are compared as numbers", () => {
  const WITHIN_MS = 10_000;
  let young: World;
  let sql: Sql;
  beforeAll(async () => {
    young = await createWorld();
    sql = connect({ databaseUrl: young.url, dbPrepare: true }, 1);
  });
  afterAll(async () => {
    await sql.end();
    await young.close();
  });

  test("transactions 92 to 107, more than a slice folds: each row is folded, and folding ends", async () => {
    const { accountId } = await young.addCustomer();
    await young.setBalance({ accountId }, 0n);
    await young.sql`
      insert into balance_entries (account_id, amount_nano_usd, kind, written_in)
      select ${accountId}, case when n % 2 = 0 then 1 else -1 end, 'top_up', (92 + n / 40)::text::xid8
      from generate_series(0, 639) as n`;
    const slices = openSlices(sql, { budgetMs: WITHIN_MS, onSlice: (all) => (all.rows = 50) });
    slices.rows = 50;
    expect(await foldAll(slices)).toBe(true);
    const [sum] = await young.sql`select rows::int from book_sums where kind = 'account' and id = ${accountId}`;
    const [all] = await young.sql`select count(*)::int as rows from balance_entries where account_id = ${accountId}`;
    expect(sum?.rows).toBe(all?.rows);
  });

  test("more packages than a slice compares: none is left out", async () => {
    await young.sql`
      insert into book_due (kind, id, day) select 'package', n, '-infinity' from generate_series(1, 1200) as n`;
    expect(await compareDueCounters(openSlices(sql, { budgetMs: WITHIN_MS }))).toEqual([]);
    const [due] = await young.sql`select count(*)::int as left from book_due where kind = 'package'`;
    expect(due?.left).toBe(0);
  });
});

test("between checks, one replica at a time folds new rows", async () => {
  const sql = client(2);
  await checkIfDue(sql, 0);
  const person = await packager();
  await one.ledger.settle(await one.ledger.reserve(person.ask()), usageOf());
  expect(await checkIfDue(sql, 300)).toBeUndefined();
  expect(await wrongSums()).toEqual([]);
  await sql.end();
});

test("the books balance after all of this", async () => {
  expect(await world.unbalanced()).toEqual([]);
  expect(await drawn(world)).toEqual({ units: 0, idle_units: 0, nano_usd: 0, idle_nano_usd: 0 });
});
