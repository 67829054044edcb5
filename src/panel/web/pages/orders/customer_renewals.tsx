import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { formatCount, formatDay } from "../../format.ts";
import { nowMs } from "../../ui/clock.ts";
import { Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { problemWords } from "../billing/renewal.tsx";

/** Packages of a seller's customers that renew automatically, or were to. */

type Row = NonNullable<Awaited<ReturnType<typeof api.renewals.customers.get>>["data"]>["rows"][number];

export function CustomerRenewals({ personHref }: { personHref: (accountId: number) => string }) {
  const renewals = useQuery({ queryKey: ["renewals", "customers"], queryFn: () => ask(api.renewals.customers.get()) });
  return (
    <Section
      title={t`Automatic renewals`}
      description={t`Packages that your customers renew automatically, the next to end first.`}
      flush
    >
      <Loaded query={renewals} skeleton={<SkeletonRows rows={2} />}>
        {({ rows, hasMore }) => (
          <>
            <DataTable
              caption={t`Automatic renewals`}
              rows={rows}
              rowKey={({ packageId }) => String(packageId)}
              rowHref={({ accountId }) => personHref(accountId)}
              columns={COLUMNS}
              empty={
                <Empty>
                  <Trans>No package renews automatically. Customers choose it under Billing.</Trans>
                </Empty>
              }
            />
            {hasMore && (
              <p className="px-4 py-3 text-13 text-ink-2 sm:px-6">{t`The next ${{ count: formatCount(rows.length) }} to end.`}</p>
            )}
          </>
        )}
      </Loaded>
    </Section>
  );
}

const COLUMNS: readonly Column<Row>[] = [
  { head: t`Customer`, cell: ({ name }) => <span className="font-medium wrap-anywhere">{name}</span> },
  { head: t`Package`, cell: (row) => row.package, className: "wrap-anywhere" },
  { head: t`Pays with`, hideBelow: "md", cell: ({ source }) => (source === "card" ? t`Card` : t`Balance`) },
  { head: t`Ends`, hideBelow: "md", cell: (row) => formatDay(row.endsAt, row.timeZone, nowMs()) },
  { head: t`Renewal`, cell: (row) => <State row={row} /> },
];

function State({ row: { status, renewsAt, timeZone, problem } }: { row: Row }) {
  const why = problem && (
    <span className="block text-12 text-ink-3">{t`Last try: ${{ problem: problemWords(problem) }}.`}</span>
  );
  switch (status) {
    case "on":
      return (
        <span>
          {formatDay(renewsAt, timeZone, nowMs())}
          {why}
        </span>
      );
    case "ordered":
      return (
        <span>
          <Badge tone="accent">
            <Trans>Being paid</Trans>
          </Badge>
          {why}
        </span>
      );
    case "failed":
      return (
        <span>
          <Badge tone="bad">
            <Trans>Failed</Trans>
          </Badge>
          {why}
        </span>
      );
    case "cancelled":
      return (
        <Badge>
          <Trans>Cancelled</Trans>
        </Badge>
      );
  }
}
