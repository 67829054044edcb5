import { and, desc, eq, gt, sql } from "drizzle-orm";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { voucherGuesses } from "../platform/schema_vouchers.ts";
import { findSellerOf } from "./sellers_store.ts";

/** Wrong voucher codes that accounts have tried, so that their sellers see who guesses. Source: VOU-6. */

const KEPT_DAYS = 90;
const SHOWN_DAYS = 30;
/** People mistype: fewer wrong codes in a day are not shown. */
const SHOWN_WRONG_MIN = 5;
const SHOWN_MAX = 50;

/** Counts an attempt: `wrong` was looked up and not found; `refused` came after too many of them. */
export async function noteGuess(
  { db }: { db: Db },
  { accountId, kind }: { accountId: number; kind: "wrong" | "refused" },
): Promise<void> {
  const sellerId = await findSellerOf(db.orm, accountId);
  if (sellerId === null) return;
  const column = voucherGuesses[kind];
  await db.orm
    .insert(voucherGuesses)
    .values({ accountId, sellerId, day: sql`(clock_timestamp() at time zone 'UTC')::date`, [kind]: 1 })
    .onConflictDoUpdate({
      target: [voucherGuesses.accountId, voucherGuesses.day],
      set: { [kind]: sql`${column} + 1`, lastAt: sql`clock_timestamp()` },
    });
}

export type Guesses = {
  account: { accountId: number; name: string; email: string };
  /** The day in UTC, as 2030-01-31. */
  day: string;
  wrong: number;
  refused: number;
  lastAt: string;
};

/** Accounts that tried many wrong codes lately, the latest first. */
export async function listGuesses({ db }: { db: Db }, sellerId: number): Promise<Guesses[]> {
  const rows = await db.orm
    .select({
      account: { accountId: accounts.id, name: accounts.name, email: accounts.email },
      day: voucherGuesses.day,
      wrong: voucherGuesses.wrong,
      refused: voucherGuesses.refused,
      lastAt: voucherGuesses.lastAt,
    })
    .from(voucherGuesses)
    .innerJoin(accounts, eq(accounts.id, voucherGuesses.accountId))
    .where(
      and(
        eq(voucherGuesses.sellerId, sellerId),
        gt(voucherGuesses.lastAt, sql`clock_timestamp() - make_interval(days => ${SHOWN_DAYS})`),
        sql`${voucherGuesses.wrong} + ${voucherGuesses.refused} >= ${SHOWN_WRONG_MIN}`,
      ),
    )
    .orderBy(desc(voucherGuesses.lastAt))
    .limit(SHOWN_MAX);
  return rows.map((row) => ({ ...row, lastAt: toIso(row.lastAt) }));
}

/** Deletes counts older than KEPT_DAYS. */
export async function pruneGuesses({ db }: { db: Db }): Promise<void> {
  await db.orm
    .delete(voucherGuesses)
    .where(sql`${voucherGuesses.day} < (clock_timestamp() at time zone 'UTC')::date - ${KEPT_DAYS}::int`);
}
