/**
 * The theme chosen by hand, kept in localStorage and set as `data-theme` on <html>. Without a choice the system decides.
 * Imported by the app; `theme_first.ts` runs `applyTheme` before the first paint, so that no page flashes in the wrong one.
 *
 *   const theme = useSyncExternalStore(subscribeTheme, currentTheme);
 */

export type Theme = "system" | "light" | "dark";

const STORAGE_KEY = "theme";

/** The choice that is kept; "system" if there is none, or storage is closed to us. */
export function storedTheme(): Theme {
  try {
    const kept = localStorage.getItem(STORAGE_KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    // A browser may forbid storage altogether; then the system's theme is the right one.
    return "system";
  }
}

/** The choice that holds in this tab, also where storage is forbidden. */
export function currentTheme(): Theme {
  chosen ??= storedTheme();
  return chosen;
}

let chosen: Theme | undefined;
const listeners = new Set<() => void>();

/** Hears of every choice. Returns what ends that. */
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
    // Not kept, but applied: all that can be done where storage is forbidden.
  }
}
