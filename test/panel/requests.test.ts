import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { newRequestId } from "../../src/platform/crypto.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { type PanelSession, signInTo } from "./panel_client.ts";

/** Requests of all accounts: found by id, and listed for admins. Source: SEC-1. */

let shop: Shop;
let admin: PanelSession;
let acme: Person;
/** A customer of acme with a charged, a released and a refused request. */
let ann: Person;
let ids: { charged: string; released: string; refused: string };

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  const { world } = shop;
  admin = await signInTo(shop, await world.addAdmin());
  acme = await world.addReseller("ai.acme.test");
  ann = await world.addCustomer(acme.accountId);
  await world.givePackage(ann);
  const { secret } = await world.addKey(ann);
  const chat = (model: string) =>
    shop.call("/v1/chat/completions", {
      secret,
      host: "ai.acme.test",
      body: { model, messages: [{ role: "user", content: "hello" }] },
    });
  const idOf = async (model: string) => (await chat(model)).headers.get("x-request-id") ?? "";
  const charged = await idOf("chat-a");
  shop.provider.next({ status: 500 });
  const released = await idOf("chat-a");
  const refused = await idOf("no-such-model");
  // Refusals are stored some seconds later.
  const isCounted = async () =>
    (await world.sql`select from refusal_counts where last_request_id = ${refused}`).length > 0;
  await until(isCounted);
  ids = { charged, released, refused };
});
afterAll(() => shop.close());

