import { plural, t } from "@lingui/core/macro";
import { Plural, Trans } from "@lingui/react/macro";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, ask } from "../../api.ts";
import { formatCompact, formatCount, formatMoney, formatShare, formatTook } from "../../format.ts";
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
  { value: "1", label: t`24 h` },
  { value: "7", label: t`7 days` },
  { value: "30", label: t`30 days` },
  { value: "90", label: t`90 days` },
  { value: "own", label: t`Dates` },
] as const;

type Data = NonNullable<Awaited<ReturnType<typeof api.figures.get>>["data"]>;
type Counts = Data["total"];
type State = { period: string; by: string; from: string; to: string };

function PeriodNote({ from, to }: { from: string; to: string }) {
  return (
    <p className="text-12 text-ink-3">
      <Trans>
        <Instant iso={from} /> to <Instant iso={to} />, compared with the same time before. A package that was assigned
        without an order has no known price: its requests add nothing to usage revenue.
      </Trans>
    </p>
  );
}

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
      title={t`Usage revenue and margin`}
      description={leadOf(of, isAdmin)}
      action={
        <Segmented label={t`Period`} value={period} onValue={(next) => setState({ period: next })} options={PERIODS} />
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
              <PeriodNote from={data.from} to={data.to} />
            </div>
            <FiguresChart
              queryKey={key}
              queryOf={queryOf}
              step={stepOf(period, data)}
              costName={isAdmin ? t`Provider cost` : t`Cost`}
            />
            <ErrorCodes data={data} />
            <div className="px-4 pb-3 sm:px-6">
              <Segmented label={t`Table`} value={by} onValue={(next) => setState({ by: next })} options={kinds} />
            </div>
            <DataTable
              caption={kind?.caption ?? ""}
              rows={data.lines}
              rowKey={({ modelId, routeId, accountId, host, keyId }) =>
                [by, modelId, routeId, accountId, host, keyId].join(" ")
              }
              rowHref={(line) => lineHref(by, line, { of, isAdmin })}
              columns={columnsOf(by, kind?.head ?? "", isAdmin)}
              empty={<Empty>{t`No requests in this period.`}</Empty>}
            />
            {data.hasMore && (
              <p className="px-4 py-3 text-13 text-ink-2 sm:px-6">
                {plural(
                  { lines: data.lines.length },
                  { one: "The # with the most requests.", other: "The # with the most requests." },
                )}
              </p>
            )}
          </>
        )}
      </Loaded>
    </Section>
  );
}

