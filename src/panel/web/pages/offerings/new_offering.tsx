import { plural, t } from "@lingui/core/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { SellingTerms } from "../../../../commerce/order_amounts.ts";
import {
  MONEY_USD_MAX,
  OFFERING_DAILY_REQUESTS,
  OFFERING_DAYS,
  OFFERING_NAME_CHARS_MAX,
  OFFERING_TOKENS,
  OFFERING_TOTAL_REQUESTS,
  REQUEST_BOUNDS,
  REQUEST_BOUNDS_DEFAULT,
  type RequestBounds,
} from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { termsText } from "../../copy.ts";
import { formatAmount, formatCount, formatMoney, formatZoneTime, parseUsd, toUsdInput } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { checkCount, checkUsd, readCount } from "../../shared/typed_numbers.ts";
import { Checkbox, CheckboxList, Segmented } from "../../ui/choices.tsx";
import { Combobox } from "../../ui/combobox.tsx";
import { CountField, DollarField, Field, MoneyField, TextField } from "../../ui/fields.tsx";
import { type DialogState, type FieldState, type Form, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { choicesError } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { AllLimitFields, checkAllLimits, readAllLimits, typedAllLimits } from "../keys/rate_limits.tsx";
import { OFFERINGS_KEY, type Offering } from "./queries.ts";
import { BelowWholesale, wrongRetailPrice } from "./retail_price.tsx";

/** The dialog that adds an offering: its terms, described in a sentence while they are typed, and its prices. */

const MODELS_PAGE_MAX = 500;

/** A new offering as typed, by the server's names. */
function draftOf(like: Offering | null, timeZone: string) {
  if (like === null) {
    return {
      name: "",
      kind: "custom" as Offering["kind"],
      days: "7",
      dailyLimit: "500",
      carryover: true,
      totalLimit: "",
      tokenLimit: "",
      modelIds: null as string[] | null,
      timeZone,
      wholesaleNanoUsd: "",
      priceNano: "",
      belowWholesale: false,
      ...typedAllLimits(null),
      ...typedBounds(REQUEST_BOUNDS_DEFAULT),
    };
  }
  const isWhole = like.totalLimit === like.dailyLimit * like.days;
  return {
    name: t`${{ name: like.name }} (new)`.slice(0, OFFERING_NAME_CHARS_MAX),
    kind: like.kind,
    days: String(like.days),
    dailyLimit: String(like.dailyLimit),
    carryover: like.carryover,
    totalLimit: isWhole ? "" : String(like.totalLimit),
    tokenLimit: like.tokenLimit === null ? "" : String(like.tokenLimit),
    modelIds: like.modelIds,
    timeZone: like.timeZone,
    wholesaleNanoUsd: toUsdInput(like.wholesaleNanoUsd),
    priceNano: like.priceNano === null ? "" : toUsdInput(like.priceNano),
    belowWholesale: false,
    ...typedAllLimits(like.limits),
    ...typedBounds(like.requestBounds),
  };
}
type Draft = ReturnType<typeof draftOf>;

/** What one request may ask for, as typed. */
function typedBounds({ choices, inputs, promptTokens, outputTokens }: RequestBounds) {
  return {
    "requestBounds.choices": String(choices),
    "requestBounds.inputs": String(inputs),
    "requestBounds.promptTokens": String(promptTokens),
    "requestBounds.outputTokens": outputTokens === null ? "" : String(outputTokens),
  };
}
type TypedBounds = ReturnType<typeof typedBounds>;

function checkBounds(typed: TypedBounds): Record<keyof TypedBounds, string | null> {
  const { choices, inputs, promptTokens, outputTokens } = REQUEST_BOUNDS;
  return {
    "requestBounds.choices": checkCount(typed["requestBounds.choices"], choices),
    "requestBounds.inputs": checkCount(typed["requestBounds.inputs"], inputs),
    "requestBounds.promptTokens": checkCount(typed["requestBounds.promptTokens"], promptTokens),
    "requestBounds.outputTokens": checkCount(typed["requestBounds.outputTokens"], { ...outputTokens, optional: true }),
  };
}

function readBounds(typed: TypedBounds) {
  return {
    choices: readCount(typed["requestBounds.choices"]) ?? 0,
    inputs: readCount(typed["requestBounds.inputs"]) ?? 0,
    promptTokens: readCount(typed["requestBounds.promptTokens"]) ?? 0,
    outputTokens: readCount(typed["requestBounds.outputTokens"]),
  };
}

/** The numbers of a draft. `days` is 1 for a daily offering; null or NaN stands for a number that cannot be read. */
function readDraft(draft: Draft) {
  const days = draft.kind === "daily" ? 1 : readCount(draft.days);
  const dailyLimit = readCount(draft.dailyLimit);
  const [totalLimit, tokenLimit] = [readCount(draft.totalLimit), readCount(draft.tokenLimit)];
  return { days, dailyLimit, totalLimit, tokenLimit, carryover: draft.carryover && days !== 1 };
}

function checkWholesale({ wholesaleNanoUsd }: Draft): string | null {
  return checkUsd(wholesaleNanoUsd, { maxUsd: MONEY_USD_MAX, decimals: 9 });
}

/** In nano-USD; null while it cannot be read. */
function readWholesale(draft: Draft): string | null {
  return checkWholesale(draft) === null ? parseUsd(draft.wholesaleNanoUsd) : null;
}

function wrongIn(draft: Draft, terms: SellingTerms): Record<keyof Draft, string | null> {
  return {
    name: isBlank(draft.name) ? t`Enter the name that customers see.` : null,
    kind: null,
    days: draft.kind === "daily" ? null : checkCount(draft.days, OFFERING_DAYS),
    dailyLimit: checkCount(draft.dailyLimit, OFFERING_DAILY_REQUESTS[draft.kind]),
    carryover: null,
    totalLimit: checkCount(draft.totalLimit, { ...OFFERING_TOTAL_REQUESTS, optional: true }),
    tokenLimit: checkCount(draft.tokenLimit, { ...OFFERING_TOKENS, optional: true }),
    modelIds: draft.modelIds?.length === 0 ? t`Choose a model, or all of them.` : null,
    timeZone: null,
    wholesaleNanoUsd: checkWholesale(draft),
    ...wrongRetailPrice(draft, { terms, wholesaleNanoUsd: readWholesale(draft), optional: true }),
    ...checkAllLimits(draft),
    ...checkBounds(draft),
  };
}

function bodyOf(draft: Draft) {
  const { days, dailyLimit, totalLimit, tokenLimit, carryover } = readDraft(draft);
  return {
    name: draft.name.trim(),
    kind: draft.kind,
    days: days ?? 1,
    dailyLimit: dailyLimit ?? 0,
    ...(totalLimit !== null && { totalLimit }),
    carryover,
    tokenLimit,
    limits: readAllLimits(draft),
    requestBounds: readBounds(draft),
    modelIds: draft.modelIds,
    timeZone: draft.timeZone,
    wholesaleNanoUsd: parseUsd(draft.wholesaleNanoUsd) ?? "",
    priceNano: isBlank(draft.priceNano) ? null : parseUsd(draft.priceNano),
    belowWholesale: draft.belowWholesale,
  };
}

const KINDS = [
  { value: "daily", label: t`One day` },
  { value: "custom", label: plural({ days: OFFERING_DAYS.max }, { one: "Up to # day", other: "Up to # days" }) },
] as const;

/** Adds an offering; `like` is the offering that it is copied from. */
export function NewOffering({
  open,
  onClose,
  like,
  timeZone,
  terms,
}: DialogState & {
  /** On which the operator sells to its own customers. */
  terms: SellingTerms;
  like: Offering | null;
  timeZone: string;
}) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  const form = useForm({
    first: draftOf(like, timeZone),
    wrong: (draft) => wrongIn(draft, terms),
    send: async (draft) => {
      const added = await ask(api.admin.offerings.post(bodyOf(draft), sentOnce(formKey)));
      await client.invalidateQueries({ queryKey: OFFERINGS_KEY });
      return added;
    },
    onSent: ({ name }) => {
      toast.done(t`${name} is on sale.`);
      onClose();
    },
  });
  const { error: zoneError, ...zone } = form.field("timeZone");
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`New offering`}
      size="lg"
      submitLabel={t`Put on sale`}
    >
      <div className="grid gap-4 [&_input]:scroll-mt-40">
        <Sentence draft={form.values} terms={terms} />
        <TextField
          label={t`Name`}
          hint={t`Customers see it.`}
          required
          {...form.field("name")}
          maxLength={OFFERING_NAME_CHARS_MAX}
        />
        <PriceFields form={form} terms={terms} />
        <DayFields form={form} />
        <TotalFields form={form} />
        <BoundFields form={form} />
        <div className="grid gap-4 border-t border-line pt-4">
          <AllLimitFields form={form} />
        </div>
        <Field
          label={t`Time zone`}
          hint={t`Days begin at its midnight.`}
          error={zoneError}
          className="sm:max-w-[calc(50%-0.5rem)]"
        >
          <Combobox {...zone} options={zonesWith(timeZone)} />
        </Field>
        <ModelsField {...form.field("modelIds")} />
      </div>
    </FormDialog>
  );
}

