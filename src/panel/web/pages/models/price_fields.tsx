import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useState } from "react";
import { IMAGE_SIZES, MODEL_CONTEXT_TOKENS, PRICE_TIERS_MAX, PRICE_USD_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { toUsdInput } from "../../format.ts";
import { checkCount, checkUsd, readCount, readMicroUsd } from "../../shared/typed_numbers.ts";
import { Button } from "../../ui/buttons.tsx";
import { RadioList } from "../../ui/choices.tsx";
import { CollapsedField } from "../../ui/collapsed.tsx";
import { CountField, DollarField, Field, NativeSelect } from "../../ui/fields.tsx";
import { type DialogState, type Form, FormDialog, useForm } from "../../ui/form.tsx";
import { inPlace } from "../../ui/in_place.tsx";
import type { Model } from "./catalog.tsx";
import { useSaved } from "./model_dialogs.tsx";
import { FURTHER_PARTS, PART_NAMES } from "./price_parts.ts";

/** The dialogs that set a model's prices: of tokens, with tiers, and of images. */

export const PRICE = { maxUsd: PRICE_USD_MAX, decimals: 6 } as const;
/** `standard` is the price of a request that asks for no quality. */
const QUALITY_DEFAULT = "standard";
const QUALITIES = [QUALITY_DEFAULT, "low", "medium", "high", "hd"];

type Props = DialogState & { model: Model };

export const dollars = (microUsd: number | null | undefined) =>
  microUsd === null || microUsd === undefined ? "" : toUsdInput(BigInt(microUsd) * 1_000n);

const BILLING_OPTIONS = [
  { value: "priced", label: t`By package and pay-as-you-go`, hint: t`A balance pays for the tokens that were used.` },
  { value: "package", label: t`By package only`, hint: t`No balance can pay for it.` },
] as const;

/** Prices as typed, each under the server's name: `inputMicroUsd`, `further.cache_write`, `further.tiers.0.input`. */
type Typed = Readonly<Record<string, string>>;
type PricesForm = Form<Typed, string>;

const FURTHER = "further";
const tierPrefix = (index: number) => /* not a text */ `${FURTHER}.tiers.${index}`;
const tierName = (index: number, field: string) => `${tierPrefix(index)}.${field}`;
const BASE = { input: "inputMicroUsd", cached: "cachedInputMicroUsd", output: "outputMicroUsd" } as const;
type BaseNames = Readonly<Record<keyof typeof BASE, string>>;
const baseOfTier = (index: number): BaseNames => ({
  input: tierName(index, "input"),
  cached: tierName(index, "cached_input"),
  output: tierName(index, "output"),
});

function typedPrices({ prices }: Model): Typed {
  const { tiers = [], request, ...further } = prices?.further ?? {};
  const typed: Record<string, string> = {
    [BASE.input]: dollars(prices?.inputMicroUsd),
    [BASE.cached]: dollars(prices?.cachedInputMicroUsd),
    [BASE.output]: dollars(prices?.outputMicroUsd),
    "further.request": dollars(request),
  };
  for (const part of FURTHER_PARTS) typed[`${FURTHER}.${part}`] = dollars(further[part]);
  for (const [index, { above_input_tokens, ...rates }] of tiers.entries()) {
    typed[tierName(index, "above_input_tokens")] = String(above_input_tokens);
    for (const [field, microUsd] of Object.entries(rates)) typed[tierName(index, field)] = dollars(microUsd);
  }
  return typed;
}

const at = (typed: Typed, name: string) => typed[name] ?? "";

/** The error of each shown field. */
function wrongPrices(typed: Typed, tierCount: number): Record<string, string | null> {
  const optional = { ...PRICE, optional: true };
  const wrong: Record<string, string | null> = { "further.request": checkUsd(at(typed, "further.request"), optional) };
  const checkRates = (names: BaseNames, prefix: string) => {
    const isDearer = (readMicroUsd(at(typed, names.cached)) ?? 0) > (readMicroUsd(at(typed, names.input)) ?? 0);
    wrong[names.input] = checkUsd(at(typed, names.input), PRICE);
    wrong[names.cached] =
      checkUsd(at(typed, names.cached), optional) ?? (isDearer ? t`At most the input price.` : null);
    wrong[names.output] = checkUsd(at(typed, names.output), PRICE);
    for (const part of FURTHER_PARTS) wrong[`${prefix}.${part}`] = checkUsd(at(typed, `${prefix}.${part}`), optional);
  };
  checkRates(BASE, FURTHER);
  let least = MODEL_CONTEXT_TOKENS.min;
  for (let index = 0; index < tierCount; index++) {
    const name = tierName(index, "above_input_tokens");
    wrong[name] = checkCount(at(typed, name), { ...MODEL_CONTEXT_TOKENS, min: least });
    least = (readCount(at(typed, name)) ?? 0) + 1;
    checkRates(baseOfTier(index), tierPrefix(index));
  }
  return wrong;
}

function pricesToSend(typed: Typed, tierCount: number) {
  const rates = (prefix: string) =>
    Object.fromEntries(FURTHER_PARTS.map((part) => [part, readMicroUsd(at(typed, `${prefix}.${part}`))]));
  const tiers = Array.from({ length: tierCount }, (_, index) => {
    const names = baseOfTier(index);
    return {
      above_input_tokens: readCount(at(typed, tierName(index, "above_input_tokens"))),
      input: readMicroUsd(at(typed, names.input)),
      cached_input: readMicroUsd(at(typed, names.cached)),
      output: readMicroUsd(at(typed, names.output)),
      ...rates(tierPrefix(index)),
    };
  });
  return {
    inputMicroUsd: Number(readMicroUsd(at(typed, BASE.input))),
    cachedInputMicroUsd: readMicroUsd(at(typed, BASE.cached)),
    outputMicroUsd: Number(readMicroUsd(at(typed, BASE.output))),
    further: { ...rates(FURTHER), request: readMicroUsd(at(typed, "further.request")), tiers },
  };
}

export function PricesDialog({ open, onClose, model }: Props) {
  const saved = useSaved(onClose);
  const [billing, setBilling] = useState<(typeof BILLING_OPTIONS)[number]["value"]>("priced");
  const [tierCount, setTierCount] = useState(model.prices?.further.tiers?.length ?? 0);
  const isPriced = billing === "priced";
  const form = useForm({
    first: typedPrices(model),
    wrong: (typed) => (isPriced ? wrongPrices(typed, tierCount) : {}),
    send: (typed) => {
      const prices = isPriced ? pricesToSend(typed, tierCount) : null;
      return ask(api.admin.model.prices.put({ prices }, { query: { id: model.id } }));
    },
    onSent: () =>
      saved(
        isPriced
          ? t`The new prices apply from the next request on.`
          : t`${{ model: model.id }} is sold by package only.`,
      ),
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Price per million tokens`}
      description={t`What a balance pays for ${{ model: model.id }}. Requests under way keep the price they started with.`}
      size="lg"
      submitLabel={t`Save`}
    >
      <RadioList label={t`Billing`} value={billing} onValue={setBilling} options={BILLING_OPTIONS} />
      {isPriced && (
        <>
          <BaseFields form={form} names={BASE} />
          <FurtherFields form={form} prefix={FURTHER} />
          <DollarField
            label={t`Each request`}
            optional
            hint={t`Charged on top of its tokens. Images cost their own prices alone.`}
            {...fieldOf(form, "further.request")}
          />
          {inPlace(Array(tierCount).fill(null), (_, index) => (
            <TierFields form={form} index={index} />
          ))}
          <p className="flex gap-2">
            <Button size="sm" disabled={tierCount >= PRICE_TIERS_MAX} onClick={() => setTierCount(tierCount + 1)}>
              {t`Add tier`}
            </Button>
            {tierCount > 0 && (
              <Button size="sm" variant="quiet" onClick={() => setTierCount(tierCount - 1)}>
                {t`Remove last tier`}
              </Button>
            )}
          </p>
        </>
      )}
    </FormDialog>
  );
}

/** A field that was never typed in is empty. */
function fieldOf(form: PricesForm, name: string) {
  const { value, ...rest } = form.field(name);
  return { ...rest, value: value ?? "" };
}

function BaseFields({ form, names }: { form: PricesForm; names: BaseNames }) {
  return (
    <div className="grid items-start gap-4 sm:grid-cols-3">
      <DollarField label={t`Input`} required {...fieldOf(form, names.input)} />
      <DollarField label={t`Cached input`} optional hint={t`If empty, as input.`} {...fieldOf(form, names.cached)} />
      <DollarField label={t`Output`} required {...fieldOf(form, names.output)} />
    </div>
  );
}

function FurtherFields({ form, prefix }: { form: PricesForm; prefix: string }) {
  const names = FURTHER_PARTS.map((part) => ({ part, name: `${prefix}.${part}` }));
  const set = names.filter(({ name }) => at(form.values, name).trim() !== "").map(({ part }) => PART_NAMES[part]);
  return (
    <CollapsedField
      label={t`Further prices`}
      value={set.join(", ") || t`none`}
      isWrong={names.some(({ name }) => form.errorOf(name) !== null)}
    >
      <p className="pb-3 text-13 text-ink-2">
        <Trans>
          If empty, reasoning costs as output. Any other part costs the highest price of its kind, so that nothing a
          provider reports is free.
        </Trans>
      </p>
      <div className="grid items-start gap-4 sm:grid-cols-3">
        {names.map(({ part, name }) => (
          <DollarField key={part} label={PART_NAMES[part]} optional {...fieldOf(form, name)} />
        ))}
      </div>
    </CollapsedField>
  );
}

/** The prices of a tier replace all others for the whole request. */
function TierFields({ form, index }: { form: PricesForm; index: number }) {
  return (
    <fieldset className="grid gap-4 rounded-md border border-line p-4">
      <legend className="px-1 text-13">{t`Tier ${{ number: index + 1 }}`}</legend>
      <CountField
        label={t`Above`}
        hint={t`Applies to the whole request if it has more input tokens than this.`}
        required
        after={t`tokens`}
        {...fieldOf(form, tierName(index, "above_input_tokens"))}
      />
      <BaseFields form={form} names={baseOfTier(index)} />
      <FurtherFields form={form} prefix={tierPrefix(index)} />
    </fieldset>
  );
}

type Size = (typeof IMAGE_SIZES)[number];

/** Prices by size and quality: as saved, as typed, and the error of one. */
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
      quality: wrongElsewhere === undefined ? null : t`A price of ${{ quality: wrongElsewhere }} quality is not valid.`,
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
    onSent: () => done(t`The new prices apply from the next image on.`),
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Price per image`}
      description={t`A size without a price can be used by package only. A quality without a price is not sent to the provider.`}
      submitLabel={t`Save`}
    >
      <Field label={t`Quality`} error={form.errorOf("quality")}>
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
