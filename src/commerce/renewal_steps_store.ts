import { and, eq, sql } from "drizzle-orm";
import { lockAccounts } from "../accounts/locks_store.ts";
import { Refusal } from "../errors.ts";
import { selectPackages } from "../ledger/packages_store.ts";
import { type ChangeDeps, changing, IdleMoneyError } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import type { Failpoint } from "../platform/failpoints.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { packages } from "../platform/schema_ledger.ts";
import { offerings } from "../platform/schema_offerings.ts";
import { renewals } from "../platform/schema_renewals.ts";
import { addCharge } from "./card_charges_store.ts";
import { cardIn } from "./cards_store.ts";
import { requireMeasured } from "./measured_store.ts";
import { renewNext } from "./order_ends_store.ts";
import { type AutomaticOrder, placeAutomatic } from "./orders_store.ts";
import {
  LEAD,
  PAUSE,
  paidFrom,
  quote,
  type RenewalPrice,
  type RenewalProblem,
  TOLD_DAYS,
  TRIES,
  tellFailed,
} from "./renewals_store.ts";
import { OPERATOR, sellerIdOf } from "./sellers_store.ts";

/**
 * Renews packages before they end: the customer is told, then the price is paid from the balance, or an order is placed that
 * `stripe_charges.ts` charges to the card. Each step is one transaction that locks the renewal's row, so that it is made once. Source: REN-2,
 * REN-3, REN-4, REN-5.
 */

/** A replica that claimed a renewal has this long, and so does a replica that died. */
const CLAIM_SECONDS = 60;

type StepDeps = ChangeDeps & { db: Db; failpoint?: Failpoint };

/**
 * Makes the steps that are due, at most `renewalsMax`. Several replicas may call it: each renewal is claimed by one. A renewal that fails
 * unforeseen does not stop the others, and is tried again.
 */
export async function renewDue(
  deps: StepDeps,
  { renewalsMax, onFailure }: { renewalsMax: number; onFailure: (error: unknown, renewalId: number) => void },
): Promise<void> {
  const due = await deps.db.orm
    .update(renewals)
    .set({ nextAt: sql`ledger_now() + make_interval(secs => ${CLAIM_SECONDS})` })
    .where(sql`${renewals.id} in (select id from renewals where status = 'on' and next_at <= ledger_now()
      order by next_at limit ${renewalsMax} for update skip locked)`)
    .returning({ id: renewals.id, accountId: renewals.accountId });
  for (const { id, accountId } of due) {
    await changing(deps, (tx) => step(tx, { renewalId: id, accountId }, deps.failpoint)).catch((error) =>
      onFailure(error, id),
    );
  }
}

/** One step of a renewal that is still on. */
async function step(
  tx: Tx,
  { renewalId, accountId }: { renewalId: number; accountId: number },
  failpoint?: Failpoint,
): Promise<void> {
  const [buyer] = await tx
    .select({ resellerId: accounts.resellerId, role: accounts.role })
    .from(accounts)
    .where(eq(accounts.id, accountId));
  if (!buyer) throw new Error("a renewal has no account");
  const sellerId = sellerIdOf(buyer);
  await lockAccounts(tx, sellerId === OPERATOR ? [accountId] : [accountId, sellerId]);
  const renewal = await read(tx, renewalId);
  if (renewal === undefined) return;
  if (renewal.endedEarly !== null) return await end(tx, renewalId, "cancelled", null);
  if (renewal.hasEnded) {
    await end(tx, renewalId, "failed", "too_late");
    return await tellFailed(tx, renewalId, { problem: "too_late", retriesAt: null });
  }
  if (!renewal.isToTell) return await waitUntil(tx, renewalId, renewal.tellAt);
  const price = await quote(tx, { ...buyer, ...renewal });
  if (renewal.toldAt === null) return await tellPrice(tx, renewal, price ?? null);
  if (!renewal.isDue) return await waitUntil(tx, renewalId, renewal.renewsAt);
  const blocked = await blockedBy(tx, { accountId, sellerId });
  if (blocked !== null) return await tryFailed(tx, renewal, blocked);
  if (price === undefined) return await tryFailed(tx, renewal, "not_on_sale");
  // Nobody pays more than they were told, nor in another currency.
  const { currency, nano } = paidFrom(renewal.source, price);
  if (renewal.toldNano === null || renewal.toldCurrency !== currency || nano > renewal.toldNano)
    return await tellPrice(tx, renewal, price);
  const { priceNano, priceNanoUsd } = price;
  const offeringId = await offeringOf(tx, renewal, { sellerId, priceNano });
  const bought = {
    ...renewal,
    sellerId,
    offeringId,
    priceNano,
    priceNanoUsd,
    most: { currency, nano: renewal.toldNano },
  };
  if (renewal.source === "card") await order(tx, bought);
  else await payFromBalance(tx, bought, failpoint);
}

