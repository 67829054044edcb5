import type { Broken, Counted, Kind } from "./comparing_store.ts";
import { type Slices, type SliceTx, slice } from "./slices_store.ts";

/**
 * What is counted from the rows themselves, account by account, in slices: before anything is called broken, and for charges
 * that were not written in one transaction with their entries.
 */

/** Requests whose charges one check looks at; so many at once are no accident, and the others count as broken. */
const CHARGES_MAX = 200;
/** Of those, so many are counted at most. */
const DUE_MAX = 10_000;
/** A package's requests began after it did, but for the difference of clocks. */
const CLOCKS_APART = "1 day";
const ID_MIN = "00000000-0000-0000-0000-000000000000";

/**
 * Whether the closed sums of a package, of a key's day or of an account are those of its rows. When they are not, the rows
 * were changed after they had been folded.
 */
export async function sumsAreExact(slices: Slices, kind: Kind, of: Counted): Promise<boolean> {
  const closed = await slice(slices, async (tx) => {
    const [row] = await tx`
      select folded::text as folded, ${accountOf(tx, kind, of)} as account_id, ${firstOf(tx, kind, of)} as first,
        s.units::text, s.tokens::text, s.nano_usd::text
      from book_closing, (
        select coalesce(sum(units), 0) as units, coalesce(sum(tokens), 0) as tokens, coalesce(sum(nano_usd), 0) as nano_usd
        from book_sums where kind = ${kind} and id = ${of.id}::text::bigint and (kind <> 'key' or day = ${of.day}::text::date)) s`;
    return row ?? {};
  });
  const left = toSums(closed);
  const accountId = String(closed.account_id);
  for (let after: string | undefined = String(closed.first); after !== undefined; ) {
    const from: string = after;
    const page = await slice(slices, async (tx, rows) => {
      const folded = tx`pg_visible_in_snapshot(written_in, ${String(closed.folded)}::text::pg_snapshot)`;
      const [row] = await (kind === "account"
        ? tx`
          with page as materialized (
            select id, amount_nano_usd, written_in from balance_entries
            where account_id = ${accountId}::text::bigint and id > ${from}::text::bigint order by account_id, id limit ${rows})
          select (select max(id)::text from page) as last, '0' as units, '0' as tokens,
            coalesce(sum(amount_nano_usd), 0)::text as nano_usd
          from page where ${folded}`
        : tx`
          with page as materialized (
            select request_id, package_id, units, charged_tokens, charged_nano_usd, key_id, key_day, written_in from receipts
            where outcome = 'settled' and account_id = ${accountId}::text::bigint
              and (account_id, request_id) > (${accountId}::text::bigint, ${from}::text::uuid) and request_id > ${from}::text::uuid
            order by account_id, request_id limit ${rows})
          select (select request_id::text from page order by page.request_id desc limit 1) as last, ${columnsOf(tx, kind)}
          from page where ${folded} and ${
            kind === "package"
              ? tx`package_id = ${of.id}::text::bigint`
              : tx`key_id = ${of.id}::text::bigint and key_day = ${of.day}::text::date`
          }`);
      return row ?? {};
    });
    const found = toSums(page);
    for (const name of ["units", "tokens", "nanoUsd"] as const) left[name] -= found[name];
    after = page.last === null ? undefined : String(page.last);
  }
  return left.units === 0n && left.tokens === 0n && left.nanoUsd === 0n;
}

function accountOf(tx: SliceTx, kind: Kind, { id }: Counted) {
  if (kind === "account") return tx`${id}::text`;
  return kind === "package"
    ? tx`(select account_id::text from packages where id = ${id}::text::bigint)`
    : tx`(select account_id::text from keys where id = ${id}::text::bigint)`;
}

/** Where the walk begins: nothing of it lies before. */
function firstOf(tx: SliceTx, kind: Kind, { id }: Counted) {
  if (kind === "account") return tx`'0'`;
  if (kind === "key") return tx`${ID_MIN}::text`;
  return tx`coalesce((
    select request_id_floor(least(starts_at, created_at) - ${CLOCKS_APART}::text::interval)::text from packages
    where id = ${id}::text::bigint), ${ID_MIN})`;
}

