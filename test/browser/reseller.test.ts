import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { type DnsServer, startDnsServer } from "../dns_server.ts";
import { signInTo } from "../panel/panel_client.ts";
import type { Person } from "../world.ts";
import { ACME_HOST, openPanel, type Panel, said, settled, textOf } from "./browser.ts";

/** A reseller in the browser, on its own domain. Source: DOM-1, PAN-7, PAN-12. */

const OPERATOR = "Nonesuch Operator";
const OPERATOR_MAIL = "help@nonesuch.test";
const PROVIDER = "zeta-upstream";
const BRAND = "Acme AI";
const OURS = "203.0.113.7";
const THEIRS = "198.51.100.4";
const NEW_PASSWORD = "three lanterns by the river";

let panel: Panel;
let dns: DnsServer[];
let offering: string;

beforeAll(async () => {
  dns = await Promise.all([startDnsServer({ "acme.test": [] }), startDnsServer({ "acme.test": [] })]);
  panel = await openPanel({
    env: {
      BRAND_NAME: OPERATOR,
      BRAND_SUPPORT: OPERATOR_MAIL,
      SERVER_ADDRESSES: OURS,
      DNS_RESOLVERS: dns.map(({ resolver }) => resolver).join(","),
    },
  });
  const { world } = panel.shop;
  const offeringId = await world.addOffering({ days: 7, dailyLimit: 500, wholesaleNanoUsd: 4_200_000_000n });
  const [row] = await world.sql`update offerings set name = 'Starter' where id = ${offeringId} returning name`;
  offering = String(row?.name);
  await world.sql`update providers set name = ${PROVIDER} where name = 'first'`;
  await world.sql`update models set owned_by = 'vendor'`;
  await world.setBalance(panel.acme, 31_000_000_000n);
  const session = await signInTo(panel.shop, panel.acme, { host: ACME_HOST });
  const saved = await session.put("/brand", { name: BRAND, accent: "#7a1fa2", support: "help@acme.test" });
  if (saved.status !== 200) throw new Error(`brand: ${saved.status} ${saved.text}`);
});
afterAll(async () => {
  await panel.close();
  await Promise.all(dns.map((server) => server.stop()));
});

const reseller = (path: string) => panel.visit(panel.acme, path, { host: ACME_HOST });
const addCustomer = (): Promise<Person> => panel.shop.world.addCustomer(panel.acme.accountId);

/** The figure under a label, such as "$26.80". */
async function figure(page: Page, label: string): Promise<string> {
  const named = page.getByText(label, { exact: true }).locator("..");
  return (await textOf(named)).slice(label.length).trim().split(" ")[0] ?? "";
}

test("pages and responses on its domain have its brand, and name no operator, provider or other tenant", async () => {
  const { world } = panel.shop;
  const rival = await world.addReseller();
  await world.sql`update accounts set name = 'Rival Corp' where id = ${rival.accountId}`;
  await world.addHost(rival, "ai.rival.localhost");
  const customer = await addCustomer();
  await world.givePackage(customer);
  await panel.shop.chat((await world.addKey(customer)).secret, {}, { host: ACME_HOST });
  const secrets = [
    OPERATOR,
    OPERATOR_MAIL,
    "nonesuch",
    PROVIDER,
    "panel.localhost",
    "api.localhost",
    "rival",
    "tollgate",
  ];
  const seen: string[] = [];
  const look = (where: string, text: string) => {
    for (const secret of secrets) {
      if (text.toLowerCase().includes(secret.toLowerCase())) seen.push(`${secret} in ${where}`);
    }
  };
  const visits: [Person | null, string[]][] = [
    [null, ["/sign-in"]],
    [customer, ["/", "/keys", "/playground", "/usage", "/billing", "/settings", "/settings?tab=sign-in", "/nowhere"]],
    [
      panel.acme,
      [
        "/",
        "/customers",
        `/customers/${customer.accountId}`,
        "/orders",
        "/statement",
        "/domains",
        "/brand",
        "/billing",
      ],
    ],
  ];
  for (const [person, paths] of visits) {
    const visit = await panel.visit(null, "/sign-in", { host: ACME_HOST });
    const bodies: Promise<void>[] = [];
    visit.context.on("response", (response) => {
      const kept = Object.entries(response.headers()).filter(([name]) => name !== "set-cookie");
      look(`headers of ${response.url()}`, JSON.stringify(kept));
      bodies.push(
        response
          .text()
          .then((text) => look(response.url(), text))
          .catch(() => {}),
      );
    });
    if (person !== null) await visit.signIn(person);
    for (const path of paths) {
      await visit.page.goto(path);
      await settled(visit.page);
      expect(await visit.page.title()).toEndWith(` · ${BRAND}`);
      look(`the page ${path}`, await visit.page.content());
      await visit.check();
    }
    await Promise.all(bodies);
    await visit.close();
  }
  expect(seen).toEqual([]);
});

