import { afterAll, beforeAll, expect, test } from "bun:test";
import { statementOf } from "../../src/books/statement_store.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import type { Person } from "../world.ts";
import { ok, type PanelSession, signInTo } from "./panel_client.ts";

/**
 * A reseller's monthly statement: computed from the ledger, exact to the nano-USD, and final once the month is closed. Months are
 * in Berlin time here: October 2026 starts at 22:00 UTC and ends at 23:00 UTC, since summer time ends in it.
 * Source: RES-5, PAN-5.
 */

const ACME = "ai.acme.test";
const BASE = "api.tollgate.test";
const USD = 1_000_000_000n;
const SEPTEMBER_ENDS = "2026-09-30T22:00:00Z";
const OCTOBER_ENDS = "2026-10-31T23:00:00Z";

let shop: Shop;
let acme: Person;
let ann: Person;
let bob: Person;
let rival: Person;
let as: Record<"admin" | "acme" | "rival" | "ann", PanelSession>;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { BILLING_TIMEZONE: "Europe/Berlin" } });
  const { world } = shop;
  await world.setClock("2026-09-15T12:00:00Z");
  await world.sql`select make_receipt_months(3)`;
  await world.setClock("2026-11-20T12:00:00Z");
  acme = await world.addReseller();
  rival = await world.addReseller();
  ann = await world.addCustomer(acme.accountId);
  bob = await world.addCustomer(acme.accountId);
  await world.addHost(acme, ACME);
  as = {
    admin: await signInTo(shop, await world.addAdmin()),
    acme: await signInTo(shop, acme, { host: ACME }),
    rival: await signInTo(shop, rival),
    ann: await signInTo(shop, ann, { host: ACME }),
  };
  await october();
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

/** Runs `work`, and moves the transactions and packages that it wrote to `moment`. */
async function at(moment: string, work: () => Promise<unknown>): Promise<void> {
  const { sql } = shop.world;
  const [before] = await sql`
    select (select coalesce(max(id), 0) from balance_entries) as entry, (select coalesce(max(id), 0) from packages) as package`;
  await work();
  await sql`update balance_entries set created_at = ${moment} where id > ${before?.entry}`;
  await sql`update packages set created_at = ${moment} where id > ${before?.package}`;
}

const add = ({ accountId }: Person, nanoUsd: bigint, kind = "top_up", reason: string | null = "test") =>
  shop.world.sql`select add_balance(${accountId}, ${String(nanoUsd)}, ${kind}, ${reason}, null)`;
const transfer = (from: Person, to: Person, nanoUsd: bigint, reason: string) =>
  shop.world.sql`select transfer_balance(${from.accountId}, ${to.accountId}, ${String(nanoUsd)}, ${reason}, null)`;

type Used = { host?: string; model?: string; charged?: number; finished?: string; mode?: "payg" | "package" };
let receipts = 0;

/** Inserts a settled request: its receipt and its charge. */
async function used(person: Person, begun: string, over: Used = {}): Promise<void> {
  const { host = ACME, model = "chat-a", charged = 0, finished = begun, mode = "payg" } = over;
  const { sql } = shop.world;
  const suffix = String(++receipts).padStart(12, "0");
  const [row] = await sql`
    insert into receipts (request_id, account_id, key_id, model_id, host, mode, package_id, day, outcome, reason, units, held_nano_usd,
      charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
    select overlay(request_id_floor(${begun})::text placing ${suffix} from 25)::uuid, ${person.accountId}, 1, ${model}, ${host}, ${mode}, null, null,
      'settled', 'complete', 0, ${charged}, ${charged}, 0, 100, 10, 50, 0, false, ${begun}, ${finished}
    returning request_id`;
  if (charged === 0) return;
  await sql`update balances set balance_nano_usd = balance_nano_usd - ${charged} where account_id = ${person.accountId}`;
  await sql`
    insert into balance_entries (account_id, amount_nano_usd, kind, request_id, created_at)
    values (${person.accountId}, ${-charged}, 'charge', ${row?.request_id}, ${finished})`;
}

