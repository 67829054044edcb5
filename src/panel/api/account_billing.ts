import { t } from "elysia";
import { balanceMonths, listMovements } from "../../books/balance_movements_store.ts";
import {
  type BalanceTransactionsQuery,
  listBalanceTransactions,
  TRANSACTIONS_CURSOR,
} from "../../books/balance_transactions_store.ts";
import type { Deps } from "../../deps.ts";
import { withoutStaff } from "../../operations/balances.ts";
import { Id, whole } from "./fields.ts";
import { longRead, type Reader } from "./panel_session.ts";

/** An account's packages, balance and transactions, as a given viewer may see them: the account itself, its reseller, or an admin. */

const ENTRIES_MAX = 100;

/** The query of a page of transactions. */
export const EntriesPage = t.Object({
  kind: t.Optional(
    t.Union([
      t.Literal("top_up"),
      t.Literal("charge"),
      t.Literal("wholesale"),
      t.Literal("package"),
      t.Literal("transfer"),
      t.Literal("correction"),
      t.Literal("refund"),
      t.Literal("earning"),
    ]),
  ),
  before: t.Optional(t.String({ pattern: TRANSACTIONS_CURSOR })),
  limit: t.Optional(whole(1, ENTRIES_MAX)),
});

/** The query of a page of transactions without requests. */
export const MovementsPage = t.Object({ before: t.Optional(Id), limit: t.Optional(whole(1, ENTRIES_MAX)) });

/** A page of a balance's transactions. The operator's staff are not named to customers of resellers. */
export async function entriesOf(deps: Deps, { person: viewer, signal }: Reader, query: BalanceTransactionsQuery) {
  const { rows, ...page } = await longRead(deps, { person: viewer, signal }, (reading) =>
    listBalanceTransactions(reading, query),
  );
  return { entries: rows.map((row) => withoutStaff(viewer, row)), ...page };
}

/** The same without requests. */
export async function movementsOf(
  deps: Deps,
  { person: viewer, signal }: Reader,
  query: Parameters<typeof listMovements>[1],
) {
  const { rows, hasMore } = await longRead(deps, { person: viewer, signal }, (reading) =>
    listMovements(reading, query),
  );
  return { entries: rows.map((row) => withoutStaff(viewer, row)), hasMore };
}

/** Incoming and outgoing money by month, in the service's time zone. */
export async function monthsOf(deps: Deps, { person, signal }: Reader, accountId: number) {
  const timeZone = deps.config.billingTimeZone;
  const months = await longRead(deps, { person, signal }, (reading) => balanceMonths(reading, { accountId, timeZone }));
  return { months, timeZone };
}
