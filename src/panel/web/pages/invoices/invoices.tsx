import { t } from "@lingui/core/macro";
import { useState } from "react";
import { useMe } from "../../api.ts";
import { formatMonth, lastMonths } from "../../format.ts";
import { DownloadButton } from "../../shared/download_button.tsx";
import { nowMs } from "../../ui/clock.ts";
import { NativeSelect } from "../../ui/fields.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { SellerDetailsSection } from "./invoice_details.tsx";
import { IssuedInvoices } from "./invoice_list.tsx";

/** A seller's invoices, and what they say about the seller. */

const MONTHS_BACK = 24;

export function InvoicesPage() {
  return (
    <Page
      title={t`Invoices`}
      lead={t`What you invoiced, numbered without gaps. An invoice never changes: a refund is a credit note.`}
    >
      <Section title={t`Issued`} flush action={<MonthCsv />}>
        <IssuedInvoices />
      </Section>
      <SellerDetailsSection />
    </Page>
  );
}

/** A month of invoices as CSV. */
function MonthCsv() {
  const { billingTimeZone } = useMe();
  const months = lastMonths(MONTHS_BACK, billingTimeZone, nowMs());
  const [month, setMonth] = useState(months[0] ?? "");
  return (
    <>
      <NativeSelect
        label={t`Month of the CSV file`}
        value={month}
        onValue={setMonth}
        options={months.map((value) => ({ value, label: formatMonth(value) }))}
      />
      <DownloadButton path={() => `/api/panel/seller/invoices.csv?month=${month}`} fileName={`invoices-${month}.csv`}>
        CSV
      </DownloadButton>
    </>
  );
}
