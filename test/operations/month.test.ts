import { expect, setDefaultTimeout, test } from "bun:test";
import { runCli } from "../cli/cli_process.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { type PanelSession, signInTo } from "../panel/panel_client.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import type { Person } from "../world.ts";
import { type Management, managementOf } from "./management_client.ts";

/**
 * A month of a small business through the management API alone, through the panel alone, and through the command line alone: the books are
 * equal. What customers do themselves (order, redeem, make keys, send requests) they do in their panel and with their keys. Source: MGT-1.
 */

setDefaultTimeout(600_000);

const RESELLERS = 2;
const CUSTOMERS = 20;
const dollars = (usd: number) => String(BigInt(Math.round(usd * 100)) * 10_000_000n);

/** What the operator and the resellers do. Ids are those of the database. */
type Business = {
  addReseller(name: string): Promise<number>;
  addOffering(name: string, wholesaleUsd: number): Promise<number>;
  topUpReseller(resellerId: number, usd: number): Promise<void>;
  addCustomer(resellerId: number, name: string): Promise<number>;
  setPrice(resellerId: number, offeringId: number, usd: number): Promise<void>;
  setMarkup(resellerId: number, basisPoints: number): Promise<void>;
  assign(resellerId: number, accountId: number, offeringId: number, when: "now" | "after"): Promise<number>;
  enablePayg(accountId: number): Promise<void>;
  fulfil(resellerId: number, orderId: number): Promise<void>;
  refund(resellerId: number, paymentId: number, usd: number): Promise<void>;
  /** Returns the codes. */
  makeVouchers(resellerId: number, name: string, usd: number, codes: number): Promise<string[]>;
  disableKey(resellerId: number, accountId: number, keyId: number): Promise<void>;
  suspend(resellerId: number, accountId: number): Promise<void>;
};

const nameOf = (name: string) => ({ name, email: `${name}@example.com` });
const done = ({ status, json, text }: Answer) => {
  if (status !== 200) throw new Error(`${status} ${text}`);
  return json;
};
const newOffering = (name: string, wholesaleUsd: number) => ({
  ...{ name, kind: "custom", days: 30, dailyLimit: 10, carryover: true, timeZone: "UTC" },
  wholesaleNanoUsd: dollars(wholesaleUsd),
});
const LAST_DAY = "2029-06-30T23:59:59Z";

async function throughManagement(shop: Shop): Promise<Business> {
  const admin = await managementOf(shop, await shop.world.addAdmin(), "admin");
  const sellers = new Map<number, Management>();
  const of = async (accountId: number) => {
    const known = sellers.get(accountId) ?? (await managementOf(shop, { accountId }, "reseller"));
    sellers.set(accountId, known);
    return known;
  };
  return {
    addReseller: async (name) =>
      done(await admin.post("/accounts", { ...nameOf(name), role: "reseller" })).account.accountId,
    addOffering: async (name, usd) => done(await admin.post("/offerings", newOffering(name, usd))).offeringId,
    topUpReseller: async (id, usd) =>
      void done(
        await admin.post(`/accounts/${id}/balance`, { kind: "top_up", amountNanoUsd: dollars(usd), reason: "start" }),
      ),
    addCustomer: async (id, name) => done(await (await of(id)).post("/accounts", nameOf(name))).account.accountId,
    setPrice: async (id, offeringId, usd) =>
      void done(await (await of(id)).call("PUT", `/prices/${offeringId}`, { priceNano: dollars(usd) })),
    setMarkup: async (id, basisPoints) =>
      void done(await (await of(id)).call("PUT", "/markups", { modelId: null, basisPoints })),
    assign: async (id, accountId, offeringId, when) =>
      done(await (await of(id)).post(`/accounts/${accountId}/packages`, { offeringId, when })).package.packageId,
    enablePayg: async (accountId) =>
      void done(await admin.call("PUT", `/accounts/${accountId}/payg`, { enabled: true })),
    fulfil: async (id, orderId) => void done(await (await of(id)).post(`/orders/${orderId}/fulfil`)),
    refund: async (id, paymentId, usd) =>
      void done(
        await (await of(id)).post(`/payments/${paymentId}/refunds`, { amountNano: dollars(usd), reason: "sorry" }),
      ),
    async makeVouchers(id, name, usd, codes) {
      const wanted = { name, amountNanoUsd: dollars(usd), codes, usesPerCode: 1, endsAt: LAST_DAY };
      return done(await (await of(id)).post("/vouchers", wanted)).codes.map(({ code }: { code: string }) => code);
    },
    disableKey: async (id, _, keyId) => void done(await (await of(id)).post(`/keys/${keyId}/disable`)),
    suspend: async (id, accountId) => void done(await (await of(id)).post(`/accounts/${accountId}/suspend`)),
  };
}

