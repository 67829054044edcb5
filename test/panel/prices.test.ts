import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import type { Person } from "../world.ts";
import { ok, PANEL, type PanelSession, signInTo } from "./panel_client.ts";

/** Source: RTL-1, RTL-2, RTL-3, RTL-4, RTL-5, RTL-6, RTL-7, RTL-8, RTL-9. */

const ACME = "ai.acme.test";
const OTHER = "ai.other.test";
const USD = 1_000_000_000;

let shop: Shop;
let acme: PanelSession;
let other: PanelSession;
let admin: PanelSession;
/** A customer of acme, of the other reseller, and of the operator. */
let mine: PanelSession;
let theirs: PanelSession;
let house: PanelSession;
let starter: number;
let pro: number;

beforeAll(async () => {
  shop = await openShop();
  const { world } = shop;
  const [one, two] = [await world.addReseller(ACME), await world.addReseller(OTHER)];
  acme = await signInTo(shop, one, { host: ACME });
  other = await signInTo(shop, two, { host: OTHER });
  admin = await signInTo(shop, await world.addAdmin());
  mine = await signInTo(shop, await world.addCustomer(one.accountId), { host: ACME });
  theirs = await signInTo(shop, await world.addCustomer(two.accountId), { host: OTHER });
  house = await signInTo(shop, await world.addCustomer());
  starter = await world.addOffering({ wholesaleNanoUsd: 12_000_000_000n });
  pro = await world.addOffering({ wholesaleNanoUsd: 45_000_000_000n });
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

type Offered = { offeringId: number; priceNano: string | null; wholesaleNanoUsd: string | null };
const offered = async (session: PanelSession): Promise<[number, string | null][]> =>
  ok(await session.get("/offerings"))
    .offerings.map(({ offeringId, priceNano }: Offered) => [offeringId, priceNano])
    .sort();
const usd = (dollars: number) => String(Math.round(dollars * 100) * (USD / 100));
const price = (session: PanelSession, id: number | string, body: object) => session.put(`/prices/${id}`, body);
const prices = () =>
  shop.world.sql`select seller_id::int, offering_id::int, price_nano::text from retail_prices order by 1, 2`;

describe("the price of an offering", () => {
  test("customers of a seller without prices see every offering on sale without a price, and can ask for one", async () => {
    expect(await offered(mine)).toEqual([
      [starter, null],
      [pro, null],
    ]);
    const { order } = ok(await mine.post("/orders", { kind: "package", offeringId: pro, note: null }));
    ok(await mine.post(`/orders/${order.orderId}/withdraw`));
  });

  test("a customer sees only its own seller's prices; a reseller sees the wholesale prices", async () => {
    ok(await price(acme, starter, { priceNano: usd(24) }));
    ok(await price(admin, starter, { priceNano: usd(19) }));
    ok(await price(admin, pro, { priceNano: usd(79) }));
    expect(await offered(mine)).toEqual([[starter, usd(24)]]);
    expect(await offered(theirs)).toEqual([
      [starter, null],
      [pro, null],
    ]);
    expect(await offered(house)).toEqual([
      [starter, usd(19)],
      [pro, usd(79)],
    ]);
    expect(await offered(acme)).toEqual([
      [starter, usd(12)],
      [pro, usd(45)],
    ]);
    const rows = ok(await mine.get("/offerings")).offerings;
    expect(rows.map(({ wholesaleNanoUsd }: Offered) => wholesaleNanoUsd)).toEqual([null]);
  });

  test("a customer cannot order an offering that its seller has not priced", async () => {
    const { status, json } = await mine.post("/orders", { kind: "package", offeringId: pro, note: null });
    expect([status, json.error.code, json.error.param]).toEqual([422, "validation_failed", "offeringId"]);
    const orders = await shop.world.sql`select 1 from orders where status = 'open'`;
    expect(orders.length).toBe(0);
  });

  test("a seller sees only its own prices, with its margin", async () => {
    const row = (session: PanelSession) =>
      session
        .get("/prices")
        .then((answer) => ok(answer).offerings.find((each: Offered) => each.offeringId === starter));
    expect(await row(acme)).toMatchObject({
      wholesaleNanoUsd: usd(12),
      priceNano: usd(24),
      marginNanoUsd: usd(12),
      belowWholesaleConfirmed: false,
    });
    expect(await row(other)).toMatchObject({ priceNano: null, marginNanoUsd: null });
    expect((await mine.get("/prices")).status).toBe(404);
  });

  test("a seller can remove only its own price", async () => {
    expect((await other.delete(`/prices/${starter}`)).status).toBe(404);
    expect(await offered(mine)).toEqual([[starter, usd(24)]]);
    ok(await acme.delete(`/prices/${starter}`));
    expect((await offered(mine)).length).toBe(2);
    ok(await price(acme, starter, { priceNano: usd(24) }));
  });

  test("an offering that is off sale is shown to no customer, and keeps its price", async () => {
    ok(await admin.patch(`/admin/offerings/${starter}`, { enabled: false }));
    expect((await offered(house)).map(([id]) => id)).toEqual([pro]);
    ok(await admin.patch(`/admin/offerings/${starter}`, { enabled: true }));
    expect(await offered(mine)).toEqual([[starter, usd(24)]]);
  });
});

describe("a price below wholesale", () => {
  test("is refused unless it is confirmed, also outside the panel", async () => {
    const { status, json } = await price(acme, pro, { priceNano: usd(44.99) });
    expect([status, json.error.param]).toEqual([422, "belowWholesale"]);
    const { sql } = shop.world;
    const written = sql`insert into retail_prices (seller_id, offering_id, price_nano) values (${acme.accountId}, ${pro}, ${usd(1)})`;
    expect(await written.then(String, ({ code }) => code)).toBe("23514");
    expect(ok(await price(acme, pro, { priceNano: usd(45) })).belowWholesaleConfirmed).toBe(false);
    expect(ok(await price(acme, pro, { priceNano: usd(39), belowWholesale: true }))).toEqual({
      offeringId: pro,
      priceNano: usd(39),
      currency: "usd",
      belowWholesaleConfirmed: true,
    });
  });

  test("needs a confirmation of its own, which is in the audit log", async () => {
    ok(await price(acme, pro, { priceNano: usd(50), belowWholesale: true }));
    expect((await price(acme, pro, { priceNano: usd(40) })).status).toBe(422);
    const { entries } = (await admin.get("/audit?subject=retail_prices")).json;
    const confirmed = entries.find(({ after }: { after: object }) => "below_wholesale_confirmed" in after);
    expect(confirmed).toMatchObject({ actor: { accountId: acme.accountId }, account: { accountId: acme.accountId } });
    ok(await acme.delete(`/prices/${pro}`));
  });

  test("stays, marked as not confirmed, if the wholesale price is raised later", async () => {
    const { sql } = shop.world;
    await sql`update offerings set wholesale_nano_usd = ${usd(30)} where id = ${starter}`;
    const row = ok(await acme.get("/prices")).offerings.find((each: Offered) => each.offeringId === starter);
    expect(row).toMatchObject({ marginNanoUsd: `-${usd(6)}`, belowWholesaleConfirmed: false });
    await sql`update offerings set wholesale_nano_usd = ${usd(12)} where id = ${starter}`;
  });
});

describe("bad input changes nothing and names its field", () => {
  const cases: [string, () => unknown, string | null][] = [
    ["zero", () => ({ priceNano: "0" }), "priceNano"],
    ["a negative price", () => ({ priceNano: "-1000000000" }), "priceNano"],
    ["a fraction of a cent", () => ({ priceNano: "24000000001" }), "priceNano"],
    ["half a cent", () => ({ priceNano: "5000000" }), "priceNano"],
    ["a cent too much", () => ({ priceNano: "9000000010000000" }), "priceNano"],
    ["beyond any number", () => ({ priceNano: "9".repeat(400) }), "priceNano"],
    ["a number instead of digits", () => ({ priceNano: 24_000_000_000 }), "priceNano"],
    ["dollars", () => ({ priceNano: "24.00" }), "priceNano"],
    ["another currency", () => ({ priceNano: usd(24), currency: "EUR" }), "currency"],
    ["another seller", () => ({ priceNano: usd(24), sellerId: 0 }), "sellerId"],
    ["no price", () => ({}), "priceNano"],
    ["a confirmation that is no boolean", () => ({ priceNano: usd(24), belowWholesale: "yes" }), "belowWholesale"],
  ];
  for (const [what, body, param] of cases) {
    test(what, async () => {
      const before = await prices();
      const { status, json } = await price(acme, starter, body() as object);
      expect([status, json.error.code, json.error.param]).toEqual([422, "validation_failed", param]);
      expect(await prices()).toEqual(before);
    });
  }

  test("an unknown offering, and an id out of range", async () => {
    const unknown = await price(acme, 999_999, { priceNano: usd(24) });
    expect([unknown.status, unknown.json.error.param]).toEqual([422, "offeringId"]);
    for (const id of ["0", "-1", "abc", "99999999999999999999"])
      expect((await price(acme, id, { priceNano: usd(24) })).status).toBe(404);
  });

  test("an offering and its retail price are added together, or not at all", async () => {
    const wanted = { name: "Together", kind: "custom", dailyLimit: 5, wholesaleNanoUsd: usd(5) };
    expect((await admin.post("/admin/offerings", { ...wanted, priceNano: usd(4) })).json.error.param).toBe(
      "belowWholesale",
    );
    const halfCent = await admin.post("/admin/offerings", { ...wanted, priceNano: "6005000000" });
    expectRefusal(halfCent, "validation_failed", { param: "priceNano" });
    expect((await shop.world.sql`select 1 from offerings where name = 'Together'`).length).toBe(0);
    const { offeringId } = ok(await admin.post("/admin/offerings", { ...wanted, priceNano: usd(6) }));
    const row = ok(await admin.get("/admin/offerings")).offerings.find(
      (each: Offered) => each.offeringId === offeringId,
    );
    expect(row.priceNano).toBe(usd(6));
    ok(await admin.patch(`/admin/offerings/${offeringId}`, { enabled: false }));
  });

  test("50 concurrent changes of one price leave the price of one of them", async () => {
    const all = Array.from({ length: 50 }, (_, i) => price(acme, starter, { priceNano: usd(24 + i) }));
    for (const answer of await Promise.all(all)) expect([200, 409, 503]).toContain(answer.status);
    const rows = await shop.world
      .sql`select 1 from retail_prices where seller_id = ${acme.accountId} and offering_id = ${starter}`;
    expect(rows.length).toBe(1);
    ok(await price(acme, starter, { priceNano: usd(24) }));
  });
});

describe("models and their prices", () => {
  const anonymous = (host: string) => shop.call("/api/panel/model-prices", { host });

  test("need a session unless the host's seller made them public", async () => {
    expect((await anonymous(ACME)).json.error.code).toBe("session_required");
    ok(await acme.patch("/prices", { pricesPublic: true }));
    const { models } = ok(await anonymous(ACME));
    expect(models.find(({ id }: { id: string }) => id === "chat-a").prices.tiers[0]).toMatchObject({
      inputPicoUsd: "3000000000000",
      outputPicoUsd: "15000000000000",
    });
    expect((await anonymous(OTHER)).status).toBe(401);
    expect((await anonymous(PANEL)).status).toBe(401);
    ok(await acme.patch("/prices", { pricesPublic: false }));
    expect((await anonymous(ACME)).status).toBe(401);
    expect((await mine.get("/model-prices")).status).toBe(200);
  });

  test("have a rate limit by address without a session; another address and a session are served", async () => {
    const origin = (await shop.start({ REDIS_URL: "", RATE_PER_MINUTE: "5", TRUSTED_PROXIES: "127.0.0.1,::1" })).origin;
    ok(await acme.patch("/prices", { pricesPublic: true }));
    const from = (address: string) =>
      shop.call("/api/panel/model-prices", { host: ACME, origin, headers: { "x-forwarded-for": address } });
    const answers = await Promise.all(Array.from({ length: 20 }, () => from("198.51.100.7")));
    const served = answers.filter(({ status }) => status === 200);
    expect(served).toHaveLength(5);
    for (const answer of answers.filter(({ status }) => status !== 200)) {
      expect([answer.status, answer.json.error.code]).toEqual([429, "too_many_requests"]);
      expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
    }
    expect((await from("198.51.100.8")).status).toBe(200);
    const session = { host: ACME, origin, headers: { cookie: mine.cookie, "x-forwarded-for": "198.51.100.7" } };
    expect((await shop.call("/api/panel/model-prices", session)).status).toBe(200);
    ok(await acme.patch("/prices", { pricesPublic: false }));
  });

  test("name no provider, route or cost", async () => {
    const { text } = await mine.get("/model-prices");
    for (const secret of ["provider", "first", "second", "cost", "upstream", "127.0.0.1"])
      expect(text.toLowerCase()).not.toContain(`"${secret}`);
  });

  test("a model has a page: its prices, the share of answered calls and the first event of 30 days, and no counts", async () => {
    const [route] = await shop.world.sql`select id from routes where model_id = 'chat-a'`;
    await shop.world.sql`
      insert into answer_sums (component, span, begins, answered, failed)
      select 'model:chat-a', 1440, date_trunc('day', now(), 'UTC') - make_interval(days => ago), 70707 - failed, failed
      from (values (1, 0), (2, 7071)) as d(ago, failed)`;
    await shop.world.sql`
      insert into route_stats (route_id, kind, span, begins, requests, errors, input_tokens, cached_tokens, cost_nano_usd, priced_nano_usd, durations)
      select ${route?.id}, 'stream', 1440, date_trunc('day', now(), 'UTC') - make_interval(days => ago), 70707, errors, 0, 0, 0, 0,
        array_fill(0, array[20]) || 70707 - errors || array_fill(0, array[3])
      from (values (1, 0), (2, 7071)) as d(ago, errors)`;
    const page = (host: string, query: string) => shop.call(`/api/panel/model-prices/model?${query}`, { host });
    expect((await page(ACME, "id=chat-a")).json.error.code).toBe("session_required");
    ok(await acme.patch("/prices", { pricesPublic: true }));
    const answer = await page(ACME, "id=chat-a");
    const { model, health, baseUrl } = ok(answer);
    expect(model).toMatchObject({
      id: "chat-a",
      contextLength: 8192,
      prices: { tiers: [{ inputPicoUsd: "3000000000000" }] },
    });
    expect(health.days.map(({ answered }: { answered: number }) => answered)).toEqual(
      expect.arrayContaining([1, 0.8999]),
    );
    expect(health.firstEvent.p50Ms).toBeGreaterThan(0);
    expect(baseUrl).toEndWith(`${ACME}/v1`);
    for (const secret of ["70707", "7071", "provider", '"first"', "second", "cost", "upstream", "route"])
      expect(answer.text.toLowerCase()).not.toContain(secret);

    // Without a price it is not for sale to strangers; what is not for sale looks like what does not exist.
    const listed = ok(await anonymous(ACME)).models.map(({ id }: { id: string }) => id);
    expect(listed).toContain("image-a");
    expect(listed).not.toContain("chat-unpriced");
    for (const id of ["chat-unpriced", "nobody", "chat-a%00", "CHAT-A"])
      expect((await page(ACME, `id=${id}`)).status).toBe(404);
    for (const query of ["", "id=", `id=${"x".repeat(129)}`, "id=chat-a&id=chat-a"])
      expect([400, 422]).toContain((await page(ACME, query)).status);
    for (const host of [OTHER, PANEL]) expect((await page(host, "id=chat-a")).status).toBe(401);
    ok(await acme.patch("/prices", { pricesPublic: false }));
    expect((await page(ACME, "id=chat-a")).status).toBe(401);
    // Whoever is signed in sees what only a package pays for, too.
    expect((await mine.get("/model-prices/model?id=chat-unpriced")).status).toBe(200);
  });

  test("the change of visibility is in the audit log, without the seller's secrets", async () => {
    await shop.world
      .sql`update sellers set stripe_key_ciphertext = 'secret'::bytea where seller_id = ${acme.accountId}`;
    ok(await acme.patch("/prices", { pricesPublic: true }));
    const { entries } = (await admin.get("/audit?subject=sellers")).json;
    expect(entries[0]).toMatchObject({ before: { prices_public: false }, after: { prices_public: true } });
    expect(JSON.stringify(entries)).not.toContain(Buffer.from("secret").toString("hex"));
  });
});

describe("a seller", () => {
  test("sees this month's orders of its own customers, at the retail and the wholesale price", async () => {
    await shop.world.setBalance(acme, 100_000_000_000n);
    const buy = async (body: object) => ok(await mine.post("/orders", body)).order.orderId;
    const first = await buy({ kind: "package", offeringId: starter, note: null });
    ok(await acme.post(`/orders/${first}/fulfil`, {}));
    const second = await buy({ kind: "top_up", amountNanoUsd: usd(5), note: null });
    ok(await acme.post(`/orders/${second}/fulfil`, {}));
    await buy({ kind: "top_up", amountNanoUsd: usd(9), note: null });
    const home = ok(await acme.get("/home/selling"));
    expect(home).toMatchObject({
      ordersOpen: 1,
      // A top-up is the customer's money until requests use it: neither revenue nor cost.
      month: {
        ...{ orders: 2, revenueNanoUsd: usd(24), costNanoUsd: usd(12), marginNanoUsd: usd(12), unpriced: 0 },
        topUpsNanoUsd: usd(5),
      },
    });
    expect(home.month.earnedNanoUsd).toBe("0");
    // Refunds: all of the top-up, which returns to the reseller's balance, and a part of the package's price.
    const { payments } = ok(await acme.get("/payments"));
    for (const [orderId, amountNano] of [
      [second, usd(5)],
      [first, usd(4)],
    ] as const) {
      const { paymentId } = payments.find((payment: { orderId: number }) => payment.orderId === orderId);
      ok(await acme.post(`/payments/${paymentId}/refunds`, { amountNano }));
    }
    expect(ok(await acme.get("/home/selling")).month).toMatchObject({
      ...{ orders: 2, revenueNanoUsd: usd(20), costNanoUsd: usd(12), marginNanoUsd: usd(8), topUpsNanoUsd: usd(0) },
    });
    // A new wholesale price changes nothing of what was paid before.
    await shop.world.sql`update offerings set wholesale_nano_usd = wholesale_nano_usd + 1 where id = ${starter}`;
    expect(ok(await acme.get("/home/selling")).month).toMatchObject({ costNanoUsd: usd(12) });
    await shop.world.sql`update offerings set wholesale_nano_usd = wholesale_nano_usd - 1 where id = ${starter}`;
    const empty = ok(await other.get("/home/selling"));
    expect(empty).toMatchObject({ ordersOpen: 0, month: { orders: 0, revenueNanoUsd: "0" } });
    expect((await mine.get("/home/selling")).status).toBe(404);
  });

  test("sees customers about to run out: with a low balance, or a package that ends and has no successor", async () => {
    const { world } = shop;
    const low = await world.addCustomer(acme.accountId);
    await world.setBalance(low, 10_000_000n);
    const ending = await world.addCustomer(acme.accountId);
    await world.givePackage(ending, { days: 1 });
    const queued = await world.addCustomer(acme.accountId);
    await world.givePackage(queued, { days: 1 });
    await world.assign(queued, await world.addOffering(), "after");
    const rows = ok(await acme.get("/home/selling")).runningOut.rows.map(({ accountId }: Person) => accountId);
    expect(rows).toContain(low.accountId);
    expect(rows).toContain(ending.accountId);
    expect(rows).not.toContain(queued.accountId);
    expect(rows).not.toContain(mine.accountId);
  });

  test("sees for 7 days that a package ended without a successor, unless a balance pays", async () => {
    const { world } = shop;
    const seller = await world.addReseller();
    const session = await signInTo(shop, seller);
    const ended = async (hoursAgo: number): Promise<Person> => {
      const person = await world.addCustomer(seller.accountId);
      const packageId = await world.givePackage(person, { days: 1 });
      await world.sql`
        update packages set ends_at = now() - make_interval(hours => ${hoursAgo}), starts_at = now() - make_interval(hours => ${hoursAgo + 24}),
          first_day = (now() - make_interval(hours => ${hoursAgo + 24}))::date where id = ${packageId}`;
      return person;
    };
    const [week, paying, renewed] = [await ended(167), await ended(2), await ended(2)];
    await ended(169);
    await world.setBalance(paying, 10n ** 12n);
    await world.givePackage(renewed, { days: 30 });
    const { rows } = ok(await session.get("/home/selling")).runningOut;
    expect(rows).toMatchObject([{ accountId: week.accountId, package: { ended: true } }]);
    await world.sql`update accounts set status = 'suspended' where id = ${week.accountId}`;
    expect(ok(await session.get("/home/selling")).runningOut.rows).toEqual([]);
  });

  test("sorts its customers by name and by balance across pages, within the tenant", async () => {
    for (const sort of ["name", "balance"]) {
      const all = ok(await acme.get(`/people?sort=${sort}`)).people;
      const paged: Person[] = [];
      for (let before = ""; ; ) {
        const { people, hasMore } = ok(await acme.get(`/people?sort=${sort}&limit=2${before}`));
        paged.push(...people);
        if (!hasMore) break;
        before = `&before=${people.at(-1).accountId}`;
      }
      expect(paged).toEqual(all);
      const balances = all.map(({ balanceNanoUsd }: { balanceNanoUsd: string }) => BigInt(balanceNanoUsd));
      if (sort === "balance") expect(balances).toEqual(balances.toSorted((a: bigint, b: bigint) => (a < b ? -1 : 1)));
      // Another tenant's account is no valid position in this list, so its name cannot be found by comparison.
      expect(ok(await acme.get(`/people?sort=${sort}&before=${theirs.accountId}`)).people).toEqual([]);
    }
    expect((await acme.get("/people?sort=email")).status).toBe(422);
  });

  test("exports its customers as CSV: a name that looks like a formula is text, and other tenants are not in it", async () => {
    await shop.world.sql`update accounts set name = '=HYPERLINK("http://x.example","hi")' where id = ${mine.accountId}`;
    const answer = await acme.get("/people.csv");
    expect(answer.headers.get("content-disposition")).toMatch(
      /^attachment; filename="customers-ai\.acme\.test-\d{4}-\d\d-\d\d\.csv"$/,
    );
    const lines = answer.text.trim().split("\r\n");
    expect(lines[0]).toStartWith("account_id,role,reseller_id,name,email,status,package,balance_nano_usd");
    expect(lines.length).toBe(1 + ok(await acme.get("/people?limit=200")).people.length);
    expect(answer.text).toContain(`"'=HYPERLINK(""http://x.example"",""hi"")"`);
    expect(answer.text).not.toContain(`\r\n${theirs.accountId},`);
    expect((await mine.get("/people.csv")).status).toBe(404);
  });
});

describe("a balance without its requests", () => {
  test("transactions leave requests out, and the months sum everything to the balance", async () => {
    const { world } = shop;
    const person = await shop.payer(10_000_000_000n);
    const session = await signInTo(shop, person);
    for (let i = 0; i < 3; i++) expect((await shop.chat(person.secret)).status).toBe(200);
    await world.sql`select add_balance(${person.accountId}, ${"-1000000000"}, 'correction', 'test', null)`;
    const { entries, hasMore } = ok(await session.get("/billing/movements"));
    expect(entries.map(({ kind }: { kind: string }) => kind)).toEqual(["correction", "top_up"]);
    expect(hasMore).toBe(false);
    const second = ok(await session.get(`/billing/movements?limit=1&before=${entries[0].entryId}`));
    expect(second.entries).toEqual([entries[1]]);
    const { months } = ok(await session.get("/billing/months"));
    const [row] =
      await world.sql`select balance_nano_usd::text as balance from balances where account_id = ${person.accountId}`;
    expect(months).toHaveLength(1);
    expect(months[0]).toMatchObject({ topUpsNanoUsd: usd(10), correctionsNanoUsd: `-${usd(1)}`, charges: 3 });
    expect(months[0].changeNanoUsd).toBe(row?.balance);
    const elsewhere = entries[0].entryId;
    expect(ok(await house.get(`/billing/movements?before=${elsewhere}`)).entries).toEqual([]);
  });
});
