import { plural, t } from "@lingui/core/macro";
import { i18n } from "#language";
import { MODALITIES, MODALITY_NAMES } from "../../../../catalog/modalities.ts";
import type { RouteHealth } from "../../../../catalog/route_health.ts";
import { api, ask } from "../../api.ts";
import { formatCount, formatDuration } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { useSwitching } from "../../shared/switching.ts";
import { Badge, Status, type StatusKind } from "../../ui/states.tsx";
import { routeState } from "./route_states.ts";

/** What the catalog pages share: types of models and routes, their URLs, and their health. */

export const MODELS_KEY = [...ADMIN_KEY, "models"] as const;

export type Model = NonNullable<Awaited<ReturnType<typeof api.admin.model.get>>["data"]>;
export type ListedModel = Omit<Model, "example" | "reports" | "advice">;
/** The report of a route for the last 24 hours. */
export type Report = Model["reports"][number];

/** The id is in the query, because it can contain slashes. */
export function modelHref(id: string): string {
  return `/admin/models?model=${encodeURIComponent(id)}`;
}

/** A provider's details open beside the list. */
export function providerHref(id: number): string {
  return `/admin/providers?provider=${id}`;
}

/** Whether a model reports more tokens than it shows. */
export const HIDES_TOKENS = { yes: t`Yes`, no: t`No`, unknown: t`Unknown: learned from its answers` } as const;

export function hidesTokensOf({ hidesTokens }: Model): keyof typeof HIDES_TOKENS {
  return hidesTokens === null ? "unknown" : hidesTokens ? "yes" : "no";
}

/** What the routes of a model are ordered by. */
export const ROUTE_CHOICES = {
  order: t`Order: the lowest priority number first`,
  weight: t`Weight: requests are shared by weight`,
  price: t`Price: the lowest cost first`,
  latency: t`Latency: the fastest first`,
} as const;

export const MODALITY_OPTIONS = MODALITY_NAMES.map((value) => ({
  value,
  label: i18n._(MODALITIES[value].label),
  hint: i18n._(MODALITIES[value].hint),
}));

const STATUSES = { active: t`Active`, preview: t`Preview`, deprecated: t`Deprecated` } as const;

export function ModelStatus({ model: { enabled, status } }: { model: Pick<ListedModel, "enabled" | "status"> }) {
  if (!enabled) return <Status kind="disabled" />;
  return status === "active" ? <Status kind="active" /> : <Badge tone="warn">{STATUSES[status]}</Badge>;
}

export type Route = ListedModel["routes"][number];

/** What the operator must fix, by the kind of the last refusal. */
const TROUBLES: Readonly<Record<string, string>> = {
  no_credit: t`Provider asks for credit (402)`,
  unknown_model: t`Does not serve some requests (404)`,
  too_large: t`Above the provider's rate limit (429)`,
  unsupported: t`Cannot do what some requests ask for`,
};

type Standing = Pick<Route, "enabled" | "providerEnabled" | "breaker" | "health">;

/** `isShort`: without the details that the model's page shows. */
export function RouteState({ route, isShort = false }: { route: Standing; isShort?: boolean }) {
  const state = routeState(route);
  if (state === "off") return <Status kind="disabled" />;
  if (state === "provider off") return <Status kind="disabled">{t`Provider is off`}</Status>;
  const { trouble, forAll, dueInMs, leftOutBy, replicas } = route.breaker;
  if (state === "refuses")
    return <Status kind="failed">{(isShort ? undefined : TROUBLES[trouble ?? ""]) ?? t`Refuses requests`}</Status>;
  if (state !== "left out") return <HealthStatus health={state} />;
  if (isShort) return <Status kind="failed">{t`Left out`}</Status>;
  const wait = formatDuration(dueInMs);
  return (
    <span className="grid justify-items-start gap-1">
      <Status kind="failed">{forAll ? t`Left out` : t`Left out for one customer`}</Status>
      <span className="text-12 text-ink-2">
        {replicas > 1
          ? t`Tried again in ${wait}, on ${{ count: formatCount(leftOutBy) }} of ${plural(replicas, { one: "# replica", other: "# replicas" })}`
          : t`Tried again in ${wait}`}
      </span>
    </span>
  );
}

export function HealthStatus({ health }: { health: RouteHealth }) {
  const [kind, words] = HEALTHS[health];
  return <Status kind={kind}>{words}</Status>;
}

const HEALTHS = {
  untested: ["untested", t`Untested`],
  answers: ["active", t({ message: "Answers", context: "state of a route" })],
  degraded: ["degraded", t({ message: "Degraded", context: "state of a route" })],
  failing: ["failed", t({ message: "Failing", context: "state of a route" })],
} as const satisfies Record<RouteHealth, readonly [StatusKind, string]>;

export function useModelSwitching() {
  return useSwitching<Pick<ListedModel, "id">>({
    send: ({ id }, isOn) => ask(api.admin.model.patch({ enabled: isOn }, { query: { id } })),
    stale: MODELS_KEY,
    done: ({ id }, isOn) => (isOn ? t`${id} is on.` : t`${id} is off. Requests for it get the error model_not_found.`),
    stays: ({ id }, isOn) => (isOn ? t`${id} stays off.` : t`${id} stays on.`),
  });
}
