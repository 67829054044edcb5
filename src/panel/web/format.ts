import { plural, t } from "@lingui/core/macro";
import { formatAmount as formatIn } from "../../platform/currencies.ts";
import { decimalUsd, readUsd, typedUsd } from "../../platform/usd.ts";
import { DATES, language, NUMBERS } from "./language.ts";

/**
 * How numbers, money, durations and times look in the language of the page; the examples are English. Pure: functions that depend on
 * the current time take `now` in unix milliseconds (`nowMs()` of ui/clock.ts).
 */

const NANO_PER_USD = 1_000_000_000n;
const PICO_PER_USD = 1_000_000_000_000n;
/** Decimals below one dollar, at most. A smaller amount is shown as "<$0.000001". */
const DECIMALS_MAX = 6;
const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const MINUS = "\u2212";

/** 15000 → "15,000". */
export function formatCount(count: number | bigint): string {
  return new Intl.NumberFormat(NUMBERS).format(count);
}

/** 9210 → "9.2k"; for axes and narrow places. */
export function formatCompact(count: number): string {
  const compact = new Intl.NumberFormat(NUMBERS, { notation: "compact", maximumFractionDigits: 1 }).format(count);
  return language === "en" ? compact.replace("K", "k") : compact;
}

/** 0.803 → "80%". Never "100%" for less than all, nor "0%" for more than nothing. */
export function formatShare(share: number): string {
  const rounded = Math.round(share * 100);
  const percent = rounded >= 100 && share < 1 ? 99 : rounded <= 0 && share > 0 ? 1 : rounded;
  return new Intl.NumberFormat(NUMBERS, { style: "percent" }).format(percent / 100);
}

/** Lists for a sentence: "a", "a and b", "a, b and c". */
export function formatList(words: readonly string[], joint: "and" | "or" = "and"): string {
  const type = joint === "and" ? "conjunction" : "disjunction";
  return new Intl.ListFormat(DATES, { type }).format(words);
}

/**
 * Nano-USD as dollars: two decimals from $1, below it up to six, never "$0.00" for something:
 * "12400000000" → "$12.40", "12400000" → "$0.0124", "40000000" → "$0.04", "200" → "<$0.000001", "-400000000" → "−$0.40".
 * Throws a SyntaxError if the text is no integer.
 */
export function formatMoney(nanoUsd: string | bigint, { sign = false }: { sign?: boolean } = {}): string {
  const amount = BigInt(nanoUsd);
  const size = amount < 0n ? -amount : amount;
  const prefix = amount < 0n ? MINUS : sign && amount > 0n ? "+" : "";
  if (size >= NANO_PER_USD - NANO_PER_USD / 1_000_000n / 2n) return `${prefix}${dollars(decimals(size, 2))}`;
  const text = decimals(size, DECIMALS_MAX).replace(/(\.\d\d\d*?)0+$/, "$1");
  if (size > 0n && /^[0.]+$/.test(text)) return `${prefix}<${dollars(`0.${"0".repeat(DECIMALS_MAX - 1)}1`)}`;
  return `${prefix}${dollars(text)}`;
}

/**
 * Two amounts of one sentence: as formatMoney, unless they differ and would look alike. Then both are exact: a cost of "$2.00" and a
 * balance of "$1.9990".
 */
export function formatApart(one: string | bigint, other: string | bigint): [string, string] {
  const shown: [string, string] = [formatMoney(one), formatMoney(other)];
  if (shown[0] !== shown[1] || BigInt(one) === BigInt(other)) return shown;
  return [dollars(typedUsd(BigInt(one))), dollars(typedUsd(BigInt(other)))];
}

/** Billionths of a currency (as "eur"), with its decimals: "1250000000" of "eur" → "€1.25". */
export function formatAmount(nano: bigint | string, currency: string): string {
  return formatIn(nano, currency, NUMBERS);
}

/** Dollars as in the API's errors (`limit`, `remaining` of insufficient_balance) → as formatMoney. */
export function formatUsd(usd: number): string {
  return formatMoney(toNanoUsd(usd));
}

/** Dollars as in the API's errors → nano-USD. */
export function toNanoUsd(usd: number): bigint {
  return BigInt(Math.round(usd * Number(NANO_PER_USD)));
}

/** A price in micro-USD per million tokens: "3000000" → "$3.00/M", "1225000" → "$1.225/M". */
export function formatPrice(microUsdPerMillion: string | number | bigint): string {
  return t({ message: `${{ price: formatMicroUsd(microUsdPerMillion) }}/M`, comment: "a price per million tokens" });
}

