import { t } from "@lingui/core/macro";
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
  { value: "model", label: t`Models`, head: t`Model`, caption: t`Latency and cached input by model` },
  { value: "key", label: t`Keys`, head: t`Key`, caption: t`Latency and cached input by key` },
  { value: "host", label: t`Hosts`, head: t`Host`, caption: t`Latency and cached input by host` },
] as const;
const HOURS = { value: "hour", label: t`Hours`, head: t`Hour`, caption: t`Latency and cached input by hour` } as const;
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
      title={t`Latency and cached input`}
      description={t`Charged requests. First event: to the first event of a stream, or to the whole answer. Half of the requests took at most the first time, and 95 in 100 at most p95.`}
      action={<Segmented label={t`Lines`} value={kind.value} onValue={setWanted} options={kinds} />}
      flush
    >
      <Loaded query={figures} skeleton={<SkeletonRows rows={3} />}>
        {(data) => (
          <DataTable
            caption={kind.caption}
            rows={data.lines.filter(({ requests }) => requests > 0)}
            rowKey={(line) => String(line.keyId ?? line.modelId ?? line.host ?? line.hour)}
            columns={columnsOf(kind)}
            empty={<Empty>{t`No requests in this period.`}</Empty>}
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
          <span className="wrap-anywhere">
            {line.name ?? line.modelId ?? line.host ?? t`Deleted key ${{ id: String(keyId) }}`}
          </span>
        ),
    },
    { head: t`Requests`, align: "right", cell: ({ requests }) => formatCount(requests) },
    {
      head: t`Tokens`,
      align: "right",
      hideBelow: "md",
      cell: ({ promptTokens, completionTokens }) => formatCompact(promptTokens + completionTokens),
    },
    {
      head: t`Cached input`,
      align: "right",
      cell: ({ cachedTokens, promptTokens }) => (promptTokens === 0 ? "–" : formatShare(cachedTokens / promptTokens)),
    },
    { head: t`First event`, align: "right", cell: ({ firstEvent }) => <Percentiles of={firstEvent} /> },
    {
      head: t`Whole request`,
      align: "right",
      hideBelow: "md",
      cell: ({ wholeAnswer }) => <Percentiles of={wholeAnswer} />,
    },
    {
      head: t({ message: "Charged", context: "column: amount" }),
      align: "right",
      hideBelow: "lg",
      cell: ({ chargedNanoUsd }) => formatMoney(chargedNanoUsd),
    },
  ];
}
