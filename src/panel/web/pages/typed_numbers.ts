import { formatCount, parseUsd, wrongUsd } from "../format.ts";

/**
 * Numbers and money as they are typed into a form: read, and what is wrong with them. They are kept as typed, so that a typing error
 * is told apart from an empty field. Pure.
 */

type Bounds = { min: number; max: number; optional?: boolean };

/** "15,000" → 15000; NaN for what is no whole number, null for nothing. */
export function readCount(typed: string): number | null {
  const text = typed.trim();
  if (text === "") return null;
  // A comma parts thousands: in a whole number it can be nothing else.
  const isWhole = /^-?\d{1,15}$/.test(text) || /^-?\d{1,3}(?:,\d{3}){1,4}$/.test(text);
  return isWhole ? Number(text.replaceAll(",", "")) : Number.NaN;
}

/** What is wrong with a typed whole number; null: nothing. */
export function checkCount(typed: string, { min, max, optional = false }: Bounds): string | null {
  const count = readCount(typed);
  if (count === null && optional) return null;
  return count !== null && count >= min && count <= max
    ? null
    : `A whole number from ${formatCount(min)} to ${formatCount(max)}.`;
}

const NANO_PER_MICRO = 1_000n;
const NANO_PER_USD = 1_000_000_000n;

/** Typed dollars → micro-USD, the unit of prices; null for nothing, NaN for what is none. */
export function readMicroUsd(typed: string): number | null {
  if (typed.trim() === "") return null;
  const nano = parseUsd(typed);
  return nano === null || BigInt(nano) % NANO_PER_MICRO !== 0n ? Number.NaN : Number(BigInt(nano) / NANO_PER_MICRO);
}

/** What is wrong with typed dollars, at most `maxUsd`, with `decimals` at most; null: nothing. */
export function checkUsd(
  typed: string,
  { maxUsd, decimals, optional = false }: { maxUsd: number; decimals: 6 | 9; optional?: boolean },
): string | null {
  if (typed.trim() === "" && optional) return null;
  const wrong = wrongUsd(typed);
  if (wrong !== null) return wrong;
  const amount = BigInt(parseUsd(typed) ?? 0);
  if (amount < 0n || amount > BigInt(maxUsd) * NANO_PER_USD) return `From $0 to $${formatCount(maxUsd)}.`;
  return decimals === 6 && amount % NANO_PER_MICRO !== 0n ? "Dollars, with up to 6 decimals." : null;
}

/** What is wrong with a typed amount of money; null: nothing. A correction may be below zero. */
export function wrongAmount(typed: string, { mayTake = false } = {}): string | null {
  const wrong = wrongUsd(typed);
  if (wrong !== null) return wrong;
  const nanoUsd = BigInt(parseUsd(typed) ?? 0);
  if (nanoUsd === 0n || (!mayTake && nanoUsd < 0n)) return "An amount above zero.";
  return null;
}
