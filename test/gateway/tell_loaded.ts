import { readFileSync } from "node:fs";

/** Preloaded into a replica on Bun: writes each loaded module of the tracing library to standard error. */
Bun.plugin({
  name: "tell-loaded",
  setup(build) {
    build.onLoad({ filter: /node_modules\/@opentelemetry\/.*\.m?js$/ }, ({ path }) => {
      process.stderr.write(`loaded ${path}\n`);
      return { contents: readFileSync(path, "utf8"), loader: "js" };
    });
  },
});
