import { readFile } from "node:fs/promises";

/** Preloaded by `bun test`, so that tests can import the panel's modules. Babel is loaded with the first of them: most tests import none. */
Bun.plugin({
  name: "lingui-macros",
  setup(build) {
    build.onLoad({ filter: /\/src\/panel\/web\/.*\.tsx?$/ }, async ({ path }) => {
      const { expandMacros } = await import("./lingui_macros.ts");
      const loader = path.endsWith("x") ? "tsx" : "ts";
      return { contents: await expandMacros(path, await readFile(path, "utf8")), loader };
    });
  },
});
