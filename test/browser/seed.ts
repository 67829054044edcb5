import { writeFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { issueInvoice } from "../../src/commerce/invoices_store.ts";
import { type DnsServer, deadResolver, startDnsServer } from "../dns_server.ts";
import { mailedTo } from "../panel/mailed_links.ts";
import { PASSWORD, type PanelSession, signInTo } from "../panel/panel_client.ts";
import type { ModelSpec, Person, TestKey } from "../world.ts";
import { ACME_HOST, openPanel, PANEL_HOST, type Panel, until } from "./browser.ts";

/**
 * A shop with some weeks of data: accounts of every role, offerings, keys, orders, a brand, a domain that waits for its records,
 * and real requests through the gateway. Admin actions go through the panel, so that the audit log has them.
 */

/** Where the reseller's customers sign in. */
export const LUMEN_HOST = "ai.lumen.localhost";

const DNS_ZONE = "lumen.example";
const OURS = "203.0.113.7";
const DAY_MS = 86_400_000;
const STEPS_A_DAY = 3;
const STEP_MS = 100 * 60_000;
/** Requests a day of the key "ci", and how many it is asked for. */
const CEILING = 5;
const CI_SENT = 14;
const DAYS_MAX = 28;
/** One of these has afternoon now; charts of a day that has just begun show little. */
const ZONES = [
  "Europe/Berlin",
  "America/New_York",
  "America/Los_Angeles",
  "Pacific/Auckland",
  "Asia/Tokyo",
  "Asia/Kolkata",
];
const AFTERNOON = { from: 14, to: 19 };
const DEVICES = [
  [
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.2 Mobile/15E148 Safari/604.1",
    "203.0.113.40",
  ],
  ["Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "198.51.100.23"],
];

export type Seeded = Awaited<ReturnType<typeof openSeededPanel>>;

/** Opens the panel with this data, from the last `days` days (2 to 28). Without `dns` no resolver answers. */
export async function openSeededPanel({ days, dns = true }: { days: number; dns?: boolean }) {
  if (!(days >= 2 && days <= DAYS_MAX)) throw new RangeError(`days: 2 to ${DAYS_MAX}`);
  const servers = dns ? await dnsServers() : [];
  const resolvers = dns ? servers.map(({ resolver }) => resolver) : [await deadResolver(), await deadResolver()];
  const timeZone = afternoonZone();
  const panel = await openPanel({
    env: {
      BILLING_TIMEZONE: timeZone,
      SERVER_ADDRESSES: OURS,
      DNS_RESOLVERS: resolvers.join(","),
      BRAND_SUPPORT: "help@tollgate.example",
      TRUSTED_PROXIES: "127.0.0.1,::1",
      // Nothing listens there: mail can be asked for, and stays in the outbox.
      SMTP_URL: "smtp://127.0.0.1:1",
      MAIL_FROM: "mail@tollgate.example",
    },
  });
  const close = async () => {
    await panel.close();
    await Promise.all(servers.map((server) => server.stop()));
  };
  try {
    return { panel, timeZone, close, ...(await fill(panel, days)) };
  } catch (error) {
    await close();
    throw error;
  }
}

async function dnsServers(): Promise<DnsServer[]> {
  const records = ["ai A 198.51.100.4", "ai AAAA 2001:db8::1"];
  return Promise.all([startDnsServer({ [DNS_ZONE]: records }), startDnsServer({ [DNS_ZONE]: records })]);
}

function afternoonZone(): string {
  const hourIn = (timeZone: string) =>
    Number(new Intl.DateTimeFormat("en-GB", { hour: "2-digit", hourCycle: "h23", timeZone }).format());
  return ZONES.find((zone) => hourIn(zone) >= AFTERNOON.from && hourIn(zone) <= AFTERNOON.to) ?? "UTC";
}

async function fill(panel: Panel, days: number) {
  const { world } = panel.shop;
  await world.sql`update hosts set host = ${LUMEN_HOST} where host = ${ACME_HOST}`;
  await nameCatalog(panel);
  const people = await addPeople(panel, days);
  const { mara, jonas, priya, tomas, nora, felix } = people;
  const admin = await signInTo(panel.shop, mara, { host: PANEL_HOST });
  const lumen = await signInTo(panel.shop, panel.acme, { host: LUMEN_HOST });
  const say = (session: PanelSession) => (path: string, body: unknown) => done(session.post(path, body));
  const [order, sell] = [say(admin), say(lumen)];
  const offerings = await addOfferings(order);
  await priceOfferings(admin, lumen, offerings);

  await setBack(panel, days * DAY_MS);
  await order(`/people/${panel.acme.accountId}/balance`, topUp(400, "Invoice 2026-114"));
  await order(`/people/${jonas.accountId}/balance`, topUp(25, "Invoice 2026-115"));
  await order(`/people/${priya.accountId}/balance`, topUp(60, "Paid by card, order 88"));
  for (const { accountId } of [jonas, priya]) await done(admin.patch(`/people/${accountId}/payg`, { enabled: true }));
  await order("/allotments", {
    resellerId: panel.acme.accountId,
    offeringId: offerings.starter,
    pieces: 20,
    reason: "Launch offer, first quarter",
  });
  await done(lumen.put("/brand", { name: "Lumen", accent: "#6d28d9", support: "help@lumen.example" }));
  await done(lumen.put("/brand/logo", { theme: "light", image: await logo("#3b1b78") }));
  await done(lumen.put("/brand/logo", { theme: "dark", image: await logo("#ded2ff") }));
  await order(`/people/${tomas.accountId}/packages`, { offeringId: offerings.dayPass, when: "now" });
  await order(`/people/${jonas.accountId}/packages`, { offeringId: offerings.starter, when: "now" });
  await sell(`/people/${nora.accountId}/packages`, {
    offeringId: offerings.starter,
    when: "now",
    payWith: "allotment",
  });
  await sell(`/people/${felix.accountId}/packages`, { offeringId: offerings.pro, when: "now", payWith: "balance" });

  const keys = await addKeys(panel, people);
  await traffic(panel, keys, days);
  const own = await signInTo(panel.shop, jonas, { host: PANEL_HOST });
  await today(panel, keys, own);
  await order(`/people/${jonas.accountId}/packages`, { offeringId: offerings.pro, when: "after" });
  await ordersAndDomains(panel, people, offerings, { lumen, admin });
  await addCard(panel, jonas);
  const vouchers = await addVouchers(panel, people, offerings, lumen);
  await addInvoices(panel, people, lumen);
  await mailAndWebhooks(panel, people);
  await lastTouches(panel, { admin, own, people, keys });
  const [receipt] = await world.sql`
    select request_id from receipts where account_id = ${jonas.accountId} and mode = 'payg' and model_id = 'atlas-large' order by request_id desc limit 1`;
  const emailLink = await waysToSignIn(panel, jonas);
  const receiptId = String(receipt?.request_id);
  return { ...people, offerings, keys, ...vouchers, receiptId, domain: `ai.${DNS_ZONE}`, emailLink };
}

/** Passkeys, one of them copied, and a change of address that waits. Returns the path of the link at the old address. */
async function waysToSignIn({ shop }: Panel, owner: Person): Promise<string> {
  const own = await signInTo(shop, owner, { host: PANEL_HOST });
  const { sql } = shop.world;
  const rows = [
    ["iPhone", PANEL_HOST, true, "3 hours", null],
    ["Key on my desk", PANEL_HOST, false, "9 days", "2 days"],
  ] as const;
  for (const [name, host, synced, used, cloned] of rows)
    await sql`
      insert into passkeys (account_id, host, credential_id, public_key, counter, transports, name, synced, created_at, last_used_at, cloned_at)
      values (${own.accountId}, ${host}, ${Buffer.from(name)}, 'x', 0, '{}', ${name}, ${synced}, now() - interval '12 days',
        now() - ${used}::text::interval, now() - ${cloned}::text::interval)`;
  await done(own.post("/settings/email", { email: "jonas.weber@harbour.example", proof: { password: PASSWORD } }));
  await done(own.post("/sign-out"));
  const [old] = await mailedTo(shop, own);
  return new URL(old?.url ?? "").pathname;
}

/** The JSON of a 200 response. Throws Error for any other. */
async function done(calling: Promise<{ status: number; text: string; json: unknown }>): Promise<unknown> {
  const { status, text, json } = await calling;
  if (status !== 200) throw new Error(`the seed got ${status}: ${text}`);
  return json;
}

type Say = (path: string, body: unknown) => Promise<unknown>;

const topUp = (usd: number, reason: string) => ({ kind: "top_up", amountNanoUsd: `${usd}000000000`, reason });

/** Models with realistic names and prices. */
async function nameCatalog({ shop: { world } }: Panel): Promise<void> {
  const { sql } = world;
  const models = [
    ["atlas-large", "multimodal", 3_000_000, 15_000_000, 200_000],
    ["atlas-mini", "multimodal", 400_000, 1_600_000, 128_000],
    ["quill-2", "text", 1_250_000, 5_000_000, 64_000],
    ["echo-code", "text", 800_000, 3_200_000, 128_000],
    ["atlas-embed", "embedding", 100_000, 0, 8_000],
    ["canvas-1", "image", null, null, null],
  ] as const;
  await sql`update providers set name = 'Northwind Inference' where name = 'first'`;
  await sql`update providers set name = 'Fabrikam Models' where name = 'second'`;
  const [first, _second] = await sql`select id from providers order by id`;
  await sql`delete from routes`;
  await sql`delete from image_prices`;
  await sql`delete from models`;
  const [near, far] = ["Northwind Inference", "Fabrikam Models"] as const;
  await world.addModels(
    ...models.map(
      ([id, modality, inputMicroUsd, outputMicroUsd, contextLength]): ModelSpec => ({
        ...{ id, modality, inputMicroUsd, outputMicroUsd, contextLength, ownedBy: id.split("-")[0] ?? id },
        defaultCapTokens: 1000,
        routes: [
          { provider: near, upstreamModel: id },
          ...(inputMicroUsd === null ? [] : [{ provider: far, upstreamModel: `${id}-eu` }]),
        ],
        imagePrices:
          modality === "image"
            ? { "512x512": 18_000, "1024x1024": 40_000, "1024x1536": 60_000, "1536x1024": 60_000 }
            : {},
      }),
    ),
  );
  const above128k = { above_input_tokens: 128_000, input: 6_000_000, output: 22_500_000, cached_input: 600_000 };
  await sql`update models set cached_input_micro_usd = 300000,
    further_prices = ${sql.json({ cache_write: 3_750_000, tiers: [above128k] })} where id = 'atlas-large'`;
  await sql`
    insert into provider_keys (provider_id, name, key_ciphertext, weight, state, why, since, until, failures, probed_at)
    select provider_id, 'team B', key_ciphertext, 2, 'quarantined', 'no_credit', now() - interval '9 minutes',
      now() + interval '4 minutes', 4, now() - interval '1 minute'
    from provider_keys where provider_id = ${first?.id}
    union all
    select provider_id, 'batch', key_ciphertext, 1, 'active', null, now(), null, 0, null from provider_keys where provider_id = ${first?.id}`;
  await sql`
    insert into provider_key_pauses (key_id, model, since, until)
    select id, 'quill-2', now() - interval '20 seconds', now() + interval '40 minutes' from provider_keys where name = 'batch'`;
}

async function addPeople({ shop: { world }, acme }: Panel, days: number) {
  const age = `${days} days`;
  const named = async (person: Person, name: string, email: string): Promise<Person> => {
    await world.sql`update accounts set name = ${name}, email = ${email}, created_at = now() - ${age}::text::interval,
      password_hash = 'not needed yet' where id = ${person.accountId}`;
    return person;
  };
  const customer = (name: string, email: string, reseller?: Person) =>
    world.addCustomer(reseller?.accountId).then((person) => named(person, name, email));
  await named(acme, "Lumen Studio", "hello@lumen.example");
  return {
    mara: await named(await world.addAdmin(), "Mara Lindqvist", "mara@tollgate.example"),
    jonas: await customer("Jonas Weber", "jonas@weber.example"),
    priya: await customer("Priya Raman", "priya@ramanlabs.example"),
    tomas: await customer("Tomás Ruiz", "tomas@ruiz.example"),
    harbour: await customer("Old Harbour Books", "office@oldharbour.example"),
    nora: await customer("Nora Blum", "nora@blum.example", acme),
    felix: await customer("Felix Hartmann Design", "studio@fhdesign.example", acme),
    agnes: await customer("Agnès Moreau", "agnes@moreau.example", acme),
  };
}

async function addOfferings(order: Say) {
  const add = async (wanted: object) => {
    const made = await order("/admin/offerings", wanted);
    if (typeof made !== "object" || made === null || !("offeringId" in made)) throw new Error("no offering was made");
    return Number(made.offeringId);
  };
  return {
    dayPass: await add({ name: "Day pass", kind: "daily", dailyLimit: 500, wholesaleNanoUsd: "500000000" }),
    starter: await add({
      name: "Starter",
      kind: "custom",
      days: 30,
      dailyLimit: 60,
      carryover: true,
      wholesaleNanoUsd: "12000000000",
    }),
    pro: await add({
      name: "Pro",
      kind: "custom",
      days: 30,
      dailyLimit: 2000,
      tokenLimit: 20_000_000,
      wholesaleNanoUsd: "45000000000",
    }),
    code: await add({
      name: "Code only, a week",
      kind: "custom",
      days: 7,
      dailyLimit: 100,
      modelIds: ["echo-code"],
      wholesaleNanoUsd: "3500000000",
    }),
  };
}

/** The operator's prices, and a reseller's: one of them is below wholesale. */
async function priceOfferings(admin: PanelSession, lumen: PanelSession, { dayPass, starter, pro, code }: Offerings) {
  const price = (session: PanelSession, id: number, usd: number, belowWholesale = false) =>
    done(session.put(`/prices/${id}`, { priceNano: `${usd}000000000`, belowWholesale }));
  await price(admin, dayPass, 1);
  await price(admin, starter, 19);
  await price(admin, pro, 79);
  await price(lumen, starter, 24);
  await price(lumen, dayPass, 2);
  await price(lumen, pro, 39, true);
  await price(lumen, code, 5);
  await done(lumen.patch("/prices", { pricesPublic: true }));
}

type Named = TestKey & { host: string };
type People = Awaited<ReturnType<typeof addPeople>>;

async function addKeys({ shop: { world } }: Panel, { jonas, priya, nora, felix }: People) {
  const add = async (
    person: Person,
    name: string,
    spec: Parameters<typeof world.addKey>[1] = {},
    host = PANEL_HOST,
  ): Promise<Named> => {
    const key = await world.addKey(person, spec);
    await world.sql`update keys set name = ${name}, created_at = ledger_now() where id = ${key.keyId}`;
    return { ...key, host: host === PANEL_HOST ? "api.localhost" : host };
  };
  const inThreeWeeks = new Date(Date.now() + 21 * DAY_MS).toISOString();
  return {
    website: await add(jonas, "website"),
    ci: await add(jonas, "ci"),
    notebook: await add(jonas, "notebook", { mode: "payg", expiresAt: inThreeWeeks }),
    laptop: await add(jonas, "old laptop", { modelIds: ["atlas-mini", "quill-2"] }),
    prototype: await add(jonas, "prototype", { hosts: ["api.localhost"] }),
    lab: await add(priya, "lab server", { mode: "payg" }),
    shop: await add(nora, "shop assistant", {}, LUMEN_HOST),
    layouts: await add(felix, "layouts", {}, LUMEN_HOST),
  };
}

type Keys = Awaited<ReturnType<typeof addKeys>>;

/** Sets the ledger's clock back by `ms`; it keeps running. */
async function setBack({ shop: { world } }: Panel, ms: number): Promise<void> {
  await world.sql.unsafe(
    `create or replace function ledger_now() returns timestamptz language sql volatile as
     $$ select clock_timestamp() - interval '${Math.round(ms)} milliseconds' $$`,
  );
}

/** Requests in a few bursts a day, fewer at weekends, served by a replica whose clock is set back too. */
async function traffic(panel: Panel, keys: Keys, days: number): Promise<void> {
  const { shop } = panel;
  const random = numbers(7);
  const clockFile = join(shop.world.spoolDir, "clock");
  // The earliest time first, since request ids only increase.
  writeFileSync(clockFile, String(days * DAY_MS));
  const preload = `--preload=${join(import.meta.dirname, "moved_clock.ts")}`;
  const past = await shop.start({ CLOCK_BACK_FILE: clockFile, BUN_OPTIONS: preload, PORT: "0" });
  for (let ago = days - 1; ago >= 0; ago--) {
    const weekday = new Date(Date.now() - ago * DAY_MS).getUTCDay();
    const busy = weekday === 0 || weekday === 6 ? 0.35 : 1;
    for (let step = 0; step < STEPS_A_DAY; step++) {
      const backMs = ago * DAY_MS + (STEPS_A_DAY - step) * STEP_MS;
      await setBack(panel, backMs);
      writeFileSync(clockFile, String(backMs));
      const often = (key: Named, most: number) => Array.from({ length: Math.round(most * busy * random()) }, () => key);
      const callers = [
        ...often(keys.website, 14),
        // Its requests of today follow in `today`: a limit also counts what was used before it was set.
        ...often(keys.ci, ago === 0 ? 0 : 8),
        ...often(keys.notebook, 4),
        ...often(keys.lab, 6),
        ...often(keys.shop, 8),
        ...often(keys.layouts, 10),
      ];
      await Promise.all(callers.map((key) => chat(panel, key, { random, origin: past.origin })));
    }
  }
  await past.stop();
  await shop.world.setClock(null);
}

/** Requests of today: also an image, a failure of both providers, and a key limit that is reached. */
async function today(panel: Panel, keys: Keys, own: PanelSession): Promise<void> {
  const random = numbers(11);
  const { shop } = panel;
  for (const key of [keys.website, keys.lab, keys.shop, keys.layouts, keys.notebook, keys.website, keys.notebook]) {
    await chat(panel, key, { random });
  }
  shop.provider.next({ status: 500 });
  shop.second.next({ status: 500 });
  await chat(panel, keys.website, { random, isRefused: true });
  const image = { model: "canvas-1", prompt: "A toll gate at dawn", size: "1024x1024" };
  await shop.call("/v1/images/generations", { secret: keys.website.secret, body: image, host: keys.website.host });
  await done(own.patch(`/keys/${keys.ci.keyId}`, { dailyUnitsMax: CEILING }));
  for (let sent = 0; sent < CI_SENT; sent++) await chat(panel, keys.ci, { random, isRefused: sent >= CEILING });
  // Replicas write errors some seconds later. A page that is opened in between would have other figures than the database.
  await until("the errors are counted", async () => {
    const [row] = await shop.world
      .sql`select sum(requests)::int as errors from error_sums where account_id = 0 and span = 1440`;
    return row?.errors === 1 + CI_SENT - CEILING;
  });
}

const ASKED = [
  ["atlas-large", "Summarise the minutes of Tuesday's meeting in five lines."],
  ["atlas-mini", "Is this review friendly or not? Answer with one word."],
  ["quill-2", "Write a product text for a blue enamel teapot."],
  ["echo-code", "Find the bug in this SQL join."],
] as const;

async function chat(
  { shop }: Panel,
  { secret, host }: Named,
  { random, origin = shop.origin, isRefused = false }: { random: () => number; origin?: string; isRefused?: boolean },
): Promise<void> {
  const [model, content] = ASKED[Math.floor(random() ** 1.6 * ASKED.length)] ?? ASKED[0];
  const body = {
    model,
    messages: [
      {
        role: "user",
        content: `${content} ${"The gate is open, the road is long. ".repeat(Math.floor(random() ** 3 * 900))}`,
      },
    ],
    max_tokens: 40 + Math.floor(random() ** 2 * 2_500),
  };
  const { status, text } = await shop.chat(secret, body, { host, origin });
  if ((status !== 200) !== isRefused) throw new Error(`the seed's chat got ${status}: ${text}`);
}

/** Pseudo-random numbers from 0 to 1, the same in every run. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** A card on file, an active package that renews from it, and automatic top-ups. */
async function addCard({ shop: { world } }: Panel, { accountId }: Person): Promise<void> {
  await world.sql`
    insert into cards (account_id, seller_id, customer_id, payment_method_id, brand, last_four, expires_month, expires_year)
    values (${accountId}, 0, 'cus_1', 'pm_1', 'visa', '4242', 4, 2031)`;
  await world.sql`
    insert into auto_top_ups (account_id, below_nano_usd, amount_nano_usd, month_max_nano_usd, told_nano)
    values (${accountId}, 5000000000, 20000000000, 100000000000, 20000000000)`;
  await world.sql`
    insert into renewals (package_id, account_id, source)
    select id, account_id, 'card' from packages where account_id = ${accountId} order by starts_at limit 1`;
}

type Offerings = Awaited<ReturnType<typeof addOfferings>>;

async function ordersAndDomains(
  { shop }: Panel,
  { nora, felix, agnes, jonas }: People,
  { starter, pro, code }: Offerings,
  { lumen, admin }: { lumen: PanelSession; admin: PanelSession },
): Promise<void> {
  const ask = async (person: Person, host: string, body: object) => {
    const session = await signInTo(shop, person, { host });
    return done(session.post("/orders", body));
  };
  await ask(nora, LUMEN_HOST, { kind: "top_up", amountNanoUsd: "20000000000", note: "For the December campaign." });
  await ask(felix, LUMEN_HOST, { kind: "package", offeringId: code, note: null });
  await ask(agnes, LUMEN_HOST, { kind: "package", offeringId: starter, note: "From Monday, please." });
  await ask(jonas, PANEL_HOST, { kind: "package", offeringId: pro, note: "We launch in January." });
  const [first] = await shop.world.sql`select id from orders order by id`;
  await done(lumen.post(`/orders/${first?.id}/fulfil`, {}));
  const payHere = "Transfer to IBAN DE02 1203 0000 0000 2020 51, Lumen GmbH.\nWe see it within a working day.";
  await done(lumen.put("/payment-settings/instructions", { instructions: payHere }));
  await done(lumen.put("/payment-settings/shop", { shopUrl: "https://shop.lumen.example/pay" }));
  await done(admin.put("/payment-settings/instructions", { instructions: payHere.replace("Lumen GmbH", "Tollgate") }));
  await done(lumen.post("/domains", { host: `ai.${DNS_ZONE}` }));
  await done(lumen.post("/people", { email: "oskar@berg.example", name: "Oskar Berg" }));
  await done(admin.post("/people", { email: "lin@workshop.example", name: "Lin's Workshop", role: "reseller" }));
}

/** Three batches of a reseller: one in use, one that cannot be paid, one disabled; and somebody who guesses. */
async function addVouchers(
  { shop }: Panel,
  { nora, felix, agnes }: People,
  { starter }: Offerings,
  lumen: PanelSession,
): Promise<{ voucherBatchId: number }> {
  const endsAt = new Date(Date.now() + 60 * DAY_MS).toISOString();
  const make = async (batch: object) => {
    const made = await lumen.post("/vouchers", { codes: 50, usesPerCode: 1, endsAt, ...batch });
    const codes = String(made.json.csv).split("\r\n").slice(1);
    return { batchId: Number(made.json.batch.batchId), codes: codes.map((row) => String(row.split(",")[1])) };
  };
  const fair = await make({ name: "Autumn fair", amountNanoUsd: "10000000000" });
  const old = await make({ name: "Misprinted flyer", amountNanoUsd: "5000000000" });
  const big = await make({ name: "Partner programme", amountNanoUsd: "5000000000000", codes: 3 });
  await make({ name: "Newsletter, two weeks of Starter", offeringId: starter, payWith: "allotment", codes: 200 });
  await done(lumen.post(`/vouchers/${old.batchId}/disable`));
  const sessions = await Promise.all(
    [nora, felix, agnes].map((person) => signInTo(shop, person, { host: LUMEN_HOST })),
  );
  for (const [i, session] of sessions.entries()) await done(session.post("/vouchers/redeem", { code: fair.codes[i] }));
  await sessions[0]?.post("/vouchers/redeem", { code: big.codes[0] });
  for (let i = 0; i < 6; i++) await sessions[2]?.post("/vouchers/redeem", { code: `${i}`.repeat(20) });
  return { voucherBatchId: fair.batchId };
}

/** Invoices of the operator and of a reseller, and a refund. */
async function addInvoices({ shop }: Panel, { nora, jonas }: People, lumen: PanelSession): Promise<void> {
  await done(
    lumen.put("/seller/invoice-details", {
      name: "Lumen Inference GmbH",
      address: "Torstraße 12\n10119 Berlin\nGermany",
      taxLine: "VAT ID DE123456789",
    }),
  );
  const db = shop.world.openDb();
  const issue = (invoice: Parameters<typeof issueInvoice>[1]) => db.orm.transaction((tx) => issueInvoice(tx, invoice));
  const sellerId = lumen.accountId;
  const line = { text: "Starter: 500 requests a day for 7 days", quantity: 1, amountNano: 19_000_000_000n };
  const topUpLine = { text: "Top-up of the balance", quantity: 1, amountNano: 50_000_000_000n };
  const of = (accountId: number, orderId: number) => ({
    ...{ sellerId, accountId, orderId, kind: "invoice" as const },
    ...{ currency: "usd", tax: null, taxNano: 0n },
  });
  await issue({ ...of(nora.accountId, 501), lines: [line, topUpLine] });
  await issue({ ...of(nora.accountId, 502), lines: [line] });
  await issue({ ...of(nora.accountId, 502), kind: "credit_note", lines: [line] });
  await issue({ ...of(jonas.accountId, 503), sellerId: 0, lines: [topUpLine] });
  await issue({ ...of(jonas.accountId, 504), sellerId: 0, lines: [line] });
  await db.close();
}
/** A mail server that never answers, what was sent by it, and an endpoint with its calls. Nothing is due before the pictures are taken. */
async function mailAndWebhooks({ shop: { world }, acme }: Panel, { jonas, nora, felix }: People): Promise<void> {
  const { sql } = world;
  await sql`
    insert into mail_servers (reseller_id, host, port, user_name, smtp_password_ciphertext, from_address, from_name)
    values (${acme.accountId}, 'mail.lumen.example', 587, 'lumen', ${Buffer.from("x")}, 'hello@lumen.example', 'Lumen')`;
  await sql`
    insert into sign_up_settings (seller_id, is_open, terms_url, privacy_url, trial_offering_id, forbidden_domains)
    select ${acme.accountId}, true, 'https://lumen.example/terms', 'https://lumen.example/privacy', id, '{rival.example}'
    from offerings where name = 'Starter'`;
  await sql`
    insert into signed_up (account_id, seller_id, terms_url, privacy_url, accepted_at, person_digest, trial, trial_offering_id, trial_pay_with)
    select ${nora.accountId}, ${acme.accountId}, 'https://lumen.example/terms', 'https://lumen.example/privacy', now() - interval '5 days', '\\x00', 'given', id, 'balance'
    from offerings where name = 'Starter'`;
  const [endpoint] = await sql`
    insert into webhook_endpoints (account_id, url, kinds, secret_ciphertext)
    values (${jonas.accountId}, 'https://jonas-weber.example/hooks/gateway', '{balance_low,package_80_percent,package_used_up,order_paid}', ${Buffer.from("x")}),
      (${jonas.accountId}, 'https://chat.example/T024/B81/alerts', '{package_ending}', ${Buffer.from("x")}) returning id`;
  const sent = async (
    { accountId }: Person,
    { kind, tenantId = 0, status, attempts = 1, error = null, endpointId = null }: Sent,
  ) => {
    const address =
      endpointId === null ? sql`(select email from accounts where id = ${accountId})` : sql`${String(endpointId)}`;
    const [delivery] = await sql`
      with message as (
        insert into outbox_messages (kind, account_id, data, routed_at) values (${kind}, ${accountId}, '{}', now()) returning id
      ),
      recipient as (
        insert into outbox_recipients (tenant_id, account_id, channel, address, next_at)
        select ${tenantId}, ${accountId}, ${endpointId === null ? "mail" : "webhook"}, ${address}, ${status === "waiting" ? sql`now() + interval '25 minutes'` : null}
        on conflict (tenant_id, channel, address) do update set next_at = coalesce(excluded.next_at, outbox_recipients.next_at) returning id
      )
      insert into outbox_deliveries (message_id, recipient_id, account_id, tenant_id, endpoint_id, status, attempts, error, created_at, deadline_at, ended_at)
      select message.id, recipient.id, ${accountId}, ${tenantId}, ${endpointId}, ${status}, ${attempts}, ${error},
        now() - interval '3 hours', now() + interval '2 days', ${status === "waiting" ? null : sql`now() - interval '3 hours'`}
      from message, recipient returning id`;
    await sql`
      insert into outbox_attempts (delivery_id, at, took_ms, ok, status, answer)
      values (${delivery?.id}, now() - interval '3 hours', 184, ${status === "sent"}, ${status === "sent" ? 200 : 503}, ${error ?? "ok"})`;
  };
  const tenantId = acme.accountId;
  await sent(nora, { kind: "order_fulfilled", tenantId, status: "sent" });
  await sent(nora, {
    kind: "package_ending",
    tenantId,
    status: "waiting",
    attempts: 4,
    error: "Connection refused by mail.lumen.example",
  });
  await sent(felix, { kind: "package_80_percent", tenantId, status: "failed", error: "550 5.1.1 No such user here" });
  await sent(jonas, { kind: "package_assigned", status: "sent" });
  const endpointId = Number(endpoint?.id);
  await sent(jonas, { kind: "package_80_percent", status: "sent", endpointId });
  await sent(jonas, { kind: "balance_low", status: "failed", attempts: 9, error: "upstream is down", endpointId });
}

type Sent = {
  kind: string;
  tenantId?: number;
  status: "sent" | "waiting" | "failed";
  attempts?: number;
  error?: string | null;
  endpointId?: number | null;
};

/** A disabled key, a revoked key, devices, a suspended account, a changed price, and a check of the books. */
async function lastTouches(
  { shop }: Panel,
  {
    admin,
    own,
    people: { harbour, jonas },
    keys,
  }: { admin: PanelSession; own: PanelSession; people: People; keys: Keys },
): Promise<void> {
  await done(
    own.patch(`/keys/${keys.notebook.keyId}`, {
      dailySpendMaxNanoUsd: "2000000000",
      monthlySpendMaxNanoUsd: "25000000000",
    }),
  );
  await done(own.post(`/keys/${keys.laptop.keyId}/disable`));
  await done(own.post(`/keys/${keys.prototype.keyId}/revoke`));
  await done(admin.post(`/people/${harbour.accountId}/suspend`));
  const prices = { inputMicroUsd: 1_100_000, cachedInputMicroUsd: null, outputMicroUsd: 4_400_000 };
  await done(admin.put("/admin/model/prices?id=quill-2", { prices }));
  await done(admin.post("/admin/books/check"));
  await shop.world.sql`
    insert into book_sums (kind, id, day, tokens, rows)
    select 'unpriced_audio_input', max(id), (now() at time zone 'UTC')::date, 1840, 12 from price_versions where model_id = 'atlas-mini'`;
  await done(
    admin.patch(`/people/${jonas.accountId}/limits`, {
      limits: { requestsPerMinute: 600, tokensPerMinute: 2_000_000, requestsAtOnce: 40, models: {} },
    }),
  );
  // A month of calls, of which a few failed on three days.
  await shop.world.sql`
    insert into route_stats (route_id, kind, span, begins, requests, errors, input_tokens, cached_tokens, cost_nano_usd, priced_nano_usd, durations)
    select id, 'stream', 1440, date_trunc('day', now(), 'UTC') - make_interval(days => ago), 4000,
      case ago when 4 then 27 when 11 then 212 when 19 then 3 else 0 end, 0, 0, 0, 0,
      array_fill(0, array[24]) || array[1400, 1900, 600, 90, 10]
    from generate_series(1, 29) as ago, (select min(id) as id from routes where model_id = 'atlas-large') r
    on conflict (route_id, span, begins, kind) do nothing`;
  await statusOfDays(shop);
  // The seed's own sessions and changes must not be visible.
  await shop.world.sql`delete from sessions`;
  await shop.world.sql`delete from audit_entries where actor_id is null`;
  for (const [agent = "", address = ""] of DEVICES) {
    const headers = { origin: `http://${PANEL_HOST}`, "user-agent": agent, "x-forwarded-for": address };
    const body = { email: own.email, password: PASSWORD };
    await done(shop.call("/api/panel/sign-in", { host: PANEL_HOST, body, headers }));
  }
}

/** Three months of answers, a few bad days, an incident that is over, and maintenance that Lumen has planned. */
async function statusOfDays({ world: { sql } }: Panel["shop"]): Promise<void> {
  await sql`
    insert into answer_sums (component, span, begins, answered, failed)
    select c.component, 1440, date_trunc('day', now(), 'UTC') - make_interval(days => ago), 4000 - f.failed, f.failed
    from (select 'api' as component, 1 as place union all select 'panel', 2
        union all select 'model:' || id, 2 + row_number() over (order by id) from models) as c,
      generate_series(1, 80) as ago,
      lateral (select case when ago = 11 and c.place % 2 = 1 then 212 when (ago + c.place) % 29 = 4 then 61 else 0 end as failed) as f
    on conflict (component, span, begins) do nothing`;
  const [over] = await sql`
    insert into incidents (seller_id, kind, title, impact, status, components, begins_at, ends_at)
    values (0, 'incident', 'Slow answers of Atlas', 'degraded', 'resolved', '{model:atlas-large,model:atlas-mini}',
      now() - interval '11 days 3 hours', now() - interval '11 days') returning id`;
  await sql`
    insert into incident_updates (incident_id, status, body, created_at)
    values (${over?.id}, 'investigating', 'Answers of both models begin late. We are looking for the cause.', now() - interval '11 days 3 hours'),
      (${over?.id}, 'resolved', 'One of our connections was overloaded. Requests take another one now.', now() - interval '11 days')`;
  const [planned] = await sql`
    insert into incidents (seller_id, kind, title, components, begins_at, ends_at)
    select reseller_id, 'maintenance', 'Upgrade of the database', '{api,panel}', now() + interval '3 days', now() + interval '3 days 1 hour'
    from hosts where host = ${LUMEN_HOST} returning id`;
  await sql`
    insert into incident_updates (incident_id, body) values (${planned?.id}, 'The API and the panel are away for a minute or two within this hour.')`;
}

/** A drawn logo in one colour. */
async function logo(colour: string): Promise<string> {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="360" height="96" viewBox="0 0 360 96">
    <circle cx="48" cy="48" r="30" fill="none" stroke="${colour}" stroke-width="10"/>
    <circle cx="48" cy="48" r="9" fill="${colour}"/>
    <path d="M112 22v52h30M158 40v20q0 14 14 14t14-14V40v34M206 74V52q0-12 10-12t10 12v22V52q0-12 10-12t10 12v22M262 58h28q0-18-14-18t-14 17 15 17q8 0 12-5M308 74V40v12q2-12 13-12t12 12v22"
      fill="none" stroke="${colour}" stroke-width="9" stroke-linecap="round" stroke-linejoin="round"/></svg>`;
  return (await sharp(Buffer.from(svg)).png().toBuffer()).toString("base64");
}
