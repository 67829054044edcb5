import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { ok, PANEL, type PanelSession, signInTo } from "./panel_client.ts";

/** Status pages, on every brand's host. Source: STA-1, STA-2, STA-3, STA-4, STA-7, STA-8. */

const ACME = "ai.acme.test";
const OTHER = "ai.other.test";

let shop: Shop;
let acme: PanelSession;
let other: PanelSession;
let admin: PanelSession;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  const { world } = shop;
  acme = await signInTo(shop, await world.addReseller(ACME), { host: ACME });
  other = await signInTo(shop, await world.addReseller(OTHER), { host: OTHER });
  admin = await signInTo(shop, await world.addAdmin());
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

const page = async (host: string) => ok(await shop.call("/status.json", { host }));
const INCIDENT = { kind: "incident", title: "Slow answers", body: "We look into it.", components: ["api"] };
type Named = { id: string; name: string };
type Shown = { title: string; components: Named[] };
const titles = async (host: string) => (await page(host)).incidents.map(({ title }: Shown) => title);

test("a request that another route answered was answered; what no route answered failed, for the model and not for the API", async () => {
  const { secret } = await shop.customer();
  const chat = (stream: boolean) => shop.chat(secret, { model: "chat-two-routes", stream });
  const countsOf = async (component: string) => {
    const [row] = await shop.world.sql`
      select answered::int, failed::int from answer_sums where component = ${component} and span = 1440`;
    return { answered: Number(row?.answered ?? 0), failed: Number(row?.failed ?? 0) };
  };
  for (const stream of [false, true]) {
    shop.provider.next({ status: 500 });
    expect((await chat(stream)).status).toBe(200);
  }
  await until(async () => (await countsOf("model:chat-two-routes")).answered === 2);
  const before = await countsOf("api");
  shop.provider.next({ status: 500 });
  shop.second.next({ status: 500 });
  expect((await chat(false)).status).toBe(503);
  await until(async () => (await countsOf("model:chat-two-routes")).failed === 1);
  expect((await countsOf("api")).failed).toBe(before.failed);
});

