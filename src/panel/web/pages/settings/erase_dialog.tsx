import { t } from "@lingui/core/macro";
import { EMAIL_CHARS_MAX } from "../../../../limits.ts";
import { Checkbox } from "../../ui/choices.tsx";
import { TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { firstProof, type Proof, ProofFields, type ProofWays, takeProof, wrongProof } from "./confirm_person.tsx";

/** Erasing an account: one's own, or that of a person whom one manages. */
export function EraseDialog({
  person,
  email,
  send,
  onErased,
  hasPasskey,
  asksForCode,
  ...dialog
}: DialogState &
  ProofWays & {
    /** Whose account it is; null: one's own. */
    person: string | null;
    email: string;
    send: (body: { email: string; force: boolean; proof: Proof }) => Promise<unknown>;
    onErased: () => unknown;
  }) {
  const form = useForm({
    first: { email: "", force: false, ...firstProof(hasPasskey) },
    wrong: ({ email: typed, force: _, ...proof }) => ({
      ...wrongProof(proof, { asksForCode }),
      email: typed.trim().toLowerCase() === email.toLowerCase() ? null : t`Type the e-mail address of the account.`,
      force: null,
    }),
    send: async ({ email: typed, force, ...proof }) =>
      send({ email: typed.trim(), force, proof: await takeProof(proof, { asksForCode }) }),
    onSent: onErased,
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Erase the account`}
      submitLabel={t`Erase for good`}
      isDanger
      size="sm"
      description={
        person === null
          ? t`Your name, address, keys, sessions and mails are deleted at once, for good. A last mail confirms it.`
          : t`${person}'s name, address, keys, sessions and mails are deleted at once, for good. A last mail to the address confirms it.`
      }
    >
      <p className="text-13 text-ink-2">
        {t`Kept for good: invoices as they are, because the law asks for it, and orders, payments and sums of usage, without the name. Receipts and the audit log are kept without it, as long as those of others.`}
      </p>
      <TextField label={t`E-mail address: ${email}`} {...form.field("email")} maxLength={EMAIL_CHARS_MAX} />
      <Checkbox
        label={t`Give up what is left`}
        hint={t`The balance, packages that have not ended, and open orders.`}
        checked={form.values.force}
        onValue={(force) => form.set({ force })}
        error={form.errorOf("force")}
      />
      <ProofFields form={form} hasPasskey={hasPasskey} asksForCode={asksForCode} />
    </FormDialog>
  );
}
