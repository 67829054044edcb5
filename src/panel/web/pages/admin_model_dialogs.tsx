import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import {
  CATALOG_NAME_CHARS_MAX,
  IMAGE_SIZES,
  MODEL_CAP_TOKENS,
  MODEL_CONTEXT_TOKENS,
  MODEL_IMAGE_TOKENS,
  MODEL_MARGIN_PERMILLE,
  PRICE_USD_MAX,
  ROUTE_PRIORITY,
  ROUTE_WEIGHT,
} from "../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../api.ts";
import { formatCount, toUsdInput } from "../format.ts";
import { Checkbox, RadioList } from "../ui/choices.tsx";
import { CountField, DollarField, Field, NativeSelect, TextArea, TextField } from "../ui/fields.tsx";
import { type DialogState, type Form, FormDialog, isBlank, useForm } from "../ui/form.tsx";
import { toast } from "../ui/toast.tsx";
import { HIDES_TOKENS, hidesTokensOf, MODALITY_OPTIONS, type Model, type Route } from "./admin_catalog.tsx";
import { checkCount, checkUsd, readCount, readMicroUsd } from "./typed_numbers.ts";

/** The dialogs of a model's page: its details, its prices, its routes. */

const PRICE = { maxUsd: PRICE_USD_MAX, decimals: 6 } as const;
/** `standard` is the price of a request that asks for no quality. */
const QUALITY_DEFAULT = "standard";
const QUALITIES = [QUALITY_DEFAULT, "low", "medium", "high", "hd"];
const PROVIDERS_PAGE_MAX = 500;
const PERMILLE = 1_000;
const PERMILLE_PER_PERCENT = 10;
const EXTRA_PERCENT_MAX = (MODEL_MARGIN_PERMILLE.max - PERMILLE) / PERMILLE_PER_PERCENT;

const STATUS_OPTIONS = [
  { value: "active", label: "Active" },
  { value: "preview", label: "Preview" },
  { value: "deprecated", label: "Deprecated" },
] as const;

const HIDES_TOKENS_OPTIONS = (["unknown", "no", "yes"] as const).map((value) => ({
  value,
  label: HIDES_TOKENS[value],
}));

type Props = DialogState & { model: Model };

/** Reloads every page that shows models, routes or providers, closes the dialog, and confirms. */
function useSaved(onClose: () => void) {
  const client = useQueryClient();
  return async (message: string) => {
    await client.invalidateQueries({ queryKey: ["admin"] });
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
    imageInputTokens: String(model.imageInputTokens),
    /** Typed as the percent above the bound. */
    marginPermille: String((model.marginPermille - PERMILLE) / PERMILLE_PER_PERCENT),
    architecture: model.architecture === null ? "" : JSON.stringify(model.architecture, null, 2),
    hidesTokens: hidesTokensOf(model),
  };
}
type Details = ReturnType<typeof detailsOf>;

function wrongDetails(details: Details): Record<keyof Details, string | null> {
  return {
    name: isBlank(details.name) ? "Enter a name." : null,
    ownedBy: isBlank(details.ownedBy) ? "Enter the owner." : null,
    modality: null,
    status: null,
    contextLength: checkCount(details.contextLength, { ...MODEL_CONTEXT_TOKENS, optional: true }),
    defaultCapTokens: checkCount(details.defaultCapTokens, MODEL_CAP_TOKENS),
    imageInputTokens: checkCount(details.imageInputTokens, MODEL_IMAGE_TOKENS),
    marginPermille:
      readPermille(details.marginPermille) === null
        ? `From 0 to ${formatCount(EXTRA_PERCENT_MAX)}, with one decimal.`
        : null,
    architecture:
      readObject(details.architecture) === undefined ? 'Enter a JSON object, as in {"tokenizer": "o200k"}.' : null,
    hidesTokens: null,
  };
}

/** The request's body. The margin and `hidesTokens`, which answers can change too, are sent only if they were edited. */
function patchOf(details: Details, before: Details) {
  const { hidesTokens, marginPermille } = details;
  return {
    name: details.name,
    ownedBy: details.ownedBy,
    modality: details.modality,
    status: details.status,
    contextLength: readCount(details.contextLength),
    defaultCapTokens: Number(readCount(details.defaultCapTokens)),
    imageInputTokens: Number(readCount(details.imageInputTokens)),
    ...(marginPermille !== before.marginPermille && {
      marginPermille: PERMILLE + Number(readPermille(marginPermille)),
    }),
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
    onSent: () => saved(`${model.id} is changed.`),
  });
  const { error, ...architecture } = form.field("architecture");
  return (
    <FormDialog form={form} open={open} onClose={onClose} title="Change details" size="lg" submitLabel="Save">
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <NameFields form={form} />
        <TokenFields form={form} />
      </div>
      <Field label="Architecture" optional hint="GET /models returns it unchanged." error={error}>
        <TextArea mono rows={3} {...architecture} />
      </Field>
    </FormDialog>
  );
}

