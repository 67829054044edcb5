import { queryOptions, useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { type Maker, makerWords } from "./maker_words.ts";

/** The members of the account, and the invitations that wait. */

export const MEMBERS_KEY = ["members"] as const;

export type Members = NonNullable<Awaited<ReturnType<typeof api.members.get>>["data"]>;
export type Member = Members["members"][number];
export type Invitation = Members["invitations"][number];

export const membersQuery = queryOptions({ queryKey: MEMBERS_KEY, queryFn: () => ask(api.members.get()) });

/** Says who made a key or a token of the account. */
export function useMadeBy(): (maker: Maker | null) => string | null {
  const { data } = useQuery(membersQuery);
  return (maker) => makerWords(maker, data?.members.length ?? 0);
}
