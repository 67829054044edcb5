import type { BodyCase } from "../http/body_cases.ts";

/**
 * Bad input of sales and payments. `bad_input.test.ts` sends each case, and `bun scripts/bad_input_table.ts` writes docs/bad-input.md
 * from them.
 */

/** Bodies of the panel: 422 `validation_failed` unless another code is given. */
const panel = (what: string, body: unknown, param: string, code = "validation_failed"): BodyCase => [
  what,
  body,
  param,
  code,
];

const topUp = (amountNanoUsd: unknown) => ({ kind: "top_up", amountNanoUsd });

/** `POST /api/panel/orders`. Source: BUY-1. */
export const BAD_TOP_UPS: readonly BodyCase[] = [
  panel("zero", topUp("0"), "amountNanoUsd"),
  panel("below zero", topUp("-5000000000"), "amountNanoUsd"),
  panel("above $9,000,000", topUp("9000000000000001"), "amountNanoUsd"),
  panel("a part of a cent", topUp("20005000000"), "amountNanoUsd"),
  panel("beyond 64 bits", topUp("99999999999999999999"), "amountNanoUsd"),
  panel("a fraction of a nano-USD", topUp("1.5"), "amountNanoUsd"),
  panel("an exponent", topUp("1e9"), "amountNanoUsd"),
  panel("nothing", topUp(""), "amountNanoUsd"),
  panel("a number", topUp(5), "amountNanoUsd"),
];

/** `POST /api/panel/orders` of a made-to-measure package, with 1 to 30 days and 10 to 5,000 requests a day: what differs. Source: MTM-2. */
export const BAD_SIZES: readonly BodyCase[] = [
  panel("0 days", { days: 0 }, "days"),
  panel("31 days", { days: 31 }, "days"),
  panel("2.5 days", { days: 2.5 }, "days"),
  panel("days as text", { days: "7" }, "days"),
  panel("no days", { days: null }, "days"),
  panel("too few requests a day", { dailyLimit: 9 }, "dailyLimit"),
  panel("too many requests a day", { dailyLimit: 5_001 }, "dailyLimit"),
  panel("below zero", { dailyLimit: -500 }, "dailyLimit"),
  panel("a part of a request", { dailyLimit: 500.5 }, "dailyLimit"),
  panel("more than a number can say exactly", { dailyLimit: 2 ** 60 }, "dailyLimit"),
  panel("another price", { priceNano: "10000000" }, "priceNano"),
  panel("a price of 0", { priceNano: "0" }, "priceNano"),
  panel("a price beyond 64 bits", { priceNano: "99999999999999999999" }, "priceNano"),
];

const SIGN_UP_HOST = "panel.tollgate.test";
/** A proof of work that is never looked at, or is wrong. */
export const WRONG_PROOF = {
  challenge: { parameters: { data: { host: SIGN_UP_HOST, endsUnixMs: 4e12 } }, signature: "00" },
  solution: { counter: 1, derivedKey: "00" },
};

/** `POST /api/panel/sign-up`: what differs from a form that is filled in right. The last ones are of domains. Source: SUP-3, SUP-5, SUP-8. */
export const BAD_SIGN_UPS: readonly BodyCase[] = [
  panel("no address", { email: "no address" }, "email"),
  panel("a second line in the address", { email: "a@b.example\r\nBcc: c@d.example" }, "email"),
  panel("a long address", { email: "x".repeat(255) }, "email"),
  panel("an address in a list", { email: ["a@b.example"] }, "email"),
  panel("no name", { name: "  " }, "name"),
  panel("a long name", { name: "x".repeat(101) }, "name"),
  panel("a name of two lines", { name: "two\nlines" }, "name"),
  panel("the terms are not accepted", { accepted: false }, "accepted"),
  panel("a role", { role: "admin" }, "role"),
  panel("no proof of work", { proof: {} }, "proof.challenge"),
  panel("a proof of work that is not ours", { proof: WRONG_PROOF }, "proof"),
  panel("a disposable address", { email: "a@mailinator.com" }, "email"),
  panel("an address below a disposable domain", { email: "a@x.mailinator.com" }, "email"),
  panel("a domain without a dot", { email: "a@localhost" }, "email"),
  panel("an IP address", { email: "a@127.0.0.1" }, "email"),
  panel("a forbidden domain", { email: "a@rivals.example" }, "email"),
  panel("below a forbidden domain", { email: "a@mail.RIVALS.example" }, "email"),
  panel("a forbidden domain with other letters", { email: "a@bücher.example" }, "email"),
];

