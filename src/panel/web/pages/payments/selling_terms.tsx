import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { language } from "#language";
import { TAX_UNIT, topUpAmounts } from "../../../../commerce/order_amounts.ts";
import { COUNTRIES, isInEu } from "../../../../commerce/tax_words.ts";
import { CURRENCIES } from "../../../../platform/currencies.ts";
import { api, ask } from "../../api.ts";
import { formatAmount, formatMoney, parseUsd, toUsdInput, wrongUsd } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { advertised, toTerms } from "../../shared/selling.tsx";
import { Checkbox } from "../../ui/choices.tsx";
import { Combobox } from "../../ui/combobox.tsx";
import { Field, PercentField, TextField } from "../../ui/fields.tsx";
import { type Form, isBlank, PageForm, useForm } from "../../ui/form.tsx";
import { Section } from "../../ui/page.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";

/** The currency in which a seller sells, and its tax. Source: TAX-1, CUR-1. */

type Saved = NonNullable<Awaited<ReturnType<(typeof api)["selling-terms"]["get"]>>["data"]>;

const QUERY_KEY = ["selling-terms"] as const;
const NO_COUNTRY = "none";
const VAT_NUMBER_CHARS_MAX = 40;
/** Thousandths of a percent in one percent. */
const PERCENT = TAX_UNIT / 100;
/** Of the example below the form. */
const EXAMPLE_NANO_USD = 100_000_000_000n;
const EXAMPLE_PRICE_NANO = "12000000000";

export function SellingTermsSection() {
  const saved = useQuery({ queryKey: QUERY_KEY, queryFn: () => ask(api["selling-terms"].get()) });
  return (
    <Section
      title={t`Currency and tax`}
      description={t`In which currency your customers pay, and the tax on it. An order keeps what was set when it was placed. Balances stay in US dollars.`}
    >
      <Loaded query={saved} skeleton={<Skeleton className="h-80" />}>
        {(data) => <TermsForm key={JSON.stringify(data)} saved={data} />}
      </Loaded>
    </Section>
  );
}

const currencyNames = new Intl.DisplayNames(language, { type: "currency" });
const countryNames = new Intl.DisplayNames(language, { type: "region" });
const CURRENCY_OPTIONS = CURRENCIES.map((value) => ({
  value,
  label: `${value.toUpperCase()} · ${currencyNames.of(value.toUpperCase())}`,
}));
const COUNTRY_OPTIONS = [
  { value: NO_COUNTRY, label: t`No tax` },
  ...COUNTRIES.map((value) => ({ value, label: countryNames.of(value) ?? value })).toSorted((a, b) =>
    a.label.localeCompare(b.label, language),
  ),
];

function typedOf({ currency, usdRateNano, taxCountry, vatNumber, packageTax, topUpTax, pricesWithTax }: Saved) {
  return {
    currency,
    usdRateNano: usdRateNano === null ? "" : toUsdInput(usdRateNano),
    taxCountry: taxCountry ?? NO_COUNTRY,
    vatNumber: vatNumber ?? "",
    packageTax: String(packageTax / PERCENT),
    topUpTax: String(topUpTax / PERCENT),
    pricesWithTax,
  };
}
type Typed = ReturnType<typeof typedOf>;

/** Thousandths of a percent, exactly; NaN: it is no percentage with up to three decimals. */
function readTax(typed: string): number {
  const [, whole, decimals = ""] = /^(\d{1,3})(?:\.(\d{1,3}))?$/.exec(typed.trim()) ?? [];
  return whole === undefined ? Number.NaN : Number(whole + decimals.padEnd(3, "0"));
}

function wrongTax(typed: string): string | null {
  return readTax(typed) <= TAX_UNIT ? null : t`From 0 to 100, with up to three decimals.`;
}

function wrongRate(typed: string): string | null {
  if (isBlank(typed)) return t`Enter what one US dollar costs.`;
  return wrongUsd(typed) ?? (BigInt(parseUsd(typed) ?? 0) > 0n ? null : t`Above 0.`);
}

/** What is sent. Without a country there is no tax. */
function toSend({ currency, usdRateNano, taxCountry, vatNumber, packageTax, topUpTax, pricesWithTax }: Typed) {
  const hasTax = taxCountry !== NO_COUNTRY;
  return {
    currency,
    usdRateNano: currency === "usd" ? null : parseUsd(usdRateNano),
    taxCountry: hasTax ? taxCountry : null,
    vatNumber: hasTax && isInEu(taxCountry) && !isBlank(vatNumber) ? vatNumber.trim() : null,
    packageTax: hasTax ? readTax(packageTax) : 0,
    topUpTax: hasTax ? readTax(topUpTax) : 0,
    pricesWithTax: hasTax && pricesWithTax,
  };
}

