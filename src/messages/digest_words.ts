import type { KindByOthers } from "./kinds.ts";

/** The words of a digest. Pure. Source: MSG-14. */

type Words = { words: string; path: { admin: string; reseller: string } };

const ORDERS = { admin: "/admin/orders", reseller: "/customers" };
const PAYMENTS = { admin: "/admin/payments", reseller: "/payments" };

/** What several messages of a kind are called, and the page that lists what they tell of. */
const DIGESTED: Readonly<Record<KindByOthers, Words>> = {
  customer_signed_up: { words: "New customers", path: { admin: "/admin/sign-up", reseller: "/sign-up-settings" } },
  order_placed: { words: "New orders", path: ORDERS },
  payment_received: { words: "Payments received", path: PAYMENTS },
  order_waits: { words: "Paid orders that wait for you", path: ORDERS },
  refund_shortfall: { words: "Refunds of money that was spent", path: PAYMENTS },
  dispute_opened: { words: "Disputed payments", path: PAYMENTS },
  dispute_closed: { words: "Closed disputes", path: PAYMENTS },
};

/** What a digest tells of, in the order of the kinds. */
export function digested(counts: Readonly<Record<string, number>>): (Words & { count: number })[] {
  return Object.entries(DIGESTED).flatMap(([kind, words]) => {
    const count = counts[kind] ?? 0;
    return count > 0 ? [{ ...words, count }] : [];
  });
}
