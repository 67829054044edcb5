import { t } from "@lingui/core/macro";
import { CENT_NANO_USD, MONEY_NANO_USD_MAX, MONEY_USD_MAX } from "../../../limits.ts";
import { payableStepNano } from "../../../platform/currencies.ts";
import { formatAmount, formatCount, parseUsd, wrongUsd } from "../format.ts";

/**
 * Numbers and money as they are typed into a form: reading and checking them. Forms keep the typed text, so that an invalid number
 * differs from an empty field. Pure.
 */

type Bounds = { min: number; max: number; optional?: boolean };

/** "15,000" → 15000; NaN if it is not a whole number, null if it is empty. */
export function readCount(typed: string): number | null {
  const text = typed.trim();
  if (text === "") return null;
  // In a whole number a comma can only separate thousands.
  const isWhole = /^-?\d{1,15}$/.test(text) || /^-?\d{1,3}(?:,\d{3}){1,4}$/.test(text);
  return isWhole ? Number(text.replaceAll(",", "")) : Number.NaN;
}

/** The error of a typed whole number, or null. */
export function checkCount(typed: string, { min, max, optional = false }: Bounds): string | null {
  const count = readCount(typed);
  if (count === null && optional) return null;
  return count !== null && count >= min && count <= max
    ? null
    : t`A whole number from ${{ min: formatCount(min) }} to ${{ max: formatCount(max) }}.`;
}

const NANO_PER_MICRO = 1_000n;
const NANO_PER_USD = 1_000_000_000n;

/** Typed dollars → micro-USD, the unit of prices; null if it is empty, NaN if it is not valid. */
export function readMicroUsd(typed: string): number | null {
  if (typed.trim() === "") return null;
  const nano = parseUsd(typed);
  return nano === null || BigInt(nano) % NANO_PER_MICRO !== 0n ? Number.NaN : Number(BigInt(nano) / NANO_PER_MICRO);
}

/** The error of typed dollars from 0 to `maxUsd` with at most `decimals`, or null. */
export function checkUsd(
  typed: string,
  { maxUsd, decimals, optional = false }: { maxUsd: number; decimals: 6 | 9; optional?: boolean },
): string | null {
  if (typed.trim() === "" && optional) return null;
  const wrong = wrongUsd(typed);
  if (wrong !== null) return wrong;
  const amount = BigInt(parseUsd(typed) ?? 0);
  if (amount < 0n || amount > BigInt(maxUsd) * NANO_PER_USD) return t`From $0 to $${{ max: formatCount(maxUsd) }}.`;
  return decimals === 6 && amount % NANO_PER_MICRO !== 0n ? t`Dollars, with up to 6 decimals.` : null;
}

/** The error of a text that is no amount of a currency, which it names, or null. */
function unreadable(typed: string, currency: string): string | null {
  const wrong = wrongUsd(typed);
  return currency === "usd" || wrong === null || wrong !== wrongUsd("")
    ? wrong
    : t`An amount in ${{ currency: currency.toUpperCase() }}, as in 20 or 12.50.`;
}

/**
 * The error of a typed amount of money that is not zero, or null. `mayTake` allows negative amounts. In other currencies than dollars the
 * largest amount is what the server knows.
 */
export function wrongAmount(typed: string, { mayTake = false, currency = "usd" } = {}): string | null {
  const wrong = unreadable(typed, currency);
  if (wrong !== null) return wrong;
  const nano = BigInt(parseUsd(typed) ?? 0);
  if (nano === 0n || (!mayTake && nano < 0n)) return t`Enter an amount above zero.`;
  const isTooMuch = currency === "usd" && (nano > MONEY_NANO_USD_MAX || nano < -MONEY_NANO_USD_MAX);
  return isTooMuch ? t`At most $${{ max: formatCount(MONEY_USD_MAX) }}.` : null;
}

/** The error of a typed amount that people pay, in what can be paid in the currency, or null. The server knows the largest one. */
export function checkPrice(typed: string, currency = "usd"): string | null {
  const wrong = unreadable(typed, currency);
  if (wrong !== null) return wrong;
  const amount = BigInt(parseUsd(typed) ?? 0);
  if (currency !== "usd") {
    const step = payableStepNano(currency);
    if (amount <= 0n) return t`Enter an amount above zero.`;
    return amount % step === 0n ? null : t`A multiple of ${{ step: formatAmount(step, currency) }}.`;
  }
  if (amount % CENT_NANO_USD !== 0n) return t`Whole cents.`;
  return amount <= 0n || amount > MONEY_NANO_USD_MAX ? t`From $0.01 to $${{ max: formatCount(MONEY_USD_MAX) }}.` : null;
}

/** The error of a typed percentage with at most two decimals, or null. */
export function wrongPercent(typed: string, { min, max }: { min: number; max: number }): string | null {
  const text = typed.trim();
  const percent = /^\d{1,9}(?:\.\d{1,2})?$/.test(text) ? Number(text) : Number.NaN;
  return percent >= min && percent <= max
    ? null
    : t`From ${{ min: formatCount(min) }} to ${{ max: formatCount(max) }}, with up to two decimals.`;
}
