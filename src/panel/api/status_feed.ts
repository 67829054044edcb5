import type { I18n } from "@lingui/core";
import type { ShownIncident, StatusPage } from "../../commerce/status_page.ts";

/** The incidents of a status page as an Atom feed, with an entry for each. Pure. Source: STA-8, LNG-2, RFC 4287. */

type Feed = { i18n: I18n; name: string; origin: string; page: StatusPage };

const STATUSES: Readonly<Record<ShownIncident["status"], string>> = {
  investigating: /*i18n*/ "investigating",
  identified: /*i18n*/ "identified",
  monitoring: /*i18n*/ "monitoring",
  resolved: /*i18n*/ "resolved",
  scheduled: /*i18n*/ "scheduled",
  in_progress: /*i18n*/ "in progress",
  completed: /*i18n*/ "completed",
};

export function statusFeed({ i18n, name, origin, page }: Feed): string {
  const updated = page.incidents.map(updatedAt).sort().at(-1) ?? `${page.firstDay}T00:00:00.000Z`;
  return [
    '<?xml version="1.0" encoding="utf-8"?>',
    `<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="${i18n.locale}">`,
    `<title>${escapeXml(i18n.t("{name}: status", { name }))}</title>`,
    `<id>${escapeXml(origin)}/status</id>`,
    `<link rel="alternate" type="text/html" href="${escapeXml(origin)}/status"/>`,
    `<link rel="self" type="application/atom+xml" href="${escapeXml(origin)}/status.atom"/>`,
    `<author><name>${escapeXml(name)}</name></author>`,
    `<updated>${updated}</updated>`,
    ...page.incidents.map((incident) => entryOf(i18n, origin, incident)),
    "</feed>",
    "",
  ].join("\n");
}

function entryOf(i18n: I18n, origin: string, incident: ShownIncident): string {
  const { incidentId, title, status, beginsAt, updates } = incident;
  const link = `${escapeXml(origin)}/status#incident-${incidentId}`;
  const text = updates.map(
    ({ at, status: then, body }) => `${at}${then === null ? "" : ` ${i18n.t(STATUSES[then])}`}\n${body}`,
  );
  return [
    "<entry>",
    `<title>${escapeXml(i18n.t("{title} ({status})", { title, status: i18n.t(STATUSES[status]) }))}</title>`,
    `<id>${link}</id>`,
    `<link rel="alternate" type="text/html" href="${link}"/>`,
    `<published>${beginsAt}</published>`,
    `<updated>${updatedAt(incident)}</updated>`,
    `<content type="text">${escapeXml(text.join("\n\n"))}</content>`,
    "</entry>",
  ].join("\n");
}

function updatedAt({ beginsAt, updates }: ShownIncident): string {
  return updates[0]?.at ?? beginsAt;
}

/** Texts have no control characters but line breaks: the store that takes them checks that. */
function escapeXml(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
