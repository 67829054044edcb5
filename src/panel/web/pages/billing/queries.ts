import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";

/** The packages and the balance of an account. */

export type Billing = NonNullable<Awaited<ReturnType<typeof api.billing.get>>["data"]>;
export type Package = Billing["packages"][number];
export type Balance = Billing["balance"];

/** `accountId` null is your own account; otherwise it is one that you manage. */
export function useBilling(accountId: number | null, { enabled = true } = {}) {
  return useQuery<Billing>({
    queryKey: ["billing", accountId],
    queryFn: () => (accountId === null ? ask(api.billing.get()) : ask(api.people({ id: accountId }).billing.get())),
    enabled,
  });
}
