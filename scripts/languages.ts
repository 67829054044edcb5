import { readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import process from "node:process";
import { type types as t, traverse } from "@babel/core";
import { type ExtractedCatalogType, extractor, getCatalogs } from "@lingui/cli/api";
import { makeConfig } from "@lingui/conf";
import { Glob } from "bun";
import config from "../lingui.config.ts";
import { ERROR_TABLE } from "../src/errors.ts";
import { panelSources } from "./build_panel.ts";
import { catalogues, faultsOf, panelPath, po, serverPath, TRANSLATED } from "./catalogues.ts";
import { parseSource } from "./uncollected_texts.ts";

/**
 * `bun scripts/languages.ts` collects the texts of the sources into them, keeps what is translated, takes
 * out what is no longer used, and names what is missing or wrong; it exits with 1 if there is such a text. `--check` writes nothing.
 * Texts of the panel are in its macros; those that the server writes itself are in `i18n.t("…")` of any other source.
 */

const repository = join(import.meta.dirname, "..");
const FOLDER = join(repository, "src", "languages");
const linguiConfig = makeConfig(config, { skipValidation: true });

/** Collects the sources' texts. Returns the catalogues that differ from them; with `write`, they were written anew. */
export async function collectTexts({ write }: { write: boolean }): Promise<{ stale: string[] }> {
  const stale: string[] = [];
  const [catalog] = await getCatalogs({
    ...linguiConfig,
    catalogs: [
      {
        path: join(FOLDER, "panel", "{locale}"),
        include: [...(await panelSources())].filter((path) => /\.tsx?$/.test(path)),
        exclude: [],
      },
    ],
  });
  const collected = { ...(await catalog?.collect()), ...(await serverSentences()) };
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

/** Functions of single files that make an error of a message. */
const TAKE_MESSAGE = /^(?:wrong|refused|refuse|tooSoon|conflict|insufficientBalance)$/;
/** Rooms whose errors never reach the panel's pages, or reach them by their codes alone. */
const NOT_IN_PANEL = /^src\/(?:panel\/web|gateway|cli|demo|platform|server)\//;

/**
 * The sentences of the server's errors, which the panel shows: the first argument of `new InputError`, `new ExistsError`, `new MailError` and
 * `sentence`, the `message` of `new Refusal`, and those of the table of errors. A constant of the same file is followed;
 * another text is marked with a comment `i18n`.
 */
async function serverSentences(): Promise<ExtractedCatalogType> {
  const found: ExtractedCatalogType = {};
  const add = (path: string, node: t.StringLiteral) => {
    const entry = found[node.value] ?? { origin: [], comments: [], placeholders: {} };
    if (!entry.origin.some(([file]) => file === path)) entry.origin.push([path]);
    found[node.value] = entry;
  };
  for (const path of [...new Glob("src/**/*.ts").scanSync({ cwd: repository })].sort()) {
    if (NOT_IN_PANEL.test(path)) continue;
    const source = await readFile(join(repository, path), "utf8");
    if (!/\bnew (?:InputError|ExistsError|MailError|Refusal)\(|\bsentence\(|\/\*i18n\*\//.test(source)) continue;
    // Marked texts of a file that says its texts itself are in the server's catalogue.
    const isOwn = source.includes("i18n.t(");
    const constants = new Map<string, t.Node>();
    const addEach = (given: t.Node | null | undefined): void => {
      const node = given?.type === "Identifier" ? constants.get(given.name) : given;
      if (node?.type === "StringLiteral") add(path, node);
      if (node?.type === "TSAsExpression" || node?.type === "TSSatisfiesExpression") addEach(node.expression);
      if (node?.type === "ConditionalExpression") for (const side of [node.consequent, node.alternate]) addEach(side);
      if (node?.type === "MemberExpression") addEach(node.object);
      if (node?.type === "ObjectExpression")
        for (const each of node.properties) if (each.type === "ObjectProperty") addEach(each.value);
      if (node?.type === "LogicalExpression") for (const side of [node.left, node.right]) addEach(side);
    };
    const tree = await parseSource(path, source);
    for (const statement of tree.program.body) {
      const declared = statement.type === "ExportNamedDeclaration" ? statement.declaration : statement;
      if (declared?.type !== "VariableDeclaration") continue;
      for (const { id, init } of declared.declarations)
        if (id.type === "Identifier" && init) constants.set(id.name, init);
    }
    traverse(tree, {
      enter({ node }) {
        if (node.type === "StringLiteral" && isMarked(node) && !isOwn) add(path, node);
        if (node.type !== "NewExpression" && node.type !== "CallExpression") return;
        const name = node.callee.type === "Identifier" ? node.callee.name : "";
        const [first, second] = node.arguments;
        if (/^(?:InputError|ExistsError|MailError|sentence)$/.test(name)) addEach(first);
        if (TAKE_MESSAGE.test(name)) for (const given of node.arguments) if (isText(given)) addEach(given);
        if (name === "Refusal" && second?.type === "ObjectExpression") {
          for (const property of second.properties)
            if (
              property.type === "ObjectProperty" &&
              property.key.type === "Identifier" &&
              property.key.name === "message"
            )
              addEach(property.value);
        }
      },
    });
  }
  for (const [, , message] of Object.values(ERROR_TABLE))
    found[message] ??= { origin: [["src/errors.ts"]], comments: [], placeholders: {} };
  return found;
}

/** Not a code or a name of a field: those have no spaces. */
function isText(node: t.Node): boolean {
  return node.type === "StringLiteral" ? node.value.includes(" ") : node.type === "Identifier";
}

function isMarked(node: t.StringLiteral): boolean {
  return node.leadingComments?.some(({ value }) => value.trim() === "i18n") ?? false;
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
