import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { EMPTY } from "../../copy.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { oneOf } from "../../shared/url_values.ts";
import { ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { NativeSelect } from "../../ui/fields.tsx";
import { FilterBar, useUrlState } from "../../ui/filter_bar.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";
import { modelHref, providerHref, RouteState } from "./catalog.tsx";
import { REPORT_COLUMNS } from "./route_reports.tsx";
import { ROUTE_STATES_NOTE } from "./route_states.ts";

/** All routes, with their reports for the last 24 hours, sorted by one measure. */

const REFETCH_MS = 10_000;

type Row = NonNullable<Awaited<ReturnType<typeof api.admin.routes.get>>["data"]>["routes"][number];

const MEASURES = [
  { value: "requests", label: t`Most requests` },
  { value: "errors", label: t`Most errors` },
  { value: "first_event", label: t`Slowest first byte` },
  { value: "whole_answer", label: t`Slowest complete answer` },
  { value: "cached", label: t`Most input from cache` },
] as const;

export function RoutesPage() {
  const [{ by: wanted }, setFilter] = useUrlState({ by: "requests" });
  const by = oneOf(MEASURES, wanted, "requests");
  const routes = useQuery({
    queryKey: [...ADMIN_KEY, "routes", by],
    queryFn: () => ask(api.admin.routes.get({ query: { by } })),
    refetchInterval: REFETCH_MS,
  });
  return (
    <Page title={t`Routes`} lead={t`How providers answered in the last 24 hours, on all replicas.`}>
      <FilterBar>
        <NativeSelect label={t`Sort by`} value={by} onValue={(next) => setFilter({ by: next })} options={MEASURES} />
      </FilterBar>
      <Section description={ROUTE_STATES_NOTE} flush>
        <Loaded query={routes} skeleton={<SkeletonRows rows={8} />}>
          {({ routes: rows, hasMore }) => (
            <>
              <DataTable
                caption={t`Routes`}
                rows={rows}
                rowKey={({ id }) => String(id)}
                columns={COLUMNS}
                empty={
                  <Empty action={<ButtonLink href="/admin/models">{t`Open models`}</ButtonLink>}>
                    {EMPTY.allRoutes}
                  </Empty>
                }
              />
              {hasMore && (
                <p className="border-t border-line p-4 text-13 text-ink-2">{t`Only the first 500 are shown.`}</p>
              )}
            </>
          )}
        </Loaded>
      </Section>
    </Page>
  );
}

const COLUMNS: Column<Row>[] = [
  {
    head: t`Model`,
    cell: ({ modelId, providerId, providerName, upstreamModel }) => (
      <TwoLines
        below={
          <>
            <TextLink href={providerHref(providerId)}>{providerName}</TextLink>,{" "}
            <span className="font-mono text-12">{upstreamModel}</span>
          </>
        }
      >
        <TextLink href={modelHref(modelId)} className="inline-flex min-h-6 items-center font-mono font-normal">
          {modelId}
        </TextLink>
      </TwoLines>
    ),
  },
  { head: t`State`, cell: (route) => <RouteState route={route} isShort /> },
  ...REPORT_COLUMNS,
];
