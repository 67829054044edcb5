import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { Glob } from "bun";
import { proseOf } from "./doc_text.ts";

/**
 * Names in documents about the code exist in the code: what was renamed or removed is not named any more. Documents for users quote names of
 * other programs, and decisions what was tried or replaced, so they are not compared. Tables are whole.
 */

setDefaultTimeout(180_000);

const repository = dirname(import.meta.dirname);
const DOCUMENTS = [
  "{README,CONTRIBUTING}.md",
  "docs/{architecture,glossary,reliability,security,specification}.md",
  "{src,test,bench}/**/README.md",
];
const CODE = ["{src,test,scripts,bench,drizzle,deploy}/**/*.{ts,tsx,sql,css,json,sh,pml}", "*.{json,ts}"];
/** Names of other programs. */
const FOREIGN = ["HTTPS_PROXY"];

const scan = (patterns: readonly string[]) =>
  patterns.flatMap((pattern) => [...new Glob(pattern).scanSync({ cwd: repository })].sort());
const read = (path: string) => readFileSync(join(repository, path), "utf8");

/** Names in `code` marks of a text: of files, and words that only code has (with a capital letter inside, or an underscore). */
function namesOf(document: string): string[] {
  const spans = [...proseOf(document).matchAll(/`([^`\n]+)`/g)].map(([, span = ""]) => span);
  return spans
    .flatMap((span) => span.match(/\b\w[\w.-]*\.(?:tsx?|sql|css)\b|\w+/g) ?? [])
    .filter((name) => /[a-z][A-Z]|_|\.\w/.test(name));
}

/** The names that are neither a word of the code nor a file; of `check_*`, only the beginning is compared. */
function missing(names: readonly string[], known: ReadonlySet<string>): string[] {
  const all = [...known];
  return names.filter((name) => {
    if (known.has(name)) return false;
    if (name.endsWith("_")) return !all.some((one) => one.startsWith(name));
    return !name.startsWith("_") || !all.some((one) => one.endsWith(name));
  });
}

test("every name of code in a document about the code exists", () => {
  const paths = scan(CODE);
  const files = scan(["{src,test,scripts,bench,drizzle}/**/*"]).map((path) => basename(path));
  const known = new Set([
    ...FOREIGN,
    ...files,
    ...files.map((file) => file.replace(/\..*/, "")),
    ...paths.flatMap((path) => read(path).match(/[A-Za-z_]\w*/g) ?? []),
  ]);
  const documents = scan(DOCUMENTS);
  expect(documents.length).toBeGreaterThan(15);
  expect(documents.flatMap((path) => missing(namesOf(read(path)), known).map((name) => `${path}: ${name}`))).toEqual(
    [],
  );
});

test("the check finds names that are gone, and no others", () => {
  const known = new Set(["readBody", "check_runs", "body.ts", "v1_endpoints"]);
  const names = namesOf(
    "`readBody(x)`, `check_*.ts`, `*_endpoints`, `body.ts`, plain `word`, not readBudy; `jsonChat`, `budy.ts`, `RATE_OF`",
  );
  expect(missing(names, known)).toEqual(["jsonChat", "budy.ts", "RATE_OF"]);
});

test("every row of a table in a document has as many cells as its head", () => {
  const cells = (line: string) => line.replace(/`[^`]*`|\\\|/g, "").split("|").length;
  const broken = scan(["*.md", "{docs,src,test,bench}/**/*.md"]).flatMap((path) => {
    let head = 0;
    return read(path)
      .split("\n")
      .flatMap((line, i) => {
        head = line.startsWith("|") ? head || cells(line) : 0;
        return head === 0 || cells(line) === head ? [] : `${path}:${i + 1}`;
      });
  });
  expect(broken).toEqual([]);
});

describe("tests and files that documents name", () => {
  const PAGES = ["*.md", "docs/**/*.md"];
  /** Names of tests as they stand in a file, those of templates with their placeholders. */
  const testsIn = (source: string) =>
    new Set(
      [
        ...source.matchAll(
          /\b(?:test(?:\.concurrent)?(?:\.each\((?:[^()]|\([^()]*\))*\))?|row)\(\s*(?:"((?:[^"\\]|\\.)*)"|`((?:[^`\\]|\\.)*)`)/g,
        ),
      ].map(([, plain, template]) => (plain ?? template ?? "").replace(/\\(["`'])/g, "$1")),
    );
  const testsNamed = (page: string) =>
    [...page.matchAll(/`(test\/[\w./]+)` › (.+?)(?= <br>| \||\n)/g)].map(([, file = "", name = ""]) => ({
      file,
      name: name.trim(),
    }));

  test("every test exists under its name", () => {
    const named = scan(PAGES).flatMap((path) => testsNamed(read(path)).map((one) => ({ path, ...one })));
    expect(named.length).toBeGreaterThan(40);
    const gone = named.filter(
      ({ file, name }) => !(existsSync(join(repository, file)) && testsIn(read(file)).has(name)),
    );
    expect(gone).toEqual([]);
  });

  test("docs/security.md names only files that exist", () => {
    const files = [...read("docs/security.md").matchAll(/`((?:src|test|docs|scripts)\/[\w./]+\.\w+)`/g)].map(
      ([, file = ""]) => file,
    );
    expect(files.length).toBeGreaterThan(30);
    expect([...new Set(files)].filter((file) => !existsSync(join(repository, file)))).toEqual([]);
  });
});

describe("docs/security.md", () => {
  const page = read("docs/security.md");
  const customers = page.indexOf("## What a paying customer may try");
  const remains = page.indexOf("## What remains");
  /** The cells of a table's rows, without its head. */
  const rowsOf = (text: string, head: string) =>
    text
      .split("\n")
      .filter((line) => /^\| (?!-)/.test(line) && !line.startsWith(`| ${head} `))
      .map((row) =>
        row
          .split("|")
          .slice(1, -1)
          .map((cell) => cell.trim()),
      );

  test("has a control, its place, and a test in every row of its table", () => {
    const rows = rowsOf(page.slice(0, customers), "threat");
    expect(rows.length).toBeGreaterThan(12);
    for (const [threat, control, where, tests, ...rest] of rows) {
      expect(rest, threat).toEqual([]);
      expect(control, threat).toMatch(/\w{3}/);
      expect(where, threat).toMatch(/`src\//);
      expect(tests, threat).toMatch(/`test\/[\w./]+` › \w/);
    }
  });

  test("has a control and a test for every attempt of a paying customer", () => {
    const rows = rowsOf(page.slice(customers, remains), "attempt");
    expect(rows.length).toBeGreaterThan(5);
    for (const cells of rows) {
      expect(cells).toHaveLength(3);
      expect(cells[1], cells[0]).toMatch(/\w{3}/);
      expect(cells[2], cells[0]).toMatch(/`test\/[\w./]+` › \w/);
    }
  });
});