async function throughPanel(shop: Shop): Promise<Business> {
  const admin = await signInTo(shop, await shop.world.addAdmin());
  const sellers = new Map<number, PanelSession>();
  const of = async (accountId: number) => {
    const known = sellers.get(accountId) ?? (await signInTo(shop, { accountId }));
    sellers.set(accountId, known);
    return known;
  };
  return {
    addReseller: async (name) =>
      done(await admin.post("/people", { ...nameOf(name), role: "reseller" })).account.accountId,
    addOffering: async (name, usd) => done(await admin.post("/admin/offerings", newOffering(name, usd))).offeringId,
    topUpReseller: async (id, usd) =>
      void done(
        await admin.post(`/people/${id}/balance`, { kind: "top_up", amountNanoUsd: dollars(usd), reason: "start" }),
      ),
    addCustomer: async (id, name) => done(await (await of(id)).post("/people", nameOf(name))).account.accountId,
    setPrice: async (id, offeringId, usd) =>
      void done(
        await (await of(id)).call(`/prices/${offeringId}`, { method: "PUT", body: { priceNano: dollars(usd) } }),
      ),
    setMarkup: async (id, basisPoints) =>
      void done(await (await of(id)).call("/markup", { method: "PUT", body: { modelId: null, basisPoints } })),
    assign: async (id, accountId, offeringId, when) =>
      done(await (await of(id)).post(`/people/${accountId}/packages`, { offeringId, when })).package.packageId,
    enablePayg: async (accountId) =>
      void done(await admin.call(`/people/${accountId}/payg`, { method: "PATCH", body: { enabled: true } })),
    fulfil: async (id, orderId) => void done(await (await of(id)).post(`/orders/${orderId}/fulfil`, {})),
    refund: async (id, paymentId, usd) =>
      void done(
        await (await of(id)).post(`/payments/${paymentId}/refunds`, { amountNano: dollars(usd), reason: "sorry" }),
      ),
    async makeVouchers(id, name, usd, codes) {
      const wanted = { name, amountNanoUsd: dollars(usd), codes, usesPerCode: 1, endsAt: LAST_DAY };
      return codesOf(done(await (await of(id)).post("/vouchers", wanted)).csv);
    },
    disableKey: async (id, accountId, keyId) =>
      void done(await (await of(id)).post(`/people/${accountId}/keys/${keyId}/disable`)),
    suspend: async (id, accountId) => void done(await (await of(id)).post(`/people/${accountId}/suspend`)),
  };
}

