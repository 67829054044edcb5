import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import {
  BRAND_NAME_CHARS_MAX,
  EMAIL_CHARS_MAX,
  MAIL_PASSWORD_CHARS_MAX,
  MAIL_PORTS,
  MAIL_USER_CHARS_MAX,
} from "../../../limits.ts";
import { api, ask } from "../api.ts";
import { Button } from "../ui/buttons.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Field, NativeSelect, PasswordField, TextField } from "../ui/fields.tsx";
import { type Form, isBlank, PageForm, useForm } from "../ui/form.tsx";
import { Facts, Section } from "../ui/page.tsx";
import { Loaded, Skeleton } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { useOpened, useViewer } from "./page_hooks.ts";

/** The server that sends a reseller's mail; for an admin, who is named as the sender. */

type Found = NonNullable<Awaited<ReturnType<(typeof api)["mail-server"]["get"]>>["data"]>;
type Server = NonNullable<Found["server"]>;

const SERVER_KEY = ["mail-server"] as const;
const PORT_WORDS: Readonly<Record<number, string>> = {
  25: "25",
  465: "465, TLS from the start",
  587: "587, usual",
  2525: "2525",
};
const PORTS = MAIL_PORTS.map((port) => ({ value: String(port), label: PORT_WORDS[port] ?? String(port) }));

export function MailServerSection({ isAdmin }: { isAdmin: boolean }) {
  const found = useQuery({ queryKey: SERVER_KEY, queryFn: () => ask(api["mail-server"].get()) });
  return (
    <Loaded query={found} skeleton={<Skeleton className="h-60 rounded-lg" />}>
      {({ server, from }) =>
        isAdmin ? <Operator from={from} /> : <ServerForm key={JSON.stringify(server)} saved={server} />
      }
    </Loaded>
  );
}

function Operator({ from }: { from: Found["from"] }) {
  return (
    <Section
      title="Mail server"
      description="Set with SMTP_URL and MAIL_FROM, for resellers, admins and your own customers. Each reseller sets a server for its customers."
      action={from && <SendTest />}
    >
      {from && <Facts facts={[["Sender", from.name === "" ? from.address : `${from.name} <${from.address}>`]]} />}
    </Section>
  );
}

function ServerForm({ saved }: { saved: Server | null }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const form = useForm({
    first: {
      host: saved?.host ?? "",
      port: String(saved?.port ?? 587),
      userName: saved?.userName ?? "",
      password: "",
      fromAddress: saved?.fromAddress ?? "",
      fromName: saved?.fromName ?? "",
    },
    wrong: ({ host, fromAddress, fromName }) => ({
      host: isBlank(host) ? "Enter the server's name, as in mail.example.com." : null,
      port: null,
      userName: null,
      password: null,
      fromAddress: isBlank(fromAddress) ? "Enter the address that your mail comes from." : null,
      fromName: isBlank(fromName) ? "Enter the name that your mail comes from." : null,
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
      await Promise.all([
        client.invalidateQueries({ queryKey: SERVER_KEY }),
        client.invalidateQueries({ queryKey: ["messages"] }),
      ]);
    },
    onSent: () => toast.done("Mail server saved. Send a test mail to see whether it works."),
  });
  return (
    <Section
      title="Mail server"
      description="Your customers get mail from this server, with your name, logo and colour. It must be reachable on the internet. The password is stored encrypted and never shown."
      action={saved && <SendTest />}
    >
      <PageForm
        form={form}
        saveLabel="Save mail server"
        isProminent
        lock={lock}
        actions={saved && <RemoveServer host={saved.host} />}
        className="max-w-[42rem]"
      >
        <ServerFields form={form} hasPassword={saved?.hasPassword === true} />
      </PageForm>
    </Section>
  );
}

type Typed = { host: string; port: string; userName: string; password: string; fromAddress: string; fromName: string };

function ServerFields({ form, hasPassword }: { form: Form<Typed, keyof Typed>; hasPassword: boolean }) {
  const { lock } = useViewer();
  const field = (name: Exclude<keyof Typed, "port">) => ({
    ...form.field(name),
    disabled: lock.disabled,
  });
  return (
    <div className="grid gap-4 sm:grid-cols-2">
      <TextField label="Server" placeholder="mail.example.com" required {...field("host")} />
      <Field label="Port" error={form.errorOf("port")}>
        <NativeSelect
          value={form.values.port}
          options={PORTS}
          onValue={(port) => form.set({ port })}
          disabled={lock.disabled}
        />
      </Field>
      <TextField label="User name" optional {...field("userName")} maxLength={MAIL_USER_CHARS_MAX} />
      <PasswordField
        label="Password"
        optional
        autoComplete="new-password"
        hint={hasPassword ? "If empty, the stored one is kept." : undefined}
        {...field("password")}
        maxLength={MAIL_PASSWORD_CHARS_MAX}
      />
      <TextField label="Sender's name" required {...field("fromName")} maxLength={BRAND_NAME_CHARS_MAX} />
      <TextField label="Sender's address" required {...field("fromAddress")} maxLength={EMAIL_CHARS_MAX} />
    </div>
  );
}

function SendTest() {
  const { lock } = useViewer();
  const test = useMutation({
    mutationFn: () => ask(api["mail-server"].test.post()),
    onSuccess: ({ to, problem }) =>
      problem === null
        ? toast.done(`The server has accepted a test mail to ${to}.`)
        : toast.failed(new Error(problem), "The test mail was not sent."),
    onError: (error) => toast.failed(error),
  });
  return (
    <Button size="sm" pending={test.isPending} onClick={() => test.mutate()} {...lock}>
      Send a test mail
    </Button>
  );
}

function RemoveServer({ host }: { host: string }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const asked = useOpened<true>();
  return (
    <>
      <Button onClick={() => asked.open(true)} {...lock}>
        Remove
      </Button>
      <Confirm
        open={asked.isOpen}
        onOpenChange={asked.close}
        title={`Remove ${host}?`}
        confirmLabel="Remove mail server"
        cancelLabel="Keep it"
        onConfirm={async () => {
          await ask(api["mail-server"].delete());
          await Promise.all([
            client.invalidateQueries({ queryKey: SERVER_KEY }),
            client.invalidateQueries({ queryKey: ["messages"] }),
          ]);
          toast.done("Mail server removed.");
        }}
      >
        Your customers get no more mail. Waiting mails are not sent. Links are shown to you, and you must pass them on.
      </Confirm>
    </>
  );
}
