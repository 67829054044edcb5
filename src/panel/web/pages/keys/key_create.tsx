import { plural, t } from "@lingui/core/macro";
import { KEY_NAME_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { useKeyOptions } from "../../shared/account_queries.ts";
import { RadioList } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { CollapsedField } from "../../ui/collapsed.tsx";
import { Field, NativeSelect, TextField } from "../../ui/fields.tsx";
import { type DialogState, type Form, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";
import { checkKeyScope, HostList, type KeyScope, ModelList } from "./key_scope.tsx";
import { explainLostKey, showSecret } from "./key_secret.tsx";
import {
  checkOwnLimits,
  NO_OWN_LIMITS,
  OWN_LIMIT_FIELDS,
  OwnLimitFields,
  type OwnLimits,
  ownLimitsText,
  readOwnLimits,
} from "./own_limits.tsx";
import {
  checkLimits,
  RateLimitFields,
  type RateLimits,
  readLimits,
  type TypedLimits,
  typedLimits,
  typedLimitsText,
} from "./rate_limits.tsx";

/** The dialog that creates a key: its name and billing mode, and, collapsed, its limits. Its secret: key_secret.tsx. */

const DAY_MS = 86_400_000;

type Options = NonNullable<ReturnType<typeof useKeyOptions>["data"]>;
type Mode = "package" | "payg";

/** `said`: in the line of the collapsed field. */
const EXPIRIES = [
  {
    value: "never",
    label: t({ message: "Never", context: "expires" }),
    said: t({ message: "never", context: "expires" }),
  },
  { value: "7", label: t`In 7 days`, said: t`in 7 days` },
  { value: "30", label: t`In 30 days`, said: t`in 30 days` },
  { value: "90", label: t`In 90 days`, said: t`in 90 days` },
  { value: "365", label: t`In a year`, said: t`in a year` },
  { value: "day", label: t`After a day I choose`, said: "" },
] as const;
type Expiry = { expiry: (typeof EXPIRIES)[number]["value"]; lastDay: string };

type Values = OwnLimits &
  TypedLimits &
  Expiry &
  KeyScope & {
    name: string;
    /** null: not chosen yet; the likely one is preselected. */
    mode: Mode | null;
  };
const FIRST: Values = {
  name: "",
  mode: null,
  modelIds: null,
  hosts: null,
  expiry: "never",
  lastDay: "",
  ...NO_OWN_LIMITS,
  ...typedLimits(null),
};
type LimitName = "modelIds" | "hosts" | "expiresAt" | keyof OwnLimits | keyof TypedLimits;
type KeyForm = Form<Values, "name" | "mode" | LimitName>;

/** `most`: the limits of the account, which a key may not exceed; null: none. */
export function CreateKeyDialog({ most, ...dialog }: DialogState & { most: RateLimits | null }) {
  const formKey = useIdempotencyKey();
  const options = useKeyOptions();
  const preselected = options.data ? likelyMode(options.data) : "package";
  const form: KeyForm = useForm({
    first: FIRST,
    wrong: (values) => ({
      name: isBlank(values.name) ? t`Enter a name for this key.` : null,
      mode: null,
      ...checkKeyScope(values),
      expiresAt: checkExpiry(values),
      ...checkOwnLimits(values),
      ...checkLimits(values),
    }),
    send: ({ name, mode, modelIds, hosts, ...rest }) => {
      const scope = { modelIds, hosts, expiresAt: readExpiry(rest) };
      const wanted = { name, mode: mode ?? preselected, ...scope, ...readOwnLimits(rest), limits: readLimits(rest) };
      return explainLostKey(ask(api.keys.post(wanted, sentOnce(formKey))));
    },
    // The list is loaded again when the secret has been stored.
    onSent: ({ secret, key }) => {
      showSecret({ ...key, secret, title: t`Key ${{ name: key.name }} is ready` });
      dialog.onClose();
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={t`Create key`}
      description={t`A key lets your server call the API.`}
      submitLabel={t`Create key`}
    >
      <TextField
        label={t`Name`}
        hint={t`Where the key will be used: ci, website, my laptop.`}
        {...form.field("name")}
        maxLength={KEY_NAME_CHARS_MAX}
        required
      />
      <Loaded query={options} skeleton={<Skeleton className="h-48" />}>
        {(data) => (
          <>
            <RadioList
              label={t`Billing`}
              options={modeOptions(data)}
              {...form.field("mode")}
              value={form.values.mode ?? preselected}
            />
            <Limits options={data} form={form} most={most} />
          </>
        )}
      </Loaded>
    </FormDialog>
  );
}

/** The mode that can pay now; the package if both can. */
function likelyMode({ modes }: Options): Mode {
  return modes.find(({ canPay }) => canPay)?.mode ?? "package";
}

function modeOptions({ modes }: Options) {
  return modes.map(({ mode, canPay, packageName }) =>
    mode === "package"
      ? { value: mode, label: t`Package`, hint: packageHint(packageName, canPay) }
      : {
          value: mode,
          label: t`Balance`,
          hint: canPay
            ? t`Each request is charged by its tokens.`
            : t`Cannot pay now: the balance is empty, or pay-as-you-go is off.`,
        },
  );
}

function packageHint(packageName: string | null, canPay: boolean): string {
  if (!packageName) return t`No package is active now. The key works as soon as one is.`;
  return canPay
    ? t`${packageName}. Each request counts as one.`
    : t`${packageName}, used up for now. Each request counts as one.`;
}

/** Limits that most keys do not need, each collapsed into one line with its value. */
function Limits({ options, form, most }: { options: Options; form: KeyForm; most: RateLimits | null }) {
  const { values, errorOf } = form;
  const isWrong = (...names: LimitName[]) => names.some((name) => errorOf(name) !== null);
  const models = allowedText(values.modelIds, {
    all: t({ message: "all", context: "models" }),
    several: (count) => plural(count, { one: "# model", other: "# models" }),
  });
  const hosts = allowedText(values.hosts, {
    all: t({ message: "all", context: "hosts" }),
    several: (count) => plural(count, { one: "# host", other: "# hosts" }),
  });
  return (
    <div className="grid border-y border-line">
      <CollapsedField label={t`Models`} value={models} isWrong={isWrong("modelIds")}>
        <ModelList options={options} {...form.field("modelIds")} />
      </CollapsedField>
      <CollapsedField label={t`Hosts`} value={hosts} isWrong={isWrong("hosts")}>
        <HostList options={options} {...form.field("hosts")} />
      </CollapsedField>
      <CollapsedField label={t`Expires`} value={expiryText(values)} isWrong={isWrong("expiresAt")}>
        <ExpiryFields values={values} onChange={form.set} error={errorOf("expiresAt")} />
      </CollapsedField>
      <CollapsedField
        label={t`Limits of requests and spending`}
        value={ownLimitsText(values)}
        isWrong={isWrong(...OWN_LIMIT_FIELDS)}
      >
        <OwnLimitFields field={form.field} zone={options.timeZone} />
      </CollapsedField>
      <CollapsedField
        label={t`Limits a minute`}
        value={typedLimitsText(values)}
        isWrong={isWrong("limits.requestsPerMinute", "limits.tokensPerMinute", "limits.requestsAtOnce")}
      >
        <RateLimitFields field={form.field} most={most} />
      </CollapsedField>
    </div>
  );
}

function allowedText(
  chosen: readonly string[] | null,
  { all, several }: { all: string; several: (count: number) => string },
): string {
  if (chosen === null) return all;
  return chosen.length === 1 ? (chosen[0] ?? "") : several(chosen.length);
}

/** The end of the chosen day in the viewer's zone; NaN without one. */
function endOfDayMs(day: string): number {
  return Date.parse(`${day}T23:59:59`);
}

function checkExpiry({ expiry, lastDay }: Expiry): string | null {
  return expiry === "day" && !(endOfDayMs(lastDay) > nowMs()) ? t`Choose today or a later day.` : null;
}

function readExpiry({ expiry, lastDay }: Expiry): string | null {
  if (expiry === "never") return null;
  const endsMs = expiry === "day" ? endOfDayMs(lastDay) : nowMs() + Number(expiry) * DAY_MS;
  return new Date(endsMs).toISOString();
}

function expiryText({ expiry, lastDay }: Expiry): string {
  if (expiry === "day") return t`after ${{ day: lastDay || "…" }}`;
  return EXPIRIES.find(({ value }) => value === expiry)?.said ?? "";
}

function ExpiryFields({
  values: { expiry, lastDay },
  onChange,
  error,
}: {
  values: Expiry;
  onChange: (change: Partial<Expiry>) => void;
  error: string | null;
}) {
  const isDay = expiry === "day";
  return (
    <div className="grid gap-3 sm:grid-cols-2">
      <Field label={t`The key expires`} error={!isDay && error}>
        <NativeSelect value={expiry} onValue={(next) => onChange({ expiry: next })} options={EXPIRIES} />
      </Field>
      {isDay && (
        <TextField
          label={t`Last day`}
          type="date"
          value={lastDay}
          onValue={(day) => onChange({ lastDay: day })}
          error={error}
        />
      )}
    </div>
  );
}
