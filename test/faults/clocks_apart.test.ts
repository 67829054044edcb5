import { afterAll, beforeAll, expect, test } from "bun:test";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { imageUrl, openImageToken } from "../../src/gateway/image_addresses.ts";
import { addEndpoint } from "../../src/messages/endpoints_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { createLog } from "../../src/platform/log.ts";
import { openPayShop, type PayShop } from "../commerce/pay_shop.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { imageBody, type Shop } from "../gateway/shop.ts";
import { type MailBox, openMailBox, openReceiver } from "../messages/post.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { type MovedReplica, startMovedReplica } from "./moved_replica.ts";

/**
 * Two replicas whose clocks are three minutes ahead of the database's, and three minutes behind it: due times, claims,
 * keys, addresses and signatures go by the database's clock. Source: REL-2.
 */
const MINUTE_MS = 60_000;
const APART_MS = 3 * MINUTE_MS;
const HOST = "api.tollgate.test";
const KEY = Buffer.from(TEST_SECRET_KEY, "base64");
/** How long a slow receiver takes: each replica looks for due deliveries several times meanwhile. */
const SLOW_MS = 4_000;
const PNG = Buffer.concat([Buffer.from("89504e470d0a1a0a0000000d49484452", "hex"), Buffer.alloc(100, 7)]);

let box: MailBox;
let receiver: Awaited<ReturnType<typeof openReceiver>>;
let pay: PayShop;
let shop: Shop;
let ahead: MovedReplica;
let behind: MovedReplica;
const both = () => [ahead, behind];

beforeAll(async () => {
  [box, receiver] = await Promise.all([openMailBox(), openReceiver()]);
  pay = await openPayShop();
  shop = pay.shop;
  // Only the two are left: a replica with the right time would take their work.
  await shop.replicas[0]?.stop();
  const env = {
    STRIPE_API_BASE: pay.stripe.base,
    SMTP_URL: box.url,
    MAIL_FROM: "mail@operator.example",
    MESSAGES_ALLOW_PRIVATE: receiver.hostPort,
  };
  [ahead, behind] = await Promise.all([
    startMovedReplica(shop, APART_MS, env),
    startMovedReplica(shop, -APART_MS, env),
  ]);
});
afterAll(async () => {
  await Promise.all(both().map((replica) => replica.kill()));
  await pay.close();
  await Promise.all([box.close(), receiver.close()]);
});

async function databaseMs(): Promise<number> {
  const [row] = await shop.world.sql`select floor(extract(epoch from ledger_now()) * 1000)::float8 as ms`;
  return Number(row?.ms);
}
const seconds = (ms: number) => Math.floor(ms / 1000);

test("a webhook whose receiver is slow is called once, and a mail to a slow server is sent once", async () => {
  const { sql } = shop.world;
  receiver.does.answer = async () => {
    await sleep(SLOW_MS);
    return { status: 204 };
  };
  box.does.slowMs = SLOW_MS;
  const log = createLog("silent");
  const db = shop.world.openDb();
  const people = await Promise.all(Array.from({ length: 4 }, () => shop.world.addCustomer()));
  for (const { accountId } of people) {
    const by = { accountId, requestId: newRequestId() };
    const deps = { db, bus: inProcessBus(log), config: { secretKey: KEY }, by };
    await addEndpoint(deps, { accountId, url: receiver.url, kinds: ["balance_low"] });
    await sql`insert into outbox_messages (kind, account_id, data)
      values ('balance_low', ${accountId}, '{"freeNanoUsd":"1","belowNanoUsd":"2"}')`;
  }
  await db.close();
  const told = people.map(({ accountId }) => accountId);
  await until(async () => {
    const [row] =
      await sql`select count(*)::int as n from outbox_deliveries where account_id = any(${told}) and status = 'sent'`;
    return row?.n === 2 * people.length;
  });
  expect(receiver.calls.map(({ body }) => Number(JSON.parse(body).data.accountId)).sort()).toEqual([...told].sort());
  expect(box.mails).toHaveLength(people.length);
  const attempts = await sql`select attempts from outbox_deliveries where account_id = any(${told})`;
  expect(attempts.map((one) => one.attempts)).toEqual(Array.from({ length: 2 * people.length }, () => 1));
  // Receivers accept a signature of at most five minutes.
  const now = seconds(await databaseMs());
  for (const { headers } of receiver.calls)
    expect(Math.abs(Number(headers["webhook-timestamp"]) - now)).toBeLessThan(MINUTE_MS / 1000);
});

