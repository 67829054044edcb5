import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { rotateKey } from "../../src/accounts/keys_store.ts";
import { foldAll } from "../../src/books/folding_store.ts";
import { openSlices } from "../../src/books/short_transactions_store.ts";
import type { Hold } from "../../src/ledger/ledger.ts";
import type { ReserveRequest } from "../../src/ledger/ledger_store.ts";
import { type AccountsWorld, createAccountsWorld } from "../accounts/accounts_world.ts";
import { randomOf } from "../random.ts";
import type { TestKey } from "../world.ts";
import {
  codeOf,
  type OpenLedger,
  openWorldLedger,
  reapLease,
  refusalOf,
  requestFor,
  stopClock,
  tally,
  usageOf,
} from "./ledger_world.ts";

/** What a key may spend in a week, in a month and in total, in its time zone: the ledger sums its days. Source: KEY-10. */

/** 1,000 pico a token: a cap of 100 tokens holds 100 nano-USD. */
const PRICED: Partial<ReserveRequest> = { promptPico: 0n, outputPico: 1000n };
const BALANCE = 10_000_000n;
const PERIODS = ["daily", "weekly", "monthly", "total"] as const;
type Period = (typeof PERIODS)[number];
type Budgets = Partial<Record<Period, number | null>>;

let world: AccountsWorld;
let a: OpenLedger;
let b: OpenLedger;

beforeAll(async () => {
  world = await createAccountsWorld();
  a = await openWorldLedger(world);
  b = await openWorldLedger(world);
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await a.close();
  await b.close();
  await world.close();
});
beforeEach(() => world.setClock(null));

const setBudgets = ({ keyId }: TestKey, { daily = null, weekly = null, monthly = null, total = null }: Budgets) =>
  world.sql`
    update keys set daily_spend_max_nano_usd = ${daily}, weekly_spend_max_nano_usd = ${weekly},
      monthly_spend_max_nano_usd = ${monthly}, total_spend_max_nano_usd = ${total} where id = ${keyId}`;

async function payer(budgets: Budgets, timeZone = "UTC") {
  const person = await world.addCustomer();
  await world.setBalance(person, BALANCE);
  const key = await world.addKey(person, { mode: "payg" });
  await world.sql`update keys set time_zone = ${timeZone} where id = ${key.keyId}`;
  await setBudgets(key, budgets);
  const askOf = (of: TestKey, nano: number) =>
    a.ledger.reserve(requestFor(person, of, { ...PRICED, capMax: nano, capMin: nano }));
  const ask = (nano: number) => askOf(key, nano);
  /** Spends an amount, of which at first `held` is reserved. */
  const spend = async (nano: number, held = nano) => {
    await a.ledger.settle(await ask(held), usageOf({ chargeNanoUsd: BigInt(nano) }));
  };
  return { person, key, ask, askOf, spend };
}

/** The same moment is Sunday, 25 October 2026, the day on which Berlin's clocks are set back: its day has 25 hours. */
const SUNDAY = "2026-10-25 12:00:00+00";

test.each([
  ["weekly", "2026-10-25T23:00:00.000Z"],
  ["monthly", "2026-10-31T23:00:00.000Z"],
  ["total", undefined],
] as const)(
  "%s: 402 key_spend_limit_exceeded with limit, used, remaining and when it begins anew",
  async (period, resetsAt) => {
    await stopClock(world, SUNDAY);
    const { ask, spend } = await payer({ [period]: 1000 }, "Europe/Berlin");
    await spend(300, 500);
    await ask(500);
    const refusal = await refusalOf(ask(300));
    expect(refusal).toMatchObject({ code: "key_spend_limit_exceeded", status: 402 });
    expect(refusal.facts).toMatchObject({ limit: 1000, used: 800, remaining: 200 });
    expect(refusal.facts?.resetsAt ?? undefined).toBe(resetsAt);
    await ask(200);
    if (resetsAt === undefined) {
      await stopClock(world, "2026-11-20 12:00:00+00");
      expect(await codeOf(ask(1))).toBe("key_spend_limit_exceeded");
      return;
    }
    await stopClock(world, new Date(Date.parse(resetsAt) - 1000).toISOString());
    expect(await codeOf(ask(1))).toBe("key_spend_limit_exceeded");
    await stopClock(world, resetsAt);
    await ask(1000);
    expect(await codeOf(ask(1))).toBe("key_spend_limit_exceeded");
  },
);

