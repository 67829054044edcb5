import { select, t } from "@lingui/core/macro";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, ask } from "../../api.ts";
import { formatCompact, formatCount, formatMoney, formatTook } from "../../format.ts";
import { DayChart, type Series } from "../../ui/chart.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";

/** Figures by hour, day or month: money, requests with errors, tokens, and how long requests took. */

const REFETCH_MS = 60_000;

type Line = NonNullable<Awaited<ReturnType<typeof api.figures.get>>["data"]>["lines"][number];
type Query = { start?: string; end?: string; accountId?: number; resellerId?: number };
/** What a bar is of. */
export type Step = "hour" | "day" | "month";

type Measure = {
  value: string;
  label: string;
  /** Of the chart. */
  title: (step: Step) => string;
  unit: string;
  /** The amounts are no parts of a whole. */
  isBeside: boolean;
  format: (amount: number) => string;
  series: readonly (readonly [name: string, of: (line: Line) => number])[];
};

/** $0.0004: labels of a lower axis would not fit beside it. */
const MONEY_TOP_MIN = 400_000;

const money = (nanoUsd: number) => formatMoney(BigInt(Math.round(nanoUsd)));

function measuresOf(costName: string): [Measure, ...Measure[]] {
  return [
    {
      value: "money",
      label: t`Money`,
      title: (step) => select(step, { hour: "Money by hour", day: "Money by day", other: "Money by month" }),
      unit: "",
      isBeside: true,
      format: money,
      series: [
        [t`Usage revenue`, ({ usageRevenueNanoUsd }) => Number(usageRevenueNanoUsd)],
        [costName, ({ costNanoUsd }) => Number(costNanoUsd)],
      ],
    },
    {
      value: "requests",
      label: t`Requests`,
      title: (step) => select(step, { hour: "Requests by hour", day: "Requests by day", other: "Requests by month" }),
      unit: t`requests`,
      isBeside: false,
      format: formatCount,
      series: [
        [t({ message: "Charged", context: "requests" }), ({ requests }) => requests],
        [t`Ended with an error`, ({ errors }) => errors ?? 0],
      ],
    },
    {
      value: "tokens",
      label: t`Tokens`,
      title: (step) => select(step, { hour: "Tokens by hour", day: "Tokens by day", other: "Tokens by month" }),
      unit: t`tokens`,
      isBeside: false,
      format: formatCount,
      series: [
        [t`Input`, ({ promptTokens, cachedTokens }) => promptTokens - cachedTokens],
        [t`Cached input`, ({ cachedTokens }) => cachedTokens],
        [t`Output`, ({ completionTokens }) => completionTokens],
      ],
    },
    {
      value: "latency",
      label: t`Latency`,
      title: (step) => select(step, { hour: "Latency by hour", day: "Latency by day", other: "Latency by month" }),
      unit: "",
      isBeside: true,
      format: formatTook,
      series: [
        [t`First event: median`, ({ firstEvent }) => firstEvent?.p50Ms ?? 0],
        [t`First event: p95`, ({ firstEvent }) => firstEvent?.p95Ms ?? 0],
        [t`Whole request: median`, ({ wholeAnswer }) => wholeAnswer?.p50Ms ?? 0],
        [t`Whole request: p95`, ({ wholeAnswer }) => wholeAnswer?.p95Ms ?? 0],
      ],
    },
  ];
}

export function FiguresChart({
  queryKey,
  queryOf,
  step,
  costName,
}: {
  queryKey: readonly unknown[];
  queryOf: () => Query;
  step: Step;
  costName: string;
}) {
  const measures = measuresOf(costName);
  const [wanted, setWanted] = useState("money");
  const measure = measures.find(({ value }) => value === wanted) ?? measures[0];
  const figures = useQuery({
    queryKey: [...queryKey, step],
    queryFn: () => ask(api.figures.get({ query: { ...queryOf(), by: step } })),
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });
  return (
    <div className="grid grid-cols-[minmax(0,1fr)] gap-4 border-t border-line px-4 py-4 sm:px-6">
      <Segmented
        label={t({ message: "Measure", context: "what a chart shows" })}
        value={measure.value}
        onValue={setWanted}
        options={measures}
        className="justify-self-start"
      />
      <Loaded query={figures} skeleton={<Skeleton className="h-72 rounded-md" />}>
        {({ lines }) => <Chart lines={lines} step={step} measure={measure} />}
      </Loaded>
    </div>
  );
}

function Chart({ lines, step, measure }: { lines: readonly Line[]; step: Step; measure: Measure }) {
  const { title, unit, isBeside, format } = measure;
  const series: Series[] = measure.series.map(([name, of], place) => ({ name, place, values: lines.map(of) }));
  return (
    <DayChart
      title={title(step)}
      unit={unit}
      zone="UTC"
      step={step}
      isBeside={isBeside}
      days={lines.map(({ hour, day, month }) => hour ?? day?.slice(0, DATE_CHARS) ?? month ?? "")}
      series={series}
      format={format}
      topMin={format === money ? MONEY_TOP_MIN : 0}
      formatAxis={unit === "" ? format : formatCompact}
    />
  );
}

/** Of "2026-11-21T00:00:00Z". */
const DATE_CHARS = 10;