function TermsForm({ saved }: { saved: Saved }) {
  const client = useQueryClient();
  const refresh = useRefresh();
  const { lock } = useViewer("settings");
  const form = useForm({
    first: typedOf(saved),
    wrong: ({ currency, usdRateNano, taxCountry, packageTax, topUpTax }) => ({
      currency: null,
      usdRateNano: currency === "usd" ? null : wrongRate(usdRateNano),
      taxCountry: null,
      vatNumber: null,
      packageTax: taxCountry === NO_COUNTRY ? null : wrongTax(packageTax),
      topUpTax: taxCountry === NO_COUNTRY ? null : wrongTax(topUpTax),
      pricesWithTax: null,
    }),
    send: (typed) => ask(api["selling-terms"].patch(toSend(typed))),
    onSent: async (data) => {
      client.setQueryData(QUERY_KEY, data);
      await refresh();
      toast.done(t`Currency and tax saved.`);
    },
  });
  const { currency, taxCountry } = form.values;
  const hasTax = taxCountry !== NO_COUNTRY;
  return (
    <PageForm form={form} saveLabel={t`Save currency and tax`} lock={lock}>
      <Field label={t`Currency`} error={form.errorOf("currency")}>
        <Combobox value={currency} onValue={(next) => form.set({ currency: next })} options={CURRENCY_OPTIONS} />
      </Field>
      {currency !== saved.currency && (
        <p className="text-13 text-warn">
          <Trans>
            Your prices in {{ before: saved.currency.toUpperCase() }} have no effect until you sell in it again. Set the
            prices of your packages in {{ currency: currency.toUpperCase() }} after you have saved.
          </Trans>
        </p>
      )}
      {currency !== "usd" && (
        <TextField
          label={t`One US dollar costs`}
          hint={t`Top-ups are credited in US dollars at this rate. The order shows it.`}
          inputMode="decimal"
          after={currency.toUpperCase()}
          className="max-w-[20rem]"
          required
          {...form.field("usdRateNano")}
        />
      )}
      <Field label={t`Country of the tax`} hint={t`Where you pay it.`} error={form.errorOf("taxCountry")}>
        <Combobox value={taxCountry} onValue={(next) => form.set({ taxCountry: next })} options={COUNTRY_OPTIONS} />
      </Field>
      {hasTax && <TaxFields form={form} />}
      <Example typed={form.values} />
    </PageForm>
  );
}

type TermsFormState = Form<Typed, keyof Typed>;

/** The rates of the tax, and how it is shown. */
function TaxFields({ form }: { form: TermsFormState }) {
  const { taxCountry } = form.values;
  return (
    <>
      <div className="grid gap-4 sm:grid-cols-2">
        <PercentField label={t`Tax on packages`} {...form.field("packageTax")} />
        <PercentField label={t`Tax on top-ups`} {...form.field("topUpTax")} />
      </div>
      {isInEu(taxCountry) && (
        <TextField
          label={t`Your VAT number`}
          optional
          hint={t`With it, businesses in other countries of the EU that enter theirs pay no VAT to you: reverse charge. The form of a number is checked, not whose it is: look it up in the EU's VIES.`}
          placeholder="DE136695976"
          autoCapitalize="characters"
          maxLength={VAT_NUMBER_CHARS_MAX}
          {...form.field("vatNumber")}
        />
      )}
      <Checkbox
        label={t`Prices of packages contain the tax`}
        hint={t`Otherwise it is added to them. It is always added to the amount of a top-up, which is what the balance gets.`}
        checked={form.values.pricesWithTax}
        onValue={(pricesWithTax) => form.set({ pricesWithTax })}
      />
    </>
  );
}

/** What customers pay on the terms as they are typed; nothing while a number cannot be read. */
function Example({ typed }: { typed: Typed }) {
  const { currency, usdRateNano, taxCountry, packageTax, topUpTax } = typed;
  if (currency !== "usd" && wrongRate(usdRateNano) !== null) return null;
  if (taxCountry !== NO_COUNTRY && (wrongTax(packageTax) ?? wrongTax(topUpTax)) !== null) return null;
  const terms = toTerms(toSend(typed));
  const topUp = topUpAmounts(terms, EXAMPLE_NANO_USD);
  const total = formatAmount(topUp.totalNano, currency);
  const { price, note } = advertised(terms, EXAMPLE_PRICE_NANO);
  const shown = [price, note].filter(Boolean).join(" ");
  return (
    <p className="text-13 text-ink-2">
      <Trans>
        A top-up of {{ amount: formatMoney(EXAMPLE_NANO_USD) }} costs <span className="tabular-nums">{total}</span>. A
        package at {{ price: formatAmount(EXAMPLE_PRICE_NANO, currency) }} is shown as “{shown}”.
      </Trans>
    </p>
  );
}
