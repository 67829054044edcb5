import { afterEach, beforeEach, expect, test } from "bun:test";
import { claimDeliveries, finishDelivery, pauseSeconds } from "../../src/messages/claims_store.ts";
import { listDeliveries, outboxState, pruneOutbox, sendAgain } from "../../src/messages/deliveries_store.ts";
import { routeMessages } from "../../src/messages/routing_store.ts";
import { tell } from "../../src/platform/outbox_store.ts";
import { createMessagesWorld, type MessagesWorld } from "./messages_world.ts";
import { type MailBox, openMailBox } from "./post.ts";

/** Source: MSG-1, MSG-2, MSG-3, MSG-4, MSG-8. */
const SHARES = { tenant: 5, tenantCalls: 5, accountCalls: 5 };
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

let box: MailBox;
let world: MessagesWorld;
beforeEach(async () => {
  box = await openMailBox();
  world = await createMessagesWorld({ SMTP_URL: box.url });
});
afterEach(async () => {
  await world.close();
  await box.close();
});

const told = (accountId: number, host: string) => world.tell({ kind: "domain_lost", accountId, data: { host } });
const list = async () => (await listDeliveries(world.deps, {})).rows;

test("a message is sent if and only if its transaction commits", async () => {
  const { accountId } = await world.addReseller();
  const failed = world.deps.db.orm.transaction(async (tx) => {
    await tell(tx, { kind: "domain_lost", accountId, data: { host: "never.example" } });
    throw new Error("rolled back");
  });
  await expect(failed).rejects.toThrow("rolled back");
  await told(accountId, "lost.example");
  await world.start().run();
  expect(box.mails.map(({ subject }) => subject)).toEqual(["lost.example is off"]);
});

test("no mail is lost while the mail server is unreachable for an hour: all arrive when it is back, each recipient's in order", async () => {
  const people = [await world.addReseller(), await world.addReseller(), await world.addReseller()];
  const { port } = box;
  await box.close();
  const messages = world.start();
  for (let i = 0; i < 4; i++) for (const { accountId } of people) await told(accountId, `host${i}.example`);
  for (let minute = 0; minute < 60; minute += 5) {
    await messages.run();
    await world.pass(5 * MINUTE_MS);
  }
  expect(await world.counts()).toEqual({ waiting: 12 });
  const waiting = await list();
  expect(waiting.filter(({ attempts }) => attempts > 2)).toHaveLength(3);
  expect(waiting.every(({ attempts }) => attempts < 12)).toBe(true);
  expect(waiting.find(({ attempts }) => attempts > 0)?.error).toMatch(/ECONNREFUSED|refused|Failed to connect/);
  box = await openMailBox({ port });
  await world.pass(HOUR_MS / 2);
  await messages.run();
  expect(await world.counts()).toEqual({ sent: 12 });
  for (const person of people)
    expect(box.to(await world.emailOf(person)).map(({ subject }) => subject)).toEqual(
      [0, 1, 2, 3].map((i) => `host${i}.example is off`),
    );
});

test("a message that cannot be sent for two days is given up, says why, and can be sent again", async () => {
  const { accountId } = await world.addReseller();
  box.does.refuses = () => "451 try later";
  const messages = world.start();
  await told(accountId, "lost.example");
  for (let hour = 0; hour < 50; hour++) {
    await messages.run();
    await world.pass(HOUR_MS);
  }
  const [given] = await list();
  expect(given).toMatchObject({ status: "failed", error: expect.stringContaining("try later") });
  expect(given?.attempts).toBeGreaterThan(20);
  expect(await outboxState(world.deps)).toMatchObject({
    waiting: 0,
    failed: 1,
  });
  box.does.refuses = () => null;
  await sendAgain(world.deps, { deliveryId: given?.deliveryId ?? 0 });
  await messages.run();
  expect(box.mails).toHaveLength(1);
  expect(await world.counts()).toEqual({ sent: 1 });
});

test("a message that cannot be rendered counts as a failed attempt: it is given up with the reason, and the next one arrives", async () => {
  const { accountId } = await world.addReseller();
  const data = { name: "Starter", endsAt: "2026-12-14T23:00:00.000Z", timeZone: "Nowhere/At all" };
  await world.tell({ kind: "package_ending", accountId, data });
  await told(accountId, "next.example");
  const messages = world.start();
  await messages.run();
  const error = "The message could not be written, because of an internal error.";
  expect((await list())[1]).toMatchObject({ status: "waiting", attempts: 1, error });
  for (let hour = 0; hour < 50; hour++) {
    await world.pass(HOUR_MS);
    await messages.run();
  }
  expect(await list()).toMatchObject([{ status: "sent" }, { status: "failed", error }]);
  expect(box.mails.map(({ subject }) => subject)).toEqual(["next.example is off"]);
});

