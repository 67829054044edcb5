/**
 * The rooms of src and the imports between them as a Mermaid diagram, generated from the source files.
 * `bun scripts/architecture_diagram.ts` prints it; `--write` writes it to docs/architecture.md.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";
import { relativeImports, roomOf, rows, type SourceFile, sharedFiles } from "../test/house_rules.ts";

const repository = dirname(import.meta.dirname);
export const DOCUMENT = join(repository, "docs/architecture.md");
const MARKED = /(<!-- rooms -->\n).*?(\n<!-- \/rooms -->)/s;
/** Labels of rooms that are not one folder. */
const LABELS: Readonly<Record<string, string>> = { entry: "main · replica · cli · demo" };

/** Every file of src. */
export function sources(): SourceFile[] {
  const paths = [...new Glob("src/**/*.{ts,tsx}").scanSync({ cwd: repository })].sort();
  return paths.map((path) => ({ path, text: readFileSync(join(repository, path), "utf8") }));
}

/** The `rows` of test/house_rules.ts from top to bottom, with an arrow for each pair of rooms with an import. */
export function diagramOf(files: readonly SourceFile[]): string {
  const pairs = new Set<string>();
  for (const { path, text } of files) {
    if (sharedFiles.includes(path)) continue;
    for (const { target } of relativeImports(path, text)) {
      if (!target.startsWith("src/") || sharedFiles.includes(target)) continue;
      const [from, to] = [roomOf(path), roomOf(target)];
      if (from !== to) pairs.add(`${from} --> ${to}`);
    }
  }
  const order = rows.flat();
  const rank = (pair: string) =>
    pair
      .split(" --> ")
      .map((room) => order.indexOf(room))
      .reduce((sum, index) => sum * order.length + index, 0);
  const rooms = rows.map((row) =>
    row.length === 1
      ? `  ${nodeOf(row[0] ?? "")}`
      : `  subgraph ${row.join("_")}[ ]\n    direction LR\n${row.map((room) => `    ${nodeOf(room)}`).join("\n")}\n  end`,
  );
  const arrows = [...pairs].sort((a, b) => rank(a) - rank(b)).map((pair) => `  ${pair}`);
  return ["```mermaid", "flowchart TB", ...rooms, ...arrows, "```"].join("\n");
}

function nodeOf(room: string): string {
  return `${room}["${LABELS[room] ?? `${room}/`}"]`;
}

/** Replaces the diagram in the document. Throws an Error if the document has no markers for it. */
export function withDiagram(document: string, diagram: string): string {
  if (!MARKED.test(document)) throw new Error("docs/architecture.md has no markers for the diagram: <!-- rooms -->");
  return document.replace(MARKED, (_all, begin: string, end: string) => `${begin}\n${diagram}\n${end}`);
}

if (import.meta.main) {
  const diagram = diagramOf(sources());
  if (process.argv.includes("--write")) {
    writeFileSync(DOCUMENT, withDiagram(readFileSync(DOCUMENT, "utf8"), diagram));
  } else {
    console.log(diagram);
  }
}
