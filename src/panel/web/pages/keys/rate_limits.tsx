import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Plus, X } from "lucide-react";
import { useId } from "react";
import { LIMITED_MODELS_MAX, REQUESTS_AT_ONCE, REQUESTS_PER_MINUTE, TOKENS_PER_MINUTE } from "../../../../limits.ts";
import { limitSetText } from "../../copy.ts";
import { formatCount } from "../../format.ts";
import { type OwnKey, useKeyOptions } from "../../shared/account_queries.ts";
import { checkCount, readCount } from "../../shared/typed_numbers.ts";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { Combobox } from "../../ui/combobox.tsx";
import { CountField, Field, FieldError } from "../../ui/fields.tsx";
import type { FieldState, Form } from "../../ui/form.tsx";
import { choicesError } from "../../ui/states.tsx";

/**
 * Limits of requests a minute, tokens a minute and requests at once, for the forms of offerings, accounts and keys. They are kept as
 * typed, by the server's names; an empty field is no limit.
 */

export type RateLimits = NonNullable<OwnKey["limits"]>;
type LimitSet = Omit<RateLimits, "models">;
type Name = keyof LimitSet;

const KINDS = [
  { name: "requestsPerMinute", label: t`Requests a minute`, range: REQUESTS_PER_MINUTE },
  { name: "tokensPerMinute", label: t`Tokens a minute`, range: TOKENS_PER_MINUTE },
  { name: "requestsAtOnce", label: t`Requests at once`, range: REQUESTS_AT_ONCE },
] as const satisfies readonly { name: Name; label: string; range: { min: number; max: number } }[];

type TypedSet = Record<Name, string>;
export type TypedLimits = { [Field in Name as `limits.${Field}`]: string };
type LimitErrors = Record<keyof TypedLimits, string | null>;
/** One model's limits, as typed. `line` tells it from others while no model is chosen. */
type TypedModel = TypedSet & { line: number; modelId: string | null };
type TypedModels = { "limits.models": readonly TypedModel[] };

export function typedLimits(limits: LimitSet | null): TypedLimits {
  const { requestsPerMinute, tokensPerMinute, requestsAtOnce } = typedSet(limits);
  return {
    "limits.requestsPerMinute": requestsPerMinute,
    "limits.tokensPerMinute": tokensPerMinute,
    "limits.requestsAtOnce": requestsAtOnce,
  };
}

function typedModels(limits: RateLimits | null): TypedModels {
  const models = Object.entries(limits?.models ?? {});
  return { "limits.models": models.map(([modelId, set], line) => ({ line, modelId, ...typedSet(set) })) };
}

function typedSet(limits: LimitSet | null): TypedSet {
  const text = (name: Name) => String(limits?.[name] ?? "");
  return {
    requestsPerMinute: text("requestsPerMinute"),
    tokensPerMinute: text("tokensPerMinute"),
    requestsAtOnce: text("requestsAtOnce"),
  };
}

export function checkLimits(typed: TypedLimits): LimitErrors {
  return {
    "limits.requestsPerMinute": checkCount(typed["limits.requestsPerMinute"], {
      ...REQUESTS_PER_MINUTE,
      optional: true,
    }),
    "limits.tokensPerMinute": checkCount(typed["limits.tokensPerMinute"], { ...TOKENS_PER_MINUTE, optional: true }),
    "limits.requestsAtOnce": checkCount(typed["limits.requestsAtOnce"], { ...REQUESTS_AT_ONCE, optional: true }),
  };
}

/** The error of all models' limits together, or null. */
function checkModels({ "limits.models": models }: TypedModels): { "limits.models": string | null } {
  const ids = models.map(({ modelId }) => modelId);
  const wrong = models.flatMap((typed) =>
    KINDS.filter(({ name, range }) => checkCount(typed[name], { ...range, optional: true }) !== null).map(
      ({ label, range }) => t`${label}: from ${{ min: formatCount(range.min) }} to ${{ max: formatCount(range.max) }}.`,
    ),
  );
  const hasNoModel = ids.includes(null) ? t`Choose a model for each line, or remove the line.` : null;
  const hasTwice = new Set(ids).size < ids.length ? t`A model can have one line only.` : null;
  return { "limits.models": hasNoModel ?? hasTwice ?? wrong[0] ?? null };
}

/** Typed limits as the server takes them; null: none. */
export function readLimits(typed: TypedLimits): LimitSet {
  return {
    requestsPerMinute: readCount(typed["limits.requestsPerMinute"]),
    tokensPerMinute: readCount(typed["limits.tokensPerMinute"]),
    requestsAtOnce: readCount(typed["limits.requestsAtOnce"]),
  };
}