async function throughCommands(shop: Shop): Promise<Business> {
  const env = { DATABASE_URL: shop.world.url, SPOOL_DIR: shop.world.spoolDir, SECRET_KEY: TEST_SECRET_KEY };
  const run = async (words: string) => {
    const { code, out, err } = await runCli(words, { env });
    if (code !== 0) throw new Error(`${words}: ${err}`);
    return out;
  };
  const json = async (words: string) => JSON.parse(await run(`${words} --json`));
  return {
    addReseller: async (name) =>
      (await json(`account add --role reseller --name ${name} --email ${name}@example.com`)).accountId,
    addOffering: async (name, usd) =>
      (
        await json(
          `offering add --name ${name} --kind custom --days 30 --daily 10 --carryover --time-zone UTC --wholesale ${usd}`,
        )
      ).offeringId,
    topUpReseller: async (id, usd) => void (await run(`balance add ${id} ${usd} --reason start`)),
    addCustomer: async (id, name) =>
      (await json(`account add --reseller ${id} --name ${name} --email ${name}@example.com`)).accountId,
    // No command sets a reseller's retail price: each of these is the reseller's own.
    async setPrice(id, offeringId, usd) {
      const seller = await signInTo(shop, { accountId: id });
      done(await seller.call(`/prices/${offeringId}`, { method: "PUT", body: { priceNano: dollars(usd) } }));
    },
    setMarkup: async (id, basisPoints) => void (await run(`account markup ${id} --percent ${basisPoints / 100}`)),
    assign: async (_, accountId, offeringId, when) =>
      (await json(`package assign ${accountId} --offering ${offeringId}${when === "after" ? " --after" : ""}`))
        .packageId,
    enablePayg: async (accountId) => void (await run(`payg enable ${accountId}`)),
    fulfil: async (_, orderId) => void (await run(`order paid ${orderId}`)),
    refund: async (id, paymentId, usd) =>
      void (await run(`payment refund ${paymentId} --amount ${usd} --reason sorry --seller ${id}`)),
    makeVouchers: async (id, name, usd, codes) =>
      codesOf(
        await run(`voucher create --name ${name} --amount ${usd} --codes ${codes} --ends ${LAST_DAY} --seller ${id}`),
      ),
    disableKey: async (_, __, keyId) => void (await run(`key disable ${keyId}`)),
    suspend: async (_, accountId) => void (await run(`account suspend ${accountId}`)),
  };
}

function codesOf(csv: string): string[] {
  const lines = csv.trim().split(/\r?\n/).slice(1);
  return lines.map((line) => line.split(",")[1] ?? "");
}

/** The month, with `business` as the sellers' door. Returns the books, with names instead of ids. */
async function month(open: (shop: Shop) => Promise<Business>): Promise<unknown> {
  const shop = await openShop({ redisUrl: "" });
  try {
    const business = await open(shop);
    const small = await business.addOffering("small", 4);
    const large = await business.addOffering("large", 9);
    const resellers: number[] = [];
    for (let i = 0; i < RESELLERS; i++) {
      const id = await business.addReseller(`reseller-${i}`);
      await shop.world.addHost({ accountId: id }, `ai.r${i}.test`);
      await business.topUpReseller(id, 400);
      await business.setPrice(id, small, 7.5 + i);
      await business.setPrice(id, large, 15);
      await business.setMarkup(id, 1_250 * (i + 1));
      resellers.push(id);
    }
    for (let i = 0; i < CUSTOMERS; i++) await customersMonth(shop, business, { i, resellers, small, large });
    expect(await shop.world.unbalanced()).toEqual([]);
    return await books(shop);
  } finally {
    await shop.close();
  }
}

type Place = { i: number; resellers: number[]; small: number; large: number };

async function customersMonth(shop: Shop, business: Business, { i, resellers, small, large }: Place): Promise<void> {
  const resellerId = resellers[i % RESELLERS] ?? 0;
  const host = `ai.r${i % RESELLERS}.test`;
  const accountId = await business.addCustomer(resellerId, `customer-${i}`);
  const person: Person = { accountId };
  const session = await signInTo(shop, person, { host });
  await business.assign(resellerId, accountId, i % 3 === 0 ? large : small, "now");
  const key = done(await session.post("/keys", { name: "package", mode: "package" }));
  expect((await shop.chat(key.secret, {}, { host })).status).toBe(200);

  if (i % 2 === 0) {
    const { order } = done(await session.post("/orders", { kind: "top_up", amountNanoUsd: dollars(20 + i) }));
    await business.fulfil(resellerId, order.orderId);
    await business.enablePayg(accountId);
    const payg = done(await session.post("/keys", { name: "balance", mode: "payg" }));
    expect((await shop.chat(payg.secret, {}, { host })).status).toBe(200);
    if (i % 4 === 0) await business.refund(resellerId, await paymentOf(shop, order.orderId), 5);
  } else {
    const { order } = done(await session.post("/orders", { kind: "package", offeringId: small }));
    await business.fulfil(resellerId, order.orderId);
  }
  if (i % 5 === 0) {
    const [code = ""] = await business.makeVouchers(resellerId, `fair-${i}`, 3, 2);
    done(await session.post("/vouchers/redeem", { code }));
  }
  if (i % 6 === 0) await business.disableKey(resellerId, accountId, key.key.keyId);
  if (i === CUSTOMERS - 1) await business.suspend(resellerId, accountId);
}

