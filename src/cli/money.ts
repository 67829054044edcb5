import { InputError } from "../errors.ts";
import { MONEY_NANO_USD_MAX } from "../limits.ts";
import { NANO_DECIMALS, readUsd } from "../platform/usd.ts";

/** Converts amounts of money between text and integers, exactly, without floating point. */

const MICRO_DECIMALS = 6;
const PICO_DECIMALS = 12;
const NANO_PER_MICRO = 1_000n;
const BASIS_POINTS_A_PERCENT = 100;

/** `12.40`, `$0.000000001`, `-3` → nano-USD. Throws InputError, also for ambiguous text such as `1,250`. */
export function parseUsd(text: string): bigint {
  const read = readUsd(text);
  if ("wrong" in read) throw new InputError(read.wrong);
  const { nanoUsd } = read;
  if ((nanoUsd < 0n ? -nanoUsd : nanoUsd) > MONEY_NANO_USD_MAX)
    throw new InputError("An amount can be at most 9,000,000 USD.");
  return nanoUsd;
}

/** A price as `0.15` → micro-USD. Throws InputError. */
export function parsePrice(text: string): number {
  const nanoUsd = parseUsd(text);
  if (nanoUsd < 0n) throw new InputError("A price cannot be negative.");
  if (nanoUsd % NANO_PER_MICRO !== 0n) throw new InputError(`A price has at most ${MICRO_DECIMALS} decimals.`);
  return Number(nanoUsd / NANO_PER_MICRO);
}

/** Nano-USD as `$12.40`: all significant digits, at least two decimals. */
export function formatUsd(nanoUsd: bigint): string {
  const text = paddedUsd(nanoUsd);
  return text.startsWith("-") ? `-$${text.slice(1)}` : `$${text}`;
}

/** Nano-USD as `12.40`, for programs. */
export function paddedUsd(nanoUsd: bigint): string {
  return formatDecimal(nanoUsd, NANO_DECIMALS);
}

/** Micro-USD as `$0.15`. */
export function formatPrice(microUsd: number): string {
  return `$${formatDecimal(BigInt(microUsd), MICRO_DECIMALS)}`;
}

/** Pico-USD as `$0.00000075`, without rounding. */
export function formatPico(picoUsd: bigint): string {
  return `$${formatDecimal(picoUsd, PICO_DECIMALS)}`;
}

/** Basis points as `12.5 %`. */
export function formatPercent(basisPoints: number): string {
  return `${basisPoints / BASIS_POINTS_A_PERCENT} %`;
}

function formatDecimal(amount: bigint, decimals: number): string {
  const digits = String(amount < 0n ? -amount : amount).padStart(decimals + 1, "0");
  const fraction = digits.slice(-decimals).replace(/0+$/, "").padEnd(2, "0");
  return `${amount < 0n ? "-" : ""}${digits.slice(0, -decimals)}.${fraction}`;
}
