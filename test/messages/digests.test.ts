import { afterEach, beforeEach, expect, test } from "bun:test";
import { NOTICES_HOUR_MAX } from "../../src/messages/digests_store.ts";
import { BY_OTHERS, OPTIONAL_KINDS } from "../../src/messages/kinds.ts";
import { routeMessages } from "../../src/messages/routing_store.ts";
import { EXAMPLES } from "./examples.ts";
import { createMessagesWorld, type MessagesWorld } from "./messages_world.ts";
import { type MailBox, openMailBox } from "./post.ts";

/** Strangers cannot flood a seller with mails. Source: MSG-14. */
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const FLOOD = 65;

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

const route = (db = world.deps.db) => routeMessages({ db }, { operatorMails: true });
/** Messages of `kind`, each of another customer of the operator. */
async function flood(kind: keyof typeof EXAMPLES, messages: number): Promise<void> {
  await world.sql`
    with people as (
      insert into accounts (role, email, name)
      select 'customer', ${kind} || i || clock_timestamp() || '@example.com', 'New' from generate_series(1, ${messages}::int) i returning id
    )
    insert into outbox_messages (kind, account_id, data) select ${kind}, id, ${world.sql.json(EXAMPLES[kind])}::jsonb from people`;
}
/** Deliveries of mails by kind, of one reader. */
async function mailed(accountId: number): Promise<Record<string, number>> {
  const rows = await world.sql`
    select m.kind, count(*)::int as n from outbox_deliveries d join outbox_messages m on m.id = d.message_id
    join outbox_recipients r on r.id = d.recipient_id
    where d.account_id = ${accountId} and r.channel = 'mail' group by m.kind`;
  return Object.fromEntries(rows.map(({ kind, n }) => [kind, n]));
}
const digests = () =>
  world.sql`select account_id::int as id, data from outbox_messages where kind = 'notices_digest' order by 1`;

test("each admin is mailed twenty of an hour's sign-ups one by one, and one digest of the rest; then an hour begins anew", async () => {
  const readers = [await world.addAdmin(), await world.addAdmin()];
  const messages = world.start();
  await flood("customer_signed_up", FLOOD);
  await messages.run();
  for (const { accountId } of readers)
    expect(await mailed(accountId)).toEqual({ customer_signed_up: NOTICES_HOUR_MAX });
  await world.pass(30 * MINUTE_MS);
  await flood("customer_signed_up", FLOOD);
  await messages.run();
  for (const { accountId } of readers)
    expect(await mailed(accountId)).toEqual({ customer_signed_up: NOTICES_HOUR_MAX });
  await world.pass(30 * MINUTE_MS);
  await messages.run();
  for (const reader of readers) {
    const mails = box.to(await world.emailOf(reader));
    expect(mails).toHaveLength(NOTICES_HOUR_MAX + 1);
    expect(mails.at(-1)?.subject).toBe(`New customers: ${2 * FLOOD - NOTICES_HOUR_MAX} more`);
    expect(mails.at(-1)?.text).toContain("https://panel.tollgate.example/admin/sign-up");
  }
  await flood("customer_signed_up", 1);
  await messages.run();
  for (const { accountId } of readers)
    expect(await mailed(accountId)).toEqual({ customer_signed_up: NOTICES_HOUR_MAX + 1, notices_digest: 1 });
});

test("a flood of one kind holds back no other kind, and one digest names all kinds of the hour", async () => {
  const { accountId } = await world.addAdmin();
  await flood("customer_signed_up", FLOOD);
  await route();
  await world.pass(20 * MINUTE_MS);
  await flood("dispute_opened", 2);
  await flood("order_placed", NOTICES_HOUR_MAX + 3);
  await route();
  expect(await mailed(accountId)).toEqual({
    ...{ customer_signed_up: NOTICES_HOUR_MAX, dispute_opened: 2 },
    order_placed: NOTICES_HOUR_MAX,
  });
  // The hour of all kinds is that of the first.
  await world.pass(40 * MINUTE_MS);
  await route();
  const [digest, ...others] = await digests();
  expect(others).toEqual([]);
  expect(digest).toMatchObject({
    id: accountId,
    data: { counts: { customer_signed_up: FLOOD - NOTICES_HOUR_MAX, order_placed: 3 } },
  });
});

test("every kind that a seller is told of its customers is bounded, and a reader who switched one off is not counted for it", async () => {
  const admin = await world.addAdmin();
  const deaf = await world.addAdmin();
  for (const kind of BY_OTHERS) {
    await world.sql`insert into muted_mails (account_id, kind) values (${deaf.accountId}, ${kind})`;
    await flood(kind, NOTICES_HOUR_MAX + 1);
  }
  while ((await route()).isMore);
  expect(await mailed(admin.accountId)).toEqual(Object.fromEntries(BY_OTHERS.map((kind) => [kind, NOTICES_HOUR_MAX])));
  expect(await mailed(deaf.accountId)).toEqual({});
  await world.pass(HOUR_MS);
  await route();
  expect(await digests()).toMatchObject([
    { id: admin.accountId, data: { counts: Object.fromEntries(BY_OTHERS.map((kind) => [kind, 1])) } },
  ]);
  expect(OPTIONAL_KINDS).toContain("notices_digest");
});

test("a webhook is called for each message: a program can read them all", async () => {
  const { accountId } = await world.addAdmin();
  await world.sql`
    insert into webhook_endpoints (account_id, url, kinds, secret_ciphertext)
    values (${accountId}, 'https://hooks.example.com/', array['customer_signed_up'], '\\x00')`;
  await flood("customer_signed_up", FLOOD);
  await route();
  const [calls] = await world.sql`
    select count(*)::int as n from outbox_deliveries d join outbox_recipients r on r.id = d.recipient_id where r.channel = 'webhook'`;
  expect(calls?.n).toBe(FLOOD);
});

test("two replicas, and one that fails before its commit, count each message once and write one digest", async () => {
  const { accountId } = await world.addAdmin();
  const other = world.openDb();
  try {
    const both = () => Promise.all([route(), route(other), route(), route(other)]);
    await flood("customer_signed_up", 3 * FLOOD);
    await world.sql.unsafe(`
      create function fails() returns trigger language plpgsql as $$ begin raise exception 'the replica dies'; end $$;
      create trigger dies before update of routed_at on outbox_messages for each statement execute function fails()`);
    await expect(route()).rejects.toThrow("the replica dies");
    await world.sql`drop trigger dies on outbox_messages`;
    const isLeft = async () =>
      (await world.sql`select from outbox_messages where routed_at is null limit 1`).length > 0;
    while (await isLeft()) await both();
    expect(await mailed(accountId)).toEqual({ customer_signed_up: NOTICES_HOUR_MAX });
    await world.pass(HOUR_MS);
    await both();
    while (await isLeft()) await both();
    expect(await digests()).toMatchObject([
      { id: accountId, data: { counts: { customer_signed_up: 3 * FLOOD - NOTICES_HOUR_MAX } } },
    ]);
    expect(await mailed(accountId)).toEqual({ customer_signed_up: NOTICES_HOUR_MAX, notices_digest: 1 });
  } finally {
    await other.close();
  }
});
