import { keepPreviousData, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, ask } from "../../api.ts";
import { formatCompact, formatCount, formatMoney, formatOf, formatShare, formatTook } from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { Percentiles } from "../../shared/percentiles.tsx";
import { oneOf } from "../../shared/url_values.ts";
import { Segmented } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { TextInput } from "../../ui/fields.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Figure, Figures, Section } from "../../ui/page.tsx";
import { Empty, Loaded, Skeleton } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { refusalName } from "../usage/request_text.ts";
import { type FiguresOf, type Line, type LineKind, lineHref, lineKindsOf, lineName } from "./figure_lines.ts";
import { FiguresChart, type Step } from "./figures_chart.tsx";

/**
 * What requests brought in a period, how long they took and which errors there were, beside the period before: of all that one
 * manages, of one account, or of one reseller's customers. The URL contains the period and what the table is by.
 */

const DAY_MS = 86_400_000;
const REFETCH_MS = 60_000;
const DATE_CHARS = 10;
const BARS_MAX = 92;
const PERIODS = [
  { value: "1", label: "24 h" },
  { value: "7", label: "7 days" },
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
  { value: "own", label: "Dates" },
] as const;

type Data = NonNullable<Awaited<ReturnType<typeof api.figures.get>>["data"]>;
type Counts = Data["total"];
type State = { period: string; by: string; from: string; to: string };

export function UsageFigures({ of = {} }: { of?: FiguresOf }) {
  const isAdmin = useViewer().role === "admin";
  const [state, setState] = useUrlState({ period: "30", by: "model", from: "", to: "" });
  const period = oneOf(PERIODS, state.period, "30");
  const kinds = lineKindsOf(of, isAdmin);
  const kind = kinds.find(({ value }) => value === state.by) ?? kinds[0];
  const by = kind?.value ?? "model";
  const key = ["figures", of, period, state.from, state.to];
  const queryOf = () => ({ ...of, ...rangeOf(period, state) });
  const figures = useQuery({
    queryKey: [...key, by],
    queryFn: () => ask(api.figures.get({ query: { ...queryOf(), by } })),
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });
  return (
    <Section
      title="Usage revenue and margin"
      description={`What ${whoseOf(of, isAdmin)} brought you, and what ${isAdmin ? "providers charge you for them" : "they cost you"}.`}
      action={
        <Segmented label="Period" value={period} onValue={(next) => setState({ period: next })} options={PERIODS} />
      }
      flush
    >
      {period === "own" && <OwnRange state={state} setState={setState} />}
      <Loaded query={figures} skeleton={<Skeleton className="m-6 h-48" />}>
        {(data) => (
          <>
            <div className="grid gap-6 px-4 py-4 sm:px-6">
              <MoneyFigures data={data} isAdmin={isAdmin} />
              <RequestFigures data={data} />
              <p className="text-12 text-ink-3">
                <Instant iso={data.from} /> to <Instant iso={data.to} />, compared with the same time before. A package
                that was assigned without an order has no known price: its requests add nothing to usage revenue.
              </p>
            </div>
            <FiguresChart
              queryKey={key}
              queryOf={queryOf}
              step={stepOf(period, data)}
              costName={isAdmin ? "Provider cost" : "Cost"}
            />
            <ErrorCodes data={data} />
            <div className="px-4 pb-3 sm:px-6">
              <Segmented label="Table" value={by} onValue={(next) => setState({ by: next })} options={kinds} />
            </div>
            <DataTable
              caption={`Usage revenue and margin by ${by}`}
              rows={data.lines}
              rowKey={(line) => `${by} ${lineName(by, line)} ${line.accountId ?? line.routeId ?? line.keyId ?? ""}`}
              rowHref={(line) => lineHref(by, line, { of, isAdmin })}
              columns={columnsOf(by, kind?.head ?? "", isAdmin)}
              empty={<Empty>No requests in this period.</Empty>}
            />
            {data.hasMore && (
              <p className="px-4 py-3 text-13 text-ink-2 sm:px-6">
                The {formatCount(data.lines.length)} with the most requests.
              </p>
            )}
          </>
        )}
      </Loaded>
    </Section>
  );
}

function whoseOf({ accountId, resellerId }: FiguresOf, isAdmin: boolean): string {
  if (accountId !== undefined) return "these requests";
  if (resellerId !== undefined) return "the requests of its customers";
  return isAdmin ? "requests" : "your customers' requests";
}

