import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import type { SellingTerms } from "../../../../commerce/order_amounts.ts";
import { api, ask } from "../../api.ts";
import { EMPTY, termsText } from "../../copy.ts";
import { formatMoney } from "../../format.ts";
import { advertised, toTerms } from "../../shared/selling.tsx";
import { Combobox } from "../../ui/combobox.tsx";
import { Field } from "../../ui/fields.tsx";
import { ErrorLine } from "../../ui/states.tsx";

/** The offerings on sale, and the field to choose one. Each account sees what it pays. */

export type Offering = NonNullable<Awaited<ReturnType<typeof api.offerings.get>>["data"]>["offerings"][number];

/** Offerings on sale, with what the account pays; null: on request. */
export function useOfferings({ enabled = true } = {}) {
  return useQuery({ queryKey: ["offerings", "on sale"], queryFn: () => ask(api.offerings.get()), enabled });
}

/** What the seller's terms are for the person today. */
export function useTerms(): SellingTerms {
  return toTerms(useOfferings().data?.terms);
}

function priceText(terms: SellingTerms, { wholesaleNanoUsd, priceNano }: Offering): string {
  if (wholesaleNanoUsd !== null) return formatMoney(wholesaleNanoUsd);
  if (priceNano === null) return t({ message: "on request", context: "instead of a price" });
  const { price, note } = advertised(terms, priceNano);
  return note === null ? price : `${price} ${note}`;
}

export function OfferingField({
  offerings,
  value,
  onValue,
  error,
}: {
  offerings: ReturnType<typeof useOfferings>;
  value: Offering | null;
  onValue: (offering: Offering) => void;
  error?: string | null;
}) {
  const all = offerings.data?.offerings ?? [];
  const terms = toTerms(offerings.data?.terms);
  if (offerings.error && offerings.data === undefined) return <ErrorLine error={offerings.error} />;
  return (
    <Field label={t`Offering`} hint={value ? termsText(value) : undefined} error={error}>
      <Combobox
        value={value === null ? null : String(value.offeringId)}
        onValue={(id) => {
          const chosen = all.find(({ offeringId }) => String(offeringId) === id);
          if (chosen) onValue(chosen);
        }}
        disabled={offerings.data === undefined}
        placeholder={offerings.data === undefined ? t`Loading…` : t`Choose an offering`}
        emptyText={all.length === 0 ? EMPTY.offerings : undefined}
        options={all.map((offering) => ({
          value: String(offering.offeringId),
          label: offering.name,
          hint: priceText(terms, offering),
        }))}
      />
    </Field>
  );
}
