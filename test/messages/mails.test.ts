import { afterAll, beforeAll, expect, test } from "bun:test";
import sharp from "sharp";
import { createLink, inviteAccount, takeLink } from "../../src/accounts/password_links_store.ts";
import { textsIn } from "../../src/languages/server_texts.ts";
import { MESSAGE_KINDS } from "../../src/messages/kinds.ts";
import { mutedKinds, setMailed } from "../../src/messages/mail_choices_store.ts";
import { saveMailServer } from "../../src/messages/mail_servers_store.ts";
import { type MailFacts, mailText } from "../../src/messages/mail_texts.ts";
import { shownUsd } from "../../src/messages/mail_values.ts";
import { addressesOf } from "../../src/messages/smtp.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { EXAMPLES } from "./examples.ts";
import { createMessagesWorld, type MessagesWorld } from "./messages_world.ts";
import { type MailBox, openMailBox, ownAddress } from "./post.ts";

/** Source: MSG-5, MSG-6, MSG-7, MSG-8. */
/** Loopback, on a port that resellers may use. */
const RESELLER_HOST = ownAddress();
const HOUR_MS = 3_600_000;
/** Values that stand in texts as they are. */
const SHOWN = ["name", "address", "host", "url", "why", "note", "answer", "reason", "reference", "offeringName"];

let box: MailBox;
let resellerBox: MailBox;
let world: MessagesWorld;
beforeAll(async () => {
  box = await openMailBox();
  resellerBox = await openMailBox({ host: RESELLER_HOST, port: 2525 });
  world = await createMessagesWorld({ SMTP_URL: box.url, MESSAGES_ALLOW_PRIVATE: `${RESELLER_HOST}:2525` });
});
afterAll(async () => {
  await world.close();
  await box.close();
  await resellerBox.close();
});

const OWNER = { accountId: 1, tenantId: 1 };
const SERVER = {
  host: RESELLER_HOST,
  port: 2525,
  userName: "lumen",
  password: "a secret",
  fromAddress: "hello@lumen.example",
  fromName: "Lumen AI",
};

async function brandedReseller() {
  const reseller = await world.addReseller();
  const { accountId } = reseller;
  const logo = await sharp({ create: { width: 120, height: 32, channels: 4, background: "#7c3aed" } })
    .png()
    .toBuffer();
  await world.sql`
    insert into brands (reseller_id, name, accent, logo_light, support, version) values (${accountId}, 'Lumen AI', '#7c3aed', ${logo}, 'help@lumen.example', '1')`;
  await world.sql`insert into hosts (host, reseller_id, status) values (${`ai${accountId}.lumen.example`}, ${accountId}, 'active')`;
  return reseller;
}
const by = () => ({ ...world.deps, by: { accountId: 1, requestId: newRequestId() } });

test("an invitation is mailed with its link, which no table contains in clear", async () => {
  const wanted = { role: "customer" as const, email: "ann@example.com", name: "Ann", resellerId: null };
  const { account, link } = await inviteAccount(by(), wanted, {
    site: "https://panel.tollgate.example",
    isMailed: true,
  });
  const rows = await world.sql`select data::text as data from outbox_messages`;
  expect(JSON.stringify(rows)).not.toContain(link.token);
  await world.start().run();
  const [mail] = box.to("ann@example.com");
  expect(mail?.subject).toBe("Your invitation to Operator Inc");
  expect(mail?.text).toContain(`https://panel.tollgate.example/invite/${link.token}`);
  expect(mail?.html).toContain(`href="https://panel.tollgate.example/invite/${link.token}"`);
  expect(mail?.from?.value).toEqual([{ address: "mail@operator.example", name: "Operator" }]);
  expect(mail?.headers.get("auto-submitted")).toBe("auto-generated");
  expect(mail?.headers.has("x-mailer")).toBe(false);
  // The first password is not a changed one.
  await takeLink(by(), { token: link.token, accountId: account.accountId, passwordHash: "x" });
  const told = await world.sql`select kind from outbox_messages where account_id = ${account.accountId}`;
  expect(told.map(({ kind }) => kind)).toEqual(["invitation"]);
});

