import { type I18n, setupI18n } from "@lingui/core";
import { compileMessage } from "@lingui/message-utils/compileMessage";
import { LANGUAGES, type LanguageTag, languageTag } from "./languages.ts";
import ar from "./server/ar.json" with { type: "json" };
import de from "./server/de.json" with { type: "json" };
import es from "./server/es.json" with { type: "json" };
import zh from "./server/zh.json" with { type: "json" };

/**
 * The texts of mails, invoices and pages that the server writes itself. The English text is the id: `i18n.t("Hello {name}", { name })`
 * is collected by scripts/languages.ts. No macros: the server runs without a build.
 */

const CATALOGUES: Readonly<Record<LanguageTag, Readonly<Record<string, string>>>> = { en: {}, ar, de, es, zh };

const opened = new Map<LanguageTag, I18n>();

/** The texts in a language. English has no catalogue: its texts are in the code. */
export function textsIn(language: LanguageTag): I18n {
  const known = opened.get(language);
  if (known !== undefined) return known;
  const i18n = setupI18n();
  i18n.setMessagesCompiler(compileMessage);
  // The second one writes the numbers of plurals.
  i18n.loadAndActivate({ locale: language, locales: LANGUAGES[language].numbers, messages: CATALOGUES[language] });
  opened.set(language, i18n);
  return i18n;
}

/** The locales in which Intl writes numbers and dates of a language. */
export function localesOf(i18n: I18n): { numbers: string; dates: string } {
  return LANGUAGES[languageTag(i18n.locale) ?? "en"];
}
