import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { setMarkup } from "../../src/accounts/markups_store.ts";
import { closeEarnings, creditEarnings } from "../../src/books/earnings_store.ts";
import { openSlices } from "../../src/books/short_transactions_store.ts";
import { setPrices } from "../../src/catalog/models_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import type { ChangeDeps } from "../../src/platform/changes_store.ts";
import type { Db } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { fullCheck } from "../cli/cli_process.ts";
import { embeddingBody, imageBody, openShop, responsesBody, type Shop } from "../gateway/shop.ts";
import { movedTime } from "../moved_time.ts";
import { ok, signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { type MonthAgain, monthAgain } from "./month_again.ts";

/**
 * Every day of the last whole month, lived through by two replicas whose clocks are moved with the database's: their own timers
 * and the test close each day. What the month brought is then computed again by `month_again.ts`. Source: MRK-2, MRK-5, MRK-6, MRK-7,
 * MRK-9, RTL-8.
 */

setDefaultTimeout(400_000);

const DAY_MS = 86_400_000;
const today = new Date();
const FROM = new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth() - 1, 1));
const TO = new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth(), 1));
const DAYS = (TO.getTime() - FROM.getTime()) / DAY_MS;
const MONTH = FROM.toISOString().slice(0, 7);

let shop: Shop;
let deps: ChangeDeps & { db: Db };
let acme: Person;
let customers: (Person & { secret: string })[];
let packaged: Person & { secret: string };
// The earliest time first: request ids only increase.
const time = movedTime(FROM);

beforeAll(async () => {
  shop = await openShop({
    replicas: 2,
    env: { ...time.env, BILLING_TIMEZONE: "UTC" },
    fill: ({ sql }) => time.install(sql),
  });
  const { world } = shop;
  deps = { db: world.openDb(), bus: inProcessBus(createLog("silent")) };
  acme = await world.addReseller();
  await world.sql`update book_closing set earnings_to = ${FROM.toISOString().slice(0, 10)}::date - 1`;
  await setClock(0, "08:00");
  await world.setBalance(acme, 10n ** 12n);
  customers = [];
  for (let i = 0; i < 8; i++) {
    const person = await world.addCustomer(acme.accountId);
    await world.setBalance(person, 10n ** 12n);
    customers.push({ ...person, ...(await world.addKey(person, { mode: "payg" })) });
  }
  const person = await world.addCustomer(acme.accountId);
  await world.givePackage(person);
  packaged = { ...person, ...(await world.addKey(person)) };
  await setPrices(deps, "vendor/chat-b", { inputMicroUsd: 3_000_001, outputMicroUsd: 15_000_003 });
});
afterAll(async () => {
  await deps.db.close();
  await shop.close();
  time.remove();
});

const dateOf = (day: number) => new Date(FROM.getTime() + day * DAY_MS).toISOString().slice(0, 10);

/** From this time of a day of the month on, time runs as ever. */
const setClock = (day: number, at: string) => time.set(new Date(`${dateOf(day)}T${at}:00Z`));

const markup = (basisPoints: number | null, modelId: string | null = null) =>
  setMarkup(deps, { resellerId: acme.accountId, modelId, basisPoints });

/** One request of each kind, by several customers, over both replicas. */
async function trade(day: number): Promise<void> {
  const kinds: [string, object][] = [
    ["/v1/chat/completions", { model: "vendor/chat-b", messages: [{ role: "user", content: `Day ${day}` }] }],
    ["/v1/chat/completions", { model: "chat-a", stream: true, messages: [{ role: "user", content: "tolls" }] }],
    ["/v1/images/generations", imageBody()],
    ["/v1/embeddings", embeddingBody()],
    ["/v1/responses", responsesBody({ model: "vendor/chat-b" })],
  ];
  const calls = kinds.map(([path, body], i) => {
    const origin = shop.replicas[(day + i) % 2]?.origin ?? shop.origin;
    return shop.call(path, { secret: customers[(day + i) % customers.length]?.secret ?? "", body, origin });
  });
  for (const { status, text } of await Promise.all([...calls, shop.chat(packaged.secret)]))
    expect({ status, text: status === 200 ? "" : text }).toEqual({ status: 200, text: "" });
  await settled();
}

async function settled(): Promise<void> {
  const ids = [...customers, packaged].map(({ accountId }) => accountId);
  await until(async () => {
    for (const id of ids) if ((await shop.counters(id)).holds > 0) return false;
    return true;
  });
}

/** The daily closing, as in `startBooksCheck`, by two at once and once more, beside the replicas' own timers. */
async function closeDays(): Promise<void> {
  const once = async () => {
    await closeEarnings(openSlices(deps.db.sql));
    await creditEarnings(deps.db.sql);
  };
  await Promise.all([once(), once()]);
  await once();
}

/** What a customer used before it was suspended still counts; its next request is refused. */
async function suspend(customer: (Person & { secret: string }) | undefined): Promise<void> {
  await shop.world.sql`update accounts set status = 'suspended' where id = ${customer?.accountId ?? 0}`;
  await until(async () => (await shop.chat(customer?.secret ?? "")).status === 401);
}

const earningsOf = async () =>
  await shop.world.sql`
    select reason, amount_nano_usd::text as amount from balance_entries
    where account_id = ${acme.accountId} and kind = 'earning' order by id`;

const again = (): Promise<MonthAgain> =>
  monthAgain(shop.world.sql, acme.accountId, [FROM.toISOString(), TO.toISOString()]);

