import { afterAll, beforeAll, expect, test } from "bun:test";
import { addRefusals } from "../../src/accounts/refusal_counts_store.ts";
import { check } from "../../src/books/check.ts";
import { sweepRollups } from "../../src/books/check_rollups_store.ts";
import { type FiguresLine, type FiguresScope, figuresOf } from "../../src/books/figures_store.ts";
import { foldAll } from "../../src/books/folding_store.ts";
import { percentilesOf } from "../../src/books/latency_marks.ts";
import { openSlices, type SliceTx } from "../../src/books/short_transactions_store.ts";
import { statementOf } from "../../src/books/statement_store.ts";
import type { UsageFilter } from "../../src/books/usage_records_store.ts";
import { requestsByKey, usageByDay } from "../../src/books/usage_sums_store.ts";
import { connect, type Db, type Sql } from "../../src/platform/db.ts";
import { openWorldLedger, requestFor, usageOf } from "../ledger/ledger_world.ts";
import { createWorld, type Person, type TestKey, type World } from "../world.ts";

/**
 * Sums of usage equal those of the usage records at any moment: folded, not yet folded, or while they are being folded;
 * in the days of every time zone, and in monthly statements. A check finds a wrong rollup. Source: USE-5.
 */

const NOW = "2026-04-03T10:07:31.250Z";
const HOSTS = ["a.test", "b.test"] as const;
const MODELS = ["chat-a", "chat-b", "image-c"] as const;
const SLOW_MS = 180_000;

type Someone = Person & { keys: [TestKey, TestKey] };

let world: World;
let db: Db;
let folder: Sql;
/** A reseller and two of its customers. */
let people: [Someone, Someone, Someone];
/** A package of each, of which a unit is worth something to its seller, and something else to the operator. */
const packageIds = new Map<number, number>();

beforeAll(async () => {
  world = await createWorld();
  db = world.openDb();
  folder = connect({ databaseUrl: world.url, dbPrepare: true }, 1);
  await world.setClock("2026-02-15T12:00:00Z");
  await world.sql`select make_receipt_months(3)`;
  await world.setClock(NOW);
  const reseller = await world.addReseller();
  const { accountId } = reseller;
  const withKeys = async (person: Person): Promise<Someone> => ({
    ...person,
    keys: [await world.addKey(person), await world.addKey(person)],
  });
  people = [
    await withKeys(reseller),
    await withKeys(await world.addCustomer(accountId)),
    await withKeys(await world.addCustomer(accountId)),
  ];
  // Of these two, the days of the keys are as far from those of UTC as days can be.
  await world.sql`update keys set time_zone = case id % 2 when 0 then 'Pacific/Kiritimati' else 'Pacific/Pago_Pago' end`;
  for (const { accountId: holder } of people) {
    const packageId = await world.givePackage({ accountId: holder }, { dailyLimit: 100_000 });
    packageIds.set(holder, packageId);
    // It has ended: charts are in the time zone of an active one.
    await world.sql`
      update packages set starts_at = '2026-02-20', ends_at = '2026-02-21', unit_nano_usd = ${holder * 7 + 1}, unit_cost_nano_usd = ${holder * 5 + 2} where id = ${packageId}`;
  }
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await folder.end();
  await db.close();
  await world.close();
});

