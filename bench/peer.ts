import { readFileSync } from "node:fs";
import { plugin } from "bun";

/**
 * The equal-work peer: the same gateway from the same source, with two numbers changed as it is loaded: a batch of the
 * ledger has one row, so that every reserve and every settlement is its own transaction; and one waiting row starts a
 * lane, so that no row waits while a connection is idle.
 */

const BATCHER = /\/src\/ledger\/batch\.ts$/;
const SET_TO_ONE = ["ROWS_MAX", "ROWS_WORTH_A_LANE"] as const;

plugin({
  name: "a transaction for every row",
  setup(build) {
    build.onLoad({ filter: BATCHER }, ({ path }) => {
      const source = readFileSync(path, "utf8");
      return { contents: SET_TO_ONE.reduce((text, name) => setToOne(text, name, path), source), loader: "ts" };
    });
  },
});

function setToOne(source: string, name: string, path: string): string {
  const line = new RegExp(`^const ${name} = \\d+;$`, "m");
  if (!line.test(source)) throw new Error(`${path} has no ${name} to be set to 1`);
  return source.replace(line, `const ${name} = 1;`);
}

await import("../src/main.ts");
