import { t } from "@lingui/core/macro";
import type { api } from "../../api.ts";

/** What the pages and dialogs of incidents share. */

export type Incident = NonNullable<Awaited<ReturnType<(typeof api)["incidents"]["get"]>>["data"]>["rows"][number];

export const INCIDENTS_KEY = ["incidents"];

const SERVICES: Readonly<Record<string, string>> = { api: "API", panel: t`Panel`, models: t`All models` };

/** A component of the status page, which has a name for each model. */
export function componentName({ id, name }: { id: string; name: string }): string {
  return SERVICES[id] ?? name;
}

export function componentWords(component: string): string {
  return SERVICES[component] ?? component.replace(/^model:/, "");
}

/** The moment that a `datetime-local` field has, in the viewer's zone, as ISO 8601 in UTC; undefined: it is empty. */
export function readMoment(typed: string): string | undefined {
  return typed === "" ? undefined : new Date(typed).toISOString();
}

/** The same backwards, to the minute. */
export function typedMoment(iso: string | null): string {
  if (iso === null) return "";
  const at = new Date(iso);
  const two = (part: number) => String(part).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}
