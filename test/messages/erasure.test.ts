import { afterAll, beforeAll, expect, test } from "bun:test";
import { IMPERSONAL_TABLES, PERSONAL_TABLES } from "../../src/messages/personal_tables_store.ts";
import { runCli } from "../cli/cli_process.ts";
import { expectRefusal, untilNothingIsDrawn } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { ok, PANEL, PASSWORD, type PanelSession, signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";

/** What is kept of a person, exported and erased. Source: RET-7, RET-8, RET-9. */

let shop: Shop;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
});
afterAll(() => shop.close());

const proof = { password: PASSWORD };
const erase = (session: PanelSession, over: object = {}) =>
  session.post("/settings/erase", { email: session.email, proof, ...over });
const rowOf = async (accountId: number) => {
  const [row] = await shop.world
    .sql`select email, name, status, password_hash, erased_at from accounts where id = ${accountId}`;
  return row;
};
const signIn = (email: string) =>
  shop.call("/api/panel/sign-in", {
    host: PANEL,
    body: { email, password: PASSWORD },
    headers: { origin: `http://${PANEL}` },
  });

/** A customer with a key that was used, an order, details of invoices, a webhook, mails and a name in the audit log. */
async function livedIn(animal: string) {
  const { world } = shop;
  const customer = await world.addCustomer();
  await world.setBalance(customer, 1_000_000_000n);
  const key = await world.addKey(customer, { mode: "payg" });
  const session = await signInTo(shop, customer);
  ok(await session.patch("/settings/profile", { name: `Zoe ${animal}` }));
  ok(
    await session.put("/settings/invoices", {
      name: `${animal} Ltd`,
      address: `1 ${animal} Street`,
      taxNumber: null,
      vatNumber: null,
    }),
  );
  ok(await session.post("/orders", { kind: "top_up", amountNanoUsd: "10000000", note: `for the ${animal}` }));
  await world.sql`
    insert into webhook_endpoints (account_id, url, kinds, secret_ciphertext)
    values (${customer.accountId}, ${`https://${animal}.example.com/hook`}, '{balance_low}', '\\x00')`;
  await world.sql`insert into outbox_messages (kind, account_id, data) values ('balance_low', ${customer.accountId}, ${world.sql.json({ name: animal })})`;
  expect((await shop.chat(key.secret)).status).toBe(200);
  await untilNothingIsDrawn(shop);
  return { ...customer, key, session };
}

test("every table that names an account is in the list of personal tables, or of those that have nothing personal", async () => {
  const rows = await shop.world.sql`
    select distinct c.table_name as name from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
    where table_schema = 'public' and table_type = 'BASE TABLE' and c.table_name !~ '_[0-9]{4}_[0-9]{2}(_[0-9]{2})?$'
      and column_name ~ 'account_id$|person_id$|email$|reseller_id$|seller_id$|_by$|actor_id$|holder_id$|payer_id$' order by 1`;
  const listed = [...PERSONAL_TABLES.map(({ table }) => table), ...IMPERSONAL_TABLES];
  expect(rows.map(({ name }) => String(name)).filter((name) => !listed.includes(name))).toEqual([]);
  expect(listed.length).toBe(new Set(listed).size);
});

test("a person's data is a file with everything: its own, and for those who manage it", async () => {
  const { accountId, session, key } = await livedIn("zebra");
  const own = await session.get("/settings/data");
  expect(own.headers.get("content-disposition")).toMatch(/^attachment; filename="account-\d+-\d{4}-\d\d-\d\d\.json"$/);
  expect(own.json).toMatchObject({
    personId: accountId,
    truncated: [],
    tables: {
      accounts: [{ name: "Zoe zebra", email: session.email }],
      sessions: [{ host: PANEL }],
      keys: [{ id: key.keyId }],
      orders: [{ note: "for the zebra", status: "open" }],
      buyer_details: [{ name: "zebra Ltd" }],
      webhook_endpoints: [{ url: "https://zebra.example.com/hook" }],
      usage_sums: expect.any(Array),
    },
  });
  expect(own.text).not.toContain("argon2");
  expect(own.json.tables.audit_entries.length).toBeGreaterThan(2);
  const admin = await signInTo(shop, await shop.world.addAdmin());
  expect((await admin.get(`/people/${accountId}/data`)).json.tables.accounts).toEqual(own.json.tables.accounts);
  expectRefusal(await admin.get("/people/999999999/data"), "not_found");
});

