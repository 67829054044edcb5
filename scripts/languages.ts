import { readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import process from "node:process";
import { extractor, getCatalogs } from "@lingui/cli/api";
import { makeConfig } from "@lingui/conf";
import { formatter } from "@lingui/format-po";
import { type CompiledMessage, compileMessageOrThrow } from "@lingui/message-utils/compileMessage";
import { Glob } from "bun";
import config from "../lingui.config.ts";
import { LANGUAGE_TAGS, type LanguageTag } from "../src/languages/languages.ts";
import { panelSources } from "./build_panel.ts";

/**
 * The catalogues of translations. `bun scripts/languages.ts` collects the texts of the sources into them, keeps what is translated, takes
 * out what is no longer used, and names what is missing or wrong; it exits with 1 if there is such a text. `--check` writes nothing.
 *
 * - `src/languages/panel/de.po`: texts of the panel, whose build compiles them.
 * - `src/languages/server/de.json`: texts that the server writes itself, by their English: `i18n.t("…")` in any other source.
 */

const repository = join(import.meta.dirname, "..");
const FOLDER = join(repository, "src", "languages");
const po = formatter({ lineNumbers: false });
const linguiConfig = makeConfig(config, { skipValidation: true });

/** All languages but English, whose texts are in the code. */
export const TRANSLATED = LANGUAGE_TAGS.filter((tag) => tag !== "en");

export type Catalogue = { language: LanguageTag; path: string; texts: Map<string, Translation> };
type Translation = { english: string; translation: string };

const panelPath = (language: LanguageTag) => join(FOLDER, "panel", `${language}.po`);
const serverPath = (language: LanguageTag) => join(FOLDER, "server", `${language}.json`);

/** The panel's catalogue of a language. */
export async function panelCatalogue(language: LanguageTag): Promise<Catalogue> {
  const path = panelPath(language);
  const parsed = await po.parse(await readFile(path, "utf8"), { locale: language, sourceLocale: "en", filename: path });
  const texts = Object.entries(parsed).map(([id, { message = id, translation = "" }]): [string, Translation] => [
    id,
    { english: message, translation },
  ]);
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

/** Why a translation cannot be used, or null. */
export function faultOf(language: LanguageTag, english: string, translation: string): string | null {
  if (translation.trim() === "") return "no translation";
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

/** Collects the sources' texts. Returns the catalogues that differ from them; with `write`, they were written anew. */
export async function collectTexts({ write }: { write: boolean }): Promise<{ stale: string[] }> {
  const stale: string[] = [];
  const [catalog] = await getCatalogs({
    ...linguiConfig,
    catalogs: [
      {
        path: join(FOLDER, "panel", "{locale}"),
        include: [...(await panelSources())].filter((path) => /\.tsx?$/.test(path)),
      },
    ],
  });
  const collected = (await catalog?.collect()) ?? {};
  for (const language of TRANSLATED) {
    const path = panelPath(language);
    const before = await readFile(path, "utf8").catch(() => "");
    const known = before === "" ? {} : await po.parse(before, { locale: language, sourceLocale: "en", filename: path });
    const after = Object.entries(collected)
      .sort(([, a], [, b]) => compare(a.origin[0]?.[0], b.origin[0]?.[0]) || compare(a.message, b.message))
      .map(([id, entry]) => [id, { ...entry, translation: known[id]?.translation ?? "" }] as const);
    const text = await po.serialize(Object.fromEntries(after), {
      locale: language,
      sourceLocale: "en",
      filename: path,
      existing: before === "" ? undefined : before,
    });
    if (text !== before) stale.push(relative(repository, path));
    if (write) await writeFile(path, text);
  }
  const server = await serverTexts();
  for (const language of TRANSLATED) {
    const path = serverPath(language);
    const before = await readFile(path, "utf8").catch(() => "{}");
    const known: Record<string, string> = JSON.parse(before);
    const text = `${JSON.stringify(Object.fromEntries(server.map((english) => [english, known[english] ?? ""])), null, 2)}\n`;
    if (text !== before) stale.push(relative(repository, path));
    if (write) await writeFile(path, text);
  }
  return { stale };
}

function compare(one = "", other = ""): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

/** The texts of the server, in the order of their files. Throws an Error if a text is not written out where it is used. */
async function serverTexts(): Promise<string[]> {
  const texts = new Set<string>();
  for (const path of [...new Glob("src/**/*.ts").scanSync({ cwd: repository })].sort()) {
    const source = await readFile(join(repository, path), "utf8");
    if (path.startsWith(join("src", "panel", "web")) || !source.includes("i18n.t(")) continue;
    await extractor.extract(join(repository, path), source, ({ id }) => texts.add(id), { linguiConfig });
  }
  return [...texts];
}

/** All catalogues. */
export async function catalogues(): Promise<Catalogue[]> {
  return await Promise.all(TRANSLATED.flatMap((language) => [panelCatalogue(language), serverCatalogue(language)]));
}

if (import.meta.main) {
  const isCheck = process.argv.includes("--check");
  const { stale } = await collectTexts({ write: !isCheck });
  const read = await catalogues();
  const faults = [
    ...(isCheck ? stale.map((path) => `${path} is not as the sources are`) : []),
    ...read.flatMap(faultsOf),
  ];
  for (const fault of faults) console.log(fault);
  for (const { path, texts } of read) {
    const missing = [...texts.values()].filter(({ translation }) => translation === "").length;
    console.log(`${relative(repository, path)}: ${texts.size} texts, ${missing} without a translation`);
  }
  process.exitCode = faults.length === 0 ? 0 : 1;
}
