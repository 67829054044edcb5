import { Download, KeyRound, ShieldCheck } from "lucide-react";
import { lazy, Suspense, useRef, useState } from "react";
import { api, ask, useMe } from "../api.ts";
import { RECOVERY } from "../copy.ts";
import { formatOf } from "../format.ts";
import { Button, TextLink } from "../ui/buttons.tsx";
import { Checkbox } from "../ui/choices.tsx";
import { OnceDialog } from "../ui/copy_field.tsx";
import { CopyButton } from "../ui/copy_text.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Field, PasswordInput, TextInput } from "../ui/fields.tsx";
import { useForm } from "../ui/form.tsx";
import { Section } from "../ui/page.tsx";
import { Badge, Banner, Skeleton } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { saveAs } from "./download.ts";
import { useOpened, useViewer } from "./page_hooks.ts";

/** The second factor: how it stands, and its dialogs to set it up, to renew its recovery codes, to remove it. */

const PASSWORD_CHARS_MAX = 1000;
const CODE_CHARS_MAX = 40;
/** With fewer left it is time for new ones. */
const CODES_LOW = 3;

type Changed = () => Promise<void>;
type DialogState = { open: boolean; onClose: () => void; onChanged: Changed };

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
  const dialog = useOpened<"set up" | "renew" | "remove">();
  const state = { open: dialog.isOpen, onClose: dialog.close, onChanged };
  return (
    <Section
      title={
        <>
          Second factor <Badge tone={isOn ? "ok" : "neutral"}>{isOn ? "On" : "Off"}</Badge>
        </>
      }
      description="A code of an app on your phone, asked for after your password. Whoever learns the password alone stays out."
    >
      {isOn ? (
        <div className="grid gap-4">
          {codesLeft < CODES_LOW ? (
            <Banner tone="warn">
              <span className="text-ink">
                {codesLeft === 0 ? "No recovery code is left." : `${formatOf(codesLeft, "recovery code")} left.`} Make
                new ones, or you stay out if you lose your phone.
              </span>
            </Banner>
          ) : (
            <p className="text-14 text-ink-2">
              {formatOf(codesLeft, "recovery code")} left, for when you lose your phone.
            </p>
          )}
          <div className="flex flex-wrap gap-2">
            <Button onClick={() => dialog.open("renew")} {...lock}>
              New recovery codes
            </Button>
            <Button variant="quiet" onClick={() => dialog.open("remove")} {...lock}>
              Remove
            </Button>
          </div>
        </div>
      ) : (
        <Button icon={ShieldCheck} onClick={() => dialog.open("set up")} {...lock}>
          Set up
        </Button>
      )}
      {dialog.what === "set up" && <SetUp key={dialog.times} email={email} {...state} />}
      {dialog.what === "renew" && <Renew key={dialog.times} email={email} {...state} />}
      {dialog.what === "remove" && <Remove key={dialog.times} {...state} />}
    </Section>
  );
}

/** Password, then the app's key and a code of it, then the recovery codes. */
function SetUp({ open, onClose, onChanged, email }: DialogState & { email: string }) {
  const [key, setKey] = useState<{ secret: string; uri: string } | null>(null);
  const [codes, setCodes] = useState<string[] | null>(null);
  if (codes) {
    const done = async () => {
      onClose();
      toast.done("The second factor is on. Your other devices are signed out.");
      await onChanged();
    };
    return <RecoveryCodes open={open} codes={codes} email={email} onDone={() => void done()} />;
  }
  if (key) return <ScanStep open={open} onClose={onClose} secretKey={key} onCodes={setCodes} />;
  return (
    <PasswordStep
      open={open}
      onClose={onClose}
      title="Set up the second factor"
      description="You need an authenticator app on your phone. Any of them will do."
      send={(password) => ask(api.settings.totp.post({ password }))}
      onSent={setKey}
    />
  );
}

function ScanStep({
  open,
  onClose,
  secretKey: { secret, uri },
  onCodes,
}: {
  open: boolean;
  onClose: () => void;
  secretKey: { secret: string; uri: string };
  onCodes: (codes: string[]) => void;
}) {
  const input = useRef<HTMLInputElement>(null);
  const [code, setCode] = useState("");
  const form = useForm({
    wrong: { code: code.trim() === "" ? "The six digits that your app shows now." : null },
    send: () => ask(api.settings.totp.confirm.post({ code: code.trim() })),
    onSent: ({ recoveryCodes }) => onCodes(recoveryCodes),
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title="Scan this with your app"
      description="Then type the code it shows, so that we know it works."
      onSubmit={form.submit}
      focusRef={input}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" pending={form.isPending}>
            Switch on
          </Button>
        </>
      }
    >
      <div className="grid justify-items-center gap-4 sm:grid-cols-[auto_1fr] sm:items-center sm:justify-items-stretch">
        <Suspense fallback={<Skeleton className="size-53" />}>
          <QrCode text={uri} label="QR code for your authenticator app" />
        </Suspense>
        <div className="grid w-full min-w-0 gap-3">
          <div className="grid gap-1">
            <h3 className="text-13 font-medium">Or type this key</h3>
            <code className="rounded-md bg-sunken p-3 font-mono text-13 select-all">
              {secret.replace(/.{4}(?=.)/g, "$& ")}
            </code>
          </div>
          <div>
            <CopyButton value={secret} what="the key" />
          </div>
          <p className="text-13 text-ink-2">
            On this very device? <TextLink href={uri}>Open your app</TextLink>.
          </p>
        </div>
      </div>
      <Field label="Code" error={form.errorOf("code")}>
        <TextInput
          ref={input}
          mono
          value={code}
          onValue={setCode}
          inputMode="numeric"
          autoComplete="one-time-code"
          maxLength={CODE_CHARS_MAX}
          placeholder="123 456"
        />
      </Field>
      {form.problem}
    </Dialog>
  );
}

