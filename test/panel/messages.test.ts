import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { openShop, type Shop } from "../gateway/shop.ts";
import { type MailBox, openMailBox, openReceiver, ownAddress } from "../messages/post.ts";
import { until } from "../platform/own_redis.ts";
import { ok, type PanelSession, signInTo } from "./panel_client.ts";

/** The pages Mail and Webhooks, and the choice of mails. Source: MSG-4, MSG-6, MSG-8, MSG-9, MSG-11, ADM-11. */
const MAIL_HOST = ownAddress();
const LUMEN = "ai.lumen.test";

let box: MailBox;
let origin: string;
let receiver: Awaited<ReturnType<typeof openReceiver>>;
let shop: Shop;
let admin: PanelSession;
let reseller: PanelSession;
let customer: PanelSession;
beforeAll(async () => {
  box = await openMailBox({ host: MAIL_HOST, port: 2525 });
  receiver = await openReceiver();
  shop = await openShop();
  const other = await shop.start({
    MESSAGES_ALLOW_PRIVATE: `${MAIL_HOST}:2525,${receiver.hostPort}`,
    SMTP_URL: box.url,
    MAIL_FROM: "Operator <mail@operator.example>",
  });
  // The first has no mail server: it would route messages to nobody.
  await shop.replicas[0]?.stop();
  const { world } = shop;
  const lumen = await world.addReseller();
  await world.sql`insert into hosts (host, reseller_id, status, activated_at) values (${LUMEN}, ${lumen.accountId}, 'active', now())`;
  origin = other.origin;
  admin = await signInTo(shop, await world.addAdmin(), { origin });
  reseller = await signInTo(shop, lumen, { host: LUMEN, origin });
  customer = await signInTo(shop, await world.addCustomer(lumen.accountId), { host: LUMEN, origin });
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
  await box.close();
  await receiver.close();
});

const SERVER = {
  host: MAIL_HOST,
  port: 2525,
  userName: "lumen",
  password: "a secret",
  fromAddress: "hello@lumen.example",
  fromName: "Lumen",
};

test("without a mail server a link is shown with the note that it is not mailed; with a mail server it is also mailed, from the reseller", async () => {
  const before = ok(await reseller.post("/people", { email: "one@example.com", name: "One" }));
  expect(before.link.mailed).toBe(false);
  expect(ok(await reseller.get("/messages")).canMail).toBe(false);
  expect(ok(await customer.get("/settings/mails")).canMail).toBe(false);
  ok(await reseller.put("/mail-server", SERVER));
  const shown = ok(await reseller.get("/mail-server"));
  expect(shown.server).toEqual({
    host: MAIL_HOST,
    port: 2525,
    userName: "lumen",
    hasPassword: true,
    fromAddress: "hello@lumen.example",
    fromName: "Lumen",
  });
  const { link } = ok(await reseller.post("/people", { email: "two@example.com", name: "Two" }));
  expect(link.mailed).toBe(true);
  await until(() => box.to("two@example.com").length > 0);
  expect(box.to("two@example.com")[0]?.text).toContain(link.url);
  expect(box.to("one@example.com")).toHaveLength(0);
});

test("a test mail goes to the person who asks for it, and the answer of the server is shown", async () => {
  expect(ok(await reseller.post("/mail-server/test"))).toEqual({ to: reseller.email, problem: null });
  expect(box.to(reseller.email)[0]?.subject).toStartWith("Test mail from");
  box.does.refuses = () => "554 not today";
  expect(ok(await reseller.post("/mail-server/test")).problem).toContain("not today");
  box.does.refuses = () => null;
  expect(ok(await admin.post("/mail-server/test")).problem).toBeNull();
});

test("a mail server at a private address or on another port gets 422, and so does one that an admin sets", async () => {
  for (const [over, param] of [
    [{ host: "127.0.0.1" }, "host"],
    [{ host: "169.254.169.254" }, "host"],
    [{ host: "no such host" }, "host"],
    [{ port: 22 }, "host"],
    [{ fromName: "" }, "fromName"],
  ] as const) {
    const answer = await reseller.put("/mail-server", { ...SERVER, ...over });
    expect([answer.status, answer.json.error.param]).toEqual([422, param]);
  }
  expect((await admin.put("/mail-server", SERVER)).status).toBe(422);
  expect((await customer.put("/mail-server", SERVER)).status).toBe(404);
});

