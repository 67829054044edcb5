import { arrayOf } from "../platform/row_literals.ts";
import { whenAllFolded } from "./folding_store.ts";
import { COUNTER_KINDS, type CounterKind, type CounterRef, invariantOf, type Violation } from "./invariants.ts";
import { type Slices, type SliceTx, slice } from "./short_transactions_store.ts";
import { ID_MIN } from "./usage_records_store.ts";

/**
 * Counters compared with the closed sums plus what replicas have drawn, for a few packages, keys or balances at a time: the same
 * as the views `inv_*` do, without reading receipts. Each comparison runs in a slice in which everything is folded.
 */

/** How many packages, and how many balances or key days, one slice compares. */
const PACKAGES_MAX = 500;
const OTHERS_MAX = 2_000;

/**
 * Compares the counters on `book_due`: those with rows folded since the last comparison, those that were broken then,
 * and those of which something is drawn. Takes the correct ones off the list. Throws FoldingBehindError.
 */
export async function compareDueCounters(slices: Slices): Promise<Violation[]> {
  await slice(
    slices,
    (tx) => tx`
      insert into book_due (kind, id, day)
      select distinct 'package', package_id, '-infinity'::date from escrows where package_id > 0 and (units > 0 or tokens > 0)
      union all select distinct 'key', key_id, day from escrows where key_id > 0 and units > 0
      union all select distinct 'account', account_id, '-infinity'::date from escrows where package_id = 0 and key_id = 0 and nano_usd > 0
      on conflict do nothing`,
  );
  const broken: Violation[] = [];
  for (const kind of COUNTER_KINDS) {
    const max = sizeOf(kind);
    for (let after: CounterRef | undefined = BEFORE_ALL; after; ) {
      const { id, day }: CounterRef = after;
      const found = await whenAllFolded(slices, async (tx) => {
        const due = toCounted(
          await tx`
            select id::text, day::text from book_due d
            where kind = ${kind} and (id, day) > (${id}::text::bigint, ${day}::text::date) order by d.id, d.day limit ${max}`,
        );
        return { due, broken: await compare(tx, kind, due) };
      });
      broken.push(...found.broken);
      after = found.due.length < max ? undefined : found.due.at(-1);
    }
  }
  return broken;
}

/**
 * Compares all counters, changed or not, a part in each check: from where the last sweep ended, up to `slicesMax`
 * slices of each kind. Throws FoldingBehindError.
 */
export async function sweepCounters(slices: Slices, slicesMax: number): Promise<Violation[]> {
  const broken: Violation[] = [];
  for (const kind of COUNTER_KINDS) {
    const max = sizeOf(kind);
    for (let done = 0, ended = false; done < slicesMax && !ended; done++) {
      const found = await whenAllFolded(slices, async (tx) => {
        const next = toCounted(await nextOf(tx, kind, max));
        const unequal = await compare(tx, kind, next);
        const last = next.length < max ? BEFORE_ALL : (next.at(-1) ?? BEFORE_ALL);
        await (kind === "key"
          ? tx`update book_closing set keys_to = ${last.id}::text::bigint, key_days_to = ${last.day}::text::date`
          : tx`update book_closing set ${tx(`${kind}s_to`)} = ${last.id}::text::bigint`);
        return { ended: next.length < max, broken: unequal };
      });
      broken.push(...found.broken);
      ended = found.ended;
    }
  }
  return broken;
}

/** Makes every sweep begin at the start. */
export async function restartSweeps(slices: Slices): Promise<void> {
  await slice(
    slices,
    (tx) => tx`
      update book_closing set receipts_to = -1, entries_to = -1, packages_to = 0, accounts_to = 0, keys_to = 0,
        key_days_to = '-infinity', usage_to = 0, usage_days_to = 'infinity', prices_to = ${ID_MIN}::text::uuid`,
  );
}

const BEFORE_ALL: CounterRef = { id: "0", day: "-infinity" };
const sizeOf = (kind: CounterKind): number => (kind === "package" ? PACKAGES_MAX : OTHERS_MAX);

