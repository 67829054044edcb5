import type { MemberRole } from "../accounts/member_roles.ts";
import type { Role } from "../accounts/roles.ts";
import type { MessageKind } from "../platform/outbox_store.ts";

/** The properties of each kind of message, except its text: one line per kind. All lists of kinds follow from it. */

type KindFacts = {
  /** `always`: cannot be switched off, because it is about who can sign in. Source: MSG-6. */
  mailed: "always" | "optional";
  /** Who is mailed: the account that the message is about, its seller, or an address that has no account, for the seller named as the account. */
  to: "account" | "seller" | "address";
  /** Whose webhooks can be called: the account's, its seller's, both, or nobody's. */
  webhooks: "account" | "seller" | "both" | "none";
  /** Roles that can get it; missing: all. */
  roles?: readonly Role[];
  /** Which members of the account, or of its seller, are mailed; missing: the person whom it is about. Source: MEM-6. */
  members?: readonly MemberRole[];
  /** Its data has an encrypted link that gives access to an account. */
  hasLink?: true;
  /** Others cause it, as often as they like: of an hour's, a reader is mailed a few one by one, and the rest as one digest. Source: MSG-14. */
  byOthers?: true;
};

const SECURITY = { mailed: "always", to: "account", webhooks: "none" } as const;
const BILLING = ["owner", "billing"] as const;
const DEVELOPING = ["owner", "developer"] as const;
const OWN = { mailed: "optional", to: "account", webhooks: "account", members: BILLING } as const;
const OWN_AND_SELLER = { mailed: "optional", to: "account", webhooks: "both", members: BILLING } as const;
const SELLER_ROLES = ["reseller", "admin"] as const;
const SELLER_FACTS = { roles: SELLER_ROLES, members: BILLING, byOthers: true } as const;
const SELLER = { mailed: "optional", to: "seller", webhooks: "seller", ...SELLER_FACTS } as const;

/** In the order of the settings page. */
const KINDS = {
  invitation: { ...SECURITY, hasLink: true },
  password_reset: { ...SECURITY, hasLink: true },
  email_change: { ...SECURITY, hasLink: true },
  sign_up: { mailed: "always", to: "address", webhooks: "none", hasLink: true },
  member_invitation: { mailed: "always", to: "address", webhooks: "none", hasLink: true },
  account_erased: { mailed: "always", to: "address", webhooks: "none" },
  sign_up_known: SECURITY,
  password_changed: SECURITY,
  second_factor_off: SECURITY,
  passkey_added: SECURITY,
  passkey_removed: SECURITY,
  identity_linked: SECURITY,
  identity_unlinked: SECURITY,
  balance_low: OWN,
  package_80_percent: OWN,
  package_used_up: OWN_AND_SELLER,
  package_ending: OWN_AND_SELLER,
  renewal_upcoming: OWN,
  renewal_failed: OWN_AND_SELLER,
  payment_needs_you: OWN,
  auto_top_up_failed: OWN,
  auto_top_up_capped: OWN,
  package_assigned: OWN_AND_SELLER,
  customer_signed_up: SELLER,
  order_placed: SELLER,
  // The mail to the seller; its webhooks get `order_paid`. Not sent for orders that the seller marks as paid.
  payment_received: { ...SELLER, webhooks: "none" },
  order_waits: SELLER,
  order_paid: OWN_AND_SELLER,
  order_fulfilled: OWN_AND_SELLER,
  order_declined: OWN_AND_SELLER,
  payment_failed: OWN_AND_SELLER,
  refund_made: OWN_AND_SELLER,
  refund_shortfall: SELLER,
  dispute_opened: SELLER,
  dispute_closed: SELLER,
  // Of what one reader was mailed.
  notices_digest: { mailed: "optional", to: "account", webhooks: "none", roles: SELLER_ROLES },
  domain_lost: { ...OWN, roles: ["reseller"], members: DEVELOPING },
  mail_domain_lost: { ...OWN, roles: ["reseller"], members: DEVELOPING },
  // An endpoint gets no call about itself.
  webhook_paused: { ...OWN, webhooks: "none", members: DEVELOPING },
} as const satisfies Readonly<Record<MessageKind, KindFacts>>;

type KindWith<Facts extends Partial<KindFacts>> = {
  [Kind in MessageKind]: (typeof KINDS)[Kind] extends Facts ? Kind : never;
}[MessageKind];
export type OptionalKind = KindWith<{ mailed: "optional" }>;
export type KindByOthers = KindWith<{ byOthers: true }>;

export const MESSAGE_KINDS = Object.keys(KINDS) as MessageKind[];
/** Kinds that a person can switch off. */
export const OPTIONAL_KINDS = MESSAGE_KINDS.filter(isOptional);
/** Kinds whose mail has a link that gives access to an account. */
export const LINK_KINDS = kindsWith((facts) => facts.hasLink === true);
/** Kinds of which a reader is mailed a few an hour, and the rest as a digest. */
export const BY_OTHERS = kindsWith((facts) => facts.byOthers === true);
export const MAILED_TO_SELLER = kindsWith(({ to }) => to === "seller");
export const MAILED_TO_ADDRESS = kindsWith(({ to }) => to === "address");
/** Kinds that a webhook can be called for. */
export const WEBHOOK_KINDS = kindsWith(({ webhooks }) => webhooks !== "none");
/** Kinds of which the webhooks of the account are called. */
export const OWN_WEBHOOK_KINDS = kindsWith(({ webhooks }) => webhooks === "account" || webhooks === "both");
/** Kinds of which the seller's webhooks are called, for each of its customers. */
export const SELLER_WEBHOOK_KINDS = kindsWith(({ webhooks }) => webhooks === "seller" || webhooks === "both");

/** About how a person signs in, and not about an account. */
export const PERSONS_KINDS = kindsWith(({ to, members }) => to === "account" && members === undefined);
/** Which members are mailed of each kind; a kind that is missing is mailed to the person whom it is about. */
export const MAILED_MEMBERS = Object.fromEntries(
  MESSAGE_KINDS.flatMap((kind) => {
    const { members }: KindFacts = KINDS[kind];
    return members === undefined ? [] : [[kind, members]];
  }),
);

/** Whether `kind` is one that a person can switch off. */
export function isOptional(kind: string): kind is OptionalKind {
  return Object.hasOwn(KINDS, kind) && KINDS[kind as MessageKind].mailed === "optional";
}

/** Those of `kinds` that an account of this role can get; with `member`, that this member of it can get by mail. */
export function kindsFor<Kind extends MessageKind>(role: Role, kinds: readonly Kind[], member?: MemberRole): Kind[] {
  return kinds.filter((kind) => {
    const { roles, members }: KindFacts = KINDS[kind];
    const isFor = member === undefined || (members?.includes(member) ?? true);
    return isFor && (roles?.includes(role) ?? true);
  });
}

function kindsWith(has: (facts: KindFacts) => boolean): MessageKind[] {
  return MESSAGE_KINDS.filter((kind) => has(KINDS[kind]));
}
