import { and, eq, inArray, notExists, type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { checkInteger } from "../accounts/input_checks.ts";
import { InputError, sentence } from "../errors.ts";
import {
  MEASURED_NANO_USD_MAX,
  MEASURED_STEPS_MAX,
  MONEY_NANO_USD_MAX,
  OFFERING_DAILY_REQUESTS,
  OFFERING_DAYS,
  OFFERING_TOTAL_REQUESTS,
} from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { formatAmount, payableStepNano } from "../platform/currencies.ts";
import type { Db, Tx } from "../platform/db.ts";
import { packages } from "../platform/schema_ledger.ts";
import { offerings, orders } from "../platform/schema_offerings.ts";
import { measuredPrices } from "../platform/schema_retail.ts";
import { measuredPrice, type Step } from "./measured_price.ts";
import { PRICE_NANO_MAX, priceWorth } from "./order_amounts.ts";
import { OPERATOR } from "./sellers_store.ts";
import { type SellingSettings, settingsIn, UNSET } from "./selling_terms_store.ts";

/**
 * Made-to-measure packages: the customer chooses the days and the requests a day, within the bounds of its seller, at the seller's price for
 * 1,000 requests. Source: MTM-1, MTM-2, MTM-3, MTM-4.
 */

export type PriceKind = "retail" | "wholesale";
export type Bounds = { daysMin: number; daysMax: number; dailyMin: number; dailyMax: number };
/** `currency`: of the prices. */
export type MeasuredTerms = Bounds & { isOpen: boolean; currency: string; steps: Step[] };
type Place = { sellerId: number; kind: PriceKind };
export type Size = { days: number; dailyLimit: number };

/** The prices of a seller; undefined: none were set. */
export async function measuredTermsOf({ db }: { db: Db }, place: Place): Promise<MeasuredTerms | undefined> {
  return termsIn(db.orm, place);
}

async function termsIn(tx: Tx, { sellerId, kind }: Place, isLocked = false): Promise<MeasuredTerms | undefined> {
  const reading = tx
    .select()
    .from(measuredPrices)
    .where(and(eq(measuredPrices.sellerId, sellerId), eq(measuredPrices.kind, kind)));
  const [row] = await (isLocked ? reading.for("share") : reading);
  if (!row) return undefined;
  const { isOpen, currency, daysMin, daysMax, dailyMin, dailyMax } = row;
  const steps = row.steps.map(({ fromRequests, nano }) => ({ fromRequests, nano: BigInt(nano) }));
  return { isOpen, currency, daysMin, daysMax, dailyMin, dailyMax, steps };
}

/** Sets the prices of a seller, in its currency. Throws InputError. Source: MTM-1, CUR-3. */
export async function setMeasuredTerms(
  deps: ChangeDeps,
  { sellerId, kind, ...wanted }: Place & Omit<MeasuredTerms, "currency">,
): Promise<MeasuredTerms> {
  const bounds = { ...checkBounds(wanted), isOpen: wanted.isOpen };
  return changing(deps, async (tx) => {
    const settings = kind === "retail" ? await settingsIn(tx, sellerId) : UNSET;
    const set = { ...bounds, currency: settings.currency, steps: checkSteps(settings, wanted.steps) };
    if (kind === "retail" && sellerId !== OPERATOR && set.isOpen) await checkAboveCost(tx, settings, wanted.steps);
    await tx
      .insert(measuredPrices)
      .values({ sellerId, kind, ...set })
      .onConflictDoUpdate({
        target: [measuredPrices.sellerId, measuredPrices.kind],
        set: { ...set, updatedAt: sql`clock_timestamp()` },
      });
    const terms = await termsIn(tx, { sellerId, kind });
    if (!terms) throw new Error("an insert returned nothing");
    return terms;
  });
}

function checkBounds({ daysMin, daysMax, dailyMin, dailyMax }: Bounds): Bounds {
  const days = OFFERING_DAYS;
  const daily = OFFERING_DAILY_REQUESTS.custom;
  checkInteger(daysMin, { param: "daysMin", ...days });
  checkInteger(daysMax, { param: "daysMax", ...days, min: daysMin });
  checkInteger(dailyMin, { param: "dailyMin", ...daily });
  checkInteger(dailyMax, { param: "dailyMax", ...daily, min: dailyMin });
  return { daysMin, daysMax, dailyMin, dailyMax };
}

function checkSteps(settings: SellingSettings, steps: readonly Step[]) {
  if (steps.length === 0 || steps.length > MEASURED_STEPS_MAX)
    throw new InputError(
      sentence("There must be 1 to {measuredStepsMax} prices.", { measuredStepsMax: MEASURED_STEPS_MAX }),
      "steps",
    );
  if (steps[0]?.fromRequests !== 0) throw new InputError("The first price must begin at 0 requests.", "steps");
  for (const [index, { fromRequests, nano }] of steps.entries()) {
    const before = steps[index - 1];
    if (!Number.isSafeInteger(fromRequests) || fromRequests > OFFERING_TOTAL_REQUESTS.max)
      throw new InputError(
        sentence("A price must begin at 0 to {max} requests.", { max: OFFERING_TOTAL_REQUESTS.max }),
        "steps",
      );
    if (before && fromRequests <= before.fromRequests)
      throw new InputError("Each price must begin at more requests than the one before it.", "steps");
    if (nano <= 0n || priceWorth(settings, nano) > MEASURED_NANO_USD_MAX)
      throw new InputError("A price for 1,000 requests must be above $0, and at most $1,000.", "steps");
  }
  return steps.map(({ fromRequests, nano }) => ({ fromRequests, nano: String(nano) }));
}

/** A reseller's price for 1,000 requests may at no number of requests be below what it pays. Throws InputError. */
async function checkAboveCost(tx: Tx, settings: SellingSettings, retail: readonly Step[]): Promise<void> {
  const wholesale = await termsIn(tx, WHOLESALE, true);
  if (!wholesale?.isOpen) throw new InputError("The operator does not sell made-to-measure packages.", "isOpen");
  const begins = [...retail, ...wholesale.steps].map(({ fromRequests }) => fromRequests);
  const at = (steps: readonly Step[], requests: number) =>
    steps.findLast(({ fromRequests }) => fromRequests <= requests)?.nano ?? 0n;
  const worth = retail.map((step) => ({ ...step, nano: priceWorth(settings, step.nano) }));
  if (begins.some((requests) => at(worth, requests) < at(wholesale.steps, requests)))
    throw new InputError("A price is below the wholesale price. Set a higher one.", "steps");
}

const WHOLESALE: Place = { sellerId: OPERATOR, kind: "wholesale" };

/** What a customer of a seller can choose; null: the seller sells none. Source: MTM-2. */
export async function measuredOfferOf({ db }: { db: Db }, sellerId: number): Promise<MeasuredTerms | null> {
  return (await offerIn(db.orm, sellerId))?.terms ?? null;
}

/** Whether a seller sells made-to-measure packages now. An order is not paid when it has stopped. */
export function sellsMeasured(sellerId: SQLWrapper): SQL<boolean> {
  return sql`(exists (select from measured_prices m where m.seller_id = ${sellerId} and m.kind = 'retail' and m.is_open)
    and (${sellerId} = ${OPERATOR} or exists (select from measured_prices m where m.seller_id = ${OPERATOR} and m.kind = 'wholesale' and m.is_open)))`;
}

async function offerIn(tx: Tx, sellerId: number, isLocked = false) {
  const terms = await termsIn(tx, { sellerId, kind: "retail" }, isLocked);
  const wholesale = await termsIn(tx, WHOLESALE, isLocked);
  const { currency } = await settingsIn(tx, sellerId);
  if (!terms?.isOpen || terms.currency !== currency) return undefined;
  if (sellerId === OPERATOR) return { terms, wholesale };
  // A reseller sells what it can buy.
  if (!wholesale?.isOpen) return undefined;
  const bounds = {
    daysMin: Math.max(terms.daysMin, wholesale.daysMin),
    daysMax: Math.min(terms.daysMax, wholesale.daysMax),
    dailyMin: Math.max(terms.dailyMin, wholesale.dailyMin),
    dailyMax: Math.min(terms.dailyMax, wholesale.dailyMax),
  };
  if (bounds.daysMin > bounds.daysMax || bounds.dailyMin > bounds.dailyMax) return undefined;
  return { terms: { ...terms, ...bounds }, wholesale };
}

/**
 * What a size costs a customer, and the offering of it, which is made for the order. `seenNano`: the price that the customer saw. Throws InputError if the
 * seller sells no such size, or for another price. Source: MTM-2, MTM-3.
 */
export async function requireMeasured(
  tx: Tx,
  { sellerId, timeZone, seenNano, ...size }: Size & { sellerId: number; timeZone: string; seenNano: bigint },
): Promise<{ offeringId: number; priceNano: bigint }> {
  const { priceNano, currency, wholesaleNanoUsd } = await measuredPriceIn(tx, { ...size, sellerId });
  if (priceNano !== seenNano)
    throw new InputError(
      sentence("The price has changed. It is {priceNano} now.", { priceNano: formatAmount(priceNano, currency) }),
      "priceNano",
    );
  return { offeringId: await measuredOffering(tx, { ...size, timeZone, wholesaleNanoUsd }), priceNano };
}

/** What a size costs a customer, and its seller, until the transaction ends. Throws InputError if the seller sells no such size. */
export async function measuredPriceIn(
  tx: Tx,
  { sellerId, ...size }: Size & { sellerId: number },
): Promise<{ priceNano: bigint; currency: string; wholesaleNanoUsd: bigint }> {
  const offer = await offerIn(tx, sellerId, true);
  if (!offer) throw new InputError("Made-to-measure packages are not on sale.", "kind");
  const { terms, wholesale } = offer;
  checkInteger(size.days, { param: "days", min: terms.daysMin, max: terms.daysMax });
  checkInteger(size.dailyLimit, {
    ...{ param: "dailyLimit", min: terms.dailyMin, max: terms.dailyMax },
  });
  const { currency } = terms;
  const { priceNano } = measuredPrice(terms.steps, size, payableStepNano(currency));
  const worth = priceWorth(await settingsIn(tx, sellerId), priceNano);
  if (worth > MONEY_NANO_USD_MAX || priceNano > PRICE_NANO_MAX)
    throw new InputError("This size costs more than $9,000,000.", "dailyLimit");
  const wholesaleNanoUsd = wholesale ? measuredPrice(wholesale.steps, size, 1n).priceNano : 0n;
  // The operator has raised its price since the reseller set its own.
  if (sellerId !== OPERATOR && worth < wholesaleNanoUsd)
    throw new InputError("This size is not on sale at the moment.", "kind");
  return { priceNano, currency, wholesaleNanoUsd };
}

/** The offering of a size at a cost, which orders of the same size share. */
async function measuredOffering(
  tx: Tx,
  { days, dailyLimit, timeZone, wholesaleNanoUsd }: Size & { timeZone: string; wholesaleNanoUsd: bigint },
): Promise<number> {
  const name = `${dailyLimit.toLocaleString("en-US")} requests a day for ${days === 1 ? "1 day" : `${days} days`}`;
  const row = {
    name,
    kind: "custom" as const,
    days,
    dailyLimit,
    totalLimit: days * dailyLimit,
    timeZone,
    wholesaleNanoUsd,
  };
  // One that exists is locked until the order names it, so that it is not deleted meanwhile.
  const [made] = await tx
    .insert(offerings)
    .values({ ...row, measured: true })
    .onConflictDoUpdate({
      target: [offerings.days, offerings.dailyLimit, offerings.wholesaleNanoUsd, offerings.timeZone],
      targetWhere: sql`${offerings.measured}`,
      set: { name },
    })
    .returning({ id: offerings.id });
  if (!made) throw new Error("an upsert returned nothing");
  return made.id;
}

/** Deletes those of some offerings that were made to measure and that no order and no package names any more. Source: MTM-3. */
export async function deleteUnused(tx: Tx, offeringIds: readonly number[]): Promise<void> {
  if (offeringIds.length === 0) return;
  // One that is locked is being ordered, and goes with that order.
  const locked = await tx
    .select({ id: offerings.id })
    .from(offerings)
    .where(and(inArray(offerings.id, [...offeringIds]), offerings.measured))
    .orderBy(offerings.id)
    .for("update", { skipLocked: true });
  const ids = locked.map(({ id }) => id);
  if (ids.length === 0) return;
  // A statement of its own sees every order that was placed before the lock.
  await tx
    .delete(offerings)
    .where(
      and(
        inArray(offerings.id, ids),
        notExists(tx.select({ id: orders.id }).from(orders).where(eq(orders.offeringId, offerings.id))),
        notExists(tx.select({ id: packages.id }).from(packages).where(eq(packages.offeringId, offerings.id))),
      ),
    );
}
