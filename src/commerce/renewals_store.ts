import { and, eq, gt, type SQL, sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import { lockAccountRow } from "../accounts/locks_store.ts";
import type { Role } from "../accounts/roles.ts";
import { InputError, Refusal } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { packages } from "../platform/schema_ledger.ts";
import { offerings, orders } from "../platform/schema_offerings.ts";
import { autoTopUps, cardCharges, renewals } from "../platform/schema_renewals.ts";
import { requireChargeable } from "./cards_store.ts";
import { measuredPriceIn } from "./measured_store.ts";
import { type OrderAmounts, packageAmounts } from "./order_amounts.ts";
import { orderEnded, pauseTopUp } from "./order_ends_store.ts";
import type { Order } from "./orders_store.ts";
import { requireOffered } from "./retail_prices_store.ts";
import { OPERATOR, sellerIdOf } from "./sellers_store.ts";
import { requirePayable, sellingTermsIn } from "./selling_terms_store.ts";

/** Which packages renew automatically, and from what. `renewal_steps_store.ts` renews them. Source: REN-1, REN-4, REN-6. */

/** A renewal is told this long before the package ends. */
export const TOLD_DAYS = 3;
/** The first try, and the two after it, are in the last hours of the package: a quarter of it at most. */
const LEAD_HOURS = 24;
const LEAD_FRACTION = 4;
export const TRIES = 3;

/** How long before its end a package is renewed, and how long a further try waits. */
export const LEAD = sql`least(make_interval(hours => ${LEAD_HOURS}), (${packages.endsAt} - ${packages.startsAt}) / ${LEAD_FRACTION})`;
export const PAUSE = sql`${LEAD} / ${TRIES}`;

export type RenewalSource = (typeof renewals.$inferSelect)["source"];
export type RenewalProblem = NonNullable<(typeof renewals.$inferSelect)["problem"]>;

/**
 * What a renewal costs today. The card pays `totalNano` of `currency`, with the tax; the balance pays `priceNanoUsd`, because the tax was paid
 * with the top-up. Source: TAX-5.
 */
export type RenewalPrice = Pick<OrderAmounts, "currency" | "totalNano" | "taxNano" | "priceNanoUsd">;

/** A package that has not ended, and whether it renews. */
export type RenewingPackage = {
  packageId: number;
  name: string;
  endsAt: string;
  timeZone: string;
  /** When it is, or would be, renewed. */
  renewsAt: string;
  /** The price of today; null: the offering is not on sale, or has no price. */
  price: RenewalPrice | null;
  renewal: {
    source: RenewalSource;
    status: Exclude<(typeof renewals.$inferSelect)["status"], "done">;
    /** Why the last try failed. */
    problem: RenewalProblem | null;
    /** The order that is charged to the card. */
    orderId: number | null;
  } | null;
};

/** The packages of a customer that have not ended and were not renewed yet, in the order in which they end. */
export async function listRenewals({ db }: { db: Db }, accountId: number): Promise<RenewingPackage[]> {
  return await db.orm.transaction(async (tx) => {
    const isOpen = and(eq(packages.accountId, accountId), gt(packages.endsAt, sql`ledger_now()`));
    const rows = isRowId(accountId) ? await selectRenewing(tx, isOpen) : [];
    const listed: RenewingPackage[] = [];
    for (const { renewal, sold, offeringId: _, ...row } of rows) {
      if (renewal?.status === "done") continue;
      listed.push({
        ...row,
        price: await priceOf(tx, { accountId, sold }),
        renewal: renewal && {
          ...{ source: renewal.source, problem: renewal.problem, orderId: renewal.orderId },
          status: renewal.continues ? renewal.status : "cancelled",
        },
      });
    }
    return listed;
  });
}

async function priceOf(tx: Tx, { accountId, sold }: { accountId: number; sold: Sold }): Promise<RenewalPrice | null> {
  const quoted = await quote(tx, { accountId, ...sold });
  if (quoted === undefined) return null;
  const { currency, totalNano, taxNano, priceNanoUsd } = quoted;
  return { currency, totalNano, taxNano, priceNanoUsd };
}

/** What is paid from a source. */
export function paidFrom(source: RenewalSource, { currency, totalNano, priceNanoUsd }: RenewalPrice) {
  return source === "card" ? { currency, nano: totalNano } : { currency: "usd", nano: priceNanoUsd };
}

export type Sold = {
  role: Role;
  resellerId: number | null;
  offeringId: number | null;
  measured: boolean | null;
  days: number;
  dailyLimit: number;
};

async function selectRenewing(tx: Tx, where: SQL | undefined) {
  const rows = await tx
    .select({
      packageId: packages.id,
      name: packages.name,
      endsAt: packages.endsAt,
      timeZone: packages.timeZone,
      renewsAt: sql<string>`${packages.endsAt} - ${LEAD}`,
      offeringId: packages.offeringId,
      sold: {
        role: accounts.role,
        resellerId: accounts.resellerId,
        offeringId: packages.offeringId,
        measured: offerings.measured,
        days: packages.days,
        dailyLimit: packages.dailyLimit,
      },
      renewal: renewals,
    })
    .from(packages)
    .innerJoin(accounts, eq(accounts.id, packages.accountId))
    .leftJoin(offerings, eq(offerings.id, packages.offeringId))
    .leftJoin(renewals, eq(renewals.packageId, packages.id))
    .where(where)
    .orderBy(packages.endsAt, packages.id)
    .limit(100);
  return rows.map((row) => ({ ...row, endsAt: toIso(row.endsAt), renewsAt: toIso(row.renewsAt) }));
}

/**
 * What a customer pays today for the same package again, with the tax of today; `priceNano`: as its seller has set it. undefined: its seller does
 * not sell it, or has set no price.
 */
export async function quote(
  tx: Tx,
  { accountId, role, resellerId, offeringId, measured, ...size }: Sold & { accountId: number },
): Promise<(OrderAmounts & { priceNano: bigint }) | undefined> {
  if (offeringId === null || role !== "customer") return undefined;
  const sellerId = sellerIdOf({ role, resellerId });
  try {
    const priceNano = measured
      ? (await measuredPriceIn(tx, { sellerId, ...size })).priceNano
      : await requireOffered(tx, { role, tenantId: resellerId ?? OPERATOR }, offeringId);
    if (priceNano === null) return undefined;
    const amounts = packageAmounts(await sellingTermsIn(tx, { sellerId, accountId }), priceNano);
    requirePayable(amounts);
    return { ...amounts, priceNano };
  } catch (error) {
    if (error instanceof InputError) return undefined;
    throw error;
  }
}

type OfPackage = { accountId: number; packageId: number };

/**
 * Has a package renewed before it ends. Throws not_found, and InputError: the package has ended or was renewed, its offering is not sold, or
 * there is no card. Source: REN-1.
 */
export async function setRenewal(
  deps: ChangeDeps,
  { accountId, packageId, source }: OfPackage & { source: RenewalSource },
): Promise<void> {
  await changing(deps, async (tx) => {
    await lockAccountRow(tx, accountId);
    const [row] = await selectRenewing(tx, and(eq(packages.accountId, accountId), isPackage(packageId)));
    if (!row) throw noPackage();
    const [open] = await tx
      .select({ id: packages.id })
      .from(packages)
      .where(and(isPackage(packageId), gt(packages.endsAt, sql`ledger_now()`)));
    if (!open) throw new InputError("This package has ended.", "packageId");
    if (row.renewal?.status === "done") throw new InputError("This package was already renewed.", "packageId");
    if ((await quote(tx, { accountId, ...row.sold })) === undefined)
      throw new InputError("This package is no longer on sale, so it cannot be renewed.", "packageId");
    const sellerId = sellerIdOf(row.sold);
    if (source === "card") await requireChargeable(tx, { accountId, sellerId }, "source");
    // One whose order is being paid goes on: only what follows it changes.
    const isOrdered = row.renewal?.status === "ordered";
    const again = {
      status: "on",
      tries: 0,
      problem: null,
      endedAt: null,
      orderId: null,
      nextAt: sql`ledger_now()`,
    } as const;
    await tx
      .insert(renewals)
      .values({ packageId, accountId, source })
      .onConflictDoUpdate({
        target: renewals.packageId,
        set: { source, continues: true, ...(!isOrdered && again) },
      });
  });
}

/**
 * Cancels the renewal of a package: it ends as any other. A payment that is being made is completed, and nothing renews after it. Throws
 * not_found. Source: REN-6.
 */
export async function cancelRenewal(deps: ChangeDeps, { accountId, packageId }: OfPackage): Promise<void> {
  await changing(
    deps,
    async (tx) => {
      const mine = and(
        eq(renewals.accountId, accountId),
        isRowId(packageId) ? eq(renewals.packageId, packageId) : sql`false`,
      );
      const [known] = await tx.select({ orderId: renewals.orderId }).from(renewals).where(mine);
      if (!known) throw noPackage();
      // The order's row before those that depend on it.
      if (known.orderId !== null) await withdrawUnlessCharging(tx, known.orderId);
      await tx.update(renewals).set({ continues: false }).where(mine);
      await tx
        .update(renewals)
        .set({ status: "cancelled", endedAt: sql`clock_timestamp()` })
        .where(and(mine, eq(renewals.status, "on")));
    },
    { protects: true },
  );
}

/** Withdraws an open order of a renewal, unless its card is being charged. */
async function withdrawUnlessCharging(tx: Tx, orderId: number): Promise<void> {
  await tx.select({ id: orders.id }).from(orders).where(eq(orders.id, orderId)).for("update");
  const charging = and(eq(cardCharges.orderId, orderId), eq(cardCharges.status, "charging"));
  const [busy] = await tx.select({ id: cardCharges.orderId }).from(cardCharges).where(charging).for("update");
  if (!busy) await withdrawOpen(tx, orderId);
}

async function withdrawOpen(tx: Tx, orderId: number): Promise<void> {
  const withdrawn = await tx
    .update(orders)
    .set({ status: "withdrawn", decidedAt: sql`clock_timestamp()` })
    .where(and(eq(orders.id, orderId), eq(orders.status, "open")))
    .returning({ id: orders.id });
  if (withdrawn.length > 0) await orderEnded(tx, orderId);
}

export type FailedCharge = {
  order: Order;
  problem: RenewalProblem;
  /** Of the tries of this order. */
  isFirst: boolean;
  /** null: it is not tried again. */
  retriesAt: string | null;
};

/**
 * A charge of a card for an order failed, in the transaction that records it: the customer is told of the first and the last failure. After the
 * last one the order is withdrawn, and the package ends as any other. Source: REN-4.
 */
export async function chargeFailed(tx: Tx, { order, problem, isFirst, retriesAt }: FailedCharge): Promise<void> {
  const isFinal = retriesAt === null;
  const [renewal] = await tx
    .update(renewals)
    .set({ problem, ...(isFinal && { status: "failed", endedAt: sql`clock_timestamp()` }) })
    .where(and(eq(renewals.orderId, order.orderId), eq(renewals.status, "ordered")))
    .returning({ renewalId: renewals.id });
  if (isFinal) {
    await pauseTopUpOf(tx, order, problem);
    await withdrawOpen(tx, order.orderId);
  }
  if (renewal && (isFirst || isFinal)) await tellFailed(tx, renewal.renewalId, { problem, retriesAt });
}

async function pauseTopUpOf(tx: Tx, { orderId, account }: Order, problem: RenewalProblem): Promise<void> {
  const [row] = await tx.select({ id: autoTopUps.accountId }).from(autoTopUps).where(eq(autoTopUps.orderId, orderId));
  if (row) await pauseTopUp(tx, account.accountId, problem);
}

/** Tells the customer that a try failed. Source: REN-4. */
export async function tellFailed(
  tx: Tx,
  renewalId: number,
  { problem, retriesAt }: { problem: RenewalProblem; retriesAt: string | null },
): Promise<void> {
  const [row] = await tx
    .select({
      accountId: renewals.accountId,
      packageId: packages.id,
      name: packages.name,
      source: renewals.source,
      endsAt: packages.endsAt,
      timeZone: packages.timeZone,
    })
    .from(renewals)
    .innerJoin(packages, eq(packages.id, renewals.packageId))
    .where(eq(renewals.id, renewalId));
  if (!row) throw new Error("a renewal that was locked is gone");
  const { accountId, ...facts } = row;
  await tell(tx, {
    kind: "renewal_failed",
    accountId,
    data: { ...facts, endsAt: toIso(row.endsAt), problem, retriesAt },
    onceKey: `renewal_failed:${renewalId}:${retriesAt === null ? "last" : "first"}`,
  });
}

/** A customer who disputes a payment at its bank has nothing further charged to its card. Source: REN-6, ATU-4. */
export async function stopAutomatic(tx: Tx, accountId: number): Promise<void> {
  await tx
    .update(renewals)
    .set({ status: "cancelled", continues: false, endedAt: sql`clock_timestamp()` })
    .where(and(eq(renewals.accountId, accountId), eq(renewals.source, "card"), eq(renewals.status, "on")));
  await tx.update(autoTopUps).set({ status: "paused", problem: null }).where(eq(autoTopUps.accountId, accountId));
}

function isPackage(packageId: number): SQL {
  return isRowId(packageId) ? eq(packages.id, packageId) : sql`false`;
}

function noPackage(): Refusal {
  return new Refusal("not_found", { message: "There is no such package, or it does not renew." });
}