/** Hours of a day, months of more than 92 days. */
function stepOf(period: (typeof PERIODS)[number]["value"], { from, to }: Data): Step {
  if (period === "1") return "hour";
  return Date.parse(to) - Date.parse(from) > BARS_MAX * DAY_MS ? "month" : "day";
}

/** The period as the server takes it. Days are those of UTC; the last one is whole. */
function rangeOf(period: (typeof PERIODS)[number]["value"], { from, to }: State): { start?: string; end?: string } {
  if (period !== "own") return { start: new Date(nowMs() - Number(period) * DAY_MS).toISOString() };
  const end = to === "" ? Number.NaN : Date.parse(to) + DAY_MS;
  return { ...(from !== "" && { start: from }), ...(Number.isFinite(end) && { end: new Date(end).toISOString() }) };
}

function OwnRange({ state, setState }: { state: State; setState: (changes: Partial<State>) => void }) {
  return (
    <div className="flex flex-wrap items-center gap-2 border-b border-line px-4 pb-4 text-13 sm:px-6">
      <DateInput label="First day" value={state.from} onValue={(from) => setState({ from })} />
      <span className="text-ink-2">to</span>
      <DateInput label="Last day" value={state.to} onValue={(to) => setState({ to })} />
      <span className="text-ink-3">Days of UTC. At most 366.</span>
    </div>
  );
}

function DateInput(input: { label: string; value: string; onValue: (value: string) => void }) {
  const { label, ...rest } = input;
  return <TextInput type="date" aria-label={label} maxLength={DATE_CHARS} className="w-40" {...rest} />;
}

function MoneyFigures({ data: { total, before }, isAdmin }: { data: Data; isAdmin: boolean }) {
  const isLoss = BigInt(total.marginNanoUsd) < 0n;
  const unknown = total.costUnknown ?? 0;
  const money = (pick: (counts: Counts) => string, says: string) => (
    <>
      {says} <Before now={Number(pick(total))} then={Number(pick(before))} said={formatMoney(pick(before))} />
    </>
  );
  return (
    <>
      <Figures>
        <Figure
          label="Usage revenue"
          note={money((counts) => counts.usageRevenueNanoUsd, "Charged to balances, and used units of packages.")}
        >
          {formatMoney(total.usageRevenueNanoUsd)}
        </Figure>
        <Figure
          label={isAdmin ? "Provider cost" : "Cost"}
          note={money(
            (counts) => counts.costNanoUsd,
            isAdmin ? "As the receipts say." : "Without your markups, and packages at wholesale.",
          )}
        >
          {formatMoney(total.costNanoUsd)}
        </Figure>
        <Figure label="Margin" note={money((counts) => counts.marginNanoUsd, "Usage revenue − cost.")}>
          <span className={isLoss ? "text-bad" : undefined}>{formatMoney(total.marginNanoUsd)}</span>
        </Figure>
        <Figure
          label="Tokens"
          note={<Before now={tokensOf(total)} then={tokensOf(before)} said={formatCompact(tokensOf(before))} />}
        >
          {formatCompact(tokensOf(total))}
        </Figure>
      </Figures>
      {unknown > 0 && (
        <p className="text-13 text-warn">
          The provider cost of {formatOf(unknown, "request")} is not known. It is not in the cost, so the margin is
          lower than shown.
        </p>
      )}
    </>
  );
}

function RequestFigures({ data: { total, before, ...data } }: { data: Data }) {
  const [rate, rateBefore] = [errorRate(total.requests, data.errors), errorRate(before.requests, data.errorsBefore)];
  return (
    <Figures>
      <Figure
        label="Requests"
        note={<Before now={total.requests} then={before.requests} said={formatCount(before.requests)} />}
      >
        {formatCount(total.requests)}
      </Figure>
      <Figure
        label="Error rate"
        note={
          <>
            {formatOf(sumOf(data.errors), "error")} ÷ (errors + requests).{" "}
            <span className="text-ink-3">Before: {formatShare(rateBefore)}.</span>
          </>
        }
      >
        {formatShare(rate)}
      </Figure>
      <Latency label="First event" now={total.firstEvent} then={before.firstEvent} />
      <Latency label="Whole request" now={total.wholeAnswer} then={before.wholeAnswer} />
    </Figures>
  );
}

