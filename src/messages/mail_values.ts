import type { I18n } from "@lingui/core";
import { localesOf } from "../languages/server_texts.ts";
import { formatAmount } from "../platform/currencies.ts";
import { decimalUsd } from "../platform/usd.ts";

/**
 * Values of a message as its texts show them: plain text on one line, in the language of the mail, or null if the message lacks the value.
 * The examples are English. Pure. Source: MSG-7, LNG-4.
 */

const VALUE_CHARS_MAX = 500;

/** The data of a message. A name that its kind does not have is a type error. */
type Has<Data> = { data: Data };
type InLanguage = { i18n: I18n };

/** Nano-USD as "$12.40", and with as many decimals as it has. */
export function shownUsd(i18n: I18n, nanoUsd: bigint): string {
  const usd = decimalUsd(nanoUsd);
  const decimals = Math.max(2, usd.split(".")[1]?.length ?? 0);
  return new Intl.NumberFormat(localesOf(i18n).numbers, {
    style: "currency",
    currency: "USD",
    currencyDisplay: "narrowSymbol",
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
  }).format(usd as Intl.StringNumericLiteral);
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
export function usd<Data>({ data, i18n }: Has<Data> & InLanguage, field: keyof Data): string | null {
  const value: unknown = data[field];
  return isNano(value) ? shownUsd(i18n, BigInt(value)) : null;
}

/** Billionths of a currency (as "eur"). */
export function money({ i18n }: InLanguage, nano: unknown, currency: string | null): string | null {
  if (!isNano(nano)) return null;
  if (currency === null || currency.toLowerCase() === "usd") return shownUsd(i18n, BigInt(nano));
  return formatAmount(nano, currency.toLowerCase(), localesOf(i18n).numbers);
}

function isNano(value: unknown): value is string {
  return typeof value === "string" && /^-?\d{1,18}$/.test(value);
}

export function number<Data>({ data }: Has<Data>, field: keyof Data): number | null {
  const value: unknown = data[field];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** As "15,000". */
export function count<Data>(facts: Has<Data> & InLanguage, field: keyof Data): string | null {
  return number(facts, field)?.toLocaleString(localesOf(facts.i18n).numbers) ?? null;
}

type Zoned = Has<{ timeZone?: string }> & InLanguage;

/** As "14 December 2026", in the message's time zone. */
export function day(facts: Zoned, iso: string | null): string | null {
  return inZone(facts, iso, { day: "numeric", month: "long", year: "numeric" });
}

/** As "14 December 2026, 00:00 Europe/Berlin". */
export function moment(facts: Zoned, iso: string | null): string | null {
  const [date, time] = [day(facts, iso), inZone(facts, iso, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" })];
  return date && time && facts.i18n.t("{day}, {time} {zone}", { day: date, time, zone: zoneOf(facts) });
}

function inZone(facts: Zoned, iso: string | null, options: Intl.DateTimeFormatOptions): string | null {
  const ms = Date.parse(iso ?? "");
  if (Number.isNaN(ms)) return null;
  return new Intl.DateTimeFormat(localesOf(facts.i18n).dates, { timeZone: zoneOf(facts), ...options }).format(
    new Date(ms),
  );
}

function zoneOf(facts: Zoned): string {
  return text(facts, "timeZone") ?? "UTC";
}
