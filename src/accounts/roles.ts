export type Role = "customer" | "reseller" | "admin";

/** The account's tenant: a customer's reseller, or the reseller itself; 0: none. */
export function tenantOf({
  accountId,
  role,
  resellerId,
}: {
  accountId: number;
  role: Role;
  resellerId: number | null;
}): number {
  return resellerId ?? (role === "reseller" ? accountId : 0);
}
