import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import sharp from "sharp";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { PANEL, type PanelSession, signInTo } from "./panel_client.ts";

/** Source: ERR-10, PAN-7, PAN-8. */

const ACME = "ai.acme.test";
const OTHER = "ai.other.test";
/** Above the panel's limit of a body. */
const TOO_MUCH = "A".repeat(1024 * 1024);

let shop: Shop;
let acme: Person;
let other: Person;
let session: PanelSession;

beforeAll(async () => {
  shop = await openShop({
    replicas: 2,
    // What a replica has in memory grows old in an hour: a change is seen because it is told.
    env: { BRAND_NAME: "Operator Inc", BRAND_SUPPORT: "help@operator.test", CACHE_TTL_MS: "3600000" },
  });
  [acme, other] = [await shop.world.addReseller(ACME), await shop.world.addReseller(OTHER)];
  session = await signInTo(shop, acme, { host: ACME });
});
afterAll(() => shop.close());

const SPEC = { name: "Acme AI", accent: "#ffd400", support: "help@acme.test" };

async function base64Of(width: number, height: number, background = "#ff0000"): Promise<string> {
  const picture = sharp({ create: { width, height, channels: 4, background } });
  return (await picture.png().toBuffer()).toString("base64");
}

const seenAt = (host: string, origin = shop.origin) => shop.call("/api/panel/brand/public", { host, origin });

async function auditOf({ accountId }: Person) {
  return [
    ...(await shop.world.sql`
      select actor_id::int as actor, request_id as request, after from audit_entries
      where subject = 'brands' and account_id = ${accountId} order by id`),
  ];
}

