import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { Webhook } from "standardwebhooks";
import { type Claimed, claimDeliveries } from "../../src/messages/claims_store.ts";
import { listAttempts, listDeliveries, sendAgain } from "../../src/messages/deliveries_store.ts";
import {
  addEndpoint,
  changeEndpoint,
  listEndpoints,
  removeEndpoint,
  rotateSecret,
} from "../../src/messages/endpoints_store.ts";
import { routeMessages } from "../../src/messages/routing_store.ts";
import { callWebhook, checkWebhookUrl } from "../../src/messages/webhook_call.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { createMessagesWorld, type MessagesWorld } from "./messages_world.ts";
import { type Call, openReceiver } from "./post.ts";

/** Source: MSG-3, MSG-4, MSG-9. */
const HOUR_MS = 3_600_000;

let receiver: Awaited<ReturnType<typeof openReceiver>>;
let world: MessagesWorld;
beforeAll(async () => {
  receiver = await openReceiver();
  world = await createMessagesWorld({ MESSAGES_ALLOW_PRIVATE: receiver.hostPort });
});
afterAll(async () => {
  await world.close();
  await receiver.close();
});
beforeEach(async () => {
  receiver.calls.length = 0;
  receiver.does.answer = () => ({ status: 204 });
  await world.resetClock();
});

const by = () => ({ ...world.deps, by: { accountId: 1, requestId: newRequestId() } });
async function subscribed(kinds = ["balance_low"]) {
  const person = await world.addCustomer();
  const { endpoint, secret } = await addEndpoint(by(), { accountId: person.accountId, url: receiver.url, kinds });
  const ref = { accountId: person.accountId, endpointId: endpoint.endpointId };
  const tell = (n = 1) =>
    world.tell({ kind: "balance_low", accountId: person.accountId, data: { freeNanoUsd: String(n) } });
  return { person, ref, secret, tell };
}
/** What the library of the scheme says; throws if the signature is wrong. */
const verified = (secret: string, { body, headers }: Call) =>
  new Webhook(secret).verify(body, headers) as { type: string; data: Record<string, unknown> };

test("the scheme's library accepts a call's signature, only with the endpoint's secret", async () => {
  const { person, secret, tell } = await subscribed();
  await tell();
  await world.start().run();
  const [call] = receiver.calls;
  if (!call) throw new Error("no call");
  expect(verified(secret, call)).toMatchObject({
    type: "balance_low",
    data: { accountId: person.accountId, freeNanoUsd: "1" },
  });
  expect(() => verified(`whsec_${Buffer.alloc(32).toString("base64")}`, call)).toThrow();
  expect(() => verified(secret, { ...call, body: call.body.replace("balance_low", "balance_hig") })).toThrow();
  expect(call.headers["user-agent"]).toBe("webhooks/1");
});

test("a receiver that fails is called again with the same id, in order, and the attempts are listed", async () => {
  const { ref, secret, tell } = await subscribed();
  receiver.does.answer = () => ({ status: 500, body: "\u0000broken" });
  await tell(1);
  await tell(2);
  const messages = world.start();
  await messages.run();
  expect(receiver.calls).toHaveLength(1);
  expect((await listEndpoints(world.deps, ref.accountId))[0]?.failingSince).not.toBeNull();
  receiver.does.answer = () => ({ status: 200 });
  await world.pass(HOUR_MS);
  await messages.run();
  expect(receiver.calls.map(({ body }) => JSON.parse(body).data.freeNanoUsd)).toEqual(["1", "1", "2"]);
  const ids = receiver.calls.map(({ headers }) => headers["webhook-id"]);
  expect(ids[0]).toBe(ids[1]);
  expect(ids[2]).not.toBe(ids[0]);
  const { rows } = await listDeliveries(world.deps, { endpointId: ref.endpointId });
  expect(rows.map(({ status, attempts }) => [status, attempts])).toEqual([
    ["sent", 1],
    ["sent", 2],
  ]);
  const attempts = await listAttempts(world.deps, { deliveryId: rows[1]?.deliveryId ?? 0, endpointId: ref.endpointId });
  expect(attempts.map(({ ok, status, answer }) => [ok, status, answer])).toEqual([
    [true, 200, ""],
    [false, 500, "broken"],
  ]);
  expect((await listEndpoints(world.deps, ref.accountId))[0]?.failingSince).toBeNull();
  await sendAgain(world.deps, { deliveryId: rows[0]?.deliveryId ?? 0, endpointId: ref.endpointId });
  await messages.run();
  expect(receiver.calls).toHaveLength(4);
  expect(receiver.calls[3]?.headers["webhook-id"]).toBe(ids[2]);
  expect(verified(secret, receiver.calls[0] as Call).type).toBe("balance_low");
});

