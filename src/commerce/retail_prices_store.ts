import { and, desc, eq, not, type SQL, sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import {
  insertOffering,
  listOfferings,
  type NewOffering,
  notForSale,
  type Offering,
} from "../accounts/offerings_store.ts";
import type { Role } from "../accounts/roles.ts";
import { InputError, sentence } from "../errors.ts";
import { MONEY_NANO_USD_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { formatAmount, payableStepNano } from "../platform/currencies.ts";
import { type Db, sqlState, type Tx } from "../platform/db.ts";
import { offerings } from "../platform/schema_offerings.ts";
import { retailPrices } from "../platform/schema_retail.ts";
import { PRICE_NANO_MAX, priceWorth } from "./order_amounts.ts";
import { OPERATOR } from "./sellers_store.ts";
import { currencyOf, type SellingSettings, settingsIn } from "./selling_terms_store.ts";

/** What the customers of a seller pay for an offering, and which offerings they see. Source: RTL-1, RTL-2, RTL-3, RTL-4. */

/** Prices in one list: as many as offerings. */
const LIST_MAX = 1000;
const CHECK_VIOLATION = "23514";

export type RetailPrice = {
  offeringId: number;
  /** Of the seller's currency, and a multiple of what can be paid in it. */
  priceNano: bigint;
  currency: string;
  /** The seller confirmed that this price is below the wholesale price. */
  belowWholesaleConfirmed: boolean;
};

/** The buyer. `tenantId`: the reseller of a customer, 0 without one. */
export type Buyer = { role: Role; tenantId: number };

/** What a seller's customers pay for an offering, in billionths of its currency; null: no price is set. Source: RTL-1. */
export async function retailPriceOf(
  tx: Tx,
  { sellerId, offeringId }: { sellerId: number; offeringId: number },
): Promise<bigint | null> {
  const [row] = await tx
    .select({ priceNano: retailPrices.priceNano })
    .from(retailPrices)
    .where(and(isPrice(sellerId, offeringId), isCurrent(sellerId)));
  return row?.priceNano ?? null;
}

/** The prices of a seller in its currency. Those that it set in another one are left out. Source: CUR-3. */
export async function listRetailPrices({ db }: { db: Db }, sellerId: number): Promise<Map<number, RetailPrice>> {
  const rows = await db.orm
    .select({
      offeringId: retailPrices.offeringId,
      priceNano: retailPrices.priceNano,
      currency: retailPrices.currency,
      belowWholesaleConfirmed: retailPrices.belowWholesaleConfirmed,
    })
    .from(retailPrices)
    .where(and(eq(retailPrices.sellerId, sellerId), isCurrent(sellerId)))
    .orderBy(desc(retailPrices.offeringId))
    .limit(LIST_MAX);
  return new Map(rows.map((row) => [row.offeringId, row]));
}

/**
 * Sets what a seller's customers pay. `belowWholesale` confirms a price below the wholesale price. Throws InputError. Source: RTL-2.
 */
export async function setRetailPrice(
  deps: ChangeDeps,
  wanted: { sellerId: number; offeringId: number; priceNano: bigint; belowWholesale: boolean },
): Promise<RetailPrice> {
  return changing(deps, (tx) => setRetailPriceIn(tx, wanted));
}

/** As `setRetailPrice`, in the caller's transaction. */
export async function setRetailPriceIn(
  tx: Tx,
  {
    sellerId,
    offeringId,
    priceNano,
    belowWholesale,
  }: { sellerId: number; offeringId: number; priceNano: bigint; belowWholesale: boolean },
): Promise<RetailPrice> {
  const settings = await settingsIn(tx, sellerId);
  checkRetailPrice(settings, priceNano);
  if (!(await isOffering(tx, offeringId))) throw new InputError("There is no such offering.", "offeringId");
  const set = { priceNano, currency: settings.currency, belowWholesaleConfirmed: belowWholesale };
  try {
    const [row] = await tx
      .insert(retailPrices)
      .values({ sellerId, offeringId, ...set })
      .onConflictDoUpdate({
        target: [retailPrices.sellerId, retailPrices.offeringId],
        set: { ...set, updatedAt: sql`clock_timestamp()` },
      })
      .returning({ belowWholesaleConfirmed: retailPrices.belowWholesaleConfirmed });
    return {
      offeringId,
      priceNano,
      currency: settings.currency,
      belowWholesaleConfirmed: row?.belowWholesaleConfirmed === true,
    };
  } catch (error) {
    // The column's CHECK cannot fail, because the price was checked above: this is the trigger's error.
    if (sqlState(error) !== CHECK_VIOLATION) throw error;
    throw new InputError("This is below the wholesale price. Confirm it, or set a higher price.", "belowWholesale");
  }
}

/**
 * Adds an offering together with the operator's retail price, in one transaction; `retail` null: no price. Throws
 * InputError.
 */
export async function addPricedOffering(
  deps: ChangeDeps,
  wanted: NewOffering,
  retail: { priceNano: bigint; belowWholesale: boolean } | null,
): Promise<Offering> {
  return changing(deps, async (tx) => {
    const offering = await insertOffering(tx, wanted);
    if (retail !== null) await setRetailPriceIn(tx, { sellerId: OPERATOR, offeringId: offering.offeringId, ...retail });
    return offering;
  });
}

/** Removes a price. Returns false if there was none. */
export async function removeRetailPrice(
  deps: ChangeDeps,
  { sellerId, offeringId }: { sellerId: number; offeringId: number },
): Promise<boolean> {
  return changing(deps, async (tx) => {
    const removed = await tx
      .delete(retailPrices)
      .where(isPrice(sellerId, offeringId))
      .returning({ id: retailPrices.offeringId });
    return removed.length > 0;
  });
}

/** Above zero, and what can be paid in the currency: whole cents of most. Throws InputError. */
export function checkRetailPrice(settings: SellingSettings, nano: bigint): void {
  const { currency } = settings;
  const step = payableStepNano(currency);
  if (nano <= 0n || nano > PRICE_NANO_MAX || priceWorth(settings, nano) > MONEY_NANO_USD_MAX)
    throw new InputError(
      sentence("The price must be at least {step}, and at most $9,000,000.", { step: formatAmount(step, currency) }),
      "priceNano",
    );
  if (nano % step !== 0n)
    throw new InputError(
      sentence("The price must be a multiple of {step}.", { step: formatAmount(step, currency) }),
      "priceNano",
    );
}

export type OfferedOffering = Offering & {
  /** What the buyer pays, in `currency`, as its seller has set it: `packageAmounts` adds the tax. null: on request. */
  priceNano: bigint | null;
  currency: string;
};

/**
 * The offerings on sale that a buyer sees, with the buyer's price. A reseller sees all of them at the wholesale price.
 * A customer sees the offerings that its seller has priced; while the seller has priced none, all of them without a
 * price. Source: RTL-3, RTL-4.
 */
export async function offeredTo(deps: { db: Db }, { role, tenantId }: Buyer): Promise<OfferedOffering[]> {
  const onSale = await listOfferings(deps, { enabled: true });
  if (role === "reseller") return onSale.map((row) => ({ ...row, priceNano: row.wholesaleNanoUsd, currency: "usd" }));
  const sellerId = role === "customer" ? tenantId : OPERATOR;
  const { currency } = await settingsIn(deps.db.orm, sellerId);
  const prices = await listRetailPrices(deps, sellerId);
  const all = onSale.map((row) => ({ ...row, priceNano: prices.get(row.offeringId)?.priceNano ?? null, currency }));
  const priced = all.filter(({ priceNano }) => priceNano !== null);
  return role === "admin" || priced.length === 0 ? all : priced;
}

/**
 * What a buyer pays for an offering on sale, as its seller has set it: in its currency, and a reseller in nano-USD; null: on request. Throws InputError if the buyer does not see
 * the offering.
 * Source: RTL-3, RTL-4.
 */
export async function requireOffered(tx: Tx, { role, tenantId }: Buyer, offeringId: number): Promise<bigint | null> {
  const [row] = isRowId(offeringId)
    ? await tx
        .select({
          wholesaleNanoUsd: offerings.wholesaleNanoUsd,
          priceNano: retailPrices.priceNano,
          sellerHasPrices: sql<boolean>`exists (
            select 1 from retail_prices p join offerings o on o.id = p.offering_id
            where p.seller_id = ${tenantId}::bigint and p.currency = ${currencyOf(tenantId)} and o.enabled)`,
        })
        .from(offerings)
        .leftJoin(
          retailPrices,
          and(eq(retailPrices.offeringId, offerings.id), eq(retailPrices.sellerId, tenantId), isCurrent(tenantId)),
        )
        .where(and(eq(offerings.id, offeringId), offerings.enabled, not(offerings.measured)))
    : [];
  if (!row || (role === "customer" && row.priceNano === null && row.sellerHasPrices)) throw notForSale();
  return role === "reseller" ? row.wholesaleNanoUsd : row.priceNano;
}

async function isOffering(tx: Tx, offeringId: number): Promise<boolean> {
  if (!isRowId(offeringId)) return false;
  const found = await tx
    .select({ id: offerings.id })
    .from(offerings)
    .where(and(eq(offerings.id, offeringId), not(offerings.measured)));
  return found.length > 0;
}

/** The price is of the currency in which the seller sells now. */
function isCurrent(sellerId: number): SQL {
  return eq(retailPrices.currency, currencyOf(sellerId));
}

function isPrice(sellerId: number, offeringId: number): SQL | undefined {
  if (!isRowId(offeringId)) return sql`false`;
  return and(eq(retailPrices.sellerId, sellerId), eq(retailPrices.offeringId, offeringId));
}
