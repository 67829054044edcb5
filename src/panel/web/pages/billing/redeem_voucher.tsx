import { t } from "@lingui/core/macro";
import { TYPED_VOUCHER_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { formatMoney } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
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
    wrong: ({ code }) => ({ code: isBlank(code) ? t`Enter the code.` : null }),
    send: ({ code }) => ask(api.vouchers.redeem.post({ code })),
    onSent: async ({ package: given, amountNanoUsd }) => {
      await refresh();
      const said = given
        ? [
            t`${{ name: given.name }} is yours.`,
            given.state === "queued" &&
              t`It starts ${{ start: startText(given) }}, when your other packages have ended.`,
          ]
        : [
            t`${{ amount: formatMoney(amountNanoUsd ?? "0") }} was added to your balance.`,
            isIdle && t`It pays for requests once pay-as-you-go is switched on for you.`,
          ];
      toast.done(said.filter(Boolean).join(" "));
      onClose();
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Redeem a voucher`}
      description={t`A package starts immediately, or after the packages that you have. An amount is added to your balance.`}
      submitLabel={t`Redeem`}
      size="sm"
    >
      <TextField
        label={t`Code`}
        hint={t`20 letters and digits. Capitals, spaces and hyphens do not matter.`}
        {...form.field("code")}
        mono
        maxLength={TYPED_VOUCHER_CHARS_MAX}
        placeholder="XXXX-XXXX-XXXX-XXXX-XXXX"
      />
    </FormDialog>
  );
}