test("of several limits the one with the least left decides, and is what the refusal names", async () => {
  await stopClock(world, "2026-10-20 12:00:00+00");
  const { ask, spend } = await payer({ daily: 500, weekly: 800, monthly: 900, total: 5000 });
  await spend(500);
  expect((await refusalOf(ask(1))).facts).toMatchObject({ limit: 500, resetsAt: "2026-10-21T00:00:00.000Z" });
  await stopClock(world, "2026-10-21 12:00:00+00");
  await spend(300);
  expect((await refusalOf(ask(1))).facts).toMatchObject({ limit: 800, resetsAt: "2026-10-26T00:00:00.000Z" });
  await stopClock(world, "2026-10-27 12:00:00+00");
  await spend(100);
  expect((await refusalOf(ask(1))).facts).toMatchObject({ limit: 900, resetsAt: "2026-11-01T00:00:00.000Z" });
});

test("a budget that is set in the middle of its period counts what the key has used of it, once; a total counts from that day", async () => {
  await stopClock(world, "2026-10-02 12:00:00+00");
  const { key, ask, spend } = await payer({});
  await spend(50); // in September in no zone, and in another week
  await stopClock(world, "2026-10-19 12:00:00+00");
  await setBudgets(key, { daily: 1000 });
  await spend(70); // counted on its day
  await setBudgets(key, {});
  await stopClock(world, "2026-10-20 12:00:00+00");
  await spend(30);
  await stopClock(world, "2026-10-21 12:00:00+00");
  await spend(4);
  const left = async (budgets: Budgets) => {
    await setBudgets(key, budgets);
    return (await refusalOf(ask(900_000))).facts?.remaining;
  };
  expect(await left({ weekly: 1000 })).toBe(1000 - 104);
  expect(await left({ monthly: 1000 })).toBe(1000 - 154);
  expect(await left({ weekly: 1000, monthly: 1000 })).toBe(1000 - 154);
  expect(await left({ total: 1000 })).toBe(1000 - 4);
  await stopClock(world, "2026-10-22 12:00:00+00");
  await spend(6);
  // Another amount keeps its first day; removed and set again, it begins anew.
  expect(await left({ total: 2000 })).toBe(2000 - 10);
  expect(await left({ monthly: 1000 })).toBe(1000 - 160);
  expect(await left({ total: 2000 })).toBe(2000 - 6);
});

test.each([
  ["of 167 hours", "Europe/Berlin", "2026-03-22T23:00:00.000Z", "2026-03-29T22:00:00.000Z"],
  ["of 169 hours", "Europe/Berlin", "2026-10-18T22:00:00.000Z", "2026-10-25T23:00:00.000Z"],
  ["of 167.5 hours", "Australia/Lord_Howe", "2026-09-27T13:30:00.000Z", "2026-10-04T13:00:00.000Z"],
  [
    "that begins at 01:00, because its Monday has no midnight",
    "Asia/Tehran",
    "2021-03-21T20:30:00.000Z",
    "2021-03-28T19:30:00.000Z",
  ],
  [
    "that ends after a midnight that occurs twice",
    "Asia/Tehran",
    "2020-09-13T19:30:00.000Z",
    "2020-09-20T20:30:00.000Z",
  ],
])(
  "a week %s begins and ends to the second, and a budget that is set in it counts it whole",
  async (_, timeZone, begins, ends) => {
    const at = (iso: string, seconds = 0) => stopClock(world, new Date(Date.parse(iso) + seconds * 1000).toISOString());
    await at(begins, -1);
    const { key, ask, spend } = await payer({}, timeZone);
    await spend(50);
    await at(begins);
    await spend(400);
    await at(begins, 3 * 86_400);
    await setBudgets(key, { weekly: 1000 });
    expect((await refusalOf(ask(601))).facts).toMatchObject({ limit: 1000, used: 400, remaining: 600, resetsAt: ends });
    await at(ends, -3601);
    await spend(500);
    await at(ends, -1);
    await spend(100);
    expect((await refusalOf(ask(1))).facts).toMatchObject({ used: 1000, remaining: 0, resetsAt: ends });
    await at(ends);
    await ask(1000);
    expect(await codeOf(ask(1))).toBe("key_spend_limit_exceeded");
  },
);

test.each(PERIODS)(
  "a %s budget that is lowered below what is spent refuses everything, charges what is in flight, and goes on when raised",
  async (period) => {
    const { key, ask, spend } = await payer({ [period]: 1000 });
    await spend(600);
    const open = await ask(300);
    await setBudgets(key, { [period]: 500 });
    const used = { limit: 500, used: 900, remaining: 0 };
    expect((await refusalOf(ask(1))).facts).toMatchObject(used);
    expect(await a.ledger.settle(open, usageOf({ chargeNanoUsd: 300n }))).toMatchObject({
      chargedNanoUsd: 300n,
      shortfallNanoUsd: 0n,
    });
    expect((await refusalOf(ask(1))).facts).toMatchObject(used);
    await setBudgets(key, { [period]: 1000 });
    await ask(100);
    expect(await codeOf(ask(1))).toBe("key_spend_limit_exceeded");
  },
);