function NameFields({ form }: { form: Form<Details, keyof Details> }) {
  const { error: modalityError, ...modality } = form.field("modality");
  const { error: statusError, ...status } = form.field("status");
  return (
    <>
      <TextField label="Name" required {...form.field("name")} maxLength={CATALOG_NAME_CHARS_MAX} />
      <TextField
        label="Owned by"
        hint="GET /models returns it as owned_by."
        required
        {...form.field("ownedBy")}
        maxLength={CATALOG_NAME_CHARS_MAX}
      />
      <Field label="Kind" error={modalityError}>
        <NativeSelect {...modality} options={MODALITY_OPTIONS} />
      </Field>
      <Field label="Status" error={statusError}>
        <NativeSelect {...status} options={STATUS_OPTIONS} />
      </Field>
    </>
  );
}

function TokenFields({ form }: { form: Form<Details, keyof Details> }) {
  const { error: hidesError, ...hidesTokens } = form.field("hidesTokens");
  return (
    <>
      <CountField
        label="Context"
        optional
        hint="Tokens of prompt and answer together."
        after="tokens"
        {...form.field("contextLength")}
      />
      <CountField
        label="Output without max_tokens"
        hint="Output limit of pay-as-you-go requests that set none. This much is reserved."
        required
        after="tokens"
        {...form.field("defaultCapTokens")}
      />
      <CountField
        label="An image in a prompt"
        hint="Counts as this many tokens if the provider does not report them."
        required
        after="tokens"
        {...form.field("imageInputTokens")}
      />
      <CountField
        label="Reserved on top"
        hint="Added to the maximum cost of every request. What a route costs beyond it is learned and added too."
        required
        inputMode="decimal"
        after="%"
        {...form.field("marginPermille")}
      />
      <Field
        label="Hides tokens"
        hint="If yes, a stream whose client disconnects is read to its end, to learn how many tokens it used."
        error={hidesError}
      >
        <NativeSelect {...hidesTokens} options={HIDES_TOKENS_OPTIONS} />
      </Field>
    </>
  );
}

/** Typed percent, "12.5", as permille; null if it is not valid. */
function readPermille(typed: string): number | null {
  const found = /^(\d{1,4})(?:\.(\d))?$/.exec(typed.trim());
  const permille = Number(found?.[1]) * PERMILLE_PER_PERCENT + Number(found?.[2] ?? 0);
  return permille <= EXTRA_PERCENT_MAX * PERMILLE_PER_PERCENT ? permille : null;
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

const dollars = (microUsd: number | null | undefined) =>
  microUsd === null || microUsd === undefined ? "" : toUsdInput(BigInt(microUsd) * 1_000n);

const BILLING_OPTIONS = [
  { value: "priced", label: "By package and pay-as-you-go", hint: "A balance pays for the tokens that were used." },
  { value: "package", label: "By package only", hint: "No balance can pay for it." },
] as const;
type BillingOption = (typeof BILLING_OPTIONS)[number]["value"];
type TypedPrices = {
  billing: BillingOption;
  inputMicroUsd: string;
  cachedInputMicroUsd: string;
  outputMicroUsd: string;
};

function pricesOf(model: Model): TypedPrices {
  return {
    billing: "priced",
    inputMicroUsd: dollars(model.prices?.inputMicroUsd),
    cachedInputMicroUsd: dollars(model.prices?.cachedInputMicroUsd),
    outputMicroUsd: dollars(model.prices?.outputMicroUsd),
  };
}

function wrongPrices({
  billing,
  inputMicroUsd: input,
  cachedInputMicroUsd: cached,
  outputMicroUsd: output,
}: TypedPrices) {
  if (billing === "package") return { inputMicroUsd: null, cachedInputMicroUsd: null, outputMicroUsd: null };
  const isDearer = (readMicroUsd(cached) ?? 0) > (readMicroUsd(input) ?? 0);
  return {
    inputMicroUsd: checkUsd(input, PRICE),
    cachedInputMicroUsd:
      checkUsd(cached, { ...PRICE, optional: true }) ?? (isDearer ? "At most the input price." : null),
    outputMicroUsd: checkUsd(output, PRICE),
  };
}

export function PricesDialog({ open, onClose, model }: Props) {
  const saved = useSaved(onClose);
  const form = useForm({
    first: pricesOf(model),
    wrong: wrongPrices,
    send: ({ billing, ...typed }) => {
      const prices =
        billing === "package"
          ? null
          : {
              inputMicroUsd: Number(readMicroUsd(typed.inputMicroUsd)),
              cachedInputMicroUsd: readMicroUsd(typed.cachedInputMicroUsd),
              outputMicroUsd: Number(readMicroUsd(typed.outputMicroUsd)),
            };
      return ask(api.admin.model.prices.put({ prices }, { query: { id: model.id } }));
    },
    onSent: () =>
      saved(isPriced ? "The new prices apply from the next request on." : `${model.id} is sold by package only.`),
  });
  const isPriced = form.values.billing === "priced";
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title="Price per million tokens"
      description={`What a balance pays for ${model.id}. Requests under way keep the price they started with.`}
      submitLabel="Save"
    >
      <RadioList
        label="Billing"
        value={form.values.billing}
        onValue={(billing) => form.set({ billing })}
        options={BILLING_OPTIONS}
      />
      {isPriced && (
        <div className="grid items-start gap-4 sm:grid-cols-3">
          <DollarField label="Input" required {...form.field("inputMicroUsd")} />
          <DollarField
            label="Cached input"
            optional
            hint="If empty, as input."
            {...form.field("cachedInputMicroUsd")}
          />
          <DollarField label="Output" required {...form.field("outputMicroUsd")} />
        </div>
      )}
    </FormDialog>
  );
}

