/**
 * How large the house is: lines by room, and its longest functions, in TypeScript and in SQL, counted in the source files.
 * `bun scripts/house_figures.ts` prints the tables; `--write` writes them to docs/architecture.md.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";
import { type FunctionLength, longFunctions, longSqlFunctions } from "../test/house_functions.ts";
import { roomOf, rows, type SourceFile, sharedFiles } from "../test/house_rules.ts";

const repository = dirname(import.meta.dirname);
const DOCUMENT = join(repository, "docs/architecture.md");
const MARKED = /(<!-- figures -->\n)(.*?)(\n<!-- \/figures -->)/s;
const WEB = "src/panel/web/";
const FUNCTIONS_SHOWN = 10;
/** Shorter functions are not among the longest ten. */
const LINES_MIN = 20;
/** The document is not written anew with each change: a count of lines in it is near the code's. */
const PART_APART_MAX = 0.1;
const LINES_APART_MAX = 300;

/** What the lines of a file are counted to, from top to bottom. Every file that is counted is in the first group that has it. */
const GROUPS: readonly { name: string; has: (path: string) => boolean }[] = [
  ...rows.flat().map((room) => ({
    name:
      room === "entry"
        ? "entry: `main`, `replica`, `cli/`, `demo/`"
        : `\`${room}/\`${room === "panel" ? ", without its web app" : ""}`,
    has: (path: string) =>
      path.startsWith("src/") && !path.startsWith(WEB) && !sharedFiles.includes(path) && roomOf(path) === room,
  })),
  { name: "shared by all rooms: `errors`, `config` and others", has: (path) => sharedFiles.includes(path) },
  { name: "`panel/web/`: the panel in the browser", has: (path) => path.startsWith(WEB) },
  { name: "SQL of the migrations", has: (path) => path.startsWith("drizzle/") },
  { name: "tests", has: (path) => path.startsWith("test/") },
  { name: "scripts, benches", has: (path) => /^(?:scripts|bench)\//.test(path) },
];

export interface Figures {
  /** Lines of each group, by its name. Empty lines and comments count. */
  lines: ReadonlyMap<string, number>;
  /** The longest functions, the longest first. */
  functions: readonly FunctionLength[];
  sqlFunctions: readonly FunctionLength[];
}

/** Every source file: TypeScript, styles and SQL. */
export function countedFiles(): SourceFile[] {
  const paths = [...new Glob("{src,test,scripts,bench,drizzle}/**/*.{ts,tsx,css,sql}").scanSync({ cwd: repository })];
  return paths.sort().map((path) => ({ path, text: readFileSync(join(repository, path), "utf8") }));
}

/** Counts. Throws an Error if a file belongs to no group. */
export async function houseFigures(files: readonly SourceFile[]): Promise<Figures> {
  const lines = new Map(GROUPS.map(({ name }) => [name, 0]));
  for (const { path, text } of files) {
    const group = GROUPS.find(({ has }) => has(path));
    if (group === undefined) throw new Error(`${path} belongs to no group.`);
    lines.set(group.name, (lines.get(group.name) ?? 0) + text.split("\n").length - 1);
  }
  const code = files.filter(({ path }) => /^src\/.*\.tsx?$/.test(path));
  const sql = files.filter(({ path }) => path.startsWith("drizzle/"));
  return {
    lines,
    functions: longest(await longFunctions(code, LINES_MIN)),
    sqlFunctions: longest(longSqlFunctions(sql, LINES_MIN)),
  };
}

function longest(functions: readonly FunctionLength[]): FunctionLength[] {
  return functions.toSorted((a, b) => b.lines - a.lines || a.name.localeCompare(b.name)).slice(0, FUNCTIONS_SHOWN);
}

/** As Markdown, without padding. */
export function figuresText({ lines, functions, sqlFunctions }: Figures): string {
  const all = [...lines].map(([name, count]) => `| ${name} | ${inWords(count)} |`);
  const length = (one: FunctionLength | undefined) => {
    const [path = "", name = ""] = one?.name.split(" ") ?? [];
    return one === undefined ? " | " : `\`${path.split("/").at(-1)}\` › \`${name}\` | ${one.lines}`;
  };
  const pairs = functions.map((one, place) => `| ${length(one)} | ${length(sqlFunctions[place])} |`);
  return [
    ...["| lines of | |", "| --- | ---: |", ...all, ""],
    ...["| longest functions of `src/` | lines | of the SQL | lines |", "| --- | ---: | --- | ---: |", ...pairs],
  ].join("\n");
}

function inWords(count: number): string {
  return count.toLocaleString("en");
}

/**
 * What the tables of a document say that is not so, or no longer: a group whose lines are further from the code's than a change or two
 * explains, a group that is missing, a function that is gone. Empty: they may stay. Throws an Error if the document has no tables.
 */
export function outdated(document: string, { lines }: Figures, code: readonly SourceFile[]): string[] {
  const cells = tablesOf(document)
    .split("\n")
    .map((row) => row.split("|").map((cell) => cell.trim()));
  const counts = [...lines].flatMap(([name, count]) => {
    const row = cells.find(([, first]) => first === name);
    const written = Number(row?.[2]?.replaceAll(",", ""));
    const apart = Math.abs(written - count);
    return apart <= Math.max(count * PART_APART_MAX, LINES_APART_MAX) ? [] : [`${name}: ${written}, not ${count}`];
  });
  const functions = [...tablesOf(document).matchAll(/`([\w.]+)` › `([\w.]+)`/g)];
  const gone = functions.filter(([, file = "", name = ""]) => {
    const own = name.split(".").at(-1) ?? "";
    return !code.some(({ path, text }) => path.endsWith(`/${file}`) && text.includes(own));
  });
  if (functions.length < FUNCTIONS_SHOWN) counts.push(`${functions.length} functions`);
  return [...counts, ...gone.map(([written]) => `${written}: gone`)];
}

function tablesOf(document: string): string {
  const [, , tables] = MARKED.exec(document) ?? [];
  if (tables === undefined) throw new Error("docs/architecture.md has no markers for the figures: <!-- figures -->");
  return tables;
}

if (import.meta.main) {
  const text = figuresText(await houseFigures(countedFiles()));
  if (process.argv.includes("--write")) {
    const document = readFileSync(DOCUMENT, "utf8");
    tablesOf(document);
    writeFileSync(
      DOCUMENT,
      document.replace(MARKED, (_all, begin: string, _tables, end: string) => `${begin}\n${text}\n${end}`),
    );
  } else {
    console.log(text);
  }
}