async function october(): Promise<void> {
  const { world } = shop;
  const offeringId = await world.addOffering({ wholesaleNanoUsd: 4n * USD });
  await world.sql`update offerings set name = '=cmd|"x", y' where id = ${offeringId}`;
  await world.sql`insert into allotments (reseller_id, offering_id, granted) values (${acme.accountId}, ${offeringId}, 2)`;
  const fromAllotment = (person: Person) =>
    world.sql`select assign_package(${person.accountId}, ${offeringId}, 'after', ${acme.accountId}, null, true)`;

  await at("2026-09-30T21:59:59.999Z", () => add(acme, 50n * USD, "top_up", "in September"));
  await at("2026-09-30T21:00:00Z", () => world.assign(ann, offeringId, "after", acme));
  await at(SEPTEMBER_ENDS, () => add(acme, 10n * USD, "top_up", "first of October"));
  await at("2026-10-05T10:00:00Z", () => world.assign(ann, offeringId, "after", acme));
  await at("2026-10-06T10:00:00Z", () => fromAllotment(bob));
  const free = await world.addOffering({ wholesaleNanoUsd: 0n });
  await at("2026-10-06T11:00:00Z", () => world.assign(bob, free, "after", acme));
  await at("2026-10-07T10:00:00Z", () => transfer(acme, ann, 3n * USD, "+1 for ann"));
  await at("2026-10-08T10:00:00Z", () => add(acme, -USD, "correction", "-2 for a typo"));
  await at("2026-10-31T22:59:59.999Z", () => world.assign(acme, offeringId, "after", acme));
  await at(OCTOBER_ENDS, () => world.assign(bob, offeringId, "after", acme));
  await at("2026-11-02T10:00:00Z", () => add(acme, 5n * USD, "top_up", "in November"));
  // Not paid by acme: the operator's gift, and another tenant's package.
  await at("2026-10-09T10:00:00Z", () => world.assign(bob, offeringId, "after"));
  await at("2026-10-09T10:00:00Z", () => world.assign(rival, offeringId, "after"));

  for (const [person, nanoUsd] of [
    [bob, USD],
    [rival, USD],
  ] as const)
    await at("2026-09-01T00:00:00Z", () => add(person, nanoUsd));
  await used(ann, "2026-10-10T10:00:00Z", { charged: 11 });
  await used(ann, "2026-10-10T10:00:01Z", { charged: 7, model: "vendor/chat-b" });
  await used(ann, "2026-10-10T10:00:02Z", { charged: 5 });
  await used(bob, "2026-10-11T10:00:00Z", { charged: 3, host: BASE });
  await used(acme, "2026-10-12T10:00:00Z", { charged: 20, host: BASE });
  await used(acme, "2026-10-13T10:00:00Z", { charged: 22, host: BASE });
  await used(rival, "2026-10-12T10:00:00Z", { charged: 1000, host: BASE });
  // The end of a request counts: the first two ended in October, the others did not.
  await used(bob, "2026-09-20T10:00:00Z", { charged: 100, finished: SEPTEMBER_ENDS });
  await used(bob, "2026-10-31T22:59:00Z", { charged: 200, finished: "2026-10-31T22:59:59.999Z" });
  await used(bob, "2026-10-31T22:59:00Z", { charged: 4000, finished: OCTOBER_ENDS });
  await used(bob, "2026-09-30T21:59:00Z", { charged: 8000, finished: "2026-09-30T21:59:59.999Z" });
}

const statement = async (session: PanelSession, query: string) => ok(await session.get(`/statement?${query}`));