test("a private address that is allowed for a provider is refused for webhooks and mail servers", async () => {
  const { port } = shop.provider;
  const calls = shop.provider.calls().length;
  for (const person of [customer, reseller, admin])
    for (const url of [`http://127.0.0.1:${port}/v1/models`, `https://127.0.0.1:${port}/`]) {
      const answer = await person.post("/webhooks", { url, kinds: ["balance_low"] });
      expect([answer.status, answer.json.error.param]).toEqual([422, "url"]);
    }
  // An endpoint that was added while its address was allowed is no longer called.
  const { endpoint } = ok(await customer.post("/webhooks", { url: receiver.url, kinds: ["balance_low"] }));
  await shop.world
    .sql`update webhook_endpoints set url = ${`http://127.0.0.1:${port}/v1/models`} where id = ${endpoint.endpointId}`;
  expect(ok(await customer.post(`/webhooks/${endpoint.endpointId}/test`, {}))).toMatchObject({
    ok: false,
    status: null,
  });
  await shop.world.sql`delete from webhook_endpoints where id = ${endpoint.endpointId}`;
  expect(shop.provider.calls()).toHaveLength(calls);
});

test("the page shows since when and why the mail server does not answer, until a test mail arrives", async () => {
  await shop.world
    .sql`insert into mail_breakers (tenant_id, since, failures, why, next_at) values (0, now() - interval '1 hour', 9, 'connect ECONNREFUSED', now() + interval '1 hour')`;
  const down = async (session: PanelSession) => ok(await session.get("/messages")).downServers;
  expect(await down(admin)).toMatchObject([
    { tenantId: 0, name: null, why: "connect ECONNREFUSED", since: expect.any(String), nextAt: expect.any(String) },
  ]);
  expect(await down(reseller)).toEqual([]);
  ok(await admin.post("/mail-server/test"));
  expect(await down(admin)).toEqual([]);
});

test("a reseller sees the mails to its customers and sends failed ones again; another reseller sees none of them", async () => {
  box.does.refuses = () => "550 full";
  ok(await reseller.post("/people", { email: "three@example.com", name: "Three" }));
  const failed = async (session: PanelSession) => ok(await session.get("/messages?status=failed")).messages;
  await until(async () => (await failed(reseller)).length > 0);
  const [message] = await failed(reseller);
  expect(message).toMatchObject({
    kind: "invitation",
    address: "three@example.com",
    error: expect.stringContaining("full"),
  });
  expect((await failed(admin)).length).toBeGreaterThan(0);
  const other = await shop.world.addReseller("ai.other.test");
  const stranger = await signInTo(shop, other, { host: "ai.other.test", origin });
  expect(await failed(stranger)).toEqual([]);
  expect((await stranger.post(`/messages/${message.deliveryId}/send-again`)).status).toBe(404);
  box.does.refuses = () => null;
  ok(await reseller.post(`/messages/${message.deliveryId}/send-again`));
  await until(() => box.to("three@example.com").length > 0);
});

test("a customer adds a webhook, tests it, reads its calls, and gets a new secret; the audit log has no secret", async () => {
  const { endpoint, secret } = ok(await customer.post("/webhooks", { url: receiver.url, kinds: ["balance_low"] }));
  expect(secret).toStartWith("whsec_");
  expect(JSON.stringify(ok(await customer.get("/webhooks")))).not.toContain("whsec_");
  expect(ok(await customer.post(`/webhooks/${endpoint.endpointId}/test`))).toMatchObject({ ok: true, status: 204 });
  expect(ok(await customer.post(`/webhooks/${endpoint.endpointId}/rotate`, { overlapHours: 1 })).secret).not.toBe(
    secret,
  );
  await shop.world
    .sql`insert into outbox_messages (kind, account_id, data) values ('balance_low', ${customer.accountId}, '{}')`;
  const calls = async () => ok(await customer.get(`/webhooks/${endpoint.endpointId}/deliveries`)).deliveries;
  await until(async () => (await calls())[0]?.status === "sent");
  const [{ deliveryId }] = await calls();
  const { attempts } = ok(await customer.get(`/webhooks/${endpoint.endpointId}/deliveries/${deliveryId}`));
  expect(attempts).toMatchObject([{ ok: true, status: 204 }]);
  const [audit] = await shop.world
    .sql`select string_agg(coalesce(after::text, ''), ' ') as all from audit_entries where subject = 'webhook_endpoints'`;
  expect(audit?.all).toContain("(hidden)");
  expect(audit?.all).not.toContain("\\\\x01");
  expect(
    (await customer.post("/webhooks", { url: "https://127.0.0.1/", kinds: ["balance_low"] })).json.error.param,
  ).toBe("url");
  expect((await customer.patch(`/webhooks/${endpoint.endpointId}`, { kinds: [] })).json.error.param).toBe("kinds");
  ok(await customer.delete(`/webhooks/${endpoint.endpointId}`));
});

