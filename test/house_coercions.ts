/** Finds values of unknown type that are turned into text or numbers: `{"toString": 1}` makes that throw. */
import { join } from "node:path";
import {
  isCallExpression,
  isIdentifier,
  isPropertyAccessExpression,
  isTemplateSpan,
  type Node,
} from "typescript/unstable/ast";
import { API } from "typescript/unstable/async";

const CONVERSIONS = new Set(["String", "Number", "BigInt", "parseInt", "parseFloat", "isNaN", "encodeURIComponent"]);
/** Types whose values may be anything. */
const ANYTHING = /^(?:unknown|any|object|\{\})(?:\[\])?$/;

/** Where the files of `repository` do so, as `src/a.ts:7 role`. */
export async function coercions(repository: string, paths: readonly string[]): Promise<string[]> {
  const api = new API({ cwd: repository });
  try {
    const snapshot = await api.updateSnapshot({ openProjects: [join(repository, "tsconfig.json")] });
    const [project] = snapshot.getProjects();
    if (project === undefined) throw new Error("The compiler did not open the project.");
    const found: string[] = [];
    for (const path of paths) {
      const tree = await project.program.getSourceFile(join(repository, path));
      if (tree === undefined) throw new Error(`The compiler does not know ${path}.`);
      const nodes = coerced(tree);
      const types = nodes.length === 0 ? [] : await project.checker.getTypeAtLocation(nodes);
      for (const [i, node] of nodes.entries()) {
        const type = types[i];
        if (type === undefined || !ANYTHING.test(await project.checker.typeToString(type))) continue;
        const line = tree.text.slice(0, node.getStart(tree)).split("\n").length;
        found.push(`${path}:${line} ${node.getText(tree)}`);
      }
    }
    return found;
  } finally {
    await api.close();
  }
}

/** The expressions that are turned into text or numbers. */
function coerced(tree: Node): Node[] {
  const nodes: Node[] = [];
  const visit = (node: Node): void => {
    if (isTemplateSpan(node)) nodes.push(node.expression);
    if (isCallExpression(node)) {
      const { expression: called, arguments: given } = node;
      const first = given[0];
      if (isIdentifier(called) && CONVERSIONS.has(called.text) && first !== undefined) nodes.push(first);
      if (isPropertyAccessExpression(called) && called.name.text === "join") nodes.push(called.expression);
    }
    node.forEachChild(visit);
  };
  visit(tree);
  return nodes;
}
