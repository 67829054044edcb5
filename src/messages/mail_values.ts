import { formatAmount } from "../platform/currencies.ts";
import { decimalUsd } from "../platform/usd.ts";

/**
 * Values of a message as its texts show them: plain text on one line, or null if the message lacks the value. Pure.
 * Source: MSG-7.
 */

const VALUE_CHARS_MAX = 500;

/** The data of a message. A name that its kind does not have is a type error. */
type Has<Data> = { data: Data };

/** Nano-USD as "$12.40", and with as many decimals as it has. */
export function shownUsd(nanoUsd: bigint): string {
  const [whole = "0", fraction = ""] = decimalUsd(nanoUsd).split(".");
  const sign = whole.startsWith("-") ? "-" : "";
  const grouped = BigInt(whole.replace("-", "")).toLocaleString("en-US");
  return `${sign}$${grouped}.${fraction.padEnd(2, "0")}`;
}

/**
 * Removes line breaks and other control characters, so that a value stays on one line or in one header. Source: MSG-7.
 */
export function oneLine(value: string): string {
  return value.replace(/[\p{Cc}\p{Cs}\u2028\u2029\u202a-\u202e\u2066-\u2069]+/gu, " ").trim();
}

/** A text or a number, unchanged. */
export function text<Data>({ data }: Has<Data>, field: keyof Data): string | null {
  const value: unknown = data[field];
  if (typeof value !== "string" && typeof value !== "number") return null;
  const line = [...oneLine(String(value))].slice(0, VALUE_CHARS_MAX).join("");
  return line === "" ? null : line;
}

/** An amount of nano-USD. */
export function usd<Data>({ data }: Has<Data>, field: keyof Data): string | null {
  const value: unknown = data[field];
  return isNano(value) ? shownUsd(BigInt(value)) : null;
}

/** Billionths of a currency (as "eur"). */
export function money(nano: unknown, currency: string | null): string | null {
  if (!isNano(nano)) return null;
  if (currency === null || currency.toLowerCase() === "usd") return shownUsd(BigInt(nano));
  return formatAmount(nano, currency.toLowerCase());
}

function isNano(value: unknown): value is string {
  return typeof value === "string" && /^-?\d{1,18}$/.test(value);
}

/** As "15,000". */
export function count<Data>({ data }: Has<Data>, field: keyof Data): string | null {
  const value: unknown = data[field];
  return typeof value === "number" && Number.isFinite(value) ? value.toLocaleString("en-US") : null;
}

type Zoned = Has<{ timeZone?: string }>;

/** As "14 December 2026", in the message's time zone. */
export function day(facts: Zoned, iso: string | null): string | null {
  return inZone(facts, iso, { day: "numeric", month: "long", year: "numeric" });
}

/** As "14 December 2026, 00:00 Europe/Berlin". */
export function moment(facts: Zoned, iso: string | null): string | null {
  const time = inZone(facts, iso, { hour: "2-digit", minute: "2-digit" });
  return time && `${day(facts, iso)}, ${time} ${zoneOf(facts)}`;
}

function inZone(facts: Zoned, iso: string | null, options: Intl.DateTimeFormatOptions): string | null {
  const ms = Date.parse(iso ?? "");
  if (Number.isNaN(ms)) return null;
  return new Intl.DateTimeFormat("en-GB", { timeZone: zoneOf(facts), ...options }).format(new Date(ms));
}

function zoneOf(facts: Zoned): string {
  return text(facts, "timeZone") ?? "UTC";
}
