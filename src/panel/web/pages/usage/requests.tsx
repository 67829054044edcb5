import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { SearchX } from "lucide-react";
import { useState } from "react";
import { Redirect, useLocation, useParams } from "wouter";
import { ApiError, api, ask } from "../../api.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { oneOf } from "../../shared/url_values.ts";
import { Button, ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { NativeSelect } from "../../ui/fields.tsx";
import { FilterBar, SearchInput, useUrlState } from "../../ui/filter_bar.tsx";
import { FormFrame } from "../../ui/form_frame.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { costText, plainId, tokensText } from "./receipts.ts";
import { reasonName, UNKNOWN_REQUEST } from "./request_text.ts";

/** Finding a request by its id, and for admins, the requests of all accounts. */

const PAGE_SIZE = 50;
const DAY_MS = 86_400_000;
/** Room for "req_", dashes and spaces. */
const ID_CHARS_MAX = 60;

type Row = NonNullable<Awaited<ReturnType<typeof api.admin.requests.get>>["data"]>["rows"][number];
type Charged = Extract<Row, { kind: "charged" }>;
type Released = Exclude<Row, Charged>;

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
  const isUnknown = requester.error instanceof ApiError && requester.error.code === "not_found";
  return (
    <Page title="Request" lead={<span className="font-mono text-13 break-all">{requestId}</span>} size="sm">
      <Section>
        {isUnknown ? (
          <Empty icon={SearchX} action={<ButtonLink href="/usage">Open usage</ButtonLink>}>
            {UNKNOWN_REQUEST}
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
  return `/usage?${whose}receipt=${requestId}`;
}

const KINDS = [
  { value: "charged", label: "Charged" },
  { value: "released", label: "Released" },
] as const;
const RANGES = [
  { value: "1", label: "Last 24 hours" },
  { value: "7", label: "Last 7 days" },
  { value: "all", label: "All time" },
] as const;

/** The requests of all accounts, for admins. */
export function AdminRequestsPage() {
  const [filters, setFilters] = useUrlState({ kind: "charged", range: "1" });
  const kind = oneOf(KINDS, filters.kind, "charged");
  const range = oneOf(RANGES, filters.range, "1");
  const requests = useInfiniteQuery({
    queryKey: [...ADMIN_KEY, "requests", kind, range],
    queryFn: ({ pageParam }) => {
      const start = range === "all" ? {} : { start: new Date(nowMs() - Number(range) * DAY_MS).toISOString() };
      const query = { kind, ...start, limit: PAGE_SIZE, ...(pageParam !== "" && { after: pageParam }) };
      return ask(api.admin.requests.get({ query }));
    },
    initialPageParam: "",
    getNextPageParam: ({ nextAfter }) => nextAfter ?? undefined,
  });
  const rows = requests.data?.pages.flatMap<Row>((page) => page.rows) ?? [];
  const common = {
    rowKey: ({ requestId }: Row) => requestId,
    rowHref: ({ requestId }: Row) => `/requests/${requestId}`,
    older: toOlder(requests),
  };
  return (
    <Page title="Requests" lead="The requests of all accounts, newest first. Find a request by its id.">
      <FilterBar aside={<FindRequest />}>
        <Segmented label="Outcome" value={kind} onValue={(next) => setFilters({ kind: next })} options={KINDS} />
        <NativeSelect label="Period" value={range} onValue={(next) => setFilters({ range: next })} options={RANGES} />
      </FilterBar>
      <Section flush>
        <Loaded query={requests} skeleton={<SkeletonRows rows={8} />}>
          {() =>
            kind === "charged" ? (
              <DataTable
                caption="Charged requests"
                {...common}
                rows={rows.filter(isCharged)}
                columns={[...COMMON, ...CHARGED]}
                empty={<Empty>No request was charged in this period.</Empty>}
              />
            ) : (
              <DataTable
                caption="Released requests"
                {...common}
                rows={rows.filter((row) => !isCharged(row))}
                columns={[...COMMON, ...RELEASED]}
                empty={<Empty>No request was released in this period.</Empty>}
              />
            )
          }
        </Loaded>
      </Section>
    </Page>
  );
}

function FindRequest() {
  const [typed, setTyped] = useState("");
  const [, navigate] = useLocation();
  const id = typed.trim();
  return (
    <FormFrame
      className="flex min-w-0 items-center gap-2"
      onSubmit={() => {
        if (id !== "") navigate(`/requests/${encodeURIComponent(id)}`);
      }}
    >
      <SearchInput
        label="Find by request id"
        placeholder="Request id"
        value={typed}
        onValue={setTyped}
        maxLength={ID_CHARS_MAX}
        className="font-mono"
      />
      <Button type="submit">Find</Button>
    </FormFrame>
  );
}

function isCharged(row: Row): row is Charged {
  return row.kind === "charged";
}

const COMMON: readonly Column<Row>[] = [
  { head: "Time", cell: ({ createdAt }) => <Instant iso={createdAt} seconds /> },
  {
    head: "Account",
    cell: ({ accountId, accountName }) => (
      <TextLink href={`/admin/people/${accountId}`} className="row-above wrap-anywhere">
        {accountName ?? `Account ${accountId}`}
      </TextLink>
    ),
  },
  { head: "Model", cell: ({ modelId }) => modelId },
  { head: "Host", cell: ({ host }) => host, hideBelow: "xl", inCard: false },
];
const CHARGED: readonly Column<Charged>[] = [
  {
    head: "Tokens",
    align: "right",
    cell: (row) => (row.promptTokens + row.completionTokens === 0 ? "–" : tokensText(row)),
  },
  { head: "Cost", align: "right", cell: (row) => costText(row) },
];
const RELEASED: readonly Column<Released>[] = [
  { head: "Reason", cell: ({ reason }) => <Badge>{reasonName(reason)}</Badge> },
];
