import { queryOptions } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";

/** A seller's identity providers. */

export const PROVIDERS_KEY = ["identity-providers"] as const;

export const identityProvidersQuery = queryOptions({
  queryKey: PROVIDERS_KEY,
  queryFn: () => ask(api["identity-providers"].get()),
});

export type IdentityProvider = NonNullable<
  Awaited<ReturnType<(typeof api)["identity-providers"]["get"]>>["data"]
>["identityProviders"][number];
export type IdentityKind = IdentityProvider["kind"];