test("a link that has expired is not mailed", async () => {
  const { accountId } = await world.addCustomer();
  await createLink(by(), accountId, { site: "https://panel.tollgate.example", isMailed: true });
  await world.pass(8 * 86_400_000);
  await world.start().run();
  await world.resetClock();
  const [row] = await world.sql`select status, error from outbox_deliveries where account_id = ${accountId}`;
  expect(row).toMatchObject({ status: "failed", error: "The link in this mail has expired." });
});

test("a reseller's customers get mail from its server, in its name, colour and logo, on its domain; nothing names the operator", async () => {
  const reseller = await brandedReseller();
  const customer = await world.addCustomer(reseller.accountId);
  const data = {
    name: "Starter",
    left: 312,
    totalLimit: 15_000,
    endsAt: "2026-12-14T23:00:00Z",
    timeZone: "Europe/Berlin",
  };
  await world.tell({ kind: "package_80_percent", accountId: customer.accountId, data });
  const messages = world.start();
  await messages.run();
  expect(box.to(await world.emailOf(customer))).toHaveLength(0);
  await saveMailServer(by(), reseller.accountId, SERVER);
  await world.tell({ kind: "package_80_percent", accountId: customer.accountId, data });
  await messages.run();
  const [mail, ...more] = resellerBox.to(await world.emailOf(customer));
  expect(more).toHaveLength(0);
  expect(resellerBox.does.users).toContain("lumen");
  expect(mail?.subject).toBe("312 requests are left of Starter");
  expect(mail?.from?.value).toEqual([{ address: "hello@lumen.example", name: "Lumen AI" }]);
  expect(mail?.text).toContain("Requests left: 312 of 15,000");
  expect(mail?.text).toContain("Last day: 15 December 2026");
  expect(mail?.html).toContain(`https://ai${reseller.accountId}.lumen.example/billing`);
  expect(mail?.html).toContain("prefers-color-scheme: dark");
  expect(mail?.attachments.map(({ cid, contentType }) => [cid, contentType])).toEqual([["logo", "image/png"]]);
  expect(mail?.messageId).toEndWith("@lumen.example>");
  for (const word of ["operator", "tollgate", "127.0.0.1", (await import("node:os")).hostname()])
    expect(mail?.raw.toLowerCase()).not.toContain(word.toLowerCase());
});

test("a mail is in the language of its reader, else of the brand, else in English", async () => {
  const { accountId } = await brandedReseller();
  await saveMailServer(by(), accountId, SERVER);
  const customer = await world.addCustomer(accountId);
  const address = await world.emailOf(customer);
  const messages = world.start();
  const tagOf = async (to: string) => {
    await messages.run();
    return /<html lang="(\w+)" dir="(\w+)">/.exec(String(resellerBox.to(to).at(-1)?.html))?.slice(1);
  };
  const told = { kind: "password_changed", accountId: customer.accountId } as const;
  await world.tell(told);
  expect(await tagOf(address)).toEqual(["en", "ltr"]);
  await world.sql`update brands set language = 'es' where reseller_id = ${accountId}`;
  await world.tell(told);
  expect(await tagOf(address)).toEqual(["es", "ltr"]);
  await world.sql`update accounts set language = 'ar' where id = ${customer.accountId}`;
  await world.tell(told);
  expect(await tagOf(address)).toEqual(["ar", "rtl"]);
  // To an address without an account: the language of the page on which it was entered.
  const { encrypt } = await import("../../src/platform/crypto.ts");
  const urlCiphertext = encrypt(world.deps.config.secretKey, "https://lumen.example/x").toString("base64");
  const expiresAt = new Date(Date.now() + HOUR_MS).toISOString();
  const stranger = { urlCiphertext, expiresAt, address: `new${accountId}@example.com` };
  await world.tell({ kind: "sign_up", accountId, data: { ...stranger, language: "de" } });
  expect(await tagOf(stranger.address)).toEqual(["de", "ltr"]);
});

