import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";

/** The person's tokens of the management API. */

export const TOKENS_KEY = ["tokens"] as const;

export type Token = NonNullable<Awaited<ReturnType<typeof api.tokens.get>>["data"]>["tokens"][number];

export function useTokens() {
  return useQuery({ queryKey: TOKENS_KEY, queryFn: () => ask(api.tokens.get()) });
}