test("a receiver that hangs is disconnected, and the calls to others continue", async () => {
  const hanging = await subscribed();
  receiver.does.answer = ({ body }) =>
    JSON.parse(body).data.accountId === hanging.person.accountId ? null : { status: 200 };
  const other = await subscribed();
  await hanging.tell();
  await other.tell();
  await world.start().run();
  const ended = await listDeliveries(world.deps, { endpointId: other.ref.endpointId });
  expect(ended.rows[0]?.status).toBe("sent");
  const cut = await listDeliveries(world.deps, { endpointId: hanging.ref.endpointId });
  expect(cut.rows[0]).toMatchObject({ status: "waiting", error: "no answer within 15 s" });
});

/** Nothing waits any more, so that nothing of one test is sent in the next. */
async function forgetAll(): Promise<void> {
  await world.sql`delete from outbox_deliveries`;
  await world.sql`update outbox_recipients set next_at = null, claim_id = null`;
}

test("of an account whose ten endpoints do not answer three are called at a time, and no neighbour waits for them", async () => {
  const subscribedTo = async (n: number) => {
    const { accountId } = await world.addCustomer();
    for (let i = 0; i < n; i++)
      await addEndpoint(by(), { accountId, url: `${receiver.url}/${accountId}/${i}`, kinds: ["balance_low"] });
    await world.tell({ kind: "balance_low", accountId, data: {} });
    await routeMessages(world.deps, { operatorMails: false });
    return accountId;
  };
  // Due first.
  const slow = await subscribedTo(10);
  const neighbours = [await subscribedTo(1), await subscribedTo(1), await subscribedTo(10)];
  const shares = { tenant: 8, tenantCalls: 64, accountCalls: 3 };
  const claimed: Claimed[] = [];
  /** Claims what there is room for, beside all that was claimed before, of which none has ended. */
  const claim = async (max: number, isSlow: boolean) => {
    const sending = claimed.map(({ tenantId, accountId, channel }) => ({ tenantId, accountId, channel, isSlow }));
    const next = await claimDeliveries(world.deps, { max, shares, sending });
    claimed.push(...next);
    return next.map(({ accountId }) => accountId);
  };
  const [first, second, many] = neighbours;
  // Each in turn, although the slow ones are due first.
  expect((await claim(5, false)).sort()).toEqual([slow, slow, first, second, many].map(Number).sort());
  // The tenant has eight places, until what is in them takes long.
  expect(await claim(16, false)).toHaveLength(3);
  expect(await claim(16, false)).toEqual([]);
  expect(new Set(await claim(16, true))).toEqual(new Set());
  const of = (accountId: number | undefined) => claimed.filter((one) => one.accountId === accountId).length;
  expect([slow, ...neighbours].map(of)).toEqual([3, 1, 1, 3]);
  // One that comes now is next.
  const late = await subscribedTo(1);
  expect(await claim(16, true)).toEqual([late]);
  await forgetAll();
});

