import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "bun:test";
import { setMarkup } from "../../src/accounts/markups_store.ts";
import { closeEarnings, creditEarnings } from "../../src/books/earnings_store.ts";
import { openSlices } from "../../src/books/short_transactions_store.ts";
import { statementOf } from "../../src/books/statement_store.ts";
import { setPrices } from "../../src/catalog/models_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import type { ChangeDeps } from "../../src/platform/changes_store.ts";
import type { Db } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { closeBalanced } from "../gateway/checks.ts";
import { imageBody, openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";

/**
 * Resellers' markups: what customers are charged, what resellers earn, and when it is credited. The amounts are computed again from
 * the receipts by arithmetic that shares no code with the service: tokens × price in a string of decimals. Source: MRK-1, MRK-2, MRK-3, MRK-4, MRK-5,
 * MRK-6, MRK-7, MRK-9.
 */

const DAY_MS = 86_400_000;
let closings = 0;
let shop: Shop;
let deps: ChangeDeps & { db: Db };
let reseller: Person;
let customer: Person & { secret: string };

beforeAll(async () => {
  shop = await openShop({ replicas: 2 });
  deps = { db: shop.world.openDb(), bus: inProcessBus(createLog("silent")) };
  // Odd prices, so that rounding shows.
  await setPrices(deps, "vendor/chat-b", { inputMicroUsd: 3_000_001, outputMicroUsd: 15_000_003 });
});
beforeEach(async () => {
  reseller = await shop.world.addReseller();
  const person = await shop.world.addCustomer(reseller.accountId);
  await shop.world.setBalance(person, 10n ** 12n);
  customer = { ...person, ...(await shop.world.addKey(person, { mode: "payg" })) };
});
afterEach(() => shop.provider.reset());
afterAll(async () => {
  await closeDay();
  await deps.db.close();
  await closeBalanced(shop);
});

const set = (basisPoints: number | null, modelId: string | null = null) =>
  setMarkup(deps, { resellerId: reseller.accountId, modelId, basisPoints });

/** Settled receipts of the reseller's customers, oldest first, with the prices that they name. */
async function receiptsOf({ accountId }: Person) {
  const rows = await shop.world.sql`
    select r.*, r.charged_nano_usd::text as charged, r.shortfall_nano_usd::text as shortfall, r.cost_nano_usd::text as cost,
      r.held_nano_usd::text as held, v.prices, (r.finished_at at time zone 'UTC')::date::text as ended
    from receipts r join accounts a on a.id = r.account_id left join price_versions v on v.id = r.price_version_id
    where a.reseller_id = ${accountId} and r.outcome = 'settled' and r.mode = 'payg' order by r.request_id`;
  // biome-ignore lint/suspicious/noExplicitAny: rows of several tables.
  return rows as unknown as Record<string, any>[];
}

/** What a receipt should have cost, in nano-USD: the operator's price, and with the markup. In units of 10⁻¹⁶ USD, rounded up once. */
function again(receipt: Record<string, unknown>): { cost: bigint; retail: bigint } {
  // biome-ignore lint/suspicious/noExplicitAny: JSON of the database.
  const { prices, prompt_tokens, completion_tokens, further_counts, markup_basis_points } = receipt as any;
  let pico = 0n;
  if (further_counts?.image) pico = BigInt(prices.images[further_counts.image]) * 1_000_000n;
  else {
    for (let i = 0; i < prompt_tokens; i++) pico += BigInt(prices.tokens.input);
    for (let i = 0; i < completion_tokens; i++) pico += BigInt(prices.tokens.output);
  }
  const up = (amount: bigint, unit: bigint) => amount / unit + (amount % unit > 0n ? 1n : 0n);
  return { cost: up(pico, 1_000n), retail: up(pico * BigInt(10_000 + (markup_basis_points ?? 0)), 10_000_000n) };
}

/** Compares receipts with `again`. Returns what the reseller earned by them, and by day. */
function expectExact(receipts: readonly Record<string, unknown>[]): { earned: bigint; byDay: Map<string, bigint> } {
  let earned = 0n;
  const byDay = new Map<string, bigint>();
  for (const receipt of receipts) {
    const { cost, retail } = again(receipt);
    const charged = BigInt(String(receipt.charged));
    expect(charged + BigInt(String(receipt.shortfall))).toBe(retail);
    expect(receipt.cost === null ? charged : BigInt(String(receipt.cost))).toBe(cost);
    expect(retail >= cost).toBe(true);
    const above = charged > cost ? charged - cost : 0n;
    earned += above;
    byDay.set(String(receipt.ended), (byDay.get(String(receipt.ended)) ?? 0n) + above);
  }
  return { earned, byDay };
}

/** Waits until a request of the customer has this markup (null: none). The replica learns of the change from the table of changes. */
async function settled(basisPoints: number | null, model = "vendor/chat-b"): Promise<void> {
  await until(async () => {
    await shop.chat(customer.secret, { model });
    return (await receiptsOf(reseller)).at(-1)?.markup_basis_points === basisPoints;
  });
}

/** Closes today, as if it had ended; each time one day more. A replica would wait for midnight. */
async function closeDay(): Promise<void> {
  await until(async () => (await shop.counters(customer.accountId)).holds === 0);
  const day = new Date(Date.now() + DAY_MS * closings++).toISOString().slice(0, 10);
  await closeEarnings(openSlices(deps.db.sql), day);
}

const entriesOf = async ({ accountId }: Person) =>
  (
    await shop.world.sql`
      select amount_nano_usd::text as amount, reason from balance_entries where account_id = ${accountId} and kind = 'earning' order by id`
  ).map(({ amount, reason }) => ({ amount: BigInt(amount), reason }));

test("a charge is the operator's price with the markup, rounded up once; a model's own replaces that of every model", async () => {
  await set(1_533);
  await settled(1_533);
  await set(0, "chat-a");
  await set(25_000, "image-a");
  await settled(null, "chat-a");
  expect((await shop.call("/v1/images/generations", { secret: customer.secret, body: imageBody() })).status).toBe(200);
  expect((await shop.chat(customer.secret, { model: "vendor/chat-b", stream: true })).status).toBe(200);
  expect(
    (await shop.call("/v1/embeddings", { secret: customer.secret, body: { model: "embed-a", input: "toll" } })).status,
  ).toBe(200);
  expect(
    (await shop.call("/v1/responses", { secret: customer.secret, body: { model: "vendor/chat-b", input: "toll" } }))
      .status,
  ).toBe(200);
  await until(async () => (await receiptsOf(reseller)).slice(-4).length === 4);
  const receipts = await receiptsOf(reseller);
  expectExact(receipts);
  const latest = receipts.slice(-4).map(({ model_id, markup_basis_points: markup }) => [model_id, markup]);
  expect(latest).toEqual([
    ["image-a", 25_000],
    ["vendor/chat-b", 1_533],
    ["embed-a", 1_533],
    ["vendor/chat-b", 1_533],
  ]);
  const image = receipts.at(-4);
  expect([image?.charged, image?.cost, image?.held]).toEqual(["140000000", "40000000", "140000000"]);
});

test("a package, a reseller's own request, and a customer without a reseller have no markup", async () => {
  await set(5_000);
  const withPackage = await shop.world.addCustomer(reseller.accountId);
  await shop.world.givePackage(withPackage, {});
  await shop.world.setBalance(reseller, 10n ** 12n);
  const payer = await shop.payer(10n ** 12n);
  const secrets = [
    (await shop.world.addKey(withPackage)).secret,
    (await shop.world.addKey(reseller, { mode: "payg" })).secret,
    payer.secret,
  ];
  for (const secret of secrets) expect((await shop.chat(secret)).status).toBe(200);
  const rows = await shop.world.sql`
    select markup_basis_points as markup, cost_nano_usd as cost from receipts
    where account_id in (${withPackage.accountId}, ${reseller.accountId}, ${payer.accountId})`;
  expect(rows.map((row) => ({ ...row }))).toEqual(Array.from({ length: 3 }, () => ({ markup: null, cost: null })));
});

test("a request that the balance cannot pay with the markup is refused before the provider is called", async () => {
  const [row] = await shop.world
    .sql`select held_nano_usd::text as held from receipts where mode = 'payg' order by request_id desc limit 1`;
  expect(BigInt(row?.held) > 0n).toBe(true);
  const poor = await shop.world.addCustomer(reseller.accountId);
  // One image costs 40,000 micro-USD without a markup.
  await shop.world.setBalance(poor, 40_000_000n);
  const { secret } = await shop.world.addKey(poor, { mode: "payg" });
  await set(1);
  const before = shop.provider.callCount();
  const answer = await shop.call("/v1/images/generations", { secret, body: imageBody() });
  expect([answer.status, answer.json.error.code, shop.provider.callCount() - before]).toEqual([
    402,
    "insufficient_balance",
    0,
  ]);
  await set(0);
  expect((await shop.call("/v1/images/generations", { secret: customer.secret, body: imageBody() })).status).toBe(200);
});

test("requests in flight while the markup changes: hold and charge of each have one markup", async () => {
  await set(1_000);
  await settled(1_000);
  const before = (await receiptsOf(reseller)).length;
  const steps = [2_000, 0, 99_999, 1, 3_333];
  const answers: { status: number }[] = [];
  let isChanging = true;
  const senders = Array.from({ length: 16 }, async (_, i) => {
    const origin = shop.replicas[i % 2]?.origin;
    const body = { model: "vendor/chat-b", stream: i % 3 === 0 };
    while (isChanging) answers.push(await shop.chat(customer.secret, body, origin === undefined ? {} : { origin }));
  });
  for (const step of steps) {
    const answered = answers.length;
    await set(step);
    await until(() => answers.length >= answered + 40);
  }
  await settled(3_333);
  isChanging = false;
  await Promise.all(senders);
  expect(answers.filter(({ status }) => status !== 200)).toEqual([]);
  await until(async () => (await receiptsOf(reseller)).length >= before + answers.length);
  const receipts = (await receiptsOf(reseller)).slice(before);
  expectExact(receipts);
  for (const receipt of receipts) expect([null, 1_000, ...steps]).toContain(receipt.markup_basis_points);
  expect(new Set(receipts.map(({ markup_basis_points: markup }) => markup)).size).toBeGreaterThan(1);
  expect(receipts.filter(({ charged, held }) => BigInt(charged) > BigInt(held))).toEqual([]);
});

test("receipts, days, entries and statement of a month with changed markups agree to the nano-USD, and no margin is below zero", async () => {
  for (const markup of [0, 777, 12_345, 1]) {
    await set(markup);
    await settled(markup === 0 ? null : markup);
    for (let i = 0; i < 5; i++) await shop.chat(customer.secret, { model: "vendor/chat-b" });
  }
  await until(async () => (await shop.counters(customer.accountId)).holds === 0);
  // Spread over a month: the sums are folded by the days on which requests ended.
  const { earned, byDay } = expectExact(await receiptsOf(reseller));
  expect(earned > 0n).toBe(true);
  const now = new Date().toISOString().slice(0, 7);
  await closeDay();
  await creditEarnings(deps.db.sql);
  const entries = await entriesOf(reseller);
  const days = [...byDay].filter(([, amount]) => amount > 0n);
  expect(entries).toEqual(days.map(([day, amount]) => ({ amount, reason: `Earnings of ${day}` })));
  const query = { resellerId: reseller.accountId, month: now, timeZone: "UTC", rowsMax: 100 };
  const { usage, balance } = await statementOf(deps, query);
  const receipts = await receiptsOf(reseller);
  const sum = (pick: (receipt: Record<string, unknown>) => bigint) =>
    receipts.reduce((all, each) => all + pick(each), 0n);
  expect(usage.totals.chargedNanoUsd).toBe(sum(({ charged }) => BigInt(String(charged))));
  expect(usage.totals.earnedNanoUsd).toBe(earned);
  expect(usage.totals.costNanoUsd + usage.totals.earnedNanoUsd).toBe(usage.totals.chargedNanoUsd);
  for (const row of usage.rows) expect(row.earnedNanoUsd >= 0n).toBe(true);
  expect([0n, earned]).toContain(balance.sumsNanoUsd.earning);
  expect(await shop.world.unbalanced()).toEqual([]);
});

test("a closed day is credited once, also by concurrent and repeated closings, and after a connection is killed before the commit", async () => {
  await set(10_000);
  await settled(10_000);
  await until(async () => (await shop.counters(customer.accountId)).holds === 0);
  const { earned } = expectExact(await receiptsOf(reseller));
  // Nobody credits while the reseller's account is locked.
  const locked = await shop.world.sql.reserve();
  await locked`select pg_advisory_lock(${reseller.accountId})`;
  await closeDay();
  await locked`begin`;
  const [pid] = await locked`select pg_backend_pid() as pid, credit_earnings(${reseller.accountId}) as entries`;
  expect(pid?.entries).toBe(1);
  const killed = locked`select pg_sleep(30)`.catch(() => "killed");
  await shop.world.sql`select pg_terminate_backend(${pid?.pid})`;
  expect(await killed).toBe("killed");
  await Promise.all(Array.from({ length: 20 }, () => creditEarnings(deps.db.sql)));
  await closeDay();
  expect(await creditEarnings(deps.db.sql)).toBe(0);
  expect((await entriesOf(reseller)).map(({ amount }) => amount)).toEqual([earned]);
  expect(await shop.world.unbalanced()).toEqual([]);
});

test("an open day is not credited; a receipt that arrives after its day was closed is credited once, with the next closing", async () => {
  await set(10_000);
  await settled(10_000);
  await until(async () => (await shop.counters(customer.accountId)).holds === 0);
  await closeDay();
  await creditEarnings(deps.db.sql);
  const first = await entriesOf(reseller);
  expect(first.length).toBe(1);
  // It ends on a day that is closed already.
  expect((await shop.chat(customer.secret, { model: "vendor/chat-b" })).status).toBe(200);
  await creditEarnings(deps.db.sql);
  expect(await entriesOf(reseller)).toEqual(first);
  await closeDay();
  await creditEarnings(deps.db.sql);
  const { earned } = expectExact(await receiptsOf(reseller));
  const entries = await entriesOf(reseller);
  expect([entries.length, entries.reduce((all, { amount }) => all + amount, 0n)]).toEqual([2, earned]);
  expect(new Set(entries.map(({ reason }) => reason)).size).toBe(1);
});

test("bad input is refused with its field, and changes nothing", async () => {
  await set(1_000);
  for (const basisPoints of [-1, 0.5, Number.NaN, 100_001, 10 ** 11, Number.POSITIVE_INFINITY])
    await expect(set(basisPoints)).rejects.toMatchObject({ param: "basisPoints" });
  await expect(set(1, "no-such-model")).rejects.toMatchObject({ param: "modelId" });
  await expect(set(1, "")).rejects.toMatchObject({ param: "modelId" });
  await expect(
    setMarkup(deps, { resellerId: customer.accountId, modelId: null, basisPoints: 1 }),
  ).rejects.toMatchObject({
    param: "resellerId",
  });
  const rows = await shop.world
    .sql`select model_id, basis_points from markups where reseller_id = ${reseller.accountId}`;
  expect(rows.map((row) => ({ ...row }))).toEqual([{ model_id: "", basis_points: 1_000 }]);
});