test("no name, subject or value can add a header or HTML", async () => {
  const evil = "Eve\r\nBcc: victim@example.com\r\n\r\n<script>alert(1)</script>";
  const { accountId } = await world.addReseller();
  await world.sql`update accounts set name = ${evil} where id = ${accountId}`;
  await world.tell({
    kind: "order_placed",
    accountId: (await world.addCustomer(accountId)).accountId,
    data: { customerName: evil, offeringName: `${evil}"'&`, note: evil },
  });
  await world.tell({ kind: "domain_lost", accountId, data: { host: `x.example\nBcc: victim@example.com` } });
  await world.start().run();
  const mails = box.to(await world.emailOf({ accountId }));
  expect(mails).toHaveLength(2);
  for (const mail of mails) {
    expect(mail.envelopeTo).toEqual([await world.emailOf({ accountId })]);
    expect(mail.bcc).toBeUndefined();
    expect(mail.headers.has("bcc")).toBe(false);
    expect(String(mail.html)).not.toContain("<script");
    expect(mail.subject).not.toMatch(/[\r\n]/);
    expect(mail.raw.split("\r\n\r\n")[0]).not.toMatch(/^bcc:/im);
  }
  expect(String(mails[0]?.html)).toContain("&lt;script&gt;");
});

test("an address with commas and brackets reaches nobody else", async () => {
  const { accountId } = await world.addReseller();
  await world.sql`update accounts set email = 'a,victim@example.com' where id = ${accountId}`;
  await world.tell({ kind: "domain_lost", accountId, data: { host: "x.example" } });
  await world.start().run();
  expect(box.to("victim@example.com")).toHaveLength(0);
});

test("a change of address is mailed to the new and to the old address, each with its own mail", async () => {
  const person = await world.addReseller();
  const { encrypt } = await import("../../src/platform/crypto.ts");
  const { secretKey } = world.deps.config;
  for (const to of ["old", "new"] as const)
    await world.tell({
      kind: "email_change",
      accountId: person.accountId,
      data: {
        to,
        expiresAt: new Date(Date.now() + HOUR_MS).toISOString(),
        address: "fresh@example.com",
        urlCiphertext: encrypt(secretKey, `https://panel.tollgate.example/email/${to}`).toString("base64"),
      },
    });
  await world.start().run();
  expect(box.to("fresh@example.com")[0]?.text).toContain("/email/new");
  expect(box.to(await world.emailOf(person))[0]?.text).toContain("/email/old");
});

test("a mail to an unconfirmed address has no text that the account wrote, not even its name", async () => {
  const spam = "Buy at pills.example";
  const { encrypt } = await import("../../src/platform/crypto.ts");
  const urlCiphertext = encrypt(world.deps.config.secretKey, "https://panel.tollgate.example/x").toString("base64");
  const expiresAt = new Date(Date.now() + HOUR_MS).toISOString();
  const { accountId } = await world.addReseller();
  await world.sql`update accounts set name = ${spam} where id = ${accountId}`;
  const own = await world.emailOf({ accountId });
  const change = { urlCiphertext, expiresAt, address: "stranger@example.com" };
  for (const to of ["old", "new"] as const)
    await world.tell({ kind: "email_change", accountId, data: { ...change, to } });
  await world.start().run();
  // The old address is the account's own.
  expect(box.to(own)[0]?.to).toMatchObject({ value: [{ address: own, name: spam }] });
  await world.tell({ kind: "invitation", accountId, data: { urlCiphertext, expiresAt } });
  await world.start().run();
  const unconfirmed = [box.to("stranger@example.com")[0], box.to(own)[1]];
  expect(unconfirmed.map((mail) => mail?.subject)).toEqual([
    "Confirm the new e-mail address of your account at Operator Inc",
    "Your invitation to Operator Inc",
  ]);
  for (const mail of unconfirmed) expect(`${mail?.raw} ${mail?.text} ${mail?.html}`).not.toMatch(/pills|buy at/i);
});

