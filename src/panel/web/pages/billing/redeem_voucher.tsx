import { TYPED_VOUCHER_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { formatMoney } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.tsx";
import { startText } from "./package_start.tsx";
import { useBilling } from "./queries.ts";

/** Redeems a voucher for the person's own account. */
export function RedeemVoucher({ open, onClose }: DialogState) {
  const refresh = useRefresh();
  const { role } = useViewer();
  const billing = useBilling(null);
  const isIdle = role === "customer" && billing.data?.balance.paygEnabled === false;
  const form = useForm({
    first: { code: "" },
    wrong: ({ code }) => ({ code: isBlank(code) ? "Enter the code." : null }),
    send: ({ code }) => ask(api.vouchers.redeem.post({ code })),
    onSent: async ({ package: given, amountNanoUsd }) => {
      await refresh();
      const note = isIdle ? " It pays for requests once pay-as-you-go is switched on for you." : "";
      toast.done(
        given
          ? `${given.name} is yours.${given.state === "queued" ? ` It starts ${startText(given)}, when your other packages have ended.` : ""}`
          : `${formatMoney(amountNanoUsd ?? "0")} was added to your balance.${note}`,
      );
      onClose();
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title="Redeem a voucher"
      description="A package starts immediately, or after the packages that you have. An amount is added to your balance."
      submitLabel="Redeem"
      size="sm"
    >
      <TextField
        label="Code"
        hint="20 letters and digits. Capitals, spaces and hyphens do not matter."
        {...form.field("code")}
        mono
        maxLength={TYPED_VOUCHER_CHARS_MAX}
        placeholder="XXXX-XXXX-XXXX-XXXX-XXXX"
      />
    </FormDialog>
  );
}
