import { expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { type CompiledMessage, compileMessageOrThrow } from "@lingui/message-utils/compileMessage";
import { panelPath, po } from "../../scripts/catalogues.ts";

/** Sentences of the server's errors have no words put into them: those would stay English in every language. Source: LNG-8. */

/**
 * The placeholders that stand for text, and what it is: the same in every language. A value that is a word is written out, as a sentence of
 * its own or as a case of a `select`; the type of `sentence` refuses those that it can see.
 */
const DATA = {
  ids: ["id", "key", "modelId", "orderId", "paying", "provider", "providerId"],
  names: ["missing", "name", "names", "only_owner_of", "timeZone"],
  codes: [
    "allowed",
    "at",
    "code",
    "currency",
    "dialectNames",
    "field",
    "mailPorts",
    "param",
    "point",
    "values",
    "webhookKinds",
  ],
  typed: ["one", "refused", "text", "unknown", "wrong"],
  written: ["endsAt", "month", "priceNano", "step", "until", "usd"],
};
const NUMBERS = ["max", "min", "most", "number", "orders", "othersCount", "packages", "side", "tries"];

async function serverSentences(): Promise<string[]> {
  const path = panelPath("de");
  const parsed = await po.parse(await readFile(path, "utf8"), { locale: "de", sourceLocale: "en", filename: path });
  return Object.entries(parsed).flatMap(([id, { message = id, origin = [] }]) =>
    origin.some(([file]) => !file.startsWith("src/panel/web/")) ? [message] : [],
  );
}

/** The placeholders that show their value: those that only choose a form are left out. */
function shown(message: string): string[] {
  const visit = (tokens: CompiledMessage): string[] =>
    tokens.flatMap((token) => {
      if (typeof token === "string") return [];
      const [name, kind, forms] = token;
      if (typeof forms !== "object" || forms === null) return kind === "number" ? [] : [name];
      return Object.values(forms).flatMap((form) => (Array.isArray(form) ? visit(form) : []));
    });
  return visit(compileMessageOrThrow(message));
}

test("a sentence of the server has only numbers, names and codes put into it", async () => {
  const sentences = await serverSentences();
  expect(sentences.length).toBeGreaterThan(500);
  const known = [...Object.values(DATA).flat(), ...NUMBERS];
  const isKnown = (name: string) => known.includes(name) || /[a-z]Max$/.test(name);
  expect(sentences.filter((sentence) => !shown(sentence).every(isKnown))).toEqual([]);
  const used = new Set(sentences.flatMap(shown));
  expect(known.filter((name) => !used.has(name))).toEqual([]);
});