/** Micro-USD without rounding, for amounts that are multiplied: "1225000" → "$1.225", "40000" → "$0.04". */
export function formatMicroUsd(microUsd: string | number | bigint): string {
  return dollars(decimalUsd(BigInt(microUsd) * 1_000n));
}

/** Pico-USD without rounding, for prices with a markup: "1408750000" → "$0.00140875". */
export function formatPicoUsd(picoUsd: string | bigint): string {
  const amount = BigInt(picoUsd);
  return dollars(
    `${amount / PICO_PER_USD}.${String(amount % PICO_PER_USD)
      .padStart(12, "0")
      .replace(/0+$/, "")}`,
  );
}

/** Nano-USD → what a person types: "12.4", "0.0124", "1.2250"; no rounding. The other way: parseUsd. */
export function toUsdInput(nanoUsd: string | bigint): string {
  return typedUsd(BigInt(nanoUsd));
}

/** Typed dollars → nano-USD as text, exactly; null if it is not an amount, or ambiguous. */
export function parseUsd(typed: string): string | null {
  const read = readUsd(typed);
  return "nanoUsd" in read ? String(read.nanoUsd) : null;
}

/** The error of typed dollars, which says how to write them, or null. */
export function wrongUsd(typed: string): string | null {
  const read = readUsd(typed);
  return "wrong" in read ? read.wrong : null;
}

/** How long something took: "0.4 s", "1.8 s", "42 s", "2 min 5 s". */
export function formatTook(ms: number): string {
  if (ms < 950) return t`${{ count: formatCount(Math.max(1, Math.round(ms))) }} ms`;
  if (ms < 9_950) return t`${{ count: formatDecimal(ms / SECOND_MS, 1) }} s`;
  return formatDuration(ms);
}

const seconds = (count: number) => t`${{ count: formatCount(count) }} s`;
const minutes = (count: number) => t`${{ count: formatCount(count) }} min`;
const hours = (count: number) => t`${{ count: formatCount(count) }} h`;
// German has another form of the word alone.
const days = (count: number) =>
  t({ message: plural(count, { one: "# day", other: "# days" }), context: "in a sentence: in 3 days, 3 days ago" });

/** A duration in its two largest units: "5 h 12 min", "23 days", "40 s"; from ten days on only days. */
export function formatDuration(ms: number): string {
  // Rounded up: what is announced "in 1 min" must have happened then.
  const inSeconds = Math.ceil(Math.max(0, ms) / SECOND_MS);
  if (inSeconds < 60) return seconds(inSeconds);
  if (inSeconds < 120) return two(inSeconds, 60, minutes, seconds);
  const inMinutes = Math.ceil(inSeconds / 60);
  if (inMinutes < 60) return minutes(inMinutes);
  if (inMinutes < 24 * 60) return two(inMinutes, 60, hours, minutes);
  const inHours = Math.ceil(inMinutes / 60);
  if (inHours >= 240) return days(Math.round(inHours / 24));
  return two(inHours, 24, days, hours);
}

/** "2 min ago", "in 23 days", "just now". */
export function formatRelative(iso: string, now: number): string {
  const difference = Date.parse(iso) - now;
  const size = Math.abs(difference);
  if (size < 45 * SECOND_MS) return t`just now`;
  const span =
    size < 50 * MINUTE_MS
      ? minutes(Math.max(1, Math.round(size / MINUTE_MS)))
      : size < 23.5 * HOUR_MS
        ? hours(Math.round(size / HOUR_MS))
        : days(Math.max(1, Math.round(size / DAY_MS)));
  return difference < 0
    ? t({ message: `${span} ago`, comment: "span: 2 min, 3 h, 23 days" })
    : t({ message: `in ${span}`, comment: "span: 2 min, 3 h, 23 days" });
}

/** 1.84 with one decimal → "1.8". */
export function formatDecimal(value: number, places: number): string {
  return new Intl.NumberFormat(NUMBERS, { minimumFractionDigits: places, maximumFractionDigits: places }).format(value);
}

/** A time in the viewer's zone: "14 Dec, 09:14", with seconds on request and the year if it is not the current one. */
export function formatInstant(iso: string, { seconds = false, now }: { seconds?: boolean; now?: number } = {}): string {
  const date = new Date(iso);
  const isOtherYear = now !== undefined && date.getFullYear() !== new Date(now).getFullYear();
  return new Intl.DateTimeFormat(DATES, {
    day: "numeric",
    month: "short",
    ...(isOtherYear && { year: "numeric" }),
    hour: "2-digit",
    minute: "2-digit",
    ...(seconds && { second: "2-digit" }),
    hourCycle: "h23",
  }).format(date);
}

