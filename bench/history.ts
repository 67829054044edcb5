import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { startServices } from "../scripts/services.ts";
import { check } from "../src/books/check.ts";
import { foldAll } from "../src/books/folding_store.ts";
import { openSlices, type Slices } from "../src/books/short_transactions_store.ts";
import { accountsOfEndedLeases, makeReceiptMonths, reapAccount } from "../src/ledger/leases_store.ts";
import { connect, type Sql } from "../src/platform/db.ts";
import type { Shop } from "../test/gateway/shop.ts";
import { openWorldLedger, requestFor, usageOf } from "../test/ledger/ledger_world.ts";
import { type PanelSession, signInTo } from "../test/panel/panel_client.ts";
import type { Person } from "../test/world.ts";
import { spread } from "./figures.ts";
import { addPeople, fillHistory, RESELLER_HOST, seconds } from "./history_fill.ts";

/**
 * Pages, charts, statements and jobs over millions of usage records, over HTTP if people use them: how long each takes,
 * and whether its sums equal a recount of the records one by one. The goal is each p99 within 50 ms. Ends with 1 if a
 * sum is not exact or the books do not balance, with 2 for invalid flags.
 */

const USAGE = `bun run bench:history [flags]
  --records N   usage records, 100 to 100,000,000 (10,000,000)
  --repeat N    calls of each kind, 100 to 10,000 (200), for 20 s at most`;
const P99_MS_MAX = 50;
const REPEAT_MAX = 10_000;
const RECORDS_MAX = 100_000_000;
const SAID_EVERY_MS = 10_000;
/** The longest measurement of a row, after some calls that do not count. */
const MEASURED_MS_MAX = 20_000;
const WARM_UP = 5;
/** Requests in flight while the reaper searches for lost ones. */
const HOLDS_ALIVE = 2_000;
const ZONES = ["UTC", "Europe/Berlin", "Asia/Kathmandu", "Asia/Tokyo"] as const;
const DAY_MS = 86_400_000;
/** Shown of a sum that is not exact, before and after where it differs. */
const DIFFERENCE_CHARS = 120;

const { records, repeat } = readFlags();
const services = await startServices();
process.env.DATABASE_URL = services.databaseUrl;
process.env.REDIS_URL = services.redisUrl;
// It reads the environment, so it is imported after that is set.
const { openShop } = await import("../test/gateway/shop.ts");
const shop = await openShop({ redisUrl: "" });
try {
  process.exitCode = (await run(shop)) ? 0 : 1;
} finally {
  await shop.close();
  await services.stop();
}

type Flags = { records: number; repeat: number };

