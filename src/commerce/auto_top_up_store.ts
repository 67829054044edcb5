import { eq, type SQL, sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import { lockAccountRow, lockAccounts } from "../accounts/locks_store.ts";
import { InputError, Refusal } from "../errors.ts";
import { AUTO_TOP_UP_NANO_USD_MIN, CENT_NANO_USD, MONEY_NANO_USD_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { autoTopUps } from "../platform/schema_renewals.ts";
import { addCharge } from "./card_charges_store.ts";
import { cardIn, requireChargeable } from "./cards_store.ts";
import { pauseTopUp } from "./order_ends_store.ts";
import { type AutomaticOrder, placeAutomatic, topUpCost } from "./orders_store.ts";
import { OPERATOR, sellerIdOf } from "./sellers_store.ts";

/**
 * Automatic top-ups: when a balance falls below an amount, an order is placed that `stripe_charges.ts` charges to the card on file. An account
 * has one under way at most. Source: ATU-1, ATU-2, ATU-3, ATU-4, ATU-5.
 */

/** A balance that is low, and for which nothing can be done now, is looked at again after this. */
const LOOK_AGAIN_MINUTES = 30;
/** One may cost a tenth more than when the customer set them up: rates of exchange move from day to day. Source: ATU-5. */
const RISE_MAX_FRACTION = 10n;

export type TopUpProblem = NonNullable<(typeof autoTopUps.$inferSelect)["problem"]>;
type Amounts = { belowNanoUsd: bigint; amountNanoUsd: bigint; monthMaxNanoUsd: bigint };

export type AutoTopUp = Amounts & {
  /** `paused`: the last one failed. */
  status: "on" | "paused";
  problem: TopUpProblem | null;
  /** The order of the one that is under way. */
  orderId: number | null;
  /** Of this month's automatic top-ups, what was credited or is about to be: without tax. */
  monthNanoUsd: bigint;
};

type Zone = { accountId: number; timeZone: string };

/** `timeZone`: in which months are counted. null: it is not set up. */
export async function findAutoTopUp({ db }: { db: Db }, zone: Zone): Promise<AutoTopUp | null> {
  if (!isRowId(zone.accountId)) return null;
  const [row] = await db.orm.select().from(autoTopUps).where(eq(autoTopUps.accountId, zone.accountId));
  if (!row) return null;
  const { belowNanoUsd, amountNanoUsd, monthMaxNanoUsd, status, problem, orderId } = row;
  const monthNanoUsd = await chargedThisMonth(db.orm, zone);
  return { belowNanoUsd, amountNanoUsd, monthMaxNanoUsd, status, problem, orderId, monthNanoUsd };
}

/** All that was not refused counts in the month in which it was ordered, also what was refunded later. */
async function chargedThisMonth(tx: Tx, { accountId, timeZone }: Zone): Promise<bigint> {
  const [row] = await tx.execute<{ nano_usd: string }>(sql`
    select coalesce(sum(o.price_nano_usd), 0)::text as nano_usd from card_charges c join orders o on o.id = c.order_id
    where c.account_id = ${accountId}::bigint and c.purpose = 'top_up' and c.status <> 'failed'
      and c.created_at >= date_trunc('month', ledger_now() at time zone ${timeZone}) at time zone ${timeZone}`);
  return BigInt(row?.nano_usd ?? 0);
}

/** Sets automatic top-ups up, or changes them; switches paused ones on again. Throws InputError. Source: ATU-1. */
export async function setAutoTopUp(
  deps: ChangeDeps,
  { accountId, ...amounts }: Amounts & { accountId: number },
): Promise<void> {
  checkAmounts(amounts);
  await changing(deps, async (tx) => {
    await lockAccountRow(tx, accountId);
    const sellerId = await sellerOf(tx, accountId);
    await requireChargeable(tx, { accountId, sellerId });
    const cost = await topUpCost(tx, { accountId, sellerId, creditNanoUsd: amounts.amountNanoUsd });
    const agreed = { ...amounts, toldNano: cost.totalNano, toldCurrency: cost.currency };
    const set = {
      ...agreed,
      status: "on",
      problem: null,
      nextAt: sql`ledger_now()`,
      updatedAt: sql`clock_timestamp()`,
    } as const;
    await tx
      .insert(autoTopUps)
      .values({ accountId, ...agreed })
      .onConflictDoUpdate({ target: autoTopUps.accountId, set });
  });
}

function checkAmounts({ belowNanoUsd, amountNanoUsd, monthMaxNanoUsd }: Amounts): void {
  const fields = { belowNanoUsd, amountNanoUsd, monthMaxNanoUsd };
  for (const [param, nanoUsd] of Object.entries(fields)) {
    if (nanoUsd <= 0n || nanoUsd > MONEY_NANO_USD_MAX)
      throw new InputError("The amount must be above zero, and at most $9,000,000.", param);
    if (nanoUsd % CENT_NANO_USD !== 0n) throw new InputError("The amount must be in whole cents.", param);
  }
  if (amountNanoUsd < AUTO_TOP_UP_NANO_USD_MIN) throw new InputError("Top up at least $1.", "amountNanoUsd");
  if (monthMaxNanoUsd < amountNanoUsd)
    throw new InputError("The most in a month must be at least one top-up.", "monthMaxNanoUsd");
}

/** Switches automatic top-ups off. One that is under way is completed. Returns false if they were not set up. */
export async function removeAutoTopUp(deps: ChangeDeps, accountId: number): Promise<boolean> {
  const remove = (tx: Tx) =>
    tx.delete(autoTopUps).where(eq(autoTopUps.accountId, accountId)).returning({ id: autoTopUps.accountId });
  return (await changing(deps, remove, { protects: true })).length > 0;
}

/**
 * Orders the top-ups that are due, at most `topUpsMax`. However many replicas see the same low balance, the first that locks its account
 * orders one. One that fails unforeseen does not stop the others.
 */
export async function topUpDue(
  deps: ChangeDeps & { db: Db },
  {
    topUpsMax,
    timeZone,
    onFailure,
  }: { topUpsMax: number; timeZone: string; onFailure: (error: unknown, accountId: number) => void },
): Promise<void> {
  const due = await deps.db.orm.execute<{ id: string }>(sql`
    select t.account_id as id from auto_top_ups t join balances b on b.account_id = t.account_id
    where ${IS_DUE} order by t.next_at limit ${topUpsMax}`);
  for (const { id } of due) {
    const accountId = Number(id);
    await changing(deps, (tx) => orderOne(tx, { accountId, timeZone })).catch((error) => onFailure(error, accountId));
  }
}

/** Without what replicas have drawn ahead and no request uses: to people that is available. */
const IS_DUE: SQL = sql`t.status = 'on' and t.order_id is null and t.next_at <= ledger_now()
  and b.balance_nano_usd - b.held_nano_usd < t.below_nano_usd and b.balance_nano_usd - reserved_as_shown(b) < t.below_nano_usd`;

type Due = { amount: string; month_max: string; told: string; currency: string; month: string; is_active: boolean };

/** Orders one, unless it is no longer due. */
async function orderOne(tx: Tx, zone: Zone): Promise<void> {
  const { accountId } = zone;
  const sellerId = await sellerOf(tx, accountId);
  await lockAccounts(tx, sellerId === OPERATOR ? [accountId] : [accountId, sellerId]);
  const [due] = await tx.execute<Due>(sql`
    select t.amount_nano_usd::text as amount, t.month_max_nano_usd::text as month_max, t.told_nano::text as told, t.told_currency as currency,
      to_char(ledger_now() at time zone ${zone.timeZone}, 'YYYY-MM') as month,
      a.status = 'active' and coalesce(s.status, 'active') = 'active' as is_active
    from auto_top_ups t join balances b on b.account_id = t.account_id join accounts a on a.id = t.account_id
    left join accounts s on s.id = ${sellerId}::bigint
    where t.account_id = ${accountId}::bigint and ${IS_DUE} for update of t`);
  if (!due) return;
  if (!due.is_active) return await lookLater(tx, accountId);
  if (!(await cardIn(tx, { accountId, sellerId }))) return await pauseTopUp(tx, accountId, "no_card");
  const [amountNanoUsd, monthMaxNanoUsd] = [BigInt(due.amount), BigInt(due.month_max)];
  const monthNanoUsd = await chargedThisMonth(tx, zone);
  if (monthNanoUsd + amountNanoUsd > monthMaxNanoUsd) {
    await lookLater(tx, accountId);
    const said = { amountNanoUsd, monthMaxNanoUsd, monthNanoUsd };
    return await tell(tx, {
      kind: "auto_top_up_capped",
      accountId,
      data: {
        amountNanoUsd: String(amountNanoUsd),
        monthMaxNanoUsd: String(monthMaxNanoUsd),
        monthNanoUsd: String(monthNanoUsd),
      },
      // Once a month, and again if the customer changed an amount.
      onceKey: `auto_top_up_capped:${accountId}:${due.month}:${Object.values(said).join(":")}`,
    });
  }
  const toldNano = BigInt(due.told);
  const most = { currency: due.currency, nano: toldNano + toldNano / RISE_MAX_FRACTION };
  const orderId = await placed(tx, { accountId, sellerId, creditNanoUsd: amountNanoUsd, most });
  if (typeof orderId === "string") return await pauseTopUp(tx, accountId, orderId);
  await addCharge(tx, { orderId, accountId, sellerId, purpose: "top_up", triesMax: 1, retrySeconds: 0, until: null });
  await tx.update(autoTopUps).set({ orderId }).where(eq(autoTopUps.accountId, accountId));
}

/** The id of the order, or why the seller's terms of today allow none. */
async function placed(tx: Tx, wanted: AutomaticOrder): Promise<number | TopUpProblem> {
  try {
    return (await placeAutomatic(tx, wanted)) ?? "price_changed";
  } catch (error) {
    if (error instanceof InputError) return "unpayable";
    throw error;
  }
}

async function lookLater(tx: Tx, accountId: number): Promise<void> {
  await tx
    .update(autoTopUps)
    .set({ nextAt: sql`ledger_now() + make_interval(mins => ${LOOK_AGAIN_MINUTES})` })
    .where(eq(autoTopUps.accountId, accountId));
}

async function sellerOf(tx: Tx, accountId: number): Promise<number> {
  const [row] = await tx
    .select({ role: accounts.role, resellerId: accounts.resellerId })
    .from(accounts)
    .where(eq(accounts.id, accountId));
  if (!row || row.role === "admin") throw new Refusal("not_found");
  return sellerIdOf(row);
}
