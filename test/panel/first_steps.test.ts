import { afterAll, beforeAll, expect, test } from "bun:test";
import { openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { type PanelSession, signInTo } from "./panel_client.ts";

/** The first steps on Home follow from what is stored. Source: PAN-13. */

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
});
afterAll(() => shop.close());

/** By account: each person signs in once. */
const sessions = new Map<number, PanelSession>();

/** The names of the open steps, in order, read as the page reads them. */
async function openSteps(person: Person): Promise<string[]> {
  const session = sessions.get(person.accountId) ?? (await signInTo(shop, person));
  sessions.set(person.accountId, session);
  const { json, status } = await session.get("/home/first-steps");
  expect(status).toBe(200);
  return json.steps.filter(({ isDone }: { isDone: boolean }) => !isDone).map(({ name }: { name: string }) => name);
}

test("a customer's steps are a package, a key and a request; a step that is done stays done when the package ends", async () => {
  const { world } = shop;
  const customer = await world.addCustomer();
  expect(await openSteps(customer)).toEqual(["entitlement", "key", "request"]);
  const packageId = await world.givePackage(customer);
  expect(await openSteps(customer)).toEqual(["key", "request"]);
  const { secret } = await world.addKey(customer);
  expect(await openSteps(customer)).toEqual(["request"]);
  expect((await shop.chat(secret)).status).toBe(200);
  // Uses of keys are written behind the requests.
  await until(async () => (await openSteps(customer)).length === 0);
  await world.sql`update packages set starts_at = starts_at - interval '90 days', ends_at = ends_at - interval '90 days',
    first_day = first_day - 90 where id = ${packageId}`;
  expect(await openSteps(customer)).toEqual([]);
});

test("a customer's balance completes the first step only with pay-as-you-go", async () => {
  const { world } = shop;
  const customer = await world.addCustomer();
  await world.setBalance(customer, 5_000_000_000n);
  await world.sql`update balances set payg_enabled = false where account_id = ${customer.accountId}`;
  expect(await openSteps(customer)).toContain("entitlement");
  await world.sql`update balances set payg_enabled = true where account_id = ${customer.accountId}`;
  expect(await openSteps(customer)).toEqual(["key", "request"]);
});

test("each step of a reseller is completed by its own fact, and never by another reseller's", async () => {
  const { world } = shop;
  const [reseller, rival] = [await world.addReseller(), await world.addReseller()];
  const id = reseller.accountId;
  const all = ["funds", "domain", "brand", "prices", "payments", "customer"];
  expect(await openSteps(reseller)).toEqual(all);
  const offeringId = await world.addOffering();
  const facts: [string, () => Promise<unknown>][] = [
    ["funds", () => world.setBalance(reseller, 50_000_000_000n)],
    [
      "domain",
      () => world.sql`insert into hosts (host, reseller_id, status) values ('first.steps.test', ${id}, 'active')`,
    ],
    ["brand", () => world.sql`insert into brands (reseller_id, name, version) values (${id}, 'First', '1')`],
    [
      "prices",
      () => world.sql`insert into retail_prices (seller_id, offering_id, price_nano)
        values (${id}, ${offeringId}, 9000000000)`,
    ],
    ["payments", () => world.sql`insert into sellers (seller_id, instructions) values (${id}, 'By bank transfer.')`],
    ["customer", () => world.addCustomer(id)],
  ];
  for (const [index, [name, make]] of facts.entries()) {
    expect(await openSteps(reseller)).toContain(name);
    await make();
    expect(await openSteps(reseller)).toEqual(all.slice(index + 1));
  }
  expect(await openSteps(rival)).toEqual(all);
});

test("a pending domain does not complete its step; a fulfilled order completes the payment step without a payment method", async () => {
  const { world } = shop;
  const reseller = await world.addReseller();
  await world.sql`insert into hosts (host, reseller_id, status)
    values ('pending.steps.test', ${reseller.accountId}, 'pending')`;
  const customer = await world.addCustomer(reseller.accountId);
  expect(await openSteps(reseller)).toEqual(["funds", "domain", "brand", "prices", "payments"]);
  await world.sql`insert into orders (account_id, seller_id, kind, amount_nano_usd, status, decided_at)
    values (${customer.accountId}, ${reseller.accountId}, 'top_up', 5000000000, 'fulfilled', now())`;
  expect(await openSteps(reseller)).toEqual(["funds", "domain", "brand", "prices"]);
});

test("an admin's step for ways to pay appears once an offering has a retail price", async () => {
  const { world } = shop;
  const admin = await world.addAdmin();
  const offeringId = await world.addOffering();
  await world.addCustomer();
  expect(await openSteps(admin)).toEqual([]);
  await world.sql`insert into retail_prices (seller_id, offering_id, price_nano) values (0, ${offeringId}, 9000000000)`;
  expect(await openSteps(admin)).toEqual(["ways_to_pay"]);
  await world.sql`insert into sellers (seller_id, instructions) values (0, 'By bank transfer.')
    on conflict (seller_id) do update set instructions = excluded.instructions`;
  expect(await openSteps(admin)).toEqual([]);
});

test("an admin's model step is completed once a provider serves a model, and an offering or pay-as-you-go sells it", async () => {
  const { world } = shop;
  const admin = await world.addAdmin();
  await world.addOffering();
  await world.addCustomer();
  expect(await openSteps(admin)).toEqual([]);
  await world.sql`update providers set enabled = false`;
  expect(await openSteps(admin)).toEqual(["provider", "model"]);
  await world.sql`update providers set enabled = true`;
  await world.sql`update routes set enabled = false`;
  expect(await openSteps(admin)).toEqual(["model"]);
  await world.sql`update routes set enabled = true`;
  expect(await openSteps(admin)).toEqual([]);
});
