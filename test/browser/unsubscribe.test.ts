import { afterAll, beforeAll, expect, test } from "bun:test";
import { unsubscribeToken } from "../../src/messages/unsubscribe.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { ACME_HOST, openPanel, type Panel, textOf } from "./browser.ts";

/** The page of a link that switches off one kind of mail, and what a page says of a mail server that does not answer. Source: MSG-12, MSG-13. */

let panel: Panel;
beforeAll(async () => {
  panel = await openPanel();
});
afterAll(() => panel.close());

const mutedOf = async ({ accountId }: { accountId: number }) =>
  (await panel.shop.world.sql`select kind from muted_mails where account_id = ${accountId}`).map(({ kind }) => kind);

test("the link's page asks first, the button switches these mails off, and a broken link says so", async () => {
  const person = await panel.shop.world.addCustomer(panel.acme.accountId);
  const seen = { host: ACME_HOST };
  const token = unsubscribeToken(Buffer.from(TEST_SECRET_KEY, "base64"), { ...person, kind: "package_ending" });
  const visit = await panel.visit(null, `/unsubscribe/${token}`, seen);
  const { page } = visit;
  const button = page.getByRole("button", { name: "Switch these mails off" });
  await button.waitFor();
  expect(await textOf(page.locator("main"))).toContain("Package ends soon");
  await visit.check();
  await page.reload();
  await button.waitFor();
  expect(await mutedOf(person)).toEqual([]);
  await button.click();
  await page.getByRole("heading", { name: "Switched off", level: 1 }).waitFor();
  expect(await mutedOf(person)).toEqual(["package_ending"]);
  await visit.check();
  await page.reload();
  await page.getByRole("heading", { name: "Switched off", level: 1 }).waitFor();
  await visit.close();

  const broken = await panel.visit(null, "/sign-in", seen);
  broken.expectProblem(/^404 GET \/api\/panel\/unsubscribe\//);
  await broken.page.goto(`${new URL(broken.page.url()).origin}/unsubscribe/${token}x`);
  await broken.page.getByRole("heading", { name: "This link no longer works", level: 1 }).waitFor();
  await broken.check();
  await broken.close();
});

test("the page Mail says since when the mail server has not answered, why, and when one is tried", async () => {
  const { sql } = panel.shop.world;
  await sql`
    insert into mail_breakers (tenant_id, since, failures, why, next_at)
    values (${panel.acme.accountId}, now() - interval '3 hours', 40, 'connect ECONNREFUSED 192.0.2.7:587', now() + interval '4 minutes')`;
  const visit = await panel.visit(panel.acme, "/messages", { host: ACME_HOST });
  const banner = visit.page.getByText("The mail server does not answer").locator("..");
  expect(await textOf(banner)).toMatch(
    /It has not answered since .+: connect ECONNREFUSED 192\.0\.2\.7:587\. Mails wait until it does\./,
  );
  await visit.check();
  await visit.close();
});
