/**
 * US dollars as people type them, in the panel and on the command line. Strict: a decimal point, and commas only where they can only mean
 * thousands. An ambiguous amount is rejected, with both ways to write it. Pure.
 */

export const NANO_DECIMALS = 9;
const NANO_PER_USD = 10n ** BigInt(NANO_DECIMALS);
const NOT_AN_AMOUNT = "An amount in US dollars, as in 20 or 12.50.";
/** At most $9,999,999,999, more than any limit of the service. */
const WHOLE = "\\d{1,10}";
const PLAIN = new RegExp(`^([-−]?)\\$?(${WHOLE})(?:\\.(\\d{1,${NANO_DECIMALS}}))?$`);
/** Thousands: two or more groups, or one group followed by decimals. */
const GROUPED = new RegExp(
  `^([-−]?)\\$?(\\d{1,3}(?:(?:,\\d{3}){2,3}|,\\d{3}(?=\\.)))(?:\\.(\\d{1,${NANO_DECIMALS}}))?$`,
);
/** One point or comma, one to three digits before and three after: $1.25 or $1,250? */
const AMBIGUOUS = /^[-−]?\$?([1-9]\d{0,2})[.,](\d{3})$/;

export type TypedUsd = { nanoUsd: bigint } | { wrong: string };

/** "12.50", "$0.0124", "-3", "1,200.50" → nano-USD, exactly; otherwise a sentence that says how to write it. */
export function readUsd(typed: string): TypedUsd {
  const text = typed.trim();
  const [, whole, thousandths] = AMBIGUOUS.exec(text) ?? [];
  if (whole !== undefined && thousandths !== undefined) return { wrong: askWhich(text, whole, thousandths) };
  const [, sign, dollars = "", fraction = ""] = PLAIN.exec(text) ?? GROUPED.exec(text) ?? [];
  if (sign === undefined) return { wrong: NOT_AN_AMOUNT };
  const size = BigInt(dollars.replaceAll(",", "")) * NANO_PER_USD + BigInt(fraction.padEnd(NANO_DECIMALS, "0"));
  return { nanoUsd: sign === "" ? size : -size };
}

/** Nano-USD as `readUsd` reads it back: "12.4", "0.0124", and "1.2250", since three decimals could be thousands. */
export function typedUsd(nanoUsd: bigint): string {
  const text = decimalUsd(nanoUsd);
  return AMBIGUOUS.test(text) ? `${text}0` : text;
}

/** Nano-USD in dollars, without trailing zeros: "12.4", "1.225". */
export function decimalUsd(nanoUsd: bigint): string {
  const size = nanoUsd < 0n ? -nanoUsd : nanoUsd;
  const fraction = (size % NANO_PER_USD).toString().padStart(NANO_DECIMALS, "0").replace(/0+$/, "");
  return `${nanoUsd < 0n ? "-" : ""}${size / NANO_PER_USD}${fraction && `.${fraction}`}`;
}

function askWhich(text: string, whole: string, thousandths: string): string {
  const sign = /^[-−]/.test(text) ? "-" : "";
  const small = thousandths.replace(/0+$/, "");
  const decimals = small === "" ? "00" : small.length === 3 ? `${small}0` : small;
  return `${text} can be read in two ways: write ${sign}${whole}${thousandths} or ${sign}${whole}.${decimals}.`;
}
