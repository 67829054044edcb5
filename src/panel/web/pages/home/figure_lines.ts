import { t } from "@lingui/core/macro";
import type { api } from "../../api.ts";

/** What the lines of figures are of: their names, and the page that each leads to. */

export type Line = NonNullable<Awaited<ReturnType<typeof api.figures.get>>["data"]>["lines"][number];
/** Whose figures: neither, all that the viewer manages. */
export type FiguresOf = { accountId?: number; resellerId?: number };

/** `head`: of the first column. `caption`: of the table. `of`: whose figures have such lines. */
const LINE_KINDS = [
  {
    value: "model",
    label: t`Models`,
    head: t`Model`,
    caption: t`Usage revenue and margin by model`,
    isForAdmins: false,
    of: ["all", "reseller", "account"],
  },
  {
    value: "route",
    label: t`Routes`,
    head: t`Route`,
    caption: t`Usage revenue and margin by route`,
    isForAdmins: true,
    of: ["all", "reseller", "account"],
  },
  {
    value: "account",
    label: t`Customers`,
    head: t`Customer`,
    caption: t`Usage revenue and margin by account`,
    isForAdmins: false,
    of: ["all", "reseller"],
  },
  {
    value: "reseller",
    label: t`Resellers`,
    head: t`Reseller`,
    caption: t`Usage revenue and margin by reseller`,
    isForAdmins: true,
    of: ["all"],
  },
  {
    value: "host",
    label: t`Hosts`,
    head: t`Host`,
    caption: t`Usage revenue and margin by host`,
    isForAdmins: false,
    of: ["all", "reseller", "account"],
  },
  {
    value: "key",
    label: t`Keys`,
    head: t`Key`,
    caption: t`Usage revenue and margin by key`,
    isForAdmins: false,
    of: ["account"],
  },
] as const;
export type LineKind = (typeof LINE_KINDS)[number];

export function lineKindsOf({ accountId, resellerId }: FiguresOf, isAdmin: boolean): LineKind[] {
  const scope = accountId !== undefined ? "account" : resellerId !== undefined ? "reseller" : "all";
  return LINE_KINDS.filter(({ isForAdmins, of }) => (isAdmin || !isForAdmins) && of.some((each) => each === scope));
}

export function lineName(by: LineKind["value"], { name, modelId, routeId, host, keyId, accountId }: Line): string {
  if (by === "route") return name ?? (routeId === null ? t`Not known` : t`Deleted route ${routeId}`);
  if (by === "key") return name ?? t`Deleted key ${{ keyId: String(keyId) }}`;
  return name ?? modelId ?? host ?? t`Account ${{ accountId: String(accountId) }}`;
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
