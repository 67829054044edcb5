import type { Statement } from "../../books/statement_store.ts";
import { type Cell, csvLine } from "./csv.ts";

/**
 * A statement as one table: UTC, nano-USD, ids in place of names, so that a closed month gives the same bytes for ever.
 * Each kind of line fills its own columns, and no amount stands in two lines of one column that would be summed.
 */

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
  "package_id",
  "package",
  "price_nano_usd",
  "allotment_id",
  "entry_id",
  "kind",
  "reason",
  "amount_nano_usd",
  "balance_nano_usd",
] as const;

type Line = Partial<Record<(typeof COLUMNS)[number], Cell>>;

export function statementCsv({ from, to, closed, balance, usage, packages, entries }: Statement): string {
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
    // The reseller's own requests by balance: one sum.
    { line: "charges", requests: balance.charges, kind: "charge", amount_nano_usd: balance.sumsNanoUsd.charge },
    { line: closed ? "closing_balance" : "balance_so_far", at: to, balance_nano_usd: balance.closingNanoUsd },
  ];
  const rows = [[...COLUMNS], ...lines.map((line) => COLUMNS.map((column) => line[column] ?? null))];
  return rows.map(csvLine).join("");
}
