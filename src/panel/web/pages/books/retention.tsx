import { plural, t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { formatCount, formatMoney, formatMonth } from "../../format.ts";
import { CopyText } from "../../ui/copy_text.tsx";
import { Section } from "../../ui/page.tsx";
import { Badge, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { BOOKS_KEY } from "./books_checks.tsx";

/** The months of receipts: open, sealed, exported, dropped, and what comparing them with their seals has found. */

type Month = NonNullable<Awaited<ReturnType<typeof api.admin.retention.get>>["data"]>["months"][number];

const STATES: Readonly<Record<Month["state"], [tone: "neutral" | "ok" | "warn", words: string]>> = {
  open: ["neutral", t({ message: "Open", context: "a month of receipts" })],
  closed: ["warn", t({ message: "Being sealed", context: "a month of receipts" })],
  sealed: ["ok", t({ message: "Sealed", context: "a month of receipts" })],
  dropped: ["neutral", t({ message: "Dropped", context: "a month of receipts" })],
};

const COLUMNS: Column<Month>[] = [
  { head: t`Month`, cell: ({ month }) => formatMonth(month) },
  {
    head: t`State`,
    cell: ({ state, exportedAt, problems }) => (
      <span className="inline-flex flex-wrap gap-1">
        <Badge tone={STATES[state][0]}>{STATES[state][1]}</Badge>
        {exportedAt !== null && (
          <Badge tone="neutral">{t({ message: "Exported", context: "a month of receipts" })}</Badge>
        )}
        {problems.length > 0 && (
          <Badge tone="bad">{plural(problems.length, { one: "# difference", other: "# differences" })}</Badge>
        )}
      </span>
    ),
  },
  { head: t`Receipts`, align: "right", cell: ({ receipts }) => (receipts === null ? "" : formatCount(receipts)) },
  {
    head: t`Tokens`,
    align: "right",
    hideBelow: "lg",
    cell: ({ totals }) => (totals === null ? "" : formatCount(BigInt(totals.chargedTokens))),
  },
  {
    head: t`Charged`,
    align: "right",
    cell: ({ totals }) => (totals === null ? "" : formatMoney(totals.chargedNanoUsd)),
  },
  {
    head: t`Seal`,
    hideBelow: "xl",
    cell: ({ seal }) => (seal === null ? "" : <CopyText value={seal} what={t`seal`} />),
  },
  {
    head: t({ message: "Sealed", context: "a time" }),
    hideBelow: "lg",
    cell: ({ sealedAt }) => (sealedAt === null ? "" : <Instant iso={sealedAt} />),
  },
  {
    head: t`Compared`,
    hideBelow: "md",
    cell: ({ comparedAt, seal }) => (seal === null ? "" : <Ago iso={comparedAt} />),
  },
];

export function Retention() {
  const retention = useQuery({ queryKey: [...BOOKS_KEY, "retention"], queryFn: () => ask(api.admin.retention.get()) });
  return (
    <Section
      title={t`Months of receipts`}
      description={t`A month is closed seven days after its end, and sealed then. The command doctor --full compares it with its seal and says what differs. Months are in UTC.`}
      flush
    >
      <Loaded query={retention} skeleton={<SkeletonRows rows={2} />}>
        {({ months }) =>
          months.length === 0 ? (
            <p className="px-4 pb-4 text-14 text-ink-2 sm:px-6">{t`No month is over yet.`}</p>
          ) : (
            <DataTable caption={t`Months of receipts`} rows={months} rowKey={({ month }) => month} columns={COLUMNS} />
          )
        }
      </Loaded>
    </Section>
  );
}