test("a person is erased: nothing of it is left but what the books and the law need; the books balance", async () => {
  const { world } = shop;
  const { accountId, session, key } = await livedIn("gnu");
  const receiptsBefore =
    await world.sql`select request_id, charged_nano_usd from receipts where account_id = ${accountId}`;
  expectRefusal(await erase(session, { email: "somebody@example.com" }), "validation_failed", { param: "email" });
  expectRefusal(await erase(session, { proof: { password: "a wrong password" } }), "validation_failed", {
    param: "password",
  });
  const refused = await erase(session);
  expectRefusal(refused, "validation_failed", { param: "force" });
  expect(refused.json.error.message).toBe(
    "This account still has something. Balance: 1.00 USD. Packages that have not ended: 0. Open orders: 1. Refund it first, or force the erasure, which gives all of it up.",
  );
  expect(ok(await erase(session, { force: true }))).toEqual({ erased: true });

  expect(await rowOf(accountId)).toMatchObject({
    ...{
      email: `erased-${accountId}@erased.invalid`,
      name: `Erased ${accountId}`,
      status: "suspended",
      password_hash: null,
    },
    erased_at: expect.any(Date),
  });
  expect((await session.get("/me")).status).toBe(401);
  expect((await signIn(session.email)).status).toBe(401);
  await until(async () => (await shop.chat(key.secret)).status === 401);
  const tables = await world.sql`
    select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE' and table_name <> 'changes'`;
  const found: string[] = [];
  for (const { name } of tables) {
    const rows =
      await world.sql`select 1 from ${world.sql(String(name))} t where t::text ~* '\\mgnu' or t::text like ${`%${session.email}%`} limit 1`;
    if (rows.length > 0) found.push(String(name));
  }
  // Only the mail that confirms it is still to be sent.
  expect(found).toEqual(["outbox_messages"]);
  const told = await world.sql`select kind from outbox_messages where data::text like ${`%${session.email}%`}`;
  expect(told.map(({ kind }) => kind)).toEqual(["account_erased"]);
  const leftOf = async (table: string) =>
    (await world.sql`select 1 from ${world.sql(table)} where account_id = ${accountId}`).length;
  for (const { table, erased, of } of PERSONAL_TABLES)
    if (erased === "deleted" && of === "account_id = $1") expect([table, await leftOf(table)]).toEqual([table, 0]);
  expect([
    ...(await world.sql`select request_id, charged_nano_usd from receipts where account_id = ${accountId}`),
  ]).toEqual([...receiptsBefore]);
  const [audit] = await world.sql`
    select before, after from audit_entries where account_id = ${accountId} and subject = 'accounts' and after ? 'erased_at'`;
  expect(audit).toMatchObject({
    before: { email: "(erased)", name: "(erased)" },
    after: { email: "(erased)", name: "(erased)" },
  });
  const [balance] =
    await world.sql`select balance_nano_usd::text as left from balances where account_id = ${accountId}`;
  expect(balance?.left).toBe("0");
  expect(await world.unbalanced()).toEqual([]);

  const admin = await signInTo(shop, await world.addAdmin());
  const again = await admin.post(`/people/${accountId}/activate`);
  expectRefusal(again, "validation_failed");
  expect(again.json.error.message).toBe("This account was erased, which cannot be undone.");
  const twice = await admin.post(`/people/${accountId}/erase`, { email: `erased-${accountId}@erased.invalid`, proof });
  expect(twice.json.error.message).toBe("This account is erased already.");
  // The address is free again.
  await world.sql`insert into accounts (role, email, name) values ('customer', ${session.email}, 'Another')`;
});