type OfferingForm = Form<Draft, keyof Draft>;

/** What a reseller pays, and what the operator's own customers pay. Each reseller sets the price of its customers on its page Prices. */
function PriceFields({ form, terms }: { form: OfferingForm; terms: SellingTerms }) {
  return (
    <>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <DollarField
          label={t`Wholesale price`}
          hint={t`What a reseller pays for one.`}
          required
          {...form.field("wholesaleNanoUsd")}
        />
        <MoneyField
          label={t`Retail price`}
          currency={terms.currency}
          optional
          hint={retailHint(terms)}
          {...form.field("priceNano")}
        />
      </div>
      <BelowWholesale form={form} terms={terms} wholesaleNanoUsd={readWholesale(form.values)} />
    </>
  );
}

function retailHint({ taxCountry, pricesWithTax }: SellingTerms): string {
  if (taxCountry === null) return t`What your own customers pay. If empty, on request.`;
  return pricesWithTax
    ? t`What your own customers pay, with tax. If empty, on request.`
    : t`What your own customers pay, without tax. If empty, on request.`;
}

/** The offering's days, daily quota and carryover. */
function DayFields({ form }: { form: OfferingForm }) {
  const { kind, carryover } = form.values;
  const daily = OFFERING_DAILY_REQUESTS[kind];
  return (
    <>
      <Segmented
        label={t`How long`}
        value={kind}
        onValue={(next) => form.set({ kind: next })}
        options={KINDS}
        className="justify-self-start"
      />
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <CountField
          label={t`Requests a day`}
          hint={t`${{ min: formatCount(daily.min) }} to ${{ max: formatCount(daily.max) }}`}
          required
          {...form.field("dailyLimit")}
        />
        {kind === "custom" && (
          <CountField
            label={t`Days`}
            hint={t`${{ min: formatCount(OFFERING_DAYS.min) }} to ${{ max: formatCount(OFFERING_DAYS.max) }}`}
            required
            {...form.field("days")}
          />
        )}
      </div>
      {kind === "custom" && (
        <Checkbox
          label={t`Carryover`}
          hint={t`Requests that are not used on one day stay usable on the next days.`}
          checked={carryover}
          onValue={(isOn) => form.set({ carryover: isOn })}
        />
      )}
    </>
  );
}

