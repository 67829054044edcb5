import { afterAll, beforeAll, expect, test } from "bun:test";
import { READ_ONLY } from "../../src/panel/web/failures.ts";
import { chatBody } from "../gateway/shop.ts";
import { givePassword, PASSWORD } from "../panel/panel_client.ts";
import type { Person } from "../world.ts";
import { ACME_HOST, openPanel, type Panel, said, textOf, until } from "./browser.ts";

/** An admin in the browser. Source: ACC-8, ACC-9, PAN-10. */

let panel: Panel;
let admin: Person;

beforeAll(async () => {
  panel = await openPanel();
  admin = await panel.shop.world.addAdmin();
});
afterAll(() => panel.close());

test("a top-up needs a reason, which the customer sees with the transaction", async () => {
  const bob = await panel.shop.world.addCustomer();
  const visit = await panel.visit(admin, `/admin/people/${bob.accountId}`);
  const { page } = visit;
  await page.getByRole("button", { name: "Top up or correct" }).click();
  const dialog = page.getByRole("dialog", { name: "Change the balance" });
  await dialog.getByLabel("Amount").fill("20");
  await dialog.getByRole("button", { name: "Top up $20.00" }).click();
  // Without a reason nothing is sent, and the field says so.
  await dialog.getByText("Enter a reason. It is kept with the transaction").waitFor();
  await visit.check();
  await dialog.getByLabel("Reason").fill("Invoice 17");
  await dialog.getByRole("button", { name: "Top up $20.00" }).click();
  await said(page, /^The balance of customer\d+ is \$20\.00 now\.$/);
  await dialog.waitFor({ state: "hidden" });
  const transaction = page.getByRole("row", { name: /Invoice 17/ });
  expect(await textOf(transaction)).toMatch(/^Top-up Invoice 17 .* admin\d+ \+\$20\.00$/);
  await visit.check();
  await visit.close();

  const own = await panel.visit(bob, "/billing");
  expect(await textOf(own.page.getByRole("row", { name: /Invoice 17/ }))).toContain("+$20.00");
  await own.check();
  await own.close();
  expect(await panel.shop.counters(bob.accountId)).toMatchObject({ balance: 20e9 });
});

test("with pay-as-you-go off the balance pays nothing; switched on, it pays the next request", async () => {
  const { shop } = panel;
  const carol = await shop.world.addCustomer();
  await shop.world.setBalance(carol, 5_000_000_000n);
  await shop.world.sql`select set_payg(${carol.accountId}, false)`;
  const { secret } = await shop.world.addKey(carol, { mode: "payg" });
  expect((await shop.chat(secret)).status).toBe(402);

  const visit = await panel.visit(admin, `/admin/people/${carol.accountId}?tab=account`);
  const payg = visit.page.getByRole("switch", { name: "Pay-as-you-go" });
  expect(await payg.isChecked()).toBe(false);
  await payg.click();
  await said(visit.page, "The balance pays now.");
  expect(await payg.isChecked()).toBe(true);
  expect((await shop.chat(secret)).status).toBe(200);
  await visit.check();
  await visit.close();
});

