import { t } from "elysia";
import { findAccount } from "../../accounts/accounts_store.ts";
import { type Statement, statementOf } from "../../books/statement_store.ts";
import { type TaxLine, taxOf } from "../../commerce/tax_sums_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal, sentence } from "../../errors.ts";
import { HostFilter, Id } from "./fields.ts";
import { type Cell, csvLine, toJson } from "./formats.ts";
import { longRead, type Person, type Reader, signedIn } from "./panel_session.ts";

/** A reseller's monthly statement, as JSON for the page and as a CSV file. */

/** Rows of each part of a statement: on the page, and in the file. */
const PAGE_ROWS_MAX = 1000;
const FILE_ROWS_MAX = 100_000;
/** A statement has six parts; each read has its own, shorter limit. */
const STATEMENT_MS_MAX = 10_000;

const StatementQuery = t.Object({
  month: t.String({ maxLength: 7 }),
  host: t.Optional(HostFilter),
  resellerId: t.Optional(Id),
});

export function statementEndpoints(deps: Deps) {
  const shape = { query: StatementQuery };
  return signedIn(deps, "reseller", "admin")
    .get(
      "/statement",
      async ({ person, query, request: { signal } }) =>
        toJson(await statementFor(deps, { person, signal }, { ...query, rowsMax: PAGE_ROWS_MAX })),
      shape,
    )
    .get(
      "/statement.csv",
      async ({ person, query, set, request: { signal } }) => {
        const filter = { ...query, pricesAsTransactions: true, rowsMax: FILE_ROWS_MAX };
        const statement = await statementFor(deps, { person, signal }, filter);
        if (statement.usage.hasMore || statement.packages.hasMore || statement.entries.hasMore)
          throw new InputError(
            sentence("The month has more than {fileRowsMax} lines of one kind. Export one host at a time.", {
              fileRowsMax: FILE_ROWS_MAX,
            }),
            "host",
          );
        set.headers["content-type"] = "text/csv; charset=utf-8";
        set.headers["content-disposition"] = `attachment; filename="${fileName(person, statement)}"`;
        return statementCsv(statement);
      },
      shape,
    );
}

/** Named after the host of the statement, or else the host of the request. */
function fileName({ host }: Person, statement: Statement): string {
  const name = (statement.host ?? host.name).replace(/[^a-z0-9.-]/g, "-");
  return `statement-${name}-${statement.month}${statement.closed ? "" : "-so-far"}.csv`;
}

type StatementFilter = {
  month: string;
  host?: string;
  resellerId?: number;
  pricesAsTransactions?: boolean;
  rowsMax: number;
};

/** With the tax of what the reseller invoiced in the month. */
type Taxed = Statement & { tax: TaxLine[] };

/** A reseller gets its own statement; an admin names the reseller. Throws not_found for any other account. */
async function statementFor(deps: Deps, { person, signal }: Reader, filter: StatementFilter): Promise<Taxed> {
  const resellerId = filter.resellerId ?? person.accountId;
  const mayRead = person.role === "admin" || resellerId === person.accountId;
  if (!mayRead || (await findAccount(deps, resellerId))?.role !== "reseller") throw new Refusal("not_found");
  const query = { ...filter, resellerId, timeZone: deps.config.billingTimeZone };
  return await longRead(deps, { person, signal, readMsMax: STATEMENT_MS_MAX }, async (reading) => {
    const statement = await statementOf(reading, query);
    const tax = await taxOf(reading.db.sql, { ...statement, sellerId: resellerId });
    return { ...statement, tax };
  });
}

const COLUMNS = [
  "line",
  "at",
  "host",
  "customer_id",
  "model",
  "requests",
  "package_requests",
  "prompt_tokens",
  "cached_tokens",
  "completion_tokens",
  "charged_nano_usd",
  "cost_nano_usd",
  "earned_nano_usd",
  "usage_revenue_nano_usd",
  "usage_cost_nano_usd",
  "margin_nano_usd",
  "package_id",
  "package",
  "price_nano_usd",
  "allotment_id",
  "entry_id",
  "kind",
  "reason",
  "amount_nano_usd",
  "balance_nano_usd",
  "currency",
  "tax_country",
  "tax_percent",
  "reverse_charge",
  "invoices",
  "credit_notes",
  "net_nano",
  "tax_nano",
  "total_nano",
] as const;

type Line = Partial<Record<(typeof COLUMNS)[number], Cell>>;

/**
 * A statement as one table: UTC, nano-USD, ids instead of names, so that a closed month always gives the same bytes. Each kind of
 * line fills its own columns. No amount appears twice in one column, so columns can be summed.
 */
function statementCsv({ from, to, closed, balance, usage, packages, entries, tax }: Taxed): string {
  const lines: Line[] = [
    { line: "opening_balance", at: from, balance_nano_usd: balance.openingNanoUsd },
    ...usage.rows.map((row) => ({
      line: "usage",
      host: row.host,
      customer_id: row.customerId,
      model: row.modelId,
      requests: row.requests,
      package_requests: row.packageRequests,
      prompt_tokens: row.promptTokens,
      cached_tokens: row.cachedTokens,
      completion_tokens: row.completionTokens,
      charged_nano_usd: row.chargedNanoUsd,
      cost_nano_usd: row.costNanoUsd,
      earned_nano_usd: row.earnedNanoUsd,
      usage_revenue_nano_usd: row.usageRevenueNanoUsd,
      usage_cost_nano_usd: row.usageCostNanoUsd,
      margin_nano_usd: row.marginNanoUsd,
    })),
    ...packages.rows.map((row) => ({
      line: "package",
      at: row.at,
      customer_id: row.customerId,
      package_id: row.packageId,
      package: row.name,
      price_nano_usd: row.priceNanoUsd,
      allotment_id: row.allotmentId,
    })),
    ...entries.rows.map((row) => ({
      line: "entry",
      at: row.at,
      entry_id: row.entryId,
      kind: row.kind,
      reason: row.reason,
      package_id: row.packageId,
      customer_id: row.counterpartId,
      amount_nano_usd: row.amountNanoUsd,
    })),
    // The reseller's own pay-as-you-go requests, as one sum.
    { line: "charges", requests: balance.charges, kind: "charge", amount_nano_usd: balance.sumsNanoUsd.charge },
    ...tax.map((row) => ({
      line: "tax",
      currency: row.currency,
      tax_country: row.tax?.country ?? null,
      tax_percent: row.tax && row.tax.rate / 1000,
      reverse_charge: row.tax && String(row.tax.reverseCharge),
      invoices: row.invoices,
      credit_notes: row.creditNotes,
      net_nano: row.netNano,
      tax_nano: row.taxNano,
      total_nano: row.totalNano,
    })),
    { line: closed ? "closing_balance" : "balance_so_far", at: to, balance_nano_usd: balance.closingNanoUsd },
  ];
  const rows = [[...COLUMNS], ...lines.map((line) => COLUMNS.map((column) => line[column] ?? null))];
  return rows.map(csvLine).join("");
}