/** The next counters of the sweep, from counters and from sums: one without the other is broken too. */
function nextOf(tx: SliceTx, kind: CounterKind, max: number) {
  const after = tx`(select ${tx(kind === "key" ? "keys_to" : `${kind}s_to`)} from book_closing)`;
  if (kind === "account")
    return tx`
      select account_id::text as id, '-infinity' as day from balances where account_id > ${after} order by account_id limit ${max}`;
  if (kind === "package")
    return tx`
      select id::text, '-infinity' as day from (
        (select id from packages where id > ${after} order by id limit ${max})
        union (select distinct package_id from package_days where package_id > ${after} order by 1 limit ${max})
        union (select distinct id from book_sums where kind = 'package' and id > ${after} order by 1 limit ${max})) ids
      order by ids.id limit ${max}`;
  const dayAfter = tx`(select key_days_to from book_closing)`;
  return tx`
    select id::text, day::text from (
      (select key_id as id, day from key_days where (key_id, day) > (${after}, ${dayAfter}) order by key_id, day limit ${max})
      union (select id, day from book_sums where kind = 'key' and (id, day) > (${after}, ${dayAfter}) order by id, day limit ${max})) ids
    order by ids.id, ids.day limit ${max}`;
}

/** Compares counters; leaves exactly the broken ones of them on `book_due`. */
async function compare(tx: SliceTx, kind: CounterKind, counted: readonly CounterRef[]): Promise<Violation[]> {
  if (counted.length === 0) return [];
  const ids = counted.map(({ id }) => id);
  const days = counted.map(({ day }) => day);
  const broken =
    kind === "package"
      ? await brokenPackages(tx, ids)
      : kind === "account"
        ? await brokenAccounts(tx, ids)
        : await brokenKeyDays(tx, counted);
  await tx`
    delete from book_due d using unnest(${arrayOf(ids)}::text::bigint[], ${arrayOf(days)}::text::date[]) as c(id, day)
    where d.kind = ${kind} and d.id = c.id and d.day = c.day`;
  const unequal = broken.flatMap(({ of }) => of ?? []);
  await tx`
    insert into book_due (kind, id, day)
    select distinct ${kind}, id, day
    from unnest(${arrayOf(unequal.map(({ id }) => id))}::text::bigint[], ${arrayOf(unequal.map(({ day }) => day))}::text::date[]) as i(id, day)
    on conflict do nothing`;
  return broken;
}

/** Units, days and bounds of these packages. */
async function brokenPackages(tx: SliceTx, ids: readonly string[]): Promise<Violation[]> {
  const rows = await tx`
    with asked as materialized (select unnest(${arrayOf(ids)}::text::bigint[]) as id),
    held as materialized (
      select package_id, day, sum(units) as units, sum(tokens) as tokens, sum(used_tokens) as used_tokens
      from escrows where package_id in (select id from asked) group by 1, 2),
    used as materialized (
      select s.id as package_id, s.day, s.units, s.tokens from asked join book_sums s on s.kind = 'package' and s.id = asked.id),
    days as materialized (
      select d.package_id, d.day, d.units_taken from asked join package_days d on d.package_id = asked.id)
    select 'inv_package_units' as name, p.id::text as ref, p.id::text as id from asked join packages p on p.id = asked.id
      left join (select package_id, sum(units) as units, sum(tokens) as tokens, sum(used_tokens) as used_tokens from held group by 1) h on h.package_id = p.id
      left join (select package_id, sum(units) as units, sum(tokens) as tokens from used group by 1) u on u.package_id = p.id
    where p.units_taken <> coalesce(h.units, 0) + coalesce(u.units, 0)
      or p.tokens_taken + coalesce(h.used_tokens, 0) <> coalesce(h.tokens, 0) + coalesce(u.tokens, 0)
    union all
    select 'inv_package_days', concat_ws('/', package_id, day), package_id::text from (
      select package_id, day, units_taken as taken, 0 as units from days
      union all select package_id, day, 0, units from held
      union all select package_id, day, 0, units from used) both_sides
    group by package_id, day having sum(taken) <> sum(units)
    union all
    select 'inv_bounds', concat_ws('/', what, id, day), id::text from inv_bounds
    where what <> 'balance' and id = any(${arrayOf(ids)}::text::bigint[])`;
  return rows.map((row) => toBroken(row, "package"));
}

