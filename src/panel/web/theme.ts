/**
 * The chosen theme, kept in localStorage and set as `data-theme` on <html>. Without a choice the system's theme applies.
 * Imported by the app; `theme_first.ts` runs `applyTheme` before the first paint, so that no page flashes in the wrong theme.
 *
 *   const theme = useSyncExternalStore(subscribeTheme, currentTheme);
 */

export type Theme = "system" | "light" | "dark";

const STORAGE_KEY = "theme";

/** The stored choice; "system" if there is none or storage is forbidden. */
export function storedTheme(): Theme {
  try {
    const kept = localStorage.getItem(STORAGE_KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    // The browser forbids storage: the system's theme applies.
    return "system";
  }
}

/** The current choice of this tab, even if storage is forbidden. */
export function currentTheme(): Theme {
  chosen ??= storedTheme();
  return chosen;
}

let chosen: Theme | undefined;
const listeners = new Set<() => void>();

/** Calls `listener` after every choice. Returns the function that unsubscribes. */
export function subscribeTheme(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function applyTheme(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

/** Applies a choice and keeps it for the next visit. */
export function chooseTheme(theme: Theme): void {
  chosen = theme;
  applyTheme(theme);
  for (const listener of listeners) listener();
  try {
    if (theme === "system") localStorage.removeItem(STORAGE_KEY);
    else localStorage.setItem(STORAGE_KEY, theme);
  } catch {
    // Storage is forbidden: the choice applies to this tab only.
  }
}
