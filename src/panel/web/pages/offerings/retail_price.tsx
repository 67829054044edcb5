import { t } from "@lingui/core/macro";
import { priceWorth, type SellingTerms } from "../../../../commerce/order_amounts.ts";
import { formatMoney, parseUsd } from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { checkPrice } from "../../shared/typed_numbers.ts";
import { Checkbox } from "../../ui/choices.tsx";
import { FieldError } from "../../ui/fields.tsx";
import { type Form, isBlank } from "../../ui/form.tsx";

/**
 * A retail price while it is typed: its error, and the confirmation that a price below wholesale needs. Source: RTL-2.
 */

export type TypedPrice = { priceNano: string; belowWholesale: boolean };
type PriceForm = Pick<Form<TypedPrice, keyof TypedPrice>, "values" | "set" | "errorOf">;

/** What a price is compared with. `wholesaleNanoUsd` is null while it cannot be read. */
type Compared = { terms: SellingTerms; wholesaleNanoUsd: string | null };

export function wrongRetailPrice(
  { priceNano, belowWholesale }: TypedPrice,
  { terms, wholesaleNanoUsd, optional = false }: Compared & { optional?: boolean },
): Record<keyof TypedPrice, string | null> {
  if (optional && isBlank(priceNano)) return { priceNano: null, belowWholesale: null };
  const isLoss = lossOf(priceNano, { terms, wholesaleNanoUsd }) > 0n;
  return {
    priceNano: checkPrice(priceNano, terms.currency),
    belowWholesale: isLoss && !belowWholesale ? t`Confirm it, or set a higher price.` : null,
  };
}

/** The nano-USD by which a price without tax is below wholesale; 0n if it is not, or if either cannot be read. */
function lossOf(price: string, { terms, wholesaleNanoUsd }: Compared): bigint {
  if (wholesaleNanoUsd === null || checkPrice(price, terms.currency) !== null) return 0n;
  const loss = BigInt(wholesaleNanoUsd) - priceWorth(terms, BigInt(parseUsd(price) ?? 0));
  return loss > 0n ? loss : 0n;
}

/** Asks for the confirmation while the price is below wholesale. */
export function BelowWholesale({ form, ...compared }: { form: PriceForm } & Compared) {
  const { role } = useViewer();
  const loss = lossOf(form.values.priceNano, compared);
  const error = form.errorOf("belowWholesale");
  if (loss === 0n) return null;
  return (
    <div className="grid gap-1">
      <Checkbox
        label={t`Yes, ${{ amount: formatMoney(loss) }} below the wholesale price`}
        hint={
          role === "admin" ? t`Resellers pay more for it than your own customers.` : t`You lose that with each one.`
        }
        checked={form.values.belowWholesale}
        onValue={(isOn) => form.set({ belowWholesale: isOn })}
      />
      {error && (
        <div role="alert">
          <FieldError id="below-wholesale-error">{error}</FieldError>
        </div>
      )}
    </div>
  );
}
