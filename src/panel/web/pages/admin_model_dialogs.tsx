import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, ask, sentOnce, useIdempotencyKey } from "../api.ts";
import { formatCount, toUsdInput } from "../format.ts";
import { Button } from "../ui/buttons.tsx";
import { Checkbox, RadioList } from "../ui/choices.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Field, NativeSelect, TextArea, TextInput } from "../ui/fields.tsx";
import { useForm } from "../ui/form.tsx";
import { toast } from "../ui/toast.tsx";
import { HIDES_TOKENS, hidesTokensOf, MODALITY_OPTIONS, type Model, type Route } from "./admin_catalog.tsx";
import { checkCount, checkUsd, readCount, readMicroUsd } from "./typed_numbers.ts";

/** What is changed of a model: its fields, its prices, its routes. */

/** As the server's checks. */
const NAME_CHARS_MAX = 200;
const TOKENS = { min: 1, max: 1_000_000 };
const IMAGE_TOKENS = { min: 0, max: 1_000_000 };
const CONTEXT = { min: 1, max: 100_000_000, optional: true };
const EXTRA_PERCENT_MAX = 9_900;
const PRICE = { maxUsd: 1_000, decimals: 6 } as const;
const PRIORITY = { min: -1_000, max: 1_000 };
const WEIGHT = { min: 1, max: 1_000 };
const IMAGE_SIZES = ["512x512", "1024x1024", "1024x1536", "1536x1024"] as const;
/** `standard` is the price of a request that asks for no quality. */
const QUALITY_DEFAULT = "standard";
const QUALITIES = [QUALITY_DEFAULT, "low", "medium", "high", "hd"];
const PROVIDERS_MAX = 500;
const PERMILLE = 1_000;
const PERMILLE_A_PERCENT = 10;

const STATUS_OPTIONS = [
  { value: "active", label: "Active" },
  { value: "preview", label: "Preview" },
  { value: "deprecated", label: "Deprecated" },
] as const;

const HIDES_TOKENS_OPTIONS = (["unknown", "no", "yes"] as const).map((value) => ({
  value,
  label: HIDES_TOKENS[value],
}));

type Props = { open: boolean; onClose: () => void; model: Model };

/** Every page that shows models, routes or providers asks again. */
function useSaved(onClose: () => void) {
  const client = useQueryClient();
  return async (said: string) => {
    await client.invalidateQueries({ queryKey: ["admin"] });
    onClose();
    toast.done(said);
  };
}

function Footer({ onClose, isPending, label = "Save" }: { onClose: () => void; isPending: boolean; label?: string }) {
  return (
    <>
      <Button onClick={onClose}>Cancel</Button>
      <Button type="submit" variant="primary" pending={isPending}>
        {label}
      </Button>
    </>
  );
}

