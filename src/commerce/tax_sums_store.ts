import type { Sql } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";

/** The tax of a seller's invoices in a period, for its statement. Source: TAX-6. */

const READ_MS_MAX = 2_000;

/** What was invoiced in a currency at a rate, less credit notes, in billionths of the currency. */
export type TaxLine = {
  currency: string;
  /** null: no tax was charged, and none is known. */
  tax: { country: string /** Thousandths of a percent. */; rate: number; reverseCharge: boolean } | null;
  invoices: number;
  creditNotes: number;
  netNano: bigint;
  taxNano: bigint;
  totalNano: bigint;
};

/** Invoices and credit notes that a seller issued from one moment to before another. An invoice that takes a credit note back counts too. */
export async function taxOf(
  sql: Sql,
  { sellerId, from, to }: { sellerId: number; from: string; to: string },
): Promise<TaxLine[]> {
  const rows = await sql.begin(async (tx) => {
    await tx`select set_config('statement_timeout', ${String(READ_MS_MAX)}, true)`;
    return await tx`
      select currency, tax ->> 'country' as country, (tax ->> 'rate')::int as rate, (tax ->> 'reverseCharge')::boolean as reverse_charge,
        count(*) filter (where kind = 'invoice')::int as invoices, count(*) filter (where kind = 'credit_note')::int as credit_notes,
        sum(sign * (total_nano - tax_nano))::text as net, sum(sign * tax_nano)::text as tax, sum(sign * total_nano)::text as total
      from invoices cross join lateral (select case kind when 'invoice' then 1 else -1 end as sign) as signed
      where seller_id = ${sellerId} and issued_at >= ${toIso(from)}::text::timestamptz and issued_at < ${toIso(to)}::text::timestamptz
      group by 1, 2, 3, 4 order by currency, country nulls last, rate, reverse_charge`;
  });
  return rows.map((row) => ({
    currency: String(row.currency),
    tax:
      row.country === null
        ? null
        : { country: String(row.country), rate: Number(row.rate), reverseCharge: Boolean(row.reverse_charge) },
    invoices: Number(row.invoices),
    creditNotes: Number(row.credit_notes),
    netNano: BigInt(String(row.net)),
    taxNano: BigInt(String(row.tax)),
    totalNano: BigInt(String(row.total)),
  }));
}
