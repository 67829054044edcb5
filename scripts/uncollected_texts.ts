import { readFile } from "node:fs/promises";
import { join, relative } from "node:path";
import process from "node:process";
import { parseAsync, type types as t, traverse } from "@babel/core";
import { Glob } from "bun";

/**
 * Finds texts of the panel that no macro collects, so that they would stay English in every language:
 * `bun scripts/uncollected_texts.ts [folder or file below src/panel/web …]` prints file, line and text, and exits with 1 if there is one.
 */

const repository = join(import.meta.dirname, "..");
const WEB = "src/panel/web";
/** Has two letters in a row, and a space between words or a capital at its start. */
const TEXT = /^\s*[“"'(]?[A-Z][a-z]+|[A-Za-z]{2,}[,.]? [A-Za-z]|[a-z]{2,}[.?!…]$/;
/** Class names: words in lower case, at least one with a sign that no word has. */
const CLASSES = /^(?=.*[-:[/])[a-z0-9\s:[\]\-_/.%()!&>*,#='~+@]+$/;
/** Attributes that nobody reads. */
const SILENT_ATTRIBUTES =
  /^(?:class|className|\w*ClassName|classes|href|to|path|type|id|key|name|role|d|viewBox|autoComplete|inputMode|target|rel|src|style|method|accept|width|look|tone|kind|lang|dir|code|data-[\w-]+)$/;
/** Calls whose strings nobody reads, or that collect their strings. */
const SILENT_CALLS =
  /^(?:cx|Error|TypeError|RangeError|SyntaxError|call|fetch|require|import|t|msg|plural|select|selectOrdinal|defineMessage|RegExp|querySelector|querySelectorAll|getElementById|addEventListener|removeEventListener|matchMedia|_|tv|useQuery|startsWith|endsWith|includes|getItem|setItem|removeItem|closest|matches|postMessage|DateTimeFormat|NumberFormat)$/;
const COLLECTED_ELEMENTS = /^(?:Trans|Plural|Select|SelectOrdinal|code|kbd|style)$/;

export type Uncollected = { path: string; line: number; text: string };

/** The uncollected texts of one source. A comment `not a text` before a string exempts it. */
export async function uncollectedIn(path: string, source: string): Promise<Uncollected[]> {
  const tree = await parseSource(path, source);
  const found: Uncollected[] = [];
  traverse(tree, {
    enter(at) {
      const text = textOf(at.node);
      if (text === null || !TEXT.test(text) || CLASSES.test(text) || isExempt(at.node)) return;
      if (at.findParent(({ node }) => isSilentPlace(node)) !== null) return;
      found.push({ path, line: at.node.loc?.start.line ?? 0, text: text.replace(/\s+/g, " ").trim() });
    },
  });
  return found;
}

/** Throws an Error if the source does not parse. */
export async function parseSource(path: string, source: string): Promise<t.File> {
  const plugins = path.endsWith("x") ? (["typescript", "jsx"] as const) : (["typescript"] as const);
  const parserOpts = { plugins: [...plugins] };
  const tree = await parseAsync(source, { filename: path, babelrc: false, configFile: false, parserOpts });
  if (tree === null) throw new Error(`${path} does not parse.`);
  return tree;
}

function textOf(node: t.Node): string | null {
  if (node.type === "JSXText" || node.type === "StringLiteral") return node.value;
  return node.type === "TemplateElement" ? (node.value.cooked ?? null) : null;
}

function isExempt(node: t.Node): boolean {
  return node.leadingComments?.some(({ value }) => /\bnot a text\b|^\s*i18n\s*$/.test(value)) ?? false;
}

function isSilentPlace(node: t.Node): boolean {
  switch (node.type) {
    case "ImportDeclaration":
    case "ExportNamedDeclaration":
      return "source" in node && node.source != null;
    case "ExportAllDeclaration":
    case "TSLiteralType":
    case "TSTypeAliasDeclaration":
    case "TSInterfaceDeclaration":
    case "TSTypeAnnotation":
    case "ThrowStatement":
      return true;
    case "BinaryExpression":
      return /^[!=]==?$|^in$/.test(node.operator);
    case "JSXAttribute":
      return typeof node.name.name === "string" && SILENT_ATTRIBUTES.test(node.name.name);
    case "JSXElement":
      return (
        node.openingElement.name.type === "JSXIdentifier" && COLLECTED_ELEMENTS.test(node.openingElement.name.name)
      );
    case "TaggedTemplateExpression":
      return node.tag.type === "Identifier" && /^(?:t|msg)$/.test(node.tag.name);
    case "CallExpression":
    case "NewExpression":
      return SILENT_CALLS.test(calleeName(node.callee));
    default:
      return isExempt(node);
  }
}

function calleeName(callee: t.Node): string {
  if (callee.type === "Identifier") return callee.name;
  if (callee.type === "MemberExpression" && callee.property.type === "Identifier") return callee.property.name;
  return callee.type === "Import" ? "import" : "";
}

/** The uncollected texts of the panel, or of folders and files below src/panel/web. */
export async function uncollectedTexts(below: readonly string[] = [""]): Promise<Uncollected[]> {
  const found: Uncollected[] = [];
  for (const start of below) {
    const isFile = /\.tsx?$/.test(start);
    const paths = isFile
      ? [join(WEB, start)]
      : new Glob(`${join(WEB, start)}/**/*.{ts,tsx}`).scanSync({ cwd: repository });
    for (const path of [...paths].sort()) {
      found.push(...(await uncollectedIn(path, await readFile(join(repository, path), "utf8"))));
    }
  }
  return found;
}

if (import.meta.main) {
  const below = process.argv.slice(2).map((each) => relative(join(repository, WEB), join(process.cwd(), each)));
  const places = below.map((each) => (each.startsWith("..") ? each.replace(/^.*src\/panel\/web\/?/, "") : each));
  const found = await uncollectedTexts(places.length === 0 ? [""] : places);
  for (const { path, line, text } of found) console.log(`${path}:${line}: ${text}`);
  console.log(`${found.length} texts are not collected.`);
  process.exitCode = found.length === 0 ? 0 : 1;
}