export function EditModel({ open, onClose, model }: Props) {
  const saved = useSaved(onClose);
  const [name, setName] = useState(model.name);
  const [ownedBy, setOwnedBy] = useState(model.ownedBy);
  const [modality, setModality] = useState(model.modality);
  const [status, setStatus] = useState(model.status);
  const [context, setContext] = useState(model.contextLength === null ? "" : String(model.contextLength));
  const [cap, setCap] = useState(String(model.defaultCapTokens));
  const [imageTokens, setImageTokens] = useState(String(model.imageInputTokens));
  const extraBefore = String((model.marginPermille - PERMILLE) / PERMILLE_A_PERCENT);
  const [extra, setExtra] = useState(extraBefore);
  const [architecture, setArchitecture] = useState(
    model.architecture === null ? "" : JSON.stringify(model.architecture, null, 2),
  );
  const [hidesTokens, setHidesTokens] = useState(hidesTokensOf(model));
  const readArchitecture = readObject(architecture);
  const form = useForm({
    wrong: {
      name: name.trim() === "" ? "Give it a name." : null,
      ownedBy: ownedBy.trim() === "" ? "Say whose it is." : null,
      contextLength: checkCount(context, CONTEXT),
      defaultCapTokens: checkCount(cap, TOKENS),
      imageInputTokens: checkCount(imageTokens, IMAGE_TOKENS),
      marginPermille:
        readPermille(extra) === null ? `From 0 to ${formatCount(EXTRA_PERCENT_MAX)}, with one decimal.` : null,
      architecture: readArchitecture === undefined ? 'A JSON object, as in {"tokenizer": "o200k"}.' : null,
    },
    send: () =>
      ask(
        api.admin.model.patch(
          {
            name,
            ownedBy,
            modality,
            status,
            contextLength: readCount(context),
            defaultCapTokens: Number(readCount(cap)),
            imageInputTokens: Number(readCount(imageTokens)),
            ...(extra !== extraBefore && { marginPermille: PERMILLE + Number(readPermille(extra)) }),
            // So it is with what answers teach.
            ...(hidesTokens !== hidesTokensOf(model) && {
              hidesTokens: hidesTokens === "unknown" ? null : hidesTokens === "yes",
            }),
            architecture: readArchitecture ?? null,
          },
          { query: { id: model.id } },
        ),
      ),
    onSent: () => saved(`${model.id} is changed.`),
  });
  return (
    <Dialog
      open={open}
      onOpenChange={onClose}
      title="Change details"
      size="lg"
      onSubmit={form.submit}
      footer={<Footer onClose={onClose} isPending={form.isPending} />}
    >
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <Field label="Name" error={form.errorOf("name")} required>
          <TextInput value={name} onValue={setName} maxLength={NAME_CHARS_MAX} />
        </Field>
        <Field label="Owned by" hint="What GET /models says as owned_by." error={form.errorOf("ownedBy")} required>
          <TextInput value={ownedBy} onValue={setOwnedBy} maxLength={NAME_CHARS_MAX} />
        </Field>
        <Field label="Kind">
          <NativeSelect value={modality} onValue={setModality} options={MODALITY_OPTIONS} />
        </Field>
        <Field label="Status">
          <NativeSelect value={status} onValue={setStatus} options={STATUS_OPTIONS} />
        </Field>
        <Field
          label="Context"
          optional
          hint="Tokens of prompt and answer together."
          error={form.errorOf("contextLength")}
        >
          <Tokens value={context} onValue={setContext} />
        </Field>
        <Field
          label="Output without max_tokens"
          hint="What a request paid by balance holds, and gets at most, if it names no limit."
          error={form.errorOf("defaultCapTokens")}
          required
        >
          <Tokens value={cap} onValue={setCap} />
        </Field>
        <Field
          label="An image in a prompt"
          hint="Counts as this many tokens where the provider does not say."
          error={form.errorOf("imageInputTokens")}
          required
        >
          <Tokens value={imageTokens} onValue={setImageTokens} />
        </Field>
        <Field
          label="Held on top"
          hint="On top of every bound. What overruns teach is held beside it, by route."
          error={form.errorOf("marginPermille")}
          required
        >
          <TextInput inputMode="decimal" className="figures" after="%" value={extra} onValue={setExtra} />
        </Field>
        <Field
          label="Hides tokens"
          hint="If yes, a stream whose client leaves is read to its end, to learn how many tokens it used."
        >
          <NativeSelect value={hidesTokens} onValue={setHidesTokens} options={HIDES_TOKENS_OPTIONS} />
        </Field>
      </div>
      <Field
        label="Architecture"
        optional
        hint="Passed on in GET /models as it stands."
        error={form.errorOf("architecture")}
      >
        <TextArea mono rows={3} value={architecture} onValue={setArchitecture} />
      </Field>
      {form.problem}
    </Dialog>
  );
}

function Tokens(props: { value: string; onValue: (typed: string) => void }) {
  return <TextInput inputMode="numeric" className="figures" after="tokens" {...props} />;
}

/** Typed percent, "12.5", as permille; null for what is none. */
function readPermille(typed: string): number | null {
  const found = /^(\d{1,4})(?:\.(\d))?$/.exec(typed.trim());
  const permille = Number(found?.[1]) * PERMILLE_A_PERCENT + Number(found?.[2] ?? 0);
  return permille <= EXTRA_PERCENT_MAX * PERMILLE_A_PERCENT ? permille : null;
}

/** A JSON object; null for nothing, undefined for what is none. */
function readObject(typed: string): Record<string, unknown> | null | undefined {
  if (typed.trim() === "") return null;
  try {
    const value: unknown = JSON.parse(typed);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : undefined;
  } catch {
    return undefined; // The caller says what that means.
  }
}

const dollars = (microUsd: number | null | undefined) =>
  microUsd === null || microUsd === undefined ? "" : toUsdInput(BigInt(microUsd) * 1_000n);

const SOLD = [
  { value: "priced", label: "By package and by balance", hint: "A balance pays for the tokens it used." },
  { value: "package", label: "By package only", hint: "No balance can pay for it." },
] as const;

