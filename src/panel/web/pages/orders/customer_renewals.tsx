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
      title="Automatic renewals"
      description="Packages that your customers renew automatically, the next to end first."
      flush
    >
      <Loaded query={renewals} skeleton={<SkeletonRows rows={2} />}>
        {({ rows, hasMore }) => (
          <>
            <DataTable
              caption="Automatic renewals"
              rows={rows}
              rowKey={({ packageId }) => String(packageId)}
              rowHref={({ accountId }) => personHref(accountId)}
              columns={COLUMNS}
              empty={<Empty>No package renews automatically. Customers choose it under Billing.</Empty>}
            />
            {hasMore && (
              <p className="px-4 py-3 text-13 text-ink-2 sm:px-6">The next {formatCount(rows.length)} to end.</p>
            )}
          </>
        )}
      </Loaded>
    </Section>
  );
}

const COLUMNS: readonly Column<Row>[] = [
  { head: "Customer", cell: ({ name }) => <span className="font-medium wrap-anywhere">{name}</span> },
  { head: "Package", cell: (row) => row.package, className: "wrap-anywhere" },
  { head: "Pays with", hideBelow: "md", cell: ({ source }) => (source === "card" ? "Card" : "Balance") },
  { head: "Ends", hideBelow: "md", cell: (row) => formatDay(row.endsAt, row.timeZone, nowMs()) },
  { head: "Renewal", cell: (row) => <State row={row} /> },
];

function State({ row: { status, renewsAt, timeZone, problem } }: { row: Row }) {
  const why = problem && <span className="block text-12 text-ink-3">Last try: {problemWords(problem)}.</span>;
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
          <Badge tone="accent">Being paid</Badge>
          {why}
        </span>
      );
    case "failed":
      return (
        <span>
          <Badge tone="bad">Failed</Badge>
          {why}
        </span>
      );
    case "cancelled":
      return <Badge>Cancelled</Badge>;
  }
}