function TotalFields({ form }: { form: OfferingForm }) {
  return (
    <div className="grid items-start gap-4 border-t border-line pt-4 sm:grid-cols-2">
      <CountField
        label={t`Requests in total`}
        optional
        hint={t`If empty, the requests of all days.`}
        {...form.field("totalLimit")}
        placeholder={allOf(form.values)}
      />
      <CountField
        label={t`Tokens in total`}
        optional
        hint={t`If empty, no token limit.`}
        {...form.field("tokenLimit")}
      />
    </div>
  );
}

/** One request is one unit, however large it is. */
function BoundFields({ form }: { form: OfferingForm }) {
  return (
    <div className="grid items-start gap-4 border-t border-line pt-4 sm:grid-cols-2">
      <CountField label={t`Choices in one request`} hint={t`The field n.`} {...form.field("requestBounds.choices")} />
      <CountField label={t`Inputs in one request`} hint={t`For embeddings.`} {...form.field("requestBounds.inputs")} />
      <CountField
        label={t`Prompt tokens in one request`}
        hint={t`Each byte of text counts as one.`}
        {...form.field("requestBounds.promptTokens")}
      />
      <CountField
        label={t`Output tokens in one request`}
        optional
        hint={t`If empty, as many as the model gives.`}
        {...form.field("requestBounds.outputTokens")}
      />
    </div>
  );
}