test("every day of a month is closed once, whatever interrupts the closing", async () => {
  for (let day = 0; day < DAYS; day++) {
    await setClock(day, "10:00");
    if (day === 2) await markup(1_533);
    if (day === 9) await markup(25_000, "image-a");
    if (day === 13) await markup(1);
    if (day === 14) await setPrices(deps, "vendor/chat-b", { inputMicroUsd: 4_000_007, outputMicroUsd: 11_000_009 });
    if (day === 17) await markup(99_999, "vendor/chat-b");
    if (day === 20) await shop.world.sql`select add_balance(${acme.accountId}, -5000000, 'correction', 'a typo', null)`;
    if (day === 20) await shop.world.givePackage(packaged);
    if (day === 22) await suspend(customers.pop());
    if (day === 21) await markup(0, "image-a");
    await trade(day);
    // Days 5 and 6 are closed late, with day 7.
    if (day === 5 || day === 6) continue;
    await setClock(day + 1, "00:02");
    if (day === 11) await replicasClose(day);
    else await closeDays();
    // A request that ends, by the database's clock, on a day that was closed days before.
    if (day === 15) {
      await setClock(day - 3, "23:40");
      await trade(day);
    }
  }
  await time.set(new Date());
  await closeDays();
  const { requests, byDay, wrong, margin } = await again();
  expect(wrong).toEqual([]);
  expect(requests).toBeGreaterThanOrEqual((DAYS + 1) * 6);
  expect(byDay.size).toBeGreaterThan(DAYS - 7);
  const entries = await earningsOf();
  const credited = new Map<string, bigint>();
  const twice = new Set<string>();
  for (const { reason, amount } of entries) {
    const day = String(reason).replace("Earnings of ", "");
    if (credited.has(day)) twice.add(day);
    credited.set(day, (credited.get(day) ?? 0n) + BigInt(amount));
  }
  expect(credited).toEqual(byDay);
  // One entry a day, and more for the day with late requests: as often as a replica closes it meanwhile.
  expect([...twice]).toEqual([dateOf(12)]);
  expect([...credited.values()].reduce((sum, each) => sum + each, 0n)).toBe(margin);
});

/** Nobody but the replicas closes this day; one of three is killed while it waits to credit it. */
async function replicasClose(day: number): Promise<void> {
  const name = new Date(FROM.getTime() + day * DAY_MS).toISOString().slice(0, 10);
  const before = (await earningsOf()).length;
  const locked = await shop.world.sql.reserve();
  await locked`begin`;
  await locked`select lock_accounts(array[${acme.accountId}::bigint])`;
  const ofKilled = "killed while it credits";
  const killed = await shop.start({
    DATABASE_URL: `${shop.world.url}?application_name=${encodeURIComponent(ofKilled)}`,
  });
  const waiting = () => shop.world.sql`
    select 1 from pg_stat_activity where application_name = ${ofKilled} and query like '%credit_earnings%' and wait_event_type = 'Lock'`;
  await until(async () => (await waiting()).length > 0);
  await killed.kill();
  await locked`commit`;
  locked.release();
  await until(async () => (await earningsOf()).length > before);
  expect((await earningsOf()).map(({ reason }) => reason)).toContain(`Earnings of ${name}`);
  await closeDays();
}

test("the statement, its file and doctor --full agree with the receipts, to the nano-USD", async () => {
  const month = await again();
  const session = await signInTo(shop, acme);
  const { usage } = ok(await session.get(`/statement?month=${MONTH}`));
  expect(usage.totals).toMatchObject({
    requests: month.requests,
    chargedNanoUsd: String(month.retail),
    costNanoUsd: String(month.wholesale),
    earnedNanoUsd: String(month.margin),
  });
  expect(month.retail).toBe(month.wholesale + month.margin);
  const lines = new Map<string, bigint[]>();
  for (const row of usage.rows) {
    const key = `${row.customerId} ${row.modelId}`;
    const [a = 0n, b = 0n, c = 0n] = lines.get(key) ?? [];
    lines.set(key, [a + BigInt(row.chargedNanoUsd), b + BigInt(row.costNanoUsd), c + BigInt(row.earnedNanoUsd)]);
    expect(BigInt(row.earnedNanoUsd) >= 0n).toBe(true);
  }
  expect(lines).toEqual(month.lines as Map<string, bigint[]>);
  const [head = "", ...rows] = (await session.get(`/statement.csv?month=${MONTH}`)).text.trimEnd().split("\r\n");
  const column = head.split(",").indexOf("earned_nano_usd");
  const inFile = rows.filter((row) => row.startsWith("usage,")).map((row) => BigInt(row.split(",")[column] ?? "x"));
  expect(inFile.reduce((sum, each) => sum + each, 0n)).toBe(month.margin);
  expect(await shop.world.unbalanced()).toEqual([]);
  expect(await fullCheck(shop.world)).toEqual(["ok"]);
});

test("the margin of the running month on the reseller's home equals that of the statement and of the receipts", async () => {
  await setClock(DAYS - 1, "23:00");
  const session = await signInTo(shop, acme);
  const home = ok(await session.get("/home/selling")).month;
  const { usage } = ok(await session.get(`/statement?month=${MONTH}`));
  const { margin } = await again();
  expect([home.name, home.earnedNanoUsd, home.marginNanoUsd]).toEqual([MONTH, String(margin), String(margin)]);
  expect(usage.totals.earnedNanoUsd).toBe(home.earnedNanoUsd);
  await time.set(new Date());
});