test("a tenant has a limited number of slow calls, and its mails have places beside them", async () => {
  const accountIds: number[] = [];
  for (let i = 0; i < 4; i++) {
    const { accountId } = await world.addCustomer();
    accountIds.push(accountId);
    await addEndpoint(by(), { accountId, url: `${receiver.url}/tenant/${accountId}`, kinds: ["balance_low"] });
    await world.tell({ kind: "balance_low", accountId, data: {} });
  }
  await routeMessages(world.deps, { operatorMails: true });
  const shares = { tenant: 8, tenantCalls: 64, accountCalls: 3 };
  const channel = "webhook" as const;
  const full = Array.from({ length: 64 }, (_, i) => ({ tenantId: 0, accountId: 1_000_000 + i, channel, isSlow: true }));
  const claimed = await claimDeliveries(world.deps, { max: 16, shares, sending: full });
  expect(claimed.map((one) => one.channel)).toEqual(Array(4).fill("mail"));
  const calls = await claimDeliveries(world.deps, { max: 16, shares, sending: full.slice(2) });
  expect(calls.map((one) => one.channel)).toEqual(Array(2).fill("webhook"));
  const mails = Array.from({ length: 8 }, (_, i) => ({
    tenantId: 0,
    accountId: 2_000_000 + i,
    channel: "mail" as const,
    isSlow: true,
  }));
  const besideMails = await claimDeliveries(world.deps, { max: 16, shares, sending: mails });
  expect(besideMails.map((one) => one.channel)).toEqual(Array(2).fill("webhook"));
  await forgetAll();
});

test("redirects of any status are not followed, not even to an address that may be called", async () => {
  const inside = await openReceiver();
  for (const status of [301, 302, 303, 307, 308]) {
    receiver.calls.length = 0;
    const { ref, tell } = await subscribed();
    receiver.does.answer = () => ({ status, headers: { location: inside.url } });
    await tell();
    await world.start().run();
    expect(receiver.calls).toHaveLength(1);
    const { rows } = await listDeliveries(world.deps, { endpointId: ref.endpointId });
    expect(rows[0]).toMatchObject({ status: "waiting", error: "A redirect, which is not followed." });
  }
  expect(inside.calls).toEqual([]);
  await inside.close();
});

test("after a rotation both secrets sign until the overlap ends, then only the new one", async () => {
  const { ref, secret: old, tell } = await subscribed();
  const { secret: fresh } = await rotateSecret(by(), ref, 24);
  const messages = world.start();
  await tell();
  await messages.run();
  const first = receiver.calls[0] as Call;
  expect([verified(old, first).type, verified(fresh, first).type]).toEqual(["balance_low", "balance_low"]);
  await world.pass(25 * HOUR_MS);
  await tell();
  await messages.run();
  const second = receiver.calls[1] as Call;
  expect(second.headers["webhook-signature"]?.split(" ")).toHaveLength(1);
  await expect(rotateSecret(by(), ref, -1)).rejects.toThrow("0 to 168 hours");
});

test("an endpoint that fails for three days is switched off, its owner is told, and nothing waits for it", async () => {
  const { ref, tell } = await subscribed();
  receiver.does.answer = () => ({ status: 503, body: "down" });
  const messages = world.start();
  for (let hour = 0; hour < 80; hour += 4) {
    await tell(hour);
    await messages.run();
    await world.pass(4 * HOUR_MS);
  }
  const [endpoint] = await listEndpoints(world.deps, ref.accountId);
  expect(endpoint).toMatchObject({ enabled: false, pausedWhy: "Status 503" });
  const [told] =
    await world.sql`select data from outbox_messages where kind = 'webhook_paused' and account_id = ${ref.accountId}`;
  expect(told?.data).toMatchObject({ url: receiver.url, days: 3 });
  const { rows } = await listDeliveries(world.deps, { endpointId: ref.endpointId, status: "waiting" });
  expect(rows).toEqual([]);
  await changeEndpoint(by(), ref, { enabled: true });
  receiver.does.answer = () => ({ status: 200 });
  await tell();
  await messages.run();
  expect((await listDeliveries(world.deps, { endpointId: ref.endpointId })).rows[0]?.status).toBe("sent");
});

