import type { Change } from "../../../accounts/accent.ts";
import { formatCount, formatOf } from "../format.ts";

/**
 * What the pages of one's own account say and decide, as pure functions: where to go after signing in, how good a password
 * is, what a device is called, what became of a colour.
 */

/** Source: accounts › passwords. */
export const PASSWORD_CHARS_MIN = 10;
export const PASSWORD_CHARS_MAX = 200;
export const PASSWORD_RULES = `${PASSWORD_CHARS_MIN} to ${PASSWORD_CHARS_MAX} characters. A few words that do not belong together are strong, and easy to keep in mind.`;

/** Pages of somebody who is not signed in, and addresses that are no pages. */
const NO_WAY_ON = /^\/(?:sign-in|invite|reset|api|v1)(?:\/|$)/;

/** Where to go on after signing in: a page of this very panel, whatever stands in the address; else Home. */
export function ownPath(next: string | null, origin: string): string {
  // A second slash or a backslash makes a host of what follows, so the parsed address decides.
  if (next === null || !next.startsWith("/") || !URL.canParse(next, origin)) return "/";
  const url = new URL(next, origin);
  if (url.origin !== origin || NO_WAY_ON.test(url.pathname)) return "/";
  return `${url.pathname}${url.search}${url.hash}`;
}

/** `level` 0: not long enough; 1 easy to guess, 2 fair, 3 strong. */
export type Strength = { level: 0 | 1 | 2 | 3; words: string };

/** Bits below which somebody with time and the digest gets there. */
const FAIR_BITS = 40;
const STRONG_BITS = 60;
/** What a character adds that only goes on with the one before it: "aaaa", "4567", "tyui". */
const GOING_ON = 0.2;
const KEYBOARD = "qwertyuiop asdfghjkl zxcvbnm qwertzuiop azertyuiop";
/** In most lists of stolen passwords; longer ones come out of these. */
const COMMON =
  /passw(?:or|0r)d|letmein|welcome|iloveyou|sunshine|princess|football|baseball|superman|dragon|monkey|master|shadow|michael|jordan|secret|access|hello|login|admin|server|summer|winter|spring|autumn|change(?:me|it)|test|demo|(?:19|20)\d\d/g;
const CLASSES = [
  { of: /[a-z]/, chars: 26 },
  { of: /[A-Z]/, chars: 26 },
  { of: /\d/, chars: 10 },
  { of: /[^A-Za-z\d]/, chars: 33 },
] as const;

/**
 * How hard a password is to guess, as a hint: the server asks for its length alone. `about`: what others know of its owner
 * (name, address, brand), which adds nothing.
 */
export function strengthOf(password: string, about: readonly string[]): Strength {
  const chars = Array.from(password.normalize("NFKC")).length;
  if (chars < PASSWORD_CHARS_MIN)
    return { level: 0, words: `${formatOf(PASSWORD_CHARS_MIN - chars, "more character")}.` };
  if (chars > PASSWORD_CHARS_MAX)
    return { level: 0, words: `${formatCount(chars - PASSWORD_CHARS_MAX)} too many characters.` };
  const pool = CLASSES.reduce((sum, { of, chars: count }) => (of.test(password) ? sum + count : sum), 0);
  const bits = surprises(shortened(password.toLowerCase(), about)) * Math.log2(pool);
  if (bits < FAIR_BITS)
    return { level: 1, words: "Easy to guess. Add words or characters that do not follow a pattern." };
  if (bits < STRONG_BITS) return { level: 2, words: "Fair. A longer one is safer." };
  return { level: 3, words: "Strong." };
}

/** Without what is said twice, known to others, or in every list: each such part counts as one character. */
function shortened(text: string, about: readonly string[]): string {
  const known = about.flatMap((each) => each.toLowerCase().split(/[^\p{L}\d]+/u)).filter((word) => word.length > 2);
  const once = /^(.+?)\1+$/su.exec(text)?.[1] ?? text;
  return known.reduce((rest, word) => rest.replaceAll(word, "\u0000"), once.replace(COMMON, "\u0000"));
}

/** How many characters are news after the one before them. */
function surprises(text: string): number {
  const chars = Array.from(text);
  return chars.reduce((sum, char, at) => sum + (follows(chars[at - 1], char) ? GOING_ON : 1), 0);
}

function follows(before: string | undefined, char: string): boolean {
  if (before === undefined) return false;
  const step = (char.codePointAt(0) ?? 0) - (before.codePointAt(0) ?? 0);
  return Math.abs(step) <= 1 || KEYBOARD.includes(before + char) || KEYBOARD.includes(char + before);
}

const BROWSERS = [
  [/\bEdg(?:e|A|iOS)?\//, "Edge"],
  [/\bOPR\/|\bOpera\b/, "Opera"],
  [/\b(?:Firefox|FxiOS)\//, "Firefox"],
  [/(?:Chrome|CriOS|Chromium)\//, "Chrome"],
  [/\bSafari\//, "Safari"],
] as const;
const SYSTEMS = [
  [/\biPhone\b/, "iPhone"],
  [/\biPad\b/, "iPad"],
  [/\bAndroid\b/, "Android"],
  [/\bCrOS\b/, "ChromeOS"],
  [/\bWindows\b/, "Windows"],
  [/\bMac OS X\b|\bMacintosh\b/, "Mac"],
  [/\bLinux\b|\bX11\b/, "Linux"],
] as const;
const PRODUCT_CHARS_MAX = 40;

/** What a browser calls itself, as a person would: "Firefox on Linux". Programs by their own name: "curl". */
export function deviceName(userAgent: string): string {
  const browser = BROWSERS.find(([sign]) => sign.test(userAgent))?.[1];
  const system = SYSTEMS.find(([sign]) => sign.test(userAgent))?.[1];
  if (browser && system) return `${browser} on ${system}`;
  const product = /^[\w.-]+/.exec(userAgent)?.[0].slice(0, PRODUCT_CHARS_MAX);
  return browser ?? system ?? (product && product !== "Mozilla" ? product : "Unknown device");
}

const CHANGED: Record<Exclude<Change, "none">, string> = {
  darker: "darkened",
  lighter: "lightened",
  softer: "softened",
};

/** "We darkened your colour for text."; null where it is shown as chosen. */
export function accentNews({ fillChange, textChange }: { fillChange: Change; textChange: Change }): string | null {
  const on = (change: Change, what: string) =>
    change === "none" ? [] : [`We ${CHANGED[change]} your colour for ${what}.`];
  if (fillChange === textChange) return on(fillChange, "text and buttons")[0] ?? null;
  return [...on(textChange, "text"), ...on(fillChange, "buttons")].join(" ") || null;
}

/** A colour as people write it ("#0A7D5C", "0a7d5c", "#0af") → "#0a7d5c"; null for what is none. */
export function readHex(typed: string): string | null {
  const digits = /^#?((?:[\da-f]{3}){1,2})$/i.exec(typed.trim())?.[1]?.toLowerCase();
  if (digits === undefined) return null;
  return `#${digits.length === 3 ? digits.replace(/./g, "$&$&") : digits}`;
}
