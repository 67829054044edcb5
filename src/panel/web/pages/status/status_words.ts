import type { api } from "../../api.ts";
import type { Tone } from "../../ui/states.tsx";

/** Words of status pages. */

export type StatusPage = NonNullable<Awaited<ReturnType<(typeof api)["status"]["get"]>>["data"]>;
export type Component = StatusPage["components"][number];
export type ShownIncident = StatusPage["incidents"][number];
type IncidentStatus = ShownIncident["status"];

export const STATUS_KEY = ["status"];

export const COMPONENT_WORDS: Readonly<Record<Component["status"], readonly [words: string, tone: Tone]>> = {
  operational: ["Operational", "ok"],
  maintenance: ["Maintenance", "neutral"],
  degraded: ["Degraded", "warn"],
  outage: ["Outage", "bad"],
};

export const OVERALL_WORDS: Readonly<Record<Component["status"], string>> = {
  operational: "All systems are operational",
  maintenance: "Maintenance is in progress",
  degraded: "Some systems are degraded",
  outage: "Some systems are out",
};

export const INCIDENT_WORDS: Readonly<Record<IncidentStatus, readonly [words: string, tone: Tone]>> = {
  investigating: ["Investigating", "bad"],
  identified: ["Identified", "warn"],
  monitoring: ["Monitoring", "warn"],
  resolved: ["Resolved", "ok"],
  scheduled: ["Scheduled", "neutral"],
  in_progress: ["In progress", "warn"],
  completed: ["Completed", "ok"],
};

const OVER: readonly IncidentStatus[] = ["resolved", "completed"];

export function isOver({ status }: Pick<ShownIncident, "status">): boolean {
  return OVER.includes(status);
}

/** Whether it affects customers now: planned maintenance does not yet. */
export function isOpen(incident: Pick<ShownIncident, "status">): boolean {
  return !isOver(incident) && incident.status !== "scheduled";
}