/** The same time for the title: "2026-12-14 08:14:02 UTC". */
export function formatUtc(iso: string): string {
  return `${new Date(iso).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** The day of a time in a zone: "14 Dec", or "14 Dec 2027" in another year than `now`. */
export function formatDay(iso: string, zone: string, now?: number): string {
  const inYear = (ms: number) => new Intl.DateTimeFormat(DATES, { year: "numeric", timeZone: zone }).format(ms);
  const isOtherYear = now !== undefined && inYear(Date.parse(iso)) !== inYear(now);
  return new Intl.DateTimeFormat(DATES, {
    day: "numeric",
    month: "short",
    ...(isOtherYear && { year: "numeric" }),
    timeZone: zone,
  }).format(new Date(iso));
}

/** A calendar day as the API writes it, "2026-12-14" → "14 Dec". It has no zone and is not converted. */
export function formatCalendarDay(day: string): string {
  return formatDay(`${day}T00:00:00Z`, "UTC");
}

/** A month as the API writes it, "2026-11" → "November 2026". */
export function formatMonth(month: string): string {
  return new Intl.DateTimeFormat(DATES, { month: "long", year: "numeric", timeZone: "UTC" }).format(
    new Date(`${month}-01T00:00:00Z`),
  );
}

/** This month in a zone and those before it, newest first, as the API writes them: "2026-11". */
export function lastMonths(count: number, zone: string, now: number): string[] {
  const text = new Intl.DateTimeFormat("en-GB", { month: "numeric", year: "numeric", timeZone: zone }).format(now);
  const [month = 1, year = 0] = text.split("/").map(Number);
  return Array.from({ length: count }, (_, back) =>
    new Date(Date.UTC(year, month - 1 - back, 1)).toISOString().slice(0, 7),
  );
}

/** "08:00" in a zone. */
export function formatTime(iso: string, zone?: string): string {
  return new Intl.DateTimeFormat(DATES, {
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    ...(zone && { timeZone: zone }),
  }).format(new Date(iso));
}

/** "Berlin time", or "UTC". */
export function formatZoneTime(zone: string): string {
  return zone === "UTC" ? zone : t`${{ place: formatZone(zone) }} time`;
}

/** A short name of a zone: "Europe/Berlin" → "Berlin", "America/New_York" → "New York", "Etc/UTC" → "UTC". */
export function formatZone(zone: string): string {
  return (zone.split("/").pop() ?? zone).replaceAll("_", " ");
}

/** When something resets: "00:00 Berlin (08:00 your time)"; without the bracket if both clocks agree. */
export function formatReset(iso: string, zone: string): string {
  const there = formatTime(iso, zone);
  const here = formatTime(iso);
  const place = formatZone(zone);
  return there === here ? `${there} ${place}` : t`${there} ${place} (${here} your time)`;
}

/** A key or an id by its two ends: "sk-7QfAbc…x9Kd". Short ones are shown whole. */
export function formatEnds(text: string, first = 8, last = 4): string {
  return text.length <= first + last + 1 ? text : `${text.slice(0, first)}…${text.slice(-last)}`;
}

/** Bytes in the largest unit that fits: "256 KB". */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${formatCount(bytes)} B`;
  if (bytes < 1024 * 1024) return `${formatCount(Math.round(bytes / 1024))} KB`;
  return `${formatDecimal(bytes / 1024 / 1024, 1)} MB`;
}

/** Decimal dollars, "1250.5", as money with all their decimals, at least two: "$1,250.50". Not rounded. */
function dollars(usd: string): string {
  const places = Math.max(2, usd.split(".")[1]?.length ?? 0);
  return new Intl.NumberFormat(NUMBERS, {
    style: "currency",
    currency: "USD",
    currencyDisplay: "narrowSymbol",
    minimumFractionDigits: places,
    maximumFractionDigits: places,
  }).format(usd as Intl.StringNumericLiteral);
}

/** A size in nano-USD with this many decimals, half up: "1250.50". */
function decimals(size: bigint, places: number): string {
  const unit = NANO_PER_USD / 10n ** BigInt(places);
  const rounded = (size + unit / 2n) / unit;
  const scale = 10n ** BigInt(places);
  return `${rounded / scale}.${(rounded % scale).toString().padStart(places, "0")}`;
}

/** "2 min 5 s", or "2 min" if there is no rest. */
function two(count: number, each: number, large: (count: number) => string, small: (count: number) => string): string {
  const rest = count % each;
  const whole = large(Math.floor(count / each));
  return rest === 0 ? whole : t({ message: `${whole} ${{ rest: small(rest) }}`, comment: "a duration: 5 h 12 min" });
}
