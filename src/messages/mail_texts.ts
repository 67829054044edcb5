import type { Role } from "../accounts/roles.ts";
import type { MessageData, MessageKind } from "../platform/outbox_store.ts";
import { digested } from "./digest_words.ts";
import { count, day, moment, money, oneLine, text, usd } from "./mail_values.ts";

/**
 * The texts of mails: one function per kind. Pure. All values are plain text: `mail_html.ts` escapes them. Source:
 * MSG-5.
 */

/** The content of a mail, before it is rendered in a brand. */
export type MailText = {
  subject: string;
  title: string;
  paragraphs: string[];
  facts: [name: string, value: string][];
  button: { label: string; url: string } | null;
  /** The last line: why the reader gets this mail. */
  why: string;
  /** The page that switches off mails of this kind; null: it cannot be switched off. */
  unsubscribe: string | null;
};

/** The facts for a text. A message that an older release has written may lack values. */
export type MailFacts<Kind extends MessageKind = MessageKind> = {
  data: Readonly<Partial<MessageData[Kind]>>;
  /** The seller's name. */
  brand: string;
  /** The panel's address; null: the reader has no domain to sign in on. */
  site: string | null;
  /** The link of a security kind, decrypted; null for other kinds. */
  link: string | null;
  /** The page that switches off mails of this kind. */
  unsubscribe: string | null;
  /** Of the reader. */
  role: Role;
};

/** The text of a message. */
export function mailText<Kind extends MessageKind>(kind: Kind, facts: MailFacts<Kind>): MailText {
  const { subject, paragraphs, facts: listed = [], button = null, why, ...rest } = TEXTS[kind](facts);
  return {
    subject: oneLine(subject),
    title: oneLine(rest.title ?? subject),
    paragraphs: paragraphs.filter(isText),
    facts: listed.flatMap(([name, value]): [string, string][] => (value === null ? [] : [[name, value]])),
    button,
    unsubscribe: facts.unsubscribe,
    why:
      why ?? `You get this mail because you have an account at ${facts.brand}. You can choose your mails in Settings.`,
  };
}

type Draft = {
  subject: string;
  /** Default: the subject. */
  title?: string;
  paragraphs: (string | null)[];
  facts?: [name: string, value: string | null][];
  button?: MailText["button"];
  why?: string;
};

