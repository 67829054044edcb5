import { t } from "@lingui/core/macro";

/** Names for the User-Agent header of a session. */

/** Names of products: not a text to translate. */
const BROWSERS = [
  [/\bEdg(?:e|A|iOS)?\//, "Edge"],
  [/\bOPR\/|\bOpera\b/, "Opera"],
  [/\b(?:Firefox|FxiOS)\//, "Firefox"],
  [/(?:Chrome|CriOS|Chromium)\//, "Chrome"],
  [/\bSafari\//, "Safari"],
] as const;
/** Likewise not a text to translate. */
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

/** "Firefox on Linux"; for other programs the product name, such as "curl". */
export function deviceName(userAgent: string): string {
  const browser = BROWSERS.find(([sign]) => sign.test(userAgent))?.[1];
  const system = SYSTEMS.find(([sign]) => sign.test(userAgent))?.[1];
  if (browser && system) return t`${browser} on ${system}`;
  const product = /^[\w.-]+/.exec(userAgent)?.[0].slice(0, PRODUCT_CHARS_MAX);
  return browser ?? system ?? (product && product !== "Mozilla" ? product : t`Unknown device`);
}
