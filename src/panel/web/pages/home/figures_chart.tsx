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
      label: "Money",
      unit: "",
      isBeside: true,
      format: money,
      series: [
        ["Usage revenue", ({ usageRevenueNanoUsd }) => Number(usageRevenueNanoUsd)],
        [costName, ({ costNanoUsd }) => Number(costNanoUsd)],
      ],
    },
    {
      value: "requests",
      label: "Requests",
      unit: "requests",
      isBeside: false,
      format: formatCount,
      series: [
        ["Charged", ({ requests }) => requests],
        ["Ended with an error", ({ errors }) => errors ?? 0],
      ],
    },
    {
      value: "tokens",
      label: "Tokens",
      unit: "tokens",
      isBeside: false,
      format: formatCount,
      series: [
        ["Input", ({ promptTokens, cachedTokens }) => promptTokens - cachedTokens],
        ["Cached input", ({ cachedTokens }) => cachedTokens],
        ["Output", ({ completionTokens }) => completionTokens],
      ],
    },
    {
      value: "latency",
      label: "Latency",
      unit: "",
      isBeside: true,
      format: formatTook,
      series: [
        ["First event: median", ({ firstEvent }) => firstEvent?.p50Ms ?? 0],
        ["First event: p95", ({ firstEvent }) => firstEvent?.p95Ms ?? 0],
        ["Whole request: median", ({ wholeAnswer }) => wholeAnswer?.p50Ms ?? 0],
        ["Whole request: p95", ({ wholeAnswer }) => wholeAnswer?.p95Ms ?? 0],
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
        label="Measure"
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
  const { label, unit, isBeside, format } = measure;
  const series: Series[] = measure.series.map(([name, of], place) => ({ name, place, values: lines.map(of) }));
  return (
    <DayChart
      title={`${label} by ${step}`}
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
