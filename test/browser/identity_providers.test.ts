import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Page } from "playwright-core";
import { givePassword, PASSWORD } from "../panel/panel_client.ts";
import { CLIENT, type RealIssuer, startRealIssuer } from "../panel/real_issuer.ts";
import { TERMS } from "../panel/sign_up_form.ts";
import { openPanel, PANEL_HOST, type Panel, said, type Visit } from "./browser.ts";

/** Signing in through a real OpenID Connect server, in the browser. Source: OIDC-1, OIDC-2, OIDC-6, OIDC-8, OIDC-9. */

let panel: Panel;
let real: RealIssuer;
let addresses = 0;

beforeAll(async () => {
  real = await startRealIssuer();
  panel = await openPanel({
    env: {
      TRUSTED_PROXIES: "127.0.0.1,::1",
      IDENTITY_ALLOW_PRIVATE: real.hostPort,
      SMTP_URL: "smtp://127.0.0.1:1",
      MAIL_FROM: "a@b.example",
    },
  });
  real.serve([panel.at(PANEL_HOST)]);
  await panel.shop.world
    .sql`insert into sign_up_settings (seller_id, is_open, terms_url, privacy_url) values (0, true, ${TERMS.termsUrl}, ${TERMS.privacyUrl})`;
  real.people.set("ann", { email: "ann@people.example", email_verified: true, name: "Ann Lee" });
  real.people.set("kim", { email: "kim@people.example", email_verified: true, name: "Kim" });
});
afterAll(async () => {
  await panel.close();
  await real.stop();
});

