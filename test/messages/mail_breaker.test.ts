import { afterEach, beforeEach, expect, test } from "bun:test";
import { createServer, type Server, type Socket } from "node:net";
import { listDeliveries, sendAgain } from "../../src/messages/deliveries_store.ts";
import { addEndpoint } from "../../src/messages/endpoints_store.ts";
import { listDownServers } from "../../src/messages/mail_breakers_store.ts";
import { removeMailServer, saveMailServer } from "../../src/messages/mail_servers_store.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { runCli } from "../cli/cli_process.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { createMessagesWorld, type MessagesWorld } from "./messages_world.ts";
import { type MailBox, openMailBox, openReceiver, ownAddress } from "./post.ts";

/** A mail server that does not answer. Source: MSG-3, MSG-4, MSG-12. */
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
/** Loopback, on a port that resellers may use: one that is up, one that hangs, one where nobody listens. */
const UP = ownAddress();
const HANGS = ownAddress();
const GONE = ownAddress();
const PORT = 2525;

let box: MailBox;
let receiver: Awaited<ReturnType<typeof openReceiver>>;
let world: MessagesWorld;
beforeEach(async () => {
  box = await openMailBox({ host: UP, port: PORT });
  receiver = await openReceiver();
  const allowed = [...[UP, HANGS, GONE].map((host) => `${host}:${PORT}`), receiver.hostPort];
  world = await createMessagesWorld({ MESSAGES_ALLOW_PRIVATE: allowed.join(",") });
});
afterEach(async () => {
  await world.close();
  await box.close();
  await receiver.close();
});

const by = () => ({ ...world.deps, by: { accountId: 1, requestId: newRequestId() } });
const serverAt = (host: string) => ({
  ...{ host, port: PORT, userName: null, fromAddress: "hello@lumen.example", fromName: "Lumen AI" },
});

/** A reseller with a brand and a mail server, and customers who wait for a mail. */
async function tenant(host: string, customers: number) {
  const reseller = await world.addReseller();
  const { accountId } = reseller;
  await world.sql`insert into brands (reseller_id, name, version) values (${accountId}, 'Lumen AI', '1')`;
  await saveMailServer(by(), accountId, serverAt(host));
  const people: Person[] = [];
  for (let i = 0; i < customers; i++) people.push(await world.addCustomer(accountId));
  const tellAll = async (name: string) => {
    for (const person of people)
      await world.tell({ kind: "package_used_up", accountId: person.accountId, data: { name } });
  };
  await tellAll("First");
  const list = async () => (await listDeliveries(world.deps, { tenantId: accountId, limit: 100 })).rows;
  const attempts = async () => (await list()).reduce((sum, one) => sum + one.attempts, 0);
  const down = async () => (await listDownServers(world.deps, { tenantId: accountId }))[0];
  return { accountId, people, tellAll, list, attempts, down };
}

test("an unreachable server gets one mail at a time, with growing pauses; the others wait without an attempt, and are sent when it answers", async () => {
  const { accountId, people, tellAll, list, attempts, down } = await tenant(GONE, 20);
  const messages = world.start();
  const startedMs = world.unixMs();
  await messages.run();
  // Those that were under way when it was noticed.
  const first = await attempts();
  expect(first).toBeGreaterThan(0);
  expect(first).toBeLessThanOrEqual(8);
  expect(await down()).toMatchObject({
    tenantId: accountId,
    why: expect.stringMatching(/ECONNREFUSED|refused|connect/i),
  });
  const since = (await down())?.since ?? "";
  expect(Date.parse(since)).toBeGreaterThanOrEqual(startedMs - 1000);
  await messages.run();
  expect(await attempts()).toBe(first);
  // Probes: after at most 10, 20, 40 … seconds, and then every five minutes.
  for (let minute = 0; minute < 60; minute++) {
    await world.pass(MINUTE_MS);
    const before = await attempts();
    await messages.run();
    expect((await attempts()) - before).toBeLessThanOrEqual(1);
  }
  const probes = (await attempts()) - first;
  expect(probes).toBeGreaterThanOrEqual(12);
  expect(probes).toBeLessThanOrEqual(25);
  // Each recipient has its turn.
  expect(Math.max(...(await list()).map((one) => one.attempts))).toBeLessThanOrEqual(3);
  expect((await down())?.since).toBe(since);
  for (const { nextAt } of await list())
    expect(Date.parse(nextAt ?? "")).toBeGreaterThanOrEqual(Date.parse((await down())?.nextAt ?? ""));
  await tellAll("Second");
  const back = await openMailBox({ host: GONE, port: PORT });
  await world.pass(6 * MINUTE_MS);
  await messages.run();
  expect(await down()).toBeUndefined();
  expect(back.mails).toHaveLength(40);
  for (const person of people)
    expect(back.to(await world.emailOf(person)).map(({ subject }) => subject)).toEqual([
      "First is used up",
      "Second is used up",
    ]);
  await back.close();
});

