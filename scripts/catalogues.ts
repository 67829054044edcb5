import { readFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { formatter } from "@lingui/format-po";
import { type CompiledMessage, compileMessageOrThrow } from "@lingui/message-utils/compileMessage";
import { LANGUAGE_TAGS, type LanguageTag } from "../src/languages/languages.ts";

/**
 * Reads the catalogues of translations, and finds what is missing or wrong in them.
 *
 * - `src/languages/panel/de.po`: texts of the panel, whose build compiles them.
 * - `src/languages/server/de.json`: texts that the server writes itself, by their English.
 */

const repository = join(import.meta.dirname, "..");
const FOLDER = join(repository, "src", "languages");
/** The form of the panel's catalogues. */
export const po = formatter({ lineNumbers: false });

/** All languages but English, whose texts are in the code. */
export const TRANSLATED = LANGUAGE_TAGS.filter((tag) => tag !== "en");

export type Catalogue = { language: LanguageTag; path: string; texts: Map<string, Translation> };
/** `context`: what tells apart two texts that are the same in English. */
type Translation = { english: string; translation: string; context?: string };

export const panelPath = (language: LanguageTag) => join(FOLDER, "panel", `${language}.po`);
export const serverPath = (language: LanguageTag) => join(FOLDER, "server", `${language}.json`);

/** The panel's catalogue of a language. */
export async function panelCatalogue(language: LanguageTag): Promise<Catalogue> {
  const path = panelPath(language);
  const parsed = await po.parse(await readFile(path, "utf8"), { locale: language, sourceLocale: "en", filename: path });
  const texts = Object.entries(parsed).map(
    ([id, { message = id, translation = "", context }]): [string, Translation] => [
      id,
      { english: message, translation, context },
    ],
  );
  return { language, path, texts: new Map(texts) };
}

/** The server's catalogue of a language. */
export async function serverCatalogue(language: LanguageTag): Promise<Catalogue> {
  const path = serverPath(language);
  const parsed: Record<string, string> = JSON.parse(await readFile(path, "utf8"));
  const texts = Object.entries(parsed).map(([english, translation]): [string, Translation] => [
    english,
    { english, translation },
  ]);
  return { language, path, texts: new Map(texts) };
}

/** What is missing or wrong in a catalogue: one line for each text. */
export function faultsOf({ language, path, texts }: Catalogue): string[] {
  return [...texts.values()].flatMap(({ english, translation }) => {
    const fault = faultOf(language, english, translation);
    return fault === null ? [] : [`${relative(repository, path)}: ${JSON.stringify(english)}: ${fault}`];
  });
}

/** The compiled texts of a catalogue by their ids, without those that are not translated. Throws an Error if another has a fault. */
export function compiledTexts(catalogue: Catalogue): Record<string, CompiledMessage> {
  const fault = faultsOf(catalogue).find((each) => !each.endsWith(MISSING));
  if (fault !== undefined) throw new Error(`${fault}. All faults: bun scripts/languages.ts`);
  const translated = [...catalogue.texts].filter(([, { translation }]) => translation !== "");
  return Object.fromEntries(translated.map(([id, text]) => [idOf(id, text), compileMessageOrThrow(text.translation)]));
}

/** The fault of a text that is not translated yet: it is shown in English. */
export const MISSING = "no translation";

/** The id by which the browser finds a text. */
export function idOf(id: string, { english, context }: Translation): string {
  return (context === undefined ? plainText(english) : null) ?? id;
}

/** A text without placeholders, as it is shown; null for one with placeholders. Such a text is its own id. */
export function plainText(message: string): string | null {
  const [text, ...more] = compileMessageOrThrow(message);
  return typeof text === "string" && more.length === 0 ? text : null;
}

/** Why a translation cannot be used, or null. */
export function faultOf(language: LanguageTag, english: string, translation: string): string | null {
  if (translation.trim() === "") return MISSING;
  const [wanted, given] = [partsOf(english), partsOf(translation)];
  if (typeof given === "string") return given;
  if (typeof wanted === "string") return `the English text does not parse: ${wanted}`;
  for (const part of given.parts) if (!wanted.parts.has(part)) return `${part} is not in the English text`;
  for (const part of wanted.parts) if (!given.parts.has(part)) return `${part} is missing`;
  const needed = new Intl.PluralRules(language).resolvedOptions().pluralCategories;
  for (const [value, forms] of given.plurals) {
    const missing = needed.filter((category) => !forms.includes(category));
    if (missing.length > 0) return `the plural of {${value}} lacks ${missing.join(", ")}`;
    const unknown = forms.filter((form) => !/^=?\d+$/.test(form) && !needed.some((category) => category === form));
    if (unknown.length > 0) return `the plural of {${value}} has ${unknown.join(", ")}, which ${language} does not use`;
  }
  return markupIn(translation);
}

/** The placeholders and tags of a text, and the forms of each plural in it; or why it does not parse. */
function partsOf(message: string): { parts: Set<string>; plurals: [value: string, forms: string[]][] } | string {
  const parts = new Set<string>();
  const plurals: [string, string[]][] = [];
  const visit = (tokens: CompiledMessage) => {
    for (const token of tokens) {
      if (typeof token === "string") {
        for (const [tag] of token.matchAll(/<\/?\d+\/?>/g)) parts.add(tag);
        continue;
      }
      const [value, kind, forms] = token;
      parts.add(`{${value}}`);
      if (typeof forms !== "object" || forms === null) continue;
      if (kind === "plural") plurals.push([value, Object.keys(forms).filter((form) => form !== "offset")]);
      if (kind === "select") for (const form of Object.keys(forms)) parts.add(`${value} = ${form}`);
      for (const form of Object.values(forms)) if (Array.isArray(form)) visit(form);
    }
  };
  try {
    visit(compileMessageOrThrow(message));
    return { parts, plurals };
  } catch (error) {
    return `it does not parse: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** HTML, or a sign that turns the direction of the text that follows. */
function markupIn(translation: string): string | null {
  const rest = translation.replace(/<\/?\d+\/?>/g, "");
  if (/<\/?[a-z!]|&(?:[a-z]+|#\d+);/i.test(rest)) return "it has markup";
  return /[\u202a-\u202e\u2066-\u2069\p{Cc}]/u.test(rest.replaceAll("\n", "")) ? "it has control characters" : null;
}

/** All catalogues. */
export async function catalogues(): Promise<Catalogue[]> {
  return await Promise.all(TRANSLATED.flatMap((language) => [panelCatalogue(language), serverCatalogue(language)]));
}
