import { InputError } from "../errors.ts";

/** Money as people write it, to and from integers: exact, no floating point on the way. */

const NANO_DECIMALS = 9;
const MICRO_DECIMALS = 6;
/** Nine million dollars: the most a balance may hold. */
const USD_MAX = 9_000_000n;

/** `12.40`, `$0.000000001`, `-3` → nano-USD. Throws InputError. */
export function parseUsd(text: string): bigint {
  return parseDecimal(text, NANO_DECIMALS);
}

/** A price as `0.15` → micro-USD. Throws InputError. */
export function parsePrice(text: string): number {
  const micro = parseDecimal(text, MICRO_DECIMALS);
  if (micro < 0n) throw new InputError("A price is not negative.");
  return Number(micro);
}

/** Nano-USD as `$12.40`: all digits that count, two decimals at least. */
export function formatUsd(nanoUsd: bigint): string {
  const text = decimalUsd(nanoUsd);
  return text.startsWith("-") ? `-$${text.slice(1)}` : `$${text}`;
}

/** Nano-USD as `12.40`, for machines. */
export function decimalUsd(nanoUsd: bigint): string {
  return formatDecimal(nanoUsd, NANO_DECIMALS);
}

/** Micro-USD as `$0.15`. */
export function formatPrice(microUsd: number): string {
  return `$${formatDecimal(BigInt(microUsd), MICRO_DECIMALS)}`;
}

function parseDecimal(text: string, decimals: number): bigint {
  const [, sign, whole = "", fraction = ""] = /^(-?)\$?(\d{1,12})(?:\.(\d+))?$/.exec(text.trim()) ?? [];
  if (sign === undefined) throw new InputError(`${JSON.stringify(text)} is not an amount in USD, as in 12.50.`);
  if (fraction.length > decimals) throw new InputError(`An amount in USD has at most ${decimals} decimals here.`);
  const scale = 10n ** BigInt(decimals);
  const amount = BigInt(whole) * scale + BigInt(fraction.padEnd(decimals, "0"));
  if (amount > USD_MAX * scale) throw new InputError("An amount is at most 9,000,000 USD.");
  return sign === "-" ? -amount : amount;
}

function formatDecimal(amount: bigint, decimals: number): string {
  const digits = String(amount < 0n ? -amount : amount).padStart(decimals + 1, "0");
  const fraction = digits.slice(-decimals).replace(/0+$/, "").padEnd(2, "0");
  return `${amount < 0n ? "-" : ""}${digits.slice(0, -decimals)}.${fraction}`;
}