test("usage by host, customer and model: requests that ended in the month, in the billing time zone", async () => {
  const { usage, ...rest } = await statement(as.acme, "month=2026-10");
  expect(rest).toMatchObject({
    resellerId: acme.accountId,
    timeZone: "Europe/Berlin",
    from: "2026-09-30T22:00:00.000Z",
    to: "2026-10-31T23:00:00.000Z",
    closed: true,
    host: null,
  });
  const line = (host: string, { accountId }: Person, modelId: string, requests: number, charged: number) => ({
    host,
    customerId: accountId,
    modelId,
    requests,
    packageRequests: 0,
    promptTokens: 100 * requests,
    cachedTokens: 10 * requests,
    completionTokens: 50 * requests,
    chargedNanoUsd: String(charged),
  });
  expect(usage).toMatchObject({
    hasMore: false,
    rows: [
      line(ACME, ann, "chat-a", 2, 16),
      line(ACME, ann, "vendor/chat-b", 1, 7),
      line(ACME, bob, "chat-a", 2, 300),
      line(BASE, acme, "chat-a", 2, 42),
      line(BASE, bob, "chat-a", 1, 3),
    ],
    totals: { requests: 8, promptTokens: 800, chargedNanoUsd: "368" },
  });
  const onBase = await statement(as.acme, `month=2026-10&host=${BASE}`);
  expect(onBase.usage.rows).toMatchObject([{ customerId: acme.accountId }, { customerId: bob.accountId, requests: 1 }]);
  expect(onBase.usage.totals).toMatchObject({ requests: 3, chargedNanoUsd: "45" });
  expect(onBase.balance).toEqual(rest.balance);
  expect((await statement(as.acme, "month=2026-10&host=ai.rival.test")).usage).toMatchObject({ rows: [] });
});

test("assigned packages, at their price or from an allotment, and every other transaction of the balance", async () => {
  const { packages, entries } = await statement(as.acme, "month=2026-10");
  expect(packages.rows).toMatchObject([
    { customerId: ann.accountId, priceNanoUsd: String(4n * USD), allotmentId: null, at: "2026-10-05T10:00:00.000Z" },
    { customerId: bob.accountId, priceNanoUsd: "0", allotmentId: expect.any(Number) },
    { customerId: bob.accountId, priceNanoUsd: "0", allotmentId: null },
    { customerId: acme.accountId, priceNanoUsd: String(4n * USD), at: "2026-10-31T22:59:59.999Z" },
  ]);
  expect(
    entries.rows.map((row: { kind: string; amountNanoUsd: string }) => [row.kind, BigInt(row.amountNanoUsd)]),
  ).toEqual([
    ["top_up", 10n * USD],
    ["transfer", -3n * USD],
    ["correction", -USD],
  ]);
});

test("opening balance + transactions = closing balance, for every month up to the current balance", async () => {
  const months = ["2026-08", "2026-09", "2026-10", "2026-11"];
  let carried = 0n;
  for (const month of months) {
    const { balance, packages } = await statement(as.acme, `month=${month}`);
    const sums = Object.fromEntries(
      Object.entries(balance.sumsNanoUsd).map(([kind, nano]) => [kind, BigInt(String(nano))]),
    );
    expect(BigInt(balance.openingNanoUsd)).toBe(carried);
    carried += Object.values(sums).reduce((sum, nano) => sum + nano, 0n);
    expect(BigInt(balance.closingNanoUsd)).toBe(carried);
    const prices: bigint[] = packages.rows.map((row: { priceNanoUsd: string }) => BigInt(row.priceNanoUsd));
    expect(-prices.reduce((sum, nano) => sum + nano, 0n)).toBe(sums.wholesale ?? 0n);
  }
  const [row] = await shop.world
    .sql`select balance_nano_usd::text as nano from balances where account_id = ${acme.accountId}`;
  expect(carried).toBe(BigInt(String(row?.nano)));
  const { balance } = await statement(as.acme, "month=2026-10");
  expect(balance).toMatchObject({
    openingNanoUsd: String(46n * USD),
    closingNanoUsd: String(44n * USD - 42n),
    charges: 2,
    sumsNanoUsd: { charge: "-42" },
  });
});

