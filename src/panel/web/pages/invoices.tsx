import { useMutation } from "@tanstack/react-query";
import { Download } from "lucide-react";
import { useState } from "react";
import { formatMonth } from "../format.ts";
import { Button } from "../ui/buttons.tsx";
import { nowMs } from "../ui/clock.ts";
import { NativeSelect } from "../ui/fields.tsx";
import { Page, Section } from "../ui/page.tsx";
import { toast } from "../ui/toast.tsx";
import { download } from "./download.ts";
import { SellerDetailsSection } from "./invoice_details.tsx";
import { IssuedInvoices } from "./invoice_list.tsx";

/** A seller's invoices, and what they say about the seller. */

const MONTHS_BACK = 24;

export function InvoicesPage() {
  return (
    <Page
      title="Invoices"
      lead="What you invoiced, numbered without gaps. An invoice never changes: a refund is a credit note."
    >
      <Section title="Issued" flush action={<MonthCsv />}>
        <IssuedInvoices />
      </Section>
      <SellerDetailsSection />
    </Page>
  );
}

/** A month of invoices as CSV. */
function MonthCsv() {
  const months = lastMonths(nowMs());
  const [month, setMonth] = useState(months[0] ?? "");
  const file = useMutation({
    mutationFn: () => download(`/api/panel/seller/invoices.csv?month=${month}`, `invoices-${month}.csv`),
    onError: (error) => toast.failed(error),
  });
  return (
    <>
      <NativeSelect
        label="Month of the CSV file"
        value={month}
        onValue={setMonth}
        options={months.map((value) => ({ value, label: formatMonth(value) }))}
      />
      <Button icon={Download} pending={file.isPending} onClick={() => file.mutate()}>
        CSV
      </Button>
    </>
  );
}

/** The last months, newest first, by UTC. */
function lastMonths(now: number): string[] {
  const date = new Date(now);
  return Array.from({ length: MONTHS_BACK }, (_, back) =>
    new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() - back, 1)).toISOString().slice(0, 7),
  );
}
