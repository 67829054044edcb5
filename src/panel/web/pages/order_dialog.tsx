import { ORDER_TEXT_CHARS_MAX } from "../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../api.ts";
import { parseUsd } from "../format.ts";
import { Segmented } from "../ui/choices.tsx";
import { DollarField, Field, TextArea } from "../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../ui/form.tsx";
import { brandName } from "../ui/page.tsx";
import { toast } from "../ui/toast.tsx";
import { useBilling } from "./holdings.tsx";
import { type Offering, OfferingField, useOfferings } from "./offerings.tsx";
import { type OrderKind, wants } from "./orders.tsx";
import { useRefresh, useViewer } from "./page_hooks.ts";
import { wrongAmount } from "./typed_numbers.ts";

const KINDS = [
  { value: "package", label: "Package" },
  { value: "top_up", label: "Top-up" },
] as const satisfies readonly { value: OrderKind; label: string }[];

/** Places an order for a package or a top-up. A customer does not learn who answers: it knows only the brand. */
export function OrderDialog({ open, onClose, kind: first }: DialogState & { kind: OrderKind }) {
  const refresh = useRefresh();
  const offerings = useOfferings({ enabled: open });
  const send = useSendOrder();
  const form = useForm({
    first: { kind: first, offeringId: null as Offering | null, amountNanoUsd: "", note: "" },
    wrong: ({ kind, offeringId, amountNanoUsd }) => ({
      offeringId: kind === "package" && offeringId === null ? "Choose an offering." : null,
      amountNanoUsd: kind === "top_up" ? wrongAmount(amountNanoUsd) : null,
      note: null,
    }),
    send,
    onSent: async ({ order }) => {
      await refresh();
      toast.done(`Asked for ${wants(order)}. The answer appears under Orders.`);
      onClose();
    },
  });
  const { kind } = form.values;
  const { error: noteError, ...note } = form.field("note");
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title="Ask for more"
      description={`${useAnswerer()} gets it. The answer appears under Orders.`}
      submitLabel="Send order"
    >
      <Segmented
        label="What to ask for"
        value={kind}
        onValue={(next) => form.set({ kind: next })}
        options={KINDS}
        className="justify-self-start"
      />
      {kind === "package" ? (
        <OfferingField offerings={offerings} {...form.field("offeringId")} />
      ) : (
        <AmountField {...form.field("amountNanoUsd")} />
      )}
      <Field label="Note" optional hint="What they should know: when, how long, on which invoice." error={noteError}>
        <TextArea {...note} rows={3} maxLength={ORDER_TEXT_CHARS_MAX} />
      </Field>
    </FormDialog>
  );
}

function useSendOrder() {
  const formKey = useIdempotencyKey();
  return (typed: { kind: OrderKind; offeringId: Offering | null; amountNanoUsd: string; note: string }) => {
    const note = isBlank(typed.note) ? null : typed.note;
    const order =
      typed.kind === "package"
        ? { kind: "package" as const, offeringId: typed.offeringId?.offeringId ?? 0, note }
        : { kind: "top_up" as const, amountNanoUsd: parseUsd(typed.amountNanoUsd) ?? "", note };
    return ask(api.orders.post(order, sentOnce(formKey)));
  };
}

/** A reseller's own host shows its own brand, but the operator answers a reseller. */
function useAnswerer(): string {
  const { role } = useViewer();
  return role === "reseller" ? "The operator" : brandName() || "The company you buy from";
}

function AmountField(field: { value: string; onValue: (typed: string) => void; error: string | null }) {
  const { role } = useViewer();
  const billing = useBilling(null);
  // A reseller's balance pays for the packages it assigns, even without pay-as-you-go.
  const isIdle = role !== "reseller" && billing.data?.balance.paygEnabled === false;
  const hint = isIdle
    ? "In US dollars. Your balance does not pay for requests yet: ask for pay-as-you-go in the note."
    : "In US dollars, added to your balance.";
  return <DollarField label="Amount" hint={hint} {...field} />;
}
