/** A script of its own in the page's head: before the first paint, and without waiting for the app. */
import { applyTheme, storedTheme } from "./theme.ts";

applyTheme(storedTheme());
