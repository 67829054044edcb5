import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { Download, Undo2 } from "lucide-react";
import { i18n } from "#language";
import { api, ask } from "../../api.ts";
import { formatAmount } from "../../format.ts";
import { download } from "../../shared/download.ts";
import { IconButton } from "../../ui/buttons.tsx";
import { Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";

/** Invoices: an account's own on Billing, and all that a seller issued. Each row downloads its PDF. */

export type Invoice = NonNullable<Awaited<ReturnType<typeof api.invoices.get>>["data"]>["invoices"][number];
type Query = { query: { before?: number } };

/** The invoices that the person received. Hidden while there are none. */
export function OwnInvoices() {
  const invoices = useInvoices("own", (query) => ask(api.invoices.get(query)));
  if (invoices.data?.pages[0]?.invoices.length === 0) return null;
  return (
    <Section title={t`Invoices`} flush>
      <InvoiceTable invoices={invoices} path="/api/panel/invoices" columns={[NUMBER, WHAT, DATE, AMOUNT]} />
    </Section>
  );
}

/** All invoices that the person issued as a seller. */
export function IssuedInvoices() {
  const invoices = useInvoices("issued", (query) => ask(api.seller.invoices.get(query)));
  const columns = [NUMBER, BUYER, { ...WHAT, hideBelow: "lg" as const }, DATE, AMOUNT];
  return <InvoiceTable invoices={invoices} path="/api/panel/seller/invoices" columns={columns} />;
}

function useInvoices(
  whose: "own" | "issued",
  load: (query: Query) => Promise<{ invoices: Invoice[]; hasMore: boolean }>,
) {
  return useInfiniteQuery({
    queryKey: ["invoices", whose],
    queryFn: ({ pageParam }) => load({ query: pageParam > 0 ? { before: pageParam } : {} }),
    initialPageParam: 0,
    getNextPageParam: ({ invoices, hasMore }) => (hasMore ? invoices[invoices.length - 1]?.invoiceId : undefined),
  });
}

function InvoiceTable({
  invoices,
  path,
  columns,
}: {
  invoices: ReturnType<typeof useInvoices>;
  path: string;
  columns: readonly Column<Invoice>[];
}) {
  const file = useMutation({
    mutationFn: ({ invoiceId, number }: Invoice) => download(`${path}/${invoiceId}/pdf`, `invoice-${number}.pdf`),
    onError: (error) => toast.failed(error),
  });
  return (
    <Loaded query={invoices} skeleton={<SkeletonRows rows={3} />}>
      {({ pages }) => (
        <DataTable
          caption={t`Invoices`}
          rows={pages.flatMap((page) => page.invoices)}
          rowKey={({ invoiceId }) => String(invoiceId)}
          columns={columns}
          actions={(invoice) => (
            <IconButton
              icon={Download}
              label={downloadLabel(invoice)}
              size="sm"
              pending={file.isPending && file.variables.invoiceId === invoice.invoiceId}
              onClick={() => file.mutate(invoice)}
            />
          )}
          empty={
            <Empty>
              <Trans>No invoices yet. One is issued when an order is paid, and numbered without gaps.</Trans>
            </Empty>
          }
          older={toOlder(invoices)}
        />
      )}
    </Loaded>
  );
}

function downloadLabel({ title, number }: Invoice): string {
  if (title === "Invoice") return t`Download invoice ${number} as PDF`;
  if (title === "Receipt") return t`Download receipt ${number} as PDF`;
  return t`Download credit note ${number} as PDF`;
}

const NUMBER: Column<Invoice> = {
  head: t`Number`,
  cell: ({ number, title, kind }) => (
    <span className="inline-flex flex-wrap items-center gap-2 tabular-nums">
      {number}
      {kind === "credit_note" ? <Badge icon={Undo2}>{i18n._(title)}</Badge> : <Badge>{i18n._(title)}</Badge>}
    </span>
  ),
};
const BUYER: Column<Invoice> = {
  head: t`Buyer`,
  cell: ({ buyer }) => <TwoLines below={buyer.email}>{buyer.name}</TwoLines>,
};
const WHAT: Column<Invoice> = {
  head: t({ message: "For", context: "column: what an invoice is for" }),
  cell: ({ what, more }) => (
    <span className="wrap-anywhere">
      {more === 0 ? what : plural(more, { one: `${what} and # more`, other: `${what} and # more` })}
    </span>
  ),
};
const DATE: Column<Invoice> = { head: t`Date`, cell: ({ issuedAt }) => <Instant iso={issuedAt} /> };
const AMOUNT: Column<Invoice> = {
  head: t`Amount`,
  align: "right",
  cell: ({ kind, totalNano, currency }) => formatAmount(kind === "credit_note" ? `-${totalNano}` : totalNano, currency),
};
