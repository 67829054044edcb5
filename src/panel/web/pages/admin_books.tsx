import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  ChevronRight,
  CircleAlert,
  CircleCheck,
  CircleDashed,
  CircleHelp,
  type LucideIcon,
  RotateCw,
} from "lucide-react";
import type { ReactNode } from "react";
import { api, ask } from "../api.ts";
import {
  formatCalendarDay,
  formatCount,
  formatDuration,
  formatMoney,
  formatOf,
  formatTook,
  formatUtc,
} from "../format.ts";
import { Button, TextLink } from "../ui/buttons.tsx";
import { useNow } from "../ui/clock.ts";
import { CopyText } from "../ui/copy_text.tsx";
import { cx } from "../ui/cx.ts";
import { Figure, Figures, Page, Section } from "../ui/page.tsx";
import { Scrolling } from "../ui/scrolling.tsx";
import { Badge, Empty, Loaded, Loading, Problem, Skeleton, SkeletonRows } from "../ui/states.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { Ago, Instant } from "../ui/time.tsx";
import { modelHref } from "./admin_catalog.tsx";

/** Whether every request and cent is accounted for, and the health of the replicas. */

const BOOKS_REFETCH_MS = 10_000;
/** While a check runs that outlasts its request. */
const RUNNING_REFETCH_MS = 2_000;
const REPLICAS_REFETCH_MS = 3_000;
const OVERVIEW_REFETCH_MS = 30_000;
const AGE_TICK_MS = 5_000;
/** The service checks every five minutes; an older result means that checks are failing. */
const CHECK_LATE_MS = 15 * 60_000;
/** Replicas report every second. */
const SILENT_MS = 5_000;
const BROKEN_ROWS_MAX = 20;

const BOOKS_KEY = ["admin", "books"];

type Books = NonNullable<Awaited<ReturnType<typeof api.admin.books.get>>["data"]>;
type Check = NonNullable<Books["last"]>;
type Result = Check["results"][number];
type Replica = NonNullable<Awaited<ReturnType<typeof api.admin.replicas.get>>["data"]>["replicas"][number];
type Overview = NonNullable<Awaited<ReturnType<typeof api.admin.overview.get>>["data"]>;

export function BooksPage() {
  const client = useQueryClient();
  const check = useMutation({
    /** Its argument is the time of the last check before this one; null if there was none. */
    mutationFn: (_before: string | null) => ask(api.admin.books.check.post()),
    onSuccess: () => client.invalidateQueries({ queryKey: BOOKS_KEY }),
  });
  /** A check was started here, continues in the background, and has no result yet. */
  const isAwaited = (books: Books | undefined) =>
    check.data?.running === true && (books?.last?.checkedAt ?? null) === check.variables;
  const books = useQuery({
    queryKey: BOOKS_KEY,
    queryFn: () => ask(api.admin.books.get()),
    refetchInterval: ({ state }) => (isAwaited(state.data) ? RUNNING_REFETCH_MS : BOOKS_REFETCH_MS),
  });
  return (
    <Page
      title="Books"
      lead="Is every request and every cent accounted for?"
      action={
        <Button
          variant="primary"
          icon={RotateCw}
          pending={check.isPending || isAwaited(books.data)}
          onClick={() => check.mutate(books.data?.last?.checkedAt ?? null)}
        >
          Check now
        </Button>
      }
    >
      {check.error && <Problem error={check.error} />}
      <Loaded query={books} skeleton={<BooksSkeleton />}>
        {(data) => (
          <>
            <Section flush>
              <Verdict last={data.last} />
              {data.last && <Invariants check={data.last} />}
            </Section>
            <InProgress books={data} />
            <Unpriced counts={data.unpriced} />
          </>
        )}
      </Loaded>
      <Replicas />
      <Today />
      {books.data && <History history={books.data.history} />}
    </Page>
  );
}

