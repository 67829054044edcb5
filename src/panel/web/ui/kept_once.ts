import { useSyncExternalStore } from "react";

/**
 * A value that is shown once, from its creation until the person has stored it. A module keeps it, not the page, so that neither the
 * browser's Back button nor a reloaded list loses it: the page shows it again. Signing out loads the panel anew, and so forgets it.
 *
 *   const codes = keptOnce<string[]>();               // beside the components
 *   codes.show(made);                                 // in the `onSent` of a form; null: it is stored
 *   const shown = codes.useShown();                   // null: there is none
 */
export function keptOnce<Value>() {
  let kept: Value | null = null;
  const listeners = new Set<() => void>();
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  };
  return {
    show(next: Value | null): void {
      kept = next;
      for (const listener of listeners) listener();
    },
    useShown: () => useSyncExternalStore(subscribe, () => kept),
  };
}