const TEXTS: { readonly [Kind in MessageKind]: (facts: MailFacts<Kind>) => Draft } = {
  invitation: (facts) => ({
    subject: `Your invitation to ${facts.brand}`,
    paragraphs: [
      `${facts.brand} has made an account for you. Choose a password to begin.`,
      validUntil(facts, "The link works once"),
    ],
    button: linked(facts, "Choose a password"),
    why: `You get this mail because ${facts.brand} invited this address. If you did not expect it, you do not have to do anything.`,
  }),
  password_reset: (facts) => ({
    subject: `Set a new password for ${facts.brand}`,
    paragraphs: [
      `Someone asked for a new password for your account at ${facts.brand}.`,
      validUntil(facts, "The link works once"),
      "If you did not ask for it, you do not have to do anything: your password stays as it is.",
    ],
    button: linked(facts, "Set a new password"),
    why: `You get this mail because this address belongs to an account at ${facts.brand}.`,
  }),
  email_change: (facts) => {
    const isNew = text(facts, "to") === "new";
    const address = text(facts, "address") ?? "a new address";
    return {
      subject: `Confirm the new e-mail address of your account at ${facts.brand}`,
      paragraphs: [
        isNew
          ? `Someone wants to sign in to ${facts.brand} with this address, ${address}. If it is you, confirm it.`
          : `The e-mail address of your account at ${facts.brand} is about to change to ${address}. It changes once you have confirmed it here and at the new address.`,
        validUntil(facts, "The link works once"),
        isNew
          ? "If it is not you, you do not have to do anything."
          : "If you did not ask for this, do not confirm it, and change your password.",
      ],
      button: linked(facts, "Confirm"),
      why: isNew
        ? `You get this mail because someone entered this address at ${facts.brand}.`
        : `You get this mail because this address belongs to an account at ${facts.brand}.`,
    };
  },
  sign_up: (facts) => ({
    subject: `Confirm your address for ${facts.brand}`,
    paragraphs: [
      `Someone wants to sign up at ${facts.brand} with this address${inBrackets(text(facts, "address"))}. If it was you, choose a password. Then your account is ready.`,
      validUntil(facts, "The link works once"),
      "If it was not you, you do not have to do anything: without the link there is no account.",
    ],
    button: linked(facts, "Choose a password"),
    why: `You get this mail because someone entered this address at ${facts.brand}.`,
  }),
  // Without the account's name: it is free text, with which somebody could advertise to any address.
  member_invitation: (facts) => ({
    subject: `Your invitation to an account at ${facts.brand}`,
    paragraphs: [
      `Someone invited this address${inBrackets(text(facts, "address"))} to work in their account at ${facts.brand}. The link shows which account it is, and what you may do there.`,
      validUntil(facts, "The link works once"),
      "If you did not expect it, you do not have to do anything: without the link you join no account.",
    ],
    button: linked(facts, "See the invitation"),
    why: `You get this mail because a member of an account at ${facts.brand} entered this address.`,
  }),
  sign_up_known: (facts) => ({
    subject: `You already have an account at ${facts.brand}`,
    paragraphs: [
      `Someone wanted to sign up at ${facts.brand} with this address, which has an account already. Sign in with it.`,
      facts.site && `Forgot your password? Set a new one at ${facts.site}/forgot.`,
      "If it was not you, you do not have to do anything: nothing has changed.",
    ],
    button: page(facts, "/sign-in", "Sign in"),
    why: `You get this mail because this address belongs to an account at ${facts.brand}.`,
  }),
  password_changed: (facts) => ({
    subject: `Your password at ${facts.brand} was changed`,
    paragraphs: ["The password of your account was changed. All other devices were signed out.", notYou(facts)],
    button: page(facts, "/forgot", "Set a new password"),
    why: security(facts),
  }),
  second_factor_off: (facts) => ({
    subject: `Two-step sign-in at ${facts.brand} was switched off`,
    paragraphs: ["Your password alone signs in now, without a code. All other devices were signed out.", notYou(facts)],
    button: page(facts, "/settings?tab=sign-in", "Open settings"),
    why: security(facts),
  }),
  passkey_added: (facts) => ({
    subject: `A passkey was added to your account at ${facts.brand}`,
    paragraphs: ["It signs in without the password and a code.", notYou(facts)],
    facts: [
      ["Passkey", text(facts, "name")],
      ["Signs in on", text(facts, "host")],
    ],
    button: page(facts, "/settings?tab=sign-in", "Open settings"),
    why: security(facts),
  }),
  passkey_removed: (facts) => {
    const names = Array.isArray(facts.data.names) ? facts.data.names.map((one) => oneLine(String(one))) : [];
    const many = names.length > 1;
    return {
      subject: `${many ? "Passkeys were" : "A passkey was"} removed from your account at ${facts.brand}`,
      paragraphs: [
        `${many ? "They no longer sign" : "It no longer signs"} in. All other devices were signed out.`,
        notYou(facts),
      ],
      facts: names.map((one): [string, string] => ["Passkey", one]),
      button: page(facts, "/settings?tab=sign-in", "Open settings"),
      why: security(facts),
    };
  },
  identity_linked: (facts) => ({
    subject: `A sign-in was linked to your account at ${facts.brand}`,
    paragraphs: ["Who signs in there now signs in here, without the password and a code.", notYou(facts)],
    facts: [
      ["Identity provider", text(facts, "provider")],
      ["Address there", text(facts, "email")],
    ],
    button: page(facts, "/settings?tab=sign-in", "Open settings"),
    why: security(facts),
  }),
  identity_unlinked: (facts) => ({
    subject: `A sign-in was unlinked from your account at ${facts.brand}`,
    paragraphs: ["It no longer signs in here. All other devices were signed out.", notYou(facts)],
    facts: [
      ["Identity provider", text(facts, "provider")],
      ["Address there", text(facts, "email")],
    ],
    button: page(facts, "/settings?tab=sign-in", "Open settings"),
    why: security(facts),
  }),
  balance_low: (facts) => ({
    subject: `${usd(facts, "freeNanoUsd") ?? "Little"} of your balance is left`,
    paragraphs: ["Requests that your balance pays for are refused when it is used up."],
    facts: [
      ["Available", usd(facts, "freeNanoUsd")],
      ["Your notice is set to", usd(facts, "belowNanoUsd")],
    ],
    button: page(facts, "/billing", "Open billing"),
  }),
  package_80_percent: (facts) => ({
    subject: `${count(facts, "left") ?? "Few"} requests are left of ${name(facts)}`,
    paragraphs: ["Requests that the package pays for are refused when it is used up. Your keys stay."],
    facts: [
      ["Package", name(facts)],
      ["Requests left", ofTotal(facts)],
      ["Last day", day(facts, text(facts, "endsAt"))],
    ],
    button: page(facts, "/billing", "Open billing"),
  }),
  package_used_up: (facts) => ({
    subject: `${name(facts)} is used up`,
    paragraphs: [
      "All requests of the package are used. Further requests that it would pay for are refused.",
      "Your keys stay and work again with a new package.",
    ],
    facts: [
      ["Package", name(facts)],
      ["Requests", count(facts, "totalLimit")],
    ],
    button: page(facts, "/billing", "Open billing"),
  }),
  package_ending: (facts) => ({
    subject: `${name(facts)} ends on ${day(facts, text(facts, "endsAt")) ?? "its last day"}`,
    paragraphs: [
      isText(text(facts, "nextName"))
        ? `${text(facts, "nextName")} follows.`
        : "No package follows it. Your keys stay and work again with a new package.",
    ],
    facts: [
      ["Package", name(facts)],
      ["Ends", moment(facts, text(facts, "endsAt"))],
      ["Requests left", ofTotal(facts)],
    ],
    button: page(facts, "/billing", "Open billing"),
  }),
  renewal_upcoming: (facts) => {
    const price = money(facts.data.totalNano, text(facts, "currency"));
    return {
      subject: `${name(facts)} renews on ${day(facts, text(facts, "renewsAt")) ?? "its last day"}`,
      paragraphs: [
        price === null
          ? "It is not on sale at the moment. If that stays so, the package ends and is not renewed."
          : `It is paid automatically from ${sourceOf(facts)}. You never pay more than ${price} without being told first.`,
        "You can cancel the renewal under Billing.",
      ],
      facts: [
        ["Package", name(facts)],
        ["Price", price],
        ["Renews", moment(facts, text(facts, "renewsAt"))],
        ["Ends otherwise", moment(facts, text(facts, "endsAt"))],
      ],
      button: page(facts, "/billing", "Open billing"),
    };
  },
  renewal_failed: (facts) => {
    const retries = moment(facts, text(facts, "retriesAt"));
    return {
      subject: `${name(facts)} could not be renewed`,
      paragraphs: [
        PROBLEMS[text(facts, "problem") ?? ""] ?? "The renewal did not work.",
        retries === null
          ? "It is not tried again. The package ends as if it did not renew. Your keys stay and work again with a new package."
          : "It is tried again automatically. Nothing was charged.",
      ],
      facts: [
        ["Package", name(facts)],
        ["Paid from", sourceOf(facts)],
        ["Next try", retries],
        ["Ends", moment(facts, text(facts, "endsAt"))],
      ],
      button: page(facts, "/billing", "Open billing"),
    };
  },
  payment_needs_you: (facts) => ({
    subject: `Your bank wants you to confirm a payment: ${wish(facts)}`,
    paragraphs: [
      "Your card was to be charged automatically, and your bank asks for you. Nothing was charged. Open the order, and pay for it there.",
    ],
    facts: order(facts),
    button: orderPage(facts),
  }),
  auto_top_up_failed: (facts) => ({
    subject: "Your balance could not be topped up automatically",
    paragraphs: [
      PROBLEMS[text(facts, "problem") ?? ""] ?? "The top-up did not work.",
      "Automatic top-ups are paused. Switch them on again under Billing.",
    ],
    facts: [["Amount", usd(facts, "amountNanoUsd")]],
    button: page(facts, "/billing", "Open billing"),
  }),
  auto_top_up_capped: (facts) => ({
    subject: "Your balance is low, and this month's limit of automatic top-ups is reached",
    paragraphs: [
      "Nothing further is charged this month. You can raise the limit, or top up the balance yourself, under Billing.",
    ],
    facts: [
      ["One top-up", usd(facts, "amountNanoUsd")],
      ["Charged this month", usd(facts, "monthNanoUsd")],
      ["At most in a month", usd(facts, "monthMaxNanoUsd")],
    ],
    button: page(facts, "/billing", "Open billing"),
  }),
  package_assigned: (facts) => ({
    subject: `${name(facts)} is yours`,
    paragraphs: ["You have a new package."],
    facts: [
      ["Package", name(facts)],
      ["Requests", count(facts, "totalLimit")],
      ["Requests a day", count(facts, "dailyLimit")],
      ["Starts", moment(facts, text(facts, "startsAt"))],
      ["Ends", moment(facts, text(facts, "endsAt"))],
    ],
    button: page(facts, "/billing", "Open billing"),
  }),
  customer_signed_up: (facts) => ({
    subject: `New customer${inBrackets(text(facts, "name"))}`,
    paragraphs: ["A person has signed up with you, and has confirmed the e-mail address."],
    facts: [
      ["Name", text(facts, "name")],
      ["E-mail", text(facts, "email")],
      ["Trial", TRIALS[facts.data.trial ?? "none"] ?? "none"],
    ],
    button: page(facts, facts.role === "admin" ? "/admin/sign-up" : "/sign-up-settings", "Open sign-up"),
  }),
  order_placed: (facts) => ({
    subject: `New order${by(facts)}: ${wish(facts)}`,
    paragraphs: [
      total(facts) === null
        ? "It has no price: fulfil it or decline it."
        : "If it is paid by card or in your shop, it is fulfilled automatically. If the money arrives in another way, mark it as paid and fulfil it.",
    ],
    facts: [["Customer", text(facts, "customerName")], ...order(facts), ["Note", text(facts, "note")]],
    button: page(facts, facts.role === "admin" ? "/admin/orders" : "/customers", "Open orders"),
  }),
  payment_received: (facts) => ({
    subject: `Payment received${by(facts)}: ${wish(facts)}`,
    paragraphs: [
      "The money has arrived by card or through your shop. The order is fulfilled automatically. If it cannot be, another mail says why.",
    ],
    facts: [["Customer", text(facts, "customerName")], ...order(facts)],
    button: page(facts, paymentsPath(facts), "Open payments"),
  }),
  order_waits: (facts) => ({
    subject: `A paid order waits for you: ${wish(facts)}`,
    paragraphs:
      facts.data.waitsFor === "seller_balance"
        ? [
            "The customer has paid, but your balance does not cover the wholesale price.",
            "Top up your balance. The order is then fulfilled within minutes.",
          ]
        : ["The customer has paid, but the order could not be fulfilled. Look at it, then fulfil or refund it."],
    facts: [["Customer", text(facts, "customerName")], ...order(facts)],
    button:
      facts.data.waitsFor === "seller_balance" && facts.role === "reseller"
        ? page(facts, "/billing", "Top up the balance")
        : page(facts, facts.role === "admin" ? "/admin/orders" : "/customers", "Open orders"),
  }),
  order_paid: (facts) => ({
    subject: `Payment received: ${wish(facts)}`,
    paragraphs: ["Thank you. Your payment has arrived. Your invoice is on the page of the order."],
    facts: [...order(facts), ["Invoice", text(facts, "invoiceNumber")]],
    button: orderPage(facts),
  }),
  order_fulfilled: (facts) => ({
    subject: `Your order is complete: ${wish(facts)}`,
    paragraphs: ["What you ordered is in your account."],
    facts: [
      ...order(facts),
      ["Starts", moment(facts, text(facts, "startsAt"))],
      ["Ends", moment(facts, text(facts, "endsAt"))],
    ],
    button: orderPage(facts),
  }),
  order_declined: (facts) => ({
    subject: `Your order was declined: ${wish(facts)}`,
    paragraphs: ["Your order was not accepted.", text(facts, "answer")],
    facts: order(facts),
    button: orderPage(facts),
  }),
  payment_failed: (facts) => ({
    subject: `Your payment has failed: ${wish(facts)}`,
    paragraphs: [
      "Your bank did not pay. Nothing was charged, and the order is still open. You can pay for it again, or in another way.",
    ],
    facts: order(facts),
    button: page(facts, `/billing/orders/${text(facts, "orderId") ?? ""}`, "Pay"),
  }),
  refund_made: (facts) => ({
    subject: `Refund of ${money(facts.data.refundNano, text(facts, "currency")) ?? "a payment"}`,
    paragraphs: ["Your payment was refunded.", text(facts, "reason")],
    facts: [
      ["Refund", money(facts.data.refundNano, text(facts, "currency"))],
      ...order(facts),
      ["Credit note", text(facts, "invoiceNumber")],
    ],
    button: orderPage(facts),
  }),
  refund_shortfall: (facts) => ({
    subject: `${usd(facts, "shortfallNanoUsd") ?? "A part"} of a refund was already spent`,
    paragraphs: [
      "Stripe has refunded a top-up, and the customer had already spent a part of it. What was left was taken from the balance. The rest is missing there, and was not taken.",
    ],
    facts: [
      ["Refunded", money(facts.data.refundNano, text(facts, "orderCurrency"))],
      ["Already spent", usd(facts, "shortfallNanoUsd")],
      ...order(facts),
    ],
    button: page(facts, paymentsPath(facts), "Open payments"),
  }),
  dispute_opened: (facts) => ({
    subject: `A payment of ${disputed(facts) ?? "an order"} is disputed`,
    paragraphs: [
      "A customer disputes a payment with their bank. Answer in Stripe's dashboard: without an answer in time the money is lost.",
      "The account is not blocked. You can suspend it in the panel.",
    ],
    facts: [
      ["Disputed", disputed(facts)],
      ["Reason", words(facts.data.reason)],
      ["Answer by", moment({ data: {} }, text(facts, "dueAt")) ?? "No answer is possible"],
      ["Dispute", text(facts, "externalId")],
      ...order(facts),
    ],
    button: page(facts, paymentsPath(facts), "Open payments"),
  }),
  dispute_closed: (facts) => {
    const isLost = text(facts, "status") === "lost";
    return {
      subject: `The dispute of ${disputed(facts) ?? "a payment"} is ${isLost ? "lost" : "closed"}`,
      paragraphs: [
        isLost
          ? "The bank has returned the money to the customer. It is recorded as a refund, and what was left of a top-up was taken from the balance."
          : "No money is taken, and nothing changes.",
      ],
      facts: [
        ["Disputed", disputed(facts)],
        ["Reason", words(facts.data.reason)],
        ["Result", words(facts.data.status)],
        ["Dispute", text(facts, "externalId")],
        ...order(facts),
      ],
      button: page(facts, paymentsPath(facts), "Open payments"),
    };
  },
  notices_digest: (facts) => {
    const counted = digested(facts.data.counts ?? {});
    const only = counted.length === 1 ? counted[0] : undefined;
    const sum = counted.reduce((sum, { count }) => sum + count, 0);
    return {
      subject: `${only?.words ?? "Notices"}: ${sum.toLocaleString("en-US")} more`,
      paragraphs: [
        "Within an hour, more happened than is mailed one by one. This mail stands for the rest. All of it is in the panel.",
      ],
      facts: [
        ...counted.map(({ count, words }): [string, string] => [words, count.toLocaleString("en-US")]),
        ["Since", moment({ data: {} }, text(facts, "since"))],
      ],
      button: page(facts, only?.path[facts.role === "admin" ? "admin" : "reseller"] ?? "/", "See the panel"),
    };
  },
  domain_lost: (facts) => ({
    subject: `${text(facts, "host") ?? "A domain"} is off`,
    paragraphs: [
      "The domain is no longer served: its DNS records have been wrong for a day, or another account has proved that it owns the name.",
      "Customers cannot sign in there, and requests to it are refused, until the records are right again.",
    ],
    facts: [["Domain", text(facts, "host")]],
    button: page(facts, `/domains/${encodeURIComponent(text(facts, "host") ?? "")}`, "See what is wrong"),
  }),
  webhook_paused: (facts) => ({
    subject: "A webhook was switched off",
    paragraphs: [
      `Your endpoint has failed for ${count(facts, "days") ?? "several"} days, so it is no longer called. Repair it, then switch it on again.`,
    ],
    facts: [
      ["Endpoint", text(facts, "url")],
      ["Last answer", text(facts, "why")],
    ],
    button: page(facts, "/webhooks", "Open webhooks"),
  }),
};

