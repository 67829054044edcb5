import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Download, KeyRound, ShieldCheck } from "lucide-react";
import { lazy, Suspense, useRef, useState } from "react";
import { TYPED_CODE_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, useMe } from "../../api.ts";
import { RECOVERY } from "../../copy.ts";
import { saveAs } from "../../shared/download.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { Checkbox } from "../../ui/choices.tsx";
import { OnceDialog } from "../../ui/copy_field.tsx";
import { CopyButton } from "../../ui/copy_text.tsx";
import { TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { keptOnce } from "../../ui/kept_once.ts";
import { Section } from "../../ui/page.tsx";
import { Badge, Banner, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { firstProof, type Proof, ProofFields, takeProof, wrongProof } from "./confirm_person.tsx";
import { useHasPasskey } from "./passkeys.tsx";

/** The second factor: its state, and the dialogs to set it up, to renew its recovery codes, and to remove it. */

/** With fewer left, the page warns. */
const CODES_LOW = 3;

/** `isFirst`: of a second factor that was just switched on. */
const recovery = keptOnce<{ codes: readonly string[]; isFirst: boolean }>();

type Changed = () => Promise<void>;

function CodesLeft({ count }: { count: number }) {
  if (count >= CODES_LOW)
    return (
      <p className="text-14 text-ink-2">
        {plural(count, {
          one: "# recovery code left, in case you lose your phone.",
          other: "# recovery codes left, in case you lose your phone.",
        })}
      </p>
    );
  return (
    <Banner tone="warn">
      <span className="text-ink">
        {plural(count, {
          0: "No recovery code is left.",
          one: "# recovery code left.",
          other: "# recovery codes left.",
        })}{" "}
        {t`Create new ones, or you cannot sign in if you lose your phone.`}
      </span>
    </Banner>
  );
}

export function SecondFactor({
  isOn,
  codesLeft,
  email,
  onChanged,
}: {
  isOn: boolean;
  codesLeft: number;
  email: string;
  onChanged: Changed;
}) {
  const { lock } = useViewer();
  const dialog = useOpened<"begin" | "renew" | "remove">();
  const fresh = recovery.useShown();
  const state = { open: dialog.isOpen, onClose: dialog.close };
  const stored = async () => {
    recovery.show(null);
    if (fresh?.isFirst) toast.done(t`The second factor is on. Your other devices are signed out.`);
    await onChanged();
  };
  return (
    <Section
      title={
        <>
          {t`Second factor`}{" "}
          <Badge tone={isOn ? "ok" : "neutral"}>
            {isOn ? t({ message: "On", context: "state" }) : t({ message: "Off", context: "state" })}
          </Badge>
        </>
      }
      description={t`A code from an app on your phone, asked for after your password. The password alone is then not enough to sign in.`}
    >
      {isOn ? (
        <div className="grid gap-4">
          <CodesLeft count={codesLeft} />
          <div className="flex flex-wrap gap-2">
            <Button onClick={() => dialog.open("renew")} {...lock}>
              {t`New recovery codes`}
            </Button>
            <Button variant="quiet" onClick={() => dialog.open("remove")} {...lock}>
              {t`Remove`}
            </Button>
          </div>
        </div>
      ) : (
        <Button icon={ShieldCheck} onClick={() => dialog.open("begin")} {...lock}>
          {t`Set up`}
        </Button>
      )}
      {dialog.what === "begin" && <SetUp key={dialog.times} {...state} />}
      {dialog.what === "renew" && <Renew key={dialog.times} {...state} />}
      {dialog.what === "remove" && <Remove key={dialog.times} {...state} onChanged={onChanged} />}
      {fresh && <RecoveryCodes codes={fresh.codes} email={email} onDone={() => void stored()} />}
    </Section>
  );
}

/** Two steps: a proof of the person; the app's key and a code from the app. Then the recovery codes are shown. */
function SetUp({ open, onClose }: DialogState) {
  const [key, setKey] = useState<SecretKey | null>(null);
  if (key) return <ScanStep open={open} onClose={onClose} secretKey={key} />;
  return (
    <ProofStep
      open={open}
      onClose={onClose}
      title={t`Set up the second factor`}
      description={t`You need an authenticator app on your phone. Any such app works.`}
      send={(proof) => ask(api.settings.totp.post({ proof }))}
      onSent={setKey}
    />
  );
}

type SecretKey = { secret: string; uri: string };

function ScanStep({ secretKey, ...dialog }: DialogState & { secretKey: SecretKey }) {
  const input = useRef<HTMLInputElement>(null);
  const form = useForm({
    first: { code: "" },
    wrong: ({ code }) => ({ code: isBlank(code) ? t`Enter the six digits that your app shows now.` : null }),
    send: ({ code }) => ask(api.settings.totp.confirm.post({ code: code.trim() })),
    onSent: ({ recoveryCodes }) => {
      recovery.show({ codes: recoveryCodes, isFirst: true });
      dialog.onClose();
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Scan this with your app`}
      description={t`Then enter the code that the app shows, to confirm that it works.`}
      submitLabel={t`Switch on`}
      focusRef={input}
    >
      <SecretKeyView secretKey={secretKey} />
      <TextField
        label={t({ message: "Code", context: "to sign in" })}
        {...form.field("code")}
        ref={input}
        mono
        inputMode="numeric"
        autoComplete="one-time-code"
        maxLength={TYPED_CODE_CHARS_MAX}
        placeholder="123 456"
      />
    </FormDialog>
  );
}

/** The app's secret key: as a QR code, as text, and as a link for an app on this device. */
function SecretKeyView({ secretKey: { secret, uri } }: { secretKey: SecretKey }) {
  return (
    <div className="grid justify-items-center gap-4 sm:grid-cols-[auto_1fr] sm:items-center sm:justify-items-stretch">
      <Suspense fallback={<Skeleton className="size-53" />}>
        <QrCode text={uri} label={t`QR code for your authenticator app`} />
      </Suspense>
      <div className="grid w-full min-w-0 gap-3">
        <div className="grid gap-1">
          <h3 className="text-13 font-medium">{t`Or enter this key`}</h3>
          <code className="rounded-md bg-sunken p-3 font-mono text-13 select-all">
            {secret.replace(/.{4}(?=.)/g, "$& ")}
          </code>
        </div>
        <div>
          <CopyButton value={secret} what={t`the key`} />
        </div>
        <p className="text-13 text-ink-2">
          <Trans>
            Is the app on this device? <TextLink href={uri}>Open it</TextLink>.
          </Trans>
        </p>
      </div>
    </div>
  );
}

const QrCode = lazy(() => import("../../ui/qr_code.tsx").then((module) => ({ default: module.QrCode })));

function Renew({ open, onClose }: DialogState) {
  return (
    <ProofStep
      open={open}
      onClose={onClose}
      title={t`New recovery codes`}
      description={t`The old ones stop working.`}
      asksForCode
      send={(proof) => ask(api.settings["recovery-codes"].post({ proof }))}
      onSent={({ recoveryCodes }) => {
        recovery.show({ codes: recoveryCodes, isFirst: false });
        onClose();
      }}
    />
  );
}

/** A dialog that asks only for a proof of the person. */
function ProofStep<Sent>({
  asksForCode = false,
  send,
  onSent,
  title,
  description,
  submitLabel = t`Continue`,
  cancelLabel = t`Cancel`,
  isDanger = false,
  ...dialog
}: DialogState & {
  title: string;
  description: string;
  submitLabel?: string;
  cancelLabel?: string;
  isDanger?: boolean;
  asksForCode?: boolean;
  send: (proof: Proof) => Promise<Sent>;
  onSent: (sent: Sent) => void;
}) {
  const hasPasskey = useHasPasskey();
  const form = useForm({
    first: firstProof(hasPasskey),
    wrong: (proof) => wrongProof(proof, { asksForCode }),
    send: async (proof) => send(await takeProof(proof, { asksForCode })),
    onSent,
  });
  return (
    <FormDialog {...dialog} {...{ form, title, description, submitLabel, cancelLabel, isDanger }} size="sm">
      <ProofFields form={form} hasPasskey={hasPasskey} asksForCode={asksForCode} />
    </FormDialog>
  );
}

function Remove({ onChanged, ...dialog }: DialogState & { onChanged: Changed }) {
  return (
    <ProofStep
      {...dialog}
      title={t`Remove the second factor?`}
      description={t`After that, your password alone is enough to sign in. The recovery codes stop working.`}
      cancelLabel={t`Keep it`}
      submitLabel={t`Remove`}
      isDanger
      asksForCode
      send={(proof) => ask(api.settings.totp.remove.post({ proof }))}
      onSent={async () => {
        dialog.onClose();
        toast.done(t`The second factor is off. Your other devices are signed out.`);
        await onChanged();
      }}
    />
  );
}

/** The recovery codes, shown once, to be copied or downloaded. */
function RecoveryCodes({ codes, email, onDone }: { codes: readonly string[]; email: string; onDone: () => void }) {
  const { host } = useMe();
  const [isKept, setKept] = useState(false);
  const [isTicked, setTicked] = useState(false);
  const keep = () => setKept(true);
  const text = codes.join("\n");
  const copy = (variant: "primary" | "secondary") => (
    <CopyButton value={text} what={t`the recovery codes`} size="md" variant={variant} onCopied={keep} />
  );
  return (
    <OnceDialog
      open
      title={t`Your recovery codes`}
      isSafe={isKept || isTicked}
      closeEarly={RECOVERY.closeEarly}
      keep={copy("primary")}
      onDone={onDone}
    >
      <Banner tone="warn" icon={KeyRound}>
        <span className="text-ink">{RECOVERY.once}</span>
      </Banner>
      <ul aria-label={t`Recovery codes`} className="grid gap-x-8 gap-y-1 rounded-md bg-sunken p-4 sm:grid-cols-2">
        {codes.map((code) => (
          <li key={code} className="font-mono text-13 select-all">
            {code}
          </li>
        ))}
      </ul>
      <div className="flex flex-wrap gap-2">
        {copy("secondary")}
        <Button
          icon={Download}
          onClick={() => {
            const title = t`Recovery codes of ${email} at ${host}`;
            saveAs(new Blob([`${title}\n\n${text}\n`], { type: "text/plain" }), `recovery-codes-${host}.txt`);
            keep();
          }}
        >
          {t`Download`}
        </Button>
      </div>
      <Checkbox label={RECOVERY.stored} checked={isTicked} onValue={setTicked} />
    </OnceDialog>
  );
}
