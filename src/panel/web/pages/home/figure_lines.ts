import type { api } from "../../api.ts";

/** What the lines of figures are of: their names, and the page that each leads to. */

export type Line = NonNullable<Awaited<ReturnType<typeof api.figures.get>>["data"]>["lines"][number];

/** `head`: of the first column. */
export const LINE_KINDS = [
  { value: "model", label: "Models", head: "Model", isForAdmins: false },
  { value: "route", label: "Routes", head: "Route", isForAdmins: true },
  { value: "account", label: "Customers", head: "Customer", isForAdmins: false },
  { value: "reseller", label: "Resellers", head: "Reseller", isForAdmins: true },
  { value: "host", label: "Hosts", head: "Host", isForAdmins: false },
] as const;
export type LineKind = (typeof LINE_KINDS)[number]["value"];

export function lineName(by: LineKind, { name, modelId, routeId, host, accountId }: Line): string {
  if (by === "route") return name ?? (routeId === null ? "Not known" : `Deleted route ${routeId}`);
  return name ?? modelId ?? host ?? `Account ${accountId}`;
}

/** A person's page, or the requests of a model, route or host. */
export function lineHref(by: LineKind, { modelId, routeId, host, accountId }: Line, isAdmin: boolean): string {
  const [people, requests] = isAdmin ? ["/admin/people", "/admin/requests"] : ["/customers", "/requests"];
  if (accountId !== null) return `${people}/${accountId}`;
  const filter = Object.entries({ model: modelId, route: routeId, host }).flatMap(([field, value]) =>
    value === null ? [] : [[field, String(value)]],
  );
  return `${requests}?${new URLSearchParams(by === "route" && routeId === null ? [] : filter)}`;
}
