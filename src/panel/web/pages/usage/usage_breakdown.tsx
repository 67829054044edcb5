import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, ask } from "../../api.ts";
import { formatCompact, formatCount, formatMoney, formatShare } from "../../format.ts";
import { Percentiles } from "../../shared/percentiles.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";

/** What an account used by model, key or host, or in the last day by hour: with latency and the share of cached input. */

const DAY_MS = 86_400_000;
/** The longest period of figures. */
const DAYS_MAX = 366;
const KINDS = [
  { value: "model", label: "Models", head: "Model" },
  { value: "key", label: "Keys", head: "Key" },
  { value: "host", label: "Hosts", head: "Host" },
] as const;
const HOURS = { value: "hour", label: "Hours", head: "Hour" } as const;
type Kind = (typeof KINDS)[number] | typeof HOURS;

type Line = NonNullable<Awaited<ReturnType<typeof api.usage.figures.get>>["data"]>["lines"][number];

export function UsageBreakdown({ accountId, days }: { accountId: number | null; days: number }) {
  const kinds: readonly Kind[] = days === 1 ? [...KINDS, HOURS] : KINDS;
  const [wanted, setWanted] = useState<Kind["value"]>("model");
  const kind = kinds.find(({ value }) => value === wanted) ?? KINDS[0];
  const figures = useQuery({
    queryKey: ["usage", "figures", accountId, kind.value, days],
    queryFn: () => {
      const start = new Date(nowMs() - Math.min(days, DAYS_MAX - 1) * DAY_MS).toISOString();
      return ask(api.usage.figures.get({ query: { by: kind.value, start, ...(accountId !== null && { accountId }) } }));
    },
    placeholderData: keepPreviousData,
  });
  return (
    <Section
      title="Latency and cached input"
      description="Charged requests. First event: to the first event of a stream, or to the whole answer. Half of the requests took at most the first time, and 95 in 100 at most p95."
      action={<Segmented label="Lines" value={kind.value} onValue={setWanted} options={kinds} />}
      flush
    >
      <Loaded query={figures} skeleton={<SkeletonRows rows={3} />}>
        {(data) => (
          <DataTable
            caption={`Latency and cached input by ${kind.value}`}
            rows={data.lines.filter(({ requests }) => requests > 0)}
            rowKey={(line) => String(line.keyId ?? line.modelId ?? line.host ?? line.hour)}
            columns={columnsOf(kind)}
            empty={<Empty>No requests in this period.</Empty>}
          />
        )}
      </Loaded>
    </Section>
  );
}

function columnsOf({ value, head }: Kind): Column<Line>[] {
  return [
    {
      head,
      cell: ({ hour, keyId, ...line }) =>
        value === "hour" && hour !== null ? (
          <Instant iso={hour} />
        ) : (
          <span className="wrap-anywhere">{line.name ?? line.modelId ?? line.host ?? `Deleted key ${keyId}`}</span>
        ),
    },
    { head: "Requests", align: "right", cell: ({ requests }) => formatCount(requests) },
    {
      head: "Tokens",
      align: "right",
      hideBelow: "md",
      cell: ({ promptTokens, completionTokens }) => formatCompact(promptTokens + completionTokens),
    },
    {
      head: "Cached input",
      align: "right",
      cell: ({ cachedTokens, promptTokens }) => (promptTokens === 0 ? "–" : formatShare(cachedTokens / promptTokens)),
    },
    { head: "First event", align: "right", cell: ({ firstEvent }) => <Percentiles of={firstEvent} /> },
    {
      head: "Whole request",
      align: "right",
      hideBelow: "md",
      cell: ({ wholeAnswer }) => <Percentiles of={wholeAnswer} />,
    },
    { head: "Charged", align: "right", hideBelow: "lg", cell: ({ chargedNanoUsd }) => formatMoney(chargedNanoUsd) },
  ];
}
