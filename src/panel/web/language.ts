import { setupI18n } from "@lingui/core";
import { TransNoContext, type TransProps } from "@lingui/react/server";
import { createElement, Fragment, type ReactElement } from "react";
import { LANGUAGE_COOKIE, LANGUAGES, type LanguageTag, languageTag } from "../../languages/languages.ts";

/**
 * The language of this page. The server chooses it: `<html lang>`, and a script before the app's with its catalogue. So it is known
 * before a text is read, and a text can stand anywhere, also in a constant. To change it, the page is loaded again.
 */

declare global {
  /** The catalogue of the page's language, compiled; undefined in English, whose texts are in the code. */
  var panelTexts: Parameters<ReturnType<typeof setupI18n>["load"]>[1] | undefined;
}

/** The tag of the page's language. */
export const language: LanguageTag = languageTag(globalThis.document?.documentElement.lang) ?? "en";

export const { numbers: NUMBERS, dates: DATES, direction: DIRECTION } = LANGUAGES[language];

export const i18n = setupI18n();
// The build compiles texts. Those that are not in a macro, as labels of the server, have no placeholders.
i18n.setMessagesCompiler((text) => [text]);
i18n.loadAndActivate({ locale: language, messages: globalThis.panelTexts ?? {} });

/**
 * A text with elements in it; what the macro `<Trans>` becomes. Lingui looks for tags after it has put the values in, so a value that
 * looks like one, as a person's name may, goes in as an element.
 */
export function Trans({ values = {}, ...rest }: TransProps): ReactElement {
  const safe = Object.entries(values).map(([name, value]) => [
    name,
    typeof value === "string" && value.includes("<") ? createElement(Fragment, null, value) : value,
  ]);
  return createElement(TransNoContext, { ...rest, values: Object.fromEntries(safe), lingui: { i18n } });
}

/** A year, in seconds. */
const KEPT_S = 31_536_000;

/**
 * Shows the panel in a language from now on in this browser: loads the page again. null: in that of the brand. Returns whether it does: not
 * where cookies are forbidden, since the page would come back as it is.
 */
export function showIn(tag: LanguageTag | null): boolean {
  const secure = window.location.protocol === "https:" ? "; secure" : "";
  const kept = tag === null ? "; max-age=0" : `${tag}; max-age=${KEPT_S}`;
  // biome-ignore lint/suspicious/noDocumentCookie: the Cookie Store API is not in every browser, and asynchronous.
  document.cookie = `${LANGUAGE_COOKIE}=${kept}; path=/; samesite=lax${secure}`;
  const isKept = tag === null || document.cookie.split("; ").includes(`${LANGUAGE_COOKIE}=${tag}`);
  if (isKept) window.location.reload();
  return isKept;
}
