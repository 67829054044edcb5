import { setupI18n } from "@lingui/core";
import { compileMessage } from "@lingui/message-utils/compileMessage";
import { TransNoContext, type TransProps } from "@lingui/react/server";
import { createElement, type ReactElement } from "react";
import { LANGUAGES, type LanguageTag, languageTag } from "../../languages/languages.ts";

/**
 * The language of this page. The server chooses it: `<html lang>`, and a script before the app's with its catalogue. So it is known
 * before a text is read, and a text can stand anywhere, also in a constant. To change it, the page is loaded again.
 */

declare global {
  /** The catalogue of the page's language, compiled; undefined in English, whose texts are in the code. */
  var tollgateTexts: Parameters<ReturnType<typeof setupI18n>["load"]>[1] | undefined;
}

/** The tag of the page's language. */
export const language: LanguageTag = languageTag(globalThis.document?.documentElement.lang) ?? "en";

export const { numbers: NUMBERS, dates: DATES, direction: DIRECTION } = LANGUAGES[language];

export const i18n = setupI18n();
i18n.setMessagesCompiler(compileMessage);
i18n.loadAndActivate({ locale: language, messages: globalThis.tollgateTexts ?? {} });

/** A text with elements in it; what the macro `<Trans>` becomes. */
export function Trans(props: TransProps): ReactElement {
  return createElement(TransNoContext, { ...props, lingui: { i18n } });
}