describe("the page of a host", () => {
  test("is for everyone, in the host's brand, with 90 days; models have names only where prices are public", async () => {
    await shop.world.sql`
      insert into brands (reseller_id, name, css, version) values (${acme.accountId}, 'Acme', '', '1')`;
    ok(await acme.patch("/prices", { pricesPublic: true }));
    const mine = await page(ACME);
    expect(mine.name).toBe("Acme");
    expect(mine.components.slice(0, 2)).toMatchObject([{ id: "api" }, { id: "panel" }]);
    const ids = mine.components.map(({ id }: Named) => id);
    expect(ids).toContain("model:chat-a");
    expect(ids).not.toContain("model:chat-unpriced");
    for (const { days } of mine.components) expect(days).toHaveLength(90);

    const theirs = await page(OTHER);
    expect(theirs.components.map(({ id, name }: Named) => [id, name])).toEqual([
      ["api", "API"],
      ["panel", "Panel"],
      ["models", "Models"],
    ]);
    expect(JSON.stringify(theirs)).not.toContain("chat-a");
    const text = JSON.stringify([mine, theirs, await page(PANEL)]).toLowerCase();
    for (const secret of ["provider", "first", "second", "cost", "upstream", "route", "sellerid", "127.0.0.1"])
      expect(text.replaceAll("firstday", "")).not.toContain(`"${secret}`);
    ok(await acme.patch("/prices", { pricesPublic: false }));
  });

  test("is not served on a host of the API alone, and on no unknown host", async () => {
    for (const host of ["ai.nobody.test", "tollgate.test"])
      for (const path of ["/status.json", "/status.atom", "/api/panel/status"])
        expectRefusal(await shop.call(path, { host }), "host_not_allowed");
  });

  test("shows the operator's incidents on every brand, and a reseller's on its own alone", async () => {
    ok(await admin.post("/incidents", { ...INCIDENT, title: "Of everyone" }));
    const own = ok(await acme.post("/incidents", { ...INCIDENT, title: "Of Acme", impact: "outage" }));
    expect(await titles(ACME)).toEqual(expect.arrayContaining(["Of everyone", "Of Acme"]));
    expect(await titles(OTHER)).toEqual(["Of everyone"]);
    expect(await titles(PANEL)).toEqual(["Of everyone"]);
    expect((await page(ACME)).status).toBe("outage");
    expect((await page(OTHER)).status).toBe("degraded");

    for (const attempt of [
      () => other.get(`/incidents/${own.incidentId}`),
      () => other.patch(`/incidents/${own.incidentId}`, { version: 1, title: "Taken" }),
      () => other.delete(`/incidents/${own.incidentId}`),
      () => admin.patch(`/incidents/${own.incidentId}`, { version: 1, title: "Taken" }),
    ])
      expectRefusal(await attempt(), "not_found");
    const asked = await acme.post("/incidents", { ...INCIDENT, sellerId: 0 });
    expect([asked.status, asked.json.error.code]).toEqual([422, "validation_failed"]);

    const over = { version: 1, status: "resolved", body: "It is over." };
    ok(await acme.patch(`/incidents/${own.incidentId}`, over));
    expect((await page(ACME)).status).toBe("degraded");
    const late = await acme.patch(`/incidents/${own.incidentId}`, over);
    expect([late.status, late.json.error.param]).toEqual([422, "version"]);
    await shop.world.sql`delete from incidents`;
    await shop.world.sql`insert into changes (kind, ref) values ('account', '0')`;
  });

  test("an operator's incident of a model that a brand does not name is told without the name; one of a model that nobody buys is not", async () => {
    const made = ok(await admin.post("/incidents", { ...INCIDENT, title: "A model", components: ["model:chat-a"] }));
    const unsold = { ...INCIDENT, title: "Not sold", components: ["model:chat-unpriced"] };
    const hidden = ok(await admin.post("/incidents", unsold));
    const { incidents } = await page(OTHER);
    expect(incidents).toMatchObject([{ title: "A model", components: [{ id: "models", name: "Models" }] }]);
    for (const { incidentId } of [made, hidden]) ok(await admin.delete(`/incidents/${incidentId}`));
    expect(await titles(OTHER)).toEqual([]);
  });

  test("a component is degraded or out by what failed in the last quarter of an hour, and of few requests nothing is said", async () => {
    const { sql } = shop.world;
    const stateWith = async (answered: number, failed: number) => {
      await sql`delete from answer_sums where component = 'model:embed-a'`;
      await sql`
        insert into answer_sums (component, span, begins, answered, failed)
        values ('model:embed-a', 5, date_bin('5 minutes', now(), 'epoch'), ${answered}, ${failed})`;
      // A replica that has read no sums yet.
      const { origin, stop } = await shop.start({ REDIS_URL: "" });
      const { components } = ok(await shop.call("/status.json", { host: PANEL, origin }));
      await stop();
      return components.find(({ id }: Named) => id === "model:embed-a").status;
    };
    ok(await admin.patch("/prices", { pricesPublic: true }));
    expect(await stateWith(0, 9)).toBe("operational");
    expect(await stateWith(96, 4)).toBe("operational");
    expect(await stateWith(95, 5)).toBe("degraded");
    expect(await stateWith(50, 50)).toBe("outage");
    ok(await admin.patch("/prices", { pricesPublic: false }));
  }, 60_000);
});

describe("for programs", () => {
  test("the documents may be cached and read by pages of any origin, and are not sent again unchanged", async () => {
    for (const [path, type] of [
      ["/status.json", "application/json"],
      ["/status.atom", "application/atom+xml"],
    ] as const) {
      const { status, headers } = await shop.call(path, { host: ACME });
      expect(status).toBe(200);
      expect(headers.get("content-type")).toStartWith(type);
      expect(headers.get("cache-control")).toBe("public, max-age=30");
      expect(headers.get("access-control-allow-origin")).toBe("*");
      const again = { "if-none-match": String(headers.get("etag")) };
      expect((await shop.call(path, { host: ACME, headers: again })).status).toBe(304);
    }
  });

  test("markup in a text is text in the feed", async () => {
    const made = ok(await admin.post("/incidents", { ...INCIDENT, title: `<b>"&'`, body: "]]><script>" }));
    const { text } = await shop.call("/status.atom", { host: OTHER });
    expect(text).toContain("<title>&#60;b&#62;&#34;&#38;&#39; (investigating)</title>");
    expect(text).toContain("]]&#62;&#60;script&#62;</content>");
    expect(text).toContain(`#incident-${made.incidentId}</id>`);
    ok(await admin.delete(`/incidents/${made.incidentId}`));
  });

  test("visitors have a rate limit by address", async () => {
    const started = await shop.start({ REDIS_URL: "", RATE_PER_MINUTE: "5", TRUSTED_PROXIES: "127.0.0.1,::1" });
    const from = (address: string) =>
      shop.call("/status.json", {
        host: PANEL,
        origin: started.origin,
        headers: { "x-forwarded-for": address },
      });
    const answers = await Promise.all(Array.from({ length: 12 }, () => from("198.51.100.7")));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(5);
    expect(answers.find(({ status }) => status !== 200)?.status).toBe(429);
    expect((await from("198.51.100.8")).status).toBe(200);
  });
});
