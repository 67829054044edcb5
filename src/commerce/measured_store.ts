import { and, eq, type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { checkInteger } from "../accounts/input_checks.ts";
import { InputError } from "../errors.ts";
import {
  CENT_NANO_USD,
  MEASURED_NANO_USD_MAX,
  MEASURED_STEPS_MAX,
  MONEY_NANO_USD_MAX,
  OFFERING_DAILY_REQUESTS,
  OFFERING_DAYS,
  OFFERING_TOTAL_REQUESTS,
} from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { offerings } from "../platform/schema_offerings.ts";
import { measuredPrices } from "../platform/schema_retail.ts";
import { measuredPrice, type Step } from "./measured_price.ts";
import { OPERATOR } from "./sellers_store.ts";

/**
 * Made-to-measure packages: the customer chooses the days and the requests a day, within the bounds of its seller, at the seller's price for
 * 1,000 requests. Source: MTM-1, MTM-2, MTM-3, MTM-4.
 */

export type PriceKind = "retail" | "wholesale";
export type Bounds = { daysMin: number; daysMax: number; dailyMin: number; dailyMax: number };
export type MeasuredTerms = Bounds & { isOpen: boolean; steps: Step[] };
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
  const { isOpen, daysMin, daysMax, dailyMin, dailyMax } = row;
  const steps = row.steps.map(({ fromRequests, nanoUsd }) => ({ fromRequests, nanoUsd: BigInt(nanoUsd) }));
  return { isOpen, daysMin, daysMax, dailyMin, dailyMax, steps };
}

/** Sets the prices of a seller. Throws InputError. Source: MTM-1. */
export async function setMeasuredTerms(
  deps: ChangeDeps,
  { sellerId, kind, ...wanted }: Place & MeasuredTerms,
): Promise<MeasuredTerms> {
  const set = { ...checkBounds(wanted), isOpen: wanted.isOpen, steps: checkSteps(wanted.steps) };
  return changing(deps, async (tx) => {
    if (kind === "retail" && sellerId !== OPERATOR && set.isOpen)
      await checkAboveCost(tx, { ...set, steps: wanted.steps });
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
  const days = { what: "number of days", ...OFFERING_DAYS };
  const daily = { what: "number of requests a day", ...OFFERING_DAILY_REQUESTS.custom };
  checkInteger(daysMin, { param: "daysMin", ...days });
  checkInteger(daysMax, { param: "daysMax", ...days, min: daysMin });
  checkInteger(dailyMin, { param: "dailyMin", ...daily });
  checkInteger(dailyMax, { param: "dailyMax", ...daily, min: dailyMin });
  return { daysMin, daysMax, dailyMin, dailyMax };
}

function checkSteps(steps: readonly Step[]) {
  if (steps.length === 0 || steps.length > MEASURED_STEPS_MAX)
    throw new InputError(`There must be 1 to ${MEASURED_STEPS_MAX} prices.`, "steps");
  if (steps[0]?.fromRequests !== 0) throw new InputError("The first price must begin at 0 requests.", "steps");
  for (const [index, { fromRequests, nanoUsd }] of steps.entries()) {
    const before = steps[index - 1];
    if (!Number.isSafeInteger(fromRequests) || fromRequests > OFFERING_TOTAL_REQUESTS.max)
      throw new InputError(`A price must begin at 0 to ${OFFERING_TOTAL_REQUESTS.max} requests.`, "steps");
    if (before && fromRequests <= before.fromRequests)
      throw new InputError("Each price must begin at more requests than the one before it.", "steps");
    if (nanoUsd <= 0n || nanoUsd > MEASURED_NANO_USD_MAX)
      throw new InputError("A price for 1,000 requests must be above $0, and at most $1,000.", "steps");
  }
  return steps.map(({ fromRequests, nanoUsd }) => ({ fromRequests, nanoUsd: String(nanoUsd) }));
}

/** A reseller's price for 1,000 requests may at no number of requests be below what it pays. Throws InputError. */
async function checkAboveCost(tx: Tx, retail: MeasuredTerms): Promise<void> {
  const wholesale = await termsIn(tx, WHOLESALE, true);
  if (!wholesale?.isOpen) throw new InputError("The operator does not sell made-to-measure packages.", "isOpen");
  const begins = [...retail.steps, ...wholesale.steps].map(({ fromRequests }) => fromRequests);
  const at = (steps: readonly Step[], requests: number) =>
    steps.findLast(({ fromRequests }) => fromRequests <= requests)?.nanoUsd ?? 0n;
  if (begins.some((requests) => at(retail.steps, requests) < at(wholesale.steps, requests)))
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
  if (!terms?.isOpen) return undefined;
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
 * What a size costs a customer, and the offering of it, which is made for the order. `seenNanoUsd`: the price that the customer saw. Throws InputError if the
 * seller sells no such size, or for another price. Source: MTM-2, MTM-3.
 */
export async function requireMeasured(
  tx: Tx,
  { sellerId, timeZone, seenNanoUsd, ...size }: Size & { sellerId: number; timeZone: string; seenNanoUsd: bigint },
): Promise<{ offeringId: number; priceNanoUsd: bigint }> {
  const offer = await offerIn(tx, sellerId, true);
  if (!offer) throw new InputError("Made-to-measure packages are not on sale.", "kind");
  const { terms, wholesale } = offer;
  checkInteger(size.days, { param: "days", what: "number of days", min: terms.daysMin, max: terms.daysMax });
  checkInteger(size.dailyLimit, {
    ...{ param: "dailyLimit", what: "number of requests a day", min: terms.dailyMin, max: terms.dailyMax },
  });
  const { priceNanoUsd } = measuredPrice(terms.steps, size, CENT_NANO_USD);
  if (priceNanoUsd > MONEY_NANO_USD_MAX) throw new InputError("This size costs more than $9,000,000.", "dailyLimit");
  if (priceNanoUsd !== seenNanoUsd)
    throw new InputError(`The price has changed. It is ${inCents(priceNanoUsd)} now.`, "priceNanoUsd");
  const wholesaleNanoUsd = wholesale ? measuredPrice(wholesale.steps, size, 1n).priceNanoUsd : 0n;
  // The operator has raised its price since the reseller set its own.
  if (sellerId !== OPERATOR && priceNanoUsd < wholesaleNanoUsd)
    throw new InputError("This size is not on sale at the moment.", "kind");
  return { offeringId: await measuredOffering(tx, { ...size, timeZone, wholesaleNanoUsd }), priceNanoUsd };
}

/** Whole cents as "$2.10". */
function inCents(nanoUsd: bigint): string {
  const cents = nanoUsd / CENT_NANO_USD;
  return `$${cents / 100n}.${String(cents % 100n).padStart(2, "0")}`;
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
  const [added] = await tx
    .insert(offerings)
    .values({ ...row, measured: true })
    .onConflictDoNothing()
    .returning({ id: offerings.id });
  if (added) return added.id;
  const same = and(eq(offerings.days, days), eq(offerings.dailyLimit, dailyLimit), eq(offerings.timeZone, timeZone));
  const [found] = await tx
    .select({ id: offerings.id })
    .from(offerings)
    .where(and(offerings.measured, same, eq(offerings.wholesaleNanoUsd, wholesaleNanoUsd)));
  if (!found) throw new Error("an offering that exists was not found");
  return found.id;
}
