import type { I18n } from "@lingui/core";
import { type AnswerDays, answeredShare } from "../catalog/answer_counts.ts";
import type { Incident } from "./incidents_store.ts";
import { ALL_MODELS, modelIdOf, SERVICES } from "./status_components.ts";

/** What a status page says, from sums of answers and incidents. It names no provider, no route, no count and no other seller. Pure. Source: STA-2, STA-3. */

/** Failures in the last quarter of an hour by which a component is degraded or out, and requests below which they say nothing. */
const DEGRADED_SHARE = 0.05;
const OUTAGE_SHARE = 0.5;
const REQUESTS_MIN = 10;
const DAY_MS = 86_400_000;

/** From the best to the worst. */
export const COMPONENT_STATUSES = ["operational", "maintenance", "degraded", "outage"] as const;
export type ComponentStatus = (typeof COMPONENT_STATUSES)[number];

export type ShownComponent = {
  id: string;
  name: string;
  isModel: boolean;
  status: ComponentStatus;
  /** The share of requests that were answered in the days of the page, from 0 to 1; null: there was none. */
  uptime: number | null;
  /** The same of each UTC day, oldest first; the last is today. */
  days: (number | null)[];
};
export type ShownIncident = Pick<
  Incident,
  "incidentId" | "kind" | "title" | "impact" | "status" | "beginsAt" | "endsAt" | "updates"
> & { components: { id: string; name: string }[] };

export type StatusPage = {
  status: ComponentStatus;
  /** When it was put together. */
  at: string;
  /** The first of the days, in UTC. */
  firstDay: string;
  components: ShownComponent[];
  /** Open ones and planned maintenance first. */
  incidents: ShownIncident[];
};

/** A component before its state is known. `modelIds`: those that it stands for. */
export type ListedComponent = { id: string; name: string; isModel: boolean; modelIds: readonly string[] };
export type Sums = {
  days: ReadonlyMap<string, AnswerDays>;
  recent: ReadonlyMap<string, { answered: number; failed: number }>;
};

const SERVICE_NAMES = { api: /*i18n*/ "API", panel: /*i18n*/ "Panel" } as const;

type SoldModel = { id: string; name: string };

/**
 * The components of a page: the API, the panel, and the models: the first `max` by name, the others together. `max` is 0 where their names
 * are not public.
 */
export function listComponents(models: readonly SoldModel[], max: number): ListedComponent[] {
  const named = models.slice(0, max);
  const others = models.slice(max);
  return [
    ...SERVICES.map((id) => ({ id, name: SERVICE_NAMES[id], isModel: false, modelIds: [] })),
    ...named.map(({ id, name }) => ({ id: `model:${id}`, name, isModel: true, modelIds: [id] })),
    ...(others.length === 0
      ? []
      : [
          {
            id: ALL_MODELS,
            name: max === 0 ? /*i18n*/ "Models" : /*i18n*/ "Other models",
            isModel: true,
            modelIds: others.map(({ id }) => id),
          },
        ]),
  ];
}

type Parts = {
  listed: readonly ListedComponent[];
  sums: Sums;
  incidents: readonly Incident[];
  /** 0: the operator, whose page this is or who sells to its seller. */
  sellerId: number;
  nowMs: number;
  days: number;
};

export function statusPage({ listed, sums, incidents, sellerId, nowMs, days }: Parts): StatusPage {
  const firstMs = nowMs - (days - 1) * DAY_MS;
  const dates = Array.from({ length: days }, (_, place) => dayOf(firstMs + place * DAY_MS));
  const shown = incidents.flatMap((incident) => {
    const affected = listed.filter((component) => incident.components.some((one) => concerns(one, component)));
    // The operator's models may not be this brand's.
    if (affected.length === 0 && incident.sellerId !== sellerId) return [];
    return [{ incident, affected }];
  });
  const components = listed.map(({ id, name, isModel }) => {
    const sumsOfDays = sums.days.get(id) ?? [];
    const byDay = new Map(sumsOfDays.map((sum) => [sum.day, answeredShare(sum)]));
    const said = shown.filter(({ affected }) => affected.some((one) => one.id === id)).map(({ incident }) => incident);
    return {
      ...{ id, name, isModel },
      status: statusOf(said, sums.recent.get(id)),
      uptime: answeredShare(totalOf(sumsOfDays.filter(({ day }) => day >= (dates[0] ?? "")))),
      days: dates.map((day) => byDay.get(day) ?? null),
    };
  });
  const statuses = components.map(({ status }) => status);
  return {
    status: worst(statuses),
    at: new Date(nowMs).toISOString(),
    firstDay: dates[0] ?? "",
    components,
    incidents: shown.map(({ incident, affected }) => viewOf(incident, affected)),
  };
}

/** A page in a language. What its seller wrote, and the names of models, stay. Source: LNG-2. */
export function statusPageIn(i18n: I18n, page: StatusPage): StatusPage {
  const named = <Component extends { id: string; name: string }>(one: Component) => {
    return modelIdOf(one.id) === null ? { ...one, name: i18n.t(one.name) } : one;
  };
  return {
    ...page,
    components: page.components.map(named),
    incidents: page.incidents.map((incident) => ({ ...incident, components: incident.components.map(named) })),
  };
}

/** Whether a component of an incident is one of the page, or one of those that it stands for. */
function concerns(said: string, { id, isModel, modelIds }: ListedComponent): boolean {
  if (said === ALL_MODELS) return isModel;
  const modelId = modelIdOf(said);
  return modelId === null ? said === id : modelIds.includes(modelId);
}

function viewOf(incident: Incident, affected: readonly ListedComponent[]): ShownIncident {
  const { incidentId, kind, title, impact, status, beginsAt, endsAt, updates } = incident;
  const isAll = incident.components.includes(ALL_MODELS);
  const models = isAll ? [{ id: ALL_MODELS, name: /*i18n*/ "All models" }] : [];
  const components = [...affected.filter(({ isModel }) => !(isAll && isModel)), ...models];
  return {
    ...{ incidentId, kind, title, impact, status, beginsAt, endsAt, updates },
    components: components.map(({ id, name }) => ({ id, name })),
  };
}

/** What is said of a component counts as well as what was counted; during maintenance, failures are expected. */
function statusOf(
  said: readonly Incident[],
  recent: { answered: number; failed: number } | undefined,
): ComponentStatus {
  const open = said.flatMap(({ status, impact }): ComponentStatus[] => {
    if (status === "in_progress") return ["maintenance"];
    return impact === null || status === "resolved" ? [] : [impact];
  });
  return worst(open.includes("maintenance") ? open : [...open, countedStatus(recent)]);
}

function countedStatus(recent: { answered: number; failed: number } | undefined): ComponentStatus {
  if (recent === undefined || recent.answered + recent.failed < REQUESTS_MIN) return "operational";
  const failed = recent.failed / (recent.answered + recent.failed);
  if (failed >= OUTAGE_SHARE) return "outage";
  return failed >= DEGRADED_SHARE ? "degraded" : "operational";
}

function worst(statuses: readonly ComponentStatus[]): ComponentStatus {
  return COMPONENT_STATUSES.findLast((status) => statuses.includes(status)) ?? "operational";
}

function totalOf(sums: AnswerDays): { answered: number; failed: number } {
  return sums.reduce(
    (all, { answered, failed }) => ({ answered: all.answered + answered, failed: all.failed + failed }),
    { answered: 0, failed: 0 },
  );
}

function dayOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}