function BooksSkeleton() {
  return (
    <Loading className="grid gap-6">
      <div className="rounded-lg border border-line bg-surface">
        <div className="flex items-center gap-4 p-6">
          <Skeleton className="size-10 rounded-full" />
          <Skeleton className="h-6 w-48" />
        </div>
        <SkeletonRows rows={9} className="border-t border-line" />
      </div>
      <Skeleton className="h-32 rounded-lg" />
    </Loading>
  );
}

type Standing = { icon: LucideIcon; look: string; words: string };
const BALANCED: Standing = { icon: CircleCheck, look: "bg-ok-soft text-ok", words: "Books balance" };
const BROKEN: Standing = { icon: CircleAlert, look: "bg-bad-soft text-bad", words: "Books do not balance" };
const UNCOUNTED: Standing = { icon: CircleHelp, look: "bg-warn-soft text-warn", words: "Not everything was counted" };
const UNCHECKED: Standing = { icon: CircleDashed, look: "bg-sunken text-ink-3", words: "Not checked yet" };

function standingOf(results: readonly Result[] | undefined): Standing {
  if (results === undefined) return UNCHECKED;
  if (results.some(isBroken)) return BROKEN;
  return results.some(({ rows }) => rows === null) ? UNCOUNTED : BALANCED;
}

function isBroken({ rows }: Pick<Result, "rows">): boolean {
  return rows !== null && rows > 0;
}

/** The result of the last check. */
function Verdict({ last }: { last: Check | null }) {
  const { icon: Icon, look, words } = standingOf(last?.results);
  return (
    <div className="flex items-center gap-4 p-4 sm:p-6">
      <span className={cx("grid size-10 flex-none place-content-center rounded-full", look)}>
        <Icon size={20} aria-hidden />
      </span>
      <div className="min-w-0">
        <h2 className="text-20">
          <span role="status">{words}</span>
        </h2>
        <p className="text-14 text-ink-2">
          {last ? (
            <>
              {formatCount(last.results.filter(({ rows }) => rows === 0).length)} of {formatCount(last.results.length)}{" "}
              rules are kept. Checked <Age iso={last.checkedAt} /> in {formatTook(last.tookMs)}
            </>
          ) : (
            "The service checks every five minutes. Press Check now to check immediately."
          )}
        </p>
      </div>
    </div>
  );
}

/** "40 s ago", with a warning if that is too long. */
function Age({ iso }: { iso: string }) {
  const now = useNow(AGE_TICK_MS);
  const ageMs = Math.max(0, now - Date.parse(iso));
  return (
    <>
      <time dateTime={iso} title={formatUtc(iso)} className="whitespace-nowrap">
        {ageMs < AGE_TICK_MS ? "just now" : `${formatDuration(ageMs)} ago`}
      </time>
      {ageMs > CHECK_LATE_MS && (
        <>
          {" "}
          <Badge tone="warn">Late: due every 5 min</Badge>
        </>
      )}
    </>
  );
}

function Invariants({ check: { results, checkedAt } }: { check: Check }) {
  return (
    <ul aria-label="Rules" className="border-t border-line">
      {results.map((result) => (
        <Invariant key={result.name} result={result} checkedAt={checkedAt} />
      ))}
    </ul>
  );
}

function Invariant({ result, checkedAt }: { result: Result; checkedAt: string }) {
  const { name, says, rows } = result;
  const state: [LucideIcon, string, string] =
    rows === null
      ? [CircleHelp, "text-warn", "Not counted in time"]
      : isBroken(result)
        ? [CircleAlert, "text-bad", formatOf(rows, "row")]
        : [CircleCheck, "text-ok", "OK"];
  const [Icon, look, words] = state;
  return (
    <li className="border-b border-line last:border-0">
      <div className="flex min-h-(--row) items-start gap-3 px-4 py-2.5 sm:px-6">
        <Icon size={16} aria-hidden className={cx("mt-0.5 flex-none", look)} />
        <p className="min-w-0 flex-1 text-14" title={name}>
          {/* A rule of another release has no text here. */}
          {says || <span className="font-mono text-13">{name}</span>}
        </p>
        <span className={cx("flex-none text-13 tabular-nums", rows === 0 ? "text-ink-3" : cx("font-medium", look))}>
          {words}
        </span>
      </div>
      {isBroken(result) && <BrokenRows name={name} says={says} checkedAt={checkedAt} />}
    </li>
  );
}

