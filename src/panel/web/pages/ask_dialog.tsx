import { useState } from "react";
import { api, ask, sentOnce, useIdempotencyKey } from "../api.ts";
import { parseUsd } from "../format.ts";
import { Button } from "../ui/buttons.tsx";
import { Segmented } from "../ui/choices.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Field, TextArea, TextInput } from "../ui/fields.tsx";
import { useForm } from "../ui/form.tsx";
import { brandName } from "../ui/page.tsx";
import { toast } from "../ui/toast.tsx";
import { useBilling } from "./holdings.tsx";
import { type Offering, OfferingField, useOfferings } from "./offerings.tsx";
import { type OrderKind, wants } from "./orders.tsx";
import { useRefresh, useViewer } from "./page_hooks.ts";
import { wrongAmount } from "./typed_numbers.ts";

const NOTE_CHARS_MAX = 500;

/** Asks for a package or a top-up. Who answers is not named: the brand is what a customer knows. */
export function AskDialog({ open, onClose, kind: first }: { open: boolean; onClose: () => void; kind: OrderKind }) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const offerings = useOfferings({ enabled: open });
  const [kind, setKind] = useState(first);
  const [offering, setOffering] = useState<Offering | null>(null);
  const [amount, setAmount] = useState("");
  const [note, setNote] = useState("");
  const isPackage = kind === "package";
  const billing = useBilling(null, { enabled: open && !isPackage });
  const viewer = useViewer();
  // A reseller's balance pays for what it hands out.
  const isIdle = viewer.role !== "reseller" && billing.data?.balance.paygEnabled === false;
  const idle = isIdle && "In US dollars. Requests are not paid from your balance yet: ask for that in the note too.";
  // A reseller's own host bears its own name; it is the operator who answers a reseller.
  const answerer = viewer.role === "reseller" ? "The operator" : brandName() || "Whoever you buy from";
  const form = useForm({
    wrong: {
      offeringId: isPackage && offering === null ? "Choose an offering." : null,
      amountNanoUsd: isPackage ? null : wrongAmount(amount),
      note: null,
    },
    send: () => {
      const words = { note: note.trim() === "" ? null : note };
      const wanted = isPackage
        ? { kind: "package" as const, offeringId: offering?.offeringId ?? 0, ...words }
        : { kind: "top_up" as const, amountNanoUsd: parseUsd(amount) ?? "", ...words };
      return ask(api.orders.post(wanted, sentOnce(formKey)));
    },
    onSent: async ({ order }) => {
      await refresh();
      toast.done(`Asked for ${wants(order)}. The answer is shown under Orders.`);
      onClose();
    },
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title="Ask for more"
      description={`${answerer} gets it, and the answer is shown under Orders.`}
      onSubmit={form.submit}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" pending={form.isPending}>
            Send order
          </Button>
        </>
      }
    >
      <Segmented
        label="What to ask for"
        value={kind}
        onValue={setKind}
        options={[
          { value: "package", label: "Package" },
          { value: "top_up", label: "Top-up" },
        ]}
        className="justify-self-start"
      />
      {isPackage ? (
        <OfferingField
          offerings={offerings}
          value={offering}
          onValue={setOffering}
          error={form.errorOf("offeringId")}
        />
      ) : (
        <Field
          label="Amount"
          hint={idle || "In US dollars, added to your balance."}
          error={form.errorOf("amountNanoUsd")}
        >
          <TextInput value={amount} onValue={setAmount} before="$" inputMode="decimal" className="figures" />
        </Field>
      )}
      <Field
        label="Note"
        optional
        hint="What they should know: when, how long, on which invoice."
        error={form.errorOf("note")}
      >
        <TextArea value={note} onValue={setNote} rows={3} maxLength={NOTE_CHARS_MAX} />
      </Field>
      {form.problem}
    </Dialog>
  );
}
