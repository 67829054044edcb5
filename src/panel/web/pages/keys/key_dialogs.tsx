import { plural, t } from "@lingui/core/macro";
import { Plural } from "@lingui/react/macro";
import { KEY_NAME_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { type OwnKey, useKeyOptions } from "../../shared/account_queries.ts";
import { useRefresh } from "../../shared/page_hooks.ts";
import { RadioList } from "../../ui/choices.tsx";
import { TextField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { Banner, Loaded, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { checkKeyScope, HostList, type KeyScope, ModelList } from "./key_scope.tsx";
import { explainLostKey, showSecret } from "./key_secret.tsx";
import { checkOwnLimits, OwnLimitFields, readOwnLimits, typedOwnLimits } from "./own_limits.tsx";
import { checkLimits, RateLimitFields, type RateLimits, readLimits, typedLimits } from "./rate_limits.tsx";

/** The dialogs that edit a key and its scope, and rotate it. Creating one: key_create.tsx. */

const HOUR_SECONDS = 3_600;

/** The name and the limits. `most`: the limits of the account, which a key may not exceed; null: none. */
export function EditKeyDialog({ row, most, ...dialog }: DialogState & { row: OwnKey; most: RateLimits | null }) {
  const refresh = useRefresh();
  const form = useForm({
    first: { name: row.name, ...typedOwnLimits(row), ...typedLimits(row.limits) },
    wrong: ({ name, ...limits }) => ({
      name: isBlank(name) ? t`Enter a name for this key.` : null,
      ...checkOwnLimits(limits),
      ...checkLimits(limits),
    }),
    send: async ({ name, ...limits }) => {
      await ask(api.keys({ id: row.keyId }).patch({ name, ...readOwnLimits(limits), limits: readLimits(limits) }));
      await refresh();
    },
    onSent: () => {
      toast.done(t`Key ${{ name: form.values.name.trim() }} saved.`);
      dialog.onClose();
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Key ${{ name: row.name }}`}
      description={t`Billing and expiry are fixed when a key is created.`}
      submitLabel={t`Save`}
    >
      <TextField label={t`Name`} {...form.field("name")} maxLength={KEY_NAME_CHARS_MAX} required />
      <OwnLimitFields field={form.field} zone={row.timeZone} />
      <RateLimitFields field={form.field} most={most} />
    </FormDialog>
  );
}

/** Where a key may be used. */
export function ScopeDialog({ row, ...dialog }: DialogState & { row: OwnKey }) {
  const options = useKeyOptions();
  const refresh = useRefresh();
  const scope: KeyScope = { modelIds: row.modelIds, hosts: row.hosts };
  const form = useForm({
    first: scope,
    wrong: checkKeyScope,
    send: async (changed) => {
      await ask(api.keys({ id: row.keyId }).patch(changed));
      await refresh();
    },
    onSent: () => {
      toast.done(t`Key ${{ name: row.name }} saved.`);
      dialog.onClose();
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Models and hosts of key ${{ name: row.name }}`}
      description={t`A change applies immediately: requests outside of it are refused.`}
      submitLabel={t`Save`}
    >
      <Loaded query={options} skeleton={<Skeleton className="h-48" />}>
        {(data) => (
          <>
            <ModelList options={data} {...form.field("modelIds")} />
            <HostList options={data} {...form.field("hosts")} />
          </>
        )}
      </Loaded>
    </FormDialog>
  );
}

/** `done`: the title of the new key's secret. */
const OVERLAPS = [
  {
    value: "0",
    label: t`Not at all`,
    hint: t`Requests with the old key get a 401 error immediately.`,
    done: (name: string) => t`New key ${name}: the old one has ended`,
  },
  {
    value: String(HOUR_SECONDS),
    label: t`1 hour`,
    done: (name: string) => t`New key ${name}: the old one works for 1 hour more`,
  },
  {
    value: String(24 * HOUR_SECONDS),
    label: t`24 hours`,
    done: (name: string) => t`New key ${name}: the old one works for 24 hours more`,
  },
  {
    value: String(7 * 24 * HOUR_SECONDS),
    label: t`7 days`,
    done: (name: string) => t`New key ${name}: the old one works for 7 days more`,
  },
] as const;
type Overlap = (typeof OVERLAPS)[number]["value"];
const DEFAULT_OVERLAP: Overlap = String(24 * HOUR_SECONDS);

/** Creates a new secret with the same settings. The old key keeps working for a chosen time. */
export function RotateKeyDialog({ row, ...dialog }: DialogState & { row: OwnKey }) {
  const formKey = useIdempotencyKey();
  const form = useForm({
    first: { overlapSeconds: DEFAULT_OVERLAP },
    wrong: { overlapSeconds: null },
    send: ({ overlapSeconds }) =>
      explainLostKey(
        ask(api.keys({ id: row.keyId }).rotate.post({ overlapSeconds: Number(overlapSeconds) }, sentOnce(formKey))),
      ),
    onSent: ({ secret, key }) => {
      const title = OVERLAPS.find(({ value }) => value === overlap)?.done(key.name) ?? "";
      showSecret({ ...key, secret, title });
      dialog.onClose();
    },
  });
  const overlap = form.values.overlapSeconds;
  const { requestsLastDay: requests } = row;
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Rotate key ${{ name: row.name }}?`}
      description={t`You get a new key with the same settings. Replace the old key with it wherever it is used.`}
      submitLabel={t`Rotate key`}
    >
      <RadioList label={t`The old key keeps working for`} options={OVERLAPS} {...form.field("overlapSeconds")} />
      {requests !== null && requests > 0 && (
        <Banner tone={overlap === "0" ? "warn" : "neutral"}>
          <Plural
            value={requests}
            one="# request used it in the last 24 h."
            other="# requests used it in the last 24 h."
          />
          {overlap === "0" &&
            ` ${plural(requests, { one: "The next one will be refused.", other: "The next ones will be refused." })}`}
        </Banner>
      )}
    </FormDialog>
  );
}
