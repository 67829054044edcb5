/** Measures functions, by the compiler's own syntax trees. */
import { type Node, SyntaxKind, type SourceFile as Tree } from "typescript/unstable/ast";
import { API } from "typescript/unstable/async";
import { createVirtualFileSystem } from "typescript/unstable/fs";
import type { SourceFile } from "./house_rules.ts";

/** The files to be measured are shown to the compiler in a folder that does not exist on any disk. */
const FOLDER = "/house";
/** The compiler only has to parse: no libraries, no imports followed. */
const COMPILER_OPTIONS = { noLib: true, noResolve: true, types: [], jsx: "preserve", allowImportingTsExtensions: true };

const FUNCTIONS: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.FunctionDeclaration,
  SyntaxKind.FunctionExpression,
  SyntaxKind.ArrowFunction,
  SyntaxKind.MethodDeclaration,
  SyntaxKind.Constructor,
  SyntaxKind.GetAccessor,
  SyntaxKind.SetAccessor,
]);

export interface FunctionLength {
  /** "src/replica.ts startReplica"; an inner function has the names of those around it: "src/a.ts open.close". */
  name: string;
  /** From its first line to its last, inner functions included. */
  lines: number;
}

/** The functions of `files` that are longer than `linesMax`: declarations, methods, arrow functions, React components. */
export async function longFunctions(files: readonly SourceFile[], linesMax: number): Promise<FunctionLength[]> {
  const found: FunctionLength[] = [];
  for (const [path, tree] of await parse(files)) {
    const visit = (node: Node, outer: string): void => {
      const own = FUNCTIONS.has(node.kind) ? nameOf(node) : undefined;
      const name = own === undefined ? outer : outer === "" ? own : `${outer}.${own}`;
      if (own !== undefined) {
        const lines = lineAt(tree, node.end) - lineAt(tree, node.getStart(tree)) + 1;
        if (lines > linesMax) found.push({ name: `${path} ${name}`, lines });
      }
      node.forEachChild((child) => visit(child, name));
    };
    visit(tree, "");
  }
  return found;
}

/** The syntax tree of each file, by its path. */
async function parse(files: readonly SourceFile[]): Promise<Map<string, Tree>> {
  const config = { compilerOptions: COMPILER_OPTIONS, files: files.map(({ path }) => path) };
  const virtual: Record<string, string> = { [`${FOLDER}/tsconfig.json`]: JSON.stringify(config) };
  for (const { path, text } of files) virtual[`${FOLDER}/${path}`] = text;
  const api = new API({ cwd: FOLDER, fs: createVirtualFileSystem(virtual) });
  try {
    const snapshot = await api.updateSnapshot({ openProjects: [`${FOLDER}/tsconfig.json`] });
    const [project] = snapshot.getProjects();
    const trees = new Map<string, Tree>();
    for (const { path } of files) {
      const tree = await project?.program.getSourceFile(`${FOLDER}/${path}`);
      if (tree === undefined) throw new Error(`The compiler has no syntax tree of ${path}.`);
      trees.set(path, tree);
    }
    return trees;
  } finally {
    await api.close();
  }
}

/** The function's own name, or that of the variable or property that holds it, or of the call that takes it. */
function nameOf(node: Node): string {
  const named = node as { name?: Node };
  if (node.kind === SyntaxKind.Constructor) return "constructor";
  if (named.name !== undefined) return named.name.getText();
  const { parent } = node;
  if (parent.kind === SyntaxKind.VariableDeclaration || parent.kind === SyntaxKind.PropertyAssignment)
    return (parent as { name?: Node }).name?.getText() ?? "(unnamed)";
  if (parent.kind === SyntaxKind.CallExpression)
    return `${(parent as { expression?: Node }).expression?.getText().split("(")[0]}()`;
  return "(unnamed)";
}

function lineAt(tree: Tree, position: number): number {
  return tree.getLineAndCharacterOfPosition(position).line;
}

/** The functions of SQL files that are longer than `linesMax`, from CREATE to the end of the statement. */
export function longSqlFunctions(files: readonly SourceFile[], linesMax: number): FunctionLength[] {
  const statements = files.flatMap(({ path, text }) =>
    text.split("--> statement-breakpoint").map((statement) => ({ path, statement: statement.trim() })),
  );
  return statements.flatMap(({ path, statement }) => {
    const [, name] = /^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) (\w+)/m.exec(statement) ?? [];
    const lines = statement.slice(statement.indexOf("CREATE ")).split("\n").length;
    return name !== undefined && lines > linesMax ? [{ name: `${path} ${name}`, lines }] : [];
  });
}