function leadOf({ accountId, resellerId }: FiguresOf, isAdmin: boolean): string {
  if (accountId !== undefined)
    return isAdmin
      ? t`What these requests brought you, and what providers charge you for them.`
      : t`What these requests brought you, and what they cost you.`;
  // Only admins see a reseller's figures.
  if (resellerId !== undefined)
    return t`What the requests of its customers brought you, and what providers charge you for them.`;
  return isAdmin
    ? t`What requests brought you, and what providers charge you for them.`
    : t`What your customers' requests brought you, and what they cost you.`;
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
      <DateInput label={t`First day`} value={state.from} onValue={(from) => setState({ from })} />
      <span className="text-ink-2">{t({ message: "to", context: "between two days" })}</span>
      <DateInput label={t`Last day`} value={state.to} onValue={(to) => setState({ to })} />
      <span className="text-ink-3">
        <Trans>Days of UTC. At most 366.</Trans>
      </span>
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
          label={t`Usage revenue`}
          note={money((counts) => counts.usageRevenueNanoUsd, t`Charged to balances, and used units of packages.`)}
        >
          {formatMoney(total.usageRevenueNanoUsd)}
        </Figure>
        <Figure
          label={isAdmin ? t`Provider cost` : t`Cost`}
          note={money(
            (counts) => counts.costNanoUsd,
            isAdmin ? t`As the receipts say.` : t`Without your markups, and packages at wholesale.`,
          )}
        >
          {formatMoney(total.costNanoUsd)}
        </Figure>
        <Figure label={t`Margin`} note={money((counts) => counts.marginNanoUsd, t`Usage revenue − cost.`)}>
          <span className={isLoss ? "text-bad" : undefined}>{formatMoney(total.marginNanoUsd)}</span>
        </Figure>
        <Figure
          label={t`Tokens`}
          note={<Before now={tokensOf(total)} then={tokensOf(before)} said={formatCompact(tokensOf(before))} />}
        >
          {formatCompact(tokensOf(total))}
        </Figure>
      </Figures>
      {unknown > 0 && (
        <p className="text-13 text-warn">
          <Trans>
            The provider cost of <Plural value={unknown} one="# request" other="# requests" /> is not known. It is not
            in the cost, so the margin is lower than shown.
          </Trans>
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
        label={t`Requests`}
        note={<Before now={total.requests} then={before.requests} said={formatCount(before.requests)} />}
      >
        {formatCount(total.requests)}
      </Figure>
      <Figure
        label={t`Error rate`}
        note={
          <>
            {t`${plural({ errors: sumOf(data.errors) }, { one: "# error", other: "# errors" })} ÷ (errors + requests).`}{" "}
            <span className="text-ink-3">{t`Before: ${{ rate: formatShare(rateBefore) }}.`}</span>
          </>
        }
      >
        {formatShare(rate)}
      </Figure>
      <Latency label={t`First event: median`} now={total.firstEvent} then={before.firstEvent} />
      <Latency label={t`Whole request: median`} now={total.wholeAnswer} then={before.wholeAnswer} />
    </Figures>
  );
}

function Latency({ label, now, then }: { label: string; now: Counts["firstEvent"]; then: Counts["firstEvent"] }) {
  return (
    <Figure
      label={label}
      note={
        <>
          {now && `${t`95 in 100 took at most ${{ took: formatTook(now.p95Ms) }}.`} `}
          <span className="text-ink-3">
            {then
              ? t`Before: ${{ median: formatTook(then.p50Ms) }} and ${{ p95: formatTook(then.p95Ms) }}.`
              : t`Nothing to compare with.`}
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
    <section aria-label={t`Errors by code`} className="grid gap-2 border-t border-line px-4 py-4 sm:px-6">
      <h3 className="text-13">
        <Trans>Errors by code</Trans>
      </h3>
      <ul className="flex flex-wrap gap-x-6 gap-y-1 text-13 tabular-nums">
        {errors.map(({ code, requests }) => (
          <li key={code}>
            {refusalName(code)} <strong className="font-semibold">{formatCount(requests)}</strong>{" "}
            <span className="text-ink-3">{t`before ${{ count: formatCount(before.get(code) ?? 0) }}`}</span>
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
  return <span className="text-ink-3">{beforeText(now, then, said)}</span>;
}

function beforeText(now: number, then: number, said: string): string {
  if (then === 0) return now === 0 ? t`As before.` : t`${said} before.`;
  const change = (now - then) / Math.abs(then);
  if (change === 0) return t`As before: ${said}.`;
  const share = formatShare(Math.abs(change));
  return change > 0 ? t`Up ${share} from ${said}.` : t`Down ${share} from ${said}.`;
}

function columnsOf(by: LineKind["value"], head: string, isAdmin: boolean): Column<Line>[] {
  return [
    { head, cell: (line) => <span className="wrap-anywhere">{lineName(by, line)}</span> },
    { head: t`Requests`, align: "right", cell: ({ requests }) => formatCount(requests) },
    ...(by === "model" || by === "account" || by === "reseller" ? [ERRORS] : []),
    { head: t`Tokens`, align: "right", hideBelow: "lg", cell: (line) => formatCompact(tokensOf(line)) },
    {
      head: t`Cached input`,
      align: "right",
      hideBelow: "xl",
      cell: ({ cachedTokens, promptTokens }) => (promptTokens === 0 ? "–" : formatShare(cachedTokens / promptTokens)),
    },
    {
      head: t`First event`,
      align: "right",
      hideBelow: "xl",
      cell: ({ firstEvent }) => <Percentiles of={firstEvent} />,
    },
    {
      head: t`Whole request`,
      align: "right",
      hideBelow: "xl",
      cell: ({ wholeAnswer }) => <Percentiles of={wholeAnswer} />,
    },
    { head: t`Usage revenue`, align: "right", cell: ({ usageRevenueNanoUsd }) => formatMoney(usageRevenueNanoUsd) },
    {
      head: isAdmin ? t`Provider cost` : t`Cost`,
      align: "right",
      hideBelow: "md",
      cell: (line) => <Cost line={line} />,
    },
    { head: t`Margin`, align: "right", cell: ({ marginNanoUsd }) => formatMoney(marginNanoUsd) },
  ];
}

const ERRORS: Column<Line> = {
  head: t`Error rate`,
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
      <span className="block text-12 text-ink-3">
        {plural(costUnknown, { one: "# not known", other: "# not known" })}
      </span>
    </>
  );
}
