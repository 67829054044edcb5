import { defineConfig } from "@lingui/conf";
import { formatter } from "@lingui/format-po";
import { LANGUAGES } from "./src/languages/languages.ts";

/** Where texts are collected from, and where their translations are. `bun scripts/languages.ts` collects them. */
export default defineConfig({
  sourceLocale: "en",
  locales: Object.keys(LANGUAGES),
  format: formatter({ lineNumbers: false, printPlaceholdersInComments: false }),
  catalogs: [
    { path: "<rootDir>/src/languages/panel/{locale}", include: ["<rootDir>/src"], exclude: ["**/node_modules/**"] },
  ],
  // The panel's own module sets the language up before a text is read, whatever the order in which modules start.
  runtimeConfigModule: { i18n: ["#language", "i18n"], Trans: ["#language", "Trans"] },
});
