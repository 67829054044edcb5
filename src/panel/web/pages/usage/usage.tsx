import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { ArrowLeft } from "lucide-react";
import { api, ask } from "../../api.ts";
import { EMPTY } from "../../copy.ts";
import { useKeyOptions, useKeys } from "../../shared/account_queries.ts";
import { DownloadButton } from "../../shared/download_button.tsx";
import { filledPage } from "../../shared/filled_page.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { idIn, oneOf } from "../../shared/url_values.ts";
import { ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { NativeSelect, type Option } from "../../ui/fields.tsx";
import { FilterBar, useUrlState } from "../../ui/filter_bar.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { toOlder } from "../../ui/table.tsx";
import { PEOPLE_KEY, personQuery } from "../people/queries.ts";
import { ReceiptDrawer } from "./receipt_drawer.tsx";
import { plainId } from "./receipts.ts";
import { UsageBreakdown } from "./usage_breakdown.tsx";
import { type ChartFilter, UsageChart } from "./usage_chart.tsx";
import { ALL_TIME, MODES, RECENT_RANGES } from "./usage_choices.ts";
import { type UsageRow, UsageTable } from "./usage_table.tsx";

/**
 * Every request of an account and its cost. The URL contains all filters and the open receipt. `?accountId=` shows an account that
 * the person manages.
 */

const PAGE_SIZE = 50;
const DAY_MS = 86_400_000;
const KEYS_LISTED_MAX = 200;
const CHART_DAYS_MAX = 90;
const FILTERS = { range: "7", key: "", model: "", host: "", mode: "", kind: "charged", receipt: "", accountId: "" };
type Filters = typeof FILTERS;

const RANGES = [...RECENT_RANGES, { value: "90", label: t`Last 90 days` } as const, ALL_TIME];
const KINDS = [
  { value: "charged", label: t`Charged` },
  { value: "not_charged", label: t`Not charged` },
] as const;

export function UsagePage() {
  const [filters, setFilters] = useUrlState(FILTERS);
  const viewer = useViewer();
  const named = idIn(filters.accountId);
  const accountId = named === viewer.accountId ? null : named;
  const filter = filterOf(filters, accountId);
  const list = useList(filter, filters.range);
  const rows = list.data?.pages.flatMap<UsageRow>((page) => page.rows);
  const open = useOpenReceipt(filters, setFilters, rows?.map(({ requestId }) => requestId) ?? [], list);
  return (
    <Page
      title={t`Usage`}
      lead={accountId === null ? t`Every request and what it cost.` : <WhoseUsage accountId={accountId} />}
    >
      <UsageFilters filters={filters} setFilters={setFilters} accountId={accountId} filter={filter} />
      {filter.kind === "charged" && daysOf(filters.range) > 1 && !list.isError && (
        <ChartOf filter={filter} range={filters.range} />
      )}
      {filter.kind === "charged" && !isFiltered(filter) && !list.isError && (
        <UsageBreakdown accountId={accountId} days={daysOf(filters.range)} />
      )}
      <Section flush title={filter.kind === "charged" ? t`Requests` : t`Requests without charge`}>
        <Loaded query={list} skeleton={<SkeletonRows rows={8} />}>
          {() => (
            <UsageTable
              rows={rows ?? []}
              kind={filter.kind}
              openId={open.requestId}
              hrefOf={open.hrefOf}
              older={toOlder(list)}
              empty={
                <Empty
                  action={accountId === null && <ButtonLink href="/playground">{t`Open the playground`}</ButtonLink>}
                >
                  {filter.kind === "charged" ? EMPTY.usage : t`No refused or released requests in this view.`}
                </Empty>
              }
            />
          )}
        </Loaded>
      </Section>
      <ReceiptDrawer
        requestId={open.requestId}
        accountId={accountId}
        neighbours={open.neighbours}
        onClose={open.close}
      />
    </Page>
  );
}

/** The account whose usage this is, with a link back to that person's page. */
function WhoseUsage({ accountId }: { accountId: number }) {
  const { role } = useViewer();
  const person = useQuery({ ...personQuery(accountId), enabled: role !== "customer" });
  const href = role === "admin" ? `/admin/people/${accountId}` : `/customers/${accountId}`;
  const name = person.data?.name ?? t`account ${accountId}`;
  return (
    <>
      {t`Every request of ${name} and what it cost.`}{" "}
      {role !== "customer" && (
        <TextLink href={href} className="whitespace-nowrap">
          <ArrowLeft size={14} aria-hidden className="me-1 inline align-[-2px]" />
          {t`Back to ${name}`}
        </TextLink>
      )}
    </>
  );
}

/** The filter of the list, without the period, which moves with time. */
type ListFilter = ChartFilter & { kind: "charged" | "not_charged" };

/** The server checks the values of the URL. Only those with another form in the query are read here. */
function filterOf({ key, model, host, mode, kind }: Filters, accountId: number | null): ListFilter {
  const keyId = idIn(key);
  return {
    kind: kind === "not_charged" ? "not_charged" : "charged",
    ...(accountId !== null && { accountId }),
    ...(keyId !== null && { keyId }),
    ...(model !== "" && { model }),
    ...(host !== "" && { host }),
    ...((mode === "package" || mode === "payg") && { mode }),
  };
}

/** The breakdown is of a whole account. */
const isFiltered = ({ keyId, model, host, mode }: ListFilter): boolean =>
  [keyId, model, host, mode].some((value) => value !== undefined);

/** The period of a list or a file. Several days are those of the chart, so that its sum is that of the list. */
function periodOf(range: string): { start?: string; days?: number } {
  const days = daysOf(range);
  if (days === 1) return { start: new Date(nowMs() - DAY_MS).toISOString() };
  return Number.isFinite(days) ? { days } : {};
}

function daysOf(range: string): number {
  if (range === "all") return Number.POSITIVE_INFINITY;
  return Number(oneOf(RANGES, range, "7"));
}

function useList(filter: ListFilter, range: string) {
  return useInfiniteQuery({
    queryKey: ["usage", "list", filter.kind, filter, range],
    queryFn: ({ pageParam, signal }) => {
      const period = periodOf(range);
      return filledPage<UsageRow, string>(PAGE_SIZE, pageParam, async (after, limit) => {
        const query = { ...filter, limit, ...period, ...(after && { after }) };
        const { rows, nextAfter } = await ask(api.usage.get({ query, fetch: { signal } }));
        return { rows, next: nextAfter };
      });
    },
    initialPageParam: "",
    getNextPageParam: ({ next }) => next,
    // Rows of the other kind have other columns.
    placeholderData: (before, query) => (query?.queryKey[2] === filter.kind ? before : undefined),
  });
}

type List = ReturnType<typeof useList>;

/** The receipt that the URL names, and its neighbouring rows. */
function useOpenReceipt(
  filters: Filters,
  setFilters: (changes: Partial<Filters>, options?: { push?: boolean }) => void,
  ids: readonly string[],
  list: List,
) {
  const requestId = filters.receipt === "" ? null : plainId(filters.receipt);
  const at = requestId === null ? -1 : ids.indexOf(requestId);
  const show = (id: string | undefined) => id !== undefined && setFilters({ receipt: id });
  const loadMore = async () => {
    const { data } = await list.fetchNextPage();
    const all = data?.pages.flatMap<UsageRow>((page) => page.rows) ?? [];
    show(all[at + 1]?.requestId);
  };
  const isLast = at === ids.length - 1;
  return {
    requestId,
    hrefOf: (id: string) => {
      const params = new URLSearchParams(window.location.search);
      params.set("receipt", id);
      return /* not a text */ `/usage?${params}`;
    },
    close: () => setFilters({ receipt: "" }),
    neighbours: {
      newer: at > 0 ? () => show(ids[at - 1]) : null,
      older: at === -1 || (isLast && !list.hasNextPage) ? null : () => (isLast ? void loadMore() : show(ids[at + 1])),
    },
  };
}

function UsageFilters({
  filters,
  setFilters,
  accountId,
  filter,
}: {
  filters: Filters;
  setFilters: (changes: Partial<Filters>) => void;
  accountId: number | null;
  filter: ListFilter;
}) {
  const { model, host, mode } = filters;
  const key = filter.keyId === undefined ? "" : String(filter.keyId);
  const options = useFilterOptions({ key, model, host }, accountId);
  return (
    <FilterBar
      isFiltered={[key, model, host, mode].some((value) => value !== "")}
      onClear={() => setFilters({ key: "", model: "", host: "", mode: "" })}
      aside={
        <>
          <Segmented label={t`Outcome`} value={filter.kind} onValue={(kind) => setFilters({ kind })} options={KINDS} />
          <ExportCsv filter={filter} range={filters.range} />
        </>
      }
    >
      <NativeSelect
        label={t`Period`}
        value={oneOf(RANGES, filters.range, "7")}
        onValue={(range) => setFilters({ range })}
        options={RANGES}
        className="w-full sm:w-36"
      />
      <NativeSelect
        label={t`Key`}
        value={key}
        onValue={(next) => setFilters({ key: next })}
        options={options.keys}
        className={FILTER}
      />
      <NativeSelect
        label={t`Model`}
        value={model}
        onValue={(next) => setFilters({ model: next })}
        options={options.models}
        className={FILTER}
      />
      <NativeSelect
        label={t`Host`}
        value={host}
        onValue={(next) => setFilters({ host: next })}
        options={options.hosts}
        className={FILTER}
      />
      <NativeSelect
        label={t`Billing`}
        value={oneOf(MODES, mode, "")}
        onValue={(next) => setFilters({ mode: next })}
        options={MODES}
        className={FILTER}
      />
    </FilterBar>
  );
}

/** Two per row on a phone; one row on a wide window. */
const FILTER = "w-[calc(50%-0.25rem)] sm:w-32";

/** The options of the filters. A value of the URL that is not among them is added as it is. */
function useFilterOptions(filters: Pick<Filters, "key" | "model" | "host">, accountId: number | null) {
  const { role } = useViewer();
  const own = useKeys({ enabled: accountId === null });
  const theirs = useQuery({
    queryKey: [...PEOPLE_KEY, "keys to filter by", accountId],
    queryFn: () => ask(api.people({ id: accountId ?? 0 }).keys.get({ query: { limit: KEYS_LISTED_MAX } })),
    enabled: accountId !== null && role !== "customer",
  });
  const known = useKeyOptions();
  const keys = (accountId === null ? own.data?.rows : theirs.data?.keys) ?? [];
  return {
    keys: withAll(
      t`All keys`,
      filters.key,
      keys.map(({ keyId, name, masked }) => ({ value: String(keyId), label: name, hint: masked })),
    ),
    models: withAll(
      t`All models`,
      filters.model,
      (known.data?.models ?? []).map(({ id }) => ({ value: id, label: id })),
    ),
    hosts: withAll(
      t`All hosts`,
      filters.host,
      (known.data?.hosts ?? []).map(({ host }) => ({ value: host, label: host })),
    ),
  };
}

function withAll(all: string, chosen: string, options: Option[]): Option[] {
  const isKnown = chosen === "" || options.some(({ value }) => value === chosen);
  return [{ value: "", label: all }, ...options, ...(isKnown ? [] : [{ value: chosen, label: chosen }])];
}

function ExportCsv({ filter, range }: { filter: ListFilter; range: string }) {
  const path = () => {
    const query = Object.entries({ ...filter, ...periodOf(range) });
    const search = new URLSearchParams(query.map(([name, value]) => [name, String(value)]));
    return /* not a text */ `/api/panel/usage.csv?${search}`;
  };
  return (
    <DownloadButton path={path} fileName="usage.csv">
      <Trans>
        CSV<span className="sr-only"> export</span>
      </Trans>
    </DownloadButton>
  );
}

function ChartOf({ filter: { kind: _, ...filter }, range }: { filter: ListFilter; range: string }) {
  const days = Math.min(daysOf(range), CHART_DAYS_MAX);
  const title = days < daysOf(range) ? plural(days, { one: "Last # day", other: "Last # days" }) : t`By day`;
  return <UsageChart title={title} filter={filter} days={days} empty={null} />;
}