export function PricesDialog({ open, onClose, model }: Props) {
  const saved = useSaved(onClose);
  const [sold, setSold] = useState<(typeof SOLD)[number]["value"]>("priced");
  const [input, setInput] = useState(dollars(model.prices?.inputMicroUsd));
  const [cached, setCached] = useState(dollars(model.prices?.cachedInputMicroUsd));
  const [output, setOutput] = useState(dollars(model.prices?.outputMicroUsd));
  const isPriced = sold === "priced";
  const [inputMicroUsd, cachedInputMicroUsd, outputMicroUsd] = [input, cached, output].map(readMicroUsd);
  const cachedWrong = checkUsd(cached, { ...PRICE, optional: true });
  const isDearer = (cachedInputMicroUsd ?? 0) > (inputMicroUsd ?? 0);
  const form = useForm({
    wrong: {
      inputMicroUsd: isPriced ? checkUsd(input, PRICE) : null,
      cachedInputMicroUsd: isPriced ? (cachedWrong ?? (isDearer ? "At most the input price." : null)) : null,
      outputMicroUsd: isPriced ? checkUsd(output, PRICE) : null,
    },
    send: () => {
      const prices = isPriced
        ? {
            inputMicroUsd: Number(inputMicroUsd),
            cachedInputMicroUsd: cachedInputMicroUsd ?? null,
            outputMicroUsd: Number(outputMicroUsd),
          }
        : null;
      return ask(api.admin.model.prices.put({ prices }, { query: { id: model.id } }));
    },
    onSent: () =>
      saved(isPriced ? "The new prices hold from the next request on." : `${model.id} is sold by package only.`),
  });
  const field = (label: string, name: "inputMicroUsd" | "cachedInputMicroUsd" | "outputMicroUsd", typed: Typed) => (
    <Field
      label={label}
      error={form.errorOf(name)}
      {...(name === "cachedInputMicroUsd" ? { optional: true, hint: "Empty: as input." } : { required: true })}
    >
      <Dollars {...typed} />
    </Field>
  );
  return (
    <Dialog
      open={open}
      onOpenChange={onClose}
      title="Price per million tokens"
      description={`What a balance pays for ${model.id}. Requests under way keep the price they began with.`}
      onSubmit={form.submit}
      footer={<Footer onClose={onClose} isPending={form.isPending} />}
    >
      <RadioList label="How it is sold" value={sold} onValue={setSold} options={SOLD} />
      {isPriced && (
        <div className="grid items-start gap-4 sm:grid-cols-3">
          {field("Input", "inputMicroUsd", { value: input, onValue: setInput })}
          {field("Cached input", "cachedInputMicroUsd", { value: cached, onValue: setCached })}
          {field("Output", "outputMicroUsd", { value: output, onValue: setOutput })}
        </div>
      )}
      {form.problem}
    </Dialog>
  );
}

type Typed = { value: string; onValue: (typed: string) => void };

function Dollars(props: Typed) {
  return <TextInput before="$" inputMode="decimal" className="figures" {...props} />;
}

type Size = (typeof IMAGE_SIZES)[number];

export function ImagePricesDialog({ open, onClose, model }: Props) {
  const saved = useSaved(onClose);
  const [quality, setQuality] = useState(QUALITY_DEFAULT);
  const qualities = [...new Set([...QUALITIES, ...model.imagePrices.map((price) => price.quality)])];
  const [typed, setTyped] = useState<Readonly<Record<string, string>>>({});
  const before = (size: Size, of = quality) =>
    dollars(model.imagePrices.find((price) => price.size === size && price.quality === of)?.microUsd);
  const now = (size: Size, of = quality) => typed[`${size}/${of}`] ?? before(size, of);
  const wrongOf = (size: Size, of = quality) => checkUsd(now(size, of), { ...PRICE, optional: true });
  const wrongElsewhere = qualities.find(
    (other) => other !== quality && IMAGE_SIZES.some((size) => wrongOf(size, other) !== null),
  );
  const form = useForm({
    wrong: {
      quality: wrongElsewhere === undefined ? null : `A price of ${wrongElsewhere} quality is not right.`,
      "512x512": wrongOf("512x512"),
      "1024x1024": wrongOf("1024x1024"),
      "1024x1536": wrongOf("1024x1536"),
      "1536x1024": wrongOf("1536x1024"),
    },
    // One after the other: what was saved before one fails stays saved, and is sent again unharmed.
    send: async () => {
      for (const of of qualities) {
        for (const size of IMAGE_SIZES) {
          const microUsd = readMicroUsd(now(size, of));
          if (microUsd === readMicroUsd(before(size, of))) continue;
          await ask(api.admin.model["image-price"].put({ size, quality: of, microUsd }, { query: { id: model.id } }));
        }
      }
    },
    onSent: () => saved("The new prices hold from the next image on."),
  });
  return (
    <Dialog
      open={open}
      onOpenChange={onClose}
      title="Price per image"
      description="A size without a price can be paid by package only. A quality without a price is not sent to the provider."
      onSubmit={form.submit}
      footer={<Footer onClose={onClose} isPending={form.isPending} />}
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
          <Field key={size} label={size.replace("x", " × ")} optional error={form.errorOf(size)}>
            <Dollars value={now(size)} onValue={(value) => setTyped({ ...typed, [`${size}/${quality}`]: value })} />
          </Field>
        ))}
      </div>
      {form.problem}
    </Dialog>
  );
}