/** Parses CSV whose cells may have commas and quotes. */
function parse(csv: string): Record<string, string>[] {
  const [head = [], ...lines] = csv
    .trimEnd()
    .split("\r\n")
    .map((line) =>
      [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^",]*))/g)].map(
        ([, quoted, bare]) => quoted?.replaceAll('""', '"') ?? bare ?? "",
      ),
    );
  return lines.map((cells) => Object.fromEntries(head.map((name, i) => [name, cells[i] ?? ""])));
}

test("the CSV file has raw units and UTC times and is named after the host; cells that look like formulas are escaped", async () => {
  const answer = await as.acme.get("/statement.csv?month=2026-10");
  expect(answer.status).toBe(200);
  expect(answer.headers.get("content-type")).toBe("text/csv; charset=utf-8");
  expect(answer.headers.get("content-disposition")).toBe(`attachment; filename="statement-${ACME}-2026-10.csv"`);
  expect(answer.headers.get("cache-control")).toBe("no-store");
  const lines = parse(answer.text);
  const of = (line: string) => lines.filter((row) => row.line === line);
  expect(of("opening_balance")).toMatchObject([
    { at: "2026-09-30T22:00:00.000Z", balance_nano_usd: String(46n * USD) },
  ]);
  expect(of("closing_balance")).toMatchObject([
    { at: "2026-10-31T23:00:00.000Z", balance_nano_usd: String(44n * USD - 42n) },
  ]);
  expect(of("usage")).toHaveLength(5);
  expect(of("usage")[0]).toMatchObject({
    host: ACME,
    customer_id: String(ann.accountId),
    model: "chat-a",
    requests: "2",
    charged_nano_usd: "16",
  });
  const sum = (rows: Record<string, string>[], column: string) =>
    rows.reduce((all, row) => all + BigInt(row[column] || 0), 0n);
  expect(46n * USD + sum(lines, "amount_nano_usd")).toBe(44n * USD - 42n);
  expect(sum(of("package"), "price_nano_usd")).toBe(8n * USD);
  expect(of("package").filter((row) => row.package === `'=cmd|"x", y`)).toHaveLength(3);
  expect(of("entry").map(({ reason, package_id, customer_id }) => [reason, package_id !== "", customer_id])).toEqual([
    ["first of October", false, ""],
    ["", true, ""],
    ["'+1 for ann", false, String(ann.accountId)],
    ["'-2 for a typo", false, ""],
    ["", true, ""],
  ]);
  expect(of("charges")).toMatchObject([{ requests: "2", amount_nano_usd: "-42" }]);
  expect(answer.text).not.toMatch(/tollgate(?!\.test)/i);
  const named = await as.admin.get(`/statement.csv?month=2026-10&resellerId=${acme.accountId}&host=${BASE}`);
  expect(named.headers.get("content-disposition")).toBe(`attachment; filename="statement-${BASE}-2026-10.csv"`);
});

test("new names, sales, requests and money never change a closed month's file", async () => {
  const ask = async () => (await as.acme.get("/statement.csv?month=2026-10")).text;
  const before = await ask();
  await shop.world
    .sql`update accounts set name = name || ' renamed', email = 'new-' || email where reseller_id = ${acme.accountId}`;
  // A paid offering becomes free, and a free one is no longer.
  await shop.world.sql`
    update offerings set enabled = false, wholesale_nano_usd = case wholesale_nano_usd when 0 then ${String(USD)}::bigint else 0 end`;
  await add(acme, 3n * USD);
  await transfer(acme, bob, USD, "later");
  await shop.world.assign(bob, await shop.world.addOffering({ wholesaleNanoUsd: USD }), "now", acme);
  await used(ann, "2026-11-19T10:00:00Z", { charged: 9 });
  const again = await Promise.all([
    ask(),
    ask(),
    as.admin.get(`/statement.csv?month=2026-10&resellerId=${acme.accountId}`),
  ]);
  expect(again.map((one) => (typeof one === "string" ? one : one.text))).toEqual([before, before, before]);
});