test("a key that expires in a minute is valid, and one that expired a minute ago is not, also where no money is asked for", async () => {
  const at = await databaseMs();
  const valid = await shop.customer({}, { expiresAt: new Date(at + MINUTE_MS).toISOString() });
  const over = await shop.customer({}, { expiresAt: new Date(at - MINUTE_MS).toISOString() });
  for (const { origin } of both()) {
    expect((await shop.chat(valid.secret, {}, { origin })).status).toBe(200);
    expect((await shop.call("/v1/models", { secret: valid.secret, origin })).status).toBe(200);
    expectRefusal(await shop.chat(over.secret, {}, { origin }), "invalid_api_key");
    expectRefusal(await shop.call("/v1/models", { secret: over.secret, origin }), "invalid_api_key");
  }
});

test("a key is refused from its end on, and not before", async () => {
  const endsMs = (await databaseMs()) + 3_000;
  const customer = await shop.customer({ dailyLimit: 1_000_000 }, { expiresAt: new Date(endsMs).toISOString() });
  for (const { origin } of both()) {
    for (let isOver = false; !isOver; ) {
      const before = await databaseMs();
      const answers = [
        await shop.chat(customer.secret, {}, { origin }),
        await shop.call("/v1/models", { secret: customer.secret, origin }),
      ];
      const after = await databaseMs();
      const statuses = answers.map(({ status }) => status);
      for (const status of statuses) expect([200, 401]).toContain(status);
      if (after < endsMs) expect(statuses).toEqual([200, 200]);
      // The database decides of what costs something; the replica's estimate is late by as much as its last reading took.
      if (before >= endsMs) expect(statuses[0]).toBe(401);
      isOver = statuses[1] === 401;
    }
  }
});

test("the address of an image is valid for as long as it says", async () => {
  const store = createServer((_, response) => response.writeHead(200, { "content-type": "image/png" }).end(PNG));
  await new Promise<void>((resolve) => store.listen(0, "127.0.0.1", resolve));
  const { port } = store.address() as AddressInfo;
  const fetching = await Promise.all(
    [APART_MS, -APART_MS].map((ms) =>
      startMovedReplica(shop, ms, {
        PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${shop.provider.port},127.0.0.1:${port}`,
      }),
    ),
  );
  try {
    const { secret, ...buyer } = await shop.customer();
    for (const { origin } of fetching) {
      const token = {
        url: `http://127.0.0.1:${port}/a.png`,
        providerId: 1,
        keyId: 1,
        accountId: buyer.accountId,
        tenantId: 0,
      };
      const at = await databaseMs();
      const get = (expiresUnixMs: number) =>
        shop.call(new URL(imageUrl(KEY, `http://${HOST}`, { ...token, expiresUnixMs })).pathname, {
          host: HOST,
          origin,
        });
      expect((await get(at + MINUTE_MS)).status).toBe(200);
      expectRefusal(await get(at - MINUTE_MS), "not_found", { param: "token" });

      shop.provider.next({ imageReturn: "url", imageUrl: token.url });
      const before = await databaseMs();
      const { json } = await shop.call("/v1/images/generations", { secret, host: HOST, body: imageBody(), origin });
      const made = openImageToken(KEY, HOST, new URL(json.data[0].url).pathname.split("/").at(-1) ?? "");
      const madeMs = (made?.expiresUnixMs ?? 0) - 3_600_000;
      // The estimate may be behind by as much as its last reading took.
      expect(madeMs).toBeGreaterThan(before - MINUTE_MS);
      expect(madeMs).toBeLessThanOrEqual(await databaseMs());
    }
  } finally {
    await Promise.all(fetching.map((replica) => replica.kill()));
    await new Promise((resolve) => store.close(resolve));
  }
});

test("signatures of payment webhooks are old after five minutes of the database's clock", async () => {
  const said = { order: "no-such-order", amount: "5.00", currency: "usd", payment_id: "p-1" };
  const event = { id: "cs_foreign", payment_status: "paid", metadata: null, amount_total: 5 };
  for (const { origin } of both()) {
    const at = await databaseMs();
    for (const offMs of [-4 * MINUTE_MS, 0]) {
      expectRefusal(await pay.shopHook(0, said, { at: new Date(at + offMs), origin }), "not_found", {
        param: "order",
      });
      expect((await pay.hook(0, event, { timestamp: seconds(at + offMs), origin })).status).toBe(200);
    }
    const old = at - 6 * MINUTE_MS;
    expectRefusal(await pay.shopHook(0, said, { at: new Date(old), origin }), "invalid_request", {
      param: "webhook-signature",
    });
    const answer = await pay.hook(0, event, { timestamp: seconds(old), origin });
    expectRefusal(answer, "invalid_request", { param: "stripe-signature" });
  }
});

test("the panel shows the database's time", async () => {
  for (const { origin } of both()) {
    const before = await databaseMs();
    const { json } = await pay.as.house.call("/me", { origin });
    expect(Date.parse(json.serverTime)).toBeGreaterThan(before - MINUTE_MS);
    expect(Date.parse(json.serverTime)).toBeLessThanOrEqual(await databaseMs());
  }
});