/** `POST /api/panel/payments/{id}/refunds`, of a payment of $10.00 by Stripe. Source: BUY-6. */
export const BAD_REFUNDS: readonly BodyCase[] = [
  panel("larger than the payment", { amountNano: "10010000000" }, "amountNano"),
  panel("zero", { amountNano: "0" }, "amountNano"),
  panel("below zero", { amountNano: "-1000000000" }, "amountNano"),
  panel("a part of a cent", { amountNano: "1000000001" }, "amountNano"),
  panel("beyond 64 bits", { amountNano: "99999999999999999999" }, "amountNano"),
  panel("a number", { amountNano: 1 }, "amountNano"),
  panel("a reason of two lines", { amountNano: "1000000000", reason: "one\r\ntwo" }, "reason"),
];

/** Other accounts that may try to refund it. The payment does not exist for them. */
export const STRANGERS = ["another seller", "the customer who paid"] as const;

/** Invalid signatures of Stripe's webhooks: 400 `invalid_request`, `stripe-signature`. Source: BUY-2. */
export const BAD_STRIPE_SIGNATURES = [
  "signed with another secret",
  "signed 310 s ago",
  "a body changed after signing",
  "a byte more than was signed",
  "signed for another seller",
  "no signature",
] as const;

/** Signed reports of payments that pay for nothing. The payment is kept, and should be refunded. Source: BUY-3. */
export const KEPT: readonly [what: string, change: Record<string, unknown>, problem: string][] = [
  ["a cent too little", { amount_total: 999 }, "wrong_amount"],
  ["a cent too much", { amount_total: 1001 }, "wrong_amount"],
  ["nothing", { amount_total: 0, payment_status: "no_payment_required" }, "wrong_amount"],
  ["a hundred times the largest price", { amount_total: 90_000_000_000 }, "wrong_amount"],
  ["another currency", { currency: "eur" }, "wrong_currency"],
];

/** Signed webhooks of Stripe that are accepted and change nothing: they may concern other business of the seller. */
export const IGNORED: readonly [what: string, change: Record<string, unknown>][] = [
  ["another seller's order", {}],
  ["an unknown order", { metadata: { order: "000000000000" } }],
  ["no order", { metadata: {} }],
  ["SQL as the order", { metadata: { order: "'; drop table orders" } }],
  ["a page that is not paid yet", { payment_status: "unpaid" }],
];

/** `POST /api/pay/shop/{seller}`: invalid signatures: 400 `invalid_request`, `webhook-signature`. Source: BUY-2. */
export const BAD_SHOP_SIGNATURES = [
  "signed with another secret",
  "signed 310 s ago",
  "signed 301 s ahead",
  "a body changed after signing",
  "signed by another seller",
] as const;

const shop = (what: string, change: Record<string, unknown>, param: string, code = "invalid_request"): BodyCase => [
  what,
  change,
  param,
  code,
];