test("a reseller and an admin see a customer's webhook by its origin, with the status of its answers; neither the list nor the audit log has its path", async () => {
  const path = "T024/B81/s3cret";
  const { origin: shown } = new URL(receiver.url);
  receiver.does.answer = () => ({ status: 404, body: `Cannot POST /${path}` });
  const { endpoint } = ok(
    await customer.post("/webhooks", { url: `${shown}/${path}?k=s3cret`, kinds: ["balance_low"] }),
  );
  await shop.world
    .sql`insert into outbox_messages (kind, account_id, data) values ('balance_low', ${customer.accountId}, '{}')`;
  const own = async () => ok(await customer.get(`/webhooks/${endpoint.endpointId}/deliveries`)).deliveries[0];
  await until(async () => (await own())?.attempts > 0);
  expect(await own()).toMatchObject({ address: endpoint.url, error: `Cannot POST /${path}` });
  const { deliveryId } = await own();
  for (const session of [reseller, admin]) {
    const answer = await session.get("/messages");
    const seen = ok(answer).messages.find((one: { deliveryId: number }) => one.deliveryId === deliveryId);
    expect(seen).toMatchObject({ address: shown, error: "Status 404" });
    expect(answer.text).not.toContain("s3cret");
  }
  const audit = await admin.get("/audit?subject=webhook_endpoints");
  expect(ok(audit).entries[0].after).toMatchObject({ url: "(hidden)", enabled: true });
  expect(audit.text).not.toContain("s3cret");
  receiver.does.answer = () => ({ status: 204 });
  ok(await customer.delete(`/webhooks/${endpoint.endpointId}`));
});

test("an account chooses which kinds it is mailed; kinds that never concern it are not offered", async () => {
  const kinds = async (session: PanelSession) =>
    ok(await session.get("/settings/mails")).kinds.map(({ kind }: { kind: string }) => kind);
  expect(await kinds(customer)).not.toContain("order_placed");
  expect(await kinds(reseller)).toContain("domain_lost");
  ok(await customer.put("/settings/mails", { kind: "balance_low", mailed: false }));
  const now = ok(await customer.get("/settings/mails")).kinds.find(
    ({ kind }: { kind: string }) => kind === "balance_low",
  );
  expect(now.mailed).toBe(false);
  expect((await customer.put("/settings/mails", { kind: "invitation", mailed: false })).json.error.param).toBe("kind");
});

describe("calls that a person asks for", () => {
  const addHook = async (person: PanelSession) => {
    const { endpoint } = ok(await person.post("/webhooks", { url: receiver.url, kinds: ["balance_low"] }));
    return { path: `/webhooks/${endpoint.endpointId}` };
  };
  const addPerson = async () => {
    const { accountId } = await shop.world.addCustomer(reseller.accountId);
    return await signInTo(shop, { accountId }, { host: LUMEN, origin });
  };

  test("of one account, three tests of a silent webhook are open at once; the others get 429, and another customer is served", async () => {
    const [greedy, neighbour] = [await addPerson(), await addPerson()];
    const [hook, other] = [await addHook(greedy), await addHook(neighbour)];
    receiver.does.answer = () => null;
    const before = receiver.calls.length;
    const answers = Array.from({ length: 40 }, () => greedy.post(`${hook.path}/test`));
    let refusals = 0;
    for (const one of answers) void one.then(() => refusals++);
    await until(() => refusals === 37 && receiver.calls.length === before + 3);
    receiver.does.answer = () => ({ status: 204 });
    expect(ok(await neighbour.post(`${other.path}/test`))).toMatchObject({ ok: true });
    expect(receiver.calls.length).toBe(before + 4);
    receiver.hangUp();
    const ended = await Promise.all(answers);
    const refused = ended.filter(({ status }) => status === 429);
    expect(refused.length).toBe(37);
    expect(refused[0]?.json.error).toMatchObject({
      code: "too_many_requests",
      limit: 3,
      message: "This account may wait for 3 answers of other servers at once. Try again when one has ended.",
    });
    expect(ok(await greedy.post(`${hook.path}/test`))).toMatchObject({ ok: true });
  });

  test("an account may ask for 60 tests and for 60 repeated deliveries a minute", async () => {
    const greedy = await addPerson();
    const { path } = await addHook(greedy);
    const statuses: number[] = [];
    for (let i = 0; i < 62; i++) statuses.push((await greedy.post(`${path}/test`)).status);
    // The address of the new webhook was looked up too.
    expect(statuses.filter((status) => status === 200)).toHaveLength(59);
    const repeated: number[] = [];
    for (let i = 0; i < 62; i++) repeated.push((await greedy.post(`${path}/deliveries/1/send-again`)).status);
    expect(repeated.filter((status) => status === 404)).toHaveLength(60);
    expect(repeated.at(-1)).toBe(429);
  });
});
