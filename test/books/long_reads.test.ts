import { afterAll, beforeAll, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { listBalanceTransactions } from "../../src/books/balance_transactions_store.ts";
import { check } from "../../src/books/check.ts";
import { ENTRY_PIECE_BITS } from "../../src/books/folding_store.ts";
import { openSlices, type Slices, type SliceTx } from "../../src/books/short_transactions_store.ts";
import { statementOf } from "../../src/books/statement_store.ts";
import { listNotCharged, listUsageRecords, type UsageFilter } from "../../src/books/usage_records_store.ts";
import { requestsByKey, usageByDay } from "../../src/books/usage_sums_store.ts";
import type { ReadPage } from "../../src/panel/api/csv_stream.ts";
import { usageCsv } from "../../src/panel/api/usage_csv.ts";
import { connect, type Db, openDb, type Sql } from "../../src/platform/db.ts";
import { until } from "../platform/own_redis.ts";
import { createWorld, type Person, type TestKey, type World } from "../world.ts";

/**
 * Long reads over hundreds of thousands of receipts, on a server that cancels every long statement:
 * nothing is cancelled, and the results are right. Source: ADM-7.
 */

const RECEIPTS = Number(process.env.LONG_READS_RECEIPTS ?? 260_000);
/** An operator's limit. Far above what a slice of a check takes on a busy machine; that they are slices is counted. */
const STATEMENT_MS_MAX = 20_000;
/** Receipts that one transaction writes while the table is filled. */
const AT_ONCE = 1_000;
const SLOW_MS = 300_000;
const EMPTY = { rows: 0 };
/** The most that a slice is given here: far below what there is, and no machine takes long for it. */
const SLICE_ROWS = 5_000;
/**
 * Rows and index entries that a slice reads at most: of each row that it is given, its receipt, its transaction and their sums; and one
 * piece of transactions, which is reread as a whole.
 */
const READ_MAX = 10 * SLICE_ROWS + 2 ** ENTRY_PIECE_BITS;

let world: World;
let db: Db;
let reseller: Person;
/** One account has two fifths of all receipts. */
let big: Person & TestKey & { packageId: number };
let resellerKey: TestKey;

beforeAll(async () => {
  world = await createWorld();
  reseller = await world.addReseller();
  resellerKey = await world.addKey(reseller, { mode: "payg" });
  await world.setBalance(reseller, 1_000_000_000n);
  const people = [];
  for (let i = 0; i < 60; i++) {
    const person = await world.addCustomer(reseller.accountId);
    const key = await world.addKey(person);
    people.push({ ...person, ...key, packageId: await world.givePackage(person, { dailyLimit: 1_000_000, days: 30 }) });
  }
  big = people[0] as typeof big;
  await world.sql`
    update packages set starts_at = starts_at - interval '6 days', created_at = created_at - interval '6 days', first_day = first_day - 6`;
  await world.sql`create table people (who int primary key, account_id bigint, key_id bigint, package_id bigint)`;
  for (const [n, { accountId, keyId, packageId }] of people.entries())
    await world.sql`insert into people values (${n}, ${accountId}, ${keyId}, ${packageId})`;
  for (let from = 0; from < RECEIPTS; from += AT_ONCE) await fill(from, Math.min(RECEIPTS, from + AT_ONCE));
  await countThem();
  expect(await world.unbalanced()).toEqual([]);
  // Applies to every connection opened from now on.
  await world.sql.unsafe(
    `alter database "${new URL(world.url).pathname.slice(1)}" set statement_timeout = ${STATEMENT_MS_MAX}`,
  );
  db = world.openDb();
}, SLOW_MS);
afterAll(async () => {
  await db?.close();
  await world.close();
});

/** Reads a page of a file, as the panel does. */
const read: ReadPage = (page) => page({ db });

/**
 * Writes requests `from` to `upto`, spread over the last five days: two fifths belong to one account, a fifth are
 * charges of the reseller's own.
 */
async function fill(from: number, upto: number): Promise<void> {
  await world.sql`
    with numbers as (
      select n, clock_timestamp() - interval '5 days' + (n * 5.0 / ${RECEIPTS}::float8) * interval '1 day' - interval '1 hour' as at,
        case when n % 5 = 0 then null when n % 2 = 0 then 0 else 1 + n % 59 end as who
      from generate_series(${from}::int, ${upto - 1}::int) as n
    ), made as (
      insert into receipts (request_id, account_id, key_id, model_id, host, mode, package_id, day, outcome, reason, units, held_nano_usd,
        charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
      select overlay(request_id_floor(at)::text placing lpad(n::text, 12, '0') from 25)::uuid,
        coalesce(p.account_id, ${reseller.accountId}::bigint), coalesce(p.key_id, ${resellerKey.keyId}::bigint), 'model-' || n % 7, 'h',
        case when p.who is null then 'payg' else 'package' end, p.package_id, case when p.who is null then null else (at at time zone 'UTC')::date end,
        'settled', 'complete', case when p.who is null then 0 else 1 end, 0, case when p.who is null then 3 else 0 end, 0, 10, 0, 5, 15, false, at, at
      from numbers left join people p using (who)
      returning account_id, request_id, charged_nano_usd, finished_at
    )
    insert into balance_entries (account_id, amount_nano_usd, kind, request_id, created_at)
    select account_id, -charged_nano_usd, 'charge', request_id, finished_at from made where charged_nano_usd > 0`;
}

/** Sets the counters to what the ledger would have. */
async function countThem(): Promise<void> {
  await world.sql`analyze receipts`;
  await world.sql`
    insert into package_days (package_id, day, units_taken, units_max)
    select package_id, day, count(*), 1000000 from receipts where package_id is not null group by 1, 2`;
  await world.sql`
    update packages p set units_taken = r.n, tokens_taken = 15 * r.n
    from (select package_id, count(*) as n from receipts group by 1) r where p.id = r.package_id`;
  await world.sql`
    update balances b set balance_nano_usd = (select sum(amount_nano_usd) from balance_entries e where e.account_id = b.account_id)
    where account_id = ${reseller.accountId}`;
}

test(
  "a check that has all rows to fold, and the checks after it, read a bounded number of rows in each slice",
  async () => {
    const sql = connect({ databaseUrl: world.url, dbPrepare: true }, 1);
    const checked = async (full = false) => {
      const reads: number[] = [];
      const slices = openSlices(countingRows(sql, reads), { onSlice: fewRows });
      fewRows(slices);
      const broken = (await check(slices, { full })).filter(({ rows }) => rows !== EMPTY.rows);
      return { broken, slices: reads.length, mostRead: Math.max(...reads) };
    };
    const first = await checked();
    const second = await checked();
    const full = await checked(true);
    console.log("check of", RECEIPTS, "receipts:", { first, second, full });
    expect(first.slices).toBeGreaterThan(RECEIPTS / SLICE_ROWS);
    for (const { mostRead } of [first, second, full]) expect(mostRead).toBeLessThan(READ_MAX);
    await world.sql`update packages set units_taken = units_taken + 1 where id = ${big.packageId}`;
    const ill = await checked();
    await world.sql`update packages set units_taken = units_taken - 1 where id = ${big.packageId}`;
    expect([first, second, full, ill].map(({ broken }) => broken)).toEqual([
      ...[[], [], []],
      [{ name: "inv_package_units", rows: 1 }],
    ]);
    await sql.end();
  },
  SLOW_MS,
);

/** A slice is given more rows after one that took a short time: here never more than SLICE_ROWS. */
const fewRows = (slices: Slices) => {
  slices.rows = Math.min(slices.rows, SLICE_ROWS);
};

/** A client whose transactions note how many rows and index entries each has read. */
function countingRows(sql: Sql, reads: number[]): Sql {
  return new Proxy(sql, {
    get(target, name) {
      if (name !== "begin") return Reflect.get(target, name);
      return (mode: string, work: (tx: SliceTx) => Promise<unknown>) =>
        target.begin(mode, async (tx) => {
          const before = await rowsRead(tx);
          const value = await work(tx);
          reads.push((await rowsRead(tx)) - before);
          return value;
        });
    },
  });
}

/** Rows and index entries that scans of this connection returned and its statistics have not yet reported: they grow by what is read. */
async function rowsRead(tx: SliceTx): Promise<number> {
  const [row] = await tx`
    select sum(pg_stat_get_xact_tuples_returned(oid))::bigint as n from pg_class
    where relkind in ('r', 'i', 'm') and relnamespace = 'public'::regnamespace`;
  return Number(row?.n);
}

test(
  "doctor finishes, also with --full",
  async () => {
    for (const args of [[], ["--full"]]) {
      const child = spawn(
        process.execPath,
        [join(import.meta.dirname, "../../src/cli.ts"), "doctor", "--json", ...args],
        {
          env: { PATH: process.env.PATH ?? "", DATABASE_URL: world.url, SPOOL_DIR: world.spoolDir, REDIS_URL: "" },
        },
      );
      let out = "";
      child.stdout.on("data", (chunk) => (out += chunk));
      await new Promise((resolve) => child.on("close", resolve));
      expect(JSON.parse(out).findings).toContainEqual({
        what: "books",
        state: "ok",
        detail: expect.stringMatching(/^all \d+ checks passed$/),
      });
    }
  },
  SLOW_MS,
);

test(
  "the CSV of usage ends at its limit; a filter that matches nothing is read to the end without an error",
  async () => {
    const text = await new Response(await usageCsv(read, "charged", { accountId: big.accountId })).text();
    const lines = text.trimEnd().split("\r\n");
    const [mine] = await world.sql`select count(*)::int as n from receipts where account_id = ${big.accountId}`;
    const cut = Number(mine?.n) > 100_000;
    expect(lines).toHaveLength(cut ? 100_002 : Number(mine?.n) + 1);
    expect(lines.at(-1)?.includes("Cut after 100000 rows")).toBe(cut);
    const asked = { accountId: big.accountId, modelId: "model-none" };
    for (const kind of ["charged", "not_charged"] as const)
      expect((await new Response(await usageCsv(read, kind, asked)).text()).trimEnd().split("\r\n")).toHaveLength(1);
  },
  SLOW_MS,
);

test(
  "a page that reaches its time limit says where to continue, even if it is empty; all pages together have each row once",
  async () => {
    type Part = { ids: string[]; next: string | null };
    const whole = async (ask: (cursor: string | undefined) => Promise<Part>) => {
      const [ids, cursors]: string[][] = [[], []];
      for (let cursor: string | undefined; ; ) {
        const part = await ask(cursor);
        ids?.push(...part.ids);
        if (part.next === null) return { ids: ids ?? [], pages: cursors?.length ?? 0 };
        expect(cursors).not.toContain(part.next);
        cursors?.push(part.next);
        cursor = part.next;
      }
    };
    const pages = (query: UsageFilter, list = listUsageRecords) =>
      whole(async (after) => {
        const { rows, nextAfter } = await list({ db }, { ...query, limit: 1000, after, pageMsMax: 0 });
        return { ids: rows.map(({ requestId }) => requestId), next: nextAfter };
      });
    const { accountId } = big;
    const none = await pages({ accountId, modelId: "model-none" });
    expect([none.ids, none.pages > 5]).toEqual([[], true]);
    const some = await pages({ accountId, modelId: "model-3" });
    const wanted = await world.sql`
      select request_id::text as id from receipts where account_id = ${accountId} and model_id = 'model-3' order by request_id desc`;
    expect(some.ids).toEqual(wanted.map(({ id }) => String(id)));
    expect(
      (
        await pages(
          { accountId, modelId: "model-none" },
          (deps, query) => listNotCharged(deps, { ...query, accountId }) as never,
        )
      ).ids,
    ).toEqual([]);

    const charges = await whole(async (before) => {
      const query = {
        accountId: reseller.accountId,
        limit: 100,
        pageMsMax: 0,
        ...(before !== undefined && { before }),
      };
      const { rows, nextBefore } = await listBalanceTransactions({ db }, { ...query, kind: "top_up" });
      return { ids: rows.map(({ balanceAfterNanoUsd }) => String(balanceAfterNanoUsd)), next: nextBefore };
    });
    // The top-up was the first transaction, so it is listed last.
    expect(charges).toEqual({ ids: ["1000000000"], pages: expect.any(Number) });
    expect(charges.pages).toBeGreaterThan(3);
  },
  SLOW_MS,
);

test("a page of old transactions costs as little as the newest page, and has the balance after each transaction", async () => {
  const { accountId } = reseller;
  const [count] = await world.sql`select count(*)::int as n from balance_entries where account_id = ${accountId}`;
  const [far] = await world.sql`
    select id, amount_nano_usd::int as amount, (select sum(amount_nano_usd) from balance_entries o where o.account_id = ${accountId} and o.id <= e.id)::text as after
    from balance_entries e where account_id = ${accountId} order by id offset ${Math.floor(Number(count?.n) / 10)} limit 1`;
  const one = openDb({ databaseUrl: world.url, dbPrepare: true, dbPoolMax: 1 });
  try {
    const blocks = (before?: string) =>
      indexBlocks(
        one,
        () => listBalanceTransactions({ db: one }, { accountId, ...(before !== undefined && { before }) }),
        "balance_entries",
      );
    const newest = await blocks();
    const before = `${far?.id}_${BigInt(String(far?.after)) - BigInt(Number(far?.amount))}`;
    expect(await blocks(before)).toBeLessThan(2 * newest);
    const { rows } = await listBalanceTransactions({ db }, { accountId, before });
    const sums = await world.sql`
      select id::int as id, (select sum(amount_nano_usd) from balance_entries o where o.account_id = ${accountId} and o.id <= e.id)::text as after
      from balance_entries e where account_id = ${accountId} and id < ${far?.id} order by id desc limit 3`;
    expect(rows.slice(0, 3).map(({ entryId, balanceAfterNanoUsd }) => [entryId, String(balanceAfterNanoUsd)])).toEqual(
      sums.map(({ id, after }) => [id, after]),
    );
  } finally {
    await one.close();
  }
});

test("a page of old usage costs as little as the newest page", async () => {
  const one = openDb({ databaseUrl: world.url, dbPrepare: true, dbPoolMax: 1 });
  try {
    const [row] = await one.sql`
      select request_id as after from receipts
      where account_id = ${big.accountId} and request_id < request_id_floor(now() - interval '4 days')
      order by request_id desc limit 1`;
    const after = String(row?.after);
    const asked = { accountId: big.accountId, limit: 100 };
    const newest = await indexBlocks(one, () => listUsageRecords({ db: one }, asked));
    expect(newest).toBeGreaterThan(0);
    const bounds = [
      { after },
      { after, end: new Date().toISOString() },
      { end: new Date(Number.parseInt(after.replace("-", "").slice(0, 12), 16)).toISOString() },
    ];
    for (const bound of bounds)
      expect(await indexBlocks(one, () => listUsageRecords({ db: one }, { ...asked, ...bound }))).toBeLessThan(
        2 * newest,
      );
  } finally {
    await one.close();
  }
});

/** Index blocks of a table that `read` touches, over a pool of one connection. */
async function indexBlocks(one: Db, read: () => Promise<{ rows: unknown[] }>, table = "receipts"): Promise<number> {
  const soFar = async () => {
    await one.sql`select pg_stat_force_next_flush()`;
    const [row] = await one.sql`
      select sum(idx_blks_read + idx_blks_hit)::int as blocks from pg_statio_user_indexes where relname like ${`${table}%`}`;
    return Number(row?.blocks);
  };
  const before = await soFar();
  expect((await read()).rows).toHaveLength(100);
  return (await soFar()) - before;
}

test(
  "a client that stops reading in the middle of a file leaves no connection busy",
  async () => {
    const reader = (await usageCsv(read, "charged", { accountId: big.accountId })).getReader();
    await reader.read();
    const openNow = async () => {
      const [row] = await world.sql`
        select count(*)::int as n from pg_stat_activity
        where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid() and (state <> 'idle' or backend_xmin is not null)`;
      return Number(row?.n);
    };
    // The second page is fetched ahead; further pages only when asked for.
    await Bun.sleep(1_000);
    await until(async () => (await openNow()) === 0);
    await reader.cancel();
  },
  SLOW_MS,
);

test(
  "a month's statement, and the charts of usage, are exact",
  async () => {
    const [now] = await world.sql`
      select to_char(now() - interval '3 days', 'YYYY-MM') as month, to_char(now(), 'YYYY-MM') as this_month`;
    const months = [...new Set([String(now?.month), String(now?.this_month)])];
    for (const month of months) {
      const startMs = performance.now();
      const { usage: used, balance } = await statementOf(
        { db },
        { resellerId: reseller.accountId, month, timeZone: "UTC", rowsMax: 1000 },
      );
      console.log("statement of", month, "in", Math.round(performance.now() - startMs), "ms");
      const [counted] = await world.sql`
        select count(*)::int as requests, count(*) filter (where mode = 'package')::int as package_requests, sum(prompt_tokens)::int as prompt_tokens,
          sum(charged_nano_usd)::text as charged, count(*) filter (where account_id = ${reseller.accountId})::int as charges
        from receipts where to_char(finished_at at time zone 'UTC', 'YYYY-MM') = ${month}`;
      expect(used.totals).toMatchObject({
        requests: counted?.requests,
        packageRequests: counted?.package_requests,
        promptTokens: counted?.prompt_tokens,
        chargedNanoUsd: BigInt(String(counted?.charged)),
      });
      expect(used.rows.reduce((sum, { requests }) => sum + requests, 0)).toBe(counted?.requests);
      expect(balance.charges).toBe(Number(counted?.charges));
      const sums = Object.values(balance.sumsNanoUsd).reduce((sum, nano) => sum + nano, 0n);
      expect(balance.openingNanoUsd + sums).toBe(balance.closingNanoUsd);
    }

    const [mine] = await world.sql`select count(*)::int as n from receipts where account_id = ${big.accountId}`;
    const chart = await usageByDay(
      { db },
      { accountId: big.accountId, days: 30, measure: "requests", timeZone: "UTC" },
    );
    expect(chart.rows.reduce((sum, { requests }) => sum + requests, 0)).toBe(Number(mine?.n));
    expect(chart.rows).toHaveLength(new Set(chart.rows.map(({ day, modelId }) => `${day} ${modelId}`)).size);
    const requests = await requestsByKey({ db }, big.accountId);
    const [lately] = await world.sql`
      select count(*)::int as n from receipts where account_id = ${big.accountId} and request_id >= request_id_floor(now() - interval '24 hours')`;
    expect(Math.abs(Number(requests.get(big.keyId)) - Number(lately?.n))).toBeLessThan(Number(lately?.n) / 10);
  },
  SLOW_MS,
);
