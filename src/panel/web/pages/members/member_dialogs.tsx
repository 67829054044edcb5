import { t } from "@lingui/core/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { api, ask, type MemberRole, sentOnce, useIdempotencyKey } from "../../api.ts";
import { RadioList } from "../../ui/choices.tsx";
import { EmailField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isEmail, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { firstProof, ProofFields, takeProof, wrongProof } from "../settings/confirm_person.tsx";
import { useHasPasskey } from "../settings/passkeys.tsx";
import { settingsQuery } from "../settings/queries.ts";
import { MEMBERS_KEY, type Member } from "./queries.ts";

/** The dialogs that give somebody rights. They last longer than a session, so the person confirms who they are. */

export const ROLE_OPTIONS = [
  { value: "owner", label: t`Owner`, hint: t`Everything, members included.` },
  { value: "developer", label: t`Developer`, hint: t`Keys, the playground and webhooks. Sees everything.` },
  { value: "billing", label: t`Billing`, hint: t`Orders, packages, invoices and payments. Sees everything.` },
  { value: "viewer", label: t`Viewer`, hint: t`Sees everything, changes nothing.` },
] as const satisfies readonly { value: MemberRole; label: string; hint: string }[];

export function roleWords(role: MemberRole): string {
  return ROLE_OPTIONS.find(({ value }) => value === role)?.label ?? role;
}

function useProofWays() {
  const settings = useQuery(settingsQuery);
  return { hasPasskey: useHasPasskey(), asksForCode: settings.data?.totpEnabled ?? false };
}

export function InviteDialog(dialog: DialogState) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  const ways = useProofWays();
  const first: { email: string; role: MemberRole } = { email: "", role: "developer" };
  const form = useForm({
    first: { ...first, ...firstProof(ways.hasPasskey) },
    wrong: ({ email, role: _, ...proof }) => ({
      email: isEmail(email) ? null : t`Enter an e-mail address.`,
      role: null,
      ...wrongProof(proof, ways),
    }),
    send: async ({ email, role, ...typed }) => {
      const proof = await takeProof(typed, ways);
      return ask(api.members.invitations.post({ email: email.trim(), role, proof }, sentOnce(formKey)));
    },
    onSent: async ({ email }) => {
      dialog.onClose();
      toast.done(t`${email} is invited.`);
      await client.invalidateQueries({ queryKey: MEMBERS_KEY });
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Invite a member`}
      description={t`The link goes by mail to this address alone, and works once within 7 days.`}
      submitLabel={t`Invite`}
    >
      <EmailField label={t`E-mail`} {...form.field("email")} required />
      <RadioList label={t`Role`} options={ROLE_OPTIONS} {...form.field("role")} />
      <ProofFields form={form} {...ways} />
    </FormDialog>
  );
}

export function RoleDialog({ row, ...dialog }: DialogState & { row: Member }) {
  const client = useQueryClient();
  const ways = useProofWays();
  const first: { role: MemberRole } = { role: row.role };
  const form = useForm({
    first: { ...first, ...firstProof(ways.hasPasskey) },
    wrong: ({ role: _, ...proof }) => ({ role: null, personId: null, ...wrongProof(proof, ways) }),
    send: async ({ role, ...typed }) => {
      const proof = await takeProof(typed, ways);
      return ask(api.members({ id: row.personId }).patch({ role, proof }));
    },
    onSent: async ({ name, role }) => {
      dialog.onClose();
      toast.done(t`${name} has the role ${{ role: roleWords(role) }}.`);
      await client.invalidateQueries();
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Change the role of ${{ name: row.name }}`}
      description={t`It counts at once, on every device and for every API token.`}
      submitLabel={t`Change role`}
    >
      <RadioList
        label={t`Role`}
        options={ROLE_OPTIONS}
        {...form.field("role")}
        error={form.errorOf("role") || form.errorOf("personId")}
      />
      <ProofFields form={form} {...ways} />
    </FormDialog>
  );
}
