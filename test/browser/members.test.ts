import { afterAll, beforeAll, expect, test } from "bun:test";
import { MEMBER_ROLES, type MemberSubject, mayWrite } from "../../src/accounts/member_roles.ts";
import { roleLocked } from "../../src/panel/web/failures.ts";
import { decrypt } from "../../src/platform/crypto.ts";
import { MAIL } from "../panel/mailed_links.ts";
import { PASSWORD } from "../panel/panel_client.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { openPanel, type Panel, said, settled } from "./browser.ts";

/** Members in the browser: inviting, joining, switching accounts, roles that lock, makers of keys, removing. Source: MEM-1, MEM-2, MEM-4, MEM-5, MEM-7. */

const SLOW_MS = 240_000;

let panel: Panel;
beforeAll(async () => {
  panel = await openPanel({ env: MAIL });
});
afterAll(() => panel.close());

async function mailedUrl(): Promise<string> {
  const [row] = await panel.shop.world.sql`
    select data from outbox_messages where kind = 'member_invitation' order by id desc limit 1`;
  return decrypt(Buffer.from(TEST_SECRET_KEY, "base64"), Buffer.from(String(row?.data.urlCiphertext), "base64"));
}

test(
  "an owner invites; a new person joins as a viewer and sees locked controls; the owner makes them a developer, and removes them",
  async () => {
    const account = await panel.shop.customer();
    const owner = await panel.visit(account, "/");
    await owner.page.keyboard.press("Control+k");
    await owner.page.getByRole("dialog", { name: "Go to" }).getByRole("combobox").fill("Members");
    await owner.page.keyboard.press("Enter");
    await owner.page.getByRole("heading", { name: "Members", level: 1 }).waitFor();
    await owner.check();
    await owner.page.getByRole("button", { name: "Invite a member" }).click();
    const form = owner.page.getByRole("dialog", { name: "Invite a member" });
    await form.getByLabel("E-mail").fill("vera@example.com");
    await form.getByLabel(/^Viewer/).check();
    await form.getByLabel("Current password").fill(PASSWORD);
    await owner.check();
    await form.getByRole("button", { name: "Invite" }).click();
    await said(owner.page, "vera@example.com is invited.");
    await owner.page.getByRole("table", { name: "Invitations" }).getByText("vera@example.com").first().waitFor();
    await owner.check();

    const guest = await panel.enter(null);
    const { page } = guest;
    await page.goto(new URL(await mailedUrl()).pathname);
    await page.getByRole("heading", { name: /^Join customer/ }).waitFor();
    await guest.check();
    await page.getByRole("button", { name: "Join" }).click();
    await page.getByText("Enter your name.").waitFor();
    await page.getByLabel("Your name").fill("Vera Viewer");
    await page.getByLabel("Password", { exact: true }).fill("seven purple elephants");
    await page.getByRole("button", { name: "Join" }).click();
    await page.waitForURL((url) => url.pathname === "/");
    await settled(page);
    await page.goto("/keys");
    const create = page.getByRole("button", { name: "Create key" }).first();
    await create.waitFor();
    expect(await create.isDisabled()).toBe(true);
    await page.goto("/members");
    await page.getByRole("table", { name: "Members" }).getByText("You", { exact: true }).waitFor();
    expect(await page.getByRole("button", { name: "Invite a member" }).isDisabled()).toBe(true);
    await guest.check();

    await owner.page.reload();
    await owner.page.getByRole("button", { name: "Actions for Vera Viewer" }).click();
    await owner.page.getByRole("menuitem", { name: "Change role" }).click();
    const role = owner.page.getByRole("dialog", { name: "Change the role of Vera Viewer" });
    await role.getByLabel(/^Developer/).check();
    await role.getByLabel("Current password").fill(PASSWORD);
    await role.getByRole("button", { name: "Change role" }).click();
    await said(owner.page, "Vera Viewer has the role Developer.");
    await page.goto("/keys");
    await create.waitFor();
    expect(await create.isDisabled()).toBe(false);

    await owner.page.getByRole("button", { name: "Actions for Vera Viewer" }).click();
    await owner.page.getByRole("menuitem", { name: "Remove" }).click();
    await owner.page.getByRole("button", { name: "Remove member" }).click();
    await said(owner.page, "Vera Viewer is no longer a member.");
    guest.expectProblem(/^401 GET /);
    await page.reload();
    await page.waitForURL((url) => url.pathname === "/sign-in");
    await owner.check();
    await owner.close();
    await guest.close();
  },
  SLOW_MS,
);