test("an admin erases a person: the address is typed, who is at the screen is asked, what is left is given up on purpose", async () => {
  const { shop } = panel;
  const dora = await shop.world.addCustomer();
  await shop.world.setBalance(dora, 5_000_000_000n);
  const emailOf = async () =>
    String((await shop.world.sql`select email from accounts where id = ${dora.accountId}`)[0]?.email);
  const email = await emailOf();
  const visit = await panel.visit(admin, `/admin/people/${dora.accountId}?tab=account`);
  const { page } = visit;
  await page.getByRole("button", { name: "Erase", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Erase the account" });
  const erase = dialog.getByRole("button", { name: "Erase for good" });
  await dialog.getByLabel("E-mail address").fill("somebody.else@example.com");
  await dialog.getByLabel("Current password").fill(PASSWORD);
  await erase.click();
  await dialog.getByText("Type the e-mail address of the account.").waitFor();
  await visit.check();
  await dialog.getByLabel("E-mail address").fill(email);
  // The wrong password, and the balance that is in the way.
  visit.expectProblem(/^422 POST \/api\/panel\/people\/\d+\/erase$/);
  await dialog.getByLabel("Current password").fill("not the password");
  await erase.click();
  await dialog
    .getByText(/password is wrong|wrong password|is not your password/i)
    .first()
    .waitFor();
  await dialog.getByLabel("Current password").fill(PASSWORD);
  await erase.click();
  // A balance is in the way, and is not lost by accident.
  await dialog
    .getByText(/balance/i)
    .nth(1)
    .waitFor();
  expect(await emailOf()).toBe(email);
  await dialog.getByLabel("Give up what is left").check();
  await dialog.getByLabel("Current password").fill(PASSWORD);
  await erase.click();
  await said(page, /^customer\d+ is erased\.$/);
  await dialog.waitFor({ state: "hidden" });
  expect(await emailOf()).not.toBe(email);
  await visit.check();
  await visit.close();
});

test("each figure on the Overview links to a list with that many rows", async () => {
  const { shop } = panel;
  const customer = await shop.customer();
  await givePassword(shop, customer);
  await shop.chat(customer.secret);
  await shop.world.addCustomer();
  await shop.world
    .sql`insert into orders (account_id, kind, amount_nano_usd) values (${customer.accountId}, 'top_up', 5000000000)`;
  const theirs = await shop.world.addCustomer(panel.acme.accountId);
  await shop.world
    .sql`insert into orders (account_id, kind, amount_nano_usd) values (${theirs.accountId}, 'top_up', 5000000000)`;
  const [order] = await shop.world.sql`
    insert into orders (account_id, seller_id, kind, amount_nano_usd, price_nano_usd, status, decided_at)
    values (${customer.accountId}, 0, 'top_up', 5000000000, 5000000000, 'declined', now()) returning id`;
  await shop.world.sql`
    with paid as (
      insert into payments (order_id, account_id, seller_id, method, external_id, currency, amount_nano, problem)
      select ${Number(order?.id)}, ${customer.accountId}, 0, 'stripe', 'pi_' || n, 'usd', 5000000000, 'order_closed'
      from generate_series(1, 2) n returning *)
    insert into disputes (payment_id, order_id, account_id, seller_id, external_id, currency, amount_nano, reason, status, due_at, asked_at)
    select id, order_id, account_id, 0, external_id, 'usd', amount_nano, 'fraudulent',
      case external_id when 'pi_1' then 'needs_response' else 'under_review' end, '2031-01-01', now() from paid`;
  const visit = await panel.visit(admin, "/");
  const { page } = visit;
  const tiles = page.getByRole("region", { name: "The service" });
  for (const [label, table] of [
    ["Accounts", "People"],
    ["Requests in 24 h", "Charged requests"],
    ["Orders waiting", "Incoming orders"],
    ["Disputes to answer", "Payments"],
  ] as const) {
    const tile = tiles.getByRole("link", { name: new RegExp(`^${label}`) });
    const figure = Number(/(\d+)/.exec((await textOf(tile)).slice(label.length))?.[1]);
    expect(figure).toBeGreaterThan(0);
    await tile.click();
    const rows = page.getByRole("table", { name: table }).locator("tbody tr");
    await rows.nth(figure - 1).waitFor();
    expect([label, await rows.count()]).toEqual([label, figure]);
    await visit.check();
    await page.goBack();
    await tiles.waitFor();
  }
  await tiles.getByRole("link", { name: /^Replicas ?OK ?of 1 replica/ }).click();
  await page.getByRole("table", { name: "Replicas" }).getByText("Healthy").waitFor();
  await visit.close();
});

test("a request id is found from any page; an unknown one shows a message", async () => {
  const { shop } = panel;
  const dora = await shop.customer();
  const id = (await shop.chat(dora.secret)).headers.get("x-request-id") ?? "";
  const visit = await panel.visit(admin, "/admin/books");
  const { page } = visit;
  await page.getByRole("heading", { name: "Books", level: 1 }).waitFor();
  await page.keyboard.press("Control+k");
  await page.getByPlaceholder("A page, a key, or a request id").fill(`req_${id.toUpperCase()}`);
  await page.getByRole("option", { name: /^Receipt/ }).click();
  const receipt = page.getByRole("dialog", { name: "Receipt" });
  await receipt.getByText("The answer was complete.").waitFor();
  const { pathname, searchParams } = new URL(page.url());
  expect([pathname, searchParams.get("accountId")]).toEqual(["/usage", String(dora.accountId)]);
  await visit.check();

  visit.expectProblem(/^404 GET \/api\/panel\/requests\//);
  await page.goto("/requests/01900000-0000-7000-8000-000000000000");
  await page.getByText(/^No request here has this id\./).waitFor();
  await visit.check();
  await visit.close();
});

test("a top-up of a customer without pay-as-you-go warns first; a reseller with the right can switch it on", async () => {
  const { shop, acme } = panel;
  await shop.world.setBalance(acme, 50_000_000_000n);
  const carla = await shop.world.addCustomer(acme.accountId);
  await shop.world.sql`select set_payg(${carla.accountId}, false)`;
  const reseller = await panel.visit(acme, `/customers/${carla.accountId}`, { host: ACME_HOST });
  const topUp = async () => {
    await reseller.page.goto(`/customers/${carla.accountId}`);
    await reseller.page.getByRole("button", { name: "Top up" }).click();
    return reseller.page.getByRole("dialog", { name: "Top up" });
  };
  await (await topUp()).getByText("You cannot switch it on. Ask the operator").waitFor();
  await reseller.check();

  const visit = await panel.visit(admin, `/admin/people/${acme.accountId}?tab=account`);
  await visit.page.getByRole("switch", { name: "Pay-as-you-go of its customers" }).click();
  await said(visit.page, /can switch pay-as-you-go for its customers now\.$/);
  await visit.check();
  await visit.close();

  const dialog = await topUp();
  await dialog.getByRole("link", { name: "on their page" }).waitFor();
  await dialog.getByLabel("Amount").fill("1.250");
  await dialog.getByRole("button", { name: /^Top up/ }).click();
  await dialog.getByText("1.250 can be read in two ways: write 1250 or 1.25.").waitFor();
  await reseller.check();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await reseller.page.getByRole("navigation").getByRole("link", { name: "Account", exact: true }).click();
  await reseller.page.getByRole("switch", { name: "Pay-as-you-go" }).click();
  await said(reseller.page, "The balance pays now.");
  const again = await topUp();
  await again.getByLabel("Amount").waitFor();
  expect(await again.getByText("Pay-as-you-go is off").count()).toBe(0);
  await reseller.check();
  await reseller.close();
});

test("a provider's test shows its duration, or the provider's own error", async () => {
  const visit = await panel.visit(admin, "/admin/providers");
  const { page } = visit;
  const row = page.getByRole("row", { name: /second/ });
  await row.getByRole("button", { name: "Test second" }).click();
  await row.getByText(/^\d.* m?s, \d+ models?/).waitFor();
  await visit.check();

  const refusal = JSON.stringify({ error: { message: "This account is out of money." } });
  panel.shop.second.when(({ path }) => path === "/v1/models", { status: 401, body: refusal });
  await row.getByRole("button", { name: "Test second" }).click();
  await row.getByText(/401.*This account is out of money\./).waitFor();
  await visit.check();
  await visit.close();
});

test("a changed price applies from the next request on, and the playground shows it", async () => {
  const { shop } = panel;
  const payer = await shop.payer(5_000_000_000n);
  const visit = await panel.visit(admin, "/admin/models?model=vendor%2Fchat-b");
  const { page } = visit;
  await page.getByRole("button", { name: "Change prices" }).click();
  const dialog = page.getByRole("dialog", { name: "Price per million tokens" });
  await dialog.getByLabel("Output", { exact: true }).fill("nothing");
  await dialog.getByRole("button", { name: "Save" }).click();
  await dialog.locator("[aria-invalid=true]").waitFor();
  await visit.check();
  await dialog.getByLabel("Output", { exact: true }).fill("22.5");
  await dialog.getByRole("button", { name: "Save" }).click();
  await said(page, "The new prices apply from the next request on.");
  await page.getByText(/out × \$22\.50\/M/).waitFor();
  await visit.check();
  await visit.close();

  const customer = await panel.visit(payer, "/playground");
  await customer.page.getByRole("combobox", { name: "Model" }).click();
  await customer.page.getByRole("option", { name: "vendor/chat-b" }).click();
  await said(customer.page, "$3.00/M in, $22.50/M out, charged to the balance.");
  await customer.check();
  await customer.close();

  panel.shop.provider.next({ usage: { prompt_tokens: 1, completion_tokens: 1_000 } });
  const before = await shop.counters(payer.accountId);
  expect((await shop.chat(payer.secret, chatBody({ model: "vendor/chat-b" }))).status).toBe(200);
  expect(before.balance - (await shop.counters(payer.accountId)).balance).toBe(22_503_000);
});

test("Books shows which rule is broken and its rows, and balances again when it is repaired", async () => {
  const { sql } = panel.shop.world;
  const dave = await panel.shop.customer();
  const visit = await panel.visit(admin, "/admin/books");
  const { page } = visit;
  const check = page.getByRole("button", { name: "Check now" });
  await check.click();
  await page.getByRole("status").getByText("Books balance", { exact: true }).waitFor();
  await visit.check();

  await sql`update packages set units_taken = units_taken + 3 where account_id = ${dave.accountId}`;
  await check.click();
  await page.getByRole("status").getByText("Books do not balance").waitFor();
  await page
    .getByRole("region", { name: /^Rows that break it/ })
    .first()
    .waitFor();
  await visit.check();
  await sql`update packages set units_taken = units_taken - 3 where account_id = ${dave.accountId}`;
  await check.click();
  await page.getByRole("status").getByText("Books balance", { exact: true }).waitFor();
  await visit.close();
});

test("Books lists the months of receipts: sealed and dropped ones, their totals, and what differed", async () => {
  const { sql } = panel.shop.world;
  const { accountId } = await panel.shop.world.addCustomer();
  const addMonth = (month: string, over: Record<string, unknown>) =>
    sql`insert into receipt_seals ${sql({ month, sealed_at: "2020-03-08", receipts: 1234, blocks_digest: Buffer.alloc(32), totals_digest: Buffer.alloc(32), previous: Buffer.alloc(32), seal: Buffer.alloc(32, 171), ...over })}`;
  await addMonth("2020-01-01", { exported_at: "2020-03-09", dropped_at: "2020-03-10" });
  await addMonth("2020-02-01", { compared_at: new Date().toISOString(), problems: ["a", "b"] });
  await sql`
    insert into receipt_totals (month, account_id, mode, receipts, settled, units, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, charged_nano_usd, shortfall_nano_usd, cost_nano_usd, provider_cost_nano_usd)
    values ('2020-02-01', ${accountId}, 'payg', 1234, 1200, 0, 0, 0, 0, 777000, 12500000000, 0, 0, 0)`;
  const visit = await panel.visit(admin, "/admin/books");
  const table = visit.page.getByRole("table", { name: "Months of receipts" });
  const row = (month: string) => table.getByRole("row", { name: month });
  // What the seals name and what they are differs for both: they are made up.
  await row("February 2020").getByText("Sealed", { exact: true }).waitFor();
  await row("February 2020")
    .getByText(/^[2-9] differences$/)
    .waitFor();
  await row("February 2020").getByText("$12.50").waitFor();
  await row("January 2020").getByText("Dropped", { exact: true }).waitFor();
  await row("January 2020").getByText("Exported", { exact: true }).waitFor();
  await row("January 2020").getByText("1,234").waitFor();
  await visit.check();
  await visit.close();
  await sql`delete from receipt_totals where month < '2021-01-01'`;
  await sql`delete from receipt_seals where month < '2021-01-01'`;
});

test("a new offering is described in a sentence, and sold below wholesale only if confirmed; the audit log has who added it, with before and after", async () => {
  const visit = await panel.visit(admin, "/admin/offerings");
  const { page } = visit;
  await page.getByRole("button", { name: "New offering" }).click();
  const dialog = page.getByRole("dialog", { name: "New offering" });
  await dialog.getByLabel("Name").fill("Night owls <script>");
  await dialog.getByLabel("Wholesale price").fill("4.20");
  await dialog.getByLabel("Requests a day").fill("250");
  const sentence = dialog.getByRole("status", { name: "The offering in words" });
  expect(await textOf(sentence)).toMatch(/^250 a day for 7 days, carryover At most 1,750 requests in total\./);
  await dialog.getByLabel("Retail price").fill("4.10");
  expect(await textOf(sentence)).toMatch(/A reseller pays \$4\.20 for it\. Your own customers pay \$4\.10\.$/);
  await dialog.getByRole("button", { name: "Put on sale" }).click();
  await dialog.getByText("Confirm it, or set a higher price.").waitFor();
  await visit.check();
  await dialog.getByLabel("Yes, $0.10 below the wholesale price").check();
  await dialog.getByRole("button", { name: "Put on sale" }).click();
  await dialog.waitFor({ state: "hidden" });
  const row = page.getByRole("row", { name: /Night owls/ });
  expect(await textOf(row)).toContain("$4.10");
  await page.getByRole("button", { name: "Actions for Night owls <script>" }).click();
  await page.getByRole("menuitem", { name: "Take off sale" }).click();
  await said(page, "Night owls <script> is off sale. Packages that were sold stay.");

  await page.goto("/admin/audit");
  const entries = page.getByRole("list", { name: "Changes, newest first" }).getByRole("listitem");
  const [off, priced, added] = await Promise.all([0, 1, 2].map((i) => textOf(entries.nth(i))));
  expect(off).toMatch(/admin\d+ \(\S+\) changed offering .* switched on yes ?no/);
  expect(priced).toMatch(
    /admin\d+ \(\S+\) added retail price Night owls <script>.*price below wholesale confirmed yes.*currency usd .*price 4\.10/,
  );
  expect(added).toMatch(/admin\d+ \(\S+\) added offering Night owls <script>.*wholesale price \$4\.20/);
  await page
    .getByRole("listitem")
    .filter({ hasText: "chat-b" })
    .getByText(/\$15\.00\/M.*\$22\.50\/M/)
    .waitFor();
  await visit.check();
  await visit.close();
});

test("older entries of the audit log that do not load say so, and load when asked again", async () => {
  const { accountId } = admin;
  await panel.shop.world.sql`
    insert into audit_entries (actor_id, action, subject, subject_id, account_id, before, after)
    select ${accountId}, 'changed', 'accounts', ${String(accountId)}, ${accountId}, '{"name": "old"}', '{"name": "new"}' from generate_series(1, 60)`;
  const visit = await panel.visit(admin, "/admin/audit");
  const { page } = visit;
  visit.expectProblem(/^503 GET \/api\/panel\/audit$/);
  const older = /\/api\/panel\/audit\?.*before=/;
  await page.route(older, (route) => route.fulfill({ status: 503, body: "" }));
  await page.getByRole("button", { name: "Load older" }).click();
  await page.getByRole("alert").getByText("This did not load. Try again.").waitFor();
  await visit.check();
  await page.unroute(older);
  const entries = page.getByRole("list", { name: "Changes, newest first" }).getByRole("listitem");
  const before = await entries.count();
  await page.getByRole("button", { name: "Load older" }).click();
  await until("older entries", async () => (await entries.count()) > before);
  expect(await page.getByRole("alert").count()).toBe(0);
  await visit.close();
});

test("viewing as a customer: a bar says so, changes are disabled and refused, start and end are in the audit log", async () => {
  const erin = await panel.shop.customer();
  const visit = await panel.visit(admin, `/admin/people/${erin.accountId}`);
  const { page } = visit;
  const name = await textOf(page.getByRole("heading", { level: 1 }));
  await page.getByRole("button", { name: `View as ${name}` }).click();
  const bar = page.getByRole("complementary", { name: "Viewing as another person" });
  expect(await textOf(bar)).toBe(`Viewing as ${name}. ${READ_ONLY} Leave`);
  await visit.check();

  await page.getByRole("navigation").getByRole("link", { name: "Keys" }).click();
  const create = page.getByRole("button", { name: "Create key" }).first();
  await create.waitFor();
  expect(await create.isDisabled()).toBe(true);
  await visit.check();

  // The server refuses what the page might let through.
  visit.expectProblem(/^403 POST \/api\/panel\/keys$/);
  const refused = await page.evaluate(async () => {
    const me = await (await fetch("/api/panel/me")).json();
    const headers = { "content-type": "application/json", "x-csrf-token": me.csrfToken };
    const answer = await fetch("/api/panel/keys", {
      method: "POST",
      headers,
      body: '{"name":"mine","mode":"package"}',
    });
    return [answer.status, (await answer.json()).error.code];
  });
  expect(refused).toEqual([403, "read_only"]);
  expect(await page.getByRole("navigation").getByRole("link", { name: "Customers" }).count()).toBe(0);

  await bar.getByRole("button", { name: "Leave" }).click();
  await page.getByRole("heading", { name, level: 1 }).waitFor();
  expect(new URL(page.url()).pathname).toBe(`/admin/people/${erin.accountId}`);
  expect(await bar.count()).toBe(0);
  await page.goto(`/admin/audit?account=${erin.accountId}`);
  await page.getByText(/started viewing the panel of/).waitFor();
  await page.getByText(/stopped viewing the panel of/).waitFor();
  await visit.check();
  await visit.close();
});

test("a customer gets Not found on an admin page, and no admin data is requested", async () => {
  const visit = await panel.visit(await panel.shop.world.addCustomer(), "/admin/books");
  await visit.page.getByRole("heading", { name: "Not found" }).waitFor();
  expect(await visit.page.getByText("Catalog").count()).toBe(0);
  await visit.check();
  await visit.close();
});

// The last test of this file: the others need no hundreds of resellers.
test("older resellers that do not load say so, and load when asked again", async () => {
  const { world } = panel.shop;
  const [oldest] = await world.sql`select email from accounts where role = 'reseller' order by id limit 1`;
  for (let i = 0; i < 200; i++) await world.addReseller();
  const visit = await panel.visit(admin, "/admin/people");
  const { page } = visit;
  visit.expectProblem(/^503 GET \/api\/panel\/people$/);
  await page.getByRole("button", { name: "Add person" }).click();
  const older = /\/api\/panel\/people\?.*before=/;
  await page.route(older, (route) => route.fulfill({ status: 503, body: "" }));
  await page.getByRole("button", { name: "Load older resellers" }).click();
  await said(page, "They did not load. Try again.");
  await visit.check();
  await page.unroute(older);
  await page.getByRole("button", { name: "Load older resellers" }).click();
  await page.getByText("They did not load. Try again.").waitFor({ state: "detached" });
  await page.getByRole("combobox", { name: "Belongs to" }).fill(String(oldest?.email));
  await page.getByRole("option", { name: String(oldest?.email) }).waitFor();
  await visit.close();
});