/** What became of the trial of an account that signed up. */
const TRIALS: Readonly<Record<string, string>> = {
  waits: "yes",
  taken: "no: had one before",
  domain: "no: too many of its domain had one",
};

/** Why a charge or a renewal did not work, for the customer. */
const PROBLEMS: Readonly<Record<string, string>> = {
  no_card: "No card is saved. Save one under Billing.",
  card_refused: "Your bank refused the card. Save another card under Billing, or ask your bank.",
  card_expired: "Your card has expired. Save another one under Billing.",
  needs_person: "Your bank wants you to confirm the payment.",
  stripe: "The payment service could not be used.",
  not_on_sale: "The package is no longer on sale.",
  unpayable: "The amount cannot be paid in the currency of your seller. Choose another one under Billing.",
  price_changed:
    "Your seller has changed its tax or currency, and a top-up would cost more than you agreed to, or in another currency.",
  seller_suspended: "Its seller does not sell at the moment.",
  seller_balance: "Its seller cannot provide it at the moment.",
  account_suspended: "Your account is suspended.",
  balance_low: "Your balance is too low. Top it up under Billing.",
  too_late: "It could not be renewed before it ended.",
  withdrawn: "Its order was withdrawn.",
};

function sourceOf({ data }: { data: { source?: string } }): string {
  return data.source === "balance" ? "your balance" : "your card";
}

