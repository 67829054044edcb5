import { formatList } from "../../format.ts";
import { Badge } from "../../ui/states.tsx";
import { Instant } from "../../ui/time.tsx";
import { INCIDENT_WORDS, type ShownIncident } from "./status_words.ts";

/** An incident or maintenance, with its updates, newest first. All texts are plain. */
export function IncidentView({ incident }: { incident: ShownIncident }) {
  const { incidentId, title, status, kind, impact, beginsAt, endsAt, components, updates } = incident;
  const [words, tone] = INCIDENT_WORDS[status];
  return (
    <article id={`incident-${incidentId}`} className="grid gap-3 px-4 py-4 sm:px-6">
      <header className="grid gap-1">
        <h3 className="flex flex-wrap items-center gap-x-3 gap-y-1 text-14 font-semibold wrap-anywhere">
          {title}
          <Badge tone={tone}>{words}</Badge>
        </h3>
        <p className="text-13 text-ink-2">
          {kind === "maintenance" ? "Maintenance" : impact === "outage" ? "Outage" : "Degraded"}
          {components.length > 0 && `: ${formatList(components.map(({ name }) => name))}`}. <Instant iso={beginsAt} />
          {endsAt !== null && (
            <>
              {" "}
              to <Instant iso={endsAt} />
            </>
          )}
        </p>
      </header>
      <ol aria-label="Updates" className="grid gap-3 border-l-2 border-line pl-4 text-13">
        {updates.map(({ updateId, status: then, body, at }) => (
          <li key={updateId} className="grid gap-0.5">
            <p className="text-ink-3">
              {then !== null && <span className="font-medium text-ink">{INCIDENT_WORDS[then][0]} </span>}
              <Instant iso={at} />
            </p>
            <p className="whitespace-pre-line wrap-anywhere text-ink-2">{body}</p>
          </li>
        ))}
      </ol>
    </article>
  );
}
