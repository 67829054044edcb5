// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the samples are source text.
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Glob } from "bun";
import { codeAndStrings } from "./source_text.ts";

/** The words that readers see: those that the glossary forbids are in no text. Source: docs/glossary.md. */

const repository = join(import.meta.dirname, "..");
/** Files whose texts people read: the panel, mails, errors, and what invoices and payments say. */
const READ = ["src/panel/web/**/*.{ts,tsx}", "src/messages/mail_texts.ts", "src/errors.ts", "src/commerce/*.ts"];
/** A text that people read has spaces, and begins as a sentence or a phrase does. */
const SPOKEN = /^[A-Z“"$0-9].*\s|^[a-z]+ [a-z]+/;
/** Terms of the glossary that have such a word in them. */
const TERMS = /\bstatus pages?\b/gi;
/** Of code: class names, paths, SQL. */
const CODE =
  /[\w-]+-\[|\b(?:flex|grid|rounded|border|select|insert|update|from|where|case when)\b[\s\S]*[-:_(=]|^\/|^\.\.?\//;

/** The words of the glossary's table that are not to be used. */
function forbidden(): string[] {
  const glossary = readFileSync(join(repository, "docs/glossary.md"), "utf8");
  const [, table = ""] = /## Words that readers see\n([\s\S]*?)\n## /.exec(glossary) ?? [];
  const rows = [...table.matchAll(/^\| ([^|]+?) +\| ([^|]+?) +\|/gm)].slice(2);
  return rows.flatMap(([, words = ""]) => words.split(", "));
}

/** The texts of a source: its strings, and the words between the tags of JSX. */
function texts(source: string): string[] {
  const { strings } = codeAndStrings(source);
  // Without arrows, and the operators of code, which also has angle brackets.
  const between = [...source.matchAll(/(?<!=)>\s*([^<>{}=;&|]*[a-z][^<>{}=;&|]*?)\s*[<{]/g)].map(
    ([, words = ""]) => words,
  );
  return [...strings.filter((text) => SPOKEN.test(text.trim()) && !CODE.test(text)), ...between].map((text) =>
    text.replace(/\s+/g, " "),
  );
}

function found(words: readonly string[], source: string): string[] {
  const pattern = new RegExp(`\\b(?:${words.join("|")})s?\\b`, "i");
  return texts(source).filter((text) => pattern.test(text.replace(TERMS, "")));
}

test("no text of the panel, of mails, errors or invoices has a word that the glossary forbids", () => {
  const words = forbidden();
  expect(words).toContain("any more");
  const broken: string[] = [];
  for (const glob of READ)
    for (const path of new Glob(glob).scanSync({ cwd: repository })) {
      const source = readFileSync(join(repository, path), "utf8");
      broken.push(...found(words, source).map((text) => `${path}: ${text}`));
    }
  expect(broken).toEqual([]);
});

test("the finder of words finds them in strings, in JSX and in templates, and not in code or comments", () => {
  const find = (source: string) => found(["any more", "status", "plan"], source);
  expect(find('const text = "It is not sold any more.";')).toHaveLength(1);
  expect(find("<p>\n  It is not sold\n  any more.\n</p>")).toHaveLength(1);
  expect(find("say(`The status of ${name} is unknown`);")).toHaveLength(1);
  expect(find('<Button>\n  Choose a plan{" "}\n</Button>')).toHaveLength(1);
  expect(find("// not used any more\nconst status = plan.status;")).toEqual([]);
  expect(find('const path = "/plans/status"; const { status } = row;')).toEqual([]);
});
