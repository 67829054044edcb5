import { Elysia, t } from "elysia";
import { findAccount } from "../../accounts/accounts_store.ts";
import { listOfferings } from "../../accounts/offerings_store.ts";
import {
  type BalanceTransaction,
  type BalanceTransactionsQuery,
  listBalanceTransactions,
  TRANSACTIONS_CURSOR,
} from "../../books/balance_transactions_store.ts";
import { type Statement, statementOf } from "../../books/statement_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { allotmentsOf } from "../../ledger/allotments_store.ts";
import { holdingsOf } from "../../ledger/holdings_store.ts";
import type { Package, PayWith } from "../../ledger/packages_store.ts";
import { longRead } from "./long_read.ts";
import { Id, type Person, signedIn, toWire, whole } from "./panel_session.ts";
import { statementCsv } from "./statement_csv.ts";

/** What one has and what became of one's money: packages, balance, what is on sale, and a reseller's statement. */

const ENTRIES_MAX = 100;
/** Rows of each part of a statement: as a page shows it, and as a file. */
const STATEMENT_SHOWN = 1000;
const STATEMENT_FILE_MAX = 100_000;
/** It has five parts, each with a limit of its own. */
const STATEMENT_MS_MAX = 10_000;

export const EntriesPage = t.Object({
  kind: t.Optional(
    t.Union([
      t.Literal("top_up"),
      t.Literal("charge"),
      t.Literal("wholesale"),
      t.Literal("transfer"),
      t.Literal("correction"),
    ]),
  ),
  before: t.Optional(t.String({ pattern: TRANSACTIONS_CURSOR })),
  limit: t.Optional(whole(1, ENTRIES_MAX)),
});
const StatementOf = t.Object({
  month: t.String({ maxLength: 7 }),
  host: t.Optional(t.String({ maxLength: 253, pattern: "^[a-z0-9.-]+$", says: "a host name" })),
  resellerId: t.Optional(Id),
});

export function billingRoutes(deps: Deps) {
  return new Elysia({ normalize: false }).use(ownRoutes(deps)).use(statementRoutes(deps));
}

function ownRoutes(deps: Deps) {
  return signedIn(deps)
    .get("/billing", async ({ person }) => toWire(await billingOf(deps, person, person)))
    .get(
      "/billing/entries",
      async ({ person, query, request: { signal } }) => {
        const { accountId } = person;
        return toWire(await entriesOf(deps, { person, signal }, { ...query, accountId }));
      },
      { query: EntriesPage },
    )
    .get("/offerings", async ({ person }) => {
      const rows = await listOfferings(deps, { enabled: true });
      // What a reseller pays is no business of its customers.
      const offerings = rows.map(({ enabled: _, wholesaleNanoUsd, ...offering }) => ({
        ...offering,
        wholesaleNanoUsd: person.role === "customer" ? null : wholesaleNanoUsd,
      }));
      return toWire({ offerings });
    });
}

function statementRoutes(deps: Deps) {
  const shape = { query: StatementOf };
  return signedIn(deps, "reseller", "admin")
    .get(
      "/statement",
      async ({ person, query, request: { signal } }) =>
        toWire(await statementFor(deps, { person, signal }, { ...query, rowsMax: STATEMENT_SHOWN })),
      shape,
    )
    .get(
      "/statement.csv",
      async ({ person, query, set, request: { signal } }) => {
        const statement = await statementFor(deps, { person, signal }, { ...query, rowsMax: STATEMENT_FILE_MAX });
        if (statement.usage.hasMore || statement.packages.hasMore || statement.entries.hasMore)
          throw new InputError(
            `The month has more than ${STATEMENT_FILE_MAX} lines of a kind: ask for one host.`,
            "host",
          );
        set.headers["content-type"] = "text/csv; charset=utf-8";
        set.headers["content-disposition"] = `attachment; filename="${fileName(person, statement)}"`;
        return statementCsv(statement);
      },
      shape,
    );
}

/** Whose name the file bears is the host it was asked on, or asked for. */
function fileName({ host }: Person, statement: Statement): string {
  const name = (statement.host ?? host.name).replace(/[^a-z0-9.-]/g, "-");
  return `statement-${name}-${statement.month}${statement.closed ? "" : "-so-far"}.csv`;
}

type Viewing = { person: Person; signal: AbortSignal };
type StatementAsked = { month: string; host?: string; resellerId?: number; rowsMax: number };

/** A reseller's own; an admin names one. Another's reads as one that is not there. */
async function statementFor(deps: Deps, { person, signal }: Viewing, asked: StatementAsked): Promise<Statement> {
  const resellerId = asked.resellerId ?? person.accountId;
  const mine = person.role === "admin" || resellerId === person.accountId;
  if (!mine || (await findAccount(deps, resellerId))?.role !== "reseller") throw new Refusal("not_found");
  const wanted = { ...asked, resellerId, timeZone: deps.config.billingTimeZone };
  return await longRead(deps, { person, signal, readMsMax: STATEMENT_MS_MAX }, (reading) =>
    statementOf(reading, wanted),
  );
}

/** A package as its holder sees it. */
export type PackageView = Omit<Package, "paidByAccountId" | "allotmentId"> & {
  /** null where that is none of the viewer's business. */
  paidWith: PayWith | null;
};

export function viewOf(viewer: Person, { paidByAccountId, allotmentId, ...row }: Package): PackageView {
  const paidWith = allotmentId !== null ? "allotment" : paidByAccountId !== null ? "balance" : "operator";
  return { ...row, paidWith: viewer.role === "customer" ? null : paidWith };
}

/** Balance, packages, and what a reseller may still hand out. */
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

/** A page of a balance. A reseller's customers do not learn who works for the operator. */
export async function entriesOf(deps: Deps, { person: viewer, signal }: Viewing, query: BalanceTransactionsQuery) {
  const { rows, ...page } = await longRead(deps, { person: viewer, signal }, (reading) =>
    listBalanceTransactions(reading, query),
  );
  const isTold = ({ actor }: BalanceTransaction) =>
    actor?.role !== "admin" || viewer.role !== "customer" || viewer.tenantId === 0;
  return { entries: rows.map((row) => (isTold(row) ? row : { ...row, actor: null })), ...page };
}
