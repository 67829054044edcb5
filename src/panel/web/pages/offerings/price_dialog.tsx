import { api, ask } from "../../api.ts";
import { formatMoney, parseUsd, toUsdInput } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { DollarField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.tsx";
import { BelowWholesale, wrongRetailPrice } from "./retail_price.tsx";

/** Sets what the seller's own customers pay for an offering: a reseller's price, or for an admin the operator's. */
export function PriceDialog({
  open,
  onClose,
  offering: { offeringId, name, wholesaleNanoUsd, priceNanoUsd },
}: DialogState & {
  offering: { offeringId: number; name: string; wholesaleNanoUsd: string; priceNanoUsd: string | null };
}) {
  const refresh = useRefresh();
  const { role } = useViewer();
  const form = useForm({
    first: { priceNanoUsd: priceNanoUsd === null ? "" : toUsdInput(priceNanoUsd), belowWholesale: false },
    wrong: (typed) => wrongRetailPrice(typed, { wholesaleNanoUsd }),
    send: ({ priceNanoUsd: typed, belowWholesale }) =>
      ask(api.prices({ id: offeringId }).put({ priceNanoUsd: parseUsd(typed) ?? "", belowWholesale })),
    onSent: async (set) => {
      await refresh();
      toast.done(`${name} costs your customers ${formatMoney(set.priceNanoUsd)}.`);
      onClose();
    },
  });
  const wholesale = formatMoney(wholesaleNanoUsd);
  return (
    <FormDialog form={form} open={open} onClose={onClose} title={`Price of ${name}`} submitLabel="Set price">
      <DollarField
        label="Your customers pay"
        hint={
          role === "admin"
            ? `Whole cents. A reseller pays ${wholesale} for it.`
            : `Whole cents. You pay ${wholesale} for it.`
        }
        required
        {...form.field("priceNanoUsd")}
      />
      <BelowWholesale form={form} wholesaleNanoUsd={wholesaleNanoUsd} />
    </FormDialog>
  );
}
