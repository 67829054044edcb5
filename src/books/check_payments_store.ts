import type { Violation } from "./invariants.ts";
import { type Slices, slice } from "./short_transactions_store.ts";

/** Each order costs a few look-ups by index: this fraction of the rows that a slice may read. */
const READS_AN_ORDER = 50;

/** Orders that disagree with their payments, their refunds, or what fulfilled them. Source: BUY-9. */
export async function brokenPayments(slices: Slices): Promise<Violation[]> {
  const broken: Violation[] = [];
  for (let after: string | null = "0"; after !== null; ) {
    const from: string = after;
    const [found] = await slice(
      slices,
      (tx, rows) => tx`
        with page as materialized (
          select o as placed, o.id from orders o where o.id > ${from}::text::bigint order by o.id limit ${Math.ceil(rows / READS_AN_ORDER)})
        select (select max(id)::text from page) as last,
          coalesce((select json_agg(id::text) from page where order_problem(placed) is not null), '[]') as broken`,
    );
    after = typeof found?.last === "string" ? found.last : null;
    const refs: unknown = found?.broken;
    if (!Array.isArray(refs)) throw new Error("expected a JSON array");
    for (const ref of refs) broken.push({ name: "inv_payments", ref: String(ref) });
  }
  return broken;
}
