import type { World } from "../test/world.ts";

/**
 * The data of the history bench: 30 days of 2,000 accounts with 32 keys each, one account with a fifth of all records,
 * one
 * reseller with half of them. Records are random; results are compared with a recount.
 */

export const RESELLER_HOST = "ai.reseller.example";
const ACCOUNTS = 2_000;
const KEYS = 32;
const DAYS = 30;
/** Share of the large account; its reseller's other customers have the rest of a half. */
const BIG_SHARE = 0.2;
/** Records per transaction, as many as the ledger may write, and the number of concurrent writers. */
const AT_ONCE = 500;
const WRITERS = 2;
const SAID_EVERY_MS = 10_000;

/** Accounts, keys and balances; a table `people` says who they are. */
export async function addPeople(world: World) {
  const { sql } = world;
  const reseller = await world.addReseller();
  await sql`insert into hosts (host, reseller_id, status) values (${RESELLER_HOST}, ${reseller.accountId}, 'active')`;
  await sql`create table people (who int primary key, account_id bigint not null, keys bigint[])`;
  await sql`
    with made as (
      insert into accounts (role, reseller_id, email, name)
      select 'customer', case when n = 0 or n % 8 < 3 then ${reseller.accountId}::bigint end, 'n' || n || '@example.com', 'n' || n
      from generate_series(0, ${ACCOUNTS - 1}::int) as n returning id, name)
    insert into people select substr(name, 2)::int, id from made`;
  await sql`insert into balances (account_id) select account_id from people`;
  await sql`
    insert into keys (account_id, name, digest, prefix, suffix, mode)
    select account_id, 'key' || n, sha256((account_id || '/' || n)::text::bytea), 'sk-', 'none', case when n % 4 = 0 then 'payg' else 'package' end
    from people, generate_series(1, ${KEYS}::int) as n`;
  const [row] = await sql`select account_id from people where who = 0`;
  const big = { accountId: Number(row?.account_id) };
  await world.givePackage(big, { dailyLimit: 1_000_000, days: 30 });
  const { secret } = await world.addKey(big);
  await sql`update people set keys = array(select id from keys where keys.account_id = people.account_id order by id)`;
  return { resellerId: reseller.accountId, bigId: big.accountId, secret };
}

/** Writes the records, in the order of their time, without indexes; and makes those again. */
export async function fillHistory(world: World, records: number): Promise<void> {
  const { sql } = world;
  const startMs = performance.now();
  const [from] =
    await sql`select clock_timestamp()::text as now, (clock_timestamp() - interval '40 days')::text as months_from`;
  await world.setClock(String(from?.months_from));
  await sql`select make_receipt_months(3)`;
  await world.setClock(null);
  const indexes = await sql`
    select indexname as name, indexdef as definition from pg_indexes
    where tablename in ('receipts', 'balance_entries') and indexname not like '%\\_pkey'`;
  for (const { name } of indexes) await sql`drop index ${sql(name)}`;
  let next = 0;
  let saidMs = performance.now();
  await Promise.all(
    Array.from({ length: WRITERS }, async () => {
      while (next < records) {
        const first = next;
        next += AT_ONCE;
        await write(sql, { now: String(from?.now), first, upto: Math.min(first + AT_ONCE, records), records });
        if (performance.now() - saidMs < SAID_EVERY_MS) continue;
        saidMs = performance.now();
        console.log(`filling: ${next} of ${records}, ${seconds(startMs)} s`);
      }
    }),
  );
  await sql.begin(async (tx) => {
    await tx`set local maintenance_work_mem = '256MB'`;
    for (const { name, definition } of indexes) {
      await tx.unsafe(String(definition).replace(" ON ONLY ", " ON "));
      console.log(`filling: index ${name}, ${seconds(startMs)} s`);
    }
  });
  await sql`
    insert into balance_entries (account_id, amount_nano_usd, kind)
    select account_id, 1000000000 - sum(amount_nano_usd), 'top_up' from balance_entries group by 1`;
  await sql`
    update balances b set balance_nano_usd = e.nano from (
      select account_id, sum(amount_nano_usd) as nano from balance_entries group by 1) e where e.account_id = b.account_id`;
  await sql`analyze`;
  console.log(`filled: ${records} records in ${seconds(startMs)} s`);
}

/** Some accounts and keys have far more than others. */
type Piece = { now: string; first: number; upto: number; records: number };

async function write(sql: World["sql"], { now, first, upto, records }: Piece): Promise<void> {
  await sql`
    with drawn as materialized (
      select n, ${now}::text::timestamptz - interval '1 minute' - (${records}::float8 - n) / ${records}::float8 * interval '1 day' * ${DAYS}::int as at,
        case when random() < ${BIG_SHARE}::float8 then 0 else 1 + floor(power(random(), 2) * ${ACCOUNTS - 1}::int)::int end as who,
        random() as which, random() as how, random() as long, random() as dear
      from generate_series(${first}::int, ${upto - 1}::int) as n
    ), sessions as (
      -- A large account uses all its keys all the time; others one after the other, some for hours.
      select *, case when who = 0 then 1 + floor(power(which, 2) * ${KEYS}::int)::int
        else 1 + abs(hashint8extended(who + floor(extract(epoch from at) / 7200)::bigint * 4001, 0) % ${KEYS}::int)::int end as key
      from drawn
    ), asked as (
      -- A key is an application: it has a host, a mode, and two models.
      select s.*, account_id, keys[key] as key_id, key % 4 = 0 as by_balance, (key * 5 + case when dear < 0.8 then 0 else 1 end) % 12 as model,
        how < 0.97 as settles, case when long < 0.001 then long * 1000000 else long * 20 end * interval '1 second' as took
      from sessions s join people using (who)
    ), made as (
      insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd, charged_nano_usd,
        shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
      select (left(request_id_floor(at)::text, 14) || '7000-8000-' || lpad(n::text, 12, '0'))::uuid, account_id, key_id, 'model-' || model,
        case when key % 2 = 0 then 'api.example.com' else ${RESELLER_HOST}::text end, case when by_balance then 'payg' else 'package' end,
        case when settles then 'settled' else 'released' end, case when settles then 'complete' else 'client_left' end, 0, 0,
        case when by_balance and settles then 1 + floor(dear * 2000000) else 0 end, case when how < 0.0005 then 1000 else 0 end,
        floor(dear * 2000)::int, 0, floor(long * 800)::int, 0, false, at, at + took
      from asked
      returning account_id, request_id, charged_nano_usd, finished_at
    )
    insert into balance_entries (account_id, amount_nano_usd, kind, request_id, created_at)
    select account_id, -charged_nano_usd, 'charge', request_id, finished_at from made where charged_nano_usd > 0`;
}

/** Since a moment of `performance.now()`, in whole seconds. */
export const seconds = (startMs: number): string => ((performance.now() - startMs) / 1000).toFixed(0);
