import type { ShownIncident, StatusPage } from "../../commerce/status_page.ts";

/** The incidents of a status page as an Atom feed, with an entry for each. Pure. Source: STA-8, RFC 4287. */

type Feed = { name: string; origin: string; page: StatusPage };

export function statusFeed({ name, origin, page }: Feed): string {
  const updated = page.incidents.map(updatedAt).sort().at(-1) ?? `${page.firstDay}T00:00:00.000Z`;
  return [
    '<?xml version="1.0" encoding="utf-8"?>',
    '<feed xmlns="http://www.w3.org/2005/Atom">',
    `<title>${escapeXml(name)}: status</title>`,
    `<id>${escapeXml(origin)}/status</id>`,
    `<link rel="alternate" type="text/html" href="${escapeXml(origin)}/status"/>`,
    `<link rel="self" type="application/atom+xml" href="${escapeXml(origin)}/status.atom"/>`,
    `<author><name>${escapeXml(name)}</name></author>`,
    `<updated>${updated}</updated>`,
    ...page.incidents.map((incident) => entryOf(origin, incident)),
    "</feed>",
    "",
  ].join("\n");
}

function entryOf(origin: string, incident: ShownIncident): string {
  const { incidentId, title, status, beginsAt, updates } = incident;
  const link = `${escapeXml(origin)}/status#incident-${incidentId}`;
  const text = updates.map(({ at, status: then, body }) => `${at}${then === null ? "" : ` ${then}`}\n${body}`);
  return [
    "<entry>",
    `<title>${escapeXml(title)} (${status.replace("_", " ")})</title>`,
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