function Latency({ label, now, then }: { label: string; now: Counts["firstEvent"]; then: Counts["firstEvent"] }) {
  return (
    <Figure
      label={`${label}: median`}
      note={
        <>
          {now && `95 in 100 took at most ${formatTook(now.p95Ms)}. `}
          <span className="text-ink-3">
            {then ? `Before: ${formatTook(then.p50Ms)} and ${formatTook(then.p95Ms)}.` : "Nothing to compare with."}
          </span>
        </>
      }
    >
      {now ? formatTook(now.p50Ms) : "–"}
    </Figure>
  );
}

/** How many errors there were of each code, now and before. */
function ErrorCodes({ data: { errors, errorsBefore } }: { data: Data }) {
  if (errors.length === 0) return null;
  const before = new Map(errorsBefore.map(({ code, requests }) => [code, requests]));
  return (
    <section aria-label="Errors by code" className="grid gap-2 border-t border-line px-4 py-4 sm:px-6">
      <h3 className="text-13">Errors by code</h3>
      <ul className="flex flex-wrap gap-x-6 gap-y-1 text-13 tabular-nums">
        {errors.map(({ code, requests }) => (
          <li key={code}>
            {refusalName(code)} <strong className="font-semibold">{formatCount(requests)}</strong>{" "}
            <span className="text-ink-3">before {formatCount(before.get(code) ?? 0)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

const tokensOf = ({ promptTokens, completionTokens }: Counts) => promptTokens + completionTokens;
const sumOf = (errors: Data["errors"]) => errors.reduce((sum, { requests }) => sum + requests, 0);

const errorRate = (requests: number, errors: Data["errors"]) => shareOf(requests, sumOf(errors));

function shareOf(requests: number, failed: number): number {
  return failed === 0 ? 0 : failed / (failed + requests);
}

/** "Up 12% from $3.40" */
function Before({ now, then, said }: { now: number; then: number; said: string }): ReactNode {
  if (then === 0) return <span className="text-ink-3">{now === 0 ? "As before." : `${said} before.`}</span>;
  const change = (now - then) / Math.abs(then);
  const words = change === 0 ? "As before:" : `${change > 0 ? "Up" : "Down"} ${formatShare(Math.abs(change))} from`;
  return (
    <span className="text-ink-3">
      {words} {said}.
    </span>
  );
}

function columnsOf(by: LineKind["value"], head: string, isAdmin: boolean): Column<Line>[] {
  return [
    { head, cell: (line) => <span className="wrap-anywhere">{lineName(by, line)}</span> },
    { head: "Requests", align: "right", cell: ({ requests }) => formatCount(requests) },
    ...(by === "model" || by === "account" || by === "reseller" ? [ERRORS] : []),
    { head: "Tokens", align: "right", hideBelow: "lg", cell: (line) => formatCompact(tokensOf(line)) },
    {
      head: "Cached input",
      align: "right",
      hideBelow: "xl",
      cell: ({ cachedTokens, promptTokens }) => (promptTokens === 0 ? "–" : formatShare(cachedTokens / promptTokens)),
    },
    { head: "First event", align: "right", hideBelow: "xl", cell: ({ firstEvent }) => <Percentiles of={firstEvent} /> },
    {
      head: "Whole request",
      align: "right",
      hideBelow: "xl",
      cell: ({ wholeAnswer }) => <Percentiles of={wholeAnswer} />,
    },
    { head: "Usage revenue", align: "right", cell: ({ usageRevenueNanoUsd }) => formatMoney(usageRevenueNanoUsd) },
    {
      head: isAdmin ? "Provider cost" : "Cost",
      align: "right",
      hideBelow: "md",
      cell: (line) => <Cost line={line} />,
    },
    { head: "Margin", align: "right", cell: ({ marginNanoUsd }) => formatMoney(marginNanoUsd) },
  ];
}

const ERRORS: Column<Line> = {
  head: "Error rate",
  align: "right",
  hideBelow: "lg",
  cell: ({ errors, requests }) => formatShare(shareOf(requests, errors ?? 0)),
};

/** Says of how many requests the cost is not known. */
function Cost({ line: { costNanoUsd, costUnknown } }: { line: Line }) {
  if (costUnknown === null || costUnknown === 0) return formatMoney(costNanoUsd);
  return (
    <>
      {formatMoney(costNanoUsd)}
      <span className="block text-12 text-ink-3">{formatCount(costUnknown)} not known</span>
    </>
  );
}
