import { and, eq, isNull, sql } from "drizzle-orm";
import { Refusal } from "../errors.ts";
import type { Db, Tx } from "../platform/db.ts";
import { inSlices } from "../platform/prune.ts";
import { apiWrites } from "../platform/schema_service.ts";

/**
 * Writes with an Idempotency-Key. A write is claimed before it is made, marked in its own transaction, and its answer is kept. So a write
 * whose replica died is made again if it was not committed, and never if it was. Source: MGT-5.
 */

const KEPT_HOURS = 24;
/** Longer than a write takes. If its replica has died, it can be made after that. */
const CLAIM_SECONDS = 120;
/** Rows deleted in one statement. */
const PRUNE_ROWS = 5_000;

export type WriteRef = { accountId: number; writeKey: string; requestId: string };
export type Claim =
  | { state: "claimed" | "running" | "other" | "lost" }
  /** Encrypted, as it was kept. */
  | { state: "answered"; answer: Buffer };

/**
 * Claims a write. `running`: another request makes it now. `other`: the key was used for another one. `answered`: it was made, `lost`: and its
 * answer was not kept.
 */
export async function claimWrite(
  { db }: { db: Db },
  { bodyDigest, ...ref }: WriteRef & { bodyDigest: Buffer },
): Promise<Claim> {
  const claimedUntil = sql`clock_timestamp() + make_interval(secs => ${CLAIM_SECONDS})`;
  const claimed = await db.orm
    .insert(apiWrites)
    .values({ ...ref, bodyDigest, claimedUntil })
    .onConflictDoUpdate({
      target: [apiWrites.accountId, apiWrites.writeKey],
      set: { requestId: ref.requestId, claimedUntil },
      setWhere: sql`api_writes.committed_at is null and api_writes.claimed_until < clock_timestamp()
        and api_writes.body_digest = excluded.body_digest`,
    })
    .returning({ requestId: apiWrites.requestId });
  if (claimed.length > 0) return { state: "claimed" };
  const [row] = await db.orm.select().from(apiWrites).where(isWrite(ref));
  // Deleted meanwhile: the write that was running has failed.
  if (row === undefined) return { state: "running" };
  if (!bodyDigest.equals(row.bodyDigest)) return { state: "other" };
  if (row.answerCiphertext !== null) return { state: "answered", answer: row.answerCiphertext };
  return { state: row.committedAt === null ? "running" : "lost" };
}

/** Marks a write as made, in its transaction. Throws idempotency_conflict if another request has claimed it meanwhile. */
export async function markWrite(tx: Tx, { requestId, ...ref }: WriteRef): Promise<void> {
  const marked = await tx
    .update(apiWrites)
    .set({ committedAt: sql`coalesce(${apiWrites.committedAt}, clock_timestamp())` })
    .where(and(isWrite(ref), eq(apiWrites.requestId, requestId)))
    .returning({ requestId: apiWrites.requestId });
  if (marked.length === 0) throw new Refusal("idempotency_conflict");
}

/** Keeps the answer to a write that was made. */
export async function keepAnswer(
  { db }: { db: Db },
  { requestId, ...ref }: WriteRef,
  answerCiphertext: Buffer,
): Promise<void> {
  await db.orm
    .update(apiWrites)
    .set({ answerCiphertext, committedAt: sql`coalesce(${apiWrites.committedAt}, clock_timestamp())` })
    .where(and(isWrite(ref), eq(apiWrites.requestId, requestId)));
}

/** Forgets a write that failed, so that it can be made again. False: a part of it is committed. */
export async function forgetWrite({ db }: { db: Db }, { requestId, ...ref }: WriteRef): Promise<boolean> {
  const forgotten = await db.orm
    .delete(apiWrites)
    .where(and(isWrite(ref), eq(apiWrites.requestId, requestId), isNull(apiWrites.committedAt)))
    .returning({ requestId: apiWrites.requestId });
  return forgotten.length > 0;
}

/** Deletes writes older than KEPT_HOURS; returns how many. */
export async function pruneWrites({ db }: { db: Db }): Promise<number> {
  return await inSlices(PRUNE_ROWS, async () => {
    const deleted = await db.orm.execute(sql`
      delete from api_writes using (
        select account_id, write_key from api_writes where created_at < clock_timestamp() - make_interval(hours => ${KEPT_HOURS})
        order by created_at limit ${PRUNE_ROWS}) as old
      where api_writes.account_id = old.account_id and api_writes.write_key = old.write_key
      returning 1`);
    return deleted.length;
  });
}

function isWrite({ accountId, writeKey }: Pick<WriteRef, "accountId" | "writeKey">) {
  return and(eq(apiWrites.accountId, accountId), eq(apiWrites.writeKey, writeKey));
}