test("a kind that is switched off is not mailed; security kinds cannot be switched off", async () => {
  const person = await world.addReseller();
  const { accountId } = person;
  await setMailed(by(), { accountId, kind: "domain_lost", mailed: false });
  expect(await mutedKinds(world.deps, accountId)).toEqual(["domain_lost"]);
  for (const kind of ["invitation", "password_reset", "email_change", "nonsense"])
    await expect(setMailed(by(), { accountId, kind, mailed: false })).rejects.toThrow("cannot be switched off");
  await world.tell({ kind: "domain_lost", accountId, data: { host: "x.example" } });
  await world.start().run();
  expect(box.to(await world.emailOf(person))).toHaveLength(0);
  await setMailed(by(), { accountId, kind: "domain_lost", mailed: true });
  await world.tell({ kind: "domain_lost", accountId, data: { host: "y.example" } });
  await world.start().run();
  expect(box.to(await world.emailOf(person))).toHaveLength(1);
});

test("a sender with a domain beyond ASCII uses the domain's DNS form in EHLO and in message ids", async () => {
  const reseller = await brandedReseller();
  await saveMailServer(by(), reseller.accountId, { ...SERVER, fromAddress: "grüße@bücher.example" });
  const customer = await world.addCustomer(reseller.accountId);
  await world.tell({ kind: "package_used_up", accountId: customer.accountId, data: { name: "Starter" } });
  await world.start().run();
  const [mail] = resellerBox.to(await world.emailOf(customer));
  expect(mail?.messageId).toEndWith("@xn--bcher-kva.example>");
  expect(resellerBox.does.greetings.at(-1)).toBe("xn--bcher-kva.example");
});

test("a reseller's mail server must have a public address and a port for mail", async () => {
  for (const host of ["127.0.0.1", "10.0.0.7", "169.254.169.254", "localhost", "[::1]", "0x7f.1"])
    await expect(addressesOf({ host, port: 587, owner: OWNER, allowPrivate: [] })).rejects.toThrow();
  const { accountId } = await world.addReseller();
  const save = (over: object) => saveMailServer(by(), accountId, { ...SERVER, ...over });
  await expect(save({ port: 6379 })).rejects.toThrow("The port must be one of 25, 465, 587, 2525.");
  await expect(save({ host: "mail.example.com/x" })).rejects.toThrow("server's name");
  await expect(save({ fromName: "Eve\r\nBcc: x@example.com" })).rejects.toThrow("plain text on one line");
  await expect(save({ fromAddress: "a@b.example, c@d.example" })).rejects.toThrow("not an e-mail address");
  await save({});
  // A stored password would go to whoever names another server.
  await expect(save({ host: "mail.evil.example", password: undefined })).rejects.toThrow("password again");
});

test("every kind's text is complete, with all its optional values and with none", () => {
  const i18n = textsIn("en");
  const none = { data: {}, site: null, link: null, unsubscribe: null };
  const bare: MailFacts = { i18n, brand: "Lumen", role: "customer", ...none };
  for (const kind of MESSAGE_KINDS) {
    const { subject, paragraphs, why } = mailText(kind, bare);
    for (const text of [subject, ...paragraphs, why]) expect(text).not.toMatch(/null|undefined|NaN|\s\s/);
    expect(paragraphs.length).toBeGreaterThan(0);
    const whole = mailText(kind, {
      ...bare,
      data: EXAMPLES[kind],
      site: "https://ai.lumen.example",
      link: "https://x.example/",
    });
    const said = [whole.subject, ...whole.paragraphs, ...whole.facts.flat(), whole.why].join(" | ");
    expect(said).not.toMatch(/null|undefined|NaN|\s\s|your order|Your package|Little|Few/);
    // Who is erased has no page to go to, and the address is only where the mail goes.
    expect(whole.button === null).toBe(kind === "account_erased");
    if (kind === "account_erased") continue;
    for (const [field, value] of Object.entries(EXAMPLES[kind]))
      if (SHOWN.includes(field)) expect([kind, field, said]).toEqual([kind, field, expect.stringContaining(value)]);
  }
  expect(
    [1_500_000_000n, -20_000_000n, 12_345_000_000_000n, 1_234_500_000n].map((nano) => shownUsd(i18n, nano)),
  ).toEqual(["$1.50", "-$0.02", "$12,345.00", "$1.2345"]);
});
