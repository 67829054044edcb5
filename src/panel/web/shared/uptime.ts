import { NUMBERS } from "../language.ts";

/** How good a share of answered requests is, as pages show it. Pure. */

/** Shares that are good and bad enough for other looks. */
const GOOD = 0.99;
const BAD = 0.9;

/** The colour of a bar. */
export function levelOf(share: number): string {
  if (share >= GOOD) return "bg-ok";
  return share >= BAD ? "bg-warn" : "bg-bad-fill";
}

/** The height of a bar, so that a bad day does not differ by its colour alone. */
export function heightOf(share: number): string {
  if (share >= GOOD) return "h-8";
  return share >= BAD ? "h-6" : "h-4";
}

/** "100%" only if nothing failed. */
export function shareText(share: number): string {
  const digits = share === 1 ? 0 : 2;
  return new Intl.NumberFormat(NUMBERS, {
    style: "percent",
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  }).format(Math.floor(share * 10_000) / 10_000);
}
