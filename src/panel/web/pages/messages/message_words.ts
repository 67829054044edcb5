import { t } from "@lingui/core/macro";
import type { MessageKind } from "../../../../platform/outbox_store.ts";

/** The names of the kinds of messages. */

const KINDS: Readonly<Record<MessageKind, string>> = {
  invitation: t`Invitation`,
  password_reset: t`Password link`,
  email_change: t`New e-mail address`,
  sign_up: t`Sign-up`,
  member_invitation: t`Invitation of a member`,
  account_erased: t`Account erased`,
  sign_up_known: t`Sign-up with an account`,
  password_changed: t`Password changed`,
  second_factor_off: t`Two-step sign-in switched off`,
  passkey_added: t`Passkey added`,
  passkey_removed: t`Passkey removed`,
  identity_linked: t`Sign-in linked`,
  identity_unlinked: t`Sign-in unlinked`,
  balance_low: t`Balance is low`,
  package_80_percent: t`Package is nearly used up`,
  package_used_up: t`Package is used up`,
  package_ending: t`Package ends soon`,
  renewal_upcoming: t`Package renews soon`,
  renewal_failed: t`Renewal failed`,
  payment_needs_you: t`Bank wants a confirmation`,
  auto_top_up_failed: t`Automatic top-up failed`,
  auto_top_up_capped: t`Limit of automatic top-ups reached`,
  package_assigned: t`New package`,
  customer_signed_up: t`New customer by sign-up`,
  order_placed: t`New order`,
  payment_received: t`A customer has paid`,
  order_waits: t`Paid order waits`,
  order_paid: t`Payment received`,
  order_fulfilled: t`Order fulfilled`,
  order_declined: t`Order declined`,
  payment_failed: t`Payment failed`,
  refund_made: t({ message: "Refund", context: "noun" }),
  refund_shortfall: t`Refund of money that was spent`,
  dispute_opened: t`Payment disputed`,
  dispute_closed: t`Dispute closed`,
  notices_digest: t`Digest of many notices`,
  domain_lost: t`Domain is off`,
  mail_domain_lost: t`Mail domain is no longer proved`,
  webhook_paused: t`Webhook is switched off`,
};

export function kindWords(kind: string): string {
  return (KINDS as Readonly<Record<string, string>>)[kind] ?? kind;
}
