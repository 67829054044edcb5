import { expect } from "bun:test";
import { type I18n, setupI18n } from "@lingui/core";
import { type CompiledMessage, compileMessage } from "@lingui/message-utils/compileMessage";
import type { LanguageTag } from "../../src/languages/languages.ts";

/** A language whose words have no letters: what has letters was not translated, or is a value. */

/** Every text that was asked for. */
export const asked = new Set<string>();

export function wordless(locale: LanguageTag = "en"): I18n {
  const i18n = setupI18n();
  i18n.setMessagesCompiler((text) => {
    asked.add(text);
    return withoutLetters(compileMessage(text));
  });
  i18n.loadAndActivate({ locale, messages: {} });
  return i18n;
}

const BLANK = "·";

function withoutLetters(message: CompiledMessage): CompiledMessage {
  return message.map((token) => {
    if (typeof token === "string") return token.replace(/\p{L}/gu, BLANK);
    const [name, kind, forms] = token;
    if (typeof forms !== "object" || forms === null) return token;
    const blank = Object.entries(forms).map(([form, text]) => [
      form,
      Array.isArray(text) ? withoutLetters(text) : typeof text === "string" ? text.replace(/\p{L}/gu, BLANK) : text,
    ]);
    return [name, kind, Object.fromEntries(blank)];
  }) as CompiledMessage;
}

/** Expects that a text has no words but those of `values`. */
export function expectOnly(text: string, values: readonly string[], of: string): void {
  const known = new Set(values.flatMap(wordsIn));
  expect([of, text, wordsIn(text).filter((word) => !known.has(word))]).toEqual([of, text, []]);
}

function wordsIn(text: string): string[] {
  return text.match(/\p{L}+/gu) ?? [];
}
