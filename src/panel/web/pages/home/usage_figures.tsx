import { keepPreviousData, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, ask } from "../../api.ts";
import { formatCompact, formatCount, formatMoney, formatOf, formatShare } from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { oneOf } from "../../shared/url_values.ts";
import { Segmented } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Figure, Figures, Section } from "../../ui/page.tsx";
import { Empty, Loaded, Skeleton } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";

/**
 * What requests brought in a period: usage revenue, cost and margin, beside the period before. An admin sees the whole
 * service, a reseller its customers. The URL contains the period and what the table is by.
 */

const DAY_MS = 86_400_000;
const REFETCH_MS = 60_000;
const PERIODS = [
  { value: "1", label: "24 h" },
  { value: "7", label: "7 days" },
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
] as const;
const BY = [
  { value: "model", label: "By model" },
  { value: "route", label: "By route" },
] as const;

type Data = NonNullable<Awaited<ReturnType<typeof api.figures.get>>["data"]>;
type Line = Data["lines"][number];
type Counts = Data["total"];

export function UsageFigures() {
  const isAdmin = useViewer().role === "admin";
  const [state, setState] = useUrlState({ period: "30", by: "model" });
  const period = oneOf(PERIODS, state.period, "30");
  const by = isAdmin ? oneOf(BY, state.by, "model") : "model";
  const figures = useQuery({
    queryKey: ["figures", period, by],
    queryFn: () => {
      const start = new Date(nowMs() - Number(period) * DAY_MS).toISOString();
      return ask(api.figures.get({ query: { start, by } }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFETCH_MS,
  });
  return (
    <Section
      title="Usage revenue and margin"
      description={
        isAdmin
          ? "What requests brought you, and what providers charge you for them."
          : "What your customers' requests brought you, and what they cost you."
      }
      action={
        <Segmented label="Period" value={period} onValue={(next) => setState({ period: next })} options={PERIODS} />
      }
      flush
    >
      <Loaded query={figures} skeleton={<Skeleton className="m-6 h-48" />}>
        {(data) => (
          <>
            <div className="grid gap-4 px-4 py-4 sm:px-6">
              <Sums data={data} isAdmin={isAdmin} />
              <p className="text-12 text-ink-3">
                Since <Instant iso={data.from} />, compared with the {formatOf(Number(period), "day")} before. A package
                that was assigned without an order has no known price: its requests add nothing to usage revenue.
              </p>
            </div>
            {isAdmin && (
              <div className="px-4 pb-3 sm:px-6">
                <Segmented label="Table" value={by} onValue={(next) => setState({ by: next })} options={BY} />
              </div>
            )}
            <DataTable
              caption={`Usage revenue and margin by ${by}`}
              rows={data.lines}
              rowKey={nameOf}
              columns={columnsOf(by)}
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

function Sums({ data: { total, before }, isAdmin }: { data: Data; isAdmin: boolean }) {
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
          label="Requests"
          note={<Before now={total.requests} then={before.requests} said={formatCount(before.requests)} />}
        >
          {formatCount(total.requests)}
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

const tokensOf = ({ promptTokens, completionTokens }: Counts) => promptTokens + completionTokens;

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

function nameOf({ name, modelId, routeId }: Line): string {
  return name ?? modelId ?? (routeId === null ? "Not known" : `Deleted route ${routeId}`);
}

function columnsOf(by: "model" | "route"): Column<Line>[] {
  return [
    {
      head: by === "model" ? "Model" : "Route",
      cell: (line) => <span className="font-mono wrap-anywhere">{nameOf(line)}</span>,
    },
    { head: "Requests", align: "right", cell: ({ requests }) => formatCount(requests) },
    {
      head: "Tokens",
      align: "right",
      hideBelow: "lg",
      cell: (line) => formatCompact(tokensOf(line)),
    },
    { head: "Usage revenue", align: "right", cell: ({ usageRevenueNanoUsd }) => formatMoney(usageRevenueNanoUsd) },
    { head: "Cost", align: "right", hideBelow: "md", cell: (line) => <Cost line={line} /> },
    { head: "Margin", align: "right", cell: ({ marginNanoUsd }) => formatMoney(marginNanoUsd) },
  ];
}

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