test.each(["weekly", "monthly", "total"] as const)(
  "200 requests at once on two replicas against a %s budget of 100: exactly 100 are granted",
  async (period) => {
    const { person, key } = await payer({ [period]: 10_000 });
    const request = () => requestFor(person, key, { ...PRICED, capMax: 100, capMin: 100 });
    const codes = await Promise.all(
      Array.from({ length: 200 }, (_, i) => codeOf((i % 2 ? a : b).ledger.reserve(request()))),
    );
    expect(tally(codes)).toEqual({ granted: 100, key_spend_limit_exceeded: 100 });
  },
);

test("a late settlement takes what is left of its key's budget; the rest is a loss", async () => {
  const { ask, spend } = await payer({ monthly: 1000 });
  const frozen = await ask(50);
  await reapLease(world, frozen.leaseId);
  await a.ledger.renewLease();
  await spend(800);
  const late = await a.ledger.settle(frozen, usageOf({ chargeNanoUsd: 300n }));
  expect(late).toMatchObject({ chargedNanoUsd: 200n, shortfallNanoUsd: 100n });
  expect(await codeOf(ask(1))).toBe("key_spend_limit_exceeded");
});

test("a key that replaces another has used what that has used: of the day, the month and the total, also under a new limit", async () => {
  for (const period of ["daily", "monthly", "total"] as const) {
    const { key, person, askOf, spend } = await payer({ [period]: 1000 });
    await spend(900);
    const { key: next } = await rotateKey(world.deps, {
      accountId: person.accountId,
      keyId: key.keyId,
      overlapSeconds: 0,
    });
    const replacing = { ...key, keyId: next.keyId };
    expect((await refusalOf(askOf(replacing, 200))).facts).toMatchObject({ limit: 1000, used: 900, remaining: 100 });
    await askOf(replacing, 100);
    await setBudgets(replacing, { [period]: 1500 });
    expect((await refusalOf(askOf(replacing, 600))).facts).toMatchObject({ limit: 1500, used: 1000, remaining: 500 });
  }
});

const fold = async () => expect(await foldAll(openSlices(world.sql))).toBe(true);

test("a limit that is set or changed reads only receipts that are not folded yet, however many the key and its account have", async () => {
  const { sql } = world;
  await stopClock(world, "2026-10-21 12:00:00+00");
  const { person, key, ask, spend } = await payer({});
  let history = 0;
  const addHistory = async (count: number) => {
    await sql`
      insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd, charged_nano_usd,
        shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
      select (left(request_id_floor(at)::text, 14) || '7000-8000-' || lpad((${person.accountId}::int * 10000 + n)::text, 12, '0'))::uuid,
        ${person.accountId}, ${key.keyId}, 'model-a', 'h', 'payg', 'settled', 'complete', 0, 1, 1, 0, 1, 0, 1, 0, false, at, at
      from (select n, timestamptz '2026-10-02 00:00:00+00' + n * interval '4 minutes' as at
        from generate_series(${history + 1}::int, ${history + count}::int) n) made`;
    await sql`
      insert into balance_entries (account_id, amount_nano_usd, kind, request_id)
      select account_id, -1, 'charge', request_id from receipts r
      where account_id = ${person.accountId} and not exists (select from balance_entries e where e.request_id = r.request_id)`;
    await sql`update balances set balance_nano_usd = balance_nano_usd - ${count} where account_id = ${person.accountId}`;
    history += count;
  };
  /** The receipts that the change reads, and what is left of the limit then. */
  const change = async (monthly: number) => {
    const read = await sql.begin(async (tx) => {
      const rowsRead = async () => {
        const [row] = await tx`
          select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int as rows from pg_stat_xact_user_tables where relname like 'receipts%'`;
        return Number(row?.rows);
      };
      const before = await rowsRead();
      await tx`update keys set monthly_spend_max_nano_usd = ${monthly} where id = ${key.keyId}`;
      return (await rowsRead()) - before;
    });
    return { read, left: (await refusalOf(ask(900_000))).facts?.remaining };
  };
  /** Pages of receipts and their indexes. The second call plans nothing. */
  const pagesRead = async () => {
    const one = await sql.reserve();
    const soFar = async () => {
      await one`select pg_stat_force_next_flush()`;
      const [row] = await one`
        select sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::int as pages
        from pg_statio_user_tables where relname like 'receipts%'`;
      return Number(row?.pages);
    };
    const use = () =>
      one`select u.* from keys k, uncounted_use(k, '2026-10-01', '2026-10-21') u where k.id = ${key.keyId}`;
    await one`set plan_cache_mode = force_generic_plan`;
    await use();
    const before = await soFar();
    await use();
    const pages = (await soFar()) - before;
    await one`reset plan_cache_mode`;
    one.release();
    return pages;
  };
  await addHistory(2_000);
  // As right after a restore: nothing is known to be folded.
  await sql`update book_closing set server = 'another'`;
  expect(await change(100_000)).toEqual({ read: history, left: 100_000 - history });
  await setBudgets(key, {});
  await fold();
  for (let n = 0; n < 3; n++) await spend(50);
  // Twice: they are counted first.
  expect(await change(100_000)).toEqual({ read: 2 * 3, left: 100_000 - history - 150 });
  await fold();
  expect(await change(50_000)).toEqual({ read: 0, left: 50_000 - history - 150 });
  const pages = await pagesRead();
  await setBudgets(key, {});
  await addHistory(4_000);
  await fold();
  expect((await pagesRead()) - pages).toBeLessThan(10);
  expect(await change(100_000)).toEqual({ read: 0, left: 100_000 - history - 150 });
});

