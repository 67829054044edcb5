import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../api.ts";
import { syncClock } from "../ui/clock.ts";

/** What several pages ask of one's own account: keys, what a new one may name, and what is left. */

/** Meters are renewed so often while somebody looks. */
const METERS_MS = 30_000;

export const KEYS_KEY = ["keys"] as const;

export type OwnKey = NonNullable<Awaited<ReturnType<typeof api.keys.get>>["data"]>["rows"][number];
export type Home = NonNullable<Awaited<ReturnType<typeof api.home.get>>["data"]>;

export function useKeys({ enabled = true } = {}) {
  return useQuery({ queryKey: [...KEYS_KEY, "list"], queryFn: () => ask(api.keys.get()), enabled });
}

/** What a new key may name, and what could pay for it now. */
export function useKeyOptions({ enabled = true } = {}) {
  return useQuery({ queryKey: [...KEYS_KEY, "options"], queryFn: () => ask(api.keys.options.get()), enabled });
}

/** What is left, until when, and what needs its owner. */
export function useHome({ enabled = true } = {}) {
  return useQuery({
    queryKey: ["home"],
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
