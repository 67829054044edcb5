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

test("an admin lists the requests of all accounts, by kind and time, paged", async () => {
  const bob = await shop.customer();
  for (let i = 0; i < 3; i++) await shop.chat(bob.secret);
  const first = (await admin.get("/admin/requests?limit=2")).json;
  expect(first.hasMore).toBe(true);
  const last = first.rows.at(-1).requestId;
  const second = (await admin.get(`/admin/requests?limit=2&after=${last}`)).json;
  const rows = [...first.rows, ...second.rows];
  expect(rows.map(({ accountId }) => accountId)).toEqual([bob, bob, bob, ann].map(({ accountId }) => accountId));
  expect(rows.at(-1)).toMatchObject({ requestId: ids.charged, kind: "charged", accountName: expect.any(String) });
  const given = (await admin.get("/admin/requests?kind=released")).json;
  expect(given).toMatchObject({ hasMore: false, rows: [{ requestId: ids.released, accountId: ann.accountId }] });
  const later = new Date(Date.now() + 60_000).toISOString();
  expect((await admin.get(`/admin/requests?start=${later}`)).json.rows).toEqual([]);
});
