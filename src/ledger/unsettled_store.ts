import { sql } from "drizzle-orm";
import { lockAccounts } from "../accounts/locks_store.ts";
import type { Db } from "../platform/db.ts";

/**
 * The state of a request whose replica may have died, for a client that repeats it. "over": it costs nothing and never
 * will. A request that the reaper released is closed for good: a settlement that still arrives is no longer accepted.
 */
export async function closeUnsettled(
  { db }: { db: Db },
  { accountId, requestId }: { accountId: number; requestId: string },
): Promise<"running" | "settled" | "over"> {
  return await db.orm.transaction(async (tx) => {
    await lockAccounts(tx, [accountId]);
    const rows = await tx.execute(sql`
      select outcome from receipts where request_id = ${requestId}::text::uuid and account_id = ${accountId}
      union all select 'running' from holds where request_id = ${requestId}::text::uuid and account_id = ${accountId}`);
    const status = rows[0]?.outcome;
    if (status === "running" || status === "settled") return status;
    await tx.execute(sql`
      update receipts set reason = 'ended_by_us'
      where request_id = ${requestId}::text::uuid and account_id = ${accountId} and outcome = 'released' and reason = 'lease_ended'`);
    return "over";
  });
}
