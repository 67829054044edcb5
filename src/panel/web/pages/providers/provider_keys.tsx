import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQueryClient } from "@tanstack/react-query";
import { CirclePause, MoreHorizontal, Pencil, Play, Plus, Trash2 } from "lucide-react";
import { CATALOG_NAME_CHARS_MAX, PROVIDER_KEY_CHARS_MAX, ROUTE_WEIGHT } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { formatCount } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { useOpened } from "../../shared/page_hooks.ts";
import { useSwitching } from "../../shared/switching.ts";
import { checkCount, readCount } from "../../shared/typed_numbers.ts";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { CountField, PasswordField, TextField } from "../../ui/fields.tsx";
import { type DialogState, type FieldState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { Menu } from "../../ui/menu.tsx";
import { Badge, Status } from "../../ui/states.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";

/** The keys of one provider in its drawer: their states, and the dialogs that change them. A key is written and never shown. */

type OneProvider = NonNullable<Awaited<ReturnType<ReturnType<typeof api.admin.providers>["get"]>>["data"]>;
type Key = OneProvider["keys"][number];
type Opened = { kind: "edit"; key: Key | null } | { kind: "remove"; key: Key };

/** Why a key is in quarantine. Other failures have no words of their own. */
const REASONS: Readonly<Record<string, string>> = {
  credentials: t`The provider refuses it (401 or 403).`,
  no_credit: t`Its credit or quota is used up.`,
};

export function ProviderKeys({ provider }: { provider: OneProvider }) {
  const dialog = useOpened<Opened>();
  const { what } = dialog;
  return (
    <section className="grid gap-2 border-t border-line pt-4" aria-label={t`Keys`}>
      <div className="flex items-center justify-between gap-3">
        <h3 className="text-14">
          <Trans>Keys</Trans>
        </h3>
        <Button size="sm" icon={Plus} onClick={() => dialog.open({ kind: "edit", key: null })}>
          <Trans>Add key</Trans>
        </Button>
      </div>
      <p className="text-13 text-ink-2">
        <Trans>Stored encrypted, and never shown again.</Trans>
      </p>
      <ul className="grid">
        {provider.keys.map((key) => (
          <KeyLine key={key.id} provider={provider} line={key} onOpen={dialog.open} />
        ))}
      </ul>
      {what?.kind === "edit" && (
        <KeyDialog
          key={dialog.times}
          open={dialog.isOpen}
          onClose={dialog.close}
          providerId={provider.id}
          edited={what.key}
        />
      )}
      {what?.kind === "remove" && (
        <RemoveKey open={dialog.isOpen} onClose={dialog.close} provider={provider} removed={what.key} />
      )}
    </section>
  );
}

type LineProps = { provider: OneProvider; line: Key; onOpen: (what: Opened) => void };

function KeyLine({ provider, line, onOpen }: LineProps) {
  const switching = useKeySwitching();
  return (
    <li className="flex items-start justify-between gap-3 border-b border-line py-2 text-13 last:border-0">
      <span className="grid min-w-0 gap-1">
        <span className="wrap-anywhere">{line.name}</span>
        {provider.keys.length > 1 && (
          <span className="text-12 text-ink-2">{t`Weight ${{ weight: formatCount(line.weight) }}`}</span>
        )}
        <KeyFacts line={line} />
      </span>
      <span className="flex flex-none items-center gap-2">
        <KeyState {...line} />
        <Menu
          trigger={<IconButton icon={MoreHorizontal} label={t`Actions for key ${{ name: line.name }}`} size="sm" />}
          items={[
            {
              label: t({ message: "Change", context: "verb" }),
              icon: Pencil,
              onSelect: () => onOpen({ kind: "edit", key: line }),
            },
            {
              label: line.enabled ? t`Switch off` : t`Switch on`,
              icon: line.enabled ? CirclePause : Play,
              onSelect: () => switching.mutate({ what: line, isOn: !line.enabled, isQuiet: true }),
            },
            { label: t`Remove`, icon: Trash2, onSelect: () => onOpen({ kind: "remove", key: line }) },
          ]}
        />
      </span>
    </li>
  );
}

function KeyState({ enabled, state }: Key) {
  if (!enabled) return <Status kind="disabled" />;
  if (state === "cooling")
    return (
      <Badge tone="warn">
        <Trans>Cooling</Trans>
      </Badge>
    );
  if (state === "quarantined")
    return (
      <Badge tone="bad">
        <Trans>Quarantined</Trans>
      </Badge>
    );
  return <Status kind="active" />;
}

/** The state of a key: its start, reason, end, and the last probe. */
function KeyFacts({ line: { enabled, state, since, until, why, models, forAll, probedAt } }: { line: Key }) {
  if (!enabled || state === "active")
    return probedAt === null ? null : (
      <span className="text-12 text-ink-2">
        <Trans>
          Last probe: <Ago iso={probedAt} />
        </Trans>
      </span>
    );
  const reason =
    state === "cooling"
      ? t`The provider limits its requests for ${{ models: models.join(", ") }} (429).`
      : (REASONS[why ?? ""] ?? t`It failed.`);
  return (
    <span className="grid gap-0.5 text-12 text-ink-2">
      <span className="wrap-anywhere">{reason}</span>
      <span>
        {until === null ? (
          <Trans>
            Since <Instant iso={since} seconds />
          </Trans>
        ) : state === "cooling" ? (
          <Trans>
            Since <Instant iso={since} seconds />, until <Instant iso={until} seconds />
          </Trans>
        ) : (
          <Trans>
            Since <Instant iso={since} seconds />, next probe <Instant iso={until} seconds />
          </Trans>
        )}
      </span>
      {probedAt !== null && (
        <span>
          <Trans>
            Last probe: <Ago iso={probedAt} />
          </Trans>
        </span>
      )}
      {!forAll && (
        <span>
          <Trans>Only some customers are affected. For the others, it is tried last.</Trans>
        </span>
      )}
    </span>
  );
}

function useKeySwitching() {
  return useSwitching<Key>({
    send: ({ id }, isOn) => ask(api.admin["provider-keys"]({ id }).patch({ enabled: isOn })),
    stale: ADMIN_KEY,
    done: ({ name }, isOn) => (isOn ? t`${name} is on.` : t`${name} is off.`),
    stays: ({ name }, isOn) => (isOn ? t`${name} stays off.` : t`${name} stays on.`),
  });
}

function KeyDialog({ open, onClose, providerId, edited }: DialogState & { providerId: number; edited: Key | null }) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  const form = useForm({
    first: { name: edited?.name ?? "", apiKey: "", weight: String(edited?.weight ?? 1) },
    wrong: ({ name, apiKey, weight }) => ({
      name: isBlank(name) ? t`Enter a name.` : null,
      apiKey: edited === null && isBlank(apiKey) ? t`Paste the key that the provider gave you.` : null,
      weight: checkCount(weight, ROUTE_WEIGHT),
    }),
    send: async (typed) => {
      const fields = { name: typed.name.trim(), weight: readCount(typed.weight) ?? 1 };
      const { apiKey } = typed;
      if (edited === null)
        await ask(api.admin.providers({ id: providerId }).keys.post({ ...fields, apiKey }, sentOnce(formKey)));
      else
        await ask(
          api.admin["provider-keys"]({ id: edited.id }).patch({ ...fields, ...(!isBlank(apiKey) && { apiKey }) }),
        );
      await client.invalidateQueries({ queryKey: ADMIN_KEY });
      return fields.name;
    },
    onSent: (name) => {
      onClose();
      toast.done(edited === null ? t`${name} is added.` : t`${name} is changed.`);
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={edited === null ? t`Add key` : t`Change ${{ name: edited.name }}`}
      submitLabel={edited === null ? t`Add key` : t`Save`}
    >
      <ProviderNameField {...form.field("name")} />
      <ProviderKeyField isNew={edited === null} {...form.field("apiKey")} />
      <CountField
        label={t`Weight`}
        hint={t`A key of weight 2 gets twice the requests of a key of weight 1.`}
        required
        {...form.field("weight")}
      />
    </FormDialog>
  );
}

/** The name of a provider, or of one of its keys. */
export function ProviderNameField(field: FieldState) {
  return (
    <TextField label={t`Name`} hint={t`Only admins see it.`} required {...field} maxLength={CATALOG_NAME_CHARS_MAX} />
  );
}

/** A provider's key. `isMoved`: the provider gets another address, to which the stored key would be sent. */
export function ProviderKeyField({
  isNew,
  isMoved = false,
  ...field
}: FieldState & { isNew: boolean; isMoved?: boolean }) {
  const kept = isMoved
    ? t`If empty, the stored key is sent to the new address from now on.`
    : t`If empty, the stored key is kept. It is never shown.`;
  return (
    <PasswordField
      label={isNew ? t`Key` : t`New key`}
      optional={!isNew}
      required={isNew}
      hint={isNew ? t`Stored encrypted. It is never shown again.` : kept}
      mono
      autoComplete="new-password"
      {...field}
      maxLength={PROVIDER_KEY_CHARS_MAX}
    />
  );
}

function RemoveKey({
  open,
  onClose,
  provider,
  removed,
}: DialogState & { provider: Pick<OneProvider, "name">; removed: Key }) {
  const client = useQueryClient();
  return (
    <Confirm
      open={open}
      onOpenChange={onClose}
      title={t`Remove key ${{ name: removed.name }}?`}
      confirmLabel={t`Remove key`}
      cancelLabel={t`Keep key`}
      onConfirm={async () => {
        await ask(api.admin["provider-keys"]({ id: removed.id }).delete());
        await client.invalidateQueries({ queryKey: ADMIN_KEY });
        toast.done(t`${{ name: removed.name }} is removed.`);
      }}
    >
      {t`${{ name: provider.name }} is called with its other keys. The removed key cannot be read again.`}
    </Confirm>
  );
}
