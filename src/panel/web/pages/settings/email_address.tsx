import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation } from "@tanstack/react-query";
import { Check, Clock } from "lucide-react";
import { api, ask } from "../../api.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { EmailField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isEmail, useForm } from "../../ui/form.tsx";
import { Section } from "../../ui/page.tsx";
import { Banner } from "../../ui/states.tsx";
import { Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { firstProof, ProofFields, type ProofWays, takeProof, wrongProof } from "./confirm_person.tsx";
import { useHasPasskey } from "./passkeys.tsx";

/** The person's e-mail address, and its change, which waits until both addresses have confirmed it. */

type Settings = NonNullable<Awaited<ReturnType<typeof api.settings.get>>["data"]>;
type Pending = NonNullable<Settings["emailChange"]>;
type Changed = () => Promise<void>;

export function EmailAddress({
  settings: { email, emailChange, sendsMail, totpEnabled },
  onChanged,
}: {
  settings: Settings;
  onChanged: Changed;
}) {
  const { lock } = useViewer();
  const hasPasskey = useHasPasskey();
  const dialog = useOpened<"change">();
  return (
    <Section title={t`E-mail`} description={t`You sign in with this address.`}>
      <div className="grid gap-4">
        <p className="text-14 font-medium wrap-anywhere">{email}</p>
        {emailChange && <Waiting change={emailChange} email={email} onChanged={onChanged} />}
        {sendsMail ? (
          <div>
            <Button onClick={() => dialog.open("change")} {...lock}>
              {emailChange ? t`Change to another address` : t`Change e-mail`}
            </Button>
          </div>
        ) : (
          <p className="text-13 text-ink-2">{t`It cannot be changed here, because this site sends no mail.`}</p>
        )}
      </div>
      {dialog.what === "change" && (
        <ChangeEmail
          key={dialog.times}
          open={dialog.isOpen}
          onClose={dialog.close}
          email={email}
          onChanged={onChanged}
          hasPasskey={hasPasskey}
          asksForCode={totpEnabled}
        />
      )}
    </Section>
  );
}

function Waiting({ change, email, onChanged }: { change: Pending; email: string; onChanged: Changed }) {
  const { lock } = useViewer();
  const cancel = useMutation({
    mutationFn: () => ask(api.settings.email.cancel.post()),
    onSuccess: () => toast.done(t`The change is cancelled. Your address stays as it is.`),
    onError: (error) => toast.failed(error),
    onSettled: onChanged,
  });
  return (
    <Banner tone="warn" icon={Clock} title={t`Waiting to change to ${{ email: change.newEmail }}`}>
      <p>
        <Trans>
          We sent a link to each address. Open both until <Instant iso={change.expiresAt} />.
        </Trans>
      </p>
      <ul className="mt-2 grid gap-1">
        <Side email={email} isConfirmed={change.oldConfirmed} />
        <Side email={change.newEmail} isConfirmed={change.newConfirmed} />
      </ul>
      <Button size="sm" className="mt-3" pending={cancel.isPending} onClick={() => cancel.mutate()} {...lock}>
        {t`Cancel the change`}
      </Button>
    </Banner>
  );
}

function Side({ email, isConfirmed }: { email: string; isConfirmed: boolean }) {
  const Icon = isConfirmed ? Check : Clock;
  return (
    <li className="flex min-w-0 items-start gap-2">
      <Icon size={14} aria-hidden className="mt-0.5 flex-none" />
      <span className="min-w-0 break-words">
        {isConfirmed ? t`${email}: confirmed` : t`${email}: not confirmed yet`}
      </span>
    </li>
  );
}

function ChangeEmail({
  email,
  onChanged,
  hasPasskey,
  asksForCode,
  ...dialog
}: DialogState & ProofWays & { email: string; onChanged: Changed }) {
  const form = useForm({
    first: { email: "", ...firstProof(hasPasskey) },
    wrong: ({ email: typed, ...proof }) => ({
      email: isEmail(typed) ? null : t`Enter the new e-mail address.`,
      ...wrongProof(proof, { asksForCode }),
    }),
    send: async ({ email: typed, ...proof }) => {
      await ask(api.settings.email.post({ email: typed.trim(), proof: await takeProof(proof, { asksForCode }) }));
      await onChanged();
    },
    onSent: () => {
      toast.done(t`We sent a link to both addresses.`);
      dialog.onClose();
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Change your e-mail`}
      description={t`We send a link to the new address and to ${email}. The change is made when both are confirmed.`}
      submitLabel={t`Send links`}
      size="sm"
    >
      <EmailField label={t`New e-mail`} {...form.field("email")} autoComplete="email" />
      <ProofFields form={form} hasPasskey={hasPasskey} asksForCode={asksForCode} />
    </FormDialog>
  );
}