function inBrackets(value: string | null): string {
  return value === null ? "" : ` (${value})`;
}

function isText(value: string | null): value is string {
  return value !== null && value !== "";
}

type Named = { data: { name?: string } };
type Sized = { data: { left?: number; totalLimit?: number } };
type Ordered = Pick<MailFacts<"order_placed">, "data">;

function name(facts: Named): string {
  return text(facts, "name") ?? "Your package";
}

function ofTotal(facts: Sized): string | null {
  const [left, total] = [count(facts, "left"), count(facts, "totalLimit")];
  return left === null ? null : total === null ? left : `${left} of ${total}`;
}

function disputed(facts: Pick<MailFacts<"dispute_opened">, "data">): string | null {
  return money(facts.data.disputedNano, text(facts, "currency"));
}

/** A word of Stripe in plain text: "needs_response" as "needs response". */
function words(value: string | undefined): string | null {
  return value === undefined ? null : oneLine(value).replaceAll("_", " ");
}

/** The page of payments of a reseller and of an admin. */
function paymentsPath({ role }: Pick<MailFacts, "role">): string {
  return role === "admin" ? "/admin/payments" : "/payments";
}

/** A link has no time zone of its own, so UTC is used. */
function validUntil({ data }: MailFacts<"invitation">, what: string): string | null {
  const until = moment({ data: {} }, text({ data }, "expiresAt"));
  return until && `${what}, until ${until}.`;
}

