import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { api, ask } from "../../api.ts";
import { useRefresh } from "../../shared/page_hooks.ts";
import { RadioList } from "../../ui/choices.tsx";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { amountOf, type ListedPayment, type ListedRefund } from "./payment_amounts.ts";

const ENDS = [
  { value: "made", label: t`It was made`, hint: t`The refund is recorded as done, and the customer is told.` },
  {
    value: "not_made",
    label: t`It was not made`,
    hint: t`The refund is recorded as failed. What it took from a balance is returned.`,
  },
] as const;

const RECORDED = {
  done: (amount: string, name: string) => t`The refund of ${amount} to ${name} is recorded as done.`,
  failed: (amount: string, name: string) => t`The refund of ${amount} to ${name} is recorded as failed.`,
  pending: (amount: string, name: string) => t`The refund of ${amount} to ${name} is recorded as pending.`,
} as const;

type End = (typeof ENDS)[number]["value"];

/** A former account at Stripe no longer answers for a refund: the seller says how it ended. */
export function EndRefundDialog({
  open,
  onClose,
  payment: { name, currency },
  refund: { refundId, amountNano },
}: DialogState & { payment: ListedPayment; refund: ListedRefund }) {
  const refresh = useRefresh();
  const amount = amountOf(amountNano, currency);
  const form = useForm({
    first: { end: null as End | null },
    wrong: ({ end }) => ({ end: end === null ? t`Choose one.` : null }),
    send: async ({ end }) => {
      const { refund } = await ask(api.refunds({ id: refundId }).end.post({ isMade: end === "made" }));
      return { status: refund.status, isAsChosen: (refund.status === "done") === (end === "made") };
    },
    onSent: async ({ status, isAsChosen }) => {
      await refresh();
      // Stripe's answer counts, or what a colleague said before.
      const why = isAsChosen ? "" : ` ${t`It had ended before you answered.`}`;
      toast.done(`${RECORDED[status](amount, name)}${why}`);
      onClose();
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`How did the refund to ${name} end?`}
      description={t`The former account at Stripe was asked to refund ${amount}, and its answer was lost.`}
      size="sm"
      submitLabel={t`Record it`}
      isDanger
    >
      <p className="text-14 text-ink-2">
        <Trans>
          Look in the Stripe dashboard of the former account, or ask Stripe or the customer. This cannot be undone.
        </Trans>
      </p>
      <RadioList
        label={t`The refund`}
        value={form.values.end}
        onValue={(end) => form.set({ end })}
        options={ENDS}
        error={form.errorOf("end")}
      />
    </FormDialog>
  );
}
