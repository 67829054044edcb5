import { keepPreviousData, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { taxText } from "../../../../commerce/tax_words.ts";
import { formatAmount } from "../../../../platform/currencies.ts";
import { api, ask, useMe } from "../../api.ts";
import { ENTRY_KINDS } from "../../copy.ts";
import { formatCompact, formatCount, formatMoney, formatMonth, formatZoneTime, lastMonths } from "../../format.ts";
import { Amount } from "../../shared/amount.tsx";
import { DownloadButton } from "../../shared/download_button.tsx";
import { nowMs } from "../../ui/clock.ts";
import { NativeSelect } from "../../ui/fields.tsx";
import { FilterBar, useUrlState } from "../../ui/filter_bar.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Banner, Empty, Loaded, Skeleton } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";

/** A reseller's monthly statement: its balance, its customers' usage by host, and the packages it assigned. */

const MONTHS_BACK = 24;

type Data = NonNullable<Awaited<ReturnType<typeof api.statement.get>>["data"]>;
type UsageLine = Data["usage"]["rows"][number];
type PackageLine = Data["packages"]["rows"][number];
type TaxRow = Data["tax"][number];
type EntryLine = Data["entries"]["rows"][number];

/** A reseller's own. */
export function StatementPage() {
  return (
    <Page title="Statement" lead="A month of your balance, of your customers' usage, and of what you sold.">
      <Statement />
    </Page>
  );
}

/** Without `resellerId`: the reseller's own. The URL contains month and host. */
export function Statement({ resellerId }: { resellerId?: number }) {
  const { billingTimeZone } = useMe();
  const months = lastMonths(MONTHS_BACK, billingTimeZone, nowMs());
  const [filters, setFilters] = useUrlState({ month: months[0] ?? "", host: "" });
  const month = months.includes(filters.month) ? filters.month : (months[0] ?? "");
  const query = {
    month,
    ...(filters.host !== "" && { host: filters.host }),
    ...(resellerId !== undefined && { resellerId }),
  };
  const statement = useQuery({
    queryKey: ["statement", query],
    queryFn: () => ask(api.statement.get({ query })),
    placeholderData: keepPreviousData,
  });
  return (
    <Section title="Statement" description="Taken from the ledger. A closed month never changes." flush>
      <div className="px-4 py-3 sm:px-6">
        <FilterBar aside={<DownloadCsv query={query} />}>
          <NativeSelect
            label="Month"
            value={month}
            onValue={(next) => setFilters({ month: next })}
            options={months.map((value) => ({ value, label: formatMonth(value) }))}
          />
          <HostSelect statement={statement.data} host={filters.host} onHost={(host) => setFilters({ host })} />
        </FilterBar>
      </div>
      <Loaded query={statement} skeleton={<Skeleton className="m-6 h-64" />}>
        {(data) => <StatementBody data={data} />}
      </Loaded>
    </Section>
  );
}

/** The hosts of the month; the chosen host stays in the list even without usage. */
function HostSelect({
  statement,
  host,
  onHost,
}: {
  statement: Data | undefined;
  host: string;
  onHost: (host: string) => void;
}) {
  const used = statement?.host === null ? statement.usage.rows.map((row) => row.host) : [];
  const hosts = [...new Set([...used, ...(host === "" ? [] : [host])])].sort();
  return (
    <NativeSelect
      label="Host"
      value={host}
      onValue={onHost}
      options={[{ value: "", label: "All hosts" }, ...hosts.map((value) => ({ value, label: value }))]}
    />
  );
}

function DownloadCsv({ query }: { query: Record<string, string | number> }) {
  const search = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
  return (
    <DownloadButton path={() => `/api/panel/statement.csv?${search}`} fileName="statement.csv">
      CSV
    </DownloadButton>
  );
}

function StatementBody({ data }: { data: Data }) {
  const { balance, closed, timeZone, host } = data;
  return (
    <>
      <Part
        title={closed ? "Balance" : "Balance so far"}
        aside={closed ? <Badge tone="ok">Closed</Badge> : <Badge tone="warn">Still open</Badge>}
      >
        <BalanceSums balance={balance} closed={closed} />
        <p className="mt-3 text-12 text-ink-3">
          <Instant iso={data.from} /> to <Instant iso={data.to} />, the month in {formatZoneTime(timeZone)}.
        </p>
      </Part>
      <Part title={host === null ? "Usage by host" : `Usage on ${host}`}>
        <p className="mt-1 max-w-[42rem] text-13 text-ink-2">
          Usage revenue is what the requests were charged, and for each request of a package the price of its order ÷
          its total requests. Cost is the same at what you pay: your prices without the markup, and the packages'
          wholesale prices. Margin is the difference.
        </p>
      </Part>
      <DataTable
        caption="Usage by host, customer and model"
        rows={data.usage.rows}
        rowKey={(row) => `${row.host} ${row.customerId} ${row.modelId}`}
        columns={USAGE_COLUMNS}
        empty={<Empty>No usage{host === null ? "" : " on this host"} in this month.</Empty>}
        footer={usageTotals(data.usage.totals)}
      />
      <More part={data.usage} />
      <Part title="Packages assigned" />
      <DataTable
        caption="Packages assigned"
        rows={data.packages.rows}
        rowKey={({ packageId }) => String(packageId)}
        columns={PACKAGE_COLUMNS}
        empty={<Empty>No package was assigned in this month.</Empty>}
      />
      <More part={data.packages} />
      <Part title="Tax">
        <p className="mt-1 max-w-[42rem] text-13 text-ink-2">
          Of the invoices that you issued in this month, less credit notes, in the currency that was paid.
        </p>
      </Part>
      <DataTable
        caption="Tax"
        rows={data.tax}
        rowKey={(row) => JSON.stringify([row.currency, row.tax])}
        columns={TAX_COLUMNS}
        empty={<Empty>No invoice was issued in this month.</Empty>}
      />
      <Part title="Top-ups, transfers, corrections, refunds and earnings" />
      <DataTable
        caption="Top-ups, transfers, corrections, refunds and earnings"
        rows={data.entries.rows}
        rowKey={({ entryId }) => String(entryId)}
        columns={ENTRY_COLUMNS}
        empty={<Empty>None in this month.</Empty>}
      />
      <More part={data.entries} />
    </>
  );
}

function Part({ title, aside, children }: { title: string; aside?: ReactNode; children?: ReactNode }) {
  return (
    <div className="border-t border-line px-4 py-4 first:border-0 sm:px-6">
      <h3 className="flex items-center gap-3 text-13">
        {title} {aside}
      </h3>
      {children}
    </div>
  );
}

/** Opening balance, the eight sums, and the closing balance: they add up. */
function BalanceSums({ balance, closed }: { balance: Data["balance"]; closed: boolean }) {
  const { openingNanoUsd, sumsNanoUsd, charges, closingNanoUsd } = balance;
  const sums = [
    ["Top-ups", sumsNanoUsd.top_up],
    ["Packages assigned", sumsNanoUsd.wholesale],
    ["Renewals paid from balances", sumsNanoUsd.package],
    ["Transfers to customers", sumsNanoUsd.transfer],
    ["Corrections", sumsNanoUsd.correction],
    ["Refunds", sumsNanoUsd.refund],
    ["Earnings", sumsNanoUsd.earning],
    [`Own requests (${formatCount(charges)})`, sumsNanoUsd.charge],
  ] as const;
  return (
    <dl className="mt-2 grid max-w-[26rem] text-13 tabular-nums [&>div]:flex [&>div]:justify-between [&>div]:gap-6 [&>div]:py-1">
      <div>
        <dt className="text-ink-2">Opening</dt>
        <dd>{formatMoney(openingNanoUsd)}</dd>
      </div>
      {sums.map(([label, nanoUsd]) => (
        <div key={label}>
          <dt className="text-ink-2">{label}</dt>
          <dd>{BigInt(nanoUsd) === 0n ? "–" : <Amount nanoUsd={nanoUsd} />}</dd>
        </div>
      ))}
      <div className="border-t border-line font-semibold">
        <dt>{closed ? "Closing" : "Now"}</dt>
        <dd>{formatMoney(closingNanoUsd)}</dd>
      </div>
    </dl>
  );
}

const USAGE_COLUMNS: readonly Column<UsageLine>[] = [
  { head: "Customer", cell: ({ customerName }) => <span className="font-medium wrap-anywhere">{customerName}</span> },
  { head: "Host", cell: ({ host }) => <span className="break-all">{host}</span> },
  { head: "Model", cell: ({ modelId }) => <span className="break-all">{modelId}</span> },
  { head: "Requests", align: "right", cell: ({ requests }) => formatCount(requests) },
  {
    head: "From packages",
    align: "right",
    hideBelow: "lg",
    cell: ({ packageRequests }) => formatCount(packageRequests),
  },
  {
    head: "Tokens in, out",
    align: "right",
    hideBelow: "md",
    cell: ({ promptTokens, completionTokens }) => `${formatCompact(promptTokens)}, ${formatCompact(completionTokens)}`,
  },
  { head: "Usage revenue", align: "right", cell: ({ usageRevenueNanoUsd }) => formatMoney(usageRevenueNanoUsd) },
  { head: "Cost", align: "right", hideBelow: "md", cell: ({ usageCostNanoUsd }) => formatMoney(usageCostNanoUsd) },
  { head: "Margin", align: "right", cell: ({ marginNanoUsd }) => formatMoney(marginNanoUsd) },
];

function usageTotals(totals: Data["usage"]["totals"]): ReactNode[] {
  const { requests, packageRequests, promptTokens, completionTokens } = totals;
  return [
    "Total",
    "",
    "",
    formatCount(requests),
    formatCount(packageRequests),
    `${formatCompact(promptTokens)}, ${formatCompact(completionTokens)}`,
    formatMoney(totals.usageRevenueNanoUsd),
    formatMoney(totals.usageCostNanoUsd),
    formatMoney(totals.marginNanoUsd),
  ];
}

const PACKAGE_COLUMNS: readonly Column<PackageLine>[] = [
  { head: "Package", cell: ({ name }) => <span className="font-medium wrap-anywhere">{name}</span> },
  { head: "Customer", cell: ({ customerName }) => customerName, className: "wrap-anywhere" },
  { head: "Time", cell: ({ at }) => <Instant iso={at} /> },
  {
    head: "Price",
    align: "right",
    cell: ({ priceNanoUsd, allotmentId }) => (allotmentId === null ? formatMoney(priceNanoUsd) : "from an allotment"),
  },
];

const TAX_COLUMNS: readonly Column<TaxRow>[] = [
  { head: "Tax", cell: ({ tax }) => <span className="font-medium">{taxName(tax)}</span> },
  { head: "Currency", cell: ({ currency }) => currency.toUpperCase() },
  { head: "Invoices", align: "right", hideBelow: "md", cell: ({ invoices }) => formatCount(invoices) },
  { head: "Credit notes", align: "right", hideBelow: "md", cell: ({ creditNotes }) => formatCount(creditNotes) },
  { head: "Net", align: "right", cell: ({ netNano, currency }) => formatAmount(netNano, currency) },
  { head: "Tax", align: "right", cell: ({ taxNano, currency }) => formatAmount(taxNano, currency) },
  {
    head: "Total",
    align: "right",
    hideBelow: "md",
    cell: ({ totalNano, currency }) => formatAmount(totalNano, currency),
  },
];

function taxName(tax: TaxRow["tax"]): string {
  if (tax === null) return "None";
  return tax.reverseCharge ? `Reverse charge, ${tax.country}` : `${taxText(tax)}, ${tax.country}`;
}

const ENTRY_COLUMNS: readonly Column<EntryLine>[] = [
  { head: "Kind", cell: ({ kind }) => <span className="font-medium">{ENTRY_KINDS[kind]}</span> },
  { head: "From or to", cell: ({ counterpartName }) => counterpartName, className: "wrap-anywhere" },
  { head: "Reason", cell: ({ reason }) => reason, className: "wrap-anywhere" },
  { head: "Time", cell: ({ at }) => <Instant iso={at} /> },
  { head: "Amount", align: "right", cell: ({ amountNanoUsd }) => <Amount nanoUsd={amountNanoUsd} /> },
];

/** Tells that the page does not show every line. */
function More({ part: { rows, hasMore } }: { part: { rows: readonly unknown[]; hasMore: boolean } }) {
  if (!hasMore) return null;
  return (
    <div className="px-4 pb-4 sm:px-6">
      <Banner>Only the first {formatCount(rows.length)} lines are shown. The CSV contains all of them.</Banner>
    </div>
  );
}
