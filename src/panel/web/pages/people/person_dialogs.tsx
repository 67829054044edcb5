import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { PERSON_NAME_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { CONFIRM } from "../../copy.ts";
import { type Person, useRefresh } from "../../shared/page_hooks.ts";
import { Confirm } from "../../ui/dialog.tsx";
import { TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { EraseDialog } from "../settings/erase_dialog.tsx";
import { useHasPasskey } from "../settings/passkeys.tsx";
import { settingsQuery } from "../settings/queries.ts";

/** Dialogs about one person. Loaded when the first of them is opened. */

/** All dialogs of a person's page. Those about packages, money, links and limits are in files of their own. */
export type PersonDialogKind =
  | "assign"
  | "money"
  | "link"
  | "rename"
  | "limits"
  | "grant"
  | "suspend"
  | "erase"
  | "second_factor";

export function RenameDialog({ open, onClose, person }: DialogState & { person: Person }) {
  const refresh = useRefresh();
  const form = useForm({
    first: { name: person.name },
    wrong: ({ name }) => ({ name: isBlank(name) ? t`Enter a name.` : null }),
    send: ({ name }) => ask(api.people({ id: person.accountId }).patch({ name })),
    onSent: async ({ name: renamed }) => {
      await refresh();
      toast.done(t`Renamed to ${renamed}.`);
      onClose();
    },
  });
  return (
    <FormDialog form={form} open={open} onClose={onClose} title={t`Rename`} size="sm" submitLabel={t`Save name`}>
      <TextField label={t`Name`} {...form.field("name")} maxLength={PERSON_NAME_CHARS_MAX} />
    </FormDialog>
  );
}

export function SuspendConfirm({ open, onClose, person }: DialogState & { person: Person }) {
  const refresh = useRefresh();
  const { title, body } = CONFIRM.suspend(person.name, person.role);
  return (
    <Confirm
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={title}
      confirmLabel={t`Suspend`}
      cancelLabel={t`Keep active`}
      typeName={person.name}
      onConfirm={async () => {
        await ask(api.people({ id: person.accountId }).suspend.post());
        await refresh();
        toast.done(t`${{ name: person.name }} is suspended.`);
      }}
    >
      {body}
    </Confirm>
  );
}

/** Asks the viewer who they are, as their own settings do. */
export function ErasePerson({ open, onClose, person }: DialogState & { person: Person }) {
  const refresh = useRefresh();
  const viewer = useQuery(settingsQuery);
  const hasPasskey = useHasPasskey();
  if (!viewer.data) return null;
  return (
    <EraseDialog
      open={open}
      onClose={onClose}
      person={person.name}
      email={person.email}
      hasPasskey={hasPasskey}
      asksForCode={viewer.data.totpEnabled}
      send={(body) => ask(api.people({ id: person.accountId }).erase.post(body))}
      onErased={async () => {
        await refresh();
        toast.done(t`${{ name: person.name }} is erased.`);
        onClose();
      }}
    />
  );
}

export function SecondFactorConfirm({ open, onClose, person }: DialogState & { person: Person }) {
  const refresh = useRefresh();
  return (
    <Confirm
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={t`Remove the second factor of ${{ name: person.name }}?`}
      confirmLabel={t`Remove second factor`}
      cancelLabel={t`Keep it`}
      onConfirm={async () => {
        await ask(api.people({ id: person.accountId })["remove-second-factor"].post());
        await refresh();
        toast.done(t`${{ name: person.name }} now signs in with the password alone.`);
      }}
    >
      <Trans>
        Make sure that the request really comes from them. They sign in with their password alone until they set up a
        new second factor.
      </Trans>
    </Confirm>
  );
}
