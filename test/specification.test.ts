import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";

/** Every `Source:` citation in code and tests leads to a rule of docs/specification.md, a file of this repository, or a public standard. */

const repository = dirname(import.meta.dirname);
const SELF = "test/specification.test.ts";
/** Rules that no code and no test cites. This list may only shrink. */
const UNCITED: string[] = [];
const STANDARD = /^(?:RFC \d+|WCAG \d|ISO \d+|W3C |WHATWG |IANA |spec\.openapis\.org\/)/;
const RULE = /^[A-Z]{3,4}-\d+$/;

const specification = readFileSync(join(repository, "docs/specification.md"), "utf8");
const rules = [...specification.matchAll(/^- \*\*([A-Z]{3,4}-\d+)\*\* /gm)].map(([, id = ""]) => id);

/** Citations as written: the text between `Source: ` and the full stop, or the end of the comment. */
function citationsOf(text: string): string[] {
  const joined = text.replace(/\s*\n\s*(?:\*(?!\/)|\/\/|--)[ \t]*/g, " ");
  return [...joined.matchAll(/(?<![\w"`])Source: (.+?)(?:\.(?=\s)|\.?\s*(?:\*\/|\n|$))/g)].map(
    ([, citation = ""]) => citation,
  );
}

/** The parts of a citation that lead nowhere. What stands in parentheses is a remark. */
function brokenParts(citation: string): string[] {
  const parts = citation
    .replace(/\([^)]*\)/g, "")
    .split(/[,;]/)
    .map((part) => part.trim())
    .filter((part) => part !== "");
  return parts.filter((part) => {
    if (RULE.test(part)) return !rules.includes(part);
    const [path = ""] = part.split(" ");
    return !STANDARD.test(part) && !(path.includes("/") && existsSync(join(repository, path)));
  });
}

const files = [...new Glob("{src,test,scripts,bench,drizzle}/**/*.{ts,tsx,sql}").scanSync({ cwd: repository })]
  .filter((path) => path !== SELF)
  .sort()
  .map((path) => ({ path, citations: citationsOf(readFileSync(join(repository, path), "utf8")) }));

test("every rule has a number of its own, and the numbers of a subject leave no gap", () => {
  expect(rules.length).toBeGreaterThan(100);
  expect(new Set(rules).size).toBe(rules.length);
  const subjects = Map.groupBy(rules, (id) => id.split("-")[0]);
  for (const [subject, ids] of subjects) expect(ids).toEqual(ids.map((_, i) => `${subject}-${i + 1}`));
});

test("every citation leads to a rule, a file of this repository, or a public standard", () => {
  const broken = files.flatMap(({ path, citations }) =>
    citations.flatMap((citation) => brokenParts(citation).map((part) => `${path}: ${part}`)),
  );
  expect(broken).toEqual([]);
});

test("every rule is cited by code or by a test, except those of a list that may only shrink", () => {
  const cited = new Set(
    files.flatMap(({ citations }) => citations.flatMap((text) => text.match(/[A-Z]{3,4}-\d+/g) ?? [])),
  );
  const uncited = rules.filter((id) => !cited.has(id));
  if (uncited.length > 0) console.log(`Rules that nothing cites: ${uncited.join(", ")}.`);
  expect(uncited).toEqual(UNCITED);
});

test("the checker of citations can fail", () => {
  const text = "/** Counts. Source: QUO-1,\n * QUO-999; docs/nothing.md; a brief › Pages (of people). Then more. */";
  const [citation = ""] = citationsOf(text);
  expect(brokenParts(citation)).toEqual(["QUO-999", "docs/nothing.md", "a brief › Pages"]);
  expect(citationsOf("// Source: QUO-1\nconst a = 1.5;\n/** Source: QUO-2 */")).toEqual(["QUO-1", "QUO-2"]);
  expect(brokenParts("QUO-1, docs/specification.md, RFC 9110 §8.6")).toEqual([]);
});
