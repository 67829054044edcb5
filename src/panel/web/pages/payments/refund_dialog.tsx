import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { REASON_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { parseUsd, toUsdInput } from "../../format.ts";
import { useRefresh } from "../../shared/page_hooks.ts";
import { wrongAmount } from "../../shared/typed_numbers.ts";
import { Checkbox } from "../../ui/choices.tsx";
import { MoneyField, TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { amountOf, type ListedPayment } from "./payment_amounts.ts";

/** Gives a payment back, all of it or a part. */
export function RefundDialog({ open, onClose, payment }: DialogState & { payment: ListedPayment }) {
  const { paymentId, name, amountNano, refundedNano, currency, method, problem } = payment;
  const refresh = useRefresh();
  const formKey = useIdempotencyKey();
  const left = String(BigInt(amountNano) - BigInt(refundedNano));
  const form = useForm({
    first: { amountNano: toUsdInput(left), reason: "", endPackage: false },
    wrong: ({ amountNano: typed }) => ({ amountNano: wrongRefund(typed, { left, currency }), reason: null }),
    send: ({ amountNano: typed, reason, endPackage }) =>
      ask(
        api.payments({ id: paymentId }).refunds.post(
          {
            amountNano: parseUsd(typed) ?? "",
            reason: isBlank(reason) ? null : reason.trim(),
            endPackage,
          },
          sentOnce(formKey),
        ),
      ),
    onSent: async ({ refund }) => {
      await refresh();
      const amount = amountOf(refund.amountNano, currency);
      if (refund.status === "failed")
        toast.failed(new Error(`${t`Stripe did not refund ${amount}.`} ${refund.problem}`));
      else
        toast.done(
          refund.status === "done" ? t`${amount} refunded to ${name}.` : t`Stripe is asked to refund ${amount}.`,
        );
      onClose();
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Refund ${name}?`}
      description={t`${{ left: amountOf(left, currency) }} of ${{ paid: amountOf(amountNano, currency) }} can be refunded.`}
      size="sm"
      submitLabel={t({ message: "Refund", context: "button" })}
      isDanger
    >
      <p className="text-14 text-ink-2">
        {method === "stripe"
          ? t`Stripe sends it back to the card.`
          : t`This only records it: send the money back yourself, the way it came.`}
        {problem === null &&
          !payment.isPackage &&
          ` ${t`The top-up is taken from the balance again; more than is available cannot be refunded.`}`}{" "}
        <Trans>Tax is refunded in proportion.</Trans>
      </p>
      <MoneyField label={t`Amount`} currency={currency} {...form.field("amountNano")} />
      <TextField
        label={t`Reason`}
        optional
        hint={t`In the customer's transactions.`}
        maxLength={REASON_CHARS_MAX}
        {...form.field("reason")}
      />
      {payment.isPackage && problem === null && (
        <Checkbox
          label={t`End the package now`}
          hint={t`Otherwise it stays active until its end.`}
          checked={form.values.endPackage}
          onValue={(endPackage) => form.set({ endPackage })}
        />
      )}
    </FormDialog>
  );
}

function wrongRefund(typed: string, { left, currency }: { left: string; currency: string }): string | null {
  const wrong = wrongAmount(typed, { currency });
  if (wrong !== null) return wrong;
  return BigInt(parseUsd(typed) ?? 0) > BigInt(left) ? t`That is more than what is left of the payment.` : null;
}