test("an address that the server refuses fails at once; the mails to others arrive", async () => {
  const people = [await world.addReseller(), await world.addReseller(), await world.addReseller()];
  const bad = await world.emailOf(people[1] ?? { accountId: 0 });
  box.does.refuses = (address) => (address === bad ? "550 No such user here" : null);
  for (const { accountId } of people) await told(accountId, "lost.example");
  await world.start().run();
  expect(box.mails).toHaveLength(2);
  const failed = (await list()).filter(({ status }) => status === "failed");
  expect(failed).toMatchObject([{ address: bad, attempts: 1, error: expect.stringContaining("No such user here") }]);
});

test("a slow server delays only its own mails, and never has more than eight mails of one tenant at the same time", async () => {
  box.does.slowMs = 50;
  for (let i = 0; i < 30; i++) await told((await world.addReseller()).accountId, "lost.example");
  await world.start().run();
  expect(box.mails).toHaveLength(30);
  expect(box.does.most).toBeGreaterThan(1);
  expect(box.does.most).toBeLessThanOrEqual(8);
});

test("two replicas send each message once", async () => {
  for (let i = 0; i < 60; i++) await told((await world.addReseller()).accountId, `h${i}.example`);
  box.does.slowMs = 5;
  const [one, other] = [world.start(), world.start()];
  await Promise.all([one.run(), other.run()]);
  await Promise.all([one.run(), other.run()]);
  expect(box.mails).toHaveLength(60);
  expect(new Set(box.mails.map(({ subject }) => subject)).size).toBe(60);
  expect(await world.counts()).toEqual({ sent: 60 });
});

test("the claim of a dead replica expires: another replica sends the message, and a late result of the first is ignored", async () => {
  const { accountId } = await world.addReseller();
  await told(accountId, "lost.example");
  await routeMessages(world.deps, { operatorMails: true });
  const [dead] = await claimDeliveries(world.deps, { max: 5, shares: SHARES, sending: [] });
  if (!dead) throw new Error("nothing was claimed");
  const messages = world.start();
  await messages.run();
  expect(box.mails).toHaveLength(0);
  await world.pass(3 * MINUTE_MS);
  await messages.run();
  expect(box.mails).toHaveLength(1);
  const outcome = { ok: false, isFinal: true, status: null, answer: "late", tookMs: 1 };
  expect(await finishDelivery(world.deps, dead, { outcome, random: 0 })).toBe("lost");
  expect(await world.counts()).toEqual({ sent: 1 });
});

test("without a mail server no mail is queued, and messages are still processed", async () => {
  const bare = await createMessagesWorld();
  const { accountId } = await bare.addReseller();
  await bare.tell({ kind: "domain_lost", accountId, data: { host: "lost.example" } });
  await bare.start().run();
  expect(await bare.counts()).toEqual({});
  const [row] = await bare.sql`select routed_at is not null as done from outbox_messages`;
  expect(row?.done).toBe(true);
  await bare.close();
});

test("recipients without deliveries are deleted; those that get one meanwhile are kept, and no message is lost", async () => {
  const { sql } = world;
  const people = await Promise.all(Array.from({ length: 20 }, () => world.addReseller()));
  const messages = world.start();
  const recipients = async () => Number((await sql`select count(*) as n from outbox_recipients`)[0]?.n);
  for (let round = 1; round <= 6; round++) {
    for (const { accountId } of people) await told(accountId, `h${round}.example`);
    await Promise.all([messages.run(), pruneOutbox(world.deps), pruneOutbox(world.deps)]);
    expect(box.mails).toHaveLength(people.length * round);
    expect(await recipients()).toBe(people.length);
    await sql`update outbox_deliveries set ended_at = clock_timestamp() - interval '31 days'`;
  }
  // One is being written to.
  await sql.begin(async (tx) => {
    await tx`update outbox_recipients set failures = 0 where id = (select min(id) from outbox_recipients)`;
    await pruneOutbox(world.deps);
    expect(await recipients()).toBe(1);
  });
  await pruneOutbox(world.deps);
  expect(await recipients()).toBe(0);
  expect(await world.counts()).toEqual({});
});

test("pauses double from 10 s to half an hour, each shortened at random by at most half", () => {
  expect([1, 2, 3, 8, 9, 50].map((failures) => pauseSeconds(failures, 1))).toEqual([10, 20, 40, 1280, 1800, 1800]);
  expect(pauseSeconds(50, 0)).toBe(900);
});
