import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, ask, useMe } from "../../api.ts";
import { ENTRY_KINDS } from "../../copy.ts";
import {
  formatAmount,
  formatCompact,
  formatCount,
  formatMoney,
  formatMonth,
  formatZoneTime,
  lastMonths,
} from "../../format.ts";
import { Amount } from "../../shared/amount.tsx";
import { DownloadButton } from "../../shared/download_button.tsx";
import { taxWords } from "../../shared/selling.tsx";
import { nowMs } from "../../ui/clock.ts";
import { NativeSelect } from "../../ui/fields.tsx";
import { FilterBar, useUrlState } from "../../ui/filter_bar.tsx";
import { inPlace } from "../../ui/in_place.tsx";
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
    <Page title={t`Statement`} lead={t`A month of your balance, of your customers' usage, and of what you sold.`}>
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
    <Section title={t`Statement`} description={t`Taken from the ledger. A closed month never changes.`} flush>
      <div className="px-4 py-3 sm:px-6">
        <FilterBar aside={<DownloadCsv query={query} />}>
          <NativeSelect
            label={t`Month`}
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
      label={t`Host`}
      value={host}
      onValue={onHost}
      options={[{ value: "", label: t`All hosts` }, ...hosts.map((value) => ({ value, label: value }))]}
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

function TaxPart({ rows }: { rows: readonly TaxRow[] }) {
  return (
    <>
      <Part title={t`Tax`}>
        <p className="mt-1 max-w-[42rem] text-13 text-ink-2">
          {t`Of the invoices that you issued in this month, less credit notes, in the currency that was paid.`}
        </p>
      </Part>
      <DataTable
        caption={t`Tax`}
        rows={rows}
        rowKey={(row) => JSON.stringify([row.currency, row.tax])}
        columns={TAX_COLUMNS}
        empty={<Empty>{t`No invoice was issued in this month.`}</Empty>}
      />
    </>
  );
}

function StatementBody({ data }: { data: Data }) {
  const { balance, closed, timeZone, host } = data;
  const zone = formatZoneTime(timeZone);
  return (
    <>
      <Part
        title={closed ? t`Balance` : t`Balance so far`}
        aside={
          closed ? (
            <Badge tone="ok">{t({ message: "Closed", context: "a month of a statement" })}</Badge>
          ) : (
            <Badge tone="warn">{t`Still open`}</Badge>
          )
        }
      >
        <BalanceSums balance={balance} closed={closed} />
        <p className="mt-3 text-12 text-ink-3">
          <Trans>
            <Instant iso={data.from} /> to <Instant iso={data.to} />, the month in {zone}.
          </Trans>
        </p>
      </Part>
      <Part title={host === null ? t`Usage by host` : t`Usage on ${host}`}>
        <p className="mt-1 max-w-[42rem] text-13 text-ink-2">
          <Trans>
            Usage revenue is what the requests were charged, and for each request of a package the price of its order ÷
            its total requests. Cost is the same at what you pay: your prices without the markup, and the packages'
            wholesale prices. Margin is the difference.
          </Trans>
        </p>
      </Part>
      <DataTable
        caption={t`Usage by host, customer and model`}
        rows={data.usage.rows}
        rowKey={(row) => `${row.host} ${row.customerId} ${row.modelId}`}
        columns={USAGE_COLUMNS}
        empty={<Empty>{host === null ? t`No usage in this month.` : t`No usage on this host in this month.`}</Empty>}
        footer={usageTotals(data.usage.totals)}
      />
      <More part={data.usage} />
      <Part title={t`Packages assigned`} />
      <DataTable
        caption={t`Packages assigned`}
        rows={data.packages.rows}
        rowKey={({ packageId }) => String(packageId)}
        columns={PACKAGE_COLUMNS}
        empty={<Empty>{t`No package was assigned in this month.`}</Empty>}
      />
      <More part={data.packages} />
      <TaxPart rows={data.tax} />
      <Part title={t`Top-ups, transfers, corrections, refunds and earnings`} />
      <DataTable
        caption={t`Top-ups, transfers, corrections, refunds and earnings`}
        rows={data.entries.rows}
        rowKey={({ entryId }) => String(entryId)}
        columns={ENTRY_COLUMNS}
        empty={<Empty>{t({ message: "None in this month.", context: "transactions" })}</Empty>}
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
    [t`Top-ups`, sumsNanoUsd.top_up],
    [t`Packages assigned`, sumsNanoUsd.wholesale],
    [t`Renewals paid from balances`, sumsNanoUsd.package],
    [t`Transfers to customers`, sumsNanoUsd.transfer],
    [t`Corrections`, sumsNanoUsd.correction],
    [t`Refunds`, sumsNanoUsd.refund],
    [t`Earnings`, sumsNanoUsd.earning],
    [t`Own requests (${{ count: formatCount(charges) }})`, sumsNanoUsd.charge],
  ] as const;
  return (
    <dl className="mt-2 grid max-w-[26rem] text-13 tabular-nums [&>div]:flex [&>div]:justify-between [&>div]:gap-6 [&>div]:py-1">
      <div>
        <dt className="text-ink-2">{t({ message: "Opening", context: "balance at the beginning" })}</dt>
        <dd>{formatMoney(openingNanoUsd)}</dd>
      </div>
      {inPlace(sums, ([label, nanoUsd]) => (
        <div>
          <dt className="text-ink-2">{label}</dt>
          <dd>{BigInt(nanoUsd) === 0n ? "–" : <Amount nanoUsd={nanoUsd} />}</dd>
        </div>
      ))}
      <div className="border-t border-line font-semibold">
        <dt>
          {closed
            ? t({ message: "Closing", context: "balance at the end" })
            : t({ message: "Now", context: "balance now" })}
        </dt>
        <dd>{formatMoney(closingNanoUsd)}</dd>
      </div>
    </dl>
  );
}

