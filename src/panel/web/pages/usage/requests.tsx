import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { SearchX } from "lucide-react";
import { useState } from "react";
import { Redirect, useLocation, useParams } from "wouter";
import { HOST_CHARS_MAX } from "../../../../limits.ts";
import { ApiError, api, ask } from "../../api.ts";
import { formatCompact, formatMoney, formatTook } from "../../format.ts";
import { useKeyOptions } from "../../shared/account_queries.ts";
import { DownloadButton } from "../../shared/download_button.tsx";
import { filledPage } from "../../shared/filled_page.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { idIn, oneOf } from "../../shared/url_values.ts";
import { Button, ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { Segmented, Switch } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { NativeSelect, TextInput } from "../../ui/fields.tsx";
import { FilterBar, SearchInput, useUrlState } from "../../ui/filter_bar.tsx";
import { FormFrame } from "../../ui/form_frame.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";
import { costText, plainId } from "./receipts.ts";
import { reasonName } from "./request_text.ts";
import { ALL_TIME, MODES, RECENT_RANGES } from "./usage_choices.ts";

/** Finding a request by its id, and the requests of all accounts that a reseller or an admin manages. */

const PAGE_SIZE = 50;
const DAY_MS = 86_400_000;
/** Room for "req_", dashes and spaces. */
const ID_CHARS_MAX = 60;

const LIVE_MS = 3_000;

type Row = NonNullable<Awaited<ReturnType<typeof api.requests.get>>["data"]>["rows"][number];

/** Redirects a request id to its receipt, in the usage of its account. */
export function RequestPage() {
  const { id = "" } = useParams<{ id: string }>();
  const { accountId } = useViewer();
  const requestId = plainId(id);
  const requester = useQuery({
    queryKey: ["requester", requestId],
    queryFn: () => ask(api.requests({ requestId }).get()),
  });
  if (requester.data) return <Redirect to={receiptHref(requestId, requester.data.accountId, accountId)} replace />;
  const unknown = requester.error instanceof ApiError && requester.error.code === "not_found" ? requester.error : null;
  return (
    <Page title={t`Request`} lead={<span className="font-mono text-13 break-all">{requestId}</span>} size="sm">
      <Section>
        {unknown ? (
          <Empty icon={SearchX} action={<ButtonLink href="/usage">{t`Open usage`}</ButtonLink>}>
            {unknown.message}
          </Empty>
        ) : (
          <Loaded query={requester} skeleton={<SkeletonRows rows={3} />}>
            {() => null}
          </Loaded>
        )}
      </Section>
    </Page>
  );
}

function receiptHref(requestId: string, ofAccount: number, ownAccount: number): string {
  const whose = ofAccount === ownAccount ? "" : `accountId=${ofAccount}&`;
  return /* not a text */ `/usage?${whose}receipt=${requestId}`;
}

const OUTCOMES = [
  { value: "charged", label: t`Charged` },
  { value: "released", label: t`Released` },
] as const;
const RANGES = [...RECENT_RANGES, ALL_TIME];
const FILTERS = {
  outcome: "charged",
  range: "1",
  account: "",
  key: "",
  model: "",
  route: "",
  host: "",
  mode: "",
  reason: "",
  live: "",
};
type Filters = typeof FILTERS;
const TYPED = ["account", "key", "model", "route", "host", "reason"] as const;

/** The requests of all accounts that a person manages. The URL contains the filters; while it is live, new ones appear. */
export function AllRequestsPage() {
  const { role } = useViewer();
  const isAdmin = role === "admin";
  const [filters, setFilters] = useUrlState(FILTERS);
  const isLive = filters.live === "1";
  const query = queryOf(filters, isAdmin);
  const requests = useInfiniteQuery({
    queryKey: ["requests", query, filters.range],
    queryFn: ({ pageParam, signal }) =>
      filledPage<Row, string>(PAGE_SIZE, pageParam, async (before, limit) => {
        const page = { ...query, ...startOf(filters.range), limit, ...(before && { before }) };
        const { rows, nextBefore } = await ask(api.requests.get({ query: page, fetch: { signal } }));
        return { rows, next: nextBefore };
      }),
    initialPageParam: "",
    getNextPageParam: ({ next }) => next,
    placeholderData: keepPreviousData,
    refetchInterval: isLive ? LIVE_MS : false,
  });
  const rows = requests.data?.pages.flatMap<Row>((page) => page.rows) ?? [];
  return (
    <Page
      title={t`Requests`}
      lead={
        isAdmin
          ? t`The requests of all accounts, newest first. Find a request by its id.`
          : t`Your requests and those of your customers, newest first. Find a request by its id.`
      }
    >
      <RequestFilters filters={filters} setFilters={setFilters} isAdmin={isAdmin} />
      <Section flush>
        <Loaded query={requests} skeleton={<SkeletonRows rows={8} />}>
          {() => (
            <DataTable
              caption={filters.outcome === "released" ? t`Released requests` : t`Charged requests`}
              rows={rows}
              rowKey={({ requestId }) => requestId}
              rowHref={({ requestId }) => `/requests/${requestId}`}
              columns={columnsOf(isAdmin)}
              older={toOlder(requests)}
              empty={<Empty>{t`No such request in this period.`}</Empty>}
            />
          )}
        </Loaded>
      </Section>
    </Page>
  );
}

type ListQuery = Omit<NonNullable<NonNullable<Parameters<typeof api.requests.get>[0]>["query"]>, "before" | "limit">;

/** The server checks the values of the URL. Ids that are none are left out. */
function queryOf({ outcome, account, key, model, route, host, mode, reason }: Filters, isAdmin: boolean): ListQuery {
  const [accountId, keyId, routeId] = [idIn(account), idIn(key), idIn(route)];
  return {
    outcome: oneOf(OUTCOMES, outcome, "charged"),
    ...(accountId !== null && { accountId }),
    ...(keyId !== null && { keyId }),
    ...(isAdmin && routeId !== null && { routeId }),
    ...(model !== "" && { model }),
    ...(host !== "" && { host }),
    ...(reason !== "" && { reason }),
    ...((mode === "package" || mode === "payg") && { mode }),
  };
}

function startOf(range: string): { start?: string } {
  const days = oneOf(RANGES, range, "1");
  return days === "all" ? {} : { start: new Date(nowMs() - Number(days) * DAY_MS).toISOString() };
}

type Filtering = { filters: Filters; setFilters: (changes: Partial<Filters>) => void; isAdmin: boolean };

function RequestFilters({ filters, setFilters, isAdmin }: Filtering) {
  const models = useKeyOptions().data?.models ?? [];
  const set = (field: keyof Filters) => (value: string) => setFilters({ [field]: value });
  const modelOptions = models.map(({ id }) => ({ value: id, label: id }));
  const isKnown = filters.model === "" || models.some(({ id }) => id === filters.model);
  const extra = isKnown ? [] : [{ value: filters.model, label: filters.model }];
  return (
    <>
      <FilterBar aside={<FindRequest />}>
        <Segmented
          label={t`Outcome`}
          value={oneOf(OUTCOMES, filters.outcome, "charged")}
          onValue={set("outcome")}
          options={OUTCOMES}
        />
        <NativeSelect
          label={t`Period`}
          value={oneOf(RANGES, filters.range, "1")}
          onValue={set("range")}
          options={RANGES}
        />
      </FilterBar>
      <FilterBar
        isFiltered={[...TYPED.map((field) => filters[field]), filters.mode].some((value) => value !== "")}
        onClear={() => setFilters({ account: "", key: "", model: "", route: "", host: "", mode: "", reason: "" })}
        aside={<LiveAndFile filters={filters} setFilters={setFilters} isAdmin={isAdmin} />}
      >
        <NativeSelect
          label={t`Model`}
          value={filters.model}
          onValue={set("model")}
          options={[{ value: "", label: t`All models` }, ...modelOptions, ...extra]}
          className={FILTER}
        />
        <NativeSelect
          label={t`Billing`}
          value={oneOf(MODES, filters.mode, "")}
          onValue={set("mode")}
          options={MODES}
          className={FILTER}
        />
        <IdInput label={t`Customer id`} value={filters.account} onValue={set("account")} />
        <IdInput label={t`Key id`} value={filters.key} onValue={set("key")} />
        {isAdmin && <IdInput label={t`Route id`} value={filters.route} onValue={set("route")} />}
        <TextInput
          aria-label={t`Host`}
          placeholder={t`Host`}
          value={filters.host}
          onValue={set("host")}
          maxLength={HOST_CHARS_MAX}
          className={FILTER}
        />
      </FilterBar>
    </>
  );
}

function LiveAndFile({ filters, setFilters, isAdmin }: Filtering) {
  return (
    <>
      <Switch label={t`Live`} checked={filters.live === "1"} onValue={(on) => setFilters({ live: on ? "1" : "" })} />
      <DownloadButton path={() => filePath(filters, isAdmin)} fileName="requests.csv">
        <Trans>
          CSV<span className="sr-only"> export</span>
        </Trans>
      </DownloadButton>
    </>
  );
}

const FILTER = "w-[calc(50%-0.25rem)] sm:w-36";
const ID_DIGITS_MAX = 16;

function IdInput({ label, ...input }: { label: string; value: string; onValue: (value: string) => void }) {
  return (
    <TextInput
      aria-label={label}
      placeholder={label}
      inputMode="numeric"
      maxLength={ID_DIGITS_MAX}
      className="w-[calc(50%-0.25rem)] sm:w-28"
      {...input}
    />
  );
}

function filePath(filters: Filters, isAdmin: boolean): string {
  const query = Object.entries({ ...queryOf(filters, isAdmin), ...startOf(filters.range) });
  return /* not a text */ `/api/panel/requests.csv?${new URLSearchParams(query.map(([name, value]) => [name, String(value)]))}`;
}

function FindRequest() {
  const [typed, setTyped] = useState("");
  const [, navigate] = useLocation();
  const id = typed.trim();
  return (
    <FormFrame
      className="flex max-w-full min-w-0 items-center gap-2"
      onSubmit={() => {
        if (id !== "") navigate(`/requests/${encodeURIComponent(id)}`);
      }}
    >
      <SearchInput
        label={t`Find by request id`}
        placeholder={t`Request id`}
        value={typed}
        onValue={setTyped}
        maxLength={ID_CHARS_MAX}
        className="font-mono max-sm:w-52"
      />
      <Button type="submit">{t`Find`}</Button>
    </FormFrame>
  );
}

function columnsOf(isAdmin: boolean): Column<Row>[] {
  const people = isAdmin ? "/admin/people" : "/customers";
  return [
    { head: t`Time`, cell: ({ createdAt }) => <Instant iso={createdAt} seconds /> },
    {
      head: t`Customer`,
      cell: ({ accountId, accountName, keyName }) => (
        <TwoLines below={keyName ?? t`Deleted key`}>
          <TextLink href={`${people}/${accountId}`} className="row-above wrap-anywhere">
            {accountName ?? t`Account ${accountId}`}
          </TextLink>
        </TwoLines>
      ),
    },
    {
      head: t`Model`,
      cell: ({ modelId, reason, provider }) => (
        <span className="grid gap-0.5">
          <span className="wrap-anywhere">
            {modelId} {reason !== "complete" && <Badge>{reasonName(reason)}</Badge>}
          </span>
          {provider !== null && <span className="text-12 text-ink-3">{provider}</span>}
        </span>
      ),
    },
    { head: t`Host`, cell: ({ host }) => host, hideBelow: "xl", inCard: false },
    {
      head: t`First event`,
      align: "right",
      hideBelow: "lg",
      cell: ({ firstMs }) => (firstMs === null ? "–" : formatTook(firstMs)),
    },
    { head: t`Duration`, align: "right", hideBelow: "md", cell: ({ durationMs }) => formatTook(durationMs) },
    { head: t`Tokens in, out`, align: "right", cell: (row) => <Tokens row={row} /> },
    {
      head: t({ message: "Charge", context: "column: amount" }),
      align: "right",
      cell: (row) => (row.outcome === "charged" ? costText(row) : "–"),
    },
    {
      head: isAdmin ? t`Provider cost` : t`Cost`,
      align: "right",
      hideBelow: "lg",
      cell: ({ outcome, costNanoUsd }) =>
        outcome === "released" ? "–" : costNanoUsd === null ? t`Not known` : formatMoney(costNanoUsd),
    },
  ];
}

function Tokens({ row: { promptTokens, cachedTokens, completionTokens, estimated } }: { row: Row }) {
  if (promptTokens + completionTokens === 0) return "–";
  return (
    <span className="grid justify-items-end gap-0.5">
      <span className="whitespace-nowrap">
        {estimated && "~"}
        {formatCompact(promptTokens)}, {formatCompact(completionTokens)}
      </span>
      {cachedTokens > 0 && (
        <span className="text-12 whitespace-nowrap text-ink-3">{t`${{ count: formatCompact(cachedTokens) }} cached`}</span>
      )}
    </span>
  );
}
