import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  LINK_KINDS,
  MAILED_TO_ADDRESS,
  MAILED_TO_SELLER,
  MESSAGE_KINDS,
  OPTIONAL_KINDS,
} from "../../src/messages/kinds.ts";
import { readUnsubscribeToken } from "../../src/messages/unsubscribe.ts";
import { encrypt } from "../../src/platform/crypto.ts";
import type { MessageKind } from "../../src/platform/outbox_store.ts";
import { createMessagesWorld, type MessagesWorld } from "./messages_world.ts";
import { type MailBox, openMailBox, type ReceivedMail } from "./post.ts";

/** What people and names put into the headers of mails, and the headers by which a mail is unsubscribed from. Source: MSG-6, MSG-7, MSG-13. */
/** Source: RFC 5322 › 2.1.1. */
const LINE_CHARS_MAX = 998;

let box: MailBox;
let world: MessagesWorld;
beforeAll(async () => {
  box = await openMailBox();
  world = await createMessagesWorld({ SMTP_URL: box.url });
});
afterAll(async () => {
  await world.close();
  await box.close();
});

/** The one mail to a reseller with this name and address. */
async function mailTo({ name, email, host = "lost.example" }: { name?: string; email?: string; host?: string }) {
  const { accountId } = await world.addReseller();
  if (name !== undefined) await world.sql`update accounts set name = ${name} where id = ${accountId}`;
  if (email !== undefined) await world.sql`update accounts set email = ${email} where id = ${accountId}`;
  await world.tell({ kind: "domain_lost", accountId, data: { host } });
  const before = box.mails.length;
  await world.start().run();
  expect(box.mails).toHaveLength(before + 1);
  return box.mails[before] as ReceivedMail;
}
const headOf = ({ raw }: ReceivedMail) => raw.slice(0, raw.indexOf("\r\n\r\n"));
const recipients = ({ to }: ReceivedMail) => [to ?? []].flat().flatMap(({ value }) => value);

for (const [what, name] of [
  ["quotes", 'Ann "the Boss" Lee'],
  ["a comma and an address", "Lee, Ann <victim@example.com>"],
  ["brackets and a backslash", "Ann (Lee) [x] \\ ;:@"],
  ["another script", "Łukasz Ångström 李小龍 Ελένη"],
  ["emoji", "👩‍👩‍👧 Family"],
  ["what looks encoded", "=?utf-8?Q?Bcc:_victim@example.com?="],
  ["a hundred characters", "x".repeat(100)],
  ["a hundred wide characters", "李".repeat(100)],
] as const) {
  test(`a name with ${what} stays the name of one recipient`, async () => {
    const mail = await mailTo({ name });
    expect(recipients(mail)).toHaveLength(1);
    expect(recipients(mail)[0]).toMatchObject({ address: mail.envelopeTo[0] as string });
    // A reader decodes what looks encoded; it must not become more than a name.
    if (!name.startsWith("=?")) expect(recipients(mail)[0]?.name).toBe(name);
    expect(mail.envelopeTo).toHaveLength(1);
    expect([mail.cc, mail.bcc]).toEqual([undefined, undefined]);
    for (const line of headOf(mail).split("\r\n")) {
      expect(line.length).toBeLessThanOrEqual(LINE_CHARS_MAX);
      expect(line).toMatch(/^([!-9;-~]+:|\s)/);
    }
  });
}

test("line breaks of any kind, NUL and direction marks are removed from a name", async () => {
  for (const sign of ["\r\n", "\n", "\r", "\u0085", "\u2028", "\u2029", "\v", "\f", "\u202e"]) {
    const mail = await mailTo({ name: `Ann${sign}Bcc: victim@example.com` });
    expect(recipients(mail)).toMatchObject([{ name: "Ann Bcc: victim@example.com" }]);
    expect(headOf(mail)).not.toMatch(/^bcc:/im);
  }
});

test("a subject of 500 characters, wide ones included, arrives complete, and its lines stay within the limit", async () => {
  for (const host of [`${"long".repeat(120)}.example`, `${"李".repeat(300)}.example`]) {
    const mail = await mailTo({ host });
    expect(mail.subject).toBe(`${host} is off`);
    for (const line of headOf(mail).split("\r\n")) expect(line.length).toBeLessThanOrEqual(LINE_CHARS_MAX);
  }
});

test("a mail to an address with characters beyond ASCII reaches that address and no other", async () => {
  const mail = await mailTo({ email: "jörg@bücher.example" });
  expect(mail.envelopeTo).toEqual(["jörg@bücher.example"]);
  expect(recipients(mail)).toHaveLength(1);
});

