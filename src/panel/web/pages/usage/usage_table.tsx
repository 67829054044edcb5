import { plural, t } from "@lingui/core/macro";
import type { ReactNode } from "react";
import type { api } from "../../api.ts";
import { formatCount } from "../../format.ts";
import { Hint } from "../../ui/hint.tsx";
import { Badge } from "../../ui/states.tsx";
import { type Column, DataTable, type Older } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { costText, tokensText } from "./receipts.ts";
import { reasonInLine, reasonName, refusalName } from "./request_text.ts";

/** The table of the Usage page: charged requests, or those without charge. Each row opens its receipt. */

export type UsageRow = NonNullable<Awaited<ReturnType<typeof api.usage.get>>["data"]>["rows"][number];
type Charged = Extract<UsageRow, { kind: "charged" }>;
type NotCharged = Exclude<UsageRow, Charged>;

export function UsageTable({
  rows,
  kind,
  openId,
  hrefOf,
  older,
  empty,
}: {
  rows: readonly UsageRow[];
  kind: "charged" | "not_charged";
  openId: string | null;
  hrefOf: (requestId: string) => string;
  older: Older;
  empty: ReactNode;
}) {
  const common = {
    rowKey: ({ requestId }: UsageRow) => requestId,
    rowHref: ({ requestId }: UsageRow) => hrefOf(requestId),
    isSelected: ({ requestId }: UsageRow) => requestId === openId,
    older,
    empty,
  };
  return kind === "charged" ? (
    <DataTable caption={t`Charged requests`} {...common} rows={rows.filter(isCharged)} columns={CHARGED} />
  ) : (
    <DataTable
      caption={t`Requests without charge`}
      {...common}
      rows={rows.filter((row) => !isCharged(row))}
      columns={NOT_CHARGED}
    />
  );
}

function isCharged(row: UsageRow): row is Charged {
  return row.kind === "charged";
}

const CHARGED: readonly Column<Charged>[] = [
  { head: t`Time`, cell: ({ createdAt }) => <Instant iso={createdAt} seconds /> },
  {
    head: t`Model`,
    cell: ({ modelId, reason }) => (
      <span className="inline-flex flex-wrap items-center gap-2">
        {modelId}
        {reason !== "complete" && <Badge>{reasonName(reason)}</Badge>}
      </span>
    ),
  },
  { head: t`Key`, cell: ({ keyName }) => keyName ?? "–" },
  { head: t`Host`, cell: ({ host }) => host, hideBelow: "xl", inCard: false },
  {
    head: t`Tokens`,
    align: "right",
    cell: (row) =>
      row.promptTokens + row.completionTokens === 0 ? (
        "–"
      ) : (
        <Hint
          says={t`${{ input: formatCount(row.promptTokens) }} in, ${{ output: formatCount(row.completionTokens) }} out`}
        >
          {tokensText(row)}
        </Hint>
      ),
  },
  { head: t`Cost`, align: "right", cell: (row) => costText(row) },
];

const NOT_CHARGED: readonly Column<NotCharged>[] = [
  {
    head: t`Time`,
    cell: (row) => (row.kind === "refused" ? <Instant iso={row.minute} /> : <Instant iso={row.createdAt} seconds />),
  },
  {
    head: t`Outcome`,
    cell: (row) =>
      row.kind === "refused" ? (
        <span>
          <Badge tone="warn">{t`Refused`}</Badge> {refusalName(row.code)}
        </span>
      ) : (
        <span>
          <Badge>{t`Released`}</Badge> {reasonInLine(row.reason)}
        </span>
      ),
  },
  { head: t`Model`, cell: ({ modelId }) => modelId ?? "–" },
  { head: t`Key`, cell: ({ keyName }) => keyName ?? "–" },
  { head: t`Host`, cell: ({ host }) => host, hideBelow: "xl", inCard: false },
  {
    head: t`Requests`,
    align: "right",
    cell: (row) => plural({ count: row.kind === "refused" ? row.count : 1 }, { one: "# request", other: "# requests" }),
    hideBelow: "md",
  },
];