test("an invoice keeps its buyer, and cannot be changed", async () => {
  const { world } = shop;
  const customer = await world.addCustomer();
  const session = await signInTo(shop, customer);
  await world.sql`
    insert into invoices (seller_id, number, kind, account_id, seller_name, buyer_name, buyer_email, lines, currency, tax_nano, total_nano)
    values (0, 900001, 'invoice', ${customer.accountId}, 'Us', 'Ina Voice', ${session.email}, '[]', 'USD', 0, 1)`;
  ok(await erase(session));
  const [invoice] =
    await world.sql`select buyer_name, buyer_email from invoices where account_id = ${customer.accountId}`;
  expect(invoice).toMatchObject({ buyer_name: "Ina Voice", buyer_email: session.email });
});

test("a reseller with customers is not erased, not even by force; without them it is, with its brand and its domains", async () => {
  const { world } = shop;
  const reseller = await world.addReseller("ai.gone.test");
  const customer = await world.addCustomer(reseller.accountId);
  const session = await signInTo(shop, reseller);
  const refused = await erase(session, { force: true });
  expect([refused.status, refused.json.error.message]).toEqual([422, "This reseller has customers. Erase them first."]);
  const [{ email } = { email: "" }] = await world.sql`select email from accounts where id = ${customer.accountId}`;
  // A reseller erases its customer, who has nothing left.
  ok(await session.post(`/people/${customer.accountId}/erase`, { email, proof }));
  ok(await erase(session));
  expect(await world.sql`select 1 from hosts where reseller_id = ${reseller.accountId}`).toHaveLength(0);
  expect(await world.unbalanced()).toEqual([]);
});

test("another tenant's customer is not found; one's own account is erased in the settings", async () => {
  const { world } = shop;
  const stranger = await world.addCustomer();
  const session = await signInTo(shop, await world.addReseller());
  expectRefusal(
    await session.post(`/people/${stranger.accountId}/erase`, { email: "a@example.com", proof }),
    "not_found",
  );
  const admin = await signInTo(shop, await world.addAdmin());
  const own = await admin.post(`/people/${admin.accountId}/erase`, { email: admin.email, proof });
  expect(own.json.error.message).toBe("Erase your own account in your settings.");
});

test("the last active admin, an account with other members, and the only owner of another account are not erased", async () => {
  const { world } = shop;
  const admin = await signInTo(shop, await world.addAdmin());
  await world.sql`update accounts set status = 'suspended' where role = 'admin' and id <> ${admin.accountId}`;
  expect((await erase(admin)).json.error.message).toBe("This is the only active admin. Nobody could undo it.");
  const account = await world.addCustomer();
  const owner = await world.addMember(account, "developer");
  const session = await signInTo(shop, account);
  expect((await erase(session)).json.error.message).toBe(
    "Other people are members of this account. Make one of them an owner, or remove them first.",
  );
  await world.sql`update members set role = 'owner' where account_id = ${account.accountId} and person_id = ${owner.accountId}`;
  await world.sql`delete from members where account_id = ${account.accountId} and person_id = ${account.accountId}`;
  const member = await signInTo(shop, owner);
  const [{ name } = { name: "" }] = await world.sql`select name from accounts where id = ${account.accountId}`;
  expect((await erase(member)).json.error.message).toBe(
    `This is the only owner of ${name}. Make another member an owner first.`,
  );
});

