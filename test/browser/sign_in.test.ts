import { afterAll, beforeAll, expect, test } from "bun:test";
import { codeAt } from "../accounts/authenticator.ts";
import { givePassword, PASSWORD } from "../panel/panel_client.ts";
import type { Person } from "../world.ts";
import { openPanel, type Panel, said, textOf, type Visit } from "./browser.ts";

/** Sign-in, sign-out and links in the browser. Source: DOM-5, ACC-4. */

const WRONG_TRIES_MAX = 10;
const NEW_PASSWORD = "three lanterns by the river";

let panel: Panel;
let addresses = 0;

beforeAll(async () => {
  panel = await openPanel({ env: { TRUSTED_PROXIES: "127.0.0.1,::1" } });
});
afterAll(() => panel.close());

/** A visit that is not signed in, from an unused address, since wrong tries count against it. */
function arrive(path = "/sign-in"): Promise<Visit> {
  return panel.visit(null, path, { extraHTTPHeaders: { "x-forwarded-for": `192.0.2.${++addresses}` } });
}

async function enter({ page }: Visit, email: string, password: string): Promise<void> {
  await page.getByLabel("E-mail").fill(email);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

const isHome = ({ page }: Visit) => page.getByRole("heading", { name: "Home", level: 1 }).waitFor();

async function signOut({ page }: Visit): Promise<void> {
  await page.getByRole("button", { name: /^Account/ }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in", level: 1 }).waitFor();
}

async function addPerson(): Promise<Person & { email: string }> {
  const person = await panel.shop.world.addCustomer();
  return { ...person, email: await givePassword(panel.shop, person) };
}

test("a wrong password shows a message, the right one leads to the requested page, signing out ends the session", async () => {
  const { email } = await addPerson();
  const visit = await arrive("/billing?kind=top_up");
  await visit.page.waitForURL("**/sign-in?next=*");
  await visit.check();
  visit.expectProblem(/^401 POST \/api\/panel\/sign-in$/);
  await enter(visit, email, "not the password");
  await said(visit.page, "Wrong e-mail or password.");
  await visit.check();
  await enter(visit, email, PASSWORD);
  await visit.page.getByRole("heading", { name: "Billing", level: 1 }).waitFor();
  expect(new URL(visit.page.url()).search).toBe("?kind=top_up");
  await visit.check();

  await signOut(visit);
  visit.expectProblem(/^401 GET \/api\/panel\//);
  await visit.page.goto("/keys");
  await visit.page.getByRole("heading", { name: "Sign in", level: 1 }).waitFor();
  await visit.check();
  await visit.close();
});

test("after ten wrong passwords it shows how long to wait, also for the right one", async () => {
  const { email } = await addPerson();
  const visit = await arrive();
  visit.expectProblem(/^(401|429) POST \/api\/panel\/sign-in$/);
  for (let tries = 0; tries < WRONG_TRIES_MAX; tries++) {
    const answered = visit.page.waitForResponse("**/api/panel/sign-in");
    await enter(visit, email, `wrong ${tries}`);
    expect((await answered).status()).toBe(401);
  }
  await enter(visit, email, PASSWORD);
  const alert = visit.page.getByRole("alert").filter({ hasText: "Too many failed attempts" });
  expect(await textOf(alert)).toMatch(/^Too many failed attempts Try again in \d+ min( \d+ s)?, at \d\d:\d\d\.$/);
  await visit.check();
  await visit.close();
});

test("a second factor from the settings is needed at the next sign-in; a recovery code works instead, once", async () => {
  const { email } = await addPerson();
  const visit = await arrive();
  const { page } = visit;
  await enter(visit, email, PASSWORD);
  await isHome(visit);
  await page.goto("/settings?tab=sign-in");
  await page.getByRole("button", { name: "Set up" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Current password", { exact: true }).fill(PASSWORD);
  await dialog.getByRole("button", { name: "Continue" }).click();
  await dialog.getByRole("img", { name: /QR code/ }).waitFor();
  const [key = ""] = /(?:[A-Z2-7]{4} ){7}[A-Z2-7]{4}/.exec(await textOf(dialog)) ?? [];
  const secret = key.replaceAll(" ", "");
  await visit.check();
  visit.expectProblem(/^422 POST \/api\/panel\/settings\/totp\/confirm$/);
  await dialog.getByLabel("Code", { exact: true }).fill("000000");
  await dialog.getByRole("button", { name: "Switch on" }).click();
  await dialog.getByText("Wrong code. Each code works once.").waitFor();
  await dialog.getByLabel("Code", { exact: true }).fill(codeAt(secret));
  await dialog.getByRole("button", { name: "Switch on" }).click();
  await dialog.getByRole("listitem").first().waitFor();
  const codes = (await dialog.getByRole("listitem").allInnerTexts()).map((text) => text.trim());
  expect(codes.length).toBeGreaterThan(4);
  await visit.check();
  await dialog.getByRole("checkbox").check();
  await dialog.getByRole("button", { name: "Done" }).click();
  // New recovery codes need a current code: without one nothing is sent.
  await page.getByRole("button", { name: "New recovery codes" }).click();
  const renewing = page.getByRole("dialog", { name: "New recovery codes" });
  await renewing.getByLabel("Current password", { exact: true }).fill(PASSWORD);
  await renewing.getByRole("button", { name: "Continue" }).click();
  await renewing.getByText("Enter a code from your app, or a recovery code.").waitFor();
  await visit.check();
  await renewing.getByRole("button", { name: "Cancel" }).click();
  await signOut(visit);

  visit.expectProblem(/^401 POST \/api\/panel\/sign-in$/);
  await enter(visit, email, PASSWORD);
  await page.getByRole("heading", { name: "Enter your code", level: 1 }).waitFor();
  await visit.check();
  // A code works once: this is the next half minute's.
  await page.getByLabel("Code").fill(codeAt(secret, 1));
  await page.getByRole("button", { name: "Sign in" }).click();
  await isHome(visit);
  await signOut(visit);

  for (const [tries, works] of [true, false].entries()) {
    await enter(visit, email, PASSWORD);
    await page.getByRole("button", { name: "Use a recovery code" }).click();
    await page.getByLabel("Recovery code").fill(codes[0] ?? "");
    await page.getByRole("button", { name: "Sign in" }).click();
    if (works) await isHome(visit);
    else await page.getByText("Wrong code. Each code works once.").waitFor();
    if (tries === 0) await signOut(visit);
  }
  await visit.check();
  await visit.close();
});

test("an invitation sets a password and signs in, once; a short password is refused with a message", async () => {
  const { shop } = panel;
  const admin = await panel.visit(await shop.world.addAdmin(), "/admin/people");
  await admin.page.getByRole("button", { name: "Add person" }).first().click();
  const dialog = admin.page.getByRole("dialog", { name: "Add a person" });
  await dialog.getByLabel("Name").fill("Zoë <b>Newcomer</b>");
  await dialog.getByLabel("E-mail").fill("zoe@example.com");
  await dialog.getByRole("button", { name: "Add person" }).click();
  const url = await admin.page.getByLabel("Invitation link").inputValue();
  await admin.check();
  await admin.close();
  expect(url).toStartWith(`${panel.at("panel.localhost")}/invite/`);

  const visit = await arrive(url);
  const { page } = visit;
  await page.getByRole("heading", { name: "Welcome, Zoë <b>Newcomer</b>", level: 1 }).waitFor();
  await page.getByLabel("Password", { exact: true }).fill("short");
  await page.getByRole("button", { name: "Set password and sign in" }).click();
  await said(page, "Not yet: 5 more characters.");
  await visit.check();
  await page.getByLabel("Password", { exact: true }).fill(NEW_PASSWORD);
  await page.getByRole("button", { name: "Set password and sign in" }).click();
  await isHome(visit);
  await visit.check();
  await signOut(visit);
  await enter(visit, "zoe@example.com", NEW_PASSWORD);
  await isHome(visit);

  visit.expectProblem(/^404 GET \/api\/panel\/links\//);
  await page.goto(url);
  await page.getByRole("heading", { name: "This link no longer works", level: 1 }).waitFor();
  await said(page, "The link was used, has expired, or was replaced by a newer one.");
  expect(await page.getByLabel("Password").count()).toBe(0);
  await visit.check();
  await visit.close();
});
