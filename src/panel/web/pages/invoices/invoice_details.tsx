import { plural, t } from "@lingui/core/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import {
  INVOICE_ADDRESS_CHARS_MAX,
  INVOICE_ADDRESS_LINES_MAX,
  INVOICE_NAME_CHARS_MAX,
  TAX_LINE_CHARS_MAX,
  TAX_NUMBER_CHARS_MAX,
} from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { Field, TextArea, TextField } from "../../ui/fields.tsx";
import { isBlank, PageForm, useForm } from "../../ui/form.tsx";
import { Section } from "../../ui/page.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";

/** The seller's and the buyer's details on invoices. Each is a section that any page can show. */

/** `vat`: only of a buyer. */
type Details = { name: string | null; address: string | null; tax: string | null; vat?: string | null };
type FieldTexts = { label: string; hint?: string; placeholder?: string; optional?: true; maxLength: number };

/** The seller's or the buyer's side of an invoice: its texts, and how its details are read and saved. */
type Side = {
  queryKey: readonly string[];
  title: string;
  description: string;
  name: FieldTexts;
  isAddressOptional: boolean;
  /** `param`: the server's name of the field. */
  tax: FieldTexts & { param: "taxLine" | "taxNumber" };
  vat: FieldTexts | null;
  read: () => Promise<Details>;
  save: (details: Details) => Promise<unknown>;
};

const SELLER: Side = {
  queryKey: ["invoice-details", "seller"],
  title: t`Your details on invoices`,
  description: t`Your details on later invoices. Earlier invoices stay as they are. Until you enter a name and an address, buyers get receipts.`,
  name: { label: t`Name`, hint: t`Your company's legal name.`, maxLength: INVOICE_NAME_CHARS_MAX },
  isAddressOptional: false,
  tax: {
    param: "taxLine",
    label: t`Tax line`,
    optional: true,
    hint: t`Printed as it is: a tax number, or why no tax is charged. It does not change prices.`,
    placeholder: t`VAT ID DE123456789`,
    maxLength: TAX_LINE_CHARS_MAX,
  },
  vat: null,
  read: async () => {
    const { taxLine, ...others } = await ask(api.seller["invoice-details"].get());
    return { ...others, tax: taxLine };
  },
  save: ({ tax, ...others }) => ask(api.seller["invoice-details"].put({ ...others, taxLine: tax })),
};

const BUYER: Side = {
  queryKey: ["invoice-details", "buyer"],
  title: t`Invoices`,
  description: t`Your details on later invoices. Earlier invoices stay as they are.`,
  name: {
    label: t`Name on invoices`,
    optional: true,
    hint: t`A person or company. Empty: the name of your account.`,
    maxLength: INVOICE_NAME_CHARS_MAX,
  },
  isAddressOptional: true,
  tax: {
    param: "taxNumber",
    label: t`Tax number`,
    optional: true,
    hint: t`Another number for your invoices, printed as it is.`,
    maxLength: TAX_NUMBER_CHARS_MAX,
  },
  vat: {
    label: t`VAT number`,
    optional: true,
    hint: t`Of a business in the EU. A seller in another country of the EU then charges you no VAT: you owe it yourself.`,
    placeholder: "DE136695976",
    maxLength: TAX_NUMBER_CHARS_MAX,
  },
  read: async () => {
    const { taxNumber, vatNumber, ...others } = await ask(api.settings.invoices.get());
    return { ...others, tax: taxNumber, vat: vatNumber };
  },
  save: ({ tax, vat = null, ...others }) =>
    ask(api.settings.invoices.put({ ...others, taxNumber: tax, vatNumber: vat })),
};

/** A seller's name, address and tax line. */
export function SellerDetailsSection() {
  return <DetailsSection side={SELLER} />;
}

/** A buyer's own name, address and tax numbers. */
export function BuyerDetailsSection() {
  return <DetailsSection side={BUYER} />;
}

function DetailsSection({ side }: { side: Side }) {
  const details = useQuery({ queryKey: side.queryKey, queryFn: side.read });
  return (
    <Section title={side.title} description={side.description}>
      <Loaded query={details} skeleton={<Skeleton className="h-64" />}>
        {(saved) => <DetailsForm side={side} saved={saved} />}
      </Loaded>
    </Section>
  );
}

function DetailsForm({
  side: { queryKey, name, isAddressOptional, tax, vat, save },
  saved,
}: {
  side: Side;
  saved: Details;
}) {
  const client = useQueryClient();
  const { lock } = useViewer("payments");
  const form = useForm({
    first: { name: saved.name ?? "", address: saved.address ?? "", tax: saved.tax ?? "", vat: saved.vat ?? "" },
    wrong: { name: null, address: null, taxLine: null, taxNumber: null, vatNumber: null },
    send: (typed) =>
      save({
        name: orNull(typed.name),
        address: orNull(typed.address),
        tax: orNull(typed.tax),
        vat: orNull(typed.vat),
      }),
    onSent: async () => {
      form.reset(form.values);
      await client.invalidateQueries({ queryKey });
      toast.done(t`Invoice details saved.`);
    },
  });
  const { error: addressError, ...address } = form.field("address");
  const { param, ...taxTexts } = tax;
  return (
    <PageForm form={form} saveLabel={t`Save invoice details`} lock={lock}>
      <TextField {...name} {...form.field("name")} />
      <Field
        label={t`Address`}
        optional={isAddressOptional}
        hint={t`As on a letter, up to ${plural({ lines: INVOICE_ADDRESS_LINES_MAX }, { one: "# line", other: "# lines" })}.`}
        error={addressError}
      >
        <TextArea {...address} rows={4} maxLength={INVOICE_ADDRESS_CHARS_MAX} />
      </Field>
      {vat && (
        <TextField
          {...vat}
          autoCapitalize="characters"
          value={form.values.vat}
          onValue={(typed) => form.set({ vat: typed })}
          error={form.errorOf("vatNumber")}
        />
      )}
      <TextField
        {...taxTexts}
        value={form.values.tax}
        onValue={(typed) => form.set({ tax: typed })}
        error={form.errorOf(param)}
      />
    </PageForm>
  );
}

function orNull(typed: string): string | null {
  return isBlank(typed) ? null : typed;
}
