import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { managementOf } from "../operations/management_client.ts";
import { signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";

/** A burst of reads of one account, or of one tenant, leaves the connections to the others. Source: ADM-14. */
const BURST = 250;
/** A quarter and a half of the connections, and who may wait. */
const [ACCOUNT_AT_ONCE, TENANT_AT_ONCE, ACCOUNT_WAITING] = [3, 6, 100];
const HOST = "ai.reads.test";

let shop: Shop;
beforeAll(async () => {
  const env = { DB_POOL_MAX: "12", ACCOUNT_SHARE: "0.25", TENANT_SHARE: "0.5", LEDGER_TIMEOUT_MS: "60000" };
  shop = await openShop({ redisUrl: "", env });
  await shop.world.addReseller(HOST);
});
afterAll(() => shop.close());

/** How many connections wait for a table. */
async function waitingFor(table: string): Promise<number> {
  const [row] = await shop.world.sql`
    select count(*)::int as n from pg_locks where not granted and relation = ${table}::regclass
      and database = (select oid from pg_database where datname = current_database())`;
  return Number(row?.n);
}

type Ask = () => Promise<Answer>;

/**
 * Sends a burst while nobody can read a table, and asks what a neighbour asks. Returns how many reads of the burst the server had at once,
 * and how the burst ended.
 */
async function burstOf(table: string, asks: readonly Ask[], neighbour: Ask, { atOnce }: { atOnce: number }) {
  const ended: Record<string, number> = {};
  let burst: Promise<void>[] = [];
  await shop.world.sql.begin(async (sql) => {
    await sql.unsafe(`lock table ${table} in access exclusive mode`);
    burst = Array.from({ length: BURST }, async (_, i) => {
      const { status, json } = await (asks[i % asks.length] as Ask)();
      const how = status < 500 && status !== 429 ? "answered" : `${status} ${json?.error?.code}`;
      ended[how] = (ended[how] ?? 0) + 1;
    });
    await until(async () => (await waitingFor(table)) >= atOnce);
    // The burst is still being sent: what is refused has been read.
    const refused = BURST - asks.length * ACCOUNT_WAITING - atOnce;
    await until(() => Object.values(ended).reduce((sum, n) => sum + n, 0) >= refused);
    expect((await neighbour()).status).toBe(200);
    expect(await waitingFor(table)).toBe(atOnce);
    expect(ended.answered ?? 0).toBe(0);
  });
  await Promise.all(burst);
  return ended;
}

describe("250 reads of one account at once: three are in the database, a hundred wait, the rest get 429, and a neighbour is served", () => {
  const expectShared = (ended: Record<string, number>) => {
    const { answered = 0, "429 too_many_requests": refused = 0, ...others } = ended;
    expect(others).toEqual({});
    expect(answered).toBeWithin(ACCOUNT_AT_ONCE, ACCOUNT_AT_ONCE + ACCOUNT_WAITING + 1);
    expect(answered + refused).toBe(BURST);
  };

  test("in the panel", async () => {
    const attacker = await signInTo(shop, await shop.world.addCustomer());
    const neighbour = await signInTo(shop, await shop.world.addCustomer());
    const asks = [() => attacker.get("/webhooks")];
    const atOnce = ACCOUNT_AT_ONCE;
    expectShared(await burstOf("webhook_endpoints", asks, () => neighbour.get("/keys"), { atOnce }));
  });

  test("in the panel, by changes that end before they change anything", async () => {
    const attacker = await signInTo(shop, await shop.world.addCustomer());
    const neighbour = await signInTo(shop, await shop.world.addCustomer());
    const asks = [() => attacker.post("/webhooks/1/test")];
    const atOnce = ACCOUNT_AT_ONCE;
    expectShared(await burstOf("webhook_endpoints", asks, () => neighbour.get("/keys"), { atOnce }));
  });

  test("through the management API", async () => {
    const attacker = await managementOf(shop, await shop.world.addReseller(), "reseller");
    const neighbour = await managementOf(shop, await shop.world.addReseller(), "reseller");
    const asks = [() => attacker.get("/webhooks")];
    const atOnce = ACCOUNT_AT_ONCE;
    expectShared(await burstOf("webhook_endpoints", asks, () => neighbour.get("/domains"), { atOnce }));
  });

  test("through the API, by all keys of the account together", async () => {
    const attacker = await shop.customer();
    const keys = [attacker, await shop.world.addKey(attacker), await shop.world.addKey(attacker)];
    const neighbour = await shop.customer();
    let turn = 0;
    const read = () => {
      const { secret } = keys[turn++ % keys.length] as { secret: string };
      return shop.call(`/v1/responses/resp_${"0".repeat(32)}`, { secret });
    };
    const ask = () => shop.call("/v1/balance", { secret: neighbour.secret });
    expectShared(await burstOf("stored_responses", [read], ask, { atOnce: ACCOUNT_AT_ONCE }));
  });
});

test("what has places of its own leaves them to others of the account: a burst of changes keeps no page of its account waiting", async () => {
  const person = await signInTo(shop, await shop.world.addCustomer());
  const changes: Promise<Answer>[] = [];
  await shop.world.sql.begin(async (sql) => {
    await sql`lock table webhook_endpoints in access exclusive mode`;
    for (let i = 0; i < 20; i++) changes.push(person.delete("/webhooks/1"));
    await until(async () => (await waitingFor("webhook_endpoints")) > 0);
    for (let i = 0; i < 5; i++) expect((await person.get("/keys")).status).toBe(200);
  });
  await Promise.all(changes);
});

test("customers of one reseller have half of the connections together, and those of another are served", async () => {
  const [reseller] = await shop.world.sql`select reseller_id::int as id from hosts where host = ${HOST}`;
  const customers = await Promise.all([1, 2, 3].map(() => shop.world.addCustomer(Number(reseller?.id))));
  const attackers = await Promise.all(customers.map((person) => signInTo(shop, person, { host: HOST })));
  const neighbour = await signInTo(shop, await shop.world.addCustomer());
  const asks = attackers.map((person) => () => person.get("/webhooks"));
  await burstOf("webhook_endpoints", asks, () => neighbour.get("/keys"), { atOnce: TENANT_AT_ONCE });
});
