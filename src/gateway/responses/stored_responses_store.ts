import { sql } from "drizzle-orm";
import type { Db, Tx } from "../../platform/db.ts";
import { storedResponses } from "../../platform/schema_responses.ts";

/** The SQL of stored responses. Everything is fenced by the account. Their day and their age are the database's. */

/** Rows that `deleteOldest` deletes in one call. */
export const DELETED_MAX = 200;

/** A response as it is stored: its parts are encrypted JSON. */
export type StoredRow = { id: string; input: Buffer; response: Buffer };

type Kept = { accountId: number; keepHours: number };

export async function insertResponse(
  { sql }: Db,
  { accountId, id, itemIds, input, response }: StoredRow & { accountId: number; itemIds: readonly string[] },
): Promise<void> {
  await sql`
    insert into stored_responses (account_id, id, created_at, item_ids, input, response)
    values (${accountId}, ${id}, ledger_now(), ${[...itemIds]}::text[], ${input}, ${response})`;
}

/** The responses of an account that have these ids, or whose output has an item with one of `itemIds`, and are not too old. */
export async function findResponses(
  { sql }: Db,
  { accountId, keepHours }: Kept,
  { ids, itemIds }: { ids: readonly string[]; itemIds: readonly string[] },
): Promise<StoredRow[]> {
  const rows = await sql<StoredRow[]>`
    select id, input, response from stored_responses
    where account_id = ${accountId} and created_at > ledger_now() - make_interval(hours => ${keepHours})
      and (id = any(${[...ids]}::uuid[]) or item_ids && ${[...itemIds]}::text[])`;
  return [...rows];
}

/** Returns whether there was one. */
export async function deleteResponse({ sql }: Db, { accountId, keepHours }: Kept, id: string): Promise<boolean> {
  const deleted = await sql`
    delete from stored_responses where account_id = ${accountId} and id = ${id}::text::uuid
      and created_at > ledger_now() - make_interval(hours => ${keepHours})
    returning 1`;
  return deleted.length > 0;
}

/**
 * Deletes the oldest responses of an account beyond a number, and beyond a sum of bytes: at most DELETED_MAX. Returns how many. One
 * caller at a time; another deletes none.
 */
export async function deleteOldest(
  { sql }: Db,
  { accountId, responsesMax, bytesMax }: { accountId: number; responsesMax: number; bytesMax: number },
): Promise<number> {
  const deleted = await sql`
    with turn as materialized (
      select pg_try_advisory_xact_lock(hashtextextended('tollgate.stored_responses', ${accountId})) as mine),
    aged as (
      select id, created_at, row_number() over newer as place,
        sum(octet_length(input) + octet_length(response)) over newer as bytes
      from stored_responses where account_id = ${accountId} and (select mine from turn) window newer as (order by id desc)),
    over as (
      select id, created_at from aged where place > ${responsesMax} or bytes > ${bytesMax} order by id limit ${DELETED_MAX})
    delete from stored_responses s using over o
    where s.account_id = ${accountId} and s.id = o.id and s.created_at = o.created_at
    returning 1`;
  return deleted.length;
}

/** Makes room for the coming days, and drops the days that are past. Called by a job. */
export async function turnResponseDays({ db }: { db: Db }, keepHours: number): Promise<void> {
  await db.sql`select turn_response_days(${keepHours})`;
}

/** Forgets all: another SECRET_KEY cannot read them. */
export async function forgetResponses(tx: Tx): Promise<void> {
  await tx.execute(sql`truncate ${storedResponses}`);
}