const QrCode = lazy(() => import("../ui/qr_code.tsx").then((module) => ({ default: module.QrCode })));

function Renew({ open, onClose, onChanged, email }: DialogState & { email: string }) {
  const [codes, setCodes] = useState<string[] | null>(null);
  if (codes) {
    const done = () => {
      onClose();
      void onChanged();
    };
    return <RecoveryCodes open={open} codes={codes} email={email} onDone={done} />;
  }
  return (
    <PasswordStep
      open={open}
      onClose={onClose}
      title="New recovery codes"
      description="The old ones stop working."
      asksForCode
      send={(password, code) => ask(api.settings["recovery-codes"].post({ password, code }))}
      onSent={({ recoveryCodes }) => setCodes(recoveryCodes)}
    />
  );
}

/** The password first, and a code where one is asked for: whoever finds this page open must not change the way in. */
function PasswordStep<Sent>({
  open,
  onClose,
  title,
  description,
  asksForCode = false,
  send,
  onSent,
}: {
  open: boolean;
  onClose: () => void;
  title: string;
  description: string;
  asksForCode?: boolean;
  /** `code` is empty unless it is asked for. */
  send: (password: string, code: string) => Promise<Sent>;
  onSent: (sent: Sent) => void;
}) {
  const [password, setPassword] = useState("");
  const [code, setCode] = useState("");
  const form = useForm({
    wrong: { password: checkTypedPassword(password), code: asksForCode ? checkCode(code) : null },
    send: () => send(password, code.trim()),
    onSent,
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={title}
      description={description}
      size="sm"
      onSubmit={form.submit}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" pending={form.isPending}>
            Go on
          </Button>
        </>
      }
    >
      <Field label="Your password" error={form.errorOf("password")}>
        <PasswordInput
          value={password}
          onValue={setPassword}
          autoComplete="current-password"
          maxLength={PASSWORD_CHARS_MAX}
        />
      </Field>
      {asksForCode && <CodeField value={code} onValue={setCode} error={form.errorOf("code")} />}
      {form.problem}
    </Dialog>
  );
}

/** A code of the second factor that is on. */
export function CodeField(props: {
  value: string;
  onValue: (value: string) => void;
  error: string | null;
  disabled?: boolean;
}) {
  const { error, ...input } = props;
  return (
    <Field label="Code" hint="Of your app, or a recovery code." error={error}>
      <TextInput mono autoComplete="one-time-code" maxLength={CODE_CHARS_MAX} {...input} />
    </Field>
  );
}

function checkTypedPassword(password: string): string | null {
  return password === "" ? "Your password." : null;
}

export function checkCode(code: string): string | null {
  return code.trim() === "" ? "A code of your app, or a recovery code." : null;
}

function Remove({ open, onClose, onChanged }: DialogState) {
  const [password, setPassword] = useState("");
  const [code, setCode] = useState("");
  const form = useForm({
    wrong: { password: checkTypedPassword(password), code: checkCode(code) },
    send: () => ask(api.settings.totp.remove.post({ password, code: code.trim() })),
    onSent: async () => {
      onClose();
      toast.done("The second factor is off. Your other devices are signed out.");
      await onChanged();
    },
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title="Remove the second factor?"
      description="From then on your password alone lets anybody in. The recovery codes stop working."
      size="sm"
      onSubmit={form.submit}
      footer={
        <>
          <Button onClick={onClose}>Keep it</Button>
          <Button type="submit" variant="danger" pending={form.isPending}>
            Remove
          </Button>
        </>
      }
    >
      <Field label="Your password" error={form.errorOf("password")}>
        <PasswordInput
          value={password}
          onValue={setPassword}
          autoComplete="current-password"
          maxLength={PASSWORD_CHARS_MAX}
        />
      </Field>
      <CodeField value={code} onValue={setCode} error={form.errorOf("code")} />
      {form.problem}
    </Dialog>
  );
}

/** Shown once, to be copied or put into a file. */
function RecoveryCodes({
  open,
  codes,
  email,
  onDone,
}: {
  open: boolean;
  codes: readonly string[];
  email: string;
  onDone: () => void;
}) {
  const { host } = useMe();
  const [isKept, setKept] = useState(false);
  const [isTicked, setTicked] = useState(false);
  const keep = () => setKept(true);
  const text = codes.join("\n");
  const copy = (variant: "primary" | "secondary") => (
    <CopyButton value={text} what="the recovery codes" size="md" variant={variant} onCopied={keep} />
  );
  return (
    <OnceDialog
      open={open}
      title="Your recovery codes"
      isSafe={isKept || isTicked}
      closeEarly={RECOVERY.closeEarly}
      keep={copy("primary")}
      onDone={onDone}
    >
      <Banner tone="warn" icon={KeyRound}>
        <span className="text-ink">{RECOVERY.once}</span>
      </Banner>
      <ul aria-label="Recovery codes" className="grid gap-x-8 gap-y-1 rounded-md bg-sunken p-4 sm:grid-cols-2">
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
            const lines = `Recovery codes of ${email} at ${host}\n\n${text}\n`;
            saveAs(new Blob([lines], { type: "text/plain" }), `recovery-codes-${host}.txt`);
            keep();
          }}
        >
          Download
        </Button>
      </div>
      <Checkbox label={RECOVERY.stored} checked={isTicked} onValue={setTicked} />
    </OnceDialog>
  );
}
