import { eq, sql } from "drizzle-orm";
import { checkInteger } from "../accounts/input_checks.ts";
import { InputError } from "../errors.ts";
import { MONEY_NANO_USD_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { decimalsOf } from "../platform/currencies.ts";
import type { Db, Tx } from "../platform/db.ts";
import { buyerDetails } from "../platform/schema_invoices.ts";
import type { OrderTax } from "../platform/schema_offerings.ts";
import { sellers } from "../platform/schema_sellers.ts";
import { ONE_NANO, type OrderAmounts, type SellingTerms, TAX_UNIT, TOTAL_NANO_MAX } from "./order_amounts.ts";
import { COUNTRIES, isInEu } from "./tax_words.ts";
import { checkVatNumber, countryOfVat } from "./vat_numbers.ts";

/**
 * The currency in which a seller sells, and its tax. A change concerns later orders only: an order keeps the terms of its day.
 * Source: TAX-1, TAX-2, TAX-3, CUR-1, CUR-2.
 */

/** At most a million of a currency for one US dollar, and at least a hundredth. */
const USD_RATE_NANO = { min: ONE_NANO / 100n, max: 1_000_000n * ONE_NANO };

export type SellingSettings = Omit<SellingTerms, "reverseCharge"> & { vatNumber: string | null };

/** Sells in US dollars, without tax. */
export const UNSET: SellingSettings = {
  currency: "usd",
  usdRateNano: null,
  taxCountry: null,
  vatNumber: null,
  packageTax: 0,
  topUpTax: 0,
  pricesWithTax: false,
};

const columns = {
  currency: sellers.currency,
  usdRateNano: sellers.usdRateNano,
  taxCountry: sellers.taxCountry,
  vatNumber: sellers.vatNumber,
  packageTax: sellers.packageTax,
  topUpTax: sellers.topUpTax,
  pricesWithTax: sellers.pricesWithTax,
};

export async function sellingSettingsOf({ db }: { db: Db }, sellerId: number): Promise<SellingSettings> {
  return settingsIn(db.orm, sellerId);
}

export async function settingsIn(tx: Tx, sellerId: number): Promise<SellingSettings> {
  const [row] = await tx.select(columns).from(sellers).where(eq(sellers.sellerId, sellerId));
  return row ?? UNSET;
}

/** Changes a seller's currency and tax. What is left out stays as it is. Throws InputError. */
export async function setSellingSettings(
  deps: ChangeDeps,
  sellerId: number,
  wanted: Partial<SellingSettings>,
): Promise<SellingSettings> {
  return changing(deps, async (tx) => {
    await tx.insert(sellers).values({ sellerId }).onConflictDoNothing();
    const [before] = await tx.select(columns).from(sellers).where(eq(sellers.sellerId, sellerId)).for("no key update");
    const set = await checked({ ...UNSET, ...before, ...wanted });
    await tx.update(sellers).set(set).where(eq(sellers.sellerId, sellerId));
    return set;
  });
}

async function checked({
  currency,
  usdRateNano,
  taxCountry,
  vatNumber,
  ...tax
}: SellingSettings): Promise<SellingSettings> {
  if (decimalsOf(currency) === undefined)
    throw new InputError("The currency must be a code of ISO 4217 that is in use, as in eur.", "currency");
  if (currency === "usd" && usdRateNano !== null)
    throw new InputError("The US dollar has no rate of exchange.", "usdRateNano");
  if (
    currency !== "usd" &&
    (usdRateNano === null || usdRateNano < USD_RATE_NANO.min || usdRateNano > USD_RATE_NANO.max)
  )
    throw new InputError("The price of one US dollar must be from 0.01 to 1,000,000 of the currency.", "usdRateNano");
  const rate = { min: 0, max: TAX_UNIT };
  checkInteger(tax.packageTax, { param: "packageTax", ...rate });
  checkInteger(tax.topUpTax, { param: "topUpTax", ...rate });
  if (taxCountry === null) {
    if (vatNumber !== null || tax.packageTax > 0 || tax.topUpTax > 0 || tax.pricesWithTax)
      throw new InputError("Tax needs the country that you pay it to.", "taxCountry");
    return { ...UNSET, currency, usdRateNano };
  }
  if (!COUNTRIES.includes(taxCountry))
    throw new InputError("The country must be a code of two letters, as in DE.", "taxCountry");
  // Outside the EU a number has no form that is known here.
  const number = isInEu(taxCountry) ? await checkVatNumber(vatNumber) : null;
  if (!isInEu(taxCountry) && vatNumber !== null && vatNumber.trim() !== "")
    throw new InputError(
      "Only numbers of the EU are checked. Print another one by the tax line of your invoices.",
      "vatNumber",
    );
  if (number !== null && countryOfVat(number) !== taxCountry)
    throw new InputError("This is a VAT number of another country.", "vatNumber");
  return { currency, usdRateNano, taxCountry, vatNumber: number, ...tax };
}

/** What a seller's terms are for a buyer today, and the VAT numbers of both. */
export type Terms = SellingTerms & { sellerVatNumber: string | null; buyerVatNumber: string | null };

export async function sellingTermsIn(
  tx: Tx,
  { sellerId, accountId }: { sellerId: number; accountId: number },
): Promise<Terms> {
  const { vatNumber: sellerVatNumber, ...settings } = await settingsIn(tx, sellerId);
  const [buyer] = await tx
    .select({ vatNumber: buyerDetails.vatNumber })
    .from(buyerDetails)
    .where(eq(buyerDetails.accountId, accountId));
  const buyerVatNumber = buyer?.vatNumber ?? null;
  return {
    ...settings,
    sellerVatNumber,
    buyerVatNumber,
    reverseCharge: isReversed({ ...settings, sellerVatNumber, buyerVatNumber }),
  };
}

/** A business of another country of the EU owes the tax itself, if both have a VAT number. Source: TAX-3. */
function isReversed({
  taxCountry,
  sellerVatNumber,
  buyerVatNumber,
}: Pick<Terms, "taxCountry" | "sellerVatNumber" | "buyerVatNumber">): boolean {
  if (taxCountry === null || sellerVatNumber === null || buyerVatNumber === null) return false;
  return isInEu(taxCountry) && countryOfVat(buyerVatNumber) !== taxCountry;
}

/**
 * Throws InputError if an amount is too small or too large to be paid. A price was within the limits when it was set, but the seller's rate of
 * exchange has changed since.
 */
export function requirePayable({ netNano, totalNano, priceNanoUsd }: OrderAmounts): void {
  if (netNano <= 0n || priceNanoUsd <= 0n)
    throw new InputError("This amount is too small to be paid in the currency of the seller.", "amountNanoUsd");
  if (totalNano > TOTAL_NANO_MAX || priceNanoUsd > MONEY_NANO_USD_MAX)
    throw new InputError("This amount is too large to be paid in the currency of the seller.", "amountNanoUsd");
}

/** The columns of an order that costs this. Throws InputError as `requirePayable`. */
export function orderColumns(terms: Terms, amounts: OrderAmounts, kind: "package" | "top_up") {
  requirePayable(amounts);
  const { currency, netNano, taxNano, priceNanoUsd } = amounts;
  const isUsd = currency === "usd";
  return {
    ...{ currency, taxNano, priceNanoUsd, tax: taxOf(terms, kind) },
    netNano: isUsd ? null : netNano,
    usdRateNano: isUsd ? null : terms.usdRateNano,
  };
}

function taxOf(terms: Terms, kind: "package" | "top_up"): OrderTax | null {
  const { taxCountry: country, packageTax, topUpTax, reverseCharge, sellerVatNumber, buyerVatNumber } = terms;
  if (country === null) return null;
  return { country, rate: kind === "package" ? packageTax : topUpTax, reverseCharge, sellerVatNumber, buyerVatNumber };
}

/** The currency in which a seller sells, in SQL: the prices of another one have no effect. */
export function currencyOf(sellerId: number) {
  return sql<string>`coalesce((select currency from sellers where seller_id = ${sellerId}::bigint), 'usd')`;
}
