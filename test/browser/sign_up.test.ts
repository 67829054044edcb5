import { afterAll, beforeAll, expect, test } from "bun:test";
import { linksTo, TERMS } from "../panel/sign_up_form.ts";
import { openPanel, type Panel, said, type Visit } from "./browser.ts";

/** Sign-up in the browser: from the sign-in page to the first page of the new account. Source: SUP-2, SUP-3, SUP-4. */

let panel: Panel;
let addresses = 0;

beforeAll(async () => {
  panel = await openPanel({
    env: { TRUSTED_PROXIES: "127.0.0.1,::1", SMTP_URL: "smtp://127.0.0.1:1", MAIL_FROM: "a@b.example" },
  });
  await panel.shop.world
    .sql`insert into sign_up_settings (seller_id, is_open, terms_url, privacy_url, trial_nano_usd) values (0, true, ${TERMS.termsUrl}, ${TERMS.privacyUrl}, 5000000000)`;
});
afterAll(() => panel.close());

const arrive = (path: string): Promise<Visit> =>
  panel.visit(null, path, { extraHTTPHeaders: { "x-forwarded-for": `10.9.${++addresses}.1` } });

test("a stranger signs up, opens the link of the mail, chooses a password, and sees the trial", async () => {
  const email = "ann@people.example";
  const visit = await arrive("/sign-in");
  const { page } = visit;
  await page.getByRole("link", { name: "Sign up" }).click();
  await page.getByRole("heading", { name: "Sign up", level: 1 }).waitFor();
  await page.getByText("New accounts start with a balance of $5.00, once per person.").first().waitFor();
  const send = page.getByRole("button", { name: "Sign up" });
  await send.click();
  await said(page, "Enter your name.");
  await page.getByText("Accept both to sign up.").first().waitFor();
  await visit.check();
  await page.getByLabel("Name").fill("Ann Lee");
  await page.getByLabel("E-mail").fill("ann@mailinator.com");
  await page.getByRole("checkbox", { name: /^I accept/ }).check();
  visit.expectProblem(/^422 POST \/api\/panel\/sign-up$/);
  await send.click();
  await said(page, "Addresses of this mail provider cannot be used here. Use another address.");
  await visit.check();
  await page.getByLabel("E-mail").fill(email);
  await send.click();
  await page.getByRole("heading", { name: "Check your mail", level: 1 }).waitFor();
  await visit.check();
  const [token = ""] = await linksTo(panel.shop, email);
  expect(token).not.toBe("");
  await page.goto(`/confirm/${token}`);
  await page.getByRole("heading", { name: "Welcome, Ann Lee", level: 1 }).waitFor();
  await visit.check();
  await page.getByLabel("Password", { exact: true }).fill("three lanterns by the river");
  await page.getByRole("button", { name: "Set password and sign in" }).click();
  await page.getByRole("heading", { name: "Home", level: 1 }).waitFor();
  await page.goto("/billing");
  await page.getByText("$5.00").first().waitFor();
  await visit.check();
  visit.expectProblem(/^404 GET \/api\/panel\/links\//);
  await page.goto(`/confirm/${token}`);
  await page.getByRole("heading", { name: "This link no longer works", level: 1 }).waitFor();
  await visit.close();
});

test("an admin opens sign-up on its page and sees who signed up", async () => {
  const admin = await panel.shop.world.addAdmin();
  const visit = await panel.visit(admin, "/admin/sign-up");
  const { page } = visit;
  await page.getByText("ann@people.example").first().waitFor();
  await page.getByText("Given").first().waitFor();
  await visit.check();
  visit.expectProblem(/^422 PATCH \/api\/panel\/sign-up\/settings$/);
  await page.getByLabel("Forbidden mail domains").fill("nonsense");
  await page.getByRole("button", { name: "Save sign-up" }).click();
  await page.getByText('"nonsense" is not a domain, such as example.com.').first().waitFor();
  await page.getByLabel("Forbidden mail domains").fill("rival.example");
  await page.getByRole("checkbox", { name: /^People can sign up/ }).uncheck();
  await page.getByRole("button", { name: "Save sign-up" }).click();
  await page.getByText("Saved. No one can sign up.").first().waitFor();
  await visit.check();
  await visit.close();
  const stranger = await arrive("/sign-up");
  await stranger.page.getByText("No one can sign up here at the moment.").first().waitFor();
  await stranger.check();
  await stranger.close();
});
