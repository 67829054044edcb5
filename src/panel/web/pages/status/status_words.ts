import { t } from "@lingui/core/macro";
import type { api } from "../../api.ts";
import type { Tone } from "../../ui/states.tsx";

/** Words of status pages. */

export type StatusPage = NonNullable<Awaited<ReturnType<(typeof api)["status"]["get"]>>["data"]>;
export type Component = StatusPage["components"][number];
export type ShownIncident = StatusPage["incidents"][number];
type IncidentStatus = ShownIncident["status"];

export const STATUS_KEY = ["status"];

export const COMPONENT_WORDS: Readonly<Record<Component["status"], readonly [words: string, tone: Tone]>> = {
  operational: [t`Operational`, "ok"],
  maintenance: [t`Maintenance`, "neutral"],
  degraded: [t`Degraded`, "warn"],
  outage: [t`Outage`, "bad"],
};

export const OVERALL_WORDS: Readonly<Record<Component["status"], string>> = {
  operational: t`All systems are operational`,
  maintenance: t`Maintenance is in progress`,
  degraded: t`Some systems are degraded`,
  outage: t`Some systems are out`,
};

export const INCIDENT_WORDS: Readonly<Record<IncidentStatus, readonly [words: string, tone: Tone]>> = {
  investigating: [t`Investigating`, "bad"],
  identified: [t`Identified`, "warn"],
  monitoring: [t`Monitoring`, "warn"],
  resolved: [t`Resolved`, "ok"],
  scheduled: [t`Scheduled`, "neutral"],
  in_progress: [t`In progress`, "warn"],
  completed: [t`Completed`, "ok"],
};

const OVER: readonly IncidentStatus[] = ["resolved", "completed"];

export function isOver({ status }: Pick<ShownIncident, "status">): boolean {
  return OVER.includes(status);
}

/** Whether it affects customers now: planned maintenance does not yet. */
export function isOpen(incident: Pick<ShownIncident, "status">): boolean {
  return !isOver(incident) && incident.status !== "scheduled";
}