/** Deterministic random numbers: a test that failed fails again. */
function seeded(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

let written = 0;

/**
 * Writes receipts at random moments of March 2026 up to now, some next to the boundaries of quarters; some released,
 * some long.
 */
async function write(count: number, seed: number, over: { moments?: number[]; tx?: SliceTx } = {}): Promise<void> {
  const { moments, tx } = over;
  const random = seeded(seed);
  const from = Date.parse("2026-02-27T00:00:00Z");
  const spanMs = Date.parse(NOW) - from;
  const rows = Array.from({ length: count }, () => {
    const any = from + random(spanMs);
    // Days begin at quarters of an hour: one ms before, at it, one ms after.
    const near = random(3) === 0 ? Math.round(any / 900_000) * 900_000 + random(3) - 1 : any;
    const createdMs = moments?.[random(moments.length)] ?? near;
    // A replica's clock may be off by an hour.
    const idMs = createdMs + random(7_000_000) - 3_500_000;
    const hex = idMs.toString(16).padStart(12, "0");
    const person = people[random(people.length)] as Someone;
    const settled = random(6) > 0;
    const mode = random(2) === 0 ? "package" : "payg";
    const charged = settled && mode === "payg" ? random(1000) : 0;
    const isUnit = settled && mode === "package";
    return {
      request_id: `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-${String(++written).padStart(12, "0")}`,
      account_id: person.accountId,
      key_id: person.keys[random(2)]?.keyId,
      model_id: MODELS[random(3)],
      host: HOSTS[random(2)],
      mode,
      outcome: settled ? "settled" : "released",
      reason: settled ? "complete" : "lease_ended",
      units: isUnit ? 1 : 0,
      package_id: isUnit ? packageIds.get(person.accountId) : null,
      day: isUnit ? "2026-04-03" : null,
      route_id: [null, 1, 2][random(3)],
      first_ms: random(90_000),
      provider_cost_nano_usd: random(3) === 0 ? null : random(900),
      held_nano_usd: charged,
      charged_nano_usd: charged,
      shortfall_nano_usd: 0,
      prompt_tokens: random(5000),
      cached_tokens: random(10),
      completion_tokens: random(5000),
      charged_tokens: 0,
      estimated: false,
      created_at: new Date(createdMs),
      finished_at: new Date(createdMs + random(40_000) * (random(8) === 0 ? 1000 : 1)),
    };
  });
  const insert = async (to: SliceTx): Promise<void> => {
    await to`insert into receipts ${to(rows)}`;
    await to`
      insert into balance_entries (account_id, amount_nano_usd, kind, request_id, created_at)
      select account_id, -charged_nano_usd, 'charge', request_id, finished_at from receipts
      where charged_nano_usd > 0 and request_id in (select request_id from receipts except select request_id from balance_entries)`;
    await to`
      with used as (select package_id, sum(units) as units from receipts where package_id is not null group by 1), days as (
        insert into package_days (package_id, day, units_taken, units_max) select package_id, '2026-04-03', units, 1000000 from used
        on conflict (package_id, day) do update set units_taken = excluded.units_taken)
      update packages set units_taken = units from used where packages.id = package_id`;
    await to`
      with sums as (select account_id, sum(amount_nano_usd) as nano from balance_entries group by 1), paid as (
        insert into balance_entries (account_id, amount_nano_usd, kind, created_at)
        select account_id, 1000000 - nano, 'top_up', '2026-02-20' from sums)
      update balances b set balance_nano_usd = 1000000 from sums where sums.account_id = b.account_id`;
  };
  // A charge and its entry are written in one transaction, as the ledger does.
  await (tx ? insert(tx) : world.sql.begin(insert));
}

/** Folds `slicesMax` slices of at most 40 rows; without a number, everything. */
async function fold(slicesMax?: number): Promise<void> {
  const slices = openSlices(folder, { budgetMs: slicesMax === undefined ? 60_000 : Number.POSITIVE_INFINITY });
  if (slicesMax === undefined) return void (await foldAll(slices));
  for (let i = 0; i < slicesMax; i++) await foldAll({ ...slices, rows: 40, untilMs: 0 });
}

const ZONES = [
  "UTC",
  "Europe/Berlin",
  "America/Los_Angeles",
  "Asia/Kathmandu",
  "Pacific/Kiritimati",
  "Pacific/Marquesas",
  "Australia/Lord_Howe",
  "Pacific/Pago_Pago",
];

/** The same sums, counted from the records. */
async function counted(filter: UsageFilter & { accountId: number }, days: number, timeZone: string) {
  const { accountId, keyId = null, modelId = null, mode = null, start = null, end = null } = filter;
  const hosts = filter.hosts ? [...filter.hosts] : null;
  const rows = await world.sql`
    select (created_at at time zone ${timeZone})::date::text as day, model_id as "modelId", count(*)::int as requests,
      sum(prompt_tokens)::int as "promptTokens", sum(completion_tokens)::int as "completionTokens",
      sum(charged_nano_usd)::text as "chargedNanoUsd"
    from receipts
    where outcome = 'settled' and account_id = ${accountId} and (key_id = ${keyId}::bigint or ${keyId}::bigint is null)
      and (model_id = ${modelId}::text or ${modelId}::text is null) and (mode = ${mode}::text or ${mode}::text is null)
      and (host = any(${hosts}::text[]) or ${hosts}::text[] is null)
      and (created_at >= ${start}::text::timestamptz or ${start}::text is null)
      and (created_at < ${end}::text::timestamptz or ${end}::text is null)
      and created_at < date_trunc('milliseconds', ${NOW}::timestamptz) + interval '1 day'
      and (created_at at time zone ${timeZone})::date > (${NOW}::timestamptz at time zone ${timeZone})::date - ${days}::int
    group by 1, 2 order by 1, model_id collate "C"`;
  return rows.map((row) => ({ ...row, chargedNanoUsd: BigInt(String(row.chargedNanoUsd)) }));
}

async function expectExact(filter: Omit<UsageFilter, "accountId"> = {}, zones = ZONES, days = 33): Promise<void> {
  for (const { accountId } of people)
    for (const timeZone of zones) {
      const asked = { ...filter, accountId };
      const { rows } = await usageByDay({ db }, { ...asked, days, measure: "requests", timeZone });
      const wanted: unknown[] = await counted(asked, days, timeZone);
      expect({ timeZone, filter, rows }).toEqual({ timeZone, filter, rows: wanted } as never);
    }
}

const countedRows = async (table: string) =>
  Number((await world.sql`select count(*)::int as n from ${world.sql(table)}`)[0]?.n);

test(
  "sums by day and model are exact in every time zone, with no row folded, some, all, and new rows since",
  async () => {
    await write(300, 1);
    await expectExact();
    await fold(3);
    await expectExact();
    await fold();
    await expectExact();
    expect(await countedRows("usage_sums")).toBeGreaterThan(300);
    await write(200, 2);
    await fold(2);
    await expectExact();
  },
  SLOW_MS,
);

test(
  "rows of a transaction that stayed open while later ones were folded are counted",
  async () => {
    const [written, committing] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const slow = world.sql.begin(async (tx) => {
      await write(20, 7, { tx });
      written.resolve();
      await committing.promise;
    });
    await Promise.race([written.promise, slow]);
    await world.sql`create table later ()`;
    await fold();
    await expectExact({}, ["UTC"]);
    committing.resolve();
    await slow;
    const [row] = await world.sql`
      select count(*)::int as n from receipts where written_in = any(array(select pg_snapshot_xip(folded) from book_closing))`;
    expect(row?.n).toBe(20);
    await expectExact({}, ["UTC"]);
    await fold();
    await expectExact({}, ["UTC"]);
  },
  SLOW_MS,
);

test(
  "sums filtered by key, model, hosts, billing mode and any two moments are exact",
  async () => {
    const [, { keys }] = people;
    const zones = ["UTC", "Asia/Kathmandu"];
    for (const filter of [
      { keyId: keys[0].keyId },
      { modelId: "chat-b" },
      { modelId: "none" },
      { hosts: [HOSTS[1]] },
      { hosts: [] },
      { mode: "payg" },
      { start: "2026-03-20T11:07:31.001Z" },
      { end: "2026-03-29T22:31:00.999Z" },
      { start: "2026-03-15T00:00:00.001Z", end: "2026-03-15T23:59:59.999Z" },
      { start: "2026-03-29T10:00:00Z", end: "2026-03-29T10:15:00Z" },
      { start: "2026-03-29", end: "2026-03-28" },
      { start: "9999-12-31T23:59:59-12:00", end: "9999-12-31T23:59:59-12:00" },
      { keyId: keys[1].keyId, modelId: "chat-a", hosts: [...HOSTS], mode: "package", start: "2026-03-10T03:04:05Z" },
    ] satisfies Omit<UsageFilter, "accountId">[])
      await expectExact(filter, zones);
    await expectExact({}, zones, 1);
  },
  SLOW_MS,
);

test(
  "sums by key over the last 24 hours are exact to the millisecond",
  async () => {
    const dayAgoMs = Date.parse(NOW) - 86_400_000;
    await write(60, 3, { moments: [dayAgoMs - 1, dayAgoMs, dayAgoMs + 1] });
    for (const isFolded of [false, true]) {
      if (isFolded) await fold();
      for (const { accountId } of people) {
        const wanted = await world.sql`
          select key_id::int as id, count(*)::int as n from receipts
          where account_id = ${accountId} and outcome = 'settled' and created_at >= ${NOW}::timestamptz - interval '24 hours' group by 1`;
        expect(wanted).toHaveLength(2);
        expect(await requestsByKey({ db }, accountId)).toEqual(new Map(wanted.map(({ id, n }) => [id, n])));
      }
    }
  },
  SLOW_MS,
);

/** What a reseller's statement must contain, counted from the records. */
async function countedMonth(month: string, timeZone: string) {
  const [reseller] = people;
  const lines = await world.sql`
    select host, account_id::int as "customerId", model_id as "modelId", count(*)::int as requests,
      (count(*) filter (where mode = 'package'))::int as "packageRequests", sum(prompt_tokens)::int as "promptTokens",
      sum(cached_tokens)::int as "cachedTokens", sum(completion_tokens)::int as "completionTokens",
      sum(charged_nano_usd)::text as "chargedNanoUsd", sum(cost_nano_usd)::text as "costNanoUsd",
      (sum(units) * (min(account_id) * 7 + 1))::text as "unitsNanoUsd", (sum(units) * (min(account_id) * 5 + 2))::text as "unitsCostNanoUsd"
    from receipts where outcome = 'settled' and to_char(finished_at at time zone ${timeZone}, 'YYYY-MM') = ${month}
    group by 1, 2, 3 order by host collate "C", 2, model_id collate "C"`;
  const [own] = await world.sql`
    select count(*)::int as charges, coalesce(-sum(charged_nano_usd), 0)::text as "nanoUsd",
      (select -coalesce(sum(charged_nano_usd), 0) from receipts
        where account_id = ${reseller.accountId} and to_char(finished_at at time zone ${timeZone}, 'YYYY-MM') < ${month})::text as before
    from receipts
    where account_id = ${reseller.accountId} and charged_nano_usd > 0 and to_char(finished_at at time zone ${timeZone}, 'YYYY-MM') = ${month}`;
  const toLine = (line: (typeof lines)[number]) => {
    const [charged, cost] = [
      BigInt(String(line.chargedNanoUsd)),
      BigInt(String(line.costNanoUsd ?? line.chargedNanoUsd)),
    ];
    const [units, unitsCost] = [BigInt(String(line.unitsNanoUsd)), BigInt(String(line.unitsCostNanoUsd))];
    return {
      ...line,
      chargedNanoUsd: charged,
      costNanoUsd: cost,
      earnedNanoUsd: charged - cost,
      unitsNanoUsd: units,
      unitsCostNanoUsd: unitsCost,
      usageRevenueNanoUsd: charged + units,
      usageCostNanoUsd: cost + unitsCost,
      marginNanoUsd: charged + units - cost - unitsCost,
    };
  };
  return { lines: lines.map(toLine), own };
}

test(
  "statements of months in every time zone count requests that ended in the month, whenever they began",
  async () => {
    const [reseller] = people;
    const edges = [
      "2026-02-28T13:59Z",
      "2026-03-31T09:50Z",
      "2026-03-31T17:10Z",
      "2026-03-31T23:55Z",
      "2026-04-01T10:30Z",
    ];
    await write(200, 4, { moments: edges.map(Date.parse) });
    await fold();
    expect(await countedRows("usage_crossings")).toBeGreaterThan(20);
    for (const isFolded of [true, false]) {
      if (!isFolded) await write(100, 5, { moments: edges.map(Date.parse) });
      for (const timeZone of ZONES)
        for (const month of ["2026-02", "2026-03", "2026-04"]) {
          const { usage, balance } = await statementOf(
            { db },
            { resellerId: reseller.accountId, month, timeZone, rowsMax: 100 },
          );
          const { lines, own } = await countedMonth(month, timeZone);
          const named = usage.rows.map(({ customerName: _, ...line }) => line);
          expect({ month, timeZone, lines: named }).toEqual({ month, timeZone, lines } as never);
          expect(balance.charges).toBe(own?.charges);
          expect(balance.sumsNanoUsd.charge).toBe(BigInt(String(own?.nanoUsd)));
          // All top-ups are in February.
          const toppedUp = balance.openingNanoUsd + balance.sumsNanoUsd.top_up - BigInt(String(own?.before));
          expect(toppedUp).toBe(await sumOfTopUps());
        }
    }
  },
  SLOW_MS,
);

async function sumOfTopUps(): Promise<bigint> {
  const [row] = await world.sql`
    select sum(amount_nano_usd)::text as nano from balance_entries
    where kind = 'top_up' and account_id = ${String(people[0].accountId)}`;
  return BigInt(String(row?.nano));
}

type Told = { accountId: number; at: string; code: string; modelId: string; count: number };

/** Random errors of March, written as replicas write them. */
async function writeErrors(seed: number): Promise<Told[]> {
  const random = seeded(seed);
  const told = Array.from({ length: 150 }, (): Told => {
    const at = new Date(Date.parse("2026-03-01T00:00:00Z") + random(33 * 1440) * 60_000).toISOString();
    const { accountId } = people[random(people.length)] as Someone;
    const code = ["provider_unavailable", "too_many_requests"][random(2)] ?? "";
    return { accountId, at, code, modelId: [...MODELS, ""][random(4)] ?? "", count: 1 + random(5) };
  });
  const lastRequestId = "01990000-0000-7000-8000-000000000000";
  const counts = told.map(({ at, ...error }) => ({ ...error, minute: at, keyId: 0, host: "a.test", lastRequestId }));
  await addRefusals(
    { db },
    counts.map((count) => ({ ...count, isListed: false })),
  );
  return told;
}

type Rec = {
  accountId: number;
  modelId: string;
  at: Date;
  tokens: number;
  charged: string;
  cost: string | null;
  firstMs: number;
  wholeMs: number;
};

/** Usage records between two moments, one by one. */
async function recordsBetween(from: string, to: string) {
  return await world.sql<Rec[]>`
    select account_id::int as "accountId", model_id as "modelId", created_at as at, prompt_tokens as tokens, charged_nano_usd::text as charged,
      provider_cost_nano_usd::text as cost, first_ms::int as "firstMs", floor(extract(epoch from finished_at - created_at) * 1000)::int as "wholeMs"
    from receipts where outcome = 'settled' and created_at >= ${from}::text::timestamptz and created_at < ${to}::text::timestamptz`;
}

/** The middle of the bucket in which this fraction of durations ends: four buckets for each doubling, up to 17 minutes. */
function percentileAgain(durations: readonly number[], fraction: number): number {
  const ms = durations.toSorted((a, b) => a - b)[Math.ceil(fraction * durations.length) - 1] ?? 0;
  return ms < 1 ? 1 : Math.round(2 ** ((Math.min(80, Math.floor(Math.log2(ms) * 4)) + 0.5) / 4));
}

function summed(records: readonly Rec[], told: readonly Told[]) {
  const sum = (pick: (record: Rec) => unknown) =>
    records.reduce((all, record) => all + BigInt(String(pick(record))), 0n);
  const took = (pick: (record: Rec) => number) => {
    const all = records.map(pick);
    return all.length === 0 ? null : { p50Ms: percentileAgain(all, 0.5), p95Ms: percentileAgain(all, 0.95) };
  };
  return {
    requests: records.length,
    promptTokens: Number(sum(({ tokens }) => tokens)),
    chargedNanoUsd: sum(({ charged }) => charged),
    providerCostNanoUsd: sum(({ cost }) => cost ?? 0),
    costUnknown: records.filter(({ cost }) => cost === null).length,
    firstEvent: took(({ firstMs }) => firstMs),
    wholeAnswer: took(({ wholeMs }) => wholeMs),
    errors: told.reduce((all, { count }) => all + count, 0),
  };
}

const figured = ({ of: _, firstMarks, wholeMarks, ...line }: FiguresLine) => ({
  requests: line.requests,
  promptTokens: line.promptTokens,
  chargedNanoUsd: line.chargedNanoUsd,
  providerCostNanoUsd: line.providerCostNanoUsd,
  costUnknown: line.costUnknown,
  firstEvent: percentilesOf(firstMarks),
  wholeAnswer: percentilesOf(wholeMarks),
  errors: line.errors,
});

test(
  "figures by hour, day, month, model, account and reseller are those of the records, folded or not, with latency and errors",
  async () => {
    const [reseller, customer] = people;
    const customers = people.slice(1).map(({ accountId }) => accountId);
    let told = await writeErrors(31);
    const periods = [
      ["hour", "2026-03-15T03:00:00.000Z", "2026-03-17T03:00:00.000Z"],
      ["day", "2026-03-01T05:15:00.000Z", "2026-04-03T10:15:00.000Z"],
      ["day", "2026-03-10T00:00:00.000Z", "2026-03-11T00:00:00.000Z"],
      ["day", "2026-03-10T13:15:00.000Z", "2026-03-10T14:00:00.000Z"],
      ["month", "2026-02-27T16:00:00.000Z", "2026-04-03T10:15:00.000Z"],
      ["model", "2026-03-03T16:45:00.000Z", "2026-03-29T02:00:00.000Z"],
      ["account", "2026-03-03T16:00:00.000Z", "2026-03-29T02:00:00.000Z"],
      ["reseller", "2026-03-03T11:00:00.000Z", "2026-03-29T13:00:00.000Z"],
    ] as const;
    const scopes: [FiguresScope, readonly number[]][] = [
      ["everyone", people.map(({ accountId }) => accountId)],
      [{ customersOf: reseller.accountId }, customers],
      [{ accountId: customer.accountId }, [customer.accountId]],
    ];
    for (const isFolded of [false, true]) {
      if (isFolded) {
        await fold();
        told = [...told, ...(await writeErrors(32))];
      } else await write(200, 33);
      for (const [by, start, end] of periods)
        for (const [scope, ids] of scopes) {
          if ((by === "reseller" && scope !== "everyone") || (by === "account" && ids.length === 1)) continue;
          const { from, to, lines, total, errors } = await figuresOf({ db }, { scope, by, start, end });
          expect([by, from, to]).toEqual([by, start, end]);
          const records = (await recordsBetween(start, end)).filter(({ accountId }) => ids.includes(accountId));
          const failed = told.filter(({ accountId, at }) => ids.includes(accountId) && at >= start && at < end);
          expect(total.requests).toBe(records.length);
          expect(errors.reduce((sum, { requests }) => sum + requests, 0)).toBe(summed([], failed).errors);
          const nextOf = (of: string) => lines[lines.findIndex((line) => line.of === of) + 1]?.of ?? end;
          const isOf = (
            of: string,
            { accountId, modelId, at }: { accountId: number; modelId: string; at: string | Date },
          ) => {
            if (by === "model") return modelId === of;
            if (by === "account") return accountId === Number(of);
            if (by === "reseller") return customers.includes(accountId);
            const ms = new Date(at).getTime();
            return ms >= Date.parse(of) && ms < Date.parse(nextOf(of));
          };
          for (const line of lines) {
            const of = String(line.of);
            const wanted = summed(
              records.filter((record) => isOf(of, record)),
              failed.filter((error) => isOf(of, error)),
            );
            expect([by, of, figured(line)]).toEqual([by, of, wanted]);
          }
          // Times leave out nothing, and begin when they say.
          if (by === "hour") expect(lines).toHaveLength(48);
          if (by === "month") expect(lines.map(({ of }) => of?.slice(0, 7))).toEqual(["2026-02", "2026-03", "2026-04"]);
          if (by === "day") expect(lines.slice(1).every(({ of }) => of?.endsWith("T00:00:00.000Z"))).toBe(true);
          const inLines = lines.reduce((sum, { requests }) => sum + requests, 0);
          expect([by, inLines]).toEqual([
            by,
            by === "reseller"
              ? records.filter(({ accountId }) => customers.includes(accountId)).length
              : records.length,
          ]);
        }
    }
  },
  SLOW_MS,
);

test(
  "sums stay the same while rows are being folded",
  async () => {
    const [, person, { accountId }] = people;
    for (let i = 0; i < 20; i++) await write(20, 100 + i);
    const ask = { accountId, days: 33, measure: "requests", timeZone: "Asia/Kathmandu" } as const;
    const wanted = await usageByDay({ db }, ask);
    const keys = await requestsByKey({ db }, person.accountId);
    let folding = true;
    const folded = (async () => {
      const before = await countedRows("usage_sums");
      for (let i = 0; i < 30; i++) await fold(1);
      folding = false;
      expect(await countedRows("usage_sums")).toBeGreaterThan(before + 100);
    })();
    let reads = 0;
    for (; folding; reads++) {
      expect(await usageByDay({ db }, ask)).toEqual(wanted);
      expect(await requestsByKey({ db }, person.accountId)).toEqual(keys);
    }
    await folded;
    expect(reads).toBeGreaterThan(2);
    await expectExact({}, ["UTC"]);
  },
  SLOW_MS,
);

/** How many changed pieces a check found. It must find nothing broken. */
async function changedNow(): Promise<number> {
  let changed = 0;
  const results = await check(openSlices(folder), { onChanged: (pieces) => (changed += pieces) });
  expect(results.filter(({ rows }) => rows !== 0)).toEqual([]);
  return changed;
}

const first = (span: number, key = "=") =>
  `(account_id, key_id, span, begins, kind_id) in (select account_id, key_id, span, begins, kind_id from usage_sums
    where span = ${span} and account_id > 0 and key_id ${key} 0 order by begins desc limit 1)`;
const uncounted = "ctid = (select max(ctid) from book_sums where kind = 'uncounted' and nano_usd > 0)";
test.each([
  ["what a key was charged uncounted", `update book_sums set nano_usd = nano_usd - 1 where ${uncounted}`],
  ["how often a key was used uncounted", `update book_sums set rows = rows + 1 where ${uncounted}`],
  ["a day of uncounted use, moved to another", `update book_sums set day = day - 400 where ${uncounted}`],
  ["a day of uncounted use that is gone", `delete from book_sums where ${uncounted}`],
  ["uncounted use of another key", `update book_sums set id = id + 1, day = day - 900 where ${uncounted}`],
  ["a quarter of a key", `update usage_sums set requests = requests + 1 where ${first(15, ">")}`],
  ["a day of all keys", `update usage_sums set prompt_tokens = prompt_tokens - 1 where ${first(1440)}`],
  [
    "a quarter with two counts changed in opposite directions",
    `update usage_sums set requests = requests + 3, charges = charges - 1 where ${first(15, ">")}`,
  ],
  ["a month", `update usage_sums set charged_nano_usd = charged_nano_usd + 1 where ${first(0)}`],
  ["a month that is gone", `delete from usage_sums where ${first(0)}`],
  [
    "a day moved to another day",
    `update usage_sums set begins = begins + interval '40 days' where ${first(1440, ">")}`,
  ],
  [
    "a day of a key that does not exist",
    `insert into usage_sums select account_id, 999999999, begins, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, kind_id, span from usage_sums where ${first(1440)}`,
  ],
  [
    "a crossing",
    "update usage_crossings set requests = requests + 1 where ctid = (select min(ctid) from usage_crossings)",
  ],
  ["a kind", "update usage_kinds set host = 'elsewhere.test' where id = (select min(id) from usage_kinds)"],
  [
    "a quarter of everyone",
    "update usage_sums set provider_cost_nano_usd = provider_cost_nano_usd + 1 where account_id = 0 and span = 15",
  ],
  [
    "a day of a reseller's customers",
    "update usage_sums set requests = requests + 1 where account_id < 0 and span = 1440",
  ],
  ["a latency of a key", `update usage_sums set first_marks = first_marks + 1e24 where ${first(15, ">")}`],
  [
    "an hour of an account",
    "update usage_holders set requests = requests + 1 where span = 60 and scope = 0 and holder_id > 0",
  ],
  [
    "a day of a reseller",
    "update usage_holders set prompt_tokens = prompt_tokens + 1 where span = 1440 and holder_id < 0",
  ],
  ["the holders of a reseller", "delete from usage_holders where scope < 0"],
  ["a month of everyone that is gone", "delete from usage_sums where account_id = 0 and span = 0"],
  ["everything", "delete from usage_sums"],
  [
    "a receipt",
    "update receipts set model_id = 'chat-d' where request_id = (select request_id from receipts where outcome = 'settled' order by 1 desc limit 1)",
  ],
] as const)(
  "a row changed by hand is found, and everything is folded anew: %s",
  async (_, damage) => {
    await fold();
    expect(await changedNow()).toBe(0);
    expect((await world.sql.unsafe(damage)).count).toBeGreaterThan(0);
    expect(await changedNow()).toBeGreaterThan(0);
    await expectExact({}, ["Pacific/Marquesas"]);
    expect(await changedNow()).toBe(0);
  },
  SLOW_MS,
);

test(
  "the sweep continues where it stopped, day by day for a large account",
  async () => {
    const sweep = async (requestsMax: number) => {
      const slices = openSlices(folder, { onSlice: (all) => (all.rows = 30) });
      slices.rows = 30;
      return await sweepRollups(slices, requestsMax);
    };
    const all = Number.POSITIVE_INFINITY;
    const [{ accountId }] = people;
    await write(1000, 8);
    await fold();
    await sweep(all);
    expect(await sweep(100)).toBe(0);
    const [at] = await world.sql`select usage_to::int as account, usage_days_to::text as day from book_closing`;
    expect(at?.account).toBe(accountId);
    expect(at?.day).toMatch(/^2026-03-/);
    const damage = async (side: "<" | ">=", by: number) => {
      const { count } = await world.sql`
        update usage_sums set requests = requests + ${by} where account_id = ${accountId} and key_id > 0 and span = 15
          and begins ${world.sql.unsafe(side)} ${String(at?.day)}::text::timestamp at time zone 'UTC'`;
      expect(count).toBeGreaterThan(10);
    };
    // The same of uncounted use, of which the days are those of other zones.
    const spend = async (by: number) =>
      await world.sql`
        update book_sums set nano_usd = nano_usd + ${by} where kind = 'uncounted' and day = ${String(at?.day)}::text::date - 1
          and id = (select max(id) from keys where account_id = ${accountId})`;
    expect((await spend(1)).count).toBe(1);
    expect(await sweep(all)).toBe(0);
    expect(await sweep(all)).toBe(1);
    await spend(-1);
    expect(await sweep(100)).toBe(0);
    // What the sweep has passed is found by the next one; what lies ahead by this one.
    await damage("<", 1);
    expect(await sweep(all)).toBe(0);
    expect(await sweep(all)).toBeGreaterThan(1);
    await damage("<", -1);
    expect(await sweep(100)).toBe(0);
    await damage(">=", 1);
    expect(await sweep(all)).toBeGreaterThan(1);
    await damage(">=", -1);
    // Rollups contain nothing of rows that are not folded.
    await write(60, 9);
    expect(await sweep(all)).toBe(0);
  },
  SLOW_MS,
);

test(
  "sums read while requests are settled and folded are never below what is settled, nor above what has begun",
  async () => {
    await world.setClock(null);
    const person = await world.addCustomer();
    const key = await world.addKey(person);
    await world.givePackage(person, { dailyLimit: 100_000 });
    const { ledger, close } = await openWorldLedger(world);
    let [begun, settled] = [0, 0];
    const settle = async () => {
      const hold = await ledger.reserve(requestFor(person, key));
      begun++;
      await ledger.settle(hold, usageOf());
      settled++;
    };
    const working = (async () => {
      for (let i = 0; i < 150; i++) await Promise.all([settle(), settle(), settle(), settle()]);
    })();
    let busy = true;
    const folding = (async () => {
      while (busy) await fold(1);
    })();
    const check = async () => {
      const least = settled;
      const { models } = await usageByDay(
        { db },
        { ...person, days: 2, measure: "tokens", timeZone: "Asia/Kathmandu" },
      );
      const most = begun;
      const [sum = { requests: 0, promptTokens: 0, completionTokens: 0 }] = models;
      expect(sum.requests).toBeGreaterThanOrEqual(least);
      expect(sum.requests).toBeLessThanOrEqual(most);
      expect([sum.promptTokens, sum.completionTokens]).toEqual([10 * sum.requests, 20 * sum.requests]);
      const byKey = (await requestsByKey({ db }, person.accountId)).get(key.keyId) ?? 0;
      expect(byKey).toBeGreaterThanOrEqual(sum.requests);
      expect(byKey).toBeLessThanOrEqual(begun);
    };
    let reads = 0;
    for (; settled < 600 && reads < 10_000; reads++) await check();
    await working;
    await check();
    busy = false;
    await folding;
    await check();
    expect(reads).toBeGreaterThan(5);
    await close();
  },
  SLOW_MS,
);