const USAGE_COLUMNS: readonly Column<UsageLine>[] = [
  { head: t`Customer`, cell: ({ customerName }) => <span className="font-medium wrap-anywhere">{customerName}</span> },
  { head: t`Host`, cell: ({ host }) => <span className="break-all">{host}</span> },
  { head: t`Model`, cell: ({ modelId }) => <span className="break-all">{modelId}</span> },
  { head: t`Requests`, align: "right", cell: ({ requests }) => formatCount(requests) },
  {
    head: t`From packages`,
    align: "right",
    hideBelow: "lg",
    cell: ({ packageRequests }) => formatCount(packageRequests),
  },
  {
    head: t`Tokens in, out`,
    align: "right",
    hideBelow: "md",
    cell: ({ promptTokens, completionTokens }) => `${formatCompact(promptTokens)}, ${formatCompact(completionTokens)}`,
  },
  { head: t`Usage revenue`, align: "right", cell: ({ usageRevenueNanoUsd }) => formatMoney(usageRevenueNanoUsd) },
  { head: t`Cost`, align: "right", hideBelow: "md", cell: ({ usageCostNanoUsd }) => formatMoney(usageCostNanoUsd) },
  { head: t`Margin`, align: "right", cell: ({ marginNanoUsd }) => formatMoney(marginNanoUsd) },
];

function usageTotals(totals: Data["usage"]["totals"]): ReactNode[] {
  const { requests, packageRequests, promptTokens, completionTokens } = totals;
  return [
    t`Total`,
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
  { head: t`Package`, cell: ({ name }) => <span className="font-medium wrap-anywhere">{name}</span> },
  { head: t`Customer`, cell: ({ customerName }) => customerName, className: "wrap-anywhere" },
  { head: t`Time`, cell: ({ at }) => <Instant iso={at} /> },
  {
    head: t`Price`,
    align: "right",
    cell: ({ priceNanoUsd, allotmentId }) => (allotmentId === null ? formatMoney(priceNanoUsd) : t`from an allotment`),
  },
];

const TAX_COLUMNS: readonly Column<TaxRow>[] = [
  { head: t`Tax`, cell: ({ tax }) => <span className="font-medium">{taxName(tax)}</span> },
  { head: t`Currency`, cell: ({ currency }) => currency.toUpperCase() },
  { head: t`Invoices`, align: "right", hideBelow: "md", cell: ({ invoices }) => formatCount(invoices) },
  { head: t`Credit notes`, align: "right", hideBelow: "md", cell: ({ creditNotes }) => formatCount(creditNotes) },
  { head: t`Net`, align: "right", cell: ({ netNano, currency }) => formatAmount(netNano, currency) },
  { head: t`Tax`, align: "right", cell: ({ taxNano, currency }) => formatAmount(taxNano, currency) },
  {
    head: t`Total`,
    align: "right",
    hideBelow: "md",
    cell: ({ totalNano, currency }) => formatAmount(totalNano, currency),
  },
];

function taxName(tax: TaxRow["tax"]): string {
  if (tax === null) return t({ message: "None", context: "tax" });
  return tax.reverseCharge ? t`Reverse charge, ${{ country: tax.country }}` : `${taxWords(tax)}, ${tax.country}`;
}

const ENTRY_COLUMNS: readonly Column<EntryLine>[] = [
  { head: t`Kind`, cell: ({ kind }) => <span className="font-medium">{ENTRY_KINDS[kind]}</span> },
  {
    head: t({ message: "From or to", context: "column: other party of a transaction" }),
    cell: ({ counterpartName }) => counterpartName,
    className: "wrap-anywhere",
  },
  { head: t`Reason`, cell: ({ reason }) => reason, className: "wrap-anywhere" },
  { head: t`Time`, cell: ({ at }) => <Instant iso={at} /> },
  { head: t`Amount`, align: "right", cell: ({ amountNanoUsd }) => <Amount nanoUsd={amountNanoUsd} /> },
];

/** Tells that the page does not show every line. */
function More({ part: { rows, hasMore } }: { part: { rows: readonly unknown[]; hasMore: boolean } }) {
  if (!hasMore) return null;
  return (
    <div className="px-4 pb-4 sm:px-6">
      <Banner>
        {t`Only the first ${{ count: formatCount(rows.length) }} lines are shown. The CSV contains all of them.`}
      </Banner>
    </div>
  );
}
