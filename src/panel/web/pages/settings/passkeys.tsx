import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Fingerprint } from "lucide-react";
import { PASSKEY_NAME_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { firstProof, loadPasskeys, ProofFields, type ProofWays, takeProof, wrongProof } from "./confirm_person.tsx";
import { deviceName } from "./device_name.ts";
import { SETTINGS_KEY } from "./queries.ts";

/** The person's passkeys: add, rename, remove. */

const PASSKEYS_KEY = [...SETTINGS_KEY, "passkeys"] as const;

type Listed = NonNullable<Awaited<ReturnType<typeof api.settings.passkeys.get>>["data"]>["passkeys"][number];

export function usePasskeys() {
  return useQuery({ queryKey: PASSKEYS_KEY, queryFn: () => ask(api.settings.passkeys.get()) });
}

/** Whether one of the person's passkeys works on this host. */
export function useHasPasskey(): boolean {
  const { data } = usePasskeys();
  return data?.passkeys.some(({ host, cloned }) => host === data.host && !cloned) ?? false;
}

/** Reads the list of passkeys, and of devices, again. Both keys begin with "settings". */
function useReread(): () => Promise<void> {
  const client = useQueryClient();
  return () => client.invalidateQueries({ queryKey: SETTINGS_KEY });
}

type What = { kind: "add" } | { kind: "rename" | "remove"; row: Listed };

export function Passkeys({ asksForCode }: { asksForCode: boolean }) {
  const { lock } = useViewer();
  const passkeys = usePasskeys();
  const hasPasskey = useHasPasskey();
  const dialog = useOpened<What>();
  const state = { open: dialog.isOpen, onClose: dialog.close };
  const ways = { hasPasskey, asksForCode };
  const { what } = dialog;
  return (
    <Section
      title={t`Passkeys`}
      description={t`Sign in with your fingerprint, face or device PIN. A passkey replaces both the password and the code, and works on the site where you added it.`}
      flush
      action={
        <Button size="sm" icon={Fingerprint} onClick={() => dialog.open({ kind: "add" })} {...lock}>
          {t`Add passkey`}
        </Button>
      }
    >
      <Loaded query={passkeys} skeleton={<SkeletonRows rows={1} />}>
        {({ passkeys: listed, host }) =>
          listed.length === 0 ? (
            <Empty icon={Fingerprint}>{t`No passkeys yet. With one, you sign in without typing a password.`}</Empty>
          ) : (
            <ul>
              {listed.map((row) => (
                <PasskeyRow
                  key={row.id}
                  row={row}
                  isHere={row.host === host}
                  onRename={() => dialog.open({ kind: "rename", row })}
                  onRemove={() => dialog.open({ kind: "remove", row })}
                />
              ))}
            </ul>
          )
        }
      </Loaded>
      {what?.kind === "add" && <AddPasskey key={dialog.times} {...state} {...ways} />}
      {what?.kind === "rename" && <RenamePasskey key={dialog.times} row={what.row} {...state} />}
      {what?.kind === "remove" && <RemovePasskey key={dialog.times} row={what.row} {...state} {...ways} />}
    </Section>
  );
}

function PasskeyRow({
  row: { name, host, synced, cloned, createdAt, lastUsedAt },
  isHere,
  onRename,
  onRemove,
}: {
  row: Listed;
  /** Whether it belongs to the host of this page. */
  isHere: boolean;
  onRename: () => void;
  onRemove: () => void;
}) {
  const { lock } = useViewer();
  return (
    <li className="flex flex-wrap items-start gap-x-3 gap-y-2 border-b border-line px-4 py-3 last:border-0 sm:flex-nowrap sm:px-6">
      <Fingerprint size={16} aria-hidden className="mt-0.5 flex-none text-ink-3" />
      <div className="min-w-0 flex-[1_1_12rem]">
        <p className="flex flex-wrap items-center gap-x-2 text-14 font-medium">
          <span className="min-w-0 break-words">{name}</span>
          {cloned && <Badge tone="bad">{t`Blocked`}</Badge>}
        </p>
        {cloned && (
          <p className="text-13 text-bad">{t`There seems to be a copy of this passkey. Remove it, and add a new one.`}</p>
        )}
        <p className="text-13 break-words text-ink-2">
          {!isHere && <>{t`For ${host}.`} </>}
          {synced ? t`Kept by a password manager.` : t`On one device.`}
        </p>
        <p className="text-12 text-ink-3">
          {lastUsedAt === null ? (
            <Trans>
              Never used, added <Instant iso={createdAt} />
            </Trans>
          ) : (
            <Trans>
              Last used <Ago iso={lastUsedAt} />, added <Instant iso={createdAt} />
            </Trans>
          )}
        </p>
      </div>
      <div className="flex flex-none gap-1 ps-4 sm:ps-0">
        <Button size="sm" variant="quiet" onClick={onRename} {...lock}>
          <Trans>
            Rename
            <span className="sr-only"> {name}</span>
          </Trans>
        </Button>
        <Button size="sm" variant="quiet" onClick={onRemove} {...lock}>
          <Trans>
            Remove
            <span className="sr-only"> {name}</span>
          </Trans>
        </Button>
      </div>
    </li>
  );
}

function checkName(name: string): string | null {
  return isBlank(name) ? t`Enter a name, so that you know it later.` : null;
}

function AddPasskey({ hasPasskey, asksForCode, ...dialog }: DialogState & ProofWays) {
  const reread = useReread();
  const form = useForm({
    first: { name: deviceName(navigator.userAgent), ...firstProof(hasPasskey) },
    wrong: ({ name, ...proof }) => ({ name: checkName(name), ...wrongProof(proof, { asksForCode }) }),
    send: async ({ name, ...typed }) => {
      const passkeys = await loadPasskeys();
      const proof = await takeProof(typed, { asksForCode });
      const response = await passkeys.create(await ask(api.settings.passkeys.begin.post({ proof })));
      await ask(api.settings.passkeys.post({ name: name.trim(), response: sentPartOf(response) }));
      await reread();
    },
    onSent: () => {
      toast.done(t`Passkey added. Use it the next time you sign in.`);
      dialog.onClose();
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Add a passkey`}
      description={t`First confirm that it is you. Then your browser asks where to keep the passkey.`}
      submitLabel={t`Continue`}
      size="sm"
    >
      <TextField
        label={t`Name`}
        hint={t`Where the passkey is kept, such as a phone or a password manager.`}
        {...form.field("name")}
        maxLength={PASSKEY_NAME_CHARS_MAX}
      />
      <ProofFields form={form} hasPasskey={hasPasskey} asksForCode={asksForCode} />
    </FormDialog>
  );
}

type Created = Awaited<ReturnType<Awaited<ReturnType<typeof loadPasskeys>>["create"]>>;

/** Without what browsers derive from the rest: the server reads the original. */
function sentPartOf({ response, ...rest }: Created) {
  const { clientDataJSON, attestationObject, transports } = response;
  return { ...rest, response: { clientDataJSON, attestationObject, ...(transports && { transports }) } };
}

function RenamePasskey({ row, ...dialog }: DialogState & { row: Listed }) {
  const reread = useReread();
  const form = useForm({
    first: { name: row.name },
    wrong: ({ name }) => ({ name: checkName(name) }),
    send: async ({ name }) => {
      await ask(api.settings.passkeys({ id: row.id }).patch({ name: name.trim() }));
      await reread();
    },
    onSent: () => {
      toast.done(t`Passkey renamed.`);
      dialog.onClose();
    },
  });
  return (
    <FormDialog {...dialog} form={form} title={t`Rename the passkey`} submitLabel={t`Save name`} size="sm">
      <TextField label={t`Name`} {...form.field("name")} maxLength={PASSKEY_NAME_CHARS_MAX} />
    </FormDialog>
  );
}

function RemovePasskey({ row, hasPasskey, asksForCode, ...dialog }: DialogState & ProofWays & { row: Listed }) {
  const reread = useReread();
  const form = useForm({
    first: firstProof(hasPasskey),
    wrong: (proof) => wrongProof(proof, { asksForCode }),
    send: async (typed) => {
      const proof = await takeProof(typed, { asksForCode });
      const removed = await ask(api.settings.passkeys({ id: row.id }).remove.post({ proof }));
      await (await loadPasskeys()).forget(removed);
      await reread();
    },
    onSent: () => {
      toast.done(t`Passkey removed. Your other devices are signed out.`);
      dialog.onClose();
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Remove ${{ name: row.name }}?`}
      description={t`It no longer signs in, and your other devices are signed out. Your password keeps working.`}
      cancelLabel={t`Keep it`}
      submitLabel={t`Remove`}
      isDanger
      size="sm"
    >
      <ProofFields form={form} hasPasskey={hasPasskey} asksForCode={asksForCode} />
    </FormDialog>
  );
}