function columnsOf(tx: SliceTx, kind: Kind) {
  return kind === "package"
    ? tx`coalesce(sum(units), 0)::text as units, coalesce(sum(charged_tokens), 0)::text as tokens, '0' as nano_usd`
    : tx`count(*)::text as units, '0' as tokens, coalesce(sum(charged_nano_usd), 0)::text as nano_usd`;
}

function toSums(row: Record<string, unknown>): { units: bigint; tokens: bigint; nanoUsd: bigint } {
  return {
    units: BigInt(String(row.units)),
    tokens: BigInt(String(row.tokens)),
    nanoUsd: BigInt(String(row.nano_usd)),
  };
}

/** Requests that the closing noted and whose charge is not what their entries took. What is well is taken off the list. */
export async function brokenCharges(slices: Slices): Promise<Broken[]> {
  const due = await slice(slices, async (tx) => {
    const rows =
      await tx`select id::text, request_id::text from book_due where kind = 'charge' order by id, request_id limit ${DUE_MAX}`;
    return rows.map((row) => ({ accountId: String(row.id), requestId: String(row.request_id) }));
  });
  const broken = due.slice(CHARGES_MAX);
  const accounts = Map.groupBy(due.slice(0, CHARGES_MAX), ({ accountId }) => accountId);
  for (const [accountId, requests] of accounts) {
    const ids = requests.map(({ requestId }) => requestId);
    const taken = await entriesOf(slices, accountId, ids);
    const ill = await slice(slices, (tx) => oddOf(tx, ids, taken));
    const well = ids.filter((id) => !ill.has(id));
    await slice(
      slices,
      (tx) => tx`delete from book_due where kind = 'charge' and request_id = any(${toArray(well)}::text::uuid[])`,
    );
    broken.push(...requests.filter(({ requestId }) => ill.has(requestId)));
  }
  return broken.map(({ requestId }) => ({ name: "inv_charges", ref: requestId }));
}

/** What the entries of an account took for these requests, in nano-USD. */
async function entriesOf(
  slices: Slices,
  accountId: string,
  requestIds: readonly string[],
): Promise<Map<string, bigint>> {
  const taken = new Map<string, bigint>();
  for (let after: string | undefined = "0"; after !== undefined; ) {
    const from: string = after;
    const rows = await slice(
      slices,
      (tx, rowsMax) => tx`
        with page as materialized (
          select id, request_id, kind, amount_nano_usd from balance_entries
          where account_id = ${accountId}::text::bigint and id > ${from}::text::bigint order by account_id, id limit ${rowsMax})
        select request_id::text, (-sum(amount_nano_usd))::text as nano_usd, (select max(id)::text from page) as last
        from page where kind = 'charge' and request_id = any(${toArray(requestIds)}::text::uuid[]) group by request_id
        union all select null, null, max(id)::text from page`,
    );
    for (const row of rows) {
      const id = String(row.request_id);
      if (row.request_id !== null) taken.set(id, (taken.get(id) ?? 0n) + BigInt(String(row.nano_usd)));
    }
    const last: unknown = rows.at(-1)?.last;
    after = typeof last === "string" ? last : undefined;
  }
  return taken;
}

/** As the view `inv_charges` has it. */
async function oddOf(tx: SliceTx, ids: readonly string[], taken: Map<string, bigint>): Promise<Set<string>> {
  const rows = await tx`
    select request_id::text, charged_nano_usd::text, outcome, mode from receipts
    where request_id = any(${toArray(ids)}::text::uuid[])`;
  const odd = rows.filter((row) => {
    const charged = BigInt(String(row.charged_nano_usd));
    if (charged !== (taken.get(String(row.request_id)) ?? 0n)) return true;
    return charged > 0n && (row.outcome === "released" || row.mode === "package");
  });
  return new Set(odd.map((row) => String(row.request_id)));
}

const toArray = (values: readonly string[]): string => `{${values.join(",")}}`;