/** The first rows that break a rule now, with the columns of its view. */
function BrokenRows({ name, says, checkedAt }: { name: string; says: string; checkedAt: string }) {
  const broken = useQuery({
    queryKey: [...BOOKS_KEY, "rows", name, checkedAt],
    queryFn: () => ask(api.admin.books({ name }).rows.get({ query: { limit: BROKEN_ROWS_MAX } })),
  });
  return (
    <div className="px-4 pb-4 sm:pr-6 sm:pl-13">
      <Loaded query={broken} skeleton={<SkeletonRows rows={2} />}>
        {({ rows, hasMore }) =>
          rows.length === 0 ? (
            <p className="text-13 text-ink-2">No row breaks it now. Check again.</p>
          ) : (
            <>
              <RowsTable label={`Rows that break it: ${says}`} rows={rows} />
              {hasMore && (
                <p className="mt-2 text-12 text-ink-3">The first {formatCount(rows.length)}. There are more.</p>
              )}
            </>
          )
        }
      </Loaded>
    </div>
  );
}

function RowsTable({ label, rows }: { label: string; rows: readonly Record<string, string | null>[] }) {
  const columns = Object.keys(rows[0] ?? {});
  return (
    <Scrolling label={label} className="max-h-80 overflow-auto rounded-md border border-line">
      <table className="w-full border-collapse font-mono text-12 [&_td]:px-3 [&_td]:py-1.5 [&_th]:px-3 [&_th]:py-1.5">
        <caption className="sr-only">{label}</caption>
        <thead className="sticky top-0 bg-sunken text-ink-3">
          <tr>
            {columns.map((column) => (
              <th key={column} scope="col" className="text-left font-medium whitespace-nowrap">
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={JSON.stringify(row)} className="border-t border-line">
              {columns.map((column) => (
                <td key={column} className="whitespace-nowrap">
                  {row[column] ?? <span className="text-ink-3">none</span>}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scrolling>
  );
}

function InProgress({ books: { holds, spoolsWaiting, lossesNanoUsd, reapedAt } }: { books: Books }) {
  return (
    <Section title="In progress">
      <Figures>
        <Figure
          label="Requests in progress"
          note={holds.oldestAgeMs === null ? "None" : `The oldest for ${formatTook(holds.oldestAgeMs)}`}
        >
          {formatCount(holds.alive)}
        </Figure>
        <Figure
          label="Charges on disk"
          note={spoolsWaiting === 0 ? "No replica has any" : "Replicas that could not write them to Postgres yet"}
        >
          {formatCount(spoolsWaiting)}
        </Figure>
        <Figure label="Losses, 30 days" note="Cost beyond what could be charged">
          {lossesNanoUsd === null ? (
            <span className="text-14 font-normal">Too many to add up</span>
          ) : (
            formatMoney(lossesNanoUsd)
          )}
        </Figure>
        <Figure label="Last clean-up" note="Releases requests whose replica died">
          {reapedAt === null ? <span className="text-14 font-normal">Has not run yet</span> : <Ago iso={reapedAt} />}
        </Figure>
      </Figures>
    </Section>
  );
}

type UnpricedCount = Books["unpriced"][number];

const RATE_NAMES: Readonly<Record<UnpricedCount["kind"], string>> = {
  cache_write: "Cache write",
  cache_write_1h: "Cache write, 1 hour",
  audio_input: "Audio input",
  audio_output: "Audio output",
  image_input: "Image input",
  image_output: "Image output",
};

const UNPRICED_COLUMNS: Column<UnpricedCount>[] = [
  {
    head: "Model",
    cell: ({ modelId }) => (
      <TextLink href={modelHref(modelId)} className="font-mono wrap-anywhere">
        {modelId}
      </TextLink>
    ),
  },
  { head: "Count", cell: ({ kind }) => RATE_NAMES[kind] },
  { head: "Tokens", align: "right", cell: ({ tokens }) => formatCount(BigInt(tokens)) },
  { head: "Requests", align: "right", cell: ({ requests }) => formatCount(requests) },
  { head: "Since", cell: ({ since }) => formatCalendarDay(since) },
  { head: "Last", hideBelow: "md", cell: ({ until }) => formatCalendarDay(until) },
];

/** What providers count apart and the prices of models do not. */
function Unpriced({ counts }: { counts: readonly UnpricedCount[] }) {
  if (counts.length === 0) return null;
  return (
    <Section
      title="Counted, but not priced"
      description="Providers report these tokens apart, and the model has no price for them. They are charged at its dearest input or output price. Days are in UTC."
      flush
    >
      <DataTable
        caption="Counted, but not priced"
        rows={counts}
        rowKey={({ modelId, kind }) => `${kind} ${modelId}`}
        columns={UNPRICED_COLUMNS}
      />
    </Section>
  );
}

/** Fixed widths, so that nothing moves when figures change. */
const REPLICA_COLUMNS: Column<Replica>[] = [
  {
    head: "Replica",
    className: "sm:w-44",
    cell: ({ id }) => <CopyText value={id} what="replica id" />,
  },
  {
    head: "Version",
    hideBelow: "lg",
    cell: ({ version }) => <span className="wrap-anywhere">{version || "Unknown"}</span>,
  },
  { head: "Runtime", hideBelow: "lg", className: "sm:w-24", cell: ({ status }) => RUNTIMES[status?.runtime ?? "none"] },
  { head: "Started", hideBelow: "md", className: "sm:w-28", cell: ({ startedAt }) => <Ago iso={startedAt} /> },
  { head: "Seen", className: "sm:w-24", cell: ({ ageMs }) => (ageMs < 2_000 ? "now" : `${formatDuration(ageMs)} ago`) },
  {
    head: "In flight",
    align: "right",
    className: "sm:w-24",
    cell: ({ status }) => (status ? formatCount(status.inFlight) : ""),
  },
  {
    head: "Ledger p99",
    align: "right",
    className: "sm:w-28",
    cell: ({ status }) =>
      status === null ? "" : status.ledgerP99Ms === null ? "idle" : formatTook(status.ledgerP99Ms),
  },
  { head: "Health", className: "sm:w-48", cell: (replica) => <Health replica={replica} /> },
];
const RUNTIMES = { bun: "Bun", deno: "Deno", none: "" } as const;

function Replicas() {
  const replicas = useQuery({
    queryKey: ["admin", "replicas"],
    queryFn: () => ask(api.admin.replicas.get()),
    refetchInterval: REPLICAS_REFETCH_MS,
  });
  return (
    <Section
      title="Replicas"
      description="Each reports its health every second. A replica that stops reporting is shown for five minutes."
      flush
    >
      <div className="sm:[&_table]:table-fixed">
        <Loaded query={replicas} skeleton={<SkeletonRows rows={2} />}>
          {({ replicas: rows }) => (
            <DataTable
              caption="Replicas"
              rows={rows}
              rowKey={({ id }) => id}
              columns={REPLICA_COLUMNS}
              empty={<Empty>No replica has reported in the last five minutes.</Empty>}
            />
          )}
        </Loaded>
      </div>
    </Section>
  );
}

function Health({ replica: { status, ageMs } }: { replica: Replica }) {
  if (ageMs > SILENT_MS) return <Badge tone="bad">Silent</Badge>;
  if (status === null) return <Badge>Different version</Badge>;
  const troubles: ReactNode[] = [
    !status.databaseUp && (
      <Badge key="database" tone="bad">
        No database
      </Badge>
    ),
    !status.busHealthy && (
      <Badge key="bus" tone="warn">
        Cut off from other replicas
      </Badge>
    ),
    !status.spoolEmpty && (
      <Badge key="spool" tone="warn">
        Spool waits
      </Badge>
    ),
    status.draining && (
      <Badge key="draining" tone="warn">
        Draining
      </Badge>
    ),
  ].filter(Boolean);
  return (
    <span className="inline-flex flex-wrap gap-1">
      {troubles.length > 0 ? troubles : <Badge tone="ok">Healthy</Badge>}
    </span>
  );
}

/** The service at a glance. */
function Today() {
  const overview = useQuery({
    queryKey: ["admin", "overview"],
    queryFn: () => ask(api.admin.overview.get()),
    refetchInterval: OVERVIEW_REFETCH_MS,
  });
  return (
    <Section title="The service today">
      <Loaded query={overview} skeleton={<Skeleton className="h-20" />}>
        {(data) => <OverviewFigures overview={data} />}
      </Loaded>
    </Section>
  );
}

function OverviewFigures({ overview }: { overview: Overview }) {
  const { accountsActive, accountsSuspended, ordersOpen, domainsFailing, requests, providersFailing } = overview;
  return (
    <Figures>
      <Figure
        label="Requests, 24 h"
        note={requests ? `${formatOf(requests.released, "hold")} released, not charged` : "Too many to count here"}
      >
        {requests ? formatCount(requests.settled) : "…"}
      </Figure>
      <Figure
        label="Accounts"
        note={<TextLink href="/admin/people">{formatCount(accountsSuspended)} suspended</TextLink>}
      >
        {formatCount(accountsActive)}
      </Figure>
      <Figure label="Open orders" note={<TextLink href="/admin/orders">All orders</TextLink>}>
        {formatCount(ordersOpen)}
      </Figure>
      <Figure label="Domains failing" note={<TextLink href="/admin/domains">All domains</TextLink>}>
        <span className={domainsFailing > 0 ? "text-warn" : undefined}>{formatCount(domainsFailing)}</span>
      </Figure>
      <Figure
        label="Providers failing"
        note={
          <TextLink href="/admin/providers">
            {providersFailing.length === 0 ? "All providers" : providersFailing.map(({ name }) => name).join(", ")}
          </TextLink>
        }
      >
        <span className={providersFailing.length > 0 ? "text-bad" : undefined}>
          {formatCount(providersFailing.length)}
        </span>
      </Figure>
    </Figures>
  );
}

type Past = Books["history"][number];

const PAST_COLUMNS: Column<Past>[] = [
  { head: "When", cell: ({ checkedAt }) => <Instant iso={checkedAt} seconds /> },
  {
    head: "Result",
    cell: ({ broken, uncounted }) => (
      <span className="inline-flex flex-wrap gap-1">
        {broken > 0 && <Badge tone="bad">{formatCount(broken)} broken</Badge>}
        {uncounted > 0 && <Badge tone="warn">{formatCount(uncounted)} not counted</Badge>}
        {broken === 0 && uncounted === 0 && <Badge tone="ok">Balanced</Badge>}
      </span>
    ),
  },
  { head: "Duration", align: "right", cell: ({ tookMs }) => formatTook(tookMs) },
];

function History({ history }: { history: readonly Past[] }) {
  if (history.length === 0) return null;
  const isFine = history.every(({ broken, uncounted }) => broken === 0 && uncounted === 0);
  return (
    <details className="group rounded-lg border border-line bg-surface">
      <summary className="flex min-h-12 items-center gap-2 px-4 py-2 text-14 font-semibold -outline-offset-2 sm:px-6">
        <ChevronRight
          size={16}
          aria-hidden
          className="flex-none text-ink-3 transition-transform group-open:rotate-90"
        />
        {history.length === 1 ? "The last check" : `The last ${formatCount(history.length)} checks`}
        <span className="font-normal text-ink-2">{isFine ? "all balanced" : "some did not balance"}</span>
      </summary>
      <div className="border-t border-line">
        <DataTable
          caption="The last checks"
          rows={history}
          rowKey={({ checkedAt }) => checkedAt}
          columns={PAST_COLUMNS}
        />
      </div>
    </details>
  );
}