async function paymentOf(shop: Shop, orderId: number): Promise<number> {
  const [row] = await shop.world.sql`select id from payments where order_id = ${orderId}`;
  return Number(row?.id);
}

/** What the books say, with names instead of ids, and without times and actors. */
async function books(shop: Shop): Promise<Record<string, unknown>> {
  const { sql } = shop.world;
  const rows = async (query: Promise<unknown>) => JSON.parse(JSON.stringify(await query));
  return {
    balances: await rows(sql`
      select name, role, status, balance_nano_usd, payg_enabled from accounts join balances on account_id = accounts.id where role <> 'admin' order by name`),
    entries: await rows(sql`
      select a.name, kind, amount_nano_usd, regexp_replace(e.reason, '[0-9A-F]{12}', '') as reason, c.name as counterpart from balance_entries e join accounts a on a.id = account_id
      left join accounts c on c.id = counterpart_id order by a.name, e.id`),
    packages: await rows(sql`
      select a.name, p.name as package, days, daily_limit, total_limit, carryover, units_taken - package_drawn(p) as used, payer.name as payer
      from packages p join accounts a on a.id = account_id left join accounts payer on payer.id = paid_by_account_id order by a.name, p.id`),
    keys: await rows(
      sql`select a.name, k.name as key, k.mode, k.status from keys k join accounts a on a.id = account_id order by a.name, k.id`,
    ),
    orders: await rows(
      sql`select a.name, kind, amount_nano_usd, price_nano_usd, o.status, method from orders o join accounts a on a.id = account_id order by a.name, o.id`,
    ),
    payments: await rows(
      sql`select a.name, amount_nano, currency, method, problem from payments p join accounts a on a.id = p.account_id order by a.name, p.id`,
    ),
    refunds: await rows(
      sql`select a.name, amount_nano, r.status, r.reason, shortfall_nano_usd, tax_nano, worth_nano_usd, credit_note from refunds r join accounts a on a.id = r.account_id order by a.name, r.id`,
    ),
    invoices: await rows(
      sql`select s.name, i.number, i.kind, buyer_name, total_nano, tax_nano from invoices i join accounts s on s.id = i.seller_id order by s.name, number`,
    ),
    vouchers: await rows(sql`
      select s.name, b.name as batch, amount_nano_usd, pay_with, codes, (select count(*)::int from voucher_uses where batch_id = b.id) as used
      from voucher_batches b join accounts s on s.id = seller_id order by s.name, b.name`),
    markups: await rows(
      sql`select a.name, model_id, basis_points from markups m join accounts a on a.id = m.reseller_id order by a.name`,
    ),
    prices: await rows(
      sql`select a.name, o.name as offering, price_nano from retail_prices join accounts a on a.id = seller_id join offerings o on o.id = offering_id order by 1, 2`,
    ),
    receipts: await rows(
      sql`select a.name, model_id, r.mode, outcome, units, charged_nano_usd, cost_nano_usd, markup_basis_points from receipts r join accounts a on a.id = r.account_id order by a.name, r.mode`,
    ),
  };
}

test("the books of a month are equal through the management API, the panel and the command line", async () => {
  const managed = await month(throughManagement);
  expect(await month(throughPanel)).toEqual(managed);
  expect(await month(throughCommands)).toEqual(managed);
});
