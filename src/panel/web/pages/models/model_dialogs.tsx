import { t } from "@lingui/core/macro";
import { useQueryClient } from "@tanstack/react-query";
import { CATALOG_NAME_CHARS_MAX, MODEL_CAP_TOKENS, MODEL_CONTEXT_TOKENS } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { checkCount, readCount } from "../../shared/typed_numbers.ts";
import { CountField, Field, NativeSelect, TextArea, TextField } from "../../ui/fields.tsx";
import { type DialogState, type Form, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { HIDES_TOKENS, hidesTokensOf, MODALITY_OPTIONS, type Model, ROUTE_CHOICES } from "./catalog.tsx";

/**
 * The dialogs of a model's details. Of its bounds: admin_model_bounds.tsx; of its prices: admin_model_prices.tsx; of its
 * routes: admin_route_dialog.tsx.
 */

const STATUS_OPTIONS = [
  { value: "active", label: t`Active` },
  { value: "preview", label: t`Preview` },
  { value: "deprecated", label: t`Deprecated` },
] as const;

const HIDES_TOKENS_OPTIONS = (["unknown", "no", "yes"] as const).map((value) => ({
  value,
  label: HIDES_TOKENS[value],
}));

const ROUTE_CHOICE_OPTIONS = (["order", "weight", "price", "latency"] as const).map((value) => ({
  value,
  label: ROUTE_CHOICES[value],
}));

type Props = DialogState & { model: Model };

/** Reloads every page that shows models, routes or providers, closes the dialog, and confirms. */
export function useSaved(onClose: () => void) {
  const client = useQueryClient();
  return async (message: string) => {
    await client.invalidateQueries({ queryKey: ADMIN_KEY });
    onClose();
    toast.done(message);
  };
}

/** The details of a model as typed, by the server's names. */
function detailsOf(model: Model) {
  return {
    name: model.name,
    ownedBy: model.ownedBy,
    modality: model.modality,
    status: model.status,
    contextLength: model.contextLength === null ? "" : String(model.contextLength),
    defaultCapTokens: String(model.defaultCapTokens),
    architecture: model.architecture === null ? "" : JSON.stringify(model.architecture, null, 2),
    hidesTokens: hidesTokensOf(model),
    routeChoice: model.routeChoice,
  };
}
type Details = ReturnType<typeof detailsOf>;

function wrongDetails(details: Details): Record<keyof Details, string | null> {
  return {
    name: isBlank(details.name) ? t`Enter a name.` : null,
    ownedBy: isBlank(details.ownedBy) ? t`Enter the owner.` : null,
    modality: null,
    status: null,
    contextLength: checkCount(details.contextLength, { ...MODEL_CONTEXT_TOKENS, optional: true }),
    defaultCapTokens: checkCount(details.defaultCapTokens, MODEL_CAP_TOKENS),
    architecture:
      readObject(details.architecture) === undefined
        ? t`Enter a JSON object, such as ${{ example: '{"tokenizer": "o200k"}' }}.`
        : null,
    hidesTokens: null,
    routeChoice: null,
  };
}

/** The request's body. `hidesTokens`, which answers can change too, is sent only if it was edited. */
function patchOf(details: Details, before: Details) {
  const { hidesTokens } = details;
  return {
    name: details.name,
    ownedBy: details.ownedBy,
    modality: details.modality,
    status: details.status,
    routeChoice: details.routeChoice,
    contextLength: readCount(details.contextLength),
    defaultCapTokens: Number(readCount(details.defaultCapTokens)),
    ...(hidesTokens !== before.hidesTokens && {
      hidesTokens: hidesTokens === "unknown" ? null : hidesTokens === "yes",
    }),
    architecture: readObject(details.architecture) ?? null,
  };
}

export function EditModel({ open, onClose, model }: Props) {
  const saved = useSaved(onClose);
  const before = detailsOf(model);
  const form = useForm({
    first: before,
    wrong: wrongDetails,
    send: (details) => ask(api.admin.model.patch(patchOf(details, before), { query: { id: model.id } })),
    onSent: () => saved(t`${{ model: model.id }} is changed.`),
  });
  const { error, ...architecture } = form.field("architecture");
  return (
    <FormDialog form={form} open={open} onClose={onClose} title={t`Change details`} size="lg" submitLabel={t`Save`}>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <NameFields form={form} />
        <TokenFields form={form} />
      </div>
      <Field label={t`Architecture`} optional hint={t`GET /models returns it unchanged.`} error={error}>
        <TextArea mono rows={3} {...architecture} />
      </Field>
    </FormDialog>
  );
}

function NameFields({ form }: { form: Form<Details, keyof Details> }) {
  const { error: modalityError, ...modality } = form.field("modality");
  const { error: statusError, ...status } = form.field("status");
  const { error: choiceError, ...routeChoice } = form.field("routeChoice");
  return (
    <>
      <TextField label={t`Name`} required {...form.field("name")} maxLength={CATALOG_NAME_CHARS_MAX} />
      <TextField
        label={t`Owned by`}
        hint={t`GET /models returns it as owned_by.`}
        required
        {...form.field("ownedBy")}
        maxLength={CATALOG_NAME_CHARS_MAX}
      />
      <Field label={t`Kind`} error={modalityError}>
        <NativeSelect {...modality} options={MODALITY_OPTIONS} />
      </Field>
      <Field label={t`State`} error={statusError}>
        <NativeSelect {...status} options={STATUS_OPTIONS} />
      </Field>
      <Field label={t`Routes chosen by`} hint={t`Which of its routes a request is sent to first.`} error={choiceError}>
        <NativeSelect {...routeChoice} options={ROUTE_CHOICE_OPTIONS} />
      </Field>
    </>
  );
}

function TokenFields({ form }: { form: Form<Details, keyof Details> }) {
  const { error: hidesError, ...hidesTokens } = form.field("hidesTokens");
  return (
    <>
      <CountField
        label={t`Context`}
        optional
        hint={t`Tokens of prompt and answer together.`}
        after={t`tokens`}
        {...form.field("contextLength")}
      />
      <CountField
        label={t`Output without max_tokens`}
        hint={t`Output limit of pay-as-you-go requests that set none. This much is reserved.`}
        required
        after={t`tokens`}
        {...form.field("defaultCapTokens")}
      />
      <Field
        label={t`Hides tokens`}
        hint={t`If yes, a stream whose client disconnects is read to its end, to learn how many tokens it used.`}
        error={hidesError}
      >
        <NativeSelect {...hidesTokens} options={HIDES_TOKENS_OPTIONS} />
      </Field>
    </>
  );
}

/** A JSON object; null for an empty text, undefined if it is not valid. */
function readObject(typed: string): Record<string, unknown> | null | undefined {
  if (isBlank(typed)) return null;
  try {
    const value: unknown = JSON.parse(typed);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}