type Renewal = NonNullable<Awaited<ReturnType<typeof read>>>;

/** Locks a renewal. undefined: it is not on any more. */
async function read(tx: Tx, renewalId: number) {
  const isOn = and(eq(renewals.id, renewalId), eq(renewals.status, "on"));
  const [locked] = await tx.select().from(renewals).where(isOn).for("update");
  if (!locked) return undefined;
  const tellAt = sql`${packages.endsAt} - make_interval(days => ${TOLD_DAYS})`;
  const [facts] = await tx
    .select({
      name: packages.name,
      endsAt: packages.endsAt,
      timeZone: packages.timeZone,
      endedEarly: packages.endedEarly,
      offeringId: packages.offeringId,
      measured: offerings.measured,
      days: packages.days,
      dailyLimit: packages.dailyLimit,
      hasEnded: sql<boolean>`${packages.endsAt} <= ledger_now()`,
      tellAt: sql<string>`${tellAt}`,
      isToTell: sql<boolean>`${tellAt} <= ledger_now()`,
      renewsAt: sql<string>`${packages.endsAt} - ${LEAD}`,
      isDue: sql<boolean>`${packages.endsAt} - ${LEAD} <= ledger_now()`,
      retryAt: sql<string>`ledger_now() + ${PAUSE}`,
      retrySeconds: sql<number>`floor(extract(epoch from ${PAUSE}))::int`,
    })
    .from(packages)
    .leftJoin(offerings, eq(offerings.id, packages.offeringId))
    .where(eq(packages.id, locked.packageId));
  if (!facts) throw new Error("a renewal has no package");
  return { ...locked, ...facts };
}

async function waitUntil(tx: Tx, renewalId: number, at: string): Promise<void> {
  await tx.update(renewals).set({ nextAt: at }).where(eq(renewals.id, renewalId));
}

async function end(
  tx: Tx,
  renewalId: number,
  status: "failed" | "cancelled",
  problem: RenewalProblem | null,
): Promise<void> {
  await tx.update(renewals).set({ status, problem, endedAt: sql`clock_timestamp()` }).where(eq(renewals.id, renewalId));
}

/**
 * Tells the customer what the renewal costs. A price that has risen since is told again, and the customer has the time between two tries to
 * cancel. Source: REN-2.
 */
async function tellPrice(tx: Tx, renewal: Renewal, price: RenewalPrice | null): Promise<void> {
  const { packageId, accountId, name, timeZone, source, isDue } = renewal;
  const isAgain = renewal.toldAt !== null;
  const paid = price && paidFrom(source, price);
  const renewsAt = isDue && isAgain ? renewal.retryAt : renewal.renewsAt;
  await tx
    .update(renewals)
    .set({
      toldNano: paid?.nano ?? null,
      ...(paid && { toldCurrency: paid.currency }),
      toldAt: sql`clock_timestamp()`,
      nextAt: sql`greatest(${renewsAt}::text::timestamptz, ledger_now())`,
    })
    .where(eq(renewals.id, renewal.id));
  const times = { renewsAt: toIso(renewsAt), endsAt: toIso(renewal.endsAt), timeZone };
  await tell(tx, {
    kind: "renewal_upcoming",
    accountId,
    data: {
      ...{ packageId, name, source, ...times },
      currency: paid?.currency ?? "usd",
      totalNano: paid && String(paid.nano),
      taxNano: String(source === "card" && price ? price.taxNano : 0n),
    },
    onceKey: `renewal_upcoming:${renewal.id}:${paid ? `${paid.currency}:${paid.nano}` : "none"}`,
  });
}

/** Why nothing is renewed for an account now; null: it is. */
async function blockedBy(
  tx: Tx,
  { accountId, sellerId }: { accountId: number; sellerId: number },
): Promise<RenewalProblem | null> {
  const statusOf = async (id: number) =>
    (await tx.select({ status: accounts.status }).from(accounts).where(eq(accounts.id, id)))[0]?.status;
  if ((await statusOf(accountId)) !== "active") return "account_suspended";
  if (sellerId !== OPERATOR && (await statusOf(sellerId)) !== "active") return "seller_suspended";
  return null;
}

/** The offering to buy. A made-to-measure one is made anew, since its cost is of the day. */
async function offeringOf(
  tx: Tx,
  { offeringId, measured, days, dailyLimit, timeZone }: Renewal,
  { sellerId, priceNano }: { sellerId: number; priceNano: bigint },
): Promise<number> {
  if (offeringId === null) throw new Error("a package without an offering has a price");
  if (!measured) return offeringId;
  return (await requireMeasured(tx, { sellerId, days, dailyLimit, timeZone, seenNano: priceNano })).offeringId;
}

