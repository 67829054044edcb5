import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type PluginObj, types as t, transformAsync } from "@babel/core";
import linguiMacro from "@lingui/babel-plugin-lingui-macro";
import { makeConfig } from "@lingui/conf";
import { compileMessageOrThrow } from "@lingui/message-utils/compileMessage";
import type { BunPlugin } from "bun";
import config from "../lingui.config.ts";
import { plainText } from "./catalogues.ts";

/**
 * Expands Lingui's macros in the panel's sources: `t`, `plural`, `msg`, `<Trans>`, `<Plural>`. Needed by the panel's build, and by tests
 * that import the panel's modules. A text keeps its English in the code, compiled, so English needs no catalogue, and the browser no parser.
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
    plugins: [[linguiMacro, { descriptorFields: "message", linguiConfig }], compiledTexts],
  });
  if (typeof expanded?.code !== "string") throw new Error(`${path}: the macros were not expanded.`);
  return expanded.code;
}

/**
 * Compiles the English texts that the macros left behind. One without placeholders, which most are, is its own id: that is shorter than
 * an id and a text. Throws an Error if one does not parse.
 */
const compiledTexts: PluginObj = {
  visitor: {
    Program: {
      exit: (program) =>
        program.traverse({
          ObjectExpression(at) {
            const { node } = at;
            if (!node.leadingComments?.some(({ value }) => /^\*? ?i18n ?$/.test(value))) return;
            const named = (name: string) =>
              node.properties.find(
                (each): each is t.ObjectProperty => t.isObjectProperty(each) && t.isIdentifier(each.key, { name }),
              );
            const [id, message] = [named("id"), named("message")];
            if (id === undefined || message?.value.type !== "StringLiteral") return;
            const plain = plainText(message.value.value);
            if (plain === null || named("context") !== undefined) {
              message.value = t.valueToNode(compileMessageOrThrow(message.value.value));
            } else if (at.parent.type === "CallExpression") {
              at.replaceWith(t.stringLiteral(plain));
            } else {
              id.value = t.stringLiteral(plain);
              node.properties = node.properties.filter((each) => each !== message);
            }
          },
        }),
    },
  },
};

export const linguiMacros: BunPlugin = {
  name: "lingui-macros",
  setup(build) {
    build.onLoad({ filter: SOURCES }, async ({ path }) => ({
      contents: await expandMacros(path, await readFile(path, "utf8")),
      loader: path.endsWith("x") ? "tsx" : "ts",
    }));
  },
};