describe("a request id", () => {
  test("is found by an admin, the account's reseller and the account itself, whether it was charged, released or refused", async () => {
    const finders = [
      admin,
      await signInTo(shop, acme, { host: "ai.acme.test" }),
      await signInTo(shop, ann, { host: "ai.acme.test" }),
    ];
    for (const finder of finders) {
      for (const id of [...Object.values(ids), ids.charged.toUpperCase()]) {
        const { status, json } = await finder.get(`/requests/${id}`);
        expect([status, json]).toEqual([200, { accountId: ann.accountId, name: expect.any(String) }]);
        const ofAccount = finder === finders[2] ? "" : `?accountId=${json.accountId}`;
        const receipt = await finder.get(`/receipts/${id}${ofAccount}`);
        expect([receipt.status, receipt.json.requestId]).toEqual([200, id.toLowerCase()]);
      }
    }
  });

  test("of another account gets the answer of an unknown one, for another reseller and for customers of any reseller", async () => {
    const [stranger, sibling, reseller] = [
      await signInTo(shop, await shop.world.addCustomer()),
      await signInTo(shop, await shop.world.addCustomer(acme.accountId), { host: "ai.acme.test" }),
      await signInTo(shop, await shop.world.addReseller()),
    ];
    for (const session of [stranger, sibling, reseller]) {
      const unknown = await session.get(`/requests/${newRequestId()}`);
      expectRefusal(unknown, "not_found");
      for (const id of Object.values(ids)) {
        const foreign = await session.get(`/requests/${id}`);
        expect([foreign.status, foreign.json.error]).toEqual([unknown.status, unknown.json.error]);
      }
    }
  });

  test("that is malformed or unknown is not found", async () => {
    for (const id of ["x", "00000000-0000-0000-0000-00000000000g", "%00", `${ids.charged}0`])
      expectRefusal(await admin.get(`/requests/${id}`), "not_found");
    for (const id of ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"])
      expectRefusal(await admin.get(`/requests/${id}`), "not_found");
  });
});

const EVERYTHING = "/requests?limit=100";

describe("the list of requests", () => {
  test("has the requests of all accounts for an admin, paged, with latency, tokens, route and costs", async () => {
    const bob = await shop.customer();
    for (let i = 0; i < 3; i++) await shop.chat(bob.secret);
    const first = (await admin.get("/requests?limit=2")).json;
    expect(first.nextBefore).toBe(first.rows.at(-1).requestId);
    const second = (await admin.get(`/requests?limit=2&before=${first.nextBefore}`)).json;
    const rows = [...first.rows, ...second.rows];
    expect(rows.map(({ accountId }) => accountId)).toEqual([bob, bob, bob, ann].map(({ accountId }) => accountId));
    const [stored] = await shop.world.sql`
      select first_ms, route_id::int, provider_cost_nano_usd::text as cost, prompt_tokens, completion_tokens, name
      from receipts r join routes on routes.id = route_id join providers on providers.id = provider_id where request_id = ${ids.charged}`;
    expect(rows.at(-1)).toMatchObject({
      requestId: ids.charged,
      outcome: "charged",
      accountName: expect.any(String),
      firstMs: stored?.first_ms,
      routeId: stored?.route_id,
      provider: stored?.name,
      costNanoUsd: stored?.cost,
      promptTokens: stored?.prompt_tokens,
      completionTokens: stored?.completion_tokens,
      durationMs: expect.any(Number),
    });
    const given = (await admin.get("/requests?outcome=released")).json;
    expect(given).toMatchObject({ nextBefore: null, rows: [{ requestId: ids.released, accountId: ann.accountId }] });
    const later = new Date(Date.now() + 60_000).toISOString();
    expect((await admin.get(`/requests?start=${later}`)).json.rows).toEqual([]);
    expect((await admin.get(`/requests?end=2020-01-01T00:00:00Z`)).json.rows).toEqual([]);
  });

  test("has those of its tenant alone for a reseller, without route, provider and the operator's cost", async () => {
    const session = await signInTo(shop, acme, { host: "ai.acme.test" });
    const own = await shop.world.addKey(acme, { mode: "payg" });
    await shop.world.setBalance(acme, 10n ** 10n);
    await shop.chat(own.secret);
    const { rows } = (await session.get(EVERYTHING)).json;
    expect(rows.map(({ accountId }: { accountId: number }) => accountId)).toEqual([acme.accountId, ann.accountId]);
    for (const row of rows) expect(row).toMatchObject({ routeId: null, provider: null, firstMs: expect.any(Number) });
    // The reseller pays the operator's price: no margin on its own requests.
    expect(rows[0].costNanoUsd).toBe(rows[0].chargedNanoUsd);
    expect(rows[0].marginNanoUsd).toBe("0");
    const paged = (await session.get("/requests?limit=1")).json;
    expect(paged.nextBefore).toBe(rows[0].requestId);
    const rest = (await session.get(`/requests?limit=1&before=${paged.nextBefore}`)).json;
    expect(rest).toMatchObject({ nextBefore: null, rows: [{ requestId: ids.charged }] });
    const csv = await session.get("/requests.csv");
    expect(csv.text.trim().split("\n")).toHaveLength(3);
    expect(csv.text).toContain(ids.charged);
    const other = await signInTo(shop, await shop.world.addReseller());
    expect((await other.get(EVERYTHING)).json.rows).toEqual([]);
    expectRefusal(await other.get(`/requests?accountId=${ann.accountId}`), "not_found");
    const [key] = await shop.world.sql`select id::int from keys where account_id = ${ann.accountId}`;
    expect((await other.get(`/requests?keyId=${key?.id}`)).json.rows).toEqual([]);
    expectRefusal(await (await signInTo(shop, ann, { host: "ai.acme.test" })).get("/requests"), "not_found");
    expect((await session.get("/requests?routeId=1")).status).toBe(422);
  });

  test("is filtered by account, key, model, route, host, billing and reason", async () => {
    const all = (await admin.get(EVERYTHING)).json.rows;
    const [sample] = all.filter(({ accountId }: { accountId: number }) => accountId === ann.accountId);
    for (const [name, field] of [
      ["accountId", "accountId"],
      ["keyId", "keyId"],
      ["model", "modelId"],
      ["routeId", "routeId"],
      ["host", "host"],
      ["mode", "mode"],
      ["reason", "reason"],
    ]) {
      const { rows } = (await admin.get(`${EVERYTHING}&${name}=${sample[field ?? ""]}`)).json;
      const wanted = all.filter((row: Record<string, unknown>) => row[field ?? ""] === sample[field ?? ""]);
      expect([name, rows]).toEqual([name, wanted]);
    }
    expect((await admin.get(`${EVERYTHING}&model=no-such-model`)).json.rows).toEqual([]);
  });

  test("refuses what is no filter: a period that ends before it begins, an unknown mode, outcome or cursor", async () => {
    const refused = async (query: string) => (await admin.get(`/requests?${query}`)).status;
    expect(await refused("start=2026-02-01T00:00:00Z&end=2026-01-01T00:00:00Z")).toBe(422);
    expect(await refused("mode=card")).toBe(422);
    expect(await refused("outcome=refused")).toBe(422);
    expect(await refused("before=x")).toBe(422);
    expect(await refused("keyId=-1")).toBe(422);
  });
});