test("an address that a server would read as two addresses or as a command is refused for good, before anything is sent", async () => {
  for (const email of ["a@b.example\r\nRCPT TO:<victim@example.com>", "<victim@example.com>", "a b@c.example", "x"]) {
    const { accountId } = await world.addReseller();
    await world.sql`update accounts set email = ${email} where id = ${accountId}`;
    await world.tell({ kind: "domain_lost", accountId, data: { host: "lost.example" } });
    await world.start().run();
    const [row] = await world.sql`select status, error from outbox_deliveries where account_id = ${accountId}`;
    expect(row).toMatchObject({ status: "failed", error: "This address cannot be mailed." });
  }
  expect(box.to("victim@example.com")).toHaveLength(0);
});

test("each mail that can be switched off has both unsubscribe headers and a link; no other mail has any of them", async () => {
  const admin = await world.addAdmin();
  const reseller = await world.addReseller();
  const secretKey = world.deps.config.secretKey;
  const data = {
    urlCiphertext: encrypt(secretKey, "https://panel.tollgate.example/reset/x").toString("base64"),
    expiresAt: "2099-01-01T00:00:00Z",
  };
  for (const kind of MESSAGE_KINDS) {
    box.mails.length = 0;
    await world.tell({
      kind: kind as "invitation",
      // The operator writes to addresses without an account.
      accountId: MAILED_TO_ADDRESS.includes(kind) ? 0 : reseller.accountId,
      data: {
        ...(LINK_KINDS.includes(kind) ? data : {}),
        ...(MAILED_TO_ADDRESS.includes(kind) && { address: "new@example.com" }),
      },
    });
    await world.start().run();
    const [mail] = box.mails;
    if (!mail) throw new Error(`no mail of ${kind}`);
    const head = headOf(mail).replaceAll(/\r\n[ \t]+/g, " ");
    const [, url] = /^List-Unsubscribe: <([^>\s]+)>$/im.exec(head) ?? [];
    const post = /^List-Unsubscribe-Post: List-Unsubscribe=One-Click$/im.test(head);
    const isOptional = OPTIONAL_KINDS.some((one: MessageKind) => one === kind);
    expect([kind, url !== undefined, post, /unsubscribe/i.test(mail.text ?? "")]).toEqual([
      kind,
      isOptional,
      isOptional,
      isOptional,
    ]);
    if (url === undefined) continue;
    expect(url).toStartWith("https://panel.tollgate.example/unsubscribe/");
    const { accountId, ...rest } = readUnsubscribeToken(secretKey, url.split("/").at(-1) ?? "") ?? {};
    const told = MAILED_TO_SELLER.includes(kind) ? admin : reseller;
    expect([accountId, rest]).toEqual([told.accountId, { kind }]);
    expect(mail.text).toContain(url);
    expect(String(mail.html)).toContain(`href="${url}"`);
  }
});

test("mails about orders name the buyer, what was ordered, and what was refunded", async () => {
  await world.addAdmin();
  const customer = await world.addReseller();
  const order = {
    ...{ orderId: 7, sellerId: 0, reference: "T-7QK2", customerName: "Ann Lee", offeringName: "Starter" },
    ...{
      amountNanoUsd: null,
      priceNanoUsd: "19000000000",
      orderCurrency: "usd",
      taxNano: "0",
      totalNano: "19000000000",
    },
  };
  const { accountId } = customer;
  const subjectOf = async (address?: string) => {
    await world.start().run();
    return (address === undefined ? box.mails : box.to(address)).at(-1)?.subject;
  };
  await world.tell({ kind: "order_placed", accountId, data: { ...order, note: "Soon, please" } });
  expect(await subjectOf()).toBe("New order from Ann Lee: Starter");
  expect(box.mails.at(-1)?.text).toContain("Note: Soon, please");
  await world.tell({ kind: "payment_received", accountId, data: order });
  expect(await subjectOf()).toBe("Payment received from Ann Lee: Starter");
  expect(box.mails.at(-1)?.text).toContain("fulfilled automatically");
  await world.tell({ kind: "order_waits", accountId, data: { ...order, waitsFor: "seller_balance" } });
  expect(await subjectOf()).toBe("A paid order waits for you: Starter");
  expect(box.mails.at(-1)?.text).toContain("does not cover the wholesale price");
  await world.tell({ kind: "order_paid", accountId, data: { ...order, invoiceNumber: 12 } });
  expect(await subjectOf(await world.emailOf(customer))).toBe("Payment received: Starter");
  expect(box.mails.at(-1)?.text).toContain("Invoice: 12");
  const refund = { ...order, refundId: 1, reason: "Doubled", invoiceNumber: 13 };
  await world.tell({ kind: "refund_made", accountId, data: { ...refund, refundNano: "5500000000", currency: "usd" } });
  expect(await subjectOf()).toBe("Refund of $5.50");
  await world.tell({ kind: "refund_made", accountId, data: { ...refund, refundNano: "5500000000", currency: "eur" } });
  expect(await subjectOf()).toBe("Refund of €5.50");
  expect(box.mails.at(-1)?.text).toContain("Credit note: 13");
});
