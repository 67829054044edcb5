import { plural, t } from "@lingui/core/macro";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, ask } from "../../api.ts";
import { formatCompact, formatMoney } from "../../format.ts";
import { DayChart } from "../../ui/chart.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { Section } from "../../ui/page.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";

/**
 * Charged requests by day and model: as requests, tokens or, if the balance was charged, money.
 *
 *   <UsageChart title="Last 30 days" filter={{}} days={30} empty={<Empty>…</Empty>} />
 */

export type ChartFilter = {
  accountId?: number;
  keyId?: number;
  model?: string;
  host?: string;
  mode?: "package" | "payg";
};

const MEASURES = [
  { value: "requests", label: t`Requests`, title: t`Requests by model and day`, unit: t`requests` },
  { value: "tokens", label: t`Tokens`, title: t`Tokens by model and day`, unit: t`tokens` },
  { value: "charged", label: t`Cost`, title: t`Cost by model and day`, unit: "" },
] as const;
type Measure = (typeof MEASURES)[number]["value"];
type Days = NonNullable<Awaited<ReturnType<typeof api.usage.days.get>>["data"]>;

export function UsageChart({
  title,
  filter,
  days,
  empty,
}: {
  title: string;
  filter: ChartFilter;
  /** At most 92. */
  days: number;
  /** Shown if there is no usage. */
  empty: ReactNode;
}) {
  const [measure, setMeasure] = useState<Measure>("requests");
  const usage = useQuery({
    queryKey: ["usage", "days", filter, days],
    queryFn: () => ask(api.usage.days.get({ query: { ...filter, days } })),
    placeholderData: keepPreviousData,
  });
  const sums = usage.data && sumUp(usage.data);
  const shown = measure === "charged" && sums?.nanoUsd === 0n ? "requests" : measure;
  if (usage.data?.rows.length === 0) return empty;
  return (
    <Section
      title={title}
      description={sums && sumText(sums)}
      action={
        <Segmented
          label={t`Measure`}
          value={shown}
          onValue={setMeasure}
          options={sums && sums.nanoUsd > 0n ? MEASURES : MEASURES.slice(0, 2)}
        />
      }
    >
      <Loaded query={usage} skeleton={<Skeleton className="h-72 rounded-md" />}>
        {(data) => <Chart data={data} measure={shown} />}
      </Loaded>
    </Section>
  );
}

function Chart({ data, measure }: { data: Days; measure: Measure }) {
  const { title, unit } = MEASURES.find(({ value }) => value === measure) ?? MEASURES[0];
  return (
    <DayChart
      title={title}
      unit={unit}
      zone={data.timeZone}
      days={data.days}
      series={seriesOf(data, measure)}
      {...(measure === "charged" && { format: money, formatAxis: money })}
    />
  );
}

function money(nanoUsd: number): string {
  return formatMoney(BigInt(Math.round(nanoUsd)));
}

type Sums = { requests: number; tokens: number; nanoUsd: bigint };

function sumUp({ models }: Days): Sums {
  return {
    requests: models.reduce((sum, each) => sum + each.requests, 0),
    tokens: models.reduce((sum, each) => sum + each.promptTokens + each.completionTokens, 0),
    nanoUsd: models.reduce((sum, each) => sum + BigInt(each.chargedNanoUsd), 0n),
  };
}

/** "1,204 requests, 3.2M tokens, $4.20" */
function sumText({ requests, tokens, nanoUsd }: Sums): string {
  const parts = [
    plural({ count: requests }, { one: "# request", other: "# requests" }),
    t`${{ count: formatCompact(tokens) }} tokens`,
  ];
  return [...parts, ...(nanoUsd > 0n ? [formatMoney(nanoUsd)] : [])].join(", ");
}

function seriesOf({ days, rows, models }: Days, measure: Measure) {
  return models.map(({ modelId, place }) => {
    const own = new Map(rows.filter((row) => row.modelId === modelId).map((row) => [row.day, row]));
    const values = days.map((day) => {
      const row = own.get(day);
      if (row === undefined) return 0;
      if (measure === "charged") return Number(row.chargedNanoUsd);
      return measure === "requests" ? row.requests : row.promptTokens + row.completionTokens;
    });
    return { name: modelId, place, values };
  });
}