/** A visit that may go to the server, and sees its pages. */
function expectServer(visit: Visit): Visit {
  visit.expectProblem(/^another host was asked: http:\/\/127\.0\.0\.1:\d+\//);
  visit.expectProblem(/^404 GET \/favicon\.ico$/);
  // Its own pages want a font of another host.
  visit.expectProblem(/https:\/\/fonts\.googleapis\.com\//);
  return visit;
}

const arrive = async (path = "/sign-in"): Promise<Visit> =>
  expectServer(await panel.visit(null, path, { extraHTTPHeaders: { "x-forwarded-for": `10.9.${++addresses}.1` } }));

/** Signs in on the server's own page. */
async function signInThere(page: Page, login: string): Promise<void> {
  await page.waitForURL((url) => url.pathname.startsWith("/interaction/"));
  await page.locator("input[name=login]").fill(login);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
}

test("an admin adds an identity provider on its page; a wrong issuer is named at its field", async () => {
  const visit = await panel.visit(await panel.shop.world.addAdmin(), "/admin/sign-in");
  const { page } = visit;
  await said(page, "No identity provider yet. People sign in with a password or a passkey.");
  await page.getByRole("button", { name: "Add an identity provider" }).click();
  const dialog = page.getByRole("dialog");
  const redirect = await dialog.getByLabel("Redirect URI").first().inputValue();
  expect(redirect).toBe(`${panel.at(PANEL_HOST)}/sign-in/callback`);
  await dialog.getByLabel("Name", { exact: true }).fill("Example SSO");
  await dialog.getByLabel("Issuer").fill(`${real.issuer}/elsewhere`);
  await dialog.getByLabel("Client id").fill(CLIENT.clientId);
  await dialog.getByLabel("Client secret", { exact: true }).fill(CLIENT.clientSecret);
  await dialog.getByLabel("Current password", { exact: true }).fill(PASSWORD);
  await visit.check();
  visit.expectProblem(/^422 POST \/api\/panel\/identity-providers$/);
  const add = dialog.getByRole("button", { name: "Add identity provider" });
  await add.click();
  await dialog
    .getByText(/does not answer as an OpenID Connect provider does/)
    .first()
    .waitFor();
  await visit.check();
  await dialog.getByLabel("Issuer").fill(real.issuer);
  await add.click();
  await page.getByRole("cell", { name: "Example SSO OpenID Connect" }).waitFor();
  await visit.check();
  await visit.close();
});

test("a stranger comes in through the server, and signs out here and there", async () => {
  const visit = await arrive("/sign-in?next=%2Fkeys");
  const { page } = visit;
  await page.getByText(/If you have no account yet, you make one by continuing/).waitFor();
  await visit.check();
  await page.getByRole("button", { name: "Continue with Example SSO" }).click();
  await signInThere(page, "ann");
  await page.getByRole("heading", { name: "Keys", level: 1 }).waitFor();
  expect(new URL(page.url()).pathname).toBe("/keys");
  await visit.check();
  await page.goto("/settings?tab=sign-in");
  await page.getByText("ann@people.example").first().waitFor();
  await page.getByRole("heading", { name: "Linked identities" }).waitFor();
  await visit.check();
  await page.getByRole("button", { name: /^Account/ }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await page.waitForURL((url) => url.pathname === "/session/end");
  await page.getByRole("button", { name: /sign me out/i }).click();
  await page.getByRole("heading", { name: "Sign in", level: 1 }).waitFor();
  await visit.check();
  await visit.close();
});

test("a person with a password is not linked by the address; they link in the settings, and unlink", async () => {
  const customer = await panel.shop.world.addCustomer();
  await panel.shop.world.sql`update accounts set email = 'kim@people.example' where id = ${customer.accountId}`;
  const stranger = await arrive();
  stranger.expectProblem(/^401 POST \/api\/panel\/sign-in\/identity\/finish$/);
  await stranger.page.getByRole("button", { name: "Continue with Example SSO" }).click();
  await signInThere(stranger.page, "kim");
  await stranger.page.getByRole("heading", { name: "You are not signed in", level: 1 }).waitFor();
  await said(stranger.page, /Your e-mail address has an account here already/);
  await stranger.page.getByRole("link", { name: "Get a link by mail" }).waitFor();
  expect(new URL(stranger.page.url()).search).toBe("");
  await stranger.check();
  await stranger.close();

  const visit = expectServer(await panel.visit(customer, "/settings?tab=sign-in"));
  const { page } = visit;
  await page.getByRole("button", { name: "Link Example SSO" }).click();
  await page.getByLabel("Current password", { exact: true }).fill(PASSWORD);
  await visit.check();
  await page.getByRole("button", { name: "Continue to Example SSO" }).click();
  await signInThere(page, "kim");
  await page.getByRole("button", { name: "Unlink Example SSO" }).click();
  await page.getByLabel("Current password", { exact: true }).fill(PASSWORD);
  await visit.check();
  await page.getByRole("dialog").getByRole("button", { name: "Unlink" }).click();
  // Ann's identity is hers: nobody else links it.
  await page.getByRole("button", { name: "Link Example SSO" }).click();
  await page.getByLabel("Current password", { exact: true }).fill(PASSWORD);
  await visit.context.clearCookies({ domain: "127.0.0.1" });
  visit.expectProblem(/^422 POST \/api\/panel\/sign-in\/identity\/finish$/);
  await page.getByRole("button", { name: "Continue to Example SSO" }).click();
  await signInThere(page, "ann");
  await page.getByRole("heading", { name: "Not linked", level: 1 }).waitFor();
  await said(page, /belongs to another person here/);
  await visit.check();
  await page.getByRole("link", { name: "Back to settings" }).click();
  await page.getByRole("button", { name: "Link Example SSO" }).waitFor();
  await visit.check();
  await visit.close();
});

test("while the server is away, the page says so, and the password works", async () => {
  await real.stop();
  const visit = await arrive();
  const { page } = visit;
  visit.expectProblem(/^503 POST \/api\/panel\/sign-in\/identity\/finish$/);
  // As from its page that was open when it went away.
  await page.route(`${real.issuer}/**`, async (route) => {
    const back = new URL("/sign-in/callback", panel.at(PANEL_HOST));
    const state = new URL(route.request().url()).searchParams.get("state") ?? "";
    back.search = new URLSearchParams({ code: "a-code", state, iss: real.issuer }).toString();
    await route.fulfill({ status: 302, headers: { location: back.href } });
  });
  await page.getByRole("button", { name: "Continue with Example SSO" }).click();
  await page.getByRole("heading", { name: "You are not signed in", level: 1 }).waitFor();
  await said(page, /Example SSO does not answer/);
  await visit.check();
  await page.getByRole("link", { name: "Go to sign-in" }).click();
  const person = await panel.shop.world.addCustomer();
  await page.getByLabel("E-mail").fill(await givePassword(panel.shop, person));
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByRole("heading", { name: "Home", level: 1 }).waitFor();
  await visit.check();
  await visit.close();
});