function ModelsField(field: FieldState<string[] | null>) {
  const models = useQuery({
    queryKey: [...ADMIN_KEY, "models", "names"],
    queryFn: () => ask(api.admin.models.get({ query: { limit: MODELS_PAGE_MAX } })),
  });
  return (
    <CheckboxList
      label={t`Models`}
      allLabel={t`All models, new ones too`}
      {...field}
      error={field.error ?? choicesError(models)}
      options={(models.data?.models ?? []).map(({ id, enabled }) => ({
        value: id,
        label: id,
        ...(!enabled && { hint: t`Off now` }),
      }))}
    />
  );
}

/** The requests of all days together; empty while the numbers cannot be read. */
function allOf(draft: Draft): string {
  const { days, dailyLimit } = readDraft(draft);
  return days && dailyLimit ? formatCount(days * dailyLimit) : "";
}

/** The offering in words, updated while it is typed; "…" while a number cannot be read. */
function Sentence({ draft, terms }: { draft: Draft; terms: SellingTerms }) {
  const { days, dailyLimit, totalLimit, tokenLimit, carryover } = readDraft(draft);
  const wrong = wrongIn(draft, terms);
  const isReadable = !wrong.days && !wrong.dailyLimit && !wrong.totalLimit && !wrong.tokenLimit;
  const wholesale = readWholesale(draft);
  const typed = wrong.priceNano === null ? parseUsd(draft.priceNano) : null;
  const retail = typed === null ? null : formatAmount(typed, terms.currency);
  const all = (days ?? 0) * (dailyLimit ?? 0);
  return (
    // Sticky, so that it is visible while the fields below are filled in.
    <div className="z-10 -mx-1 -mt-6 bg-raised px-1 pt-6 sm:sticky sm:-top-6">
      <output
        aria-label={t`The offering in words`}
        className="block min-h-20 rounded-md bg-sunken p-4 text-14 text-ink-2"
      >
        <span className="mb-1 block text-16 font-semibold text-ink">
          {isReadable
            ? termsText({
                days: days ?? 1,
                dailyLimit: dailyLimit ?? 0,
                totalLimit: totalLimit ?? all,
                carryover,
                tokenLimit,
                modelIds: draft.modelIds,
              })
            : "…"}
        </span>
        {isReadable && sentences(draft, { days, all, totalLimit, carryover, wholesale, retail }).join(" ")}
      </output>
    </div>
  );
}

function sentences(
  draft: Draft,
  {
    days,
    all,
    totalLimit,
    carryover,
    wholesale,
    retail,
  }: {
    days: number | null;
    all: number;
    totalLimit: number | null;
    carryover: boolean;
    wholesale: string | null;
    retail: string | null;
  },
): string[] {
  const most = Math.min(all, totalLimit ?? all);
  return [
    plural(most, { one: "At most # request in total.", other: "At most # requests in total." }),
    ...(totalLimit !== null && totalLimit > all
      ? [t`More than ${{ count: formatCount(all) }} can never be used.`]
      : []),
    ...(days === 1
      ? []
      : [carryover ? t`Unused requests stay usable.` : t`Unused requests are lost at the end of the day.`]),
    t`Days begin at 00:00 ${{ zone: formatZoneTime(draft.timeZone) }}.`,
    ...(wholesale === null ? [] : [t`A reseller pays ${{ price: formatMoney(wholesale) }} for it.`]),
    ...(retail === null ? [] : [t`Your own customers pay ${retail}.`]),
  ];
}

/** Every zone that the browser knows, and the one of the service. */
function zonesWith(zone: string) {
  const zones = new Set(["UTC", zone, ...Intl.supportedValuesOf("timeZone")]);
  return [...zones].map((value) => ({ value, label: value.replaceAll("_", " ") }));
}