test("an invitation is created on the reseller's domain and accepted in another browser", async () => {
  const visit = await reseller("/customers");
  const { page } = visit;
  await page.getByRole("button", { name: "Invite customer" }).first().click();
  const dialog = page.getByRole("dialog", { name: "Invite a customer" });
  await dialog.getByLabel("Name").fill("Nora");
  await dialog.getByLabel("E-mail").fill("nora@example.com");
  await visit.check();
  await dialog.getByRole("button", { name: "Invite customer" }).click();
  const url = await page.getByLabel("Invitation link").inputValue();
  expect(url).toStartWith(`${panel.at(ACME_HOST)}/invite/`);
  await visit.check();
  await page.getByRole("button", { name: "Done" }).click();
  const row = page.getByRole("row", { name: /Nora/ });
  expect(await textOf(row)).toContain("Invited");

  const nora = await panel.visit(null, url, { host: ACME_HOST });
  await nora.page.getByRole("heading", { name: "Welcome, Nora" }).waitFor();
  await said(nora.page, `You are invited to ${BRAND}. Choose a password to sign in.`);
  await nora.page.getByLabel("Password", { exact: true }).fill(NEW_PASSWORD);
  await nora.page.getByRole("button", { name: "Set password and sign in" }).click();
  await nora.page.getByRole("heading", { name: "Home", level: 1 }).waitFor();
  expect(await nora.page.title()).toBe(`Home · ${BRAND}`);
  await nora.check();
  await nora.close();

  await page.reload();
  expect(await textOf(row)).toContain("Active");
  await visit.close();
});

test("assigning a package leaves the balance that the preview showed; a double click assigns once", async () => {
  const customer = await addCustomer();
  const visit = await reseller(`/customers/${customer.accountId}`);
  const { page } = visit;
  await page.getByRole("button", { name: "Assign package" }).click();
  const dialog = page.getByRole("dialog", { name: "Assign a package" });
  await dialog.getByRole("combobox", { name: "Offering" }).click();
  await dialog.getByRole("option", { name: new RegExp(offering) }).click();
  const preview = dialog.getByRole("region", { name: "What this does" });
  const promise = /^\$4\.20; your balance becomes (\$\d+\.\d\d)\./.exec(await textOf(preview));
  const promised = promise?.[1];
  expect(promised).toBe("$26.80");
  await visit.check();
  // A second submit of the same form, if it is sent at all, gets 409.
  visit.expectProblem(/^409 POST .*\/packages$/);
  await dialog.getByRole("button", { name: "Assign for $4.20" }).dblclick();
  await dialog.waitFor({ state: "hidden" });
  await page.getByRole("heading", { name: `${offering} Active` }).waitFor();
  await visit.check();

  await page.goto("/billing");
  await settled(page);
  expect(await figure(page, "Available")).toBe(promised ?? "");
  expect(await panel.shop.counters(panel.acme.accountId)).toMatchObject({ balance: 26_800_000_000 });
  await visit.close();
});