type Size = (typeof IMAGE_SIZES)[number];

/** Prices by size and quality: as saved, as typed, and what is wrong with one. */
function useImagePrices(model: Model) {
  const [typed, setTyped] = useState<Readonly<Record<string, string>>>({});
  const saved = (size: Size, quality: string) =>
    dollars(model.imagePrices.find((price) => price.size === size && price.quality === quality)?.microUsd);
  const now = (size: Size, quality: string) => typed[`${size}/${quality}`] ?? saved(size, quality);
  return {
    qualities: [...new Set([...QUALITIES, ...model.imagePrices.map(({ quality }) => quality)])],
    saved,
    now,
    wrong: (size: Size, quality: string) => checkUsd(now(size, quality), { ...PRICE, optional: true }),
    set: (size: Size, quality: string, value: string) =>
      setTyped((before) => ({ ...before, [`${size}/${quality}`]: value })),
  };
}

export function ImagePricesDialog({ open, onClose, model }: Props) {
  const done = useSaved(onClose);
  const { qualities, saved, now, wrong, set } = useImagePrices(model);
  const [quality, setQuality] = useState(QUALITY_DEFAULT);
  const wrongElsewhere = qualities.find(
    (other) => other !== quality && IMAGE_SIZES.some((size) => wrong(size, other) !== null),
  );
  const form = useForm({
    wrong: {
      quality: wrongElsewhere === undefined ? null : `A price of ${wrongElsewhere} quality is not valid.`,
      "512x512": wrong("512x512", quality),
      "1024x1024": wrong("1024x1024", quality),
      "1024x1536": wrong("1024x1536", quality),
      "1536x1024": wrong("1536x1024", quality),
    },
    // One after the other: if one fails, those before it stay saved, and sending them again changes nothing.
    send: async () => {
      for (const of of qualities) {
        for (const size of IMAGE_SIZES) {
          const microUsd = readMicroUsd(now(size, of));
          if (microUsd === readMicroUsd(saved(size, of))) continue;
          await ask(api.admin.model["image-price"].put({ size, quality: of, microUsd }, { query: { id: model.id } }));
        }
      }
    },
    onSent: () => done("The new prices apply from the next image on."),
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title="Price per image"
      description="A size without a price can be used by package only. A quality without a price is not sent to the provider."
      submitLabel="Save"
    >
      <Field label="Quality" error={form.errorOf("quality")}>
        <NativeSelect
          value={quality}
          onValue={setQuality}
          options={qualities.map((value) => ({ value, label: `${value.slice(0, 1).toUpperCase()}${value.slice(1)}` }))}
        />
      </Field>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        {IMAGE_SIZES.map((size) => (
          <DollarField
            key={size}
            label={size.replace("x", " × ")}
            optional
            error={form.errorOf(size)}
            value={now(size, quality)}
            onValue={(value) => set(size, quality, value)}
          />
        ))}
      </div>
    </FormDialog>
  );
}

const CAP_FIELDS = [
  { value: "max_tokens", label: "max_tokens", hint: "Most providers use it." },
  { value: "max_completion_tokens", label: "max_completion_tokens", hint: "Newer models of some providers need it." },
] as const;

function routeOf(model: Model, route: Route | null) {
  return {
    providerId: route === null ? "" : String(route.providerId),
    upstreamModel: route?.upstreamModel ?? model.id,
    priority: String(route?.priority ?? 0),
    weight: String(route?.weight ?? 1),
    capField: route?.capField ?? ("max_tokens" as Route["capField"]),
    streamOptions: route?.streamOptions ?? true,
    allowedParams: route?.allowedParams.join(" ") ?? "",
  };
}
type TypedRoute = ReturnType<typeof routeOf>;

function wrongRoute({
  providerId,
  upstreamModel,
  priority,
  weight,
}: TypedRoute): Record<keyof TypedRoute, string | null> {
  return {
    providerId: providerId === "" ? "Choose a provider." : null,
    upstreamModel: isBlank(upstreamModel) ? "Enter the model's name at the provider." : null,
    priority: checkCount(priority, ROUTE_PRIORITY),
    weight: checkCount(weight, ROUTE_WEIGHT),
    capField: null,
    streamOptions: null,
    allowedParams: null,
  };
}

function routeFields({ upstreamModel, priority, weight, capField, streamOptions, allowedParams }: TypedRoute) {
  return {
    upstreamModel,
    priority: Number(readCount(priority)),
    weight: Number(readCount(weight)),
    capField,
    streamOptions,
    allowedParams: allowedParams.split(/[\s,]+/).filter((name) => name !== ""),
  };
}

/** Adds a route to a model, or with `route` changes that one. A route's provider cannot change. */
export function RouteDialog({ open, onClose, model, route }: Props & { route: Route | null }) {
  const saved = useSaved(onClose);
  const formKey = useIdempotencyKey();
  const form = useForm({
    first: routeOf(model, route),
    wrong: wrongRoute,
    send: async (typed) => {
      const fields = routeFields(typed);
      if (route !== null) return await ask(api.admin.routes({ id: route.id }).patch(fields));
      const added = { modelId: model.id, providerId: Number(typed.providerId), ...fields };
      return await ask(api.admin.routes.post(added, sentOnce(formKey)));
    },
    onSent: () => saved(route === null ? "The route is added." : "The route is changed."),
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={route === null ? "Add route" : `Change the route to ${route.providerName}`}
      description={`A provider that answers requests for ${model.id}.`}
      submitLabel={route === null ? "Add route" : "Save"}
    >
      <div className="grid items-start gap-4 sm:grid-cols-2">
        {route === null && <ProviderField {...form.field("providerId")} />}
        <TextField
          label="Name at the provider"
          required
          mono
          {...form.field("upstreamModel")}
          maxLength={CATALOG_NAME_CHARS_MAX}
          {...(route !== null && { className: "sm:col-span-2" })}
        />
        <CountField
          label="Priority"
          hint="The lowest number is tried first."
          required
          // A phone's numeric keyboard has no minus.
          inputMode="text"
          {...form.field("priority")}
        />
        <CountField
          label="Weight"
          hint="Its share among routes of the same priority."
          required
          {...form.field("weight")}
        />
      </div>
      <RadioList
        label="The output limit is sent as"
        value={form.values.capField}
        onValue={(capField) => form.set({ capField })}
        options={CAP_FIELDS}
      />
      <Checkbox
        label="Ask for usage in streams"
        hint="Sends stream_options. Without it, the tokens of a stream are estimated."
        checked={form.values.streamOptions}
        onValue={(streamOptions) => form.set({ streamOptions })}
      />
      <TextField
        label="More parameters"
        optional
        hint="Sent to the provider in addition to those in the API guide. Separate names by spaces, for example: documents reasoning.max_tokens. Customers are not charged for what they cost."
        mono
        {...form.field("allowedParams")}
      />
    </FormDialog>
  );
}

function ProviderField({
  error,
  ...select
}: {
  value: string;
  onValue: (providerId: string) => void;
  error: string | null;
}) {
  const providers = useQuery({
    queryKey: ["admin", "providers", "names"],
    queryFn: () => ask(api.admin.providers.get({ query: { limit: PROVIDERS_PAGE_MAX } })),
  });
  const options = (providers.data?.providers ?? []).map(({ id, name, enabled }) => ({
    value: String(id),
    label: name,
    ...(!enabled && { hint: "off" }),
  }));
  return (
    <Field label="Provider" error={error} required>
      <NativeSelect {...select} options={[{ value: "", label: "Choose…", disabled: true }, ...options]} />
    </Field>
  );
}