test("a running month is not closed, has the current balance, and its file is named so-far", async () => {
  await shop.world.setClock("2026-10-31T23:05:00Z"); // October is over, but its last transactions may not be committed yet.
  expect((await statement(as.acme, "month=2026-10")).closed).toBe(false);
  await shop.world.setClock("2026-11-20T12:00:00Z");
  const { closed, balance } = await statement(as.acme, "month=2026-11");
  expect(closed).toBe(false);
  const answer = await as.acme.get("/statement.csv?month=2026-11");
  expect(answer.headers.get("content-disposition")).toContain(`statement-${ACME}-2026-11-so-far.csv`);
  expect(parse(answer.text).at(-1)).toMatchObject({ line: "balance_so_far", balance_nano_usd: balance.closingNanoUsd });
});

test("a reseller gets its own statement, an admin any reseller's; others get 404", async () => {
  for (const path of ["/statement", "/statement.csv"]) {
    const ask = (session: PanelSession, query: string) => session.get(`${path}?month=2026-10${query}`);
    expectRefusal(await ask(as.ann, ""), "not_found");
    expectRefusal(await ask(as.ann, `&resellerId=${acme.accountId}`), "not_found");
    expectRefusal(await ask(as.rival, `&resellerId=${acme.accountId}`), "not_found");
    expectRefusal(await ask(as.admin, ""), "not_found");
    for (const id of [ann.accountId, as.admin.accountId, 999_999])
      expectRefusal(await ask(as.admin, `&resellerId=${id}`), "not_found");
    expect((await ask(as.acme, `&resellerId=${acme.accountId}`)).status).toBe(200);
    expect((await ask(as.admin, `&resellerId=${acme.accountId}`)).status).toBe(200);
  }
  const theirs = await statement(as.rival, "month=2026-10");
  expect(theirs.usage.rows).toMatchObject([{ customerId: rival.accountId, chargedNanoUsd: "1000" }]);
  expect(theirs.packages.rows).toEqual([]);
});

test("422 validation_failed for a month that has not begun, a malformed month or host, and unknown parameters", async () => {
  for (const [query, param] of [
    ["month=2026-12", "month"],
    ["month=2026-13", "month"],
    ["month=1999-01", "month"],
    ["month=october", "month"],
    ["", "month"],
    ["month=2026-10&host=A_b", "host"],
    ["month=2026-10&host=%22;%0d%0aset-cookie:x", "host"],
    ["month=2026-10&x=1", "x"],
  ] as const)
    for (const path of ["/statement", "/statement.csv"])
      expectRefusal(await as.acme.get(`${path}?${query}`), "validation_failed", { param });
});

test("lists are cut at their limit and say so; sums are of the whole month", async () => {
  const db = shop.world.openDb();
  const query = { resellerId: acme.accountId, month: "2026-10", timeZone: "Europe/Berlin" };
  const whole = await statementOf({ db }, { ...query, rowsMax: 100 });
  const cut = await statementOf({ db }, { ...query, rowsMax: 2 });
  const withPrices = await statementOf({ db }, { ...query, pricesAsTransactions: true, rowsMax: 3 });
  await db.close();
  // Without their prices, packages leave the room to other transactions.
  expect(cut.entries.rows.map(({ kind }) => kind)).toEqual(["top_up", "transfer"]);
  expect(withPrices.entries.rows.map(({ kind }) => kind)).toEqual(["top_up", "wholesale", "transfer"]);
  for (const part of ["usage", "packages", "entries"] as const) {
    expect(whole[part].hasMore).toBe(false);
    expect(cut[part]).toMatchObject({ hasMore: true, rows: whole[part].rows.slice(0, 2) });
  }
  expect([cut.usage.totals, cut.balance]).toEqual([whole.usage.totals, whole.balance]);
});
