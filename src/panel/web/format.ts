import { decimalUsd, readUsd, typedUsd } from "../../platform/usd.ts";

/**
 * How numbers, money, durations and times look. One language (en), so that words and figures match on every machine. Pure: functions
 * that depend on the current time take `now` in unix milliseconds (`nowMs()` of ui/clock.ts).
 */

const NANO_PER_USD = 1_000_000_000n;
const PICO_PER_USD = 1_000_000_000_000n;
/** Decimals below one dollar, at most. A smaller amount is shown as "<$0.000001". */
const DECIMALS_MAX = 6;
const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const NUMBERS = "en-US";
/** Day before month: "14 Dec". */
const DATES = "en-GB";
const MINUS = "\u2212";

/** 15000 → "15,000". */
export function formatCount(count: number | bigint): string {
  return new Intl.NumberFormat(NUMBERS).format(count);
}

/** 9210 → "9.2k"; for axes and narrow places. */
export function formatCompact(count: number): string {
  return new Intl.NumberFormat(NUMBERS, { notation: "compact", maximumFractionDigits: 1 })
    .format(count)
    .replace("K", "k");
}

/** 0.803 → "80%". Never "100%" for less than all, nor "0%" for more than nothing. */
export function formatShare(share: number): string {
  const percent = Math.round(share * 100);
  if (percent >= 100 && share < 1) return "99%";
  if (percent <= 0 && share > 0) return "1%";
  return `${percent}%`;
}

/** "1 request", "312 requests"; another plural as third argument. */
export function formatOf(count: number | bigint, one: string, many = `${one}s`): string {
  return `${formatCount(count)} ${BigInt(count) === 1n ? one : many}`;
}

/** Lists for a sentence: "a", "a and b", "a, b and c". */
export function formatList(words: readonly string[], joint: "and" | "or" = "and"): string {
  return words.length < 2 ? (words[0] ?? "") : `${words.slice(0, -1).join(", ")} ${joint} ${words[words.length - 1]}`;
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
  if (size >= NANO_PER_USD - NANO_PER_USD / 1_000_000n / 2n) return `${prefix}$${decimals(size, 2)}`;
  const text = decimals(size, DECIMALS_MAX).replace(/(\.\d\d\d*?)0+$/, "$1");
  if (size > 0n && /^[0.]+$/.test(text)) return `${prefix}<$0.${"0".repeat(DECIMALS_MAX - 1)}1`;
  return `${prefix}$${text}`;
}

/**
 * Two amounts of one sentence: as formatMoney, unless they differ and would look alike. Then both are exact: a cost of "$2.00" and a
 * balance of "$1.9990".
 */
export function formatApart(one: string | bigint, other: string | bigint): [string, string] {
  const shown: [string, string] = [formatMoney(one), formatMoney(other)];
  if (shown[0] !== shown[1] || BigInt(one) === BigInt(other)) return shown;
  return [`$${exactUsd(typedUsd(BigInt(one)))}`, `$${exactUsd(typedUsd(BigInt(other)))}`];
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
  return `${formatMicroUsd(microUsdPerMillion)}/M`;
}

/** Micro-USD without rounding, for amounts that are multiplied: "1225000" → "$1.225", "40000" → "$0.04". */
export function formatMicroUsd(microUsd: string | number | bigint): string {
  return `$${exactUsd(decimalUsd(BigInt(microUsd) * 1_000n))}`;
}

/** Pico-USD without rounding, for prices with a markup: "1408750000" → "$0.00140875". */
export function formatPicoUsd(picoUsd: string | bigint): string {
  const amount = BigInt(picoUsd);
  const fraction = String(amount % PICO_PER_USD)
    .padStart(12, "0")
    .replace(/0+$/, "")
    .padEnd(2, "0");
  return `$${formatCount(amount / PICO_PER_USD)}.${fraction}`;
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
  if (ms < 950) return `${Math.max(1, Math.round(ms))} ms`;
  if (ms < 9_950) return `${(ms / SECOND_MS).toFixed(1)} s`;
  return formatDuration(ms);
}

/** A duration in its two largest units: "5 h 12 min", "23 days", "40 s"; from ten days on only days. */
export function formatDuration(ms: number): string {
  // Rounded up: what is announced "in 1 min" must have happened then.
  const seconds = Math.ceil(Math.max(0, ms) / SECOND_MS);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 120) return two(seconds, 60, "min", "s");
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return two(minutes, 60, "h", "min");
  const hours = Math.ceil(minutes / 60);
  const days = Math.floor(hours / 24);
  if (days >= 10 || hours % 24 === 0) return formatOf(Math.round(hours / 24), "day");
  return `${formatOf(days, "day")} ${hours % 24} h`;
}

/** "2 min ago", "in 23 days", "just now". */
export function formatRelative(iso: string, now: number): string {
  const difference = Date.parse(iso) - now;
  const size = Math.abs(difference);
  if (size < 45 * SECOND_MS) return "just now";
  const [count, unit] =
    size < 50 * MINUTE_MS
      ? [Math.max(1, Math.round(size / MINUTE_MS)), "min"]
      : size < 23.5 * HOUR_MS
        ? [Math.round(size / HOUR_MS), "h"]
        : [Math.max(1, Math.round(size / DAY_MS)), "day"];
  const span = unit === "day" ? formatOf(count, "day") : `${count} ${unit}`;
  return difference < 0 ? `${span} ago` : `in ${span}`;
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
  const text = new Intl.DateTimeFormat(DATES, { month: "numeric", year: "numeric", timeZone: zone }).format(now);
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

/** A short name of a zone: "Europe/Berlin" → "Berlin", "America/New_York" → "New York", "Etc/UTC" → "UTC". */
/** "Berlin time", or "UTC". */
export function formatZoneTime(zone: string): string {
  return zone === "UTC" ? zone : `${formatZone(zone)} time`;
}

export function formatZone(zone: string): string {
  return (zone.split("/").pop() ?? zone).replaceAll("_", " ");
}

/** When something resets: "00:00 Berlin (08:00 your time)"; without the bracket if both clocks agree. */
export function formatReset(iso: string, zone: string): string {
  const there = formatTime(iso, zone);
  const here = formatTime(iso);
  return there === here ? `${there} ${formatZone(zone)}` : `${there} ${formatZone(zone)} (${here} your time)`;
}

/** A key or an id by its two ends: "sk-7QfAbc…x9Kd". Short ones are shown whole. */
export function formatEnds(text: string, first = 8, last = 4): string {
  return text.length <= first + last + 1 ? text : `${text.slice(0, first)}…${text.slice(-last)}`;
}

/** Bytes in the largest unit that fits: "256 KB". */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${Math.round(bytes / 1024)} KB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

/** Dollars with all their decimals, at least two: "1250.5" → "1,250.50". */
function exactUsd(usd: string): string {
  const [whole = "0", fraction = ""] = usd.split(".");
  return `${formatCount(BigInt(whole))}.${fraction.padEnd(2, "0")}`;
}

/** A size in nano-USD with this many decimals, half up. */
function decimals(size: bigint, places: number): string {
  const unit = NANO_PER_USD / 10n ** BigInt(places);
  const rounded = (size + unit / 2n) / unit;
  const scale = 10n ** BigInt(places);
  return `${formatCount(rounded / scale)}.${(rounded % scale).toString().padStart(places, "0")}`;
}

function two(count: number, each: number, large: string, small: string): string {
  const rest = count % each;
  return `${Math.floor(count / each)} ${large}${rest === 0 ? "" : ` ${rest} ${small}`}`;
}
