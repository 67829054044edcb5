import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { closeEarnings, creditEarnings } from "../../src/books/earnings_store.ts";
import { openSlices } from "../../src/books/short_transactions_store.ts";
import { fullCheck } from "../cli/cli_process.ts";
import { ACME, openPayShop } from "../commerce/pay_shop.ts";
import { openRenewalShop, type RenewalShop } from "../commerce/renewal_shop.ts";
import { STRIPE_KEY, STRIPE_WEBHOOK_SECRET } from "../commerce/stripe_stand_in.ts";
import { type Answer, chatBody, embeddingBody, imageBody, responsesBody } from "../gateway/shop.ts";
import { movedTime } from "../moved_time.ts";
import { managementOf } from "../operations/management_client.ts";
import { ok, PANEL, type PanelSession, signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import {
  amountsOf,
  customerBalance,
  earnedOf,
  figuresOf,
  invoicedOf,
  measuredPrice,
  type Request,
  refundOf,
  resellerBalance,
  type Sale,
  type Seller,
  type Span,
  salesOf,
  type Terms,
} from "./quarter_again.ts";

/**
 * Three whole months of a business: the operator and two resellers with taxes, currencies and markups of their own, and 200 customers who buy,
 * renew, top up, dispute and use. Two replicas live through it on a clock that the test moves. What the quarter brought is then computed again
 * by `quarter_again.ts`, to the last billionth. Source: MON-21, MON-22, MON-23, MON-24, MRK-9, RTL-8, TAX-1, CUR-2, REN-3, ATU-1.
 */

setDefaultTimeout(1_800_000);

const CUSTOMERS = 200;
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const USD = 1_000_000_000n;
const CENT = USD / 100n;
/** What resellers have at first. */
const START = 1_000_000n * USD;
const today = new Date();
const monthStart = (monthsAgo: number) => Date.UTC(today.getUTCFullYear(), today.getUTCMonth() - monthsAgo, 1);
const FROM_MS = monthStart(3);
const TO_MS = monthStart(0);
const DAYS = Math.round((TO_MS - FROM_MS) / DAY_MS);
const MONTHS = [3, 2, 1].map((ago) => ({
  name: new Date(monthStart(ago)).toISOString().slice(0, 7),
  span: { fromMs: monthStart(ago), toMs: monthStart(ago - 1) },
}));
const QUARTER: Span = { fromMs: FROM_MS, toMs: TO_MS };
/** A customer acts on one day of these. */
const ACTS_EVERY_DAYS = 8;
const PRICES = { chat: [3_000_000n, 15_000_000n], embedding: [3_000_000n, 0n], image: 2_000_000n } as const;
const TOP_UP = { below: 5n * USD, amount: 20n * USD };

/** What a customer does all the quarter. */
type Habit =
  | "renews from the card"
  | "renews from the balance"
  | "tops up automatically"
  | "has it measured"
  | "disputes";
const HABITS: readonly Habit[] = [
  "renews from the card",
  "renews from the balance",
  "tops up automatically",
  "has it measured",
  "disputes",
];
type Customer = { i: number; accountId: number; secret: string; habit: Habit; seller: Place; begins: number };

const time = movedTime(new Date(FROM_MS + HOUR_MS));
let shop: RenewalShop;
type Place = Seller & { host: string };
const house: Place = { id: 0, host: PANEL, terms: [], markup: 0n };
const acme: Place = { id: 0, host: ACME, terms: [], markup: 1_250n };
const kaze: Place = { id: 0, host: "ai.kaze.test", terms: [], markup: 3_333n };
const sellers = [house, acme, kaze];
const resellers = [acme, kaze];
/** Of a seller, in the order of `sellers`: in its currency. */
const RETAIL = {
  small: [12n * USD, 1_490n * CENT, 1_800n * USD],
  weekly: [4n * USD, 449n * CENT, 600n * USD],
} as const;
const OFFERINGS = {
  small: { id: 0, days: 30, daily: 10, wholesale: 4n * USD + 1n },
  weekly: { id: 0, days: 7, daily: 30, wholesale: 1_500_000_007n },
};
const MEASURED = {
  wholesale: [
    { from: 0n, perThousand: 200_000_003n },
    { from: 10_000n, perThousand: 100_000_001n },
  ],
  retail: [
    { from: 0n, perThousand: 60n * CENT },
    { from: 10_000n, perThousand: 50n * CENT },
  ],
};
const customers: Customer[] = [];
const sales: Sale[] = [];
const requests: (Omit<Request, "sale"> & { id: string })[] = [];

beforeAll(async () => {
  const pay = await openPayShop(
    { ...time.env, TRUSTED_PROXIES: "127.0.0.1,::1", BILLING_TIMEZONE: "UTC" },
    {
      replicas: 2,
      redisUrl: process.env.REDIS_URL ?? "",
      nowMs: time.nowMs,
      fill: async ({ sql }) => {
        await time.install(sql);
        await sql`update image_prices set micro_usd = ${String(PRICES.image)}`;
        await sql`update book_closing set earnings_to = ${new Date(FROM_MS).toISOString().slice(0, 10)}::date - 1`;
      },
    },
  );
  shop = await openRenewalShop({ replicasToo: true, pay });
  await openSellers();
  for (let i = 0; i < CUSTOMERS; i++) await addCustomer(i);
});
afterAll(async () => {
  await shop.close();
  time.remove();
});

const nowMs = () => time.nowMs();
const at = (day: number, hour: number) => new Date(FROM_MS + day * DAY_MS + hour * HOUR_MS);
let addresses = 0;
/** Of accounts that have signed in since the clock was moved: one account may sign in 60 times a minute. */
const sessions = new Map<number, Promise<PanelSession>>();
function signedIn(accountId: number, { host }: { host: string }): Promise<PanelSession> {
  const address = `10.${(++addresses >> 16) & 255}.${(addresses >> 8) & 255}.${addresses & 255}`;
  const session = sessions.get(accountId) ?? signInTo(shop.shop, { accountId }, { host, address });
  sessions.set(accountId, session);
  return session;
}

async function openSellers(): Promise<void> {
  acme.id = shop.acme.accountId;
  kaze.id = (await shop.world.addReseller(kaze.host)).accountId;
  for (const { id } of resellers) await shop.topUp({ accountId: id }, START);
  const keys = { apiKey: `${STRIPE_KEY}${kaze.id}`, webhookSecret: `${STRIPE_WEBHOOK_SECRET}${kaze.id}` };
  const session = await signedIn(kaze.id, kaze);
  ok(await session.put("/payment-settings/stripe", { stripe: keys }));
  ok(await session.put("/payment-settings/instructions", { instructions: "IBAN XX00 1234" }));
  const { secret } = ok(await session.put("/payment-settings/shop", { shopUrl: "https://shop.example/pay" }));
  shop.shopSecrets.set(kaze.id, secret);
  const admin = await adminSession();
  for (const [name, offering] of Object.entries(OFFERINGS) as [keyof typeof OFFERINGS, (typeof OFFERINGS)["small"]][]) {
    const { days, daily, wholesale } = offering;
    offering.id = await shop.world.addOffering({ days, dailyLimit: daily, wholesaleNanoUsd: wholesale });
    expect(RETAIL[name]).toHaveLength(sellers.length);
  }
  const base = { packageTax: 0n, topUpTax: 0n, included: false };
  await sell(house, { ...base, step: CENT, rate: USD }, {});
  await sell(
    acme,
    { packageTax: 19n, topUpTax: 19n, included: true, step: CENT, rate: 920_000_000n },
    { currency: "eur", taxCountry: "DE", vatNumber: "DE136695976" },
  );
  await sell(
    kaze,
    { packageTax: 10n, topUpTax: 10n, included: false, step: USD, rate: 151_333_333_333n },
    { currency: "jpy", taxCountry: "JP" },
  );
  const steps = (list: (typeof MEASURED)["retail"]) =>
    list.map(({ from, perThousand }) => ({ fromRequests: Number(from), nano: String(perThousand) }));
  const bounds = { isOpen: true, daysMin: 1, daysMax: 30, dailyMin: 10, dailyMax: 1_000_000 };
  ok(await admin.put("/measured-prices?kind=wholesale", { ...bounds, steps: steps(MEASURED.wholesale) }));
  for (const [i, seller] of sellers.entries()) {
    const own = await sessionOf(seller);
    for (const [name, { id }] of Object.entries(OFFERINGS))
      ok(await own.put(`/prices/${id}`, { priceNano: String(RETAIL[name as keyof typeof RETAIL][i]) }));
    const scale = seller === kaze ? 100n : 1n;
    const own_steps = MEASURED.retail.map(({ from, perThousand }) => ({ from, perThousand: perThousand * scale }));
    ok(await own.put("/measured-prices?kind=retail", { ...bounds, steps: steps(own_steps) }));
    if (seller.id !== 0) ok(await own.put("/markup", { modelId: null, basisPoints: Number(seller.markup) }));
  }
}

/** Changes a seller's terms, here and in the second computation. */
async function sell(seller: Place, terms: Omit<Terms, "fromMs">, more: object): Promise<void> {
  const session = await sessionOf(seller);
  const isUsd = terms.rate === USD;
  ok(
    await session.patch("/selling-terms", {
      ...(!isUsd && { usdRateNano: String(terms.rate) }),
      packageTax: Number(terms.packageTax) * 1_000,
      topUpTax: Number(terms.topUpTax) * 1_000,
      pricesWithTax: terms.included,
      ...more,
    }),
  );
  seller.terms.push({ ...terms, fromMs: nowMs() });
}

const adminSession = async () => signedIn(shop.as.admin.accountId, house);
const sessionOf = (seller: Place) => (seller.id === 0 ? adminSession() : signedIn(seller.id, seller));

async function addCustomer(i: number): Promise<void> {
  const seller = sellers[i % 5 === 0 ? 0 : 1 + (i % 2)] as Place;
  const habit = HABITS[Math.floor(i / 2) % HABITS.length] as Habit;
  const person = await shop.world.addCustomer(seller.id || undefined);
  const isPayg = habit === "tops up automatically" || habit === "disputes";
  if (isPayg) await shop.sql`select set_payg(${person.accountId}, true)`;
  const { secret } = await shop.world.addKey(person, { mode: isPayg ? "payg" : "package" });
  customers.push({ i, ...person, secret, habit, seller, begins: Math.floor(i / 2) % 20 });
}

const customerSession = ({ accountId, seller }: Customer) => signedIn(accountId, seller);

/** Moves the clock, and waits until the replicas have read the database's anew: a webhook signed now is not too old. */
async function moveTo(moment: Date): Promise<void> {
  await time.set(moment);
  sessions.clear();
  const said = { order: "none", amount: "1.00", currency: "usd", payment_id: "none" };
  for (const { origin } of shop.shop.replicas)
    await until(async () => (await shop.shopHook(0, said, { at: new Date(nowMs()), origin })).status === 404);
}

/** Places an order, pays it in one of three ways, and notes the sale. */
async function buy(customer: Customer, session: PanelSession, wanted: object, bought: Sale["bought"]): Promise<Sale> {
  const { seller, accountId, i } = customer;
  const atMs = nowMs();
  const order = ok(await session.post("/orders", wanted)).order;
  const sale: Sale = { orderId: order.orderId, accountId, seller, atMs, bought, fromBalance: false, refunded: null };
  const { net, tax, total, worthUsd } = amountsOf(sale);
  expect(order).toMatchObject({
    netNano: String(net),
    taxNano: String(tax),
    totalNano: String(total),
    priceNanoUsd: String(worthUsd),
  });
  const way = (["stripe", "shop", "instructions"] as const)[customer.habit === "disputes" ? 0 : i % 3];
  ok(await session.post(`/orders/${order.orderId}/pay`, { method: way }));
  if (way === "stripe") {
    const paid = shop.stripe.pay(order.reference);
    for (const { origin } of shop.shop.replicas) ok(await shop.hook(seller.id, paid, { origin }));
  } else if (way === "shop") {
    const { currency } = order;
    const digits = currency === "jpy" ? 0 : 2;
    const amount = (Number(total / (USD / 100n)) / 100).toFixed(digits);
    const said = { order: order.reference, currency, amount, payment_id: order.reference };
    for (let times = 0; times < 2; times++) ok(await shop.shopHook(seller.id, said, { at: new Date(nowMs()) }));
  } else ok(await (await sessionOf(seller)).post(`/orders/${order.orderId}/fulfil`, {}));
  sales.push(sale);
  return sale;
}

const packageOf = async ({ accountId }: Customer) => {
  const [row] = await shop.sql`select id::int from packages where account_id = ${accountId} order by id desc limit 1`;
  return Number(row?.id);
};

function offered(name: keyof typeof OFFERINGS, seller: Place): Sale["bought"] & { packagePrice: bigint } {
  const { days, daily, wholesale } = OFFERINGS[name];
  const packagePrice = RETAIL[name][sellers.indexOf(seller)] as bigint;
  return { packagePrice, wholesaleUsd: seller.id === 0 ? 0n : wholesale, requests: BigInt(days * daily) };
}

async function begin(customer: Customer): Promise<void> {
  const session = await customerSession(customer);
  const { habit, seller, i } = customer;
  if (habit === "renews from the card") {
    await buy(customer, session, { kind: "package", offeringId: OFFERINGS.small.id }, offered("small", seller));
    await shop.saveCard(session, i % 20 === 0 ? "refuses" : "pays");
    ok(await session.put(`/packages/${await packageOf(customer)}/renewal`, { source: "card" }));
  }
  if (habit === "renews from the balance") {
    await topUp(customer, session, 100n * USD);
    await buy(customer, session, { kind: "package", offeringId: OFFERINGS.weekly.id }, offered("weekly", seller));
    ok(await session.put(`/packages/${await packageOf(customer)}/renewal`, { source: "balance" }));
  }
  if (habit === "tops up automatically") {
    await shop.saveCard(session);
    ok(
      await session.put("/auto-top-up", {
        belowNanoUsd: String(TOP_UP.below),
        amountNanoUsd: String(TOP_UP.amount),
        monthMaxNanoUsd: String(400n * USD),
      }),
    );
  }
}

const topUp = (customer: Customer, session: PanelSession, creditUsd: bigint) =>
  buy(customer, session, { kind: "top_up", amountNanoUsd: String(creditUsd) }, { creditUsd });

/** What a customer does every 30 days. */
async function monthly(customer: Customer): Promise<void> {
  const { habit, seller, i } = customer;
  if (habit === "has it measured") {
    const [days, dailyLimit] = [1 + (i % 30), 1_000 + 10 * i];
    const asked = BigInt(days * dailyLimit);
    const { step } = seller.terms.at(-1) as Terms;
    const scale = step === USD ? 100n : 1n;
    const steps = MEASURED.retail.map(({ from, perThousand }) => ({ from, perThousand: perThousand * scale }));
    const packagePrice = measuredPrice(steps, asked, step);
    const wholesaleUsd = seller.id === 0 ? 0n : measuredPrice(MEASURED.wholesale, asked, 1n);
    const session = await customerSession(customer);
    const wanted = { kind: "measured", days, dailyLimit, priceNano: String(packagePrice) };
    await buy(customer, session, wanted, { packagePrice, wholesaleUsd, requests: asked });
  }
  if (habit === "disputes") {
    const session = await customerSession(customer);
    const kept = await topUp(customer, session, 25n * USD);
    const { step } = seller.terms.at(-1) as Terms;
    await giveBack(kept, seller, (amountsOf(kept).total / 4n / step) * step);
    if (i % 4 < 2) await loseDispute(await topUp(customer, session, 7n * USD + CENT * BigInt(i)));
  }
}

async function giveBack(sale: Sale, seller: Place, amount: bigint): Promise<void> {
  const session = await sessionOf(seller);
  const [payment] = await shop.paymentsOf(Number(sale.orderId));
  sale.refunded = { amount, atMs: nowMs() };
  const { refund } = ok(await session.post(`/payments/${payment?.id}/refunds`, { amountNano: String(amount) }));
  expect(refund).toMatchObject({ amountNano: String(amount), taxNano: String(refundOf(sale).tax) });
}

async function loseDispute(sale: Sale): Promise<void> {
  const { reference } = await shop.orderRow(Number(sale.orderId));
  const disputed = shop.stripe.dispute(shop.stripe.sessionOf(String(reference)), { status: "lost" });
  sale.refunded = { amount: amountsOf(sale).total, atMs: nowMs() };
  for (const { origin } of shop.shop.replicas)
    ok(await shop.hook(sale.seller.id, disputed, { type: "charge.dispute.closed", origin }));
}

/** As clients do it: 503 is asked again. A replica whose lease ended when the clock was moved refuses until it has a new one. */
async function served(ask: () => Promise<Answer>): Promise<Answer> {
  let answer = await ask();
  await until(async () => {
    if (answer.status === 503) answer = await ask();
    return answer.status !== 503;
  });
  return answer;
}

/** Requests of a customer, over both replicas. What each used is what its answer says. */
async function act(customer: Customer, day: number): Promise<void> {
  const { secret, accountId, seller, habit } = customer;
  const [input, output] = PRICES.chat;
  const tokens = (
    { usage }: { usage: Record<string, number> },
    [inputPrice, outputPrice]: readonly [bigint, bigint],
  ) => ({
    input: BigInt(usage.prompt_tokens ?? usage.input_tokens ?? 0),
    output: BigInt(usage.completion_tokens ?? usage.output_tokens ?? 0),
    ...{ inputPrice, outputPrice },
  });
  type Asked = { path: string; body: object; used: (json: never) => Request["used"] };
  const chat: Asked = {
    path: "/v1/chat/completions",
    body: chatBody({ model: "vendor/chat-b", messages: [{ role: "user", content: `Day ${day}` }] }),
    used: (json) => tokens(json, [input, output]),
  };
  const image: Asked = {
    path: "/v1/images/generations",
    body: imageBody(),
    used: () => ({ imagePrice: PRICES.image }),
  };
  const response: Asked = {
    path: "/v1/responses",
    body: responsesBody(),
    used: (json) => tokens(json, [input, output]),
  };
  const embedding: Asked = {
    path: "/v1/embeddings",
    body: embeddingBody(),
    used: (json) => tokens(json, PRICES.embedding),
  };
  const asked = habit === "tops up automatically" ? [image, image, image] : [chat, response, embedding];
  for (const [i, { path, body, used }] of asked.entries()) {
    const atMs = nowMs();
    const origin = shop.shop.replicas[(day + i) % 2]?.origin ?? "";
    const answer = await served(() => shop.shop.call(path, { secret, body, origin }));
    if (answer.status === 402) continue;
    expect({ status: answer.status, text: answer.status === 200 ? "" : answer.text }).toEqual({
      status: 200,
      text: "",
    });
    requests.push({
      id: String(answer.headers.get("x-request-id")),
      accountId,
      seller,
      atMs,
      used: used(answer.json as never),
    });
  }
}

/** Everything that is due by the moved clock is done: renewals, top-ups, charges, fulfilments. */
async function everythingDone(): Promise<void> {
  await until(async () => {
    await shop.round();
    const [due] = await shop.sql`
      select (select count(*)::int from renewals where status = 'on' and next_at <= ledger_now()) as renewals,
        (select count(*)::int from card_charges where status = 'charging' or status = 'due' and try_at <= ledger_now()) as charges,
        (select count(*)::int from auto_top_ups t join balances b on b.account_id = t.account_id where t.status = 'on'
          and (t.order_id is not null or b.balance_nano_usd < t.below_nano_usd)) as top_ups,
        (select count(*)::int from orders where status = 'paid') as orders`;
    return Object.values(due ?? {}).every((count) => count === 0);
  });
}

/** Holds are settled, and what replicas had drawn ahead is back, so that a balance is what is shown. */
async function settled(): Promise<void> {
  await until(async () => {
    const [held] = await shop.sql`select from escrows where units > idle_units or nano_usd > idle_nano_usd limit 1`;
    return held === undefined;
  });
}

async function closeDays(): Promise<void> {
  const { db } = shop.deps;
  await closeEarnings(openSlices(db.sql));
  await creditEarnings(db.sql);
}

async function changeTerms(day: number): Promise<void> {
  const now = (seller: Seller) => seller.terms.at(-1) as Terms;
  if (day === 40) await sell(acme, { ...now(acme), rate: 950_000_007n }, {});
  if (day === 55) await sell(kaze, { ...now(kaze), packageTax: 8n, topUpTax: 9n }, {});
}

/**
 * All sales, with those that the service made by itself (renewals, and automatic top-ups), and all requests with the sale of the package that
 * served them. Only ids and moments of the service's are read.
 */
async function everything(): Promise<{ sales: Sale[]; requests: Request[] }> {
  const known = new Map(sales.map((sale) => [sale.orderId, sale]));
  const rows = await shop.sql`
    select o.id::int as order_id, o.account_id::int, c.purpose, extract(epoch from o.created_at)::float8 * 1000 as at_ms, o.package_id::int
    from orders o left join card_charges c on c.order_id = o.id where o.status in ('fulfilled', 'refunded')
    union all
    select null, account_id::int, 'renewal', extract(epoch from ended_at)::float8 * 1000, new_package_id::int
    from renewals where source = 'balance' and status = 'done'`;
  const all: Sale[] = [];
  const ofPackage = new Map<number, Sale>();
  for (const { order_id: orderId, account_id: accountId, purpose, at_ms, package_id } of rows) {
    const { seller } = customers.find((customer) => customer.accountId === accountId) as Customer;
    const fromBalance = orderId === null;
    const bought =
      purpose === "top_up" ? { creditUsd: TOP_UP.amount } : offered(fromBalance ? "weekly" : "small", seller);
    const automatic = { orderId, accountId, seller, atMs: Number(at_ms), bought, fromBalance, refunded: null };
    const sale = (orderId !== null && known.get(orderId)) || automatic;
    all.push(sale);
    if (package_id !== null) ofPackage.set(Number(package_id), sale);
  }
  const served = await shop.sql`select request_id::text as id, package_id::int from receipts where outcome = 'settled'`;
  const packageOfRequest = new Map(served.map(({ id, package_id }) => [String(id), Number(package_id)]));
  expect(served).toHaveLength(requests.length);
  const linked = requests.map(({ id, ...request }) => {
    const packageId = packageOfRequest.get(id);
    if (packageId === undefined) throw new Error(`no receipt of ${id}`);
    return { ...request, sale: ofPackage.get(packageId) ?? null };
  });
  return { sales: all, requests: linked };
}

test("every day of a quarter is lived through, and what is due is done", async () => {
  for (let day = 0; day < DAYS; day++) {
    await moveTo(at(day, 9));
    await changeTerms(day);
    for (const customer of customers) {
      const age = day - customer.begins;
      if (age === 0) await begin(customer);
      if (age >= 0 && age % 30 === 0) await monthly(customer);
    }
    await everythingDone();
    const acting = customers.filter(({ i, begins }) => day >= begins && (day + i) % ACTS_EVERY_DAYS === 0);
    await Promise.all(acting.map((customer) => act(customer, day)));
    await settled();
    await everythingDone();
    await moveTo(at(day, 20));
    await everythingDone();
    const month = MONTHS.find(({ span }) => span.toMs === FROM_MS + (day + 1) * DAY_MS);
    if (month) await expectHome(month);
    if (day % 10 === 9) console.log(`day ${day + 1} of ${DAYS}: ${sales.length} sales, ${requests.length} requests`);
  }
  await moveTo(at(DAYS, 1));
  await everythingDone();
  await settled();
  await closeDays();
  expect(requests.length).toBeGreaterThan(DAYS * 30);
});

/** A reseller's home says, at the end of a month, what the month brought. */
async function expectHome({ name, span }: (typeof MONTHS)[number]): Promise<void> {
  const all = await everything();
  for (const seller of resellers) {
    const { month } = ok(await (await sessionOf(seller)).get("/home/selling"));
    const { orders, revenue, cost, topUps } = salesOf(all.sales, span, seller.id);
    const earned = earnedOf(all.requests, span, seller.id);
    expect(month).toEqual({
      ...{ name, orders, unpriced: 0 },
      revenueNanoUsd: String(revenue),
      costNanoUsd: String(cost),
      topUpsNanoUsd: String(topUps),
      earnedNanoUsd: String(earned),
      marginNanoUsd: String(revenue - cost + earned),
    });
  }
}

test("each package that renews has renewed as often as its days say, unless its card is refused", async () => {
  for (const { accountId, habit, i } of customers) {
    if (habit !== "renews from the card" && habit !== "renews from the balance") continue;
    const rows = await shop.sql`
      select extract(epoch from starts_at)::float8 * 1000 as starts, extract(epoch from ends_at)::float8 * 1000 as ends
      from packages where account_id = ${accountId} order by id`;
    const isRefused = habit === "renews from the card" && i % 20 === 0;
    const length = (habit === "renews from the card" ? OFFERINGS.small.days : OFFERINGS.weekly.days) * DAY_MS;
    const [first] = rows;
    const due = Math.floor((at(DAYS, 1).getTime() + DAY_MS - Number(first?.ends)) / length) + 1;
    expect([i, rows.length]).toEqual([i, isRefused ? 1 : 1 + Math.max(0, due)]);
    for (const [n, { starts }] of rows.entries()) if (n > 0) expect(Number(starts)).toBe(Number(rows[n - 1]?.ends));
  }
});

test("the quarter had everything: renewals from cards and balances, automatic top-ups, made-to-measure packages, refunds and disputes", async () => {
  const all = await everything();
  const [made] = await shop.sql`
    select (select count(*)::int from renewals r join orders o on o.id = r.order_id where o.status = 'fulfilled') as from_cards,
      (select count(*)::int from renewals where source = 'balance' and status = 'done') as from_balances,
      (select count(*)::int from renewals where status = 'failed') as refused,
      (select count(*)::int from card_charges c join orders o on o.id = c.order_id where purpose = 'top_up' and o.status = 'fulfilled') as top_ups,
      (select count(*)::int from offerings where measured) as measured,
      (select count(*)::int from refunds where origin = 'dispute' and status = 'done') as disputes,
      (select count(*)::int from refunds where origin <> 'dispute' and status = 'done') as refunds`;
  for (const [what, count] of Object.entries(made ?? {}))
    expect({ what, many: count > 5 }).toEqual({ what, many: true });
  expect(all.sales.length).toBeGreaterThan(sales.length);
  expect(all.requests.filter(({ sale }) => sale !== null).length).toBeGreaterThan(1_000);
});

test("balances, orders, invoices and refunds are what the second computation says", async () => {
  const all = await everything();
  for (const { accountId } of customers)
    expect([accountId, await shop.balanceOf({ accountId })]).toEqual([
      accountId,
      customerBalance(accountId, all.sales, all.requests),
    ]);
  for (const { id } of resellers)
    expect(await shop.balanceOf({ accountId: id })).toBe(resellerBalance(START, id, all.sales, all.requests));
  for (const sale of all.sales) {
    if (sale.orderId === null) continue;
    const { tax, total, worthUsd } = amountsOf(sale);
    const given = refundOf(sale);
    const [order] = await shop.sql`
      select order_total(o)::text as total, tax_nano::text as tax, price_nano_usd::text as worth from orders o where id = ${sale.orderId}`;
    const papers = await shop.sql`
      select kind, total_nano::text as total, tax_nano::text as tax from invoices where order_id = ${sale.orderId} order by id`;
    expect({ ...order }).toEqual({ total: String(total), tax: String(tax), worth: String(worthUsd) });
    expect(papers.map((paper) => ({ ...paper }))).toEqual([
      { kind: "invoice", total: String(total), tax: String(tax) },
      ...(sale.refunded === null ? [] : [{ kind: "credit_note", total: String(given.amount), tax: String(given.tax) }]),
    ]);
  }
});

test("figures, statements and files of invoices agree with it, month by month", async () => {
  const all = await everything();
  const shown = ({ requests: count, revenue, cost }: { requests: number; revenue: bigint; cost: bigint }) => ({
    requests: count,
    usageRevenueNanoUsd: String(revenue),
    costNanoUsd: String(cost),
    marginNanoUsd: String(revenue - cost),
  });
  const iso = (ms: number) => new Date(ms).toISOString();
  const admin = await managementOf(shop.shop, { accountId: shop.as.admin.accountId }, "admin");
  const page = await adminSession();
  for (const { fromMs, toMs } of [...MONTHS.map(({ span }) => span), QUARTER]) {
    const query = `start=${iso(fromMs)}&end=${iso(toMs)}`;
    const { operator } = figuresOf(all.requests, { fromMs, toMs });
    expect(ok(await admin.get(`/usage/figures?${query}`)).total).toMatchObject(shown(operator));
    expect(ok(await page.get(`/figures?${query}`)).total).toMatchObject(shown(operator));
    for (const { id } of resellers) {
      const of = figuresOf(all.requests, { fromMs, toMs }, id);
      const own = await managementOf(shop.shop, { accountId: id }, "reseller");
      expect(ok(await own.get(`/usage/figures?${query}`)).total).toMatchObject(shown(of.reseller));
      expect(ok(await admin.get(`/usage/figures?${query}&resellerId=${id}`)).total).toMatchObject(shown(of.operator));
    }
  }
  for (const { name, span } of MONTHS)
    for (const seller of sellers) {
      const session = await sessionOf(seller);
      const file = (await session.get(`/seller/invoices.csv?month=${name}`)).text;
      expect(sumsOfFile(file)).toEqual(invoicedOf(all.sales, span, seller.id));
      if (seller.id === 0) continue;
      const { reseller } = figuresOf(all.requests, span, seller.id);
      const earned = earnedOf(all.requests, span, seller.id);
      const { usage, balance } = ok(await session.get(`/statement?month=${name}`));
      expect(usage.totals).toMatchObject({
        requests: reseller.requests,
        usageRevenueNanoUsd: String(reseller.revenue),
        usageCostNanoUsd: String(reseller.cost),
        marginNanoUsd: String(reseller.revenue - reseller.cost),
        earnedNanoUsd: String(earned),
      });
      const moved = Object.values(balance.sumsNanoUsd as Record<string, string>).reduce(
        (sum, each) => sum + BigInt(each),
        0n,
      );
      expect(BigInt(balance.openingNanoUsd) + moved).toBe(BigInt(balance.closingNanoUsd));
    }
});

/** Invoices less credit notes of a file: total and tax in billionths of the currency. */
function sumsOfFile(csv: string): { total: bigint; tax: bigint } {
  const [head = "", ...lines] = csv.trimEnd().split("\r\n");
  const columns = head.split(",");
  const sums = { total: 0n, tax: 0n };
  for (const line of lines) {
    const cells = line.split(",");
    for (const name of ["total", "tax"] as const) {
      const [, sign = "", whole = "", decimals = ""] =
        /^(-?)(\d+)\.?(\d*)$/.exec(cells[columns.indexOf(name)] ?? "") ?? [];
      sums[name] += BigInt(`${sign}${whole}${decimals.padEnd(9, "0")}`);
    }
  }
  return sums;
}

test("the books are whole, and nothing was paid twice", async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  expect(await fullCheck(shop.world)).toEqual(["ok"]);
});
