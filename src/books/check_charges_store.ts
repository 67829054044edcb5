import { arrayOf } from "../platform/row_literals.ts";
import type { Violation } from "./invariants.ts";
import { type Slices, type SliceTx, slice } from "./short_transactions_store.ts";

/**
 * Charges whose balance transaction was not written in the same transaction, or has another amount. Folding puts such requests on
 * the list `book_due`; here each is compared with all transactions of its account, as the view `inv_charges` does.
 */

/** Requests that one check compares. So many at once are no accident: the others count as broken. */
const CHARGES_MAX = 200;
/** Requests that one check counts at most. */
const DUE_MAX = 10_000;

/** Requests on `book_due` whose charge differs from their transactions. Takes the others off the list. */
export async function brokenCharges(slices: Slices): Promise<Violation[]> {
  const due = await slice(slices, async (tx) => {
    const rows =
      await tx`select id::text, request_id::text from book_due where kind = 'charge' order by id, request_id limit ${DUE_MAX}`;
    return rows.map((row) => ({ accountId: String(row.id), requestId: String(row.request_id) }));
  });
  const broken = due.slice(CHARGES_MAX);
  const byAccount = Map.groupBy(due.slice(0, CHARGES_MAX), ({ accountId }) => accountId);
  for (const [accountId, requests] of byAccount) {
    const ids = requests.map(({ requestId }) => requestId);
    const charged = await chargedByTransactions(slices, accountId, ids);
    const brokenIds = await slice(slices, (tx) => brokenAmong(tx, ids, charged));
    const exactIds = ids.filter((id) => !brokenIds.has(id));
    await slice(
      slices,
      (tx) => tx`delete from book_due where kind = 'charge' and request_id = any(${arrayOf(exactIds)}::text::uuid[])`,
    );
    broken.push(...requests.filter(({ requestId }) => brokenIds.has(requestId)));
  }
  return broken.map(({ requestId }) => ({ name: "inv_charges", ref: requestId }));
}

/** What the transactions of an account charged for these requests, in nano-USD by request. */
async function chargedByTransactions(
  slices: Slices,
  accountId: string,
  requestIds: readonly string[],
): Promise<Map<string, bigint>> {
  const charged = new Map<string, bigint>();
  for (let after: string | undefined = "0"; after !== undefined; ) {
    const from: string = after;
    const rows = await slice(
      slices,
      (tx, rowsMax) => tx`
        with page as materialized (
          select id, request_id, kind, amount_nano_usd from balance_entries
          where account_id = ${accountId}::text::bigint and id > ${from}::text::bigint order by account_id, id limit ${rowsMax})
        select request_id::text, (-sum(amount_nano_usd))::text as nano_usd, (select max(id)::text from page) as last
        from page where kind = 'charge' and request_id = any(${arrayOf(requestIds)}::text::uuid[]) group by request_id
        union all select null, null, max(id)::text from page`,
    );
    for (const row of rows) {
      const id = String(row.request_id);
      if (row.request_id !== null) charged.set(id, (charged.get(id) ?? 0n) + BigInt(String(row.nano_usd)));
    }
    const last: unknown = rows.at(-1)?.last;
    after = typeof last === "string" ? last : undefined;
  }
  return charged;
}

/** The same conditions as in the view `inv_charges`. */
async function brokenAmong(tx: SliceTx, ids: readonly string[], charged: Map<string, bigint>): Promise<Set<string>> {
  const rows = await tx`
    select request_id::text, charged_nano_usd::text, outcome, mode from receipts
    where request_id = any(${arrayOf(ids)}::text::uuid[])`;
  const broken = rows.filter((row) => {
    const receipt = BigInt(String(row.charged_nano_usd));
    if (receipt !== (charged.get(String(row.request_id)) ?? 0n)) return true;
    return receipt > 0n && (row.outcome === "released" || row.mode === "package");
  });
  return new Set(broken.map((row) => String(row.request_id)));
}
