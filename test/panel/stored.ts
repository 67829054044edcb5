import type { Shop } from "../gateway/shop.ts";

/** What calls of the panel and of the API have stored, as the database has it. */

/** Refusals are written every five seconds. */
const WRITTEN_MS_MAX = 7_000;

/** The audit log's entries about a row. */
export async function auditOf({ world }: Shop, subject: string, subjectId: string) {
  const rows = await world.sql`
    select action, actor_id::int as actor, request_id is not null as request, before, after from audit_entries
    where subject = ${subject} and subject_id = ${subjectId} order by id`;
  return rows.map((row) => ({ ...row }));
}

/** Waits until `count` refusals of an account are stored. */
export async function untilRefused({ world }: Shop, accountId: number, count: number): Promise<void> {
  const until = performance.now() + WRITTEN_MS_MAX;
  let written = 0;
  while (performance.now() < until) {
    const [row] =
      await world.sql`select coalesce(sum(count), 0)::int as n from refusal_counts where account_id = ${accountId}`;
    written = Number(row?.n);
    if (written === count) return;
    await Bun.sleep(100);
  }
  throw new Error(`${written} refusals are written, not ${count}`);
}
