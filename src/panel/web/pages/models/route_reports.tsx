import { t } from "@lingui/core/macro";
import { formatCount, formatShare, formatTook } from "../../format.ts";
import { Section } from "../../ui/page.tsx";
import { Empty } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";
import type { Model, Report, Route } from "./catalog.tsx";

/** The reports of routes for the last 24 hours: on the model's page, and as columns of the list of all routes. */

type Reported = Pick<Route, "id" | "providerName" | "upstreamModel"> & { report: Report | null };

/** The routes of one model. A route that was not called has no figures. */
export function RouteReports({ model }: { model: Model }) {
  if (model.routes.length === 0) return null;
  const rows = model.routes.map((route) => ({
    ...route,
    report: model.reports.find(({ routeId }) => routeId === route.id) ?? null,
  }));
  return (
    <Section
      title={t`Last 24 hours`}
      description={t`This hour and the 23 before it, on all replicas. First byte: of streams. Complete answer: of answers that are not streamed. Half of the answers took at most p50, and 95 in 100 at most p95.`}
      flush
    >
      <DataTable
        caption={t`The last 24 hours of ${{ model: model.id }}`}
        rows={rows}
        rowKey={({ id }) => String(id)}
        columns={[ROUTE, ...REPORT_COLUMNS]}
        empty={<Empty>{t`No route.`}</Empty>}
      />
    </Section>
  );
}

/** The provider, and the model's name there. */
export const ROUTE: Column<Pick<Route, "providerName" | "upstreamModel">> = {
  head: t`Route`,
  cell: ({ providerName, upstreamModel }) => (
    <TwoLines below={upstreamModel} isMono>
      {providerName}
    </TwoLines>
  ),
};

export const REPORT_COLUMNS: Column<Pick<Reported, "report">>[] = [
  { head: t`Requests`, align: "right", cell: ({ report }) => formatCount(report?.requests ?? 0) },
  { head: t`Errors`, align: "right", cell: ({ report }) => <Share part={report?.errors} of={report?.requests} /> },
  { head: t`First byte`, align: "right", cell: ({ report }) => <Times of={report?.firstEvent} /> },
  { head: t`Complete answer`, align: "right", cell: ({ report }) => <Times of={report?.wholeAnswer} /> },
  {
    head: t`Input from cache`,
    align: "right",
    cell: ({ report }) => <Share part={report?.cachedTokens} of={report?.inputTokens} />,
  },
];

function Share({ part = 0, of = 0 }: { part: number | undefined; of: number | undefined }) {
  return of === 0 ? <NoData /> : <span className="whitespace-nowrap">{formatShare(part / of)}</span>;
}

function Times({ of }: { of: Report["firstEvent"] | undefined }) {
  if (!of) return <NoData />;
  return (
    <span className="grid justify-items-end gap-0.5">
      {(
        [
          ["p50", of.p50Ms],
          ["p95", of.p95Ms],
        ] as const
      ).map(([label, ms]) => (
        <span key={label} className="whitespace-nowrap">
          <span className="text-12 text-ink-3">{label}</span> {formatTook(ms)}
        </span>
      ))}
    </span>
  );
}

function NoData() {
  return <span className="text-ink-3">{t`No data`}</span>;
}
