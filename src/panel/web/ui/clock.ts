import { useCallback, useSyncExternalStore } from "react";

/**
 * The only place of the panel that reads the clock. All times follow the server's clock, because a visitor's may be minutes off:
 *
 *   syncClock(me.serverTime);            // once for each answer that brings the server's time
 *   const now = useNow(1_000);           // renders again each second; unix milliseconds, server's clock
 *   const late = nowMs() > endsAtMs;     // in a callback
 */

/** Smaller differences come from the network, not from the clock. */
const OFFSET_MIN_MS = 1_000;

let offsetMs = 0;

/** The server's time in unix milliseconds, as far as it is known. */
export function nowMs(): number {
  return Date.now() + offsetMs;
}

/** Sets the clock from a response that has just arrived. An invalid time is ignored. */
export function syncClock(serverTimeIso: string): void {
  const differenceMs = Date.parse(serverTimeIso) - Date.now();
  if (Number.isNaN(differenceMs)) return;
  offsetMs = Math.abs(differenceMs) < OFFSET_MIN_MS ? 0 : differenceMs;
}

/** The time, rounded down to `everyMs`; renders again when that changes. Stops in hidden tabs. */
export function useNow(everyMs: number): number {
  const subscribe = useCallback(
    (changed: () => void) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const tick = () => {
        changed();
        timer = setTimeout(tick, everyMs - (nowMs() % everyMs));
      };
      const onVisibility = () => {
        clearTimeout(timer);
        if (!document.hidden) tick();
      };
      timer = setTimeout(tick, everyMs - (nowMs() % everyMs));
      document.addEventListener("visibilitychange", onVisibility);
      return () => {
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", onVisibility);
      };
    },
    [everyMs],
  );
  return useSyncExternalStore(subscribe, () => Math.floor(nowMs() / everyMs) * everyMs);
}
