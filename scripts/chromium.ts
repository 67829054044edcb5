import { existsSync } from "node:fs";

/** Debian's Chromium without a window costs a third less of a processor; the whole one does as well. */
const PROGRAMS = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"] as const;

/** The browser of the tests and of the pictures. */
export const CHROMIUM = PROGRAMS.find((path) => existsSync(path)) ?? PROGRAMS[0];
