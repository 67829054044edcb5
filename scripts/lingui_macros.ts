import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { transformAsync } from "@babel/core";
import linguiMacro from "@lingui/babel-plugin-lingui-macro";
import { makeConfig } from "@lingui/conf";
import type { BunPlugin } from "bun";
import config from "../lingui.config.ts";

/**
 * Expands Lingui's macros in the panel's sources: `t`, `plural`, `msg`, `<Trans>`, `<Plural>`. Needed by the panel's build, and by tests
 * that import the panel's modules. A text keeps its English in the code, so English needs no catalogue.
 */

/** The panel's sources: no other file may use a macro, because the server runs without a build. */
const SOURCES = new RegExp(
  `^${join(import.meta.dirname, "..", "src", "panel", "web").replaceAll("\\", "\\\\")}.*\\.tsx?$`,
);
const USES_MACRO = /from "@lingui\/(?:core|react)\/macro"/;
const linguiConfig = makeConfig(config, { skipValidation: true });

/** The source of a file with its macros expanded; types and JSX stay as they are. Throws an Error if it does not parse. */
export async function expandMacros(path: string, source: string): Promise<string> {
  if (!USES_MACRO.test(source)) return source;
  const expanded = await transformAsync(source, {
    filename: path,
    babelrc: false,
    configFile: false,
    retainLines: true,
    parserOpts: { plugins: path.endsWith("x") ? ["typescript", "jsx"] : ["typescript"] },
    plugins: [[linguiMacro, { descriptorFields: "message", linguiConfig }]],
  });
  if (typeof expanded?.code !== "string") throw new Error(`${path}: the macros were not expanded.`);
  return expanded.code;
}

export const linguiMacros: BunPlugin = {
  name: "lingui-macros",
  setup(build) {
    build.onLoad({ filter: SOURCES }, async ({ path }) => ({
      contents: await expandMacros(path, await readFile(path, "utf8")),
      loader: path.endsWith("x") ? "tsx" : "ts",
    }));
  },
};
