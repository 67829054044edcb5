/** A separate script in the page's head, so that it runs before the first paint. */
import { applyTheme, storedTheme } from "./theme.ts";

applyTheme(storedTheme());
