import type { I18n } from "@lingui/core";
import type { Role } from "../accounts/roles.ts";
import { localesOf } from "../languages/server_texts.ts";
import type { MessageData, MessageKind } from "../platform/outbox_store.ts";
import { digested } from "./digest_words.ts";
import { count, day, moment, money, number, oneLine, text, usd } from "./mail_values.ts";

/**
 * The texts of mails: one function per kind, in the reader's language. Pure. All values are plain text: `mail_html.ts` escapes them.
 * Source: MSG-5, LNG-3.
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
  /** The texts in the language of the mail. */
  i18n: I18n;
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
  const { i18n, brand, unsubscribe } = facts;
  const { subject, paragraphs, facts: listed = [], button = null, why, ...rest } = TEXTS[kind](facts, i18n);
  return {
    subject: oneLine(subject),
    title: oneLine(rest.title ?? subject),
    paragraphs: paragraphs.filter(isText),
    facts: listed.flatMap(([name, value]): [string, string][] => (value === null ? [] : [[name, value]])),
    button,
    unsubscribe,
    why:
      why ??
      i18n.t("You get this mail because you have an account at {brand}. You can choose your mails in Settings.", {
        brand,
      }),
  };
}

/** The text of a mail that shows that the mail server works. */
export function testText(i18n: I18n, { brand, from }: { brand: string; from: string }): MailText {
  return {
    subject: i18n.t("Test mail from {brand}", { brand }),
    title: i18n.t("Mail works"),
    paragraphs: [i18n.t("This is how mails to your customers look: your name, your logo and your colour.")],
    facts: [[i18n.t("Sent by"), from]],
    button: null,
    unsubscribe: null,
    why: i18n.t("You get this mail because you asked for a test at {brand}.", { brand }),
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

const TEXTS: { readonly [Kind in MessageKind]: (facts: MailFacts<Kind>, i18n: I18n) => Draft } = {
  invitation: (facts, i18n) => ({
    subject: i18n.t("Your invitation to {brand}", { brand: facts.brand }),
    paragraphs: [
      i18n.t("{brand} has made an account for you. Choose a password to begin.", { brand: facts.brand }),
      worksOnce(facts),
    ],
    button: linked(facts, i18n.t("Choose a password")),
    why: i18n.t(
      "You get this mail because {brand} invited this address. If you did not expect it, you do not have to do anything.",
      { brand: facts.brand },
    ),
  }),
  password_reset: (facts, i18n) => ({
    subject: i18n.t("Set a new password for {brand}", { brand: facts.brand }),
    paragraphs: [
      i18n.t("Someone asked for a new password for your account at {brand}.", { brand: facts.brand }),
      worksOnce(facts),
      i18n.t("If you did not ask for it, you do not have to do anything: your password stays as it is."),
    ],
    button: linked(facts, i18n.t("Set a new password")),
    why: becauseOfAccount(facts),
  }),
  email_change: (facts, i18n) => {
    const { brand } = facts;
    const isNew = text(facts, "to") === "new";
    const address = text(facts, "address") ?? i18n.t("a new address");
    return {
      subject: i18n.t("Confirm the new e-mail address of your account at {brand}", { brand }),
      paragraphs: [
        isNew
          ? i18n.t("Someone wants to sign in to {brand} with this address, {address}. If it is you, confirm it.", {
              brand,
              address,
            })
          : i18n.t(
              "The e-mail address of your account at {brand} is about to change to {address}. It changes once you have confirmed it here and at the new address.",
              { brand, address },
            ),
        worksOnce(facts),
        isNew
          ? i18n.t("If it is not you, you do not have to do anything.")
          : i18n.t("If you did not ask for this, do not confirm it, and change your password."),
      ],
      button: linked(facts, i18n.t("Confirm")),
      why: isNew ? becauseEntered(facts) : becauseOfAccount(facts),
    };
  },
  sign_up: (facts, i18n) => {
    const { brand } = facts;
    const address = text(facts, "address");
    return {
      subject: i18n.t("Confirm your address for {brand}", { brand }),
      paragraphs: [
        address === null
          ? i18n.t(
              "Someone wants to sign up at {brand} with this address. If it was you, choose a password. Then your account is ready.",
              { brand },
            )
          : i18n.t(
              "Someone wants to sign up at {brand} with this address ({address}). If it was you, choose a password. Then your account is ready.",
              { brand, address },
            ),
        worksOnce(facts),
        i18n.t("If it was not you, you do not have to do anything: without the link there is no account."),
      ],
      button: linked(facts, i18n.t("Choose a password")),
      why: becauseEntered(facts),
    };
  },
  // Without the account's name: it is free text, with which somebody could advertise to any address.
  member_invitation: (facts, i18n) => {
    const { brand } = facts;
    const address = text(facts, "address");
    return {
      subject: i18n.t("Your invitation to an account at {brand}", { brand }),
      paragraphs: [
        address === null
          ? i18n.t(
              "Someone invited this address to work in their account at {brand}. The link shows which account it is, and what you may do there.",
              { brand },
            )
          : i18n.t(
              "Someone invited this address ({address}) to work in their account at {brand}. The link shows which account it is, and what you may do there.",
              { brand, address },
            ),
        worksOnce(facts),
        i18n.t("If you did not expect it, you do not have to do anything: without the link you join no account."),
      ],
      button: linked(facts, i18n.t("See the invitation")),
      why: i18n.t("You get this mail because a member of an account at {brand} entered this address.", { brand }),
    };
  },
  account_erased: ({ brand }, i18n) => ({
    subject: i18n.t("Your account at {brand} was erased", { brand }),
    paragraphs: [
      i18n.t(
        "Your name, your address and your sign-in are deleted. No one can sign in with them again, and it cannot be undone.",
      ),
      i18n.t(
        "Invoices are kept as they are, because the law asks for it. Orders, payments and usage are kept without your name.",
      ),
      i18n.t("This is the last mail to this address, which is not kept once the mail is sent."),
    ],
    why: i18n.t("You get this mail because this address belonged to an account at {brand}.", { brand }),
  }),
  sign_up_known: (facts, i18n) => ({
    subject: i18n.t("You already have an account at {brand}", { brand: facts.brand }),
    paragraphs: [
      i18n.t("Someone wanted to sign up at {brand} with this address, which has an account already. Sign in with it.", {
        brand: facts.brand,
      }),
      facts.site && i18n.t("Forgot your password? Set a new one at {page}.", { page: `${facts.site}/forgot` }),
      i18n.t("If it was not you, you do not have to do anything: nothing has changed."),
    ],
    button: page(facts, "/sign-in", i18n.t("Sign in")),
    why: becauseOfAccount(facts),
  }),
  password_changed: (facts, i18n) => ({
    subject: i18n.t("Your password at {brand} was changed", { brand: facts.brand }),
    paragraphs: [i18n.t("The password of your account was changed. All other devices were signed out."), notYou(facts)],
    button: page(facts, "/forgot", i18n.t("Set a new password")),
    why: security(facts),
  }),
  second_factor_off: (facts, i18n) => ({
    subject: i18n.t("Two-step sign-in at {brand} was switched off", { brand: facts.brand }),
    paragraphs: [
      i18n.t("Your password alone signs in now, without a code. All other devices were signed out."),
      notYou(facts),
    ],
    button: signInSettings(facts),
    why: security(facts),
  }),
  passkey_added: (facts, i18n) => ({
    subject: i18n.t("A passkey was added to your account at {brand}", { brand: facts.brand }),
    paragraphs: [i18n.t("It signs in without the password and a code."), notYou(facts)],
    facts: [
      [i18n.t("Passkey"), text(facts, "name")],
      [i18n.t("Signs in on"), text(facts, "host")],
    ],
    button: signInSettings(facts),
    why: security(facts),
  }),
  passkey_removed: (facts, i18n) => {
    const { brand } = facts;
    const names = Array.isArray(facts.data.names) ? facts.data.names.map((one) => oneLine(String(one))) : [];
    const many = names.length > 1;
    return {
      subject: many
        ? i18n.t("Passkeys were removed from your account at {brand}", { brand })
        : i18n.t("A passkey was removed from your account at {brand}", { brand }),
      paragraphs: [
        many
          ? i18n.t("They no longer sign in. All other devices were signed out.")
          : i18n.t("It no longer signs in. All other devices were signed out."),
        notYou(facts),
      ],
      facts: names.map((one): [string, string] => [i18n.t("Passkey"), one]),
      button: signInSettings(facts),
      why: security(facts),
    };
  },
  identity_linked: (facts, i18n) => ({
    subject: i18n.t("A sign-in was linked to your account at {brand}", { brand: facts.brand }),
    paragraphs: [i18n.t("Who signs in there now signs in here, without the password and a code."), notYou(facts)],
    facts: [
      [i18n.t("Identity provider"), text(facts, "provider")],
      [i18n.t("Address there"), text(facts, "email")],
    ],
    button: signInSettings(facts),
    why: security(facts),
  }),
  identity_unlinked: (facts, i18n) => ({
    subject: i18n.t("A sign-in was unlinked from your account at {brand}", { brand: facts.brand }),
    paragraphs: [i18n.t("It no longer signs in here. All other devices were signed out."), notYou(facts)],
    facts: [
      [i18n.t("Identity provider"), text(facts, "provider")],
      [i18n.t("Address there"), text(facts, "email")],
    ],
    button: signInSettings(facts),
    why: security(facts),
  }),
  balance_low: (facts, i18n) => {
    const amount = usd(facts, "freeNanoUsd");
    return {
      subject:
        amount === null
          ? i18n.t("Little of your balance is left")
          : i18n.t("{amount} of your balance is left", { amount }),
      paragraphs: [i18n.t("Requests that your balance pays for are refused when it is used up.")],
      facts: [
        [i18n.t("Available"), amount],
        [i18n.t("Your notice is set to"), usd(facts, "belowNanoUsd")],
      ],
      button: billing(facts),
    };
  },
  package_80_percent: (facts, i18n) => {
    const left = number(facts, "left");
    return {
      subject:
        left === null
          ? i18n.t("Few requests are left of {name}", { name: name(facts) })
          : i18n.t("{count, plural, one {# request is left of {name}} other {# requests are left of {name}}}", {
              count: left,
              name: name(facts),
            }),
      paragraphs: [i18n.t("Requests that the package pays for are refused when it is used up. Your keys stay.")],
      facts: [
        [i18n.t("Package"), name(facts)],
        [i18n.t("Requests left"), ofTotal(facts)],
        [i18n.t("Last day"), day(facts, text(facts, "endsAt"))],
      ],
      button: billing(facts),
    };
  },
  package_used_up: (facts, i18n) => ({
    subject: i18n.t("{name} is used up", { name: name(facts) }),
    paragraphs: [
      i18n.t("All requests of the package are used. Further requests that it would pay for are refused."),
      i18n.t("Your keys stay and work again with a new package."),
    ],
    facts: [
      [i18n.t("Package"), name(facts)],
      [i18n.t("Requests"), count(facts, "totalLimit")],
    ],
    button: billing(facts),
  }),
  package_ending: (facts, i18n) => {
    const lastDay = day(facts, text(facts, "endsAt"));
    const next = text(facts, "nextName");
    return {
      subject:
        lastDay === null
          ? i18n.t("{name} ends on its last day", { name: name(facts) })
          : i18n.t("{name} ends on {day}", { name: name(facts), day: lastDay }),
      paragraphs: [
        isText(next)
          ? i18n.t("{next} follows.", { next })
          : i18n.t("No package follows it. Your keys stay and work again with a new package."),
      ],
      facts: [
        [i18n.t("Package"), name(facts)],
        [i18n.t("Ends"), moment(facts, text(facts, "endsAt"))],
        [i18n.t("Requests left"), ofTotal(facts)],
      ],
      button: billing(facts),
    };
  },
  renewal_upcoming: (facts, i18n) => {
    const price = money(facts, facts.data.totalNano, text(facts, "currency"));
    const renewsOn = day(facts, text(facts, "renewsAt"));
    return {
      subject:
        renewsOn === null
          ? i18n.t("{name} renews on its last day", { name: name(facts) })
          : i18n.t("{name} renews on {day}", { name: name(facts), day: renewsOn }),
      paragraphs: [
        price === null
          ? i18n.t("It is not on sale at the moment. If that stays so, the package ends and is not renewed.")
          : facts.data.source === "balance"
            ? i18n.t(
                "It is paid automatically from your balance. You never pay more than {price} without being told first.",
                { price },
              )
            : i18n.t(
                "It is paid automatically from your card. You never pay more than {price} without being told first.",
                { price },
              ),
        i18n.t("You can cancel the renewal under Billing."),
      ],
      facts: [
        [i18n.t("Package"), name(facts)],
        [i18n.t("Price"), price],
        [i18n.t("Renews"), moment(facts, text(facts, "renewsAt"))],
        [i18n.t("Ends otherwise"), moment(facts, text(facts, "endsAt"))],
      ],
      button: billing(facts),
    };
  },
  renewal_failed: (facts, i18n) => {
    const retries = moment(facts, text(facts, "retriesAt"));
    return {
      subject: i18n.t("{name} could not be renewed", { name: name(facts) }),
      paragraphs: [
        problem(facts) ?? i18n.t("The renewal did not work."),
        retries === null
          ? i18n.t(
              "It is not tried again. The package ends as if it did not renew. Your keys stay and work again with a new package.",
            )
          : i18n.t("It is tried again automatically. Nothing was charged."),
      ],
      facts: [
        [i18n.t("Package"), name(facts)],
        [i18n.t("Paid from"), facts.data.source === "balance" ? i18n.t("your balance") : i18n.t("your card")],
        [i18n.t("Next try"), retries],
        [i18n.t("Ends"), moment(facts, text(facts, "endsAt"))],
      ],
      button: billing(facts),
    };
  },
  payment_needs_you: (facts, i18n) => ({
    subject: i18n.t("Your bank wants you to confirm a payment: {order}", { order: wish(facts) }),
    paragraphs: [
      i18n.t(
        "Your card was to be charged automatically, and your bank asks for you. Nothing was charged. Open the order, and pay for it there.",
      ),
    ],
    facts: order(facts),
    button: orderPage(facts),
  }),
  auto_top_up_failed: (facts, i18n) => ({
    subject: i18n.t("Your balance could not be topped up automatically"),
    paragraphs: [
      problem(facts) ?? i18n.t("The top-up did not work."),
      i18n.t("Automatic top-ups are paused. Switch them on again under Billing."),
    ],
    facts: [[i18n.t("Amount"), usd(facts, "amountNanoUsd")]],
    button: billing(facts),
  }),
  auto_top_up_capped: (facts, i18n) => ({
    subject: i18n.t("Your balance is low, and this month's limit of automatic top-ups is reached"),
    paragraphs: [
      i18n.t(
        "Nothing further is charged this month. You can raise the limit, or top up the balance yourself, under Billing.",
      ),
    ],
    facts: [
      [i18n.t("One top-up"), usd(facts, "amountNanoUsd")],
      [i18n.t("Charged this month"), usd(facts, "monthNanoUsd")],
      [i18n.t("At most in a month"), usd(facts, "monthMaxNanoUsd")],
    ],
    button: billing(facts),
  }),
  package_assigned: (facts, i18n) => ({
    subject: i18n.t("{name} is yours", { name: name(facts) }),
    paragraphs: [i18n.t("You have a new package.")],
    facts: [
      [i18n.t("Package"), name(facts)],
      [i18n.t("Requests"), count(facts, "totalLimit")],
      [i18n.t("Requests a day"), count(facts, "dailyLimit")],
      [i18n.t("Starts"), moment(facts, text(facts, "startsAt"))],
      [i18n.t("Ends"), moment(facts, text(facts, "endsAt"))],
    ],
    button: billing(facts),
  }),
  customer_signed_up: (facts, i18n) => {
    const customer = text(facts, "name");
    return {
      subject: customer === null ? i18n.t("New customer") : i18n.t("New customer ({customer})", { customer }),
      paragraphs: [i18n.t("A person has signed up with you, and has confirmed the e-mail address.")],
      facts: [
        [i18n.t("Name"), customer],
        [i18n.t("E-mail"), text(facts, "email")],
        [i18n.t("Trial"), i18n.t(TRIALS[facts.data.trial ?? "none"] ?? NO_TRIAL)],
      ],
      button: page(facts, facts.role === "admin" ? "/admin/sign-up" : "/sign-up-settings", i18n.t("Open sign-up")),
    };
  },
  order_placed: (facts, i18n) => {
    const customer = text(facts, "customerName");
    return {
      subject:
        customer === null
          ? i18n.t("New order: {order}", { order: wish(facts) })
          : i18n.t("New order from {customer}: {order}", { customer, order: wish(facts) }),
      paragraphs: [
        total(facts) === null
          ? i18n.t("It has no price: fulfil it or decline it.")
          : i18n.t(
              "If it is paid by card or in your shop, it is fulfilled automatically. If the money arrives in another way, mark it as paid and fulfil it.",
            ),
      ],
      facts: [...orderOfCustomer(facts), [i18n.t("Note"), text(facts, "note")]],
      button: orders(facts),
    };
  },
  payment_received: (facts, i18n) => {
    const customer = text(facts, "customerName");
    return {
      subject:
        customer === null
          ? i18n.t("Payment received: {order}", { order: wish(facts) })
          : i18n.t("Payment received from {customer}: {order}", { customer, order: wish(facts) }),
      paragraphs: [
        i18n.t(
          "The money has arrived by card or through your shop. The order is fulfilled automatically. If it cannot be, another mail says why.",
        ),
      ],
      facts: orderOfCustomer(facts),
      button: payments(facts),
    };
  },
  order_waits: (facts, i18n) => ({
    subject: i18n.t("A paid order waits for you: {order}", { order: wish(facts) }),
    paragraphs:
      facts.data.waitsFor === "seller_balance"
        ? [
            i18n.t("The customer has paid, but your balance does not cover the wholesale price."),
            i18n.t("Top up your balance. The order is then fulfilled within minutes."),
          ]
        : [
            i18n.t(
              "The customer has paid, but the order could not be fulfilled. Look at it, then fulfil or refund it.",
            ),
          ],
    facts: orderOfCustomer(facts),
    button:
      facts.data.waitsFor === "seller_balance" && facts.role === "reseller"
        ? page(facts, "/billing", i18n.t("Top up the balance"))
        : orders(facts),
  }),
  order_paid: (facts, i18n) => ({
    subject: i18n.t("Payment received: {order}", { order: wish(facts) }),
    paragraphs: [i18n.t("Thank you. Your payment has arrived. Your invoice is on the page of the order.")],
    facts: [...order(facts), [i18n.t("Invoice"), text(facts, "invoiceNumber")]],
    button: orderPage(facts),
  }),
  order_fulfilled: (facts, i18n) => ({
    subject: i18n.t("Your order is complete: {order}", { order: wish(facts) }),
    paragraphs: [i18n.t("What you ordered is in your account.")],
    facts: [
      ...order(facts),
      [i18n.t("Starts"), moment(facts, text(facts, "startsAt"))],
      [i18n.t("Ends"), moment(facts, text(facts, "endsAt"))],
    ],
    button: orderPage(facts),
  }),
  order_declined: (facts, i18n) => ({
    subject: i18n.t("Your order was declined: {order}", { order: wish(facts) }),
    paragraphs: [i18n.t("Your order was not accepted."), text(facts, "answer")],
    facts: order(facts),
    button: orderPage(facts),
  }),
  payment_failed: (facts, i18n) => ({
    subject: i18n.t("Your payment has failed: {order}", { order: wish(facts) }),
    paragraphs: [
      i18n.t(
        "Your bank did not pay. Nothing was charged, and the order is still open. You can pay for it again, or in another way.",
      ),
    ],
    facts: order(facts),
    button: page(facts, `/billing/orders/${text(facts, "orderId") ?? ""}`, i18n.t("Pay")),
  }),
  refund_made: (facts, i18n) => {
    const amount = money(facts, facts.data.refundNano, text(facts, "currency"));
    return {
      subject: amount === null ? i18n.t("Refund of a payment") : i18n.t("Refund of {amount}", { amount }),
      paragraphs: [i18n.t("Your payment was refunded."), text(facts, "reason")],
      facts: [[i18n.t("Refund"), amount], ...order(facts), [i18n.t("Credit note"), text(facts, "invoiceNumber")]],
      button: orderPage(facts),
    };
  },
  refund_shortfall: (facts, i18n) => {
    const spent = usd(facts, "shortfallNanoUsd");
    return {
      subject:
        spent === null
          ? i18n.t("A part of a refund was already spent")
          : i18n.t("{amount} of a refund was already spent", { amount: spent }),
      paragraphs: [
        i18n.t(
          "Stripe has refunded a top-up, and the customer had already spent a part of it. What was left was taken from the balance. The rest is missing there, and was not taken.",
        ),
      ],
      facts: [
        [i18n.t("Refunded"), money(facts, facts.data.refundNano, text(facts, "orderCurrency"))],
        [i18n.t("Already spent"), spent],
        ...order(facts),
      ],
      button: payments(facts),
    };
  },
  dispute_opened: (facts, i18n) => {
    const amount = disputed(facts);
    return {
      subject:
        amount === null
          ? i18n.t("A payment of an order is disputed")
          : i18n.t("A payment of {amount} is disputed", { amount }),
      paragraphs: [
        i18n.t(
          "A customer disputes a payment with their bank. Answer in Stripe's dashboard: without an answer in time the money is lost.",
        ),
        i18n.t("The account is not blocked. You can suspend it in the panel."),
      ],
      facts: [
        [i18n.t("Disputed"), amount],
        [i18n.t("Reason"), ofStripe(i18n, facts.data.reason)],
        [i18n.t("Answer by"), inUtc(facts, text(facts, "dueAt")) ?? i18n.t("No answer is possible")],
        [i18n.t("Dispute"), text(facts, "externalId")],
        ...order(facts),
      ],
      button: payments(facts),
    };
  },
  dispute_closed: (facts, i18n) => {
    const amount = disputed(facts);
    const isLost = text(facts, "status") === "lost";
    const result = isLost ? "lost" : "closed";
    return {
      subject:
        amount === null
          ? i18n.t(
              "{result, select, lost {The dispute of a payment is lost} other {The dispute of a payment is closed}}",
              { result },
            )
          : i18n.t(
              "{result, select, lost {The dispute of {amount} is lost} other {The dispute of {amount} is closed}}",
              { result, amount },
            ),
      paragraphs: [
        isLost
          ? i18n.t(
              "The bank has returned the money to the customer. It is recorded as a refund, and what was left of a top-up was taken from the balance.",
            )
          : i18n.t("No money is taken, and nothing changes."),
      ],
      facts: [
        [i18n.t("Disputed"), amount],
        [i18n.t("Reason"), ofStripe(i18n, facts.data.reason)],
        [i18n.t("Result"), ofStripe(i18n, facts.data.status)],
        [i18n.t("Dispute"), text(facts, "externalId")],
        ...order(facts),
      ],
      button: payments(facts),
    };
  },
  notices_digest: (facts, i18n) => {
    const counted = digested(i18n, facts.data.counts ?? {});
    const only = counted.length === 1 ? counted[0] : undefined;
    const sum = counted.reduce((sum, { count }) => sum + count, 0);
    return {
      subject: only
        ? i18n.t("{kind}: {count, plural, one {# more} other {# more}}", { kind: only.words, count: sum })
        : i18n.t("Notices: {count, plural, one {# more} other {# more}}", { count: sum }),
      paragraphs: [
        i18n.t(
          "Within an hour, more happened than is mailed one by one. This mail stands for the rest. All of it is in the panel.",
        ),
      ],
      facts: [
        ...counted.map(({ count, words }): [string, string] => [words, count.toLocaleString(localesOf(i18n).numbers)]),
        [i18n.t("Since"), inUtc(facts, text(facts, "since"))],
      ],
      button: page(facts, only?.path[facts.role === "admin" ? "admin" : "reseller"] ?? "/", i18n.t("See the panel")),
    };
  },
  domain_lost: (facts, i18n) => {
    const host = text(facts, "host");
    return {
      subject: host === null ? i18n.t("A domain is off") : i18n.t("{host} is off", { host }),
      paragraphs: [
        i18n.t(
          "The domain is no longer served: its DNS records have been wrong for a day, or another account has proved that it owns the name.",
        ),
        i18n.t("Customers cannot sign in there, and requests to it are refused, until the records are right again."),
      ],
      facts: [[i18n.t("Domain"), host]],
      button: page(facts, `/domains/${encodeURIComponent(host ?? "")}`, i18n.t("See what is wrong")),
    };
  },
  mail_domain_lost: (facts, i18n) => {
    const domain = text(facts, "domain");
    return {
      subject:
        domain === null
          ? i18n.t("A mail domain is no longer proved")
          : i18n.t("{domain} is no longer proved", { domain }),
      paragraphs: [
        i18n.t(
          "The TXT record that proves this mail domain has been gone for three days. People with an address there can no longer sign in by the identity provider, and everyone who came in by it was signed out.",
        ),
        i18n.t("Set the record again, and check it on the page of identity providers."),
      ],
      facts: [
        [i18n.t("Mail domain"), domain],
        [i18n.t("Identity provider"), text(facts, "identityProvider")],
      ],
      button: page(facts, "/sign-in-settings", i18n.t("See the record")),
    };
  },
  webhook_paused: (facts, i18n) => {
    const days = number(facts, "days");
    return {
      subject: i18n.t("A webhook was switched off"),
      paragraphs: [
        days === null
          ? i18n.t(
              "Your endpoint has failed for several days, so it is no longer called. Repair it, then switch it on again.",
            )
          : i18n.t(
              "Your endpoint has failed for {count, plural, one {# day} other {# days}}, so it is no longer called. Repair it, then switch it on again.",
              { count: days },
            ),
      ],
      facts: [
        [i18n.t("Endpoint"), text(facts, "url")],
        [i18n.t("Last answer"), text(facts, "why")],
      ],
      button: page(facts, "/webhooks", i18n.t("Open webhooks")),
    };
  },
};

const NO_TRIAL = /*i18n*/ "none";

/** What became of the trial of an account that signed up. */
const TRIALS: Readonly<Record<string, string>> = {
  waits: /*i18n*/ "yes",
  taken: /*i18n*/ "no: had one before",
  domain: /*i18n*/ "no: too many of its domain had one",
};

/** Why a charge or a renewal did not work, for the customer. */
const PROBLEMS: Readonly<Record<string, string>> = {
  no_card: /*i18n*/ "No card is saved. Save one under Billing.",
  card_refused: /*i18n*/ "Your bank refused the card. Save another card under Billing, or ask your bank.",
  card_expired: /*i18n*/ "Your card has expired. Save another one under Billing.",
  needs_person: /*i18n*/ "Your bank wants you to confirm the payment.",
  stripe: /*i18n*/ "The payment service could not be used.",
  not_on_sale: /*i18n*/ "The package is no longer on sale.",
  unpayable: /*i18n*/ "The amount cannot be paid in the currency of your seller. Choose another one under Billing.",
  price_changed:
    /*i18n*/ "Your seller has changed its tax or currency, and a top-up would cost more than you agreed to, or in another currency.",
  seller_suspended: /*i18n*/ "Its seller does not sell at the moment.",
  seller_balance: /*i18n*/ "Its seller cannot provide it at the moment.",
  account_suspended: /*i18n*/ "Your account is suspended.",
  balance_low: /*i18n*/ "Your balance is too low. Top it up under Billing.",
  too_late: /*i18n*/ "It could not be renewed before it ended.",
  withdrawn: /*i18n*/ "Its order was withdrawn.",
};

/** Stripe's reasons and results of disputes. */
const STRIPE_WORDS: ReadonlySet<string> = new Set([
  /*i18n*/ "bank cannot process",
  /*i18n*/ "check returned",
  /*i18n*/ "credit not processed",
  /*i18n*/ "customer initiated",
  /*i18n*/ "debit not authorized",
  /*i18n*/ "duplicate",
  /*i18n*/ "fraudulent",
  /*i18n*/ "general",
  /*i18n*/ "incorrect account details",
  /*i18n*/ "insufficient funds",
  /*i18n*/ "noncompliant",
  /*i18n*/ "product not received",
  /*i18n*/ "product unacceptable",
  /*i18n*/ "subscription canceled",
  /*i18n*/ "unrecognized",
  /*i18n*/ "lost",
  /*i18n*/ "needs response",
  /*i18n*/ "prevented",
  /*i18n*/ "under review",
  /*i18n*/ "warning closed",
  /*i18n*/ "warning needs response",
  /*i18n*/ "warning under review",
  /*i18n*/ "won",
]);

function isText(value: string | null): value is string {
  return value !== null && value !== "";
}

type InLanguage = Pick<MailFacts, "i18n">;
type Named = InLanguage & { data: { name?: string } };
type Sized = InLanguage & { data: { left?: number; totalLimit?: number } };
type Ordered = Pick<MailFacts<"order_placed">, "data" | "i18n">;
type Panel = Pick<MailFacts, "site" | "role" | "i18n">;

function name(facts: Named): string {
  return text(facts, "name") ?? facts.i18n.t("Your package");
}

function ofTotal(facts: Sized): string | null {
  const [left, total] = [count(facts, "left"), count(facts, "totalLimit")];
  return left === null || total === null ? left : facts.i18n.t("{left} of {total}", { left, total });
}

function problem({ data, i18n }: InLanguage & { data: { problem?: string } }): string | null {
  const known = PROBLEMS[data.problem ?? ""];
  return known === undefined ? null : i18n.t(known);
}

function disputed(facts: Pick<MailFacts<"dispute_opened">, "data" | "i18n">): string | null {
  return money(facts, facts.data.disputedNano, text(facts, "currency"));
}

/** A word of Stripe in plain text: "needs_response" as "needs response". */
function ofStripe(i18n: I18n, value: string | undefined): string | null {
  if (value === undefined) return null;
  const words = oneLine(value).replaceAll("_", " ");
  return STRIPE_WORDS.has(words) ? i18n.t(words) : words;
}

/** A time that has no time zone of its own. */
function inUtc({ i18n }: InLanguage, iso: string | null): string | null {
  return moment({ i18n, data: {} }, iso);
}

function worksOnce(facts: Pick<MailFacts<"invitation">, "data" | "i18n">): string | null {
  const time = inUtc(facts, text(facts, "expiresAt"));
  return time && facts.i18n.t("The link works once, until {time}.", { time });
}

type Seller = Pick<MailFacts, "brand" | "i18n">;

function notYou({ i18n, brand }: Seller): string {
  return i18n.t("If it was not you, set a new password immediately, and tell {brand}.", { brand });
}

function becauseOfAccount({ i18n, brand }: Seller): string {
  return i18n.t("You get this mail because this address belongs to an account at {brand}.", { brand });
}

function becauseEntered({ i18n, brand }: Seller): string {
  return i18n.t("You get this mail because someone entered this address at {brand}.", { brand });
}

function security({ i18n, brand }: Seller): string {
  return i18n.t(
    "You get this mail because this address belongs to an account at {brand}. Mails about how you sign in are always sent.",
    { brand },
  );
}

function linked({ link }: Pick<MailFacts, "link">, label: string): MailText["button"] {
  return link === null ? null : { label, url: link };
}

function page({ site }: Pick<MailFacts, "site">, path: string, label: string): MailText["button"] {
  return site === null ? null : { label, url: `${site}${path}` };
}

function signInSettings(facts: Panel): MailText["button"] {
  return page(facts, "/settings?tab=sign-in", facts.i18n.t("Open settings"));
}

function billing(facts: Panel): MailText["button"] {
  return page(facts, "/billing", facts.i18n.t("Open billing"));
}

/** The orders of the customers of a reseller or an admin, and their payments. */
function orders(facts: Panel): MailText["button"] {
  return page(facts, facts.role === "admin" ? "/admin/orders" : "/customers", facts.i18n.t("Open orders"));
}

function payments(facts: Panel): MailText["button"] {
  return page(facts, facts.role === "admin" ? "/admin/payments" : "/payments", facts.i18n.t("Open payments"));
}

/** What an order asks for, as it stands after a colon. */
function wish(facts: Ordered): string {
  const amount = usd(facts, "amountNanoUsd");
  const asked = amount === null ? facts.i18n.t("your order") : facts.i18n.t("top-up of {amount}", { amount });
  return text(facts, "offeringName") ?? asked;
}

function order(facts: Ordered): [string, string | null][] {
  const { i18n, data } = facts;
  return [
    [i18n.t("Order"), wish(facts)],
    [i18n.t("Price"), total(facts)],
    [i18n.t("Tax in it"), data.taxNano === "0" ? null : money(facts, data.taxNano, text(facts, "orderCurrency"))],
    [i18n.t("Reference"), text(facts, "reference")],
  ];
}

function orderOfCustomer(facts: Ordered): [string, string | null][] {
  return [[facts.i18n.t("Customer"), text(facts, "customerName")], ...order(facts)];
}

/** What an order costs, with its tax; null: it has no price. */
function total(facts: Ordered): string | null {
  return money(facts, facts.data.totalNano, text(facts, "orderCurrency"));
}

/** The page of the reader's own order. */
function orderPage(facts: Ordered & Panel): MailText["button"] {
  return page(facts, `/billing/orders/${text(facts, "orderId") ?? ""}`, facts.i18n.t("Open the order"));
}