test("a call whose replica died, and whose endpoint was off meanwhile, can be sent again", async () => {
  const { ref, tell } = await subscribed();
  await tell();
  await routeMessages(world.deps, { operatorMails: false });
  const claimed = await claimDeliveries(world.deps, {
    max: 100,
    shares: { tenant: 100, tenantCalls: 100, accountCalls: 100 },
    sending: [],
  });
  expect(claimed.filter(({ endpointId }) => endpointId === ref.endpointId)).toHaveLength(1);
  await changeEndpoint(by(), ref, { enabled: false });
  await changeEndpoint(by(), ref, { enabled: true });
  const [ended] = (await listDeliveries(world.deps, { endpointId: ref.endpointId })).rows;
  expect(ended).toMatchObject({ status: "failed", error: "The endpoint is switched off." });
  await sendAgain(world.deps, { deliveryId: ended?.deliveryId ?? 0, endpointId: ref.endpointId });
  await world.start().run();
  expect((await listDeliveries(world.deps, { endpointId: ref.endpointId })).rows).toMatchObject([{ status: "sent" }]);
});

test("410 switches an endpoint off at once", async () => {
  const { ref, tell } = await subscribed();
  receiver.does.answer = () => ({ status: 410 });
  await tell();
  await world.start().run();
  expect((await listEndpoints(world.deps, ref.accountId))[0]).toMatchObject({
    enabled: false,
    pausedWhy: "Status 410",
  });
});

test("an endpoint must have a public address and https", async () => {
  const options = { allowPrivate: [], owner: { accountId: 1, tenantId: 0 } };
  for (const url of [
    "https://127.0.0.1/",
    "https://10.0.0.1/",
    "https://169.254.169.254/latest",
    "https://localhost/",
    "https://localhost./",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[fd00:ec2::254]/",
    "https://[fe80::1]/",
    "https://0.0.0.0/",
    "https://0x7f.1/",
    "https://0x7f000001/",
    "https://2130706433/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://\u2460\u2461\u2466.0.0.1/",
    "https://%31%32%37.0.0.1/",
    "https://100.64.0.1/",
    "https://168.63.129.16/",
    "ftp://example.com/",
    "nonsense",
    "https://a:b@example.com/",
  ])
    await expect(checkWebhookUrl(url, options)).rejects.toMatchObject({ param: "url" });
  await expect(checkWebhookUrl("http://93.184.216.34/", options)).rejects.toThrow("must begin with https://");
  expect(await checkWebhookUrl(" https://93.184.216.34/a ", options)).toBe("https://93.184.216.34/a");
});

test("a name that resolves to a private address later is refused at the call", async () => {
  const person = await world.addCustomer();
  // Saved while it was allowed.
  await addEndpoint(by(), { accountId: person.accountId, url: "http://127.0.0.1:9/", kinds: ["balance_low"] });
  await world.tell({ kind: "balance_low", accountId: person.accountId, data: {} });
  await world.start().run();
  const [row] = await world.sql`select error from outbox_deliveries where account_id = ${person.accountId}`;
  expect(row?.error).toContain("not a public address");
});

/** Calls a host whose name is looked up as `answers` say, one after the other. Returns how often it was. */
async function calledAt(
  answers: string[][],
  { host = "hooks.example", port = 443, allowPrivate = [] as string[] } = {},
) {
  let lookUps = 0;
  const resolve = async () => (answers[lookUps++] ?? []).map((address) => ({ address, family: 4 as const }));
  const call = { secrets: [`whsec_${Buffer.alloc(32).toString("base64")}`], messageId: "msg_1", unixMs: Date.now() };
  const url = `http://${host}:${port}/`;
  const owner = { accountId: 1, tenantId: 0 };
  const outcome = await callWebhook({ ...call, url, body: "{}", allowPrivate, owner, resolve });
  return { outcome, lookUps };
}

test("the next address of a name is called when one does not accept a connection", async () => {
  const port = Number(receiver.hostPort.split(":")[1]);
  const { outcome } = await calledAt([["127.0.0.9", "127.0.0.1"]], { port, allowPrivate: [`hooks.example:${port}`] });
  expect(outcome).toMatchObject({ ok: true, status: 204 });
});

