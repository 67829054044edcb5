import { expect } from "bun:test";
import type { Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";

/** What calls of the panel and of the API have stored, as the database has it. */

/** For what replicas write or read behind the requests: many times what an idle machine needs. */
export const BEHIND_MS_MAX = 60_000;

/** The audit log's entries about a row. */
export async function auditOf({ world }: Shop, subject: string, subjectId: string) {
  const rows = await world.sql`
    select action, actor_id::int as actor, request_id is not null as request, before, after from audit_entries
    where subject = ${subject} and subject_id = ${subjectId} order by id`;
  return rows.map((row) => ({ ...row }));
}

/** Waits until `count` refusals of an account are stored. */
export async function untilRefused({ world }: Shop, accountId: number, count: number): Promise<void> {
  await until(async () => {
    const [row] =
      await world.sql`select coalesce(sum(count), 0)::int as n from refusal_counts where account_id = ${accountId}`;
    return Number(row?.n) === count;
  });
}

/** This moment by the database's clock, as Unix time in whole ms. */
export async function databaseMs({ world }: Shop): Promise<number> {
  const [row] = await world.sql`select floor(extract(epoch from clock_timestamp()) * 1000)::float8 as ms`;
  return Number(row?.ms);
}

/** The instant lies between this moment, which `databaseMs` returned, and now. */
export async function expectSince(shop: Shop, instant: string, sinceMs: number): Promise<void> {
  expect(Date.parse(instant)).toBeGreaterThanOrEqual(sinceMs);
  expect(Date.parse(instant)).toBeLessThanOrEqual(await databaseMs(shop));
}