describe("a reseller's own brand", () => {
  test("starts as the account's name; a saved brand is returned with the adjustment of its colour", async () => {
    const reseller = await shop.world.addReseller();
    const panel = await signInTo(shop, reseller);
    const first = await panel.get("/brand");
    expect({ status: first.status, ...first.json }).toEqual({
      status: 200,
      name: expect.stringMatching(/^reseller\d+$/),
      accent: null,
      support: null,
      language: null,
      version: "none",
      adjusted: false,
      preview: null,
      logoLight: null,
      logoDark: null,
      icon: null,
    });
    const saved = await panel.put("/brand", SPEC);
    expect(saved.status).toBe(200);
    expect(saved.json).toMatchObject({
      ...SPEC,
      adjusted: true,
      preview: {
        light: { accentText: expect.stringMatching(/^#[0-9a-f]{6}$/), textChange: "darker" },
        dark: { accent: "#ffd400", textChange: "none" },
      },
    });
    expect((await panel.get("/brand")).json).toEqual(saved.json);
    const [entry, ...more] = await auditOf(reseller);
    expect(more).toEqual([]);
    expect(entry).toEqual({
      actor: reseller.accountId,
      request: saved.headers.get("x-request-id"),
      after: expect.objectContaining(SPEC),
    });
  });

  test("logos and icon are returned as images, on the panel's host and the reseller's; null removes them", async () => {
    for (const host of [ACME, PANEL]) {
      const panel = await signInTo(shop, acme, { host });
      const light = await panel.put("/brand/logo", { theme: "light", image: await base64Of(960, 240) });
      expect(light.json).toMatchObject({ logoDark: null, icon: expect.stringMatching(/^data:image\/png;base64,/) });
      const dark = await panel.put("/brand/logo", { theme: "dark", image: await base64Of(100, 50, "#00ff00") });
      const [, data = ""] = /^data:image\/webp;base64,(.+)$/.exec(dark.json.logoLight) ?? [];
      expect(await sharp(Buffer.from(data, "base64")).metadata()).toMatchObject({
        format: "webp",
        width: 480,
        height: 120,
      });
      const own = await panel.put("/brand/icon", { image: await base64Of(10, 10, "#0000ff") });
      expect(own.json.icon).not.toBe(dark.json.icon);
      expect((await panel.put("/brand/icon", { image: null })).json.icon).toBe(dark.json.icon);
      expect((await panel.put("/brand/logo", { theme: "dark", image: null })).json.logoDark).toBeNull();
      const none = await panel.put("/brand/logo", { theme: "light", image: null });
      expect(none.json).toMatchObject({ logoLight: null, logoDark: null, icon: null });
    }
  });

  const bad: [path: string, body: unknown, param: string | null][] = [
    ["/brand", { ...SPEC, name: "" }, "name"],
    ["/brand", { ...SPEC, name: "x".repeat(61) }, "name"],
    ["/brand", { ...SPEC, name: "x".repeat(201) }, "name"],
    ["/brand", { ...SPEC, name: "a\0b" }, "name"],
    ["/brand", { ...SPEC, name: 5 }, "name"],
    ["/brand", { ...SPEC, accent: "yellow" }, "accent"],
    ["/brand", { ...SPEC, accent: "#ffd4" }, "accent"],
    ["/brand", { ...SPEC, accent: "#ffd400;" }, "accent"],
    ["/brand", { ...SPEC, support: "javascript:alert(1)" }, "support"],
    ["/brand", { ...SPEC, support: "http://acme.test" }, "support"],
    ["/brand", { ...SPEC, resellerId: 1 }, "resellerId"],
    ["/brand", { name: "Acme" }, "accent"],
    ["/brand", {}, "name"],
    ["/brand/logo", { theme: "light" }, "image"],
    ["/brand/logo", { theme: "blue", image: null }, "theme"],
    ["/brand/logo", { theme: "light", image: "no base64!" }, "image"],
    ["/brand/logo", { theme: "light", image: "AAA" }, "image"],
    ["/brand/logo", { theme: "light", image: "" }, "image"],
    ["/brand/logo", { theme: "light", image: "A".repeat(360_000) }, "image"],
    ["/brand/logo", { theme: "light", image: "A".repeat(800_000) }, "image"],
    ["/brand/icon", { image: Buffer.from("<svg/>").toString("base64") }, "image"],
    ["/brand/icon", { image: {} }, "image"],
  ];
  test("two concurrent saves store one brand; 422 validation_failed names a wrong field and changes nothing", async () => {
    const [one, two] = await Promise.all([session.put("/brand", SPEC), session.put("/brand", SPEC)]);
    expect([one.status, two.status, one.json]).toEqual([200, 200, two.json]);
    expect(await shop.world.sql`select 1 from brands where reseller_id = ${acme.accountId}`).toHaveLength(1);
    const before = (await session.get("/brand")).json;
    for (const [path, body, param] of bad) expectRefusal(await session.put(path, body), "validation_failed", { param });
    expectRefusal(await session.put("/brand/logo", { theme: "light", image: TOO_MUCH }), "request_too_large");
    expect((await session.get("/brand")).json).toEqual(before);
  });

  test("one reseller's changes do not touch another's brand", async () => {
    const theirs = await signInTo(shop, other, { host: OTHER });
    await theirs.put("/brand", { name: "Other AI", accent: "#0a5c7d", support: null });
    const [before, seen] = [(await theirs.get("/brand")).json, (await seenAt(OTHER)).json];
    await session.put("/brand", { ...SPEC, name: "Acme again" });
    await session.put("/brand/logo", { theme: "dark", image: await base64Of(30, 30) });
    expect((await theirs.get("/brand")).json).toEqual(before);
    expect((await seenAt(OTHER)).json).toEqual(seen);
    await session.put("/brand/logo", { theme: "dark", image: null });
  });
});

describe("the public brand of a host", () => {
  test("the panel's host has the operator's brand; a reseller's host has none of it", async () => {
    expect((await seenAt(PANEL)).json).toEqual({
      name: "Operator Inc",
      logoLight: null,
      logoDark: null,
      support: "help@operator.test",
      sendsMail: false,
      signUp: false,
      identityProviders: [],
    });
    await shop.world.addReseller("ai.bare.test");
    const bare = await seenAt("ai.bare.test");
    expect(bare.json).toEqual({
      name: expect.stringMatching(/^reseller\d+$/),
      logoLight: null,
      logoDark: null,
      support: null,
      sendsMail: false,
      signUp: false,
      identityProviders: [],
    });
    for (const answer of [bare, await seenAt(ACME)]) {
      expect(answer.headers.get("cache-control")).toBe("no-store");
      expect(`${answer.text} ${JSON.stringify([...answer.headers])}`.toLowerCase()).not.toMatch(/operator|tollgate/);
    }
    for (const host of ["api.tollgate.test", "foreign.test"]) expectRefusal(await seenAt(host), "host_not_allowed");
  });

  test("HTML in a name stays text", async () => {
    const name = `</title><script>alert("x")</script>`;
    expect((await session.put("/brand", { ...SPEC, name })).json.name).toBe(name);
    const answer = await seenAt(ACME);
    expect(answer.headers.get("content-type")).toContain("application/json");
    expect(answer.json.name).toBe(name);
    await session.put("/brand", SPEC);
  });

  test("a change is told to another replica, which does not wait until its copy is old; a new logo has a new URL", async () => {
    const elsewhere = shop.replicas[1]?.origin ?? "";
    await session.put("/brand", SPEC);
    const before = await seenAt(ACME, elsewhere);
    expect(before.json).toMatchObject({ name: "Acme AI", logoLight: null });
    await session.put("/brand", { ...SPEC, name: "Acme anew", support: "https://acme.test/help" });
    await session.put("/brand/logo", { theme: "light", image: await base64Of(96, 24) });
    await until(async () => (await seenAt(ACME, elsewhere)).json.logoLight !== null);
    const after = await seenAt(ACME, elsewhere);
    expect(after.json).toEqual({
      name: "Acme anew",
      support: "https://acme.test/help",
      sendsMail: false,
      signUp: false,
      identityProviders: [],
      logoLight: expect.stringMatching(/^\/brand\/logo-light\?v=[\w-]{16}$/),
      logoDark: null,
    });
    const picture = await fetch(`${elsewhere}${after.json.logoLight}`, { headers: { host: ACME } });
    expect({ status: picture.status, type: picture.headers.get("content-type") }).toEqual({
      status: 200,
      type: "image/webp",
    });
    expect(await sharp(await picture.arrayBuffer()).metadata()).toMatchObject({
      format: "webp",
      width: 96,
      height: 24,
    });
  });
});
