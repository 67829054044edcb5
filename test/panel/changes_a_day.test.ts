import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import type { Person } from "../world.ts";
import { PASSWORD, type PanelSession, signInTo } from "./panel_client.ts";

/** What a person changes is kept in the audit log for a long time, so that a day has a limit, whichever replica is asked. */

setDefaultTimeout(120_000);
/** Written down a second time on purpose. */
const CUSTOMER_MAX = 300;
const RESELLER_MAX = 5_000;
/** Changes under way at once do not see each other. */
const AT_ONCE = 8;

let shop: Shop;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "", replicas: 2, env: { SERVER_ADDRESSES: "203.0.113.7" } });
});
afterAll(() => shop.close());

async function entriesOf({ accountId }: Person): Promise<number> {
  const [row] = await shop.world.sql`select count(*)::int as n from audit_entries where actor_id = ${accountId}`;
  return Number(row?.n);
}

/** Entries of a person, as so many changes would have left them, all of them `hoursAgo`. */
async function addEntries({ accountId }: Person, count: number, hoursAgo = 1): Promise<void> {
  await shop.world.sql`
    insert into audit_entries (actor_id, action, subject, subject_id, account_id, created_at)
    select ${accountId}, 'changed', 'accounts', ${String(accountId)}, ${accountId}, clock_timestamp() - make_interval(hours => ${hoursAgo})
    from generate_series(1, ${count}::int)`;
}

/** One after the other: each sign-in gives the person a password. */
async function onReplicas(person: Person): Promise<PanelSession[]> {
  const sessions: PanelSession[] = [];
  for (const { origin } of shop.replicas) sessions.push(await signInTo(shop, person, { origin }));
  return sessions;
}

function expectTooMany(answer: Answer): void {
  expectRefusal(answer, "too_many_requests");
  expect(answer.json.error.message).toContain("changes within 24 hours");
  expect(Date.parse(answer.json.error.resets_at)).toBeGreaterThan(Date.now());
  expect(Number(answer.headers.get("retry-after"))).toBeLessThan(60);
}

test("renaming oneself for ever: 429 after 300 changes, over both replicas together, and nothing is written any more", async () => {
  const person = await shop.world.addCustomer();
  const sessions = await onReplicas(person);
  const refused: Answer[] = [];
  let sent = 0;
  const send = async (session: PanelSession) => {
    while (sent < CUSTOMER_MAX + 60) {
      const answer = await session.patch("/settings/profile", { name: `Name ${sent++}` });
      if (answer.status !== 200) refused.push(answer);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, (_, i) => send(sessions[i % 2] as PanelSession)));
  for (const answer of refused) expectTooMany(answer);
  const written = await entriesOf(person);
  expect(written).toBeGreaterThanOrEqual(CUSTOMER_MAX);
  expect(written).toBeLessThanOrEqual(CUSTOMER_MAX + AT_ONCE);
  for (const session of sessions) expectTooMany(await session.patch("/settings/profile", { name: "One more" }));
  expect(await entriesOf(person)).toBe(written);
});

test("keys, orders and settings count together; a key can still be revoked and disabled, and the password changed", async () => {
  const person = await shop.world.addCustomer();
  const keys = [await shop.world.addKey(person), await shop.world.addKey(person)];
  const [session] = await onReplicas(person);
  if (!session) throw new Error("nobody signed in");
  const order = (await session.post("/orders", { kind: "top_up", amountNanoUsd: "1000000000" })).json.order;
  await addEntries(person, CUSTOMER_MAX);
  for (const change of [
    () => session.post("/keys", { name: "ci", mode: "package" }),
    () => session.post(`/keys/${keys[0]?.keyId}/rotate`, { overlapSeconds: 0 }),
    () => session.patch(`/keys/${keys[0]?.keyId}`, { name: "other" }),
    () => session.post("/orders", { kind: "top_up", amountNanoUsd: "1000000000" }),
    () => session.patch("/settings/notices", { days: 4 }),
  ])
    expectTooMany(await change());
  expect((await session.post(`/keys/${keys[0]?.keyId}/disable`)).status).toBe(200);
  expect((await session.post(`/keys/${keys[1]?.keyId}/revoke`)).status).toBe(200);
  expect((await session.post(`/orders/${order.orderId}/withdraw`)).status).toBe(200);
  const passwords = { current: PASSWORD, next: `${PASSWORD}, anew` };
  expect((await session.post("/settings/password", passwords)).status).toBe(200);
  // Of these too there is an end: each is an entry.
  await addEntries(person, CUSTOMER_MAX);
  expectTooMany(await session.post(`/keys/${keys[0]?.keyId}/revoke`));
  // A day later it goes on.
  await shop.world.sql`
    update audit_entries set created_at = created_at - interval '24 hours' where actor_id = ${person.accountId}`;
  expect((await session.post(`/keys/${keys[0]?.keyId}/revoke`)).status).toBe(200);
  expect((await session.post("/keys", { name: "ci", mode: "package" })).status).toBe(200);
});

test("a reseller may make 5,000, of people and domains too; an admin as many as there are", async () => {
  const [reseller, admin] = [await shop.world.addReseller(), await shop.world.addAdmin()];
  const invite = { email: "new@example.com", name: "New" };
  const [session] = await onReplicas(reseller);
  await addEntries(reseller, RESELLER_MAX - 1);
  expect((await session?.post("/people", invite))?.status).toBe(200);
  for (const [path, body] of [
    ["/people", { ...invite, email: "next@example.com" }],
    ["/domains", { host: "ai.many.example" }],
  ] as const)
    expectTooMany((await session?.post(path, body)) as Answer);
  const [operator] = await onReplicas(admin);
  await addEntries(admin, 2 * RESELLER_MAX);
  expect((await operator?.post("/people", { ...invite, email: "admins@example.com" }))?.status).toBe(200);
});
