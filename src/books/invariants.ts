import { type Static, Type } from "@sinclair/typebox";

/** The invariants of the books: what always holds of counters, balances, escrows and receipts. */

/** Each is a view of that name in the database that must be empty, and what it means in words. */
export const INVARIANTS = [
  {
    name: "inv_package_units",
    says: /*i18n*/ "A package's counters equal what replicas have drawn of it plus its settled receipts.",
  },
  { name: "inv_package_days", says: /*i18n*/ "The counters of each day of a package do too." },
  { name: "inv_balance_entries", says: /*i18n*/ "A balance equals the sum of its transactions." },
  {
    name: "inv_balance_held",
    says: /*i18n*/ "The reserved amount of a balance equals the sum of what replicas have drawn of it.",
  },
  {
    name: "inv_bounds",
    says: /*i18n*/ "No counter is below zero or above its limit; carryover is never ahead of its days.",
  },
  {
    name: "inv_charges",
    says: /*i18n*/ "Every charge has its transaction; a request that was released, or paid by a package, cost nothing.",
  },
  {
    name: "inv_prices",
    says: /*i18n*/ "Every charge equals its receipt's counts times the prices that the receipt names, rounded up once.",
  },
  {
    name: "inv_earnings",
    says: /*i18n*/ "A reseller's earnings of a closed day equal what its receipts say, and its balance was credited each once.",
  },
  {
    name: "inv_key_days",
    says: /*i18n*/ "A key's counters of a day equal what is drawn for its requests plus its receipts of that day.",
  },
  {
    name: "inv_allotments",
    says: /*i18n*/ "The used pieces of an allotment equal the packages taken from it, never more than were granted.",
  },
  {
    name: "inv_payments",
    says: /*i18n*/ "Every paid order has one payment of its price and is fulfilled at most once; refunds fit their payment, what they took, and their order.",
  },
] as const;
export type InvariantName = (typeof INVARIANTS)[number]["name"];

/** The invariant of that name; undefined for any other text. */
export function invariantOf(name: string): { name: InvariantName; says: string } | undefined {
  return INVARIANTS.find((invariant) => invariant.name === name);
}

/** How many rows break an invariant; null: it could not be checked in time. */
export const InvariantResult = Type.Object({
  name: Type.String(),
  rows: Type.Union([Type.Integer(), Type.Null()]),
});
export type InvariantResult = Static<typeof InvariantResult>;

/** What has counters that are checked one by one: a package, a key on one day, the balance of an account. */
export const COUNTER_KINDS = ["package", "key", "account"] as const;
export type CounterKind = (typeof COUNTER_KINDS)[number];
/** Id of a package, a key or an account. `day` is the key's day; "-infinity" for the other kinds. */
export type CounterRef = { id: string; day: string };

/** A row that breaks an invariant. `ref` identifies the row within the invariant's view; `of` is the counter, if it is one. */
export type Violation = { name: InvariantName; ref: string; of?: CounterRef & { kind: CounterKind } };

/** How many invariants are broken, and how many could not be checked in time. */
export function countFindings(results: readonly InvariantResult[]): { broken: number; uncounted: number } {
  return {
    broken: results.filter(({ rows }) => rows !== null && rows > 0).length,
    uncounted: results.filter(({ rows }) => rows === null).length,
  };
}
