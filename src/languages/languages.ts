/** The languages of the panel, its mails and its documents. Source: LNG-1. */

export type Language = {
  /** Its name in itself. */
  name: string;
  direction: "ltr" | "rtl";
  /**
   * Locales of Intl. English writes numbers as in the United States, and dates with the day first. Arabic has Latin digits, as keys,
   * codes and prices have them.
   */
  numbers: string;
  dates: string;
};

export const LANGUAGES = {
  en: { name: "English", direction: "ltr", numbers: "en-US", dates: "en-GB" },
  de: { name: "Deutsch", direction: "ltr", numbers: "de", dates: "de" },
  es: { name: "Español", direction: "ltr", numbers: "es", dates: "es" },
  zh: { name: "简体中文", direction: "ltr", numbers: "zh-Hans", dates: "zh-Hans" },
  ar: { name: "العربية", direction: "rtl", numbers: "ar-u-nu-latn", dates: "ar-u-nu-latn" },
} as const satisfies Record<string, Language>;

export type LanguageTag = keyof typeof LANGUAGES;

export const LANGUAGE_TAGS = Object.keys(LANGUAGES).filter((tag): tag is LanguageTag => tag in LANGUAGES);

/** The tag of a language that there is; undefined for any other text. */
export function languageTag(text: string | null | undefined): LanguageTag | undefined {
  return LANGUAGE_TAGS.find((tag) => tag === text);
}

/** The cookie in which a browser keeps the language that a person chose. Scripts write it: it is no secret. */
export const LANGUAGE_COOKIE = "panel_language";

/**
 * The language of a page, first found first: that of the cookie, of the brand, and of the browser's wishes in their order. English if none
 * of them is known. Source: LNG-2.
 */
export function languageOf(wishes: {
  cookie: string | null;
  brand: string | null;
  /** The header Accept-Language. */
  accepts: string | null;
}): LanguageTag {
  return (
    languageTag(cookieIn(wishes.cookie)) ?? languageTag(wishes.brand) ?? firstAccepted(wishes.accepts ?? "") ?? "en"
  );
}

function cookieIn(header: string | null): string | undefined {
  return new RegExp(`(?:^|;\\s*)${LANGUAGE_COOKIE}=([a-z-]{2,20})(?:;|$)`).exec(header ?? "")?.[1];
}

/** "de-AT,de;q=0.9,en;q=0.5" → "de". A wish with q=0 is none. Source: RFC 9110 › 12.5.4. */
function firstAccepted(header: string): LanguageTag | undefined {
  return header
    .slice(0, ACCEPT_CHARS_MAX)
    .split(",")
    .map((wish) => {
      const [range = "", ...parameters] = wish.trim().toLowerCase().split(";");
      const quality = parameters.map((each) => /^\s*q=([01](?:\.\d{0,3})?)\s*$/.exec(each)?.[1]).find((q) => q);
      return { tag: languageTag(range.trim().split("-")[0]), quality: Number(quality ?? 1) };
    })
    .filter(({ tag, quality }) => tag !== undefined && quality > 0)
    .sort((one, other) => other.quality - one.quality)[0]?.tag;
}

/** Of the header that is read; browsers send less than 100 characters. */
const ACCEPT_CHARS_MAX = 500;
