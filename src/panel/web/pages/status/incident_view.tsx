import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { formatList } from "../../format.ts";
import { Badge } from "../../ui/states.tsx";
import { Instant } from "../../ui/time.tsx";
import { componentName } from "./incident_types.ts";
import { INCIDENT_WORDS, type ShownIncident } from "./status_words.ts";

/** An incident or maintenance, with its updates, newest first. All texts are plain. */
export function IncidentView({ incident }: { incident: ShownIncident }) {
  const { incidentId, title, status, kind, impact, beginsAt, endsAt, components, updates } = incident;
  const [words, tone] = INCIDENT_WORDS[status];
  const what = kind === "maintenance" ? t`Maintenance` : impact === "outage" ? t`Outage` : t`Degraded`;
  const affected = formatList(components.map(componentName));
  return (
    <article id={`incident-${incidentId}`} className="grid gap-3 px-4 py-4 sm:px-6">
      <header className="grid gap-1">
        <h3 className="flex flex-wrap items-center gap-x-3 gap-y-1 text-14 font-semibold wrap-anywhere">
          {title}
          <Badge tone={tone}>{words}</Badge>
        </h3>
        <p className="text-13 text-ink-2">
          {affected === "" ? t`${what}.` : t`${what}: ${affected}.`}{" "}
          {endsAt === null ? (
            <Instant iso={beginsAt} />
          ) : (
            <Trans>
              <Instant iso={beginsAt} /> to <Instant iso={endsAt} />
            </Trans>
          )}
        </p>
      </header>
      <ol aria-label={t`Updates`} className="grid gap-3 border-s-2 border-line ps-4 text-13">
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