test("DNS rebinding has no effect: a name is looked up once, and only the checked address is connected to", async () => {
  const port = Number(receiver.hostPort.split(":")[1]);
  const allowPrivate = [`hooks.example:${port}`];
  // The second answer would lead to a port where nobody listens.
  const { outcome, lookUps } = await calledAt([["127.0.0.1"], ["127.0.0.9"]], { port, allowPrivate });
  expect([outcome.ok, lookUps, receiver.calls.length]).toEqual([true, 1, 1]);
  expect(receiver.calls[0]?.headers.host).toBe(`hooks.example:${port}`);
  for (const addresses of [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["169.254.169.254"], []]) {
    const refused = await calledAt([addresses], { port });
    expect(refused.outcome).toMatchObject({ ok: false, isFinal: false, status: null });
    expect(refused.outcome.answer).toMatch(/not a public address|has no address/);
  }
  expect(receiver.calls).toHaveLength(1);
});

test("an endpoint whose secret can no longer be decrypted is not called, and shows why", async () => {
  const { ref, tell } = await subscribed();
  await world.sql`update webhook_endpoints set secret_ciphertext = ${Buffer.from("x")} where id = ${ref.endpointId}`;
  await tell();
  await world.start().run();
  expect(receiver.calls).toEqual([]);
  const { rows } = await listDeliveries(world.deps, { endpointId: ref.endpointId });
  expect(rows).toMatchObject([{ status: "waiting", error: expect.stringContaining("Make a new one") }]);
});

test("order_waits goes only to the seller, even if the customer's endpoint subscribes to it", async () => {
  const reseller = await world.addReseller();
  const customer = await world.addCustomer(reseller.accountId);
  for (const { accountId } of [reseller, customer])
    await addEndpoint(by(), { accountId, url: `${receiver.url}/${accountId}`, kinds: ["order_waits", "order_placed"] });
  await world.tell({ kind: "order_waits", accountId: customer.accountId, data: { waitsFor: "seller_balance" } });
  await world.start().run();
  const rows =
    await world.sql`select account_id::int as told from outbox_deliveries where account_id in (${reseller.accountId}, ${customer.accountId})`;
  expect(rows).toMatchObject([{ told: reseller.accountId }]);
});

test("a customer's events reach its reseller's endpoint and no other account's", async () => {
  const [reseller, other] = [await world.addReseller(), await world.addReseller()];
  for (const { accountId } of [reseller, other])
    await addEndpoint(by(), { accountId, url: `${receiver.url}/${accountId}`, kinds: ["order_paid"] });
  const customer = await world.addCustomer(reseller.accountId);
  await world.tell({ kind: "order_paid", accountId: customer.accountId, data: { orderId: 7 } });
  await world.tell({ kind: "invitation", accountId: customer.accountId, data: { urlCiphertext: "x" } });
  await world.start().run();
  expect(receiver.calls.map(({ body }) => JSON.parse(body))).toMatchObject([
    { type: "order_paid", data: { accountId: customer.accountId, orderId: 7 } },
  ]);
});

test("kinds with links, unknown kinds, an empty list of kinds and too many endpoints are refused", async () => {
  const { ref } = await subscribed();
  for (const kinds of [[], ["invitation"], ["nonsense"], ["balance_low", "webhook_paused"]])
    await expect(changeEndpoint(by(), ref, { kinds })).rejects.toMatchObject({ param: "kinds" });
  await expect(changeEndpoint(by(), { ...ref, accountId: 1 }, { enabled: false })).rejects.toThrow();
  await expect(
    addEndpoint(by(), { accountId: ref.accountId, url: receiver.url, kinds: ["balance_low"] }),
  ).rejects.toThrow("added before");
  for (let i = 1; i < 10; i++)
    await addEndpoint(by(), { accountId: ref.accountId, url: `${receiver.url}/${i}`, kinds: ["balance_low"] });
  await expect(
    addEndpoint(by(), { accountId: ref.accountId, url: `${receiver.url}/x`, kinds: ["balance_low"] }),
  ).rejects.toThrow("at most 10");
  await removeEndpoint(by(), ref);
  expect(await listEndpoints(world.deps, ref.accountId)).toHaveLength(9);
});