test("two replicas send one probe, not two", async () => {
  const { attempts } = await tenant(GONE, 4);
  const replicas = [world.start(), world.start(), world.start()];
  await Promise.all(replicas.map((one) => one.run()));
  for (let probe = 0; probe < 5; probe++) {
    await world.pass(10 * MINUTE_MS);
    const before = await attempts();
    await Promise.all(replicas.map((one) => one.run()));
    expect((await attempts()) - before).toBe(1);
  }
});

test("mail servers of other tenants that hang delay no mail and no webhook", async () => {
  const open = new Set<Socket>();
  let given = 0;
  const silent: Server = createServer((socket) => {
    open.add(socket.on("error", () => {}).on("close", () => given++));
  });
  await new Promise<void>((resolve) => silent.listen(PORT, HANGS, resolve));
  // More than a replica has places.
  const hanging = [await tenant(HANGS, 10), await tenant(HANGS, 10), await tenant(HANGS, 10), await tenant(GONE, 10)];
  const messages = world.start(100);
  await until(() => open.size >= 16);
  const fine = await tenant(UP, 3);
  const [person] = fine.people;
  // One of a tenant whose mail server hangs has a webhook that works.
  const [caller] = hanging[0]?.people ?? [];
  if (!person || !caller) throw new Error("nobody was added");
  await addEndpoint(by(), { accountId: caller.accountId, url: receiver.url, kinds: ["balance_low"] });
  await world.tell({ kind: "balance_low", accountId: caller.accountId, data: {} });
  await until(() => box.mails.length === 3);
  // None of the hanging servers was given up before.
  expect(given).toBe(0);
  for (const socket of open) socket.destroy();
  await until(() => receiver.calls.length === 1);
  await messages.close();
  await new Promise<void>((resolve) => silent.close(() => resolve()));
  expect(await fine.down()).toBeUndefined();
});

test("a failure of one mail or one address does not stop the others", async () => {
  const { people, list, down } = await tenant(UP, 4);
  const bad = await world.emailOf(people[0] as Person);
  const slow = await world.emailOf(people[1] as Person);
  box.does.refuses = (address) => (address === bad ? "550 no such user" : address === slow ? "451 greylisted" : null);
  await world.start().run();
  expect(box.mails).toHaveLength(2);
  expect(await down()).toBeUndefined();
  expect((await list()).map(({ status }) => status).sort()).toEqual(["failed", "sent", "sent", "waiting"]);
});

test("a probe whose mail cannot be rendered does not change the breaker: the next probe follows", async () => {
  const { people, down } = await tenant(GONE, 12);
  const messages = world.start();
  await messages.run();
  // Suspended meanwhile: their mails are never written.
  for (const { accountId } of people.slice(0, -1))
    await world.sql`update accounts set status = 'suspended' where id = ${accountId}`;
  const since = (await down())?.since;
  // The one who is left takes a probe of each round.
  for (let round = 0; round < 2; round++) {
    await world.pass(10 * MINUTE_MS);
    // A replica runs once a second: a claim may come just before the breaker is free again.
    for (let second = 0; second < 12; second++) await messages.run();
  }
  expect((await down())?.since).toBe(since ?? "");
  expect(await world.counts()).toEqual({ failed: 11, waiting: 1 });
});

