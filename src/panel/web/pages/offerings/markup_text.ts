import { NUMBERS } from "#language";

/** Markups as people read and type them: in percent. On the wire they are basis points; one is 0.01 %. */

const BASIS_POINTS_A_PERCENT = 100;

/** 1250 → "12.5%". */
export function formatMarkup(basisPoints: number): string {
  return new Intl.NumberFormat(NUMBERS, { style: "percent", maximumFractionDigits: 2, useGrouping: false }).format(
    basisPoints / BASIS_POINTS_A_PERCENT / 100,
  );
}

/** 1250 → "12.5", for a field. */
export function typedMarkup(basisPoints: number): string {
  return String(basisPoints / BASIS_POINTS_A_PERCENT);
}

/** "12.5" → 1250. The text was checked by `wrongPercent`: at most two decimals. */
export function readMarkup(typed: string): number {
  return Math.round(Number(typed.trim()) * BASIS_POINTS_A_PERCENT);
}
