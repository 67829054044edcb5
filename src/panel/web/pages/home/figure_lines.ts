import type { api } from "../../api.ts";

/** What the lines of figures are of: their names, and the page that each leads to. */

export type Line = NonNullable<Awaited<ReturnType<typeof api.figures.get>>["data"]>["lines"][number];
/** Whose figures: neither, all that the viewer manages. */
export type FiguresOf = { accountId?: number; resellerId?: number };

/** `head`: of the first column. `of`: whose figures have such lines. */
const LINE_KINDS = [
  { value: "model", label: "Models", head: "Model", isForAdmins: false, of: ["all", "reseller", "account"] },
  { value: "route", label: "Routes", head: "Route", isForAdmins: true, of: ["all", "reseller", "account"] },
  { value: "account", label: "Customers", head: "Customer", isForAdmins: false, of: ["all", "reseller"] },
  { value: "reseller", label: "Resellers", head: "Reseller", isForAdmins: true, of: ["all"] },
  { value: "host", label: "Hosts", head: "Host", isForAdmins: false, of: ["all", "reseller", "account"] },
  { value: "key", label: "Keys", head: "Key", isForAdmins: false, of: ["account"] },
] as const;
export type LineKind = (typeof LINE_KINDS)[number];

export function lineKindsOf({ accountId, resellerId }: FiguresOf, isAdmin: boolean): LineKind[] {
  const scope = accountId !== undefined ? "account" : resellerId !== undefined ? "reseller" : "all";
  return LINE_KINDS.filter(({ isForAdmins, of }) => (isAdmin || !isForAdmins) && of.some((each) => each === scope));
}

export function lineName(by: LineKind["value"], { name, modelId, routeId, host, keyId, accountId }: Line): string {
  if (by === "route") return name ?? (routeId === null ? "Not known" : `Deleted route ${routeId}`);
  if (by === "key") return name ?? `Deleted key ${keyId}`;
  return name ?? modelId ?? host ?? `Account ${accountId}`;
}

/** A person's page, or the requests of a model, route, host or key. */
export function lineHref(
  by: LineKind["value"],
  line: Line,
  { of, isAdmin }: { of: FiguresOf; isAdmin: boolean },
): string {
  const { modelId, routeId, host, keyId, accountId } = line;
  const [people, requests] = isAdmin ? ["/admin/people", "/admin/requests"] : ["/customers", "/requests"];
  if (accountId !== null) return `${people}/${accountId}`;
  const asked = { account: of.accountId, model: modelId, route: routeId, host, key: keyId };
  const filter = Object.entries(asked).flatMap(([field, value]) => (value == null ? [] : [[field, String(value)]]));
  return `${requests}?${new URLSearchParams(by === "route" && routeId === null ? [] : filter)}`;
}
