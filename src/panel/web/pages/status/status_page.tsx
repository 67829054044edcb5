import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { formatCalendarDay } from "../../format.ts";
import { heightOf, levelOf, shareText } from "../../shared/uptime.ts";
import { Collapsed } from "../../ui/collapsed.tsx";
import { cx } from "../../ui/cx.ts";
import { inPlace } from "../../ui/in_place.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Banner, Loaded, Skeleton } from "../../ui/states.tsx";
import { PublicFrame } from "../sign_in/public_frame.tsx";
import { componentName } from "./incident_types.ts";
import { IncidentView } from "./incident_view.tsx";
import { COMPONENT_WORDS, type Component, isOver, OVERALL_WORDS, STATUS_KEY, type StatusPage } from "./status_words.ts";

/** The status page of the host's brand, for everyone. */

const DAY_MS = 86_400_000;
/** Loaded again while it is open. */
const RENEWED_MS = 60_000;
/** Models that are shown at once. */
const MODELS_OPEN_MAX = 8;

export function PublicStatusPage() {
  const status = useQuery({
    queryKey: STATUS_KEY,
    queryFn: () => ask(api.status.get()),
    refetchInterval: RENEWED_MS,
  });
  return (
    <PublicFrame>
      <Page
        title={t`Status`}
        lead={
          <Trans>
            Uptime is the share of requests that were answered. Days are in UTC. For programs:{" "}
            <a href="/status.json" className="text-accent-text underline">
              JSON
            </a>{" "}
            and{" "}
            <a href="/status.atom" className="text-accent-text underline">
              Atom
            </a>
            .
          </Trans>
        }
      >
        <Loaded query={status} skeleton={<Skeleton className="h-96 rounded-lg" />}>
          {(page) => <StatusSections page={page} />}
        </Loaded>
      </Page>
    </PublicFrame>
  );
}

function StatusSections({ page }: { page: StatusPage }) {
  const { status, components, incidents, firstDay } = page;
  const open = incidents.filter((incident) => !isOver(incident));
  const past = incidents.filter(isOver);
  const services = components.filter(({ isModel }) => !isModel);
  const models = components.filter(({ isModel }) => isModel);
  const rows = models.map((component) => <ComponentRow key={component.id} {...{ component, firstDay }} />);
  return (
    <>
      <div role="status">
        <Banner tone={COMPONENT_WORDS[status][1]} title={OVERALL_WORDS[status]} />
      </div>
      {open.length > 0 && (
        <Section title={t`Now and planned`} flush>
          <div className="divide-y divide-line">
            {open.map((incident) => (
              <IncidentView key={incident.incidentId} incident={incident} />
            ))}
          </div>
        </Section>
      )}
      <Section title={t`Services`} flush>
        <ul className="divide-y divide-line">
          {services.map((component) => (
            <ComponentRow key={component.id} {...{ component, firstDay }} />
          ))}
        </ul>
      </Section>
      {models.length > 0 && (
        <Section title={t`Models`} flush>
          <ul className="divide-y divide-line">{rows.slice(0, MODELS_OPEN_MAX)}</ul>
          {rows.length > MODELS_OPEN_MAX && (
            <Collapsed
              look="rows"
              label={plural({ count: rows.length - MODELS_OPEN_MAX }, { one: "# more model", other: "# more models" })}
            >
              <ul className="divide-y divide-line border-t border-line">{rows.slice(MODELS_OPEN_MAX)}</ul>
            </Collapsed>
          )}
        </Section>
      )}
      <Section title={t`Past 30 days`} flush>
        {past.length === 0 ? (
          <p className="px-4 py-4 text-13 text-ink-2 sm:px-6">
            <Trans>No incidents.</Trans>
          </p>
        ) : (
          <div className="divide-y divide-line">
            {past.map((incident) => (
              <IncidentView key={incident.incidentId} incident={incident} />
            ))}
          </div>
        )}
      </Section>
    </>
  );
}

function ComponentRow({ component, firstDay }: { component: Component; firstDay: string }) {
  const { status, uptime, days } = component;
  const name = componentName(component);
  const [words, tone] = COMPONENT_WORDS[status];
  return (
    <li className="grid gap-2 px-4 py-4 sm:px-6">
      <p className="flex flex-wrap items-center justify-between gap-x-4 gap-y-1 text-14">
        <span className="font-medium wrap-anywhere">{name}</span>
        <span className="flex items-center gap-3">
          <span className="text-13 text-ink-2 tabular-nums">
            {uptime === null ? t`No requests yet` : t`${{ share: shareText(uptime) }} uptime`}
          </span>
          <Badge tone={tone}>{words}</Badge>
        </span>
      </p>
      <UptimeDays name={name} days={days} firstDay={firstDay} />
    </li>
  );
}

/** A bar for each day; a phone has room for the last third. The worst days are said in words, too. */
function UptimeDays({ name, days, firstDay }: { name: string; days: readonly (number | null)[]; firstDay: string }) {
  const firstMs = Date.parse(`${firstDay}T00:00:00Z`);
  const dayOf = (place: number) => formatCalendarDay(new Date(firstMs + place * DAY_MS).toISOString().slice(0, 10));
  const phoneDays = Math.floor(days.length / 3);
  return (
    <div className="grid gap-1">
      <div
        role="img"
        aria-label={t`${name}: uptime of the last ${plural({ count: days.length }, { one: "# day", other: "# days" })}`}
        className="flex h-8 items-end gap-px sm:gap-0.5"
      >
        {inPlace(days, (share, place) => (
          <span
            className={cx(
              "min-w-0 flex-1 rounded-[1px] forced-color-adjust-none",
              place < days.length - phoneDays && "hidden sm:block",
              share === null ? "h-1 bg-line" : cx(levelOf(share), heightOf(share)),
            )}
          />
        ))}
      </div>
      <p className="flex flex-wrap justify-between gap-x-4 text-12 text-ink-3">
        <span className="sm:hidden">{plural(phoneDays, { one: "# day", other: "# days" })}</span>
        <span className="max-sm:hidden">{plural({ count: days.length }, { one: "# day", other: "# days" })}</span>
        <span className="max-sm:order-last max-sm:w-full">{worstText(days, dayOf)}</span>
        <span>
          <Trans>Today</Trans>
        </span>
      </p>
    </div>
  );
}

const WORST_MAX = 3;

function worstText(days: readonly (number | null)[], dayOf: (place: number) => string): string {
  const failing = days
    .map((share, place) => ({ share, place }))
    .filter((day): day is { share: number; place: number } => day.share !== null && day.share < 1)
    .sort((a, b) => a.share - b.share)
    .slice(0, WORST_MAX);
  if (failing.length === 0) return "";
  return t`Worst: ${{ days: failing.map(({ share, place }) => `${dayOf(place)} ${shareText(share)}`).join(", ") }}`;
}