test("who began an account that others own too is erased alone: the account goes on without their name, also when they had left it", async () => {
  const { world } = shop;
  const admin = await signInTo(shop, await world.addAdmin());
  for (const hasLeft of [false, true]) {
    const founder = await livedIn(hasLeft ? "quagga" : "okapi");
    const { accountId } = founder;
    const session = await signInTo(shop, await world.addMember(founder, "owner"));
    const now = async () => {
      const [balance] =
        await world.sql`select balance_nano_usd::text as left from balances where account_id = ${accountId}`;
      const orders = await world.sql`select status, note from orders where account_id = ${accountId}`;
      return { left: balance?.left, orders: [...orders] };
    };
    const before = await now();
    if (hasLeft) {
      await world.sql`delete from members where account_id = ${accountId} and person_id = ${accountId}`;
      ok(await admin.post(`/people/${accountId}/erase`, { email: founder.session.email, proof }));
    } else ok(await erase(founder.session));
    expect(await rowOf(accountId)).toEqual({
      ...{ email: `erased-${accountId}@erased.invalid`, name: `Account ${accountId}`, status: "active" },
      ...{ password_hash: null, erased_at: null },
    });
    // The account is as it was: its money, its order, its key, its other owner.
    expect(await now()).toEqual(before);
    expect((await shop.chat(founder.key.secret)).status).toBe(200);
    await until(async () => ok(await session.get("/me")).account.name === `Account ${accountId}`);
    expect(ok(await session.get("/members")).members).toMatchObject([{ role: "owner" }]);
    // Of the person nothing is left: no session, no name in the audit log.
    expect((await founder.session.get("/me")).status).toBe(401);
    const named = await world.sql`
      select subject from audit_entries where account_id = ${accountId} and (before::text ~ 'Zoe ' or after::text ~ 'Zoe ')`;
    expect([...named]).toEqual([]);
    const told = await world.sql`select kind from outbox_messages where data ->> 'address' = ${founder.session.email}`;
    expect(told.map(({ kind }) => kind)).toEqual(["account_erased"]);
    const again = await admin.post(`/people/${accountId}/erase`, {
      email: `erased-${accountId}@erased.invalid`,
      proof,
    });
    expect(again.json.error.message).toBe("This account is erased already.");
  }
  await untilNothingIsDrawn(shop);
  expect(await world.unbalanced()).toEqual([]);
});

test("an account whose requests run is not erased", async () => {
  const { world } = shop;
  const customer = await world.addCustomer();
  const session = await signInTo(shop, customer);
  await world.sql`
    insert into escrows (account_id, lease_id, package_id, key_id, day, draw_number, units, tokens, nano_usd, idle_units, idle_nano_usd, epoch, tenant_epoch)
    values (${customer.accountId}, gen_random_uuid(), 0, 0, '-infinity', 1, 0, 0, 0, 0, 0, 0, 0)`;
  await world.sql`update balances set balance_nano_usd = 5, held_nano_usd = 5 where account_id = ${customer.accountId}`;
  await world.sql`update escrows set nano_usd = 5 where account_id = ${customer.accountId}`;
  expect((await erase(session, { force: true })).json.error.message).toBe(
    "Requests of this account are running. Suspend it, and try again in a minute.",
  );
  await world.sql`delete from escrows where account_id = ${customer.accountId}`;
  await world.sql`update balances set balance_nano_usd = 0, held_nano_usd = 0 where account_id = ${customer.accountId}`;
});

test("the command line exports and erases", async () => {
  const { world } = shop;
  const customer = await world.addCustomer();
  const [{ email } = { email: "" }] = await world.sql`select email from accounts where id = ${customer.accountId}`;
  const cli = (args: string) => runCli(args, { env: { DATABASE_URL: world.url, REDIS_URL: "" } });
  expect(JSON.parse((await cli(`account export ${email}`)).out).tables.accounts).toMatchObject([{ email }]);
  expect((await cli(`account erase ${customer.accountId} --email other@example.com`)).err).toBe(
    "This is not the e-mail address of the account.\n",
  );
  expect((await cli(`account erase ${customer.accountId} --email ${email}`)).out).toBe(
    `Account ${customer.accountId} is erased.\n`,
  );
  expect(await rowOf(customer.accountId)).toMatchObject({ name: `Erased ${customer.accountId}` });
});
