import { formatMoney, parseUsd } from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { checkPrice } from "../../shared/typed_numbers.ts";
import { Checkbox } from "../../ui/choices.tsx";
import { FieldError } from "../../ui/fields.tsx";
import { type Form, isBlank } from "../../ui/form.tsx";

/**
 * A retail price while it is typed: its error, and the confirmation that a price below wholesale needs. Source: RTL-2.
 */

export type TypedPrice = { priceNanoUsd: string; belowWholesale: boolean };
type PriceForm = Pick<Form<TypedPrice, keyof TypedPrice>, "values" | "set" | "errorOf">;

/** `wholesaleNanoUsd` is null while it cannot be read. */
export function wrongRetailPrice(
  { priceNanoUsd, belowWholesale }: TypedPrice,
  { wholesaleNanoUsd, optional = false }: { wholesaleNanoUsd: string | null; optional?: boolean },
): Record<keyof TypedPrice, string | null> {
  if (optional && isBlank(priceNanoUsd)) return { priceNanoUsd: null, belowWholesale: null };
  const isLoss = lossOf(priceNanoUsd, wholesaleNanoUsd) > 0n;
  return {
    priceNanoUsd: checkPrice(priceNanoUsd),
    belowWholesale: isLoss && !belowWholesale ? "Confirm it, or set a higher price." : null,
  };
}

/** The nano-USD by which a price is below wholesale; 0n if it is not, or if either cannot be read. */
function lossOf(price: string, wholesaleNanoUsd: string | null): bigint {
  if (wholesaleNanoUsd === null || checkPrice(price) !== null) return 0n;
  const loss = BigInt(wholesaleNanoUsd) - BigInt(parseUsd(price) ?? 0);
  return loss > 0n ? loss : 0n;
}

/** Asks for the confirmation while the price is below wholesale. */
export function BelowWholesale({ form, wholesaleNanoUsd }: { form: PriceForm; wholesaleNanoUsd: string | null }) {
  const { role } = useViewer();
  const loss = lossOf(form.values.priceNanoUsd, wholesaleNanoUsd);
  const error = form.errorOf("belowWholesale");
  if (loss === 0n) return null;
  return (
    <div className="grid gap-1">
      <Checkbox
        label={`Yes, ${formatMoney(loss)} below the wholesale price`}
        hint={role === "admin" ? "Resellers pay more for it than your own customers." : "You lose that with each one."}
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