/** Fields of a shop's webhook with a valid signature. */
export const BAD_SHOP_FIELDS: readonly BodyCase[] = [
  shop("below zero", { amount: "-10.00" }, "amount"),
  shop("a part of a cent", { amount: "10.001" }, "amount"),
  shop("an exponent", { amount: "1e2" }, "amount"),
  shop("hexadecimal", { amount: "0x10" }, "amount"),
  shop("no amount", { amount: "" }, "amount"),
  shop("beyond any price", { amount: "99999999999" }, "amount"),
  shop("a number", { amount: 10 }, "amount"),
  shop("not a currency code", { currency: "dollars" }, "currency"),
  shop("a control character", { payment_id: "a\u0000b" }, "payment_id"),
  shop("a line break", { payment_id: "a\r\nX-Header: b" }, "payment_id"),
  shop("an unknown order", { order: "000000000000" }, "order", "not_found"),
];

/** Accepted spellings of a valid code. Source: VOU-2. */
export const SPELLINGS: readonly [what: string, typed: (code: string) => string][] = [
  ["as it was issued", (code) => code],
  ["small letters", (code) => code.toLowerCase()],
  ["without hyphens", (code) => code.replaceAll("-", "")],
  ["spaces around and inside", (code) => `  ${code.replaceAll("-", " ")}\n`],
  ["dashes of a word processor", (code) => code.replaceAll("-", "–")],
  ["the letters l and o for the digits 1 and 0", (code) => code.replaceAll("1", "l").replaceAll("0", "o")],
];

/** Invalid codes: 422 `validation_failed`, `code`. The example has the form of a valid one. Source: VOU-5, VOU-6. */
export const WRONG_CODES: readonly [what: string, code: string][] = [
  ["nothing", ""],
  ["a code that does not exist", "0000-0000-0000-0000-0000"],
  ["a character less", "0000-0000-0000-0000-000"],
  ["a character more", "0000-0000-0000-0000-00000"],
  ["a letter that no code has", "UUUU-UUUU-UUUU-UUUU-UUUU"],
  ["10,000 letters", "x".repeat(10_000)],
  ["a NUL", "\0"],
  ["SQL", "' or 1=1 --"],
];
/** Wrong codes in 15 minutes, from one account or address, after which a valid code is refused too. */
export const GUESSES_MAX = 10;

/** `POST /api/panel/webhooks`: private and invalid addresses. Source: MSG-9. */
export const BAD_WEBHOOK_URLS: readonly string[] = [
  "https://127.0.0.1/",
  "https://10.0.0.1/",
  "https://169.254.169.254/latest",
  "https://localhost/",
  "https://[::1]/",
  "https://0x7f.1/",
  "https://a:b@example.com/",
  "http://93.184.216.34/",
  "ftp://example.com/",
  "nonsense",
];

const EVIL = "Eve\r\nBcc: victim@example.com";

/** Text that becomes part of a mail's header or of an invoice, by path. Source: MSG-7, INV-4. */
export const INJECTIONS: readonly [what: string, path: string, body: Record<string, unknown>, param: string][] = [
  [
    "a header in the sender's name",
    "/mail-server",
    { host: "93.184.216.34", port: 587, userName: null, fromAddress: "shop@example.com", fromName: EVIL },
    "fromName",
  ],
  [
    "two addresses as the sender",
    "/mail-server",
    { host: "93.184.216.34", port: 587, userName: null, fromAddress: "a@b.example, c@d.example", fromName: "Shop" },
    "fromAddress",
  ],
  [
    "a header in the name on invoices",
    "/settings/invoices",
    { name: EVIL, address: null, taxNumber: null, vatNumber: null },
    "name",
  ],
  [
    "characters that reverse the text direction",
    "/settings/invoices",
    { name: "Eve\u202e", address: null, taxNumber: null, vatNumber: null },
    "name",
  ],
  ["a shop's address without TLS", "/payment-settings/shop", { shopUrl: "http://shop.example" }, "shopUrl"],
  ["a script as a shop's address", "/payment-settings/shop", { shopUrl: "javascript:alert(1)" }, "shopUrl"],
  ["a password in a shop's address", "/payment-settings/shop", { shopUrl: "https://u:p@shop.example" }, "shopUrl"],
];