/** The counters of these keys on these days. */
async function brokenKeyDays(tx: SliceTx, keyDays: readonly CounterRef[]): Promise<Violation[]> {
  const rows = await tx`
    with asked as materialized (
      select * from unnest(${arrayOf(keyDays.map(({ id }) => id))}::text::bigint[], ${arrayOf(keyDays.map(({ day }) => day))}::text::date[])
        as a(key_id, day))
    select 'inv_key_days' as name, concat_ws('/', key_id, day) as ref, key_id::text as id, day::text as day from (
      select d.key_id, d.day, d.units_taken as taken, d.taken_nano_usd as taken_nano, 0 as units, 0 as nano
      from asked join key_days d on d.key_id = asked.key_id and d.day = asked.day
      union all select h.key_id, h.day, 0, 0, h.units, h.nano_usd
      from escrows h join asked on asked.key_id = h.key_id and asked.day = h.day
      union all select s.id, s.day, 0, 0, s.units, s.nano_usd
      from asked join book_sums s on s.kind = 'key' and s.id = asked.key_id and s.day = asked.day) both_sides
    group by key_id, day having sum(taken) <> sum(units) or sum(taken_nano) <> sum(nano)`;
  return rows.map((row) => toBroken(row, "key"));
}

/** The balances of these accounts: sum of transactions, reserved amount, bounds. */
async function brokenAccounts(tx: SliceTx, ids: readonly string[]): Promise<Violation[]> {
  const rows = await tx`
    with asked as materialized (select unnest(${arrayOf(ids)}::text::bigint[]) as id)
    select 'inv_balance_entries' as name, b.account_id::text as ref, b.account_id::text as id
    from asked join balances b on b.account_id = asked.id
      left join book_sums s on s.kind = 'account' and s.id = b.account_id and s.day = '-infinity'
    where b.balance_nano_usd <> coalesce(s.nano_usd, 0)
    union all
    select 'inv_balance_held', account_id::text, account_id::text from inv_balance_held
    where account_id = any(${arrayOf(ids)}::text::bigint[])
    union all
    select 'inv_bounds', concat_ws('/', what, id), id::text from inv_bounds
    where what = 'balance' and id = any(${arrayOf(ids)}::text::bigint[])`;
  return rows.map((row) => toBroken(row, "account"));
}

/** Allotments whose used pieces differ from the packages taken from them. */
export async function brokenAllotments(slices: Slices): Promise<Violation[]> {
  const broken: Violation[] = [];
  for (let after: string | null = "0"; after !== null; ) {
    const from: string = after;
    const found = await slice(
      slices,
      (tx, rows) => tx`
        with page as materialized (
          select id from allotments where id > ${from}::text::bigint order by id limit ${Math.ceil(rows / 50)})
        select (select max(id)::text from page) as last, coalesce((
          select json_agg(id::text) from inv_allotments
          where id > ${from}::text::bigint and id <= (select max(id) from page)), '[]') as broken`,
    );
    after = found[0]?.last ?? null;
    for (const ref of toList(found[0]?.broken)) broken.push({ name: "inv_allotments", ref: String(ref) });
  }
  return broken;
}

function toBroken(row: Record<string, unknown>, kind: CounterKind): Violation {
  const of = { kind, id: String(row.id), day: String(row.day ?? BEFORE_ALL.day) };
  const invariant = invariantOf(String(row.name));
  if (!invariant) throw new Error(`there is no invariant ${row.name}`);
  return { name: invariant.name, ref: String(row.ref), of };
}

function toCounted(rows: readonly Record<string, unknown>[]): CounterRef[] {
  return rows.map(({ id, day }) => ({ id: String(id), day: String(day) }));
}

function toList(value: unknown): unknown[] {
  if (!Array.isArray(value)) throw new Error("expected a JSON array");
  return value;
}
