import type { I18n } from "@lingui/core";
import type { KindByOthers } from "./kinds.ts";

/** The words of a digest. Pure. Source: MSG-14. */

type Words = { words: string; path: { admin: string; reseller: string } };

const ORDERS = { admin: "/admin/orders", reseller: "/customers" };
const PAYMENTS = { admin: "/admin/payments", reseller: "/payments" };

/** What several messages of a kind are called, and the page that lists what they tell of. */
const DIGESTED: Readonly<Record<KindByOthers, Words>> = {
  customer_signed_up: {
    words: /*i18n*/ "New customers",
    path: { admin: "/admin/sign-up", reseller: "/sign-up-settings" },
  },
  order_placed: { words: /*i18n*/ "New orders", path: ORDERS },
  payment_received: { words: /*i18n*/ "Payments received", path: PAYMENTS },
  order_waits: { words: /*i18n*/ "Paid orders that wait for you", path: ORDERS },
  refund_shortfall: { words: /*i18n*/ "Refunds of money that was spent", path: PAYMENTS },
  dispute_opened: { words: /*i18n*/ "Disputed payments", path: PAYMENTS },
  dispute_closed: { words: /*i18n*/ "Closed disputes", path: PAYMENTS },
};

/** What a digest tells of, in the order of the kinds. */
export function digested(i18n: I18n, counts: Readonly<Record<string, number>>): (Words & { count: number })[] {
  return Object.entries(DIGESTED).flatMap(([kind, { words, path }]) => {
    const count = counts[kind] ?? 0;
    return count > 0 ? [{ words: i18n.t(words), path, count }] : [];
  });
}