/** Records that a try failed before anything was paid. Source: REN-4. */
async function tryFailed(tx: Tx, renewal: Renewal, problem: RenewalProblem): Promise<void> {
  const tries = renewal.tries + 1;
  const isFinal = tries >= TRIES;
  await tx.update(renewals).set({ tries, problem, nextAt: renewal.retryAt }).where(eq(renewals.id, renewal.id));
  if (isFinal) await end(tx, renewal.id, "failed", problem);
  if (tries === 1 || isFinal)
    await tellFailed(tx, renewal.id, { problem, retriesAt: isFinal ? null : toIso(renewal.retryAt) });
}

/** `priceNano`: as the seller has set it, in its currency. `priceNanoUsd`: what the balance pays. `most`: what the customer was told. */
type Bought = Renewal & { sellerId: number; offeringId: number; priceNano: bigint; priceNanoUsd: bigint } & Pick<
    AutomaticOrder,
    "most"
  >;

/** Places the order of a renewal. `stripe_charges.ts` charges it: from here on the order says what happens. */
async function order(tx: Tx, bought: Bought): Promise<void> {
  const { accountId, sellerId, offeringId, priceNano, retrySeconds, tries, most } = bought;
  if (!(await cardIn(tx, { accountId, sellerId }))) return await tryFailed(tx, bought, "no_card");
  const orderId = await placeAutomatic(tx, { accountId, sellerId, offeringId, priceNano, most });
  // The seller has changed its terms since the price was read: the next step tells the new one.
  if (orderId === undefined) return;
  await addCharge(tx, {
    ...{ orderId, accountId, sellerId, purpose: "renewal", retrySeconds, triesMax: TRIES - tries },
    until: bought.endsAt,
  });
  await tx.update(renewals).set({ status: "ordered", orderId, problem: null }).where(eq(renewals.id, bought.id));
}

/** Pays a renewal from the balance, and assigns the package. Source: REN-3. */
async function payFromBalance(tx: Tx, bought: Bought, failpoint?: Failpoint): Promise<void> {
  const { accountId, sellerId, offeringId, priceNanoUsd } = bought;
  const payerId = sellerId === OPERATOR ? null : sellerId;
  try {
    // In a savepoint: a refusal undoes the payment, not the record of the try.
    await tx.transaction(async (part) => {
      const newPackageId = await buy(part, { accountId, offeringId, payerId, priceNanoUsd });
      failpoint?.("after_charge");
      const done = { newPackageId, paidNanoUsd: priceNanoUsd, problem: null, endedAt: sql`clock_timestamp()` };
      await part
        .update(renewals)
        .set({ status: "done", ...done })
        .where(eq(renewals.id, bought.id));
      await renewNext(part, { ...bought, newPackageId });
      await tellAssigned(part, accountId, newPackageId);
    });
  } catch (error) {
    if (!(error instanceof NotPaidError)) throw error;
    await tryFailed(tx, bought, error.problem);
  }
}

/** Rolls the payment back. */
class NotPaidError extends Error {
  override readonly name = "NotPaidError";
  readonly problem: RenewalProblem;

  constructor(problem: RenewalProblem) {
    super(`a renewal was not paid: ${problem}`);
    this.problem = problem;
  }
}

type Purchase = { accountId: number; offeringId: number; payerId: number | null; priceNanoUsd: bigint };

async function buy(tx: Tx, { accountId, offeringId, payerId, priceNanoUsd }: Purchase): Promise<number> {
  const [row] = await tx.execute<{ code: string | null; package_id: string | null }>(sql`
    select * from renew_from_balance(${accountId}::bigint, ${offeringId}::bigint, ${payerId}::bigint, ${String(priceNanoUsd)}::text::bigint)`);
  switch (row?.code) {
    case null:
      return Number(row.package_id);
    case "insufficient_balance":
      throw new NotPaidError("balance_low");
    case "seller_balance":
      throw new NotPaidError("seller_balance");
    case "not_found":
      throw new NotPaidError("not_on_sale");
    case "idle":
      throw new IdleMoneyError(accountId);
    case "seller_idle":
      throw payerId === null ? new Refusal("service_unavailable") : new IdleMoneyError(payerId);
    default:
      throw new Error(`renew_from_balance answered ${row?.code}`);
  }
}

async function tellAssigned(tx: Tx, accountId: number, packageId: number): Promise<void> {
  const [assigned] = await selectPackages(tx, eq(packages.id, packageId));
  if (!assigned) throw new Error("a package that was assigned is gone");
  const { name, totalLimit, dailyLimit, startsAt, endsAt, timeZone } = assigned;
  const data = { packageId, name, totalLimit, dailyLimit, startsAt, endsAt, timeZone };
  await tell(tx, { kind: "package_assigned", accountId, data });
}
