import { t } from "@lingui/core/macro";
import { api, ask, useMe } from "../../api.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { Section } from "../../ui/page.tsx";
import { toast } from "../../ui/toast.ts";
import { checkPassword, NewPassword } from "../sign_in/new_password.tsx";
import { firstProof, ProofFields, type ProofWays, takeProof, wrongProof } from "./confirm_person.tsx";
import { useHasPasskey } from "./passkeys.tsx";

/** The person's password. It can also be changed with a passkey, for example by a person who has forgotten it. */

type Owner = { name: string; email: string; totpEnabled: boolean };
type Changed = () => Promise<void>;

export function Password({ settings, onChanged }: { settings: Owner; onChanged: Changed }) {
  const { lock } = useViewer();
  const hasPasskey = useHasPasskey();
  const dialog = useOpened<"change">();
  return (
    <Section title={t`Password`} description={t`Changing it signs out every other device.`}>
      <div>
        <Button onClick={() => dialog.open("change")} {...lock}>
          {t`Change password`}
        </Button>
      </div>
      {dialog.what === "change" && (
        <ChangePassword
          key={dialog.times}
          open={dialog.isOpen}
          onClose={dialog.close}
          owner={settings}
          onChanged={onChanged}
          hasPasskey={hasPasskey}
          asksForCode={settings.totpEnabled}
        />
      )}
    </Section>
  );
}

function ChangePassword({
  owner: { name, email },
  onChanged,
  hasPasskey,
  asksForCode,
  ...dialog
}: DialogState & ProofWays & { owner: Owner; onChanged: Changed }) {
  const { brand } = useMe();
  const form = useForm({
    first: { next: "", ...firstProof(hasPasskey) },
    wrong: ({ next, ...proof }) => ({ ...wrongProof(proof, { asksForCode }), next: checkPassword(next) }),
    send: async ({ next, ...proof }) => {
      await ask(api.settings.password.post({ next, proof: await takeProof(proof, { asksForCode }) }));
      await onChanged();
    },
    onSent: () => {
      toast.done(t`Password changed. Your other devices are signed out.`);
      dialog.onClose();
    },
  });
  return (
    <FormDialog {...dialog} form={form} title={t`Change your password`} submitLabel={t`Change password`} size="sm">
      {/* For password managers. */}
      <input type="text" name="email" value={email} autoComplete="username" readOnly hidden />
      <ProofFields form={form} hasPasskey={hasPasskey} asksForCode={asksForCode} />
      <NewPassword label={t`New password`} {...form.field("next")} about={[name, email, brand.name]} />
    </FormDialog>
  );
}
