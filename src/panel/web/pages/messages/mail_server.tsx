import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  BRAND_NAME_CHARS_MAX,
  HOST_CHARS_MAX,
  MAIL_PASSWORD_CHARS_MAX,
  MAIL_PORTS,
  MAIL_USER_CHARS_MAX,
} from "../../../../limits.ts";
import { api, ask, inLanguage } from "../../api.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { EmailField, Field, NativeSelect, PasswordField, TextField } from "../../ui/fields.tsx";
import { type Form, isBlank, isEmail, PageForm, useForm } from "../../ui/form.tsx";
import { Facts, Section } from "../../ui/page.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { MESSAGES_KEY, mailServerQuery } from "./queries.ts";

/** The server that sends a reseller's mail; for an admin, who is named as the sender. */

type Found = NonNullable<Awaited<ReturnType<(typeof api)["mail-server"]["get"]>>["data"]>;
type Server = NonNullable<Found["server"]>;

const USUAL_PORT = 587;
const PORT_WORDS: Readonly<Record<number, string>> = {
  25: "25",
  465: t`465 (TLS from the start)`,
  587: t`587 (recommended)`,
  2525: "2525",
};
const PORTS = MAIL_PORTS.map((port) => ({ value: String(port), label: PORT_WORDS[port] ?? String(port) }));

export function MailServerSection({ isAdmin }: { isAdmin: boolean }) {
  const found = useQuery(mailServerQuery);
  return (
    <Loaded query={found} skeleton={<Skeleton className="h-60 rounded-lg" />}>
      {({ server, from }) => (isAdmin ? <Operator from={from} /> : <ServerForm saved={server} />)}
    </Loaded>
  );
}

function Operator({ from }: { from: Found["from"] }) {
  return (
    <Section
      title={t`Mail server`}
      description={t`Set with SMTP_URL and MAIL_FROM, for resellers, admins and your own customers. Each reseller sets a server for its customers.`}
      action={from && <SendTest />}
    >
      {from && <Facts facts={[[t`Sender`, from.name === "" ? from.address : `${from.name} <${from.address}>`]]} />}
    </Section>
  );
}

function useReread(): () => Promise<unknown> {
  const client = useQueryClient();
  return () =>
    Promise.all([
      client.invalidateQueries({ queryKey: mailServerQuery.queryKey }),
      client.invalidateQueries({ queryKey: MESSAGES_KEY }),
    ]);
}

type Typed = { host: string; port: string; userName: string; password: string; fromAddress: string; fromName: string };

function typedServer(saved: Server | null): Typed {
  return {
    host: saved?.host ?? "",
    port: String(saved?.port ?? USUAL_PORT),
    userName: saved?.userName ?? "",
    password: "",
    fromAddress: saved?.fromAddress ?? "",
    fromName: saved?.fromName ?? "",
  };
}

function ServerForm({ saved }: { saved: Server | null }) {
  const reread = useReread();
  const { lock } = useViewer();
  const form = useForm({
    first: typedServer(saved),
    wrong: ({ host, fromAddress, fromName }) => ({
      host: isBlank(host) ? t`Enter the server's name, such as mail.example.com.` : null,
      port: null,
      userName: null,
      password: null,
      fromAddress: isEmail(fromAddress) ? null : t`Enter the address that your mail comes from.`,
      fromName: isBlank(fromName) ? t`Enter the name that your mail comes from.` : null,
    }),
    send: async ({ port, userName, password, ...texts }) => {
      await ask(
        api["mail-server"].put({
          ...texts,
          port: Number(port),
          userName: isBlank(userName) ? null : userName.trim(),
          ...(password !== "" && { password }),
        }),
      );
      await reread();
    },
    onSent: () => {
      form.reset({ ...form.values, password: "" });
      toast.done(t`Mail server saved. Send a test mail to see whether it works.`);
    },
  });
  return (
    <Section
      title={t`Mail server`}
      description={t`Your customers get mail from this server, with your name, logo and colour. It must be reachable on the internet. The password is stored encrypted and never shown.`}
      action={saved && <SendTest />}
    >
      <PageForm
        form={form}
        saveLabel={t`Save mail server`}
        isProminent
        lock={lock}
        actions={saved && <RemoveServer host={saved.host} onRemoved={() => form.reset(typedServer(null))} />}
      >
        <ServerFields form={form} hasPassword={saved?.hasPassword === true} />
      </PageForm>
    </Section>
  );
}

function ServerFields({ form, hasPassword }: { form: Form<Typed, keyof Typed>; hasPassword: boolean }) {
  const { error: portError, ...port } = form.field("port");
  return (
    <div className="grid gap-4 sm:grid-cols-2">
      <TextField
        label={t`Server`}
        placeholder="mail.example.com"
        required
        {...form.field("host")}
        maxLength={HOST_CHARS_MAX}
      />
      <Field label={t`Port`} error={portError}>
        <NativeSelect {...port} options={PORTS} />
      </Field>
      <TextField label={t`User name`} optional {...form.field("userName")} maxLength={MAIL_USER_CHARS_MAX} />
      <PasswordField
        label={t`Password`}
        optional
        autoComplete="new-password"
        hint={hasPassword ? t`If empty, the stored one is kept.` : undefined}
        {...form.field("password")}
        maxLength={MAIL_PASSWORD_CHARS_MAX}
      />
      <TextField label={t`Sender's name`} required {...form.field("fromName")} maxLength={BRAND_NAME_CHARS_MAX} />
      <EmailField label={t`Sender's address`} required {...form.field("fromAddress")} />
    </div>
  );
}

function SendTest() {
  const { lock } = useViewer();
  const test = useMutation({
    mutationFn: () => ask(api["mail-server"].test.post()),
    onSuccess: ({ to, problem }) =>
      problem === null
        ? toast.done(t`The server has accepted a test mail to ${to}.`)
        : toast.failed(new Error(inLanguage(problem)), t`The test mail was not sent.`),
    onError: (error) => toast.failed(error),
  });
  return (
    <Button size="sm" pending={test.isPending} onClick={() => test.mutate()} {...lock}>
      <Trans>Send a test mail</Trans>
    </Button>
  );
}

function RemoveServer({ host, onRemoved }: { host: string; onRemoved: () => void }) {
  const reread = useReread();
  const { lock } = useViewer();
  const asked = useOpened<true>();
  return (
    <>
      <Button onClick={() => asked.open(true)} {...lock}>
        <Trans>Remove</Trans>
      </Button>
      <Confirm
        open={asked.isOpen}
        onOpenChange={asked.close}
        title={t`Remove ${host}?`}
        confirmLabel={t`Remove mail server`}
        cancelLabel={t`Keep it`}
        onConfirm={async () => {
          await ask(api["mail-server"].delete());
          await reread();
          onRemoved();
          toast.done(t`Mail server removed.`);
        }}
      >
        <Trans>
          Your customers no longer get mail. Waiting mails are not sent. Links are shown to you, and you must pass them
          on.
        </Trans>
      </Confirm>
    </>
  );
}
