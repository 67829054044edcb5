import type { MessageKind } from "../../../../platform/outbox_store.ts";

/** The names of the kinds of messages. */

const KINDS: Readonly<Record<MessageKind, string>> = {
  invitation: "Invitation",
  password_reset: "Password link",
  email_change: "New e-mail address",
  sign_up: "Sign-up",
  member_invitation: "Invitation of a member",
  sign_up_known: "Sign-up with an account",
  password_changed: "Password changed",
  second_factor_off: "Two-step sign-in switched off",
  passkey_added: "Passkey added",
  passkey_removed: "Passkey removed",
  identity_linked: "Sign-in linked",
  identity_unlinked: "Sign-in unlinked",
  balance_low: "Balance is low",
  package_80_percent: "Package is nearly used up",
  package_used_up: "Package is used up",
  package_ending: "Package ends soon",
  renewal_upcoming: "Package renews soon",
  renewal_failed: "Renewal failed",
  payment_needs_you: "Bank wants a confirmation",
  auto_top_up_failed: "Automatic top-up failed",
  auto_top_up_capped: "Limit of automatic top-ups reached",
  package_assigned: "New package",
  customer_signed_up: "New customer by sign-up",
  order_placed: "New order",
  payment_received: "A customer has paid",
  order_waits: "Paid order waits",
  order_paid: "Payment received",
  order_fulfilled: "Order fulfilled",
  order_declined: "Order declined",
  payment_failed: "Payment failed",
  refund_made: "Refund",
  refund_shortfall: "Refund of money that was spent",
  dispute_opened: "Payment disputed",
  dispute_closed: "Dispute closed",
  notices_digest: "Digest of many notices",
  domain_lost: "Domain is off",
  webhook_paused: "Webhook is switched off",
};

export function kindWords(kind: string): string {
  return (KINDS as Readonly<Record<string, string>>)[kind] ?? kind;
}
