import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript-5";
import type { AnyOperation } from "../../src/operations/operation.ts";
import { OPERATIONS } from "../../src/operations/table.ts";

/** The panel's doors to operations, read from its sources: the endpoints whose handler does an operation. */

const SOURCE = join(import.meta.dirname, "../../src");
const METHODS: readonly string[] = ["get", "post", "put", "patch", "delete"];
/** What does an operation: its second argument. */
const DOES: readonly string[] = ["operate", "perform", "performJson"];

export type PanelDoor = { operation: AnyOperation /** As in the table of routes: "GET /people/:id". */; route: string };

/** Every door, and the operations that a file of the panel imports. */
export async function readPanelDoors(): Promise<{ doors: PanelDoor[]; imported: AnyOperation[] }> {
  const folder = join(SOURCE, "panel/api");
  const files = readdirSync(folder).filter((name) => name.endsWith(".ts"));
  const found = await Promise.all(files.map((name) => doorsOf(readFileSync(join(folder, name), "utf8"))));
  return {
    doors: found.flatMap(({ doors }) => doors),
    imported: [...new Set(found.flatMap(({ imported }) => imported))],
  };
}

/** The same of one file of `panel/api`. */
export async function doorsOf(source: string): Promise<{ doors: PanelDoor[]; imported: AnyOperation[] }> {
  const tree = ts.createSourceFile("endpoints.ts", source, ts.ScriptTarget.Latest, true);
  const operations = await operationsOf(tree);
  const doors: PanelDoor[] = [];
  const visit = (node: ts.Node, route: string | undefined): void => {
    const here = routeOf(node) ?? route;
    const name = operationIn(node);
    const operation = name === undefined ? undefined : operations.get(name);
    if (here !== undefined && operation !== undefined) doors.push({ operation, route: here });
    // Endpoints are chained: what a call is made on belongs to the endpoint before it.
    if (ts.isCallExpression(node)) {
      visit(node.expression, route);
      for (const argument of node.arguments) visit(argument, here);
    } else node.forEachChild((child) => visit(child, route));
  };
  visit(tree, undefined);
  return { doors, imported: [...operations.values()] };
}

/** The operations that a file imports, by their names in it. */
async function operationsOf(tree: ts.SourceFile): Promise<Map<string, AnyOperation>> {
  const byName = new Map<string, AnyOperation>();
  for (const statement of tree.statements) {
    if (!ts.isImportDeclaration(statement) || !ts.isStringLiteral(statement.moduleSpecifier)) continue;
    const [, room, file = ""] = /^\.\.\/\.\.\/(operations)\/(\w+\.ts)$/.exec(statement.moduleSpecifier.text) ?? [];
    const bindings = statement.importClause?.namedBindings;
    if (room === undefined || bindings === undefined || !ts.isNamedImports(bindings)) continue;
    const exported = new Map(Object.entries(await import(join(SOURCE, room, file))));
    for (const { name, propertyName } of bindings.elements) {
      const operation = OPERATIONS.find((one) => one === exported.get((propertyName ?? name).text));
      if (operation !== undefined) byName.set(name.text, operation);
    }
  }
  return byName;
}

/** As in `.get("/people/:id", …)`. */
function routeOf(node: ts.Node): string | undefined {
  if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) return undefined;
  const method = node.expression.name.text;
  const [path] = node.arguments;
  if (!METHODS.includes(method) || path === undefined || !ts.isStringLiteral(path)) return undefined;
  return path.text.startsWith("/") ? `${method.toUpperCase()} ${path.text}` : undefined;
}

/** As in `perform(deps, getAccount, …)`. */
function operationIn(node: ts.Node): string | undefined {
  if (!ts.isCallExpression(node) || !ts.isIdentifier(node.expression)) return undefined;
  const [, operation] = node.arguments;
  return DOES.includes(node.expression.text) && operation !== undefined && ts.isIdentifier(operation)
    ? operation.text
    : undefined;
}
