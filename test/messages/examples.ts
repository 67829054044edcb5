import type { MessageData } from "../../src/platform/outbox_store.ts";

/** One message of each kind, with all its values. */

const LINK = { urlCiphertext: "x", expiresAt: "2026-12-14T23:00:00.000Z" };
const PACKAGE = {
  ...{ packageId: 5, name: "Starter", left: 312, totalLimit: 15_000 },
  ...{ endsAt: "2026-12-14T23:00:00.000Z", timeZone: "Europe/Berlin", nextName: "Pro" },
};
const RENEWAL = {
  ...{ packageId: 5, name: "Starter", source: "card" as const },
  ...{ endsAt: "2026-12-14T23:00:00.000Z", timeZone: "Europe/Berlin" },
};
const ORDER = {
  ...{ orderId: 7, sellerId: 3, reference: "T-7QK2", customerName: "Ann Lee", offeringName: "Starter" },
  ...{ amountNanoUsd: null, priceNanoUsd: "19000000000", orderCurrency: "usd", taxNano: "0", totalNano: "19000000000" },
};
const DISPUTE = {
  ...{ externalId: "dp_1Qx", disputedNano: "19000000000", currency: "usd", reason: "fraudulent" },
  dueAt: "2026-12-20T23:59:59.000Z",
};

export const EXAMPLES: { [Kind in keyof MessageData]: MessageData[Kind] } = {
  invitation: LINK,
  password_reset: LINK,
  email_change: { ...LINK, to: "new", address: "ann@example.com" },
  sign_up: { ...LINK, address: "ann@example.com" },
  member_invitation: { ...LINK, address: "ann@example.com" },
  account_erased: { address: "ann@example.com" },
  sign_up_known: {},
  password_changed: {},
  second_factor_off: {},
  passkey_added: { name: "My phone", host: "ai.lumen.example" },
  passkey_removed: { names: ["My phone", "Laptop"] },
  identity_linked: { provider: "Google", email: "ann@example.com" },
  identity_unlinked: { provider: "Google", email: "ann@example.com" },
  balance_low: { freeNanoUsd: "500000000", belowNanoUsd: "1000000000" },
  package_80_percent: PACKAGE,
  package_used_up: PACKAGE,
  package_ending: PACKAGE,
  renewal_upcoming: {
    ...RENEWAL,
    ...{ currency: "usd", totalNano: "19000000000", taxNano: "0" },
    renewsAt: "2026-12-13T23:00:00.000Z",
  },
  renewal_failed: { ...RENEWAL, problem: "card_refused", retriesAt: "2026-12-14T07:00:00.000Z" },
  payment_needs_you: { ...ORDER, purpose: "renewal" },
  auto_top_up_failed: { amountNanoUsd: "20000000000", problem: "card_refused" },
  auto_top_up_capped: { amountNanoUsd: "20000000000", monthMaxNanoUsd: "50000000000", monthNanoUsd: "40000000000" },
  package_assigned: {
    ...{ packageId: 5, name: "Starter", totalLimit: 15_000, dailyLimit: 500 },
    ...{ startsAt: "2026-11-14T23:00:00.000Z", endsAt: "2026-12-14T23:00:00.000Z", timeZone: "Europe/Berlin" },
  },
  customer_signed_up: { name: "Ann", email: "ann@example.com", trial: "waits" },
  order_placed: { ...ORDER, note: "Soon, please" },
  payment_received: ORDER,
  order_waits: { ...ORDER, waitsFor: "seller_balance" },
  order_paid: { ...ORDER, invoiceNumber: 12 },
  order_fulfilled: {
    ...ORDER,
    ...{ startsAt: "2026-11-14T23:00:00.000Z", endsAt: "2026-12-14T23:00:00.000Z", timeZone: "Europe/Berlin" },
  },
  order_declined: { ...ORDER, answer: "Sold out" },
  payment_failed: ORDER,
  refund_made: {
    ...ORDER,
    ...{ refundId: 9, refundNano: "19000000000", currency: "usd", reason: "Doubled", invoiceNumber: 13 },
  },
  refund_shortfall: {
    ...ORDER,
    ...{ refundId: 10, origin: "stripe", refundNano: "19000000000", shortfallNanoUsd: "4000000000" },
  },
  dispute_opened: { ...ORDER, ...DISPUTE, status: "needs_response" },
  dispute_closed: { ...ORDER, ...DISPUTE, status: "lost" },
  notices_digest: { since: "2026-12-14T22:00:00.000Z", counts: { customer_signed_up: 12, order_placed: 1 } },
  domain_lost: { host: "ai.lumen.example" },
  mail_domain_lost: { domain: "lumen.example", identityProvider: "Lumen staff" },
  webhook_paused: { endpointId: 4, url: "https://hooks.example.com/", why: "Status 503", days: 3 },
};
