import type { Tx } from "./db.ts";
import { outboxMessages } from "./schema_outbox.ts";

/**
 * What people and webhooks can be told of, and what each kind of message says: texts are made of it, and a webhook gets it as `data`.
 * Money is a string of nano-USD, times are ISO 8601. `messages/kinds.ts` says who is told. Source: MSG-1.
 */
export type MessageData = {
  invitation: SecretLink;
  password_reset: SecretLink;
  email_change: SecretLink & { to: "old" | "new"; address: string };
  /** To an address that has no account; `accountId` is the seller (0: the operator). */
  sign_up: SecretLink & { address: string } & InLanguage;
  /** To an address; `accountId` is the seller (0: the operator). */
  member_invitation: SecretLink & { address: string } & InLanguage;
  /** To an address that has no account any more; `accountId` is the seller (0: the operator). Deleted when its delivery has ended. */
  account_erased: { address: string } & InLanguage;
  /** Someone wanted to sign up with the address of this account. */
  sign_up_known: Record<never, never>;
  password_changed: Record<never, never>;
  second_factor_off: Record<never, never>;
  passkey_added: { name: string; host: string };
  /** `names`: of all that were removed at once. */
  passkey_removed: { names: string[] };
  /** `provider`: the name of the identity provider; `email`: the person's address there. */
  identity_linked: { provider: string; email: string };
  identity_unlinked: { provider: string; email: string };
  balance_low: { freeNanoUsd: string; belowNanoUsd: string };
  package_80_percent: PackageNotice;
  package_used_up: PackageNotice;
  package_ending: PackageNotice;
  /** `totalNano`: what is paid, with its tax, in billionths of `currency`; null: the offering is not on sale. `renewsAt`: when it is paid. */
  renewal_upcoming: RenewalFacts & { currency: string; totalNano: string | null; taxNano: string; renewsAt: string };
  /** `problem`: as in the list of problems of a renewal. `retriesAt`: when it is tried again; null: never. */
  renewal_failed: RenewalFacts & { problem: string; retriesAt: string | null };
  /** The bank wants the person to confirm a charge to the card: the order's page does it. */
  payment_needs_you: OrderFacts & { purpose: "renewal" | "top_up" };
  /** A card could not be charged for an automatic top-up: they are paused. `problem`: as of a renewal. */
  auto_top_up_failed: { amountNanoUsd: string; problem: string };
  /** The balance is low, and another automatic top-up would exceed what a month may have. */
  auto_top_up_capped: { amountNanoUsd: string; monthMaxNanoUsd: string; monthNanoUsd: string };
  package_assigned: {
    packageId: number;
    name: string;
    totalLimit: number;
    dailyLimit: number;
    startsAt: string;
    endsAt: string;
    timeZone: string;
  };
  /** `trial`: `waits` also for the moment until it is given; `taken`: the person had one before. */
  customer_signed_up: { name: string; email: string; trial: "none" | "taken" | "domain" | "waits" };
  order_placed: OrderFacts & { note: string | null };
  payment_received: OrderFacts;
  order_paid: OrderFacts & { invoiceNumber: number };
  /** `waitsFor`: the reseller's balance is too low, or the seller must look at it. */
  order_waits: OrderFacts & { waitsFor: "seller_balance" | "seller" };
  /** With the times of its package. */
  order_fulfilled: OrderFacts & { startsAt?: string; endsAt?: string; timeZone?: string };
  order_declined: OrderFacts & { answer: string | null };
  /** The customer's bank did not pay. */
  payment_failed: OrderFacts;
  /** `refundNano`: billionths of `currency`. `invoiceNumber`: of the credit note; null: the payment had paid for nothing. */
  refund_made: OrderFacts & {
    refundId: number;
    refundNano: string;
    currency: string;
    reason: string | null;
    invoiceNumber: number | null;
  };
  /** Stripe sent a top-up back of which `shortfallNanoUsd` was already spent. `refundNano`: billionths of `orderCurrency`. */
  refund_shortfall: OrderFacts & { refundId: number; origin: string; refundNano: string; shortfallNanoUsd: string };
  dispute_opened: OrderFacts & DisputeFacts;
  dispute_closed: OrderFacts & DisputeFacts;
  /** What others did since `since`, beyond the mails of an hour: how many messages of each kind were not mailed one by one. */
  notices_digest: { since: string; counts: Partial<Record<MessageKind, number>> };
  domain_lost: { host: string };
  /** Its TXT record has been gone for days. `identityProvider`: the name of the provider whose people came in by it. */
  mail_domain_lost: { domain: string; identityProvider: string };
  /** `days`: how long it has failed; missing: it answered that it is gone. */
  webhook_paused: { endpointId: number; url: string; why: string; days?: number };
};
export type MessageKind = keyof MessageData;

/** A link that lets somebody in. It stands encrypted: whoever reads the table could use it. */
type SecretLink = { urlCiphertext: string; expiresAt: string };
/** The tag of the reader's language, of whom there is no account; null or missing: that of the brand. */
type InLanguage = { language?: string | null };
type PackageNotice = {
  packageId: number;
  name: string;
  left: number;
  totalLimit: number;
  endsAt: string;
  timeZone: string;
  /** Of the package that follows. */
  nextName: string | null;
};
type RenewalFacts = {
  packageId: number;
  name: string;
  source: "card" | "balance";
  endsAt: string;
  timeZone: string;
};
type OrderFacts = {
  orderId: number;
  /** 0: the operator. */
  sellerId: number;
  /** What people and payment providers name the order by. */
  reference: string;
  customerName: string;
  /** null for a top-up. */
  offeringName: string | null;
  /** Of a top-up. */
  amountNanoUsd: string | null;
  /** What it sells for, without tax. */
  priceNanoUsd: string | null;
  /** What is paid, and the tax in it, in billionths of `orderCurrency`; null: without a price. */
  orderCurrency: string;
  taxNano: string;
  totalNano: string | null;
};
/** `disputedNano`: billionths of `currency`. `reason` and `status` are Stripe's words. `dueAt`: until when it can be answered. */
type DisputeFacts = {
  externalId: string;
  disputedNano: string;
  currency: string;
  reason: string;
  status: string;
  dueAt: string | null;
};

export type Message<Kind extends MessageKind> = {
  kind: Kind;
  /** Whom it concerns. Of `sign_up`, `member_invitation` and `account_erased`, who sends it. */
  accountId: number;
  data: MessageData[Kind];
  /** Two messages with the same key are one message. */
  onceKey?: string;
};

/** Writes a message in the transaction of what it tells of, so that it is sent if and only if that is committed. */
export async function tell<Kind extends MessageKind>(
  tx: Tx,
  { kind, accountId, data, onceKey }: Message<Kind>,
): Promise<void> {
  await tx
    .insert(outboxMessages)
    .values({ kind, accountId, data, onceKey: onceKey ?? null })
    .onConflictDoNothing();
}