test("whatever is reserved, settled, released, folded and changed on whatever day: what is left is what a recount says", async () => {
  const random = randomOf(20_261_129);
  const { key, ask } = await payer({});
  type Spent = { day: string; nano: number };
  const spent: Spent[] = [];
  const open: { hold: Hold; of: Spent }[] = [];
  let budgets: Budgets = {};
  let totalFrom = "";
  let nowMs = Date.parse("2026-08-28T12:00:00Z");
  const today = () => new Date(nowMs).toISOString().slice(0, 10);
  const monday = () =>
    new Date(nowMs - ((new Date(nowMs).getUTCDay() + 6) % 7) * 86_400_000).toISOString().slice(0, 10);
  const since = (from: string) => spent.reduce((sum, { day, nano }) => sum + (day >= from ? nano : 0), 0);
  const firstDays = () => ({
    daily: today(),
    weekly: monday(),
    monthly: `${today().slice(0, 7)}-01`,
    total: totalFrom,
  });
  const left = () =>
    Math.min(...PERIODS.flatMap((period) => (budgets[period] ? [budgets[period] - since(firstDays()[period])] : [])));
  await stopClock(world, new Date(nowMs).toISOString());
  /** Ends one of the open requests: released, or charged at most what it held. */
  const end = async (isReleased: boolean) => {
    const [{ hold, of }] = open.splice(random.whole(0, open.length - 1), 1) as [{ hold: Hold; of: Spent }];
    of.nano = isReleased ? 0 : random.whole(0, of.nano);
    if (isReleased) await a.ledger.release(hold, "provider_failed");
    else await a.ledger.settle(hold, usageOf({ chargeNanoUsd: BigInt(of.nano) }));
  };
  let refused = 0;
  let isOver = false;
  const folding = (async () => {
    for (let n = 0; !isOver; n++) {
      // Sums that are of another server are made anew.
      if (n % 20 === 19) await world.sql`update book_closing set server = 'another'`;
      await fold();
    }
  })();
  for (let step = 0; step < 400; step++) {
    const what = random.whole(0, 9);
    if (what === 0) {
      nowMs += random.whole(0, 59) * 3_600_000;
      await stopClock(world, new Date(nowMs).toISOString());
    } else if (what === 1) {
      // What began while the key had no limits would not be counted.
      while (open.length > 0) await end(false);
      const next = Object.fromEntries(
        PERIODS.filter(() => random.whole(0, 1) === 0).map((p) => [p, 200 + random.whole(0, 2999)]),
      );
      if (next.total && !budgets.total) totalFrom = today();
      budgets = next;
      await setBudgets(key, budgets);
    } else if (what < 6) {
      const nano = 1 + random.whole(0, 299);
      const asked = ask(nano);
      if (nano > left()) {
        refused++;
        expect((await refusalOf(asked)).facts?.remaining).toBe(Math.max(left(), 0));
      } else {
        const of = { day: today(), nano };
        open.push({ hold: await asked, of });
        spent.push(of);
      }
    } else if (open.length > 0) {
      await end(what === 6);
    }
  }
  isOver = true;
  await folding;
  expect(refused).toBeGreaterThan(20);
});