function readFlags(): Flags {
  try {
    const { values } = parseArgs({ options: { records: { type: "string" }, repeat: { type: "string" } } });
    const whole = (name: keyof Flags, otherwise: number, max: number) => {
      const value = Number(values[name] ?? otherwise);
      if (Number.isSafeInteger(value) && value >= 100 && value <= max) return value;
      throw new Error(`--${name} must be a whole number from 100 to ${max}`);
    };
    return { records: whole("records", 10_000_000, RECORDS_MAX), repeat: whole("repeat", 200, REPEAT_MAX) };
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\n${USAGE}`);
    process.exit(2);
  }
}

/** All calls, and who makes them. */
type Stage = {
  shop: Shop;
  origin: string;
  resellerId: number;
  bigId: number;
  smallId: number;
  /** Two keys of the large account's: one by balance, and the one whose secret is known. */
  keyId: number;
  secret: string;
  /** Moments within a quarter of an hour. */
  odd: { start: string; end: string };
  as: Record<"big" | "small" | "reseller" | "admin", PanelSession>;
};
type Line = { what: string; p50Ms: number; p99Ms: number; count: number };

async function run(shop: Shop): Promise<boolean> {
  // Nothing is folded while the tables have no indexes.
  await shop.replicas[0]?.stop();
  const people = await addPeople(shop.world);
  await fillHistory(shop.world, records);
  await fold(shop);
  await printSizes(shop);
  const replica = await shop.start();
  try {
    const stage = await openStage(shop, replica.origin, people);
    const pairs = await measurePairs(stage);
    const lines = [...(await measurePages(stage)), pairs.line, ...(await measureJobs(stage))];
    const wrong = [...(await compareSums(stage, pairs)), ...(await checkBooks(shop))];
    print(lines, wrong);
    return wrong.length === 0;
  } finally {
    await replica.kill();
  }
}

async function openStage(
  shop: Shop,
  origin: string,
  people: { resellerId: number; bigId: number; secret: string },
): Promise<Stage> {
  const [row] = await shop.world.sql`
    select b.keys[4]::int as key, s.account_id::int as small from people b, people s
    where b.who = 0 and s.account_id = (
      select account_id from people join accounts a on a.id = account_id where a.reseller_id is null order by who desc limit 1)`;
  const smallId = Number(row?.small);
  const as = {
    big: await signInTo(shop, { accountId: people.bigId }, { origin, host: RESELLER_HOST }),
    small: await signInTo(shop, { accountId: smallId }, { origin }),
    reseller: await signInTo(shop, { accountId: people.resellerId }, { origin }),
    admin: await signInTo(shop, await shop.world.addAdmin(), { origin }),
  };
  const [start, end] = [20, 1.5].map((days) => new Date(Date.now() - days * DAY_MS + 1).toISOString());
  const odd = { start: String(start), end: String(end) };
  return { shop, origin, ...people, smallId, keyId: Number(row?.key), odd, as };
}

/** Says how slices go, every ten seconds. */
function sayHow(what: string): Slices["onSlice"] {
  const startMs = performance.now();
  let saidMs = startMs;
  return ({ done, rows, longestMs }) => {
    if (performance.now() - saidMs < SAID_EVERY_MS) return;
    saidMs = performance.now();
    const longest = `the longest ${Math.round(longestMs)} ms`;
    console.log(`${what}: ${done} slices, of ${rows} rows now, ${longest}, ${seconds(startMs)} s`);
  };
}

async function fold({ world }: Shop): Promise<void> {
  const startMs = performance.now();
  const sql = connect({ databaseUrl: world.url, dbPrepare: true }, 1);
  const slices = openSlices(sql, { onSlice: sayHow("folding") });
  if (!(await foldAll(slices))) throw new Error("folding did not come to its end");
  await sql.end();
  const rate = Math.round((records * 1000) / (performance.now() - startMs));
  console.log(`folded: ${rate} records a second, the longest slice ${Math.round(slices.longestMs)} ms`);
  await world.sql`vacuum analyze`;
}

async function printSizes({ world }: Shop): Promise<void> {
  const [size] = await world.sql`
    select (select count(*) from usage_sums)::int as rows, pg_total_relation_size('usage_sums') / 1e6 as rollups,
      pg_total_relation_size('usage_holders') / 1e6 as holders,
      (select sum(pg_total_relation_size(inhrelid)) / 1e6 from pg_inherits where inhparent = 'receipts'::regclass) as receipts`;
  const [receipts, rollups] = [Math.round(Number(size?.receipts)), Math.round(Number(size?.rollups))];
  console.log(
    `sizes: receipts ${receipts} MB, rollups ${rollups} MB in ${size?.rows} rows, holders ${Math.round(Number(size?.holders))} MB`,
  );
}

/** Makes calls one after another, and times each; `before` does not count. */
async function measure<T>(
  what: string,
  call: (prepared: T) => Promise<unknown>,
  before: () => Promise<T>,
): Promise<Line> {
  for (let i = 0; i < WARM_UP; i++) await call(await before());
  const took: number[] = [];
  for (const untilMs = performance.now() + MEASURED_MS_MAX; took.length < repeat && performance.now() < untilMs; ) {
    const prepared = await before();
    const startMs = performance.now();
    await call(prepared);
    took.push(performance.now() - startMs);
  }
  const { p50, p99 } = spread(took);
  const line = { what, p50Ms: p50, p99Ms: p99, count: took.length };
  console.log(`measured: ${what}: p50 ${line.p50Ms.toFixed(1)} ms, p99 ${line.p99Ms.toFixed(1)} ms`);
  return line;
}

async function nothing(): Promise<void> {}

/** Throws if the answer is not successful. */
async function get(session: PanelSession, path: string) {
  const { status, text, json } = await session.get(path);
  if (status !== 200) throw new Error(`${path}: ${status} ${text}`);
  return json;
}

/** As customers, resellers and admins call them. */
async function measurePages({ shop, origin, bigId, keyId, secret, odd, as }: Stage): Promise<Line[]> {
  const { sql } = shop.world;
  const [at] = await sql`
    select request_id as deep from receipts
    where account_id = ${bigId} and outcome = 'settled' and request_id < request_id_floor(now() - interval '20 days')
    order by account_id desc, request_id desc limit 1`;
  const [month, lastMonth] = monthsUpTo(Date.now());
  const lines: Line[] = [];
  const api = async (what: string, path: string) => {
    const call = async () => {
      const { status, text } = await shop.call(path, { secret, origin, host: RESELLER_HOST });
      if (status !== 200) throw new Error(`${path}: ${status} ${text}`);
    };
    lines.push(await measure(`GET /v1/usage, ${what}`, call, nothing));
  };
  const page = async (what: string, who: keyof Stage["as"], path: string) => {
    lines.push(await measure(`panel, ${what}`, () => get(as[who], path), nothing));
  };
  await api("first page, large account", "/v1/usage");
  await api("deep page", `/v1/usage?after=${at?.deep}`);
  await api("one model of twelve", "/v1/usage?model=model-11");
  await page("usage page", "big", "/usage");
  await page("usage page, deep", "big", `/usage?after=${at?.deep}`);
  await page("usage page of one key by balance", "big", `/usage?mode=payg&keyId=${keyId}`);
  await page("not charged", "big", "/usage?kind=not_charged");
  for (const zone of ZONES) {
    await sql`update packages set time_zone = ${zone} where account_id = ${bigId}`;
    await page(`chart of 30 days, ${zone}`, "big", "/usage/days?days=30");
    await page(`chart of 92 days, ${zone}`, "big", "/usage/days?days=92");
  }
  await page("chart of a key", "big", `/usage/days?days=30&keyId=${keyId}`);
  await page("chart of what the balance paid", "big", "/usage/days?days=30&mode=payg");
  await page("chart between two odd moments", "big", `/usage/days?days=30&start=${odd.start}&end=${odd.end}`);
  await page("chart of a small account", "small", "/usage/days?days=30");
  await page("keys with their requests", "big", "/keys");
  await page("balance", "big", "/billing");
  await page("entries", "big", "/billing/entries");
  await page("statement of this month", "reseller", `/statement?month=${month}`);
  await page("statement of last month", "reseller", `/statement?month=${lastMonth}`);
  await page("admin's overview", "admin", "/admin/overview");
  const since = (days: number) => new Date(Date.now() - days * DAY_MS + 1).toISOString();
  for (const who of ["admin", "reseller"] as const)
    for (const days of [1, 30, 90])
      await page(`figures of ${days} days, ${who}`, who, `/figures?by=model&start=${since(days)}`);
  for (const by of ["route", "host", "account", "reseller"])
    for (const days of [1, 30, 90])
      await page(`figures of ${days} days by ${by}`, "admin", `/figures?by=${by}&start=${since(days)}`);
  await page("figures of a day by hour", "admin", `/figures?by=hour&start=${since(1)}`);
  for (const days of [7, 30, 90])
    await page(`figures of ${days} days by day`, "admin", `/figures?by=day&start=${since(days)}`);
  await page("figures of a year by month", "admin", `/figures?by=month&start=${since(365)}`);
  await page("figures of 90 days by day, reseller", "reseller", `/figures?by=day&start=${since(90)}`);
  await page("figures of 30 days by account, reseller", "reseller", `/figures?by=account&start=${since(30)}`);
  await page(
    "figures of 30 days by key, large account",
    "admin",
    `/figures?by=key&accountId=${bigId}&start=${since(30)}`,
  );
  await page("books", "admin", "/admin/books");
  return lines;
}

async function measureJobs({ shop: { world } }: Stage): Promise<Line[]> {
  const sql = connect({ databaseUrl: world.url, dbPrepare: true }, 1);
  const { ledger, close } = await openWorldLedger(world, { leaseSeconds: 600 });
  const person = await world.addCustomer();
  const key = await world.addKey(person);
  await world.givePackage(person, { dailyLimit: 1_000_000 });
  const alive = await Promise.all(Array.from({ length: HOLDS_ALIVE }, () => ledger.reserve(requestFor(person, key))));
  const lost = async () => {
    const dead = await openWorldLedger(world, { leaseSeconds: 600 });
    await dead.ledger.reserve(requestFor(person, key));
    await world.sql`update leases set ends_at = clock_timestamp() where id = ${dead.ledger.leaseId()}`;
    return async () => {
      await dead.ledger.abandon();
      await dead.db.close();
    };
  };
  const reap = async (closeDead: () => Promise<void>) => {
    // The replica's own reaper may have been first.
    for (const accountId of await accountsOfEndedLeases(sql, 500)) await reapAccount(sql, accountId);
    await closeDead();
  };
  const lines = [
    await measure("the reaper's query", () => accountsOfEndedLeases(sql, 500), nothing),
    await measure("the reaper, a replica's escrow given back", reap, lost),
    await measure("the partition maker", () => makeReceiptMonths(sql, 3), nothing),
  ];
  await Promise.all(alive.map((hold) => ledger.release(hold, "not_dispatched")));
  await close();
  await sql.end();
  return lines;
}

type Pairs = { line: Line; person: Person; count: number };

/** Requests of another account, while charts are read continuously. */
async function measurePairs({ shop: { world }, as }: Stage): Promise<Pairs> {
  const person = await world.addCustomer();
  const key = await world.addKey(person);
  await world.givePackage(person, { dailyLimit: 1_000_000 });
  const { ledger, close } = await openWorldLedger(world);
  let [busy, count] = [true, 0];
  const reading = (async () => {
    for (; busy; await sleep(1)) await get(as.big, "/usage/days?days=92");
  })();
  const pair = async () => {
    await ledger.settle(await ledger.reserve(requestFor(person, key)), usageOf());
    count++;
  };
  try {
    const line = await measure("reserve + settle, while charts are read", pair, nothing);
    return { line, person, count };
  } finally {
    busy = false;
    await reading;
    await close();
  }
}

/** Sums that differ from the records, as text. The clock stands still, so that both count the same. */
async function compareSums({ shop, origin, ...stage }: Stage, pairs: Pairs): Promise<string[]> {
  const { world } = shop;
  const startMs = performance.now();
  const nowMs = Date.now();
  await world.setClock(new Date(nowMs).toISOString());
  const wrong: string[] = [];
  let compared = 0;
  const same = (what: string, got: unknown, wanted: unknown) => {
    compared++;
    const [is, counted] = [JSON.stringify(got), JSON.stringify(wanted)];
    if (is === counted) return;
    wrong.push(what);
    // From shortly before the first difference.
    const from = Math.max(0, [...is].findIndex((char, i) => char !== counted[i]) - DIFFERENCE_CHARS);
    const show = (text: string) => text.slice(from, from + 2 * DIFFERENCE_CHARS);
    console.error(`not exact: ${what}\n  got     … ${show(is)} …\n  counted … ${show(counted)} …`);
  };
  const chart = async (what: string, session: PanelSession, query: ChartQuery = {}) => {
    const asked = Object.entries({ ...query, days: 30 }).map(([name, value]) => `${name}=${value}`);
    const { timeZone, rows } = await get(session, `/usage/days?${asked.join("&")}`);
    same(what, rows, await countedDays(world.sql, { ...query, accountId: session.accountId, timeZone }));
  };
  const { big, small, reseller } = stage.as;
  for (const zone of ZONES) {
    await world.sql`update packages set time_zone = ${zone} where account_id = ${stage.bigId}`;
    await chart(`chart, ${zone}`, big);
  }
  await chart("chart of a key", big, { keyId: stage.keyId });
  await chart("chart of what the balance paid", big, { mode: "payg" });
  await chart("chart between two odd moments", big, stage.odd);
  await chart("chart of a small account", small);
  const person = await signInTo(shop, pairs.person, { origin });
  await chart("chart of what was settled while charts were read", person);
  const { rows } = await get(person, "/usage/days?days=30");
  const settled = rows.reduce((sum: number, row: { requests: number }) => sum + row.requests, 0);
  same("requests that were settled while charts were read", settled, pairs.count);
  const keys: { keyId: number; requestsLastDay: number }[] = (await get(big, "/keys")).rows;
  const byKey = await countedKeys(world.sql, stage.bigId);
  same(
    "keys with their requests",
    keys.map(({ requestsLastDay }) => requestsLastDay),
    keys.map(({ keyId }) => byKey.get(keyId) ?? 0),
  );
  for (const month of monthsUpTo(nowMs)) {
    const { from, to, usage, balance } = await get(reseller, `/statement?month=${month}`);
    const { charges, ...totals } = await countedMonth(world.sql, { resellerId: stage.resellerId, from, to });
    same(`statement of ${month}`, usage.totals, totals);
    same(`statement of ${month}, charges`, balance.charges, charges);
  }
  const { total: shown, from, to } = await get(stage.as.admin, "/figures?by=model");
  const { firstEvent: _, wholeAnswer: __, ...total } = shown;
  same("figures of everyone", total, await countedFigures(world.sql, { from, to }));
  const byDay = await get(stage.as.admin, "/figures?by=day");
  for (const [i, line] of byDay.lines.entries()) {
    const day = { from: line.day, to: byDay.lines[i + 1]?.day ?? byDay.to };
    const wanted = await countedFigures(world.sql, day);
    same(
      `figures of ${line.day}`,
      Object.fromEntries(Object.keys(wanted).map((field) => [field, line[field]])),
      wanted,
    );
  }
  await world.setClock(null);
  console.log(`compared: ${compared} sums with their records, ${wrong.length} not exact, ${seconds(startMs)} s`);
  return wrong;
}

/** The month of UTC, and the previous one: the 30 days of records are in both, except at the end of a long month. */
function monthsUpTo(unixMs: number): [string, string] {
  const now = new Date(unixMs);
  const months = [0, 1].map((ago) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - ago, 1)).toISOString(),
  );
  const [month = "", lastMonth = ""] = months.map((at) => at.slice(0, 7));
  return [month, lastMonth];
}

type ChartQuery = { keyId?: number; mode?: string; start?: string; end?: string };

/** A chart's rows, from the records one by one. */
async function countedDays(
  sql: Sql,
  { accountId, timeZone, keyId, mode, start, end }: ChartQuery & { accountId: number; timeZone: string },
) {
  return await sql`
    select used_on::text as day, model_id as "modelId", count(*)::float8 as requests, sum(prompt_tokens)::float8 as "promptTokens",
      sum(completion_tokens)::float8 as "completionTokens", sum(charged_nano_usd)::text as "chargedNanoUsd"
    from (select *, (created_at at time zone ${timeZone})::date as used_on from receipts
      where account_id = ${accountId} and outcome = 'settled') r
    where used_on > (ledger_now() at time zone ${timeZone})::date - 30 and ${keyId === undefined ? sql`true` : sql`key_id = ${keyId}`}
      and ${mode === undefined ? sql`true` : sql`mode = ${mode}`}
      and ${start === undefined ? sql`true` : sql`created_at >= ${start}::text::timestamptz`}
      and ${end === undefined ? sql`true` : sql`created_at < ${end}::text::timestamptz`}
    group by used_on, model_id order by used_on, model_id collate "C"`;
}

/** Usage records of the last 24 hours by key. */
async function countedKeys(sql: Sql, accountId: number): Promise<Map<number, number>> {
  const rows = await sql`
    select key_id::int as id, count(*)::int as n from receipts
    where account_id = ${accountId} and outcome = 'settled' and created_at >= (select ledger_now() - interval '24 hours') group by 1`;
  return new Map(rows.map(({ id, n }) => [Number(id), Number(n)]));
}

/**
 * What a reseller's customers and itself used between two moments, by when it ended. The bench's packages have no price, and there is no markup: the
 * reseller earns nothing.
 */
async function countedMonth(sql: Sql, { resellerId, from, to }: { resellerId: number; from: string; to: string }) {
  const [row] = await sql`
    select count(*)::float8 as requests, (count(*) filter (where mode = 'package'))::float8 as "packageRequests",
      coalesce(sum(prompt_tokens), 0)::float8 as "promptTokens", coalesce(sum(cached_tokens), 0)::float8 as "cachedTokens",
      coalesce(sum(completion_tokens), 0)::float8 as "completionTokens", coalesce(sum(charged_nano_usd), 0)::text as "chargedNanoUsd",
      coalesce(sum(charged_nano_usd), 0)::text as "costNanoUsd", '0' as "earnedNanoUsd", '0' as "unitsNanoUsd", '0' as "unitsCostNanoUsd",
      coalesce(sum(charged_nano_usd), 0)::text as "usageRevenueNanoUsd", coalesce(sum(charged_nano_usd), 0)::text as "usageCostNanoUsd",
      '0' as "marginNanoUsd", (count(*) filter (where account_id = ${resellerId} and charged_nano_usd > 0))::float8 as charges
    from receipts
    where outcome = 'settled' and finished_at >= ${from}::text::timestamptz and finished_at < ${to}::text::timestamptz
      and account_id in (select id from accounts where reseller_id = ${resellerId} union all select ${resellerId})`;
  if (!row) throw new Error("a count has no row");
  return { ...row, charges: Number(row.charges) };
}

/** The operator's figures of a period, from the records one by one. The bench's packages have no price, and its records no provider cost. */
async function countedFigures(sql: Sql, { from, to }: { from: string; to: string }) {
  const [row] = await sql`
    select count(*)::float8 as requests, coalesce(sum(prompt_tokens), 0)::float8 as "promptTokens",
      coalesce(sum(cached_tokens), 0)::float8 as "cachedTokens", coalesce(sum(completion_tokens), 0)::float8 as "completionTokens",
      coalesce(sum(charged_nano_usd), 0)::text as "usageRevenueNanoUsd", '0' as "costNanoUsd",
      coalesce(sum(charged_nano_usd), 0)::text as "marginNanoUsd", count(*)::float8 as "costUnknown"
    from receipts where outcome = 'settled' and created_at >= ${from}::text::timestamptz and created_at < ${to}::text::timestamptz`;
  if (!row) throw new Error("a count has no row");
  return row;
}

/** Books that do not balance, and sums that differ from their rows, as a check found. */
async function checkBooks({ world }: Shop): Promise<string[]> {
  const sql = connect({ databaseUrl: world.url, dbPrepare: true }, 1);
  const startMs = performance.now();
  const wrong: string[] = [];
  const slices = openSlices(sql, { onSlice: sayHow("checking the books") });
  const results = await check(slices, {
    onChanged: (pieces) => wrong.push(`${pieces} sums that were not their rows'`),
  });
  wrong.push(...results.filter(({ rows }) => rows !== 0).map(({ name, rows }) => `${name}: ${rows}`));
  await sql.end();
  const longest = `the longest slice ${Math.round(slices.longestMs)} ms`;
  console.log(`checked the books: ${wrong.length} findings, ${longest}, ${seconds(startMs)} s`);
  return wrong;
}

function print(lines: readonly Line[], wrong: readonly string[]): void {
  console.log(`\n${records} usage records · p50 ms · p99 ms · calls`);
  for (const { what, p50Ms, p99Ms, count } of lines) {
    const figures = [p50Ms.toFixed(1).padStart(8), p99Ms.toFixed(1).padStart(8), String(count).padStart(6)];
    console.log(`${p99Ms > P99_MS_MAX ? "over" : "ok  "}  ${what.padEnd(48)} ${figures.join(" ")}`);
  }
  const over = lines.filter(({ p99Ms }) => !(p99Ms <= P99_MS_MAX));
  console.log(
    over.length === 0
      ? `every p99 is within ${P99_MS_MAX} ms`
      : `${over.length} of ${lines.length} over ${P99_MS_MAX} ms`,
  );
  console.log(wrong.length === 0 ? "every sum is exact" : `not exact: ${wrong.join("; ")}`);
}