test("a probe whose mail cannot be rendered now is not repeated immediately: it waits like any other mail", async () => {
  const { attempts, down } = await tenant(GONE, 2);
  const messages = world.start();
  await messages.run();
  const [before, since] = [await attempts(), (await down())?.since];
  const data = JSON.stringify({ endsAt: "2026-12-14T23:00:00.000Z", timeZone: "Nowhere/At all" });
  await world.sql`update outbox_messages set kind = 'package_ending', data = ${data}::text::jsonb`;
  await world.pass(10 * MINUTE_MS);
  await messages.run();
  await messages.run();
  // Each of the two has had its turn.
  expect((await attempts()) - before).toBe(2);
  expect((await down())?.since).toBe(since ?? "");
});

test("mails that have waited for two days are given up with the reason, though they were never tried", async () => {
  const { list } = await tenant(GONE, 12);
  const messages = world.start();
  await messages.run();
  await world.pass(49 * HOUR_MS);
  for (let probe = 0; probe < 3; probe++) {
    await messages.run();
    await world.pass(6 * MINUTE_MS);
  }
  expect(await world.counts()).toEqual({ failed: 12 });
  const untried = (await list()).filter(({ attempts }) => attempts === 0);
  expect(untried.length).toBeGreaterThan(0);
  for (const { error } of untried) expect(error).toMatch(/ECONNREFUSED|refused|connect/i);
});

test("mails do not wait for the next probe after the server was changed or removed, or after 'Send now'", async () => {
  const { accountId, list, down, tellAll } = await tenant(GONE, 3);
  const messages = world.start();
  await messages.run();
  const before = await list();
  await sendAgain(world.deps, { deliveryId: before[0]?.deliveryId ?? 0 });
  await messages.run();
  expect((await list()).reduce((sum, one) => sum + one.attempts, 0)).toBe(4);
  await saveMailServer(by(), accountId, serverAt(UP));
  expect(await down()).toBeUndefined();
  await tellAll("Second");
  await world.pass(MINUTE_MS);
  await messages.run();
  expect(box.mails).toHaveLength(6);
  await saveMailServer(by(), accountId, serverAt(GONE));
  await tellAll("Third");
  await messages.run();
  expect(await down()).toBeDefined();
  await removeMailServer(by(), accountId);
  expect(await down()).toBeUndefined();
});

test("a password that can no longer be decrypted holds the mails with the reason, and none is lost", async () => {
  const { accountId, list, down } = await tenant(UP, 2);
  await world.sql`update mail_servers set user_name = 'lumen', smtp_password_ciphertext = ${Buffer.from("x")} where reseller_id = ${accountId}`;
  const messages = world.start();
  await messages.run();
  expect((await down())?.why).toBe("The stored password cannot be decrypted. Enter it again.");
  expect((await list()).every(({ status }) => status === "waiting")).toBe(true);
  await saveMailServer(by(), accountId, { ...serverAt(UP), userName: "lumen", password: "fresh" });
  await world.pass(MINUTE_MS);
  await messages.run();
  expect(box.mails).toHaveLength(2);
});

test("doctor and the metric say which mail server does not answer", async () => {
  await tenant(GONE, 1);
  const messages = world.start();
  await messages.run();
  await world.pass(1000);
  const { out } = await runCli("doctor", { env: { DATABASE_URL: world.url, SPOOL_DIR: world.spoolDir } });
  expect(out).toMatch(
    /warning {2}mail server of reseller\d+: has not answered since \d{4}-\d\d-\d\dT[^:]+:\d\d:[^:]+: .*/,
  );
  await world.pass(MINUTE_MS);
  await messages.run();
  expect(messages.status().serversDown).toEqual({ operator: 0, reseller: 1 });
});
