import { queryOptions } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";

/** How people can sign up with the seller that is signed in. */
export const signUpQuery = queryOptions({
  queryKey: ["sign-up", "settings"],
  queryFn: () => ask(api["sign-up"].settings.get()),
});

export type SignUpSettings = NonNullable<Awaited<ReturnType<(typeof api)["sign-up"]["settings"]["get"]>>["data"]>;
