import { afterAll, beforeAll, expect, test } from "bun:test";
import { setMarkup } from "../../src/accounts/markups_store.ts";
import { foldAll } from "../../src/books/folding_store.ts";
import { openSlices } from "../../src/books/short_transactions_store.ts";
import { setPrices } from "../../src/catalog/models_store.ts";
import { fulfilOrder } from "../../src/commerce/order_fulfilment_store.ts";
import { placeOrder } from "../../src/commerce/orders_store.ts";
import { startRefund } from "../../src/commerce/refunds_store.ts";
import { grantAllotment } from "../../src/ledger/allotments_store.ts";
import { assignPackage, type Package } from "../../src/ledger/packages_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import type { ChangeDeps } from "../../src/platform/changes_store.ts";
import type { Db } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { closeBalanced } from "../gateway/checks.ts";
import { chatBody, embeddingBody, imageBody, openShop, type Shop } from "../gateway/shop.ts";
import { type Management, managementOf } from "../operations/management_client.ts";
import { signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";

/**
 * Usage revenue, provider cost and margin of random traffic: with overruns, markups, failovers, packages that were
 * bought in every way, orders and refunds. The figures equal a second computation from receipts, orders' prices and the
 * catalog's prices, which shares no code with the service. Source: MON-21, MON-22, MON-23, MON-24.
 */

const SLOW_MS = 180_000;
const REQUESTS = 120;
/** The costs of the second route of `chat-two-routes`; other routes cost what their model costs. */
const BACKUP = { input: 1_234_567n, output: 7_654_321n };

type Payer = Person & { secret: string; keyId: number };
// biome-ignore lint/suspicious/noExplicitAny: rows of several tables.
type Row = any;

let shop: Shop;
let deps: ChangeDeps & { db: Db };
let reseller: Person;
let admin: Management;
let seller: Management;
let payers: Payer[];
/** Of each package: what its account paid its seller, what of that is the operator's, and its total units. */
const sold = new Map<number, { retail: bigint; share: bigint; units: bigint }>();

beforeAll(async () => {
  shop = await openShop({
    fill: async ({ sql }) => {
      await sql`
        update routes set cost_input_micro_usd = ${String(BACKUP.input)}, cost_output_micro_usd = ${String(BACKUP.output)}
        where upstream_model = 'backup'`;
    },
  });
  const { world } = shop;
  deps = { db: world.openDb(), bus: inProcessBus(createLog("silent")) };
  await setPrices(deps, "vendor/chat-b", { inputMicroUsd: 3_000_001, outputMicroUsd: 15_000_003 });
  reseller = await world.addReseller();
  await world.setBalance(reseller, 10n ** 12n);
  await setMarkup(deps, { resellerId: reseller.accountId, modelId: null, basisPoints: 1_533 });
  admin = await managementOf(shop, await world.addAdmin(), "admin");
  seller = await managementOf(shop, reseller, "reseller");
  const mode = "payg" as const;
  const resold = () => world.addCustomer(reseller.accountId);
  payers = await Promise.all(
    [await world.addCustomer(), await resold(), await resold(), reseller].map(async (person, i) => {
      // The third one's balance is too small for what its answers will cost.
      if (person !== reseller) await world.setBalance(person, i === 2 ? 6_000_000n : 10n ** 12n);
      return { ...person, ...(await world.addKey(person, { mode })) };
    }),
  );
  const payerId = reseller.accountId;
  await addBuyer(await world.addCustomer(), { payerId: null, priceNanoUsd: 12_345_678_901n });
  await addBuyer(await world.addCustomer(), { payerId: null });
  await addBuyer(await resold(), { payerId, priceNanoUsd: 20_000_000_003n });
  await addBuyer(await resold(), { payerId });
  await addBuyer(await resold(), { payerId, fromAllotment: true, priceNanoUsd: 7_000_000_001n });
  await addBuyer(await resold(), { payerId: null, priceNanoUsd: 3_000_000_001n });
  await addBuyer(await world.addReseller(), { payerId: "self" });
  await addOrdered(await world.addCustomer(), { sellerId: 0, priceNano: 21_990_000_000n, endPackage: false });
  await addOrdered(await resold(), { sellerId: payerId, priceNano: 33_330_000_000n, endPackage: true });
  for (const [i, sellerId] of [0, payerId].entries())
    await addTopUp(payers[i] as Payer, { sellerId, amountNanoUsd: 7_770_000_000n });
}, SLOW_MS);
afterAll(async () => {
  await deps.db.close();
  await closeBalanced(shop);
});

type Bought = { payerId: number | "self" | null; fromAllotment?: boolean; priceNanoUsd?: bigint };

/** An account with a package, and what that brought to whom. */
async function addBuyer(person: Person, { payerId, fromAllotment = false, priceNanoUsd }: Bought): Promise<void> {
  const { world } = shop;
  const wholesale = 9_999_999_967n;
  const offeringId = await world.addOffering({ dailyLimit: 777 });
  await world.sql`update offerings set wholesale_nano_usd = ${String(wholesale)} where id = ${offeringId}`;
  const payer = payerId === "self" ? person.accountId : payerId;
  if (payerId === "self") await world.setBalance(person, 10n ** 12n);
  if (fromAllotment && payer !== null)
    await grantAllotment(deps, { resellerId: payer, offeringId, pieces: 1, reason: null, actorId: null });
  const { packageId, totalLimit, accountId } = await assignPackage(deps, {
    accountId: person.accountId,
    offeringId,
    when: "now",
    payerId: payer,
    fromAllotment,
    actorId: null,
    ...(priceNanoUsd !== undefined && { priceNanoUsd }),
  });
  const [account] = await world.sql`select reseller_id from accounts where id = ${accountId}`;
  const paid = payer !== null && !fromAllotment ? wholesale : 0n;
  const price = priceNanoUsd ?? 0n;
  const isResold = account?.reseller_id !== null;
  const share = isResold ? paid : paid + price;
  sold.set(packageId, { retail: isResold ? price : share, share, units: BigInt(totalLimit) });
  payers.push({ ...person, ...(await world.addKey(person)) });
}

type Paid = { sellerId: number; paymentId: number; amountNano: bigint; endPackage: boolean };
/** What was paid for orders, and is refunded in the middle of the traffic. */
const paid: Paid[] = [];

/** Fulfils an order as its seller does by hand, and returns its package. */
async function fulfil(orderId: number, refund: Omit<Paid, "paymentId">): Promise<Package | null> {
  const { package: bought } = await fulfilOrder(deps, { orderId, resellerId: null, when: "now", payWith: undefined });
  const [payment] = await shop.world.sql`select id from payments where order_id = ${orderId}`;
  paid.push({ ...refund, paymentId: Number(payment?.id) });
  return bought;
}

type Ordered = { sellerId: number; priceNano: bigint; endPackage: boolean };

/** An account that buys a package by an order. */
async function addOrdered(person: Person, { sellerId, priceNano, endPackage }: Ordered): Promise<void> {
  const { world } = shop;
  const wholesale = 8_999_999_929n;
  const offeringId = await world.addOffering({ dailyLimit: 777, wholesaleNanoUsd: wholesale });
  await world.sql`insert into retail_prices values (${sellerId}, ${offeringId}, ${String(priceNano)})`;
  const { orderId } = await placeOrder(deps, person.accountId, { kind: "package", offeringId });
  const bought = await fulfil(orderId, { sellerId, amountNano: priceNano, endPackage });
  if (bought === null) throw new Error("the order has no package");
  const share = sellerId === 0 ? priceNano : wholesale;
  sold.set(bought.packageId, { retail: sellerId === 0 ? share : priceNano, share, units: BigInt(bought.totalLimit) });
  payers.push({ ...person, ...(await world.addKey(person)) });
}

async function addTopUp(
  { accountId }: Payer,
  { sellerId, amountNanoUsd }: { sellerId: number; amountNanoUsd: bigint },
): Promise<void> {
  const { orderId } = await placeOrder(deps, accountId, { kind: "top_up", amountNanoUsd });
  await fulfil(orderId, { sellerId, amountNano: amountNanoUsd, endPackage: false });
}

/** Refunds a third of each payment, then the rest, which ends a package. Both change sales, and not what requests brought. */
async function refundAll(): Promise<void> {
  for (const { amountNano, endPackage, ...of } of paid) {
    const third = (amountNano / 30_000_000n) * 10_000_000n;
    await startRefund(deps, { ...of, amountNano: third, reason: null, endPackage: false });
    await startRefund(deps, { ...of, amountNano: amountNano - third, reason: null, endPackage });
  }
}

/** Deterministic random numbers: a test that failed fails again. */
function seeded(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** The codes of the errors that clients got, by account: as a status, or within a stream. */
const told = new Map<number, Map<string, number>>();
/** How many errors were told of a model. */
const toldOf = new Map<string, number>();

function noteError(accountId: number, model: string, { json, text }: { json: Row; text: string }): void {
  const code = json?.error?.code ?? /"code":"([a-z_]+)"/.exec(text)?.[1];
  if (code === undefined) return;
  toldOf.set(model, (toldOf.get(model) ?? 0) + 1);
  const codes = told.get(accountId) ?? new Map<string, number>();
  told.set(accountId, codes.set(code, (codes.get(code) ?? 0) + 1));
}

/** The errors of accounts, as figures show them. */
function errorsOf(accountIds: readonly number[]): { code: string; requests: number }[] {
  const sums = new Map<string, number>();
  for (const id of accountIds)
    for (const [code, count] of told.get(id) ?? []) sums.set(code, (sums.get(code) ?? 0) + count);
  return [...sums]
    .map(([code, requests]) => ({ code, requests }))
    .sort((a, b) => b.requests - a.requests || (a.code < b.code ? -1 : 1));
}

/** How many errors accounts got. */
const countOf = (accountIds: readonly number[]) =>
  errorsOf(accountIds).reduce((sum, { requests }) => sum + requests, 0);

/** `inTheMiddle`: what happens between two requests. */
async function traffic(seed: number, inTheMiddle: () => Promise<void>): Promise<void> {
  const random = seeded(seed);
  for (let i = 0; i < REQUESTS; i++) {
    if (i === REQUESTS / 2) await inTheMiddle();
    const { secret, accountId } = payers[i % payers.length] as Payer;
    const isShort = i % payers.length === 2;
    const stream = isShort || random(2) === 0;
    const model = ["chat-a", "vendor/chat-b", "chat-two-routes", "chat-two-routes", "chat-unpriced"][random(5)];
    // An overrun: more than the cap that was reserved.
    if (isShort || random(4) === 0) shop.provider.next({ usage: { completion_tokens: 900 + random(3000) } });
    else if (model === "chat-two-routes") shop.provider.next({ status: 500 });
    else if (stream && random(6) === 0) shop.provider.next({ cutAfterChunks: 3, tokens: 6, chunkDelayMs: 5 });
    const kind = isShort ? 2 : random(6);
    const [path, body]: [string, { model: string }] =
      random(12) === 0
        ? ["/v1/chat/completions", chatBody({ model: "no-such-model" })]
        : kind === 0
          ? ["/v1/images/generations", imageBody()]
          : kind === 1
            ? ["/v1/embeddings", embeddingBody()]
            : ["/v1/chat/completions", chatBody({ model, stream, max_tokens: 5 + random(50) })];
    noteError(accountId, body.model, await shop.call(path, { secret, body }));
    shop.provider.reset();
  }
  for (const { accountId } of payers) await until(async () => (await shop.counters(accountId)).holds === 0);
}

/** Earlier requests keep what they were charged. */
async function changeMarkups(): Promise<void> {
  const { accountId: resellerId } = reseller;
  await setMarkup(deps, { resellerId, modelId: null, basisPoints: 4_999 });
  await setMarkup(deps, { resellerId, modelId: "chat-two-routes", basisPoints: 222 });
}

type Sums = { requests: number; revenue: bigint; cost: bigint; unknown: number };

/** What nano-USD a provider charges; null: not known. Micro-USD per million tokens, rounded up once. */
function providerCost({ route, prices, prompt_tokens: input, completion_tokens: output, further }: Row): bigint | null {
  if (further?.image) return prices?.images ? BigInt(prices.images[further.image]) * 1_000n : null;
  const rates =
    route === "backup" ? BACKUP : prices?.tokens && { input: prices.tokens.input, output: prices.tokens.output };
  if (!rates) return null;
  return (BigInt(input) * BigInt(rates.input) + BigInt(output) * BigInt(rates.output) + 999n) / 1_000n;
}

/** The figures of receipts that pass, for the operator and for the reseller. */
async function again(passes: (row: Row) => boolean): Promise<{ operator: Sums; reseller: Sums }> {
  const rows = await shop.world.sql`
    select r.*, r.charged_nano_usd::text as charged, r.cost_nano_usd::text as cost, r.further_counts as further, a.reseller_id::int as reseller,
      route.upstream_model as route, (select prices from price_versions v where v.id = r.price_version_id) as prices
    from receipts r join accounts a on a.id = r.account_id left join routes route on route.id = r.route_id
    where r.outcome = 'settled'`;
  const [operator, own] = [0, 1].map((): Sums => ({ requests: 0, revenue: 0n, cost: 0n, unknown: 0 })) as [Sums, Sums];
  for (const row of (rows as Row[]).filter(passes)) {
    const known = row.package_id === null ? undefined : sold.get(Number(row.package_id));
    const charged = BigInt(row.charged);
    const atCost = row.cost === null || BigInt(row.cost) > charged ? charged : BigInt(row.cost);
    const share = known ? known.share / known.units : atCost;
    const cost = providerCost(row);
    operator.requests++;
    operator.revenue += share;
    operator.cost += cost ?? 0n;
    operator.unknown += cost === null ? 1 : 0;
    own.requests++;
    own.revenue += known ? known.retail / known.units : charged;
    own.cost += share;
  }
  return { operator, reseller: own };
}

const pick = (row: Row, ...fields: string[]) => Object.fromEntries(fields.map((field) => [field, row[field]]));

const shown = ({ requests, revenue, cost }: Sums) => ({
  requests,
  usageRevenueNanoUsd: String(revenue),
  costNanoUsd: String(cost),
  marginNanoUsd: String(revenue - cost),
});

/** The middle of the bucket in which this fraction of durations ends: four buckets for each doubling. */
function percentile(durations: readonly number[], fraction: number): number {
  const sorted = [...durations].sort((a, b) => a - b);
  const ms = sorted[Math.ceil(fraction * sorted.length) - 1] as number;
  return ms < 1 ? 1 : Math.round(2 ** ((Math.floor(Math.log2(ms) * 4) + 0.5) / 4));
}

/** The percentiles of receipts that pass. */
async function latencyAgain(passes: (row: Row) => boolean) {
  const rows = await shop.world.sql`
    select r.*, extract(epoch from finished_at - r.created_at)::float8 * 1000 as whole_ms, a.reseller_id::int as reseller
    from receipts r join accounts a on a.id = r.account_id where r.outcome = 'settled'`;
  const asked = (rows as Row[]).filter(passes);
  const of = (durations: number[]) =>
    durations.length === 0 ? null : { p50Ms: percentile(durations, 0.5), p95Ms: percentile(durations, 0.95) };
  return {
    firstEvent: of(asked.flatMap((row) => (row.first_ms === null ? [] : [Number(row.first_ms)]))),
    wholeAnswer: of(asked.map((row) => Math.floor(Number(Number(row.whole_ms).toFixed(3))))),
  };
}

async function figures(who: Management, query: string): Promise<Row> {
  const { status, json, text } = await who.get(`/usage/figures${query}`);
  expect([status, text]).toEqual([200, text]);
  return json;
}

const isEqual = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

async function expectExact(): Promise<void> {
  const { operator } = await again(() => true);
  const all = await figures(admin, "");
  expect(all.total).toMatchObject({ ...shown(operator), costUnknown: operator.unknown });
  expect(all.before.requests).toBe(0);
  expect(all.total).toMatchObject(await latencyAgain(() => true));
  await until(async () => isEqual((await figures(admin, "")).errors, errorsOf([...told.keys()])));
  expect((await figures(admin, "")).errorsBefore).toEqual([]);
  const ofReseller = await again(({ reseller: id }) => id === reseller.accountId);
  expect((await figures(seller, "")).total).toMatchObject({ ...shown(ofReseller.reseller), costUnknown: null });
  const named = await figures(admin, `?resellerId=${reseller.accountId}&by=model`);
  expect(named.total).toMatchObject(shown(ofReseller.operator));
  for (const line of named.lines) {
    const { operator: model } = await again(
      (row) => row.reseller === reseller.accountId && row.model_id === line.modelId,
    );
    expect(line).toMatchObject({ ...shown(model), costUnknown: model.unknown });
  }
  const routes = (await figures(admin, "?by=route")).lines;
  expect(routes.length).toBeGreaterThan(5);
  for (const line of routes) {
    const { operator: route } = await again(({ route_id: id }) => (id === null ? null : Number(id)) === line.routeId);
    expect(line).toMatchObject({ ...shown(route), costUnknown: route.unknown });
  }
  const ofAll = (await figures(admin, "?by=account")).lines;
  const resoldTo = new Set((await figures(seller, "?by=account")).lines.map(({ accountId }: Row) => accountId));
  expect(ofAll.map(({ accountId }: Row) => accountId).sort()).toEqual(payers.map(({ accountId }) => accountId).sort());
  for (const { accountId, ...line } of ofAll) {
    const { operator: account } = await again(({ account_id: id }) => Number(id) === accountId);
    expect(line).toMatchObject({
      ...shown(account),
      ...(await latencyAgain(({ account_id: id }) => Number(id) === accountId)),
      costUnknown: account.unknown,
      errors: countOf([accountId]),
    });
  }
  const [resold] = (await figures(admin, "?by=reseller")).lines;
  const resoldIds = ofAll.map(({ accountId }: Row) => accountId).filter((id: number) => resoldTo.has(id));
  expect(resold).toMatchObject({
    accountId: reseller.accountId,
    ...shown(ofReseller.operator),
    ...(await latencyAgain((row) => row.reseller === reseller.accountId)),
    errors: countOf(resoldIds),
  });
  const models = (await figures(admin, "?by=model")).lines;
  expect(models.length).toBeGreaterThan(4);
  for (const { modelId, requests, errors } of models) {
    const { operator: model } = await again((row) => row.model_id === modelId);
    expect([modelId, requests, errors]).toEqual([modelId, model.requests, toldOf.get(modelId) ?? 0]);
  }
  for (const by of ["hour", "day", "month"]) {
    const { lines, total, errors } = await figures(
      admin,
      `?by=${by}&start=${new Date(Date.now() - 86_400_000).toISOString()}`,
    );
    const summed = (field: string) => lines.reduce((sum: bigint, line: Row) => sum + BigInt(line[field]), 0n);
    for (const field of [
      "requests",
      "promptTokens",
      "usageRevenueNanoUsd",
      "costNanoUsd",
      "marginNanoUsd",
      "costUnknown",
    ])
      expect([by, field, summed(field)]).toEqual([by, field, BigInt(total[field])]);
    expect(Number(summed("errors"))).toBe(errors.reduce((sum: number, each: Row) => sum + each.requests, 0));
  }
  const own = (await figures(seller, "?by=account")).lines;
  for (const { accountId, ...line } of own) {
    const { reseller: account } = await again(
      (row) => row.reseller === reseller.accountId && Number(row.account_id) === accountId,
    );
    expect(line).toMatchObject({ ...shown(account), costUnknown: null });
  }
  const customers = payers.filter(({ accountId }) => own.some((line: Row) => line.accountId === accountId));
  expect(customers.length).toBe(7);
  expect((await figures(seller, "")).errors).toEqual(errorsOf(customers.map(({ accountId }) => accountId)));
  expect((await figures(seller, "")).total).toMatchObject(
    await latencyAgain((row) => row.reseller === reseller.accountId),
  );
  for (const { accountId, keyId } of payers) {
    const { lines, errors } = await figures(admin, `?accountId=${accountId}&by=key`);
    const { operator: key } = await again(({ key_id: id }) => Number(id) === keyId);
    expect(lines).toMatchObject([
      { keyId, ...shown(key), ...(await latencyAgain((row) => Number(row.key_id) === keyId)) },
    ]);
    expect(errors).toEqual(errorsOf([accountId]));
    const { operator: account } = await again(({ account_id: id }) => Number(id) === accountId);
    expect((await figures(admin, `?accountId=${accountId}`)).total).toMatchObject(shown(account));
  }
}

test(
  "figures of random traffic equal a second computation from its receipts, before and after folding",
  async () => {
    await traffic(11, refundAll);
    const [seen] = await shop.world.sql`
      select count(*) filter (where shortfall_nano_usd > 0)::int as losses, count(*) filter (where upstream_model = 'backup')::int as failovers,
        count(*) filter (where charged_nano_usd > held_nano_usd)::int as overruns, count(*) filter (where markup_basis_points > 0)::int as markups,
        count(*) filter (where provider_cost_nano_usd is null)::int as unknown, count(distinct package_id)::int as packages,
        (select count(*)::int from refunds where status = 'done') as refunds
      from receipts r left join routes on routes.id = r.route_id where outcome = 'settled'`;
    for (const count of Object.values(seen ?? {})) expect([seen, count > 0]).toEqual([seen, true]);
    expect(seen).toMatchObject({ packages: sold.size, refunds: 2 * paid.length });
    await expectExact();
    expect(await foldAll(openSlices(deps.db.sql))).toBe(true);
    await expectExact();
    await traffic(12, changeMarkups);
    await expectExact();
    const [markups] = await shop.world.sql`
      select array_agg(distinct markup_basis_points order by markup_basis_points) as all from receipts where markup_basis_points > 0`;
    expect(markups?.all).toEqual([222, 1_533, 4_999]);
  },
  SLOW_MS,
);

test("a period has at most 366 days, begins before its end, and is in quarters of an hour", async () => {
  const refused = async (who: Management, query: string) => (await who.get(`/usage/figures${query}`)).json.error.param;
  expect(await refused(admin, "?start=2026-01-01T00:00:00Z&end=2027-01-03T00:00:00Z")).toBe("start");
  expect(await refused(admin, "?start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z")).toBe("start");
  expect(await refused(admin, `?accountId=1&resellerId=${reseller.accountId}`)).toBe("accountId");
  expect(await refused(seller, "?by=route")).toBe("by");
  const { from, to } = await figures(admin, "?start=2026-01-01T00:14:59.999Z&end=2026-01-01T12:00:00.001Z");
  expect([from, to]).toEqual(["2026-01-01T00:00:00.000Z", "2026-01-01T12:15:00.000Z"]);
});

test("the panel shows what the management API gives, and the names of routes to admins", async () => {
  const panel = await signInTo(shop, await shop.world.addAdmin());
  const wanted = await figures(admin, "?by=route");
  const { json } = await panel.get("/figures?by=route");
  const { lines } = json as Row;
  expect(json.total).toEqual(wanted.total);
  expect(lines.map(({ name: _, ...line }: Row) => line)).toEqual(wanted.lines);
  const names = await shop.world.sql`
    select routes.id::int, routes.model_id || ' at ' || providers.name as name from routes join providers on providers.id = provider_id`;
  const nameOf = new Map(names.map(({ id, name }) => [id, name]));
  expect(lines.map(({ name }: Row) => name)).toEqual(
    wanted.lines.map(({ routeId }: Row) => nameOf.get(routeId) ?? null),
  );
  const own = await signInTo(shop, reseller);
  expect((await own.get("/figures?by=model")).json.total).toEqual((await figures(seller, "?by=model")).total);
  expect((await own.get("/figures?by=route")).status).toBe(422);
  const customer = await signInTo(shop, payers[0] as Payer);
  const used = (await customer.get("/usage/figures?by=key")).json as Row;
  const { total } = await figures(admin, `?accountId=${payers[0]?.accountId}`);
  expect(used.total).toEqual({
    ...pick(total, "requests", "promptTokens", "cachedTokens", "completionTokens", "firstEvent", "wholeAnswer"),
    chargedNanoUsd: total.usageRevenueNanoUsd,
  });
  expect(used.lines).toMatchObject([{ keyId: payers[0]?.keyId, name: expect.any(String), ...used.total }]);
  for (const by of ["model", "host", "hour"]) {
    const start = new Date(Date.now() - 86_400_000).toISOString();
    const { lines } = (await customer.get(`/usage/figures?by=${by}&start=${start}`)).json as Row;
    const sum = lines.reduce((all: number, { requests }: Row) => all + requests, 0);
    expect([by, sum]).toEqual([by, used.total.requests]);
  }
  expect((await customer.get("/usage/figures?by=hour")).status).toBe(422);
  expect((await customer.get("/usage/figures?by=route")).status).toBe(422);
  expect((await customer.get(`/usage/figures?by=key&accountId=${payers[1]?.accountId}`)).status).toBe(404);
  expect((await customer.get("/figures")).status).toBe(404);
});

test("a reseller sees the figures of its customers alone", async () => {
  const other = await shop.world.addReseller();
  const theirs = await managementOf(shop, other, "reseller");
  expect((await figures(theirs, "")).total.requests).toBe(0);
  expect((await theirs.get(`/usage/figures?resellerId=${reseller.accountId}`)).status).toBe(404);
  expect((await theirs.get(`/usage/figures?accountId=${payers[1]?.accountId}`)).status).toBe(404);
});
