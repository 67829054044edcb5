import { useQuery, useQueryClient } from "@tanstack/react-query";
import {
  INVOICE_ADDRESS_CHARS_MAX,
  INVOICE_NAME_CHARS_MAX,
  TAX_LINE_CHARS_MAX,
  TAX_NUMBER_CHARS_MAX,
} from "../../../limits.ts";
import { api, ask } from "../api.ts";
import { Field, TextArea, TextField } from "../ui/fields.tsx";
import { isBlank, PageForm, useForm } from "../ui/form.tsx";
import { Section } from "../ui/page.tsx";
import { Loaded, Skeleton } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { useViewer } from "./page_hooks.ts";

/** The seller's and the buyer's details on invoices. Each is a section that any page can show. */

const SELLER_KEY = ["invoice details", "seller"] as const;
const BUYER_KEY = ["invoice details", "buyer"] as const;

type Seller = NonNullable<Awaited<ReturnType<(typeof api.seller)["invoice-details"]["get"]>>["data"]>;
type Buyer = NonNullable<Awaited<ReturnType<typeof api.settings.invoices.get>>["data"]>;

/** A seller's name, address and tax line. */
export function SellerDetailsSection() {
  const details = useQuery({ queryKey: SELLER_KEY, queryFn: () => ask(api.seller["invoice-details"].get()) });
  return (
    <Section
      title="Your details on invoices"
      description="For later invoices: those that were issued stay as they are. Until a name and an address are entered, buyers get receipts."
    >
      <Loaded query={details} skeleton={<Skeleton className="h-64" />}>
        {(saved) => <SellerForm saved={saved} />}
      </Loaded>
    </Section>
  );
}

function SellerForm({ saved }: { saved: Seller }) {
  const client = useQueryClient();
  const form = useForm({
    first: { name: saved.name ?? "", address: saved.address ?? "", taxLine: saved.taxLine ?? "" },
    wrong: { name: null, address: null, taxLine: null },
    send: ({ name, address, taxLine }) =>
      ask(
        api.seller["invoice-details"].put({ name: orNull(name), address: orNull(address), taxLine: orNull(taxLine) }),
      ),
    onSent: async () => {
      await client.invalidateQueries({ queryKey: SELLER_KEY });
      toast.done("Invoice details saved.");
    },
  });
  const { lock } = useViewer();
  return (
    <PageForm form={form} saveLabel="Save invoice details" lock={lock} className="max-w-[34rem]">
      <TextField
        label="Name"
        hint="Your company's legal name."
        {...form.field("name")}
        maxLength={INVOICE_NAME_CHARS_MAX}
        disabled={lock.disabled}
      />
      <AddressField {...form.field("address")} />
      <TextField
        label="Tax line"
        optional
        hint="Printed as it is: a tax number, or why no tax is charged. Prices are not changed by it."
        {...form.field("taxLine")}
        maxLength={TAX_LINE_CHARS_MAX}
        placeholder="VAT ID DE123456789"
        disabled={lock.disabled}
      />
    </PageForm>
  );
}

/** A buyer's own name, address and tax number. */
export function BuyerDetailsSection() {
  const details = useQuery({ queryKey: BUYER_KEY, queryFn: () => ask(api.settings.invoices.get()) });
  return (
    <Section title="Invoices" description="Your details on later invoices. Earlier invoices stay as they are.">
      <Loaded query={details} skeleton={<Skeleton className="h-64" />}>
        {(saved) => <BuyerForm saved={saved} />}
      </Loaded>
    </Section>
  );
}

function BuyerForm({ saved }: { saved: Buyer }) {
  const client = useQueryClient();
  const form = useForm({
    first: { name: saved.name ?? "", address: saved.address ?? "", taxNumber: saved.taxNumber ?? "" },
    wrong: { name: null, address: null, taxNumber: null },
    send: ({ name, address, taxNumber }) =>
      ask(api.settings.invoices.put({ name: orNull(name), address: orNull(address), taxNumber: orNull(taxNumber) })),
    onSent: async () => {
      await client.invalidateQueries({ queryKey: BUYER_KEY });
      toast.done("Invoice details saved.");
    },
  });
  const { lock } = useViewer();
  return (
    <PageForm form={form} saveLabel="Save invoice details" lock={lock} className="max-w-[34rem]">
      <TextField
        label="Name on invoices"
        optional
        hint="A person or company. Empty: the name of your account."
        {...form.field("name")}
        maxLength={INVOICE_NAME_CHARS_MAX}
        disabled={lock.disabled}
      />
      <AddressField {...form.field("address")} optional />
      <TextField
        label="Tax number"
        optional
        {...form.field("taxNumber")}
        maxLength={TAX_NUMBER_CHARS_MAX}
        disabled={lock.disabled}
      />
    </PageForm>
  );
}

type Typed = { value: string; onValue: (value: string) => void; error: string | null };

function AddressField({ error, optional = false, ...field }: Typed & { optional?: boolean }) {
  const { lock } = useViewer();
  return (
    <Field label="Address" optional={optional} hint="As on a letter, up to 8 lines." error={error}>
      <TextArea {...field} rows={4} maxLength={INVOICE_ADDRESS_CHARS_MAX} disabled={lock.disabled} />
    </Field>
  );
}

function orNull(typed: string): string | null {
  return isBlank(typed) ? null : typed;
}
