/** The languages of the panel, its mails and its documents. Source: LNG-1. */

export type Language = {
  /** Its name in itself. */
  name: string;
  direction: "ltr" | "rtl";
  /** Locales of Intl. English writes numbers as in the United States and dates with the day first. Arabic has Latin digits, as keys, codes and prices have them. */
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
