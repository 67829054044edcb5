import { linguiMacros } from "./lingui_macros.ts";

/** Preloaded by `bun test`, so that tests can import the panel's modules. */
Bun.plugin(linguiMacros);
