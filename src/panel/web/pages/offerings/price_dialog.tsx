import { t } from "@lingui/core/macro";
import type { SellingTerms } from "../../../../commerce/order_amounts.ts";
import { api, ask } from "../../api.ts";
import { formatAmount, formatMoney, parseUsd, toUsdInput } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { MoneyField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { BelowWholesale, wrongRetailPrice } from "./retail_price.tsx";

/** Sets what the seller's own customers pay for an offering: a reseller's price, or for an admin the operator's. */
export function PriceDialog({
  open,
  onClose,
  offering: { offeringId, name, wholesaleNanoUsd, priceNano },
  terms,
}: DialogState & {
  terms: SellingTerms;
  offering: { offeringId: number; name: string; wholesaleNanoUsd: string; priceNano: string | null };
}) {
  const refresh = useRefresh();
  const { role } = useViewer();
  const form = useForm({
    first: { priceNano: priceNano === null ? "" : toUsdInput(priceNano), belowWholesale: false },
    wrong: (typed) => wrongRetailPrice(typed, { terms, wholesaleNanoUsd }),
    send: ({ priceNano: typed, belowWholesale }) =>
      ask(api.prices({ id: offeringId }).put({ priceNano: parseUsd(typed) ?? "", belowWholesale })),
    onSent: async (set) => {
      await refresh();
      toast.done(t`${name} costs your customers ${{ price: formatAmount(set.priceNano, set.currency) }}.`);
      onClose();
    },
  });
  const wholesale = formatMoney(wholesaleNanoUsd);
  return (
    <FormDialog form={form} open={open} onClose={onClose} title={t`Price of ${name}`} submitLabel={t`Set price`}>
      <MoneyField
        label={t`Your customers pay`}
        currency={terms.currency}
        hint={`${withTax(terms)} ${role === "admin" ? t`A reseller pays ${{ price: wholesale }} for it.` : t`You pay ${{ price: wholesale }} for it.`}`}
        required
        {...form.field("priceNano")}
      />
      <BelowWholesale form={form} terms={terms} wholesaleNanoUsd={wholesaleNanoUsd} />
    </FormDialog>
  );
}

function withTax({ taxCountry, currency, pricesWithTax }: SellingTerms): string {
  if (taxCountry !== null) return pricesWithTax ? t`With the tax.` : t`Without tax, which is added to it.`;
  return currency === "usd" ? t`Whole cents.` : t`In ${{ currency: currency.toUpperCase() }}.`;
}