function notYou({ brand }: { brand: string }): string {
  return `If it was not you, set a new password immediately, and tell ${brand}.`;
}

function security({ brand }: { brand: string }): string {
  return `You get this mail because this address belongs to an account at ${brand}. Mails about how you sign in are always sent.`;
}

function linked({ link }: Pick<MailFacts, "link">, label: string): MailText["button"] {
  return link === null ? null : { label, url: link };
}

function page({ site }: Pick<MailFacts, "site">, path: string, label: string): MailText["button"] {
  return site === null ? null : { label, url: `${site}${path}` };
}

/** What an order asks for. */
function wish(facts: Ordered): string {
  const top = usd(facts, "amountNanoUsd");
  return text(facts, "offeringName") ?? (top === null ? "your order" : `top-up of ${top}`);
}

function by(facts: Ordered): string {
  const customer = text(facts, "customerName");
  return customer === null ? "" : ` from ${customer}`;
}

function order(facts: Ordered): [string, string | null][] {
  return [
    ["Order", wish(facts)],
    ["Price", total(facts)],
    ["Tax in it", facts.data.taxNano === "0" ? null : money(facts.data.taxNano, text(facts, "orderCurrency"))],
    ["Reference", text(facts, "reference")],
  ];
}

/** What an order costs, with its tax; null: it has no price. */
function total(facts: Ordered): string | null {
  return money(facts.data.totalNano, text(facts, "orderCurrency"));
}

/** The page of the reader's own order. */
function orderPage(facts: Ordered & Pick<MailFacts, "site">): MailText["button"] {
  return page(facts, `/billing/orders/${text(facts, "orderId") ?? ""}`, "Open the order");
}