test(
  "a person of two accounts switches between them in the menu",
  async () => {
    const [own, other] = [await panel.shop.customer(), await panel.shop.customer()];
    const { sql } = panel.shop.world;
    await sql`update accounts set name = case id when ${own.accountId} then 'Own works' else 'Other works' end
      where id in (${own.accountId}, ${other.accountId})`;
    await sql`insert into members (account_id, person_id, role) values (${other.accountId}, ${own.accountId}, 'billing')`;
    const person = await panel.visit(own, "/");
    const { page } = person;
    await page.getByRole("button", { name: /^Account: / }).click();
    const loaded = page.waitForEvent("load");
    await page.getByRole("menuitemradio", { name: "Other works" }).click();
    await loaded;
    await settled(page);
    await page.getByRole("button", { name: /^Account: / }).click();
    await page.getByText("billing of Other works").waitFor();
    expect(await page.getByRole("menuitemradio", { name: "Other works" }).getAttribute("aria-checked")).toBe("true");
    await page.keyboard.press("Escape");
    await person.check();
    await person.close();
  },
  SLOW_MS,
);

type Control = readonly [path: string, names: readonly string[], subject: MemberSubject];

/** A reseller's pages that change something, and what: the server refuses it by the same table. */
const CONTROLS: readonly Control[] = [
  ["/keys", ["Create key"], "keys"],
  ["/webhooks", ["Add endpoint"], "webhooks"],
  ["/tokens", ["Create token"], "tokens"],
  ["/members", ["Invite a member"], "members"],
  ["/billing", ["Redeem a voucher", "New order"], "orders"],
  ["/vouchers", ["Create vouchers"], "vouchers"],
  ["/payments", ["Save currency and tax", "Offer Stripe", "Save instructions", "Offer the shop"], "settings"],
  ["/invoices", ["Save invoice details"], "payments"],
  ["/settings", ["Save invoice details"], "payments"],
  ["/settings", ["Save name"], "own"],
  ["/settings?tab=notices", ["Save notices"], "balances"],
  ["/brand", ["Save brand"], "settings"],
  ["/sign-up-settings", ["Save sign-up"], "settings"],
];

test.each(MEMBER_ROLES)(
  "what the server refuses to a member with the role %s is locked on every page, with the reason",
  async (role) => {
    const { world } = panel.shop;
    const reseller = await world.addReseller();
    const theirs = `/customers/${(await world.addCustomer(reseller.accountId)).accountId}`;
    const ofCustomer: Control[] = [
      [theirs, ["Assign package"], "packages"],
      [theirs, ["Top up"], "balances"],
      [`${theirs}?tab=account`, ["Rename"], "settings"],
    ];
    const member = await world.addMember(reseller, role);
    const { page, check, close } = await panel.visit(member, "/");
    for (const [path, names, subject] of [...CONTROLS, ...ofCustomer]) {
      if (!page.url().endsWith(path)) await page.goto(path);
      for (const name of names) {
        const control = page.getByRole("button", { name, exact: true }).first();
        await control.waitFor();
        const isOpen = mayWrite(role, subject);
        expect([path, name, await control.isEnabled()]).toEqual([path, name, isOpen]);
        expect([path, name, await control.getAttribute("title")]).toEqual([
          path,
          name,
          isOpen ? null : roleLocked(role),
        ]);
      }
      await check();
    }
    await close();
  },
  SLOW_MS,
);

test(
  "keys and API tokens say who made them, where several people work",
  async () => {
    const { world } = panel.shop;
    const account = await world.addReseller();
    const { keyId } = await world.addKey(account);
    await world.sql`update keys set made_by = account_id where id = ${keyId}`;
    const owner = await panel.visit(account, `/keys/${keyId}`);
    const { page } = owner;
    await page.getByText("Created", { exact: true }).waitFor();
    expect(await page.getByText("Made by").count()).toBe(0);
    const member = await world.addMember(account, "developer");
    await world.addMember(account, "viewer");
    await world.sql`update keys set made_by = ${member.accountId} where id = ${keyId}`;
    await world.sql`
      insert into api_tokens (account_id, made_by, name, digest, prefix, scopes)
      values (${account.accountId}, ${member.accountId}, 'ci', 'x', 'tgm_x', '{keys:read}')`;
    await page.reload();
    await page.getByText("Made by", { exact: true }).waitFor();
    await page.getByText("The developer", { exact: true }).waitFor();
    await owner.check();
    await world.sql`delete from members where person_id = ${member.accountId}`;
    for (const path of ["/keys", "/tokens"]) {
      await page.goto(path);
      await page.getByText("Made by The developer (removed member)").first().waitFor();
      await owner.check();
    }
    await owner.close();
  },
  SLOW_MS,
);
