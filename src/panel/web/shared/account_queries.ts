import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../api.ts";
import { syncClock } from "../ui/clock.ts";

/** Queries about the person's own account that several pages share: its keys, options for a new key, and Home. */

/** How often meters are loaded again while the page is visible. */
const METERS_MS = 30_000;

export const KEYS_KEY = ["keys"] as const;
export const HOME_KEY = ["home"] as const;
/** What only admins see. A change of a provider or model is shown on several of their pages. */
export const ADMIN_KEY = ["admin"] as const;

export type OwnKey = NonNullable<Awaited<ReturnType<typeof api.keys.get>>["data"]>["rows"][number];
export type Home = NonNullable<Awaited<ReturnType<typeof api.home.get>>["data"]>;

export function useKeys({ enabled = true } = {}) {
  return useQuery({ queryKey: [...KEYS_KEY, "list"], queryFn: () => ask(api.keys.get()), enabled });
}

/** The models and hosts that a new key can be limited to, and the billing modes that can pay now. */
export function useKeyOptions({ enabled = true } = {}) {
  return useQuery({ queryKey: [...KEYS_KEY, "options"], queryFn: () => ask(api.keys.options.get()), enabled });
}

/** The active package, the balance, notices and refusals. Also sets the clock. */
export function useHome({ enabled = true } = {}) {
  return useQuery({
    queryKey: HOME_KEY,
    queryFn: async () => {
      const home = await ask(api.home.get());
      syncClock(home.serverTime);
      return home;
    },
    enabled,
    staleTime: METERS_MS,
    refetchInterval: METERS_MS,
  });
}
