import { t } from "elysia";
import { balanceMonths, listMovements } from "../../books/balance_movements_store.ts";
import {
  type BalanceTransaction,
  type BalanceTransactionsQuery,
  listBalanceTransactions,
  TRANSACTIONS_CURSOR,
} from "../../books/balance_transactions_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError } from "../../errors.ts";
import { allotmentsOf } from "../../ledger/allotments_store.ts";
import { holdingsOf } from "../../ledger/holdings_store.ts";
import type { Package, PayWith } from "../../ledger/packages_store.ts";
import { Id, whole } from "./fields.ts";
import { longRead, type Person, type Reader } from "./panel_session.ts";

/** An account's packages, balance and transactions, as a given viewer may see them: the account itself, its reseller, or an admin. */

const ENTRIES_MAX = 100;

/** The query of a page of transactions. */
export const EntriesPage = t.Object({
  kind: t.Optional(
    t.Union([
      t.Literal("top_up"),
      t.Literal("charge"),
      t.Literal("wholesale"),
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

export type PackageView = Omit<Package, "paidByAccountId" | "allotmentId"> & {
  /** What paid for the package. null for customers, who do not see it. */
  paidWith: PayWith | null;
};

export function viewOf(viewer: Person, { paidByAccountId, allotmentId, ...row }: Package): PackageView {
  const paidWith = allotmentId !== null ? "allotment" : paidByAccountId !== null ? "balance" : "operator";
  return { ...row, paidWith: viewer.role === "customer" ? null : paidWith };
}

/** Only an admin may assign a package that nobody pays for. Throws InputError. Source: RES-2. */
export function checkPayWith({ role }: Person, payWith: PayWith | undefined): void {
  if (payWith === "operator" && role !== "admin")
    throw new InputError("Pay with your balance or your allotment.", "payWith");
}

/** Balance and packages; for a reseller also the allotments it may still assign from. */
export async function billingOf(
  deps: Deps,
  viewer: Person,
  { accountId, role }: { accountId: number; role: Person["role"] },
) {
  const { balance, packages } = await holdingsOf(deps, accountId);
  return {
    balance,
    packages: packages.map((row) => viewOf(viewer, row)),
    allotments: role === "reseller" ? await allotmentsOf(deps, accountId) : [],
  };
}

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

function withoutStaff<Row extends Pick<BalanceTransaction, "actor">>({ role, tenantId }: Person, row: Row): Row {
  const maySee = row.actor?.role !== "admin" || role !== "customer" || tenantId === 0;
  return maySee ? row : { ...row, actor: null };
}
