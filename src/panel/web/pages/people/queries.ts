import { queryOptions } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";

/** Queries about people that several pages share. */

export const PEOPLE_KEY = ["people"] as const;

/** A person whom the viewer manages. */
export function personQuery(accountId: number) {
  return queryOptions({
    queryKey: [...PEOPLE_KEY, "one", accountId],
    queryFn: () => ask(api.people({ id: accountId }).get()),
  });
}