const CAP_FIELDS = [
  { value: "max_tokens", label: "max_tokens", hint: "What most providers read." },
  { value: "max_completion_tokens", label: "max_completion_tokens", hint: "What newer models of some providers want." },
] as const;

export function RouteDialog({ open, onClose, model, route }: Props & { route: Route | null }) {
  const saved = useSaved(onClose);
  const formKey = useIdempotencyKey();
  const [providerId, setProviderId] = useState(route === null ? "" : String(route.providerId));
  const [upstreamModel, setUpstreamModel] = useState(route?.upstreamModel ?? model.id);
  const [priority, setPriority] = useState(String(route?.priority ?? 0));
  const [weight, setWeight] = useState(String(route?.weight ?? 1));
  const [capField, setCapField] = useState<Route["capField"]>(route?.capField ?? "max_tokens");
  const [streamOptions, setStreamOptions] = useState(route?.streamOptions ?? true);
  const [allowedParams, setAllowedParams] = useState(route?.allowedParams.join(" ") ?? "");
  const providers = useQuery({
    queryKey: ["admin", "providers", "names"],
    queryFn: () => ask(api.admin.providers.get({ query: { limit: PROVIDERS_MAX } })),
    enabled: route === null,
  });
  const form = useForm({
    wrong: {
      providerId: providerId === "" ? "Choose a provider." : null,
      upstreamModel: upstreamModel.trim() === "" ? "Say what the provider calls it." : null,
      priority: checkCount(priority, PRIORITY),
      weight: checkCount(weight, WEIGHT),
      allowedParams: null,
    },
    send: async () => {
      const fields = {
        upstreamModel,
        priority: Number(readCount(priority)),
        weight: Number(readCount(weight)),
        capField,
        streamOptions,
        allowedParams: allowedParams.split(/[\s,]+/).filter((name) => name !== ""),
      };
      if (route !== null) return await ask(api.admin.routes({ id: route.id }).patch(fields));
      const added = { modelId: model.id, providerId: Number(providerId), ...fields };
      return await ask(api.admin.routes.post(added, sentOnce(formKey)));
    },
    onSent: () => saved(route === null ? "The route is added." : "The route is changed."),
  });
  const options = (providers.data?.providers ?? []).map(({ id, name, enabled }) => ({
    value: String(id),
    label: name,
    ...(!enabled && { hint: "off" }),
  }));
  return (
    <Dialog
      open={open}
      onOpenChange={onClose}
      title={route === null ? "Add route" : `Change the route to ${route.providerName}`}
      description={`Who answers for ${model.id}.`}
      onSubmit={form.submit}
      footer={<Footer onClose={onClose} isPending={form.isPending} {...(route === null && { label: "Add route" })} />}
    >
      <div className="grid items-start gap-4 sm:grid-cols-2">
        {route === null && (
          <Field label="Provider" error={form.errorOf("providerId")} required>
            <NativeSelect
              value={providerId}
              onValue={setProviderId}
              options={[{ value: "", label: "Choose…", disabled: true }, ...options]}
            />
          </Field>
        )}
        <Field
          label="Name at the provider"
          error={form.errorOf("upstreamModel")}
          required
          {...(route !== null && { className: "sm:col-span-2" })}
        >
          <TextInput mono value={upstreamModel} onValue={setUpstreamModel} maxLength={NAME_CHARS_MAX} />
        </Field>
        <Field label="Priority" hint="The lowest number is tried first." error={form.errorOf("priority")} required>
          <TextInput className="figures" value={priority} onValue={setPriority} />
        </Field>
        <Field label="Weight" hint="Its share among routes of one priority." error={form.errorOf("weight")} required>
          <TextInput inputMode="numeric" className="figures" value={weight} onValue={setWeight} />
        </Field>
      </div>
      <RadioList
        label="The limit of the answer is sent as"
        value={capField}
        onValue={setCapField}
        options={CAP_FIELDS}
      />
      <Checkbox
        label="Ask for usage in streams"
        hint="Sends stream_options. Without it, the tokens of a stream are estimated."
        checked={streamOptions}
        onValue={setStreamOptions}
      />
      <Field
        label="More parameters"
        optional
        hint="Sent on beyond the list of the API guide, as documents or reasoning.max_tokens. What they cost is not charged."
        error={form.errorOf("allowedParams")}
      >
        <TextInput mono value={allowedParams} onValue={setAllowedParams} />
      </Field>
      {form.problem}
    </Dialog>
  );
}
