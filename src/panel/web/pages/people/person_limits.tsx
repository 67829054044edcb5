import { t } from "@lingui/core/macro";
import { api, ask } from "../../api.ts";
import { limitsText } from "../../copy.ts";
import { type Person, useRefresh } from "../../shared/page_hooks.ts";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { AllLimitFields, checkAllLimits, readAllLimits, typedAllLimits } from "../keys/rate_limits.tsx";

/** Sets the limits of an account. Its package and its reseller may set others; the lowest applies. */
export function LimitsDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const refresh = useRefresh();
  const { own, package: ofPackage, reseller } = person.limits;
  const form = useForm({
    first: typedAllLimits(own),
    wrong: checkAllLimits,
    send: (typed) => ask(api.people({ id: person.accountId }).limits.patch({ limits: readAllLimits(typed) })),
    onSent: async () => {
      await refresh();
      toast.done(t`The limits of ${{ name: person.name }} are saved.`);
      onClose();
    },
  });
  const others = [
    ofPackage !== null && t`The package sets ${{ limits: limitsText(ofPackage) }}.`,
    reseller !== null && t`The reseller has ${{ limits: limitsText(reseller) }}; no customer of it may have more.`,
  ].filter(Boolean);
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Limits of ${{ name: person.name }}`}
      description={[
        t`Over all its keys. An empty field sets no limit; the lowest of all limits applies.`,
        ...others,
      ].join(" ")}
      size="lg"
      submitLabel={t`Save limits`}
    >
      <AllLimitFields form={form} most={reseller} />
    </FormDialog>
  );
}