test("a top-up of slightly more than the balance: the available amount is shown exactly", async () => {
  const { world } = panel.shop;
  const host = "ai.exact.localhost";
  const seller = await world.addReseller(host);
  await world.setBalance(seller, 1_999_000_000n);
  const customer = await world.addCustomer(seller.accountId);
  const visit = await panel.visit(seller, `/customers/${customer.accountId}`, { host });
  const { page } = visit;
  await page.getByRole("button", { name: "Top up" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Amount").fill("2");
  await dialog.getByRole("button", { name: /^Top up/ }).click();
  await said(page, "Your balance has only $1.9990 available.");
  expect(await textOf(dialog)).not.toContain("$2.00 available");
  await visit.check();
  await visit.close();
});

test("a customer's order is fulfilled by the reseller and becomes a package", async () => {
  const customer = await addCustomer();
  const buyer = await panel.visit(customer, "/billing", { host: ACME_HOST });
  await buyer.page.getByRole("button", { name: "New order" }).click();
  const ask = buyer.page.getByRole("dialog", { name: "New order" });
  await said(
    buyer.page,
    `${BRAND} gets the order. If it has a price, you pay in the next step. Otherwise the answer appears under Orders.`,
  );
  await ask.getByRole("combobox", { name: "Offering" }).click();
  await ask.getByRole("option", { name: new RegExp(offering) }).click();
  // The customer does not see the reseller's price.
  expect(await textOf(ask)).not.toContain("$");
  await ask.getByLabel("Note").fill("From Monday, please.\n<img src=x onerror=alert(1)>");
  await buyer.check();
  await ask.getByRole("button", { name: "Send order" }).click();
  await ask.waitFor({ state: "hidden" });
  const order = buyer.page.getByRole("row", { name: new RegExp(offering) });
  expect(await textOf(order)).toContain("Waiting");

  const visit = await reseller("/customers");
  const { page } = visit;
  await said(page, "1 order waits for your answer.");
  await visit.check();
  await page.getByRole("link", { name: "See orders" }).click();
  const incoming = page.getByRole("table", { name: "Incoming orders" });
  expect(await textOf(incoming)).toContain("<img src=x onerror=alert(1)>");
  await visit.check();
  await incoming.getByRole("button", { name: `Fulfil ${offering}` }).click();
  const dialog = page.getByRole("dialog", { name: `Fulfil order: ${offering}` });
  await dialog.getByText(/your balance becomes \$22\.60/).waitFor();
  await dialog.getByRole("button", { name: "Assign for $4.20" }).click();
  await dialog.waitFor({ state: "hidden" });
  await said(page, "No order is waiting. Orders are listed here until you answer them.");
  await visit.close();

  await buyer.page.reload();
  expect(await textOf(order)).toContain("Fulfilled");
  await buyer.page.getByRole("heading", { name: `${offering} Active` }).waitFor();
  await buyer.check();
  await buyer.close();
});

test("a domain shows what is wrong with its records and what to do, until it is live", async () => {
  const host = "shop.acme.test";
  const { shop } = panel;
  const customer = await addCustomer();
  await shop.world.givePackage(customer);
  const { secret } = await shop.world.addKey(customer);
  const visit = await reseller("/domains");
  const { page } = visit;
  await page.getByRole("button", { name: "Add domain" }).first().click();
  const dialog = page.getByRole("dialog", { name: "Add domain" });
  visit.expectProblem(/^422 POST \/api\/panel\/domains$/);
  await dialog.getByLabel("Domain").fill("acme.test");
  await dialog.getByRole("button", { name: "Add domain" }).click();
  await said(page, "Use a subdomain, as in ai.example.com, not the domain itself.");
  await visit.check();
  await dialog.getByLabel("Domain").fill(` https://SHOP.acme.test/ `);
  await dialog.getByRole("button", { name: "Add domain" }).click();
  await page.getByRole("heading", { name: host, level: 1 }).waitFor();
  const records = page.getByRole("table", { name: "DNS records" });
  expect(await textOf(records.getByRole("row", { name: /^A shop/ }))).toContain(OURS);
  await visit.check();

  /** Sets the records and asks for a check. */
  const check = async (...shown: string[]) => {
    for (const server of dns) server.setRecords("acme.test", shown);
    // Otherwise a check within five seconds gets 429.
    await shop.world.sql`update hosts set checked_at = null where host = ${host}`;
    const checked = page.waitForResponse((response) => response.url().endsWith("/check"));
    await page.getByRole("button", { name: "Check now" }).click();
    expect((await checked).status()).toBe(200);
  };
  await check(`shop A ${THEIRS}`);
  await said(page, `Found ${THEIRS}. Change it to ${OURS}.`);
  expect(await textOf(records.getByRole("row", { name: /^A shop/ }))).toContain(`wrong: ${THEIRS}`);
  // The steps and the list show the same state.
  await page.getByRole("listitem").filter({ hasText: "Records, waited for" }).waitFor();
  await page.getByRole("navigation").getByRole("link", { name: "Domains" }).click();
  const listed = page.getByRole("table", { name: "Domains" }).getByRole("row", { name: new RegExp(host) });
  // The list may show the old state until it is read again.
  await listed.filter({ hasText: "Waiting for DNS" }).waitFor();
  expect(await textOf(listed)).toMatch(
    /Waiting for DNS.*in \d+ (?:s|min)|Waiting for DNS.*(?:just now|Soon, by itself)/,
  );
  await listed.getByRole("link").first().click();
  await page.getByRole("heading", { name: host, level: 1 }).waitFor();
  await visit.check();
  await check(`shop A ${OURS}`, "shop AAAA 2001:db8::1");
  await page
    .getByRole("listitem")
    .filter({ hasText: /AAAA record.*2001:db8::1/ })
    .waitFor();
  expect((await shop.chat(secret, {}, { host })).status).toBe(403);
  await check(`shop A ${OURS}`);
  const address = panel.at(host);
  await said(page, `Live: ${address}`);
  await said(page, `Customers sign in there. The API is at ${address}/v1.`);
  expect(await page.getByRole("link", { name: "Open" }).getAttribute("href")).toBe(address);
  await visit.check();
  expect((await shop.chat(secret, {}, { host })).status).toBe(200);

  await page.getByRole("button", { name: "Remove" }).click();
  const question = page.getByRole("dialog", { name: `Remove ${host}?` });
  expect(await question.getByRole("button", { name: "Remove domain" }).isDisabled()).toBe(true);
  await question.getByLabel(`Type ${host} to continue`).fill(host);
  await question.getByRole("button", { name: "Remove domain" }).click();
  await said(page, `${host} removed.`);
  expect((await shop.chat(secret, {}, { host })).status).toBe(403);
  await visit.check();
  await visit.close();
});