function readModels({ "limits.models": models }: TypedModels): Record<string, LimitSet> {
  return Object.fromEntries(
    models.map(({ modelId, ...typed }) => [
      modelId ?? "",
      {
        requestsPerMinute: readCount(typed.requestsPerMinute),
        tokensPerMinute: readCount(typed.tokensPerMinute),
        requestsAtOnce: readCount(typed.requestsAtOnce),
      },
    ]),
  );
}

/** The limits of an account or an offering: over all models, and of single ones. */
type AllTyped = TypedLimits & TypedModels;

export function typedAllLimits(limits: RateLimits | null): AllTyped {
  return { ...typedLimits(limits), ...typedModels(limits) };
}

export function checkAllLimits(typed: AllTyped): Record<keyof AllTyped, string | null> {
  return { ...checkLimits(typed), ...checkModels(typed) };
}

export function readAllLimits(typed: AllTyped): RateLimits {
  return { ...readLimits(typed), models: readModels(typed) };
}

/** "60 requests a minute", or "none", of what is typed. */
export function typedLimitsText(typed: TypedLimits): string {
  const isWrong = Object.values(checkLimits(typed)).some((error) => error !== null);
  return isWrong ? "…" : limitSetText(readLimits(typed)) || t({ message: "none", context: "limits" });
}

export function RateLimitFields({
  field,
  most,
}: {
  field: (name: keyof TypedLimits) => FieldState;
  /** The highest that may be set, if there is one: of the account, for a key. */
  most?: LimitSet | null;
}) {
  return (
    <div className="grid items-start gap-3 sm:grid-cols-3">
      {KINDS.map(({ name, label }) => (
        <CountField
          key={name}
          label={label}
          optional
          {...(most?.[name] != null && { hint: t`At most ${{ most: formatCount(most[name]) }}.` })}
          {...field(/* not a text */ `limits.${name}`)}
        />
      ))}
    </div>
  );
}

/** The fields of an account's or an offering's limits. */
export function AllLimitFields({
  form,
  most = null,
}: {
  form: Pick<Form<AllTyped, keyof AllTyped>, "field">;
  most?: LimitSet | null;
}) {
  return (
    <>
      <RateLimitFields field={form.field} most={most} />
      <ModelLimitFields {...form.field("limits.models")} />
    </>
  );
}

/** An empty line after the others. */
function nextLine(models: readonly TypedModel[]): TypedModel {
  return { line: Math.max(-1, ...models.map(({ line }) => line)) + 1, modelId: null, ...typedSet(null) };
}

/** Limits of single models: a line for each. */
function ModelLimitFields({ value, onValue, error }: FieldState<TypedModels["limits.models"]>) {
  const errorId = useId();
  const options = useKeyOptions();
  const models = (options.data?.models ?? []).map(({ id }) => ({ value: id, label: id }));
  const change = (line: number, typed: Partial<TypedModel>) =>
    onValue(value.map((one) => (one.line === line ? { ...one, ...typed } : one)));
  return (
    <fieldset className="grid gap-3" aria-describedby={error ? errorId : undefined}>
      <legend className="mb-2 text-13 font-medium">
        <Trans>
          Limits of single models <span className="font-normal text-ink-3">(optional)</span>
        </Trans>
      </legend>
      {value.map((typed) => (
        <div key={typed.line} className="grid items-start gap-3 rounded-md border border-line p-3 sm:grid-cols-2">
          <Field label={t`Model`} error={choicesError(options)}>
            <Combobox value={typed.modelId} onValue={(modelId) => change(typed.line, { modelId })} options={models} />
          </Field>
          {KINDS.map(({ name, label, range }) => (
            <CountField
              key={name}
              label={label}
              optional
              value={typed[name]}
              onValue={(text) => change(typed.line, { [name]: text })}
              error={error && checkCount(typed[name], { ...range, optional: true })}
            />
          ))}
          <IconButton
            icon={X}
            label={
              typed.modelId === null
                ? t`Remove the limits of this line`
                : t`Remove the limits of ${{ model: typed.modelId }}`
            }
            size="sm"
            className="justify-self-start sm:col-span-2"
            onClick={() => onValue(value.filter(({ line }) => line !== typed.line))}
          />
        </div>
      ))}
      {error && <FieldError id={errorId}>{error}</FieldError>}
      <Button
        size="sm"
        icon={Plus}
        className="justify-self-start"
        disabled={value.length >= LIMITED_MODELS_MAX}
        onClick={() => onValue([...value, nextLine(value)])}
      >
        <Trans>Add a model</Trans>
      </Button>
    </fieldset>
  );
}
