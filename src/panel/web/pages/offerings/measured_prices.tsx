import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { Plus, X } from "lucide-react";
import {
  MEASURED_NANO_USD_MAX,
  MEASURED_STEPS_MAX,
  OFFERING_DAILY_REQUESTS,
  OFFERING_DAYS,
  OFFERING_TOTAL_REQUESTS,
} from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { formatCount, formatMoney, parseUsd, toUsdInput } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { checkCount, readCount, wrongAmount } from "../../shared/typed_numbers.ts";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { Checkbox } from "../../ui/choices.tsx";
import { CountField, FieldError, MoneyField } from "../../ui/fields.tsx";
import { type Form, PageForm, useForm } from "../../ui/form.tsx";
import { Section } from "../../ui/page.tsx";
import { Badge, Loaded, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";

/** A seller's prices of made-to-measure packages: whether it sells them, their bounds, and prices for 1,000 requests by volume. */

type Kind = "retail" | "wholesale";
type Prices = NonNullable<Awaited<ReturnType<(typeof api)["measured-prices"]["get"]>>["data"]>["prices"];
/** `id` tells the rows of the form apart: any but the first can be removed. */
type Step = { id: string; from: string; price: string };

const WORDS = {
  retail: {
    title: t`Made to measure`,
    description: t`Your customers choose days and requests a day on Billing, and pay by the number of requests.`,
    label: t`Customers can buy made-to-measure packages`,
  },
  wholesale: {
    title: t`Made to measure, wholesale`,
    description: t`What resellers pay you for made-to-measure packages of their customers. Without it they can sell none.`,
    label: t`Resellers can sell made-to-measure packages`,
  },
} as const;

export function MeasuredPrices({ kind }: { kind: Kind }) {
  const { role } = useViewer();
  const found = useQuery({
    queryKey: ["measured-prices", kind],
    queryFn: () => ask(api["measured-prices"].get({ query: { kind } })),
  });
  const wholesale = useQuery({
    queryKey: ["measured-prices", "wholesale"],
    queryFn: () => ask(api["measured-prices"].get({ query: { kind: "wholesale" } })),
    enabled: role === "reseller",
  });
  const terms = useQuery({ queryKey: ["selling-terms"], queryFn: () => ask(api["selling-terms"].get()) });
  const currency = kind === "retail" ? (terms.data?.currency ?? "usd") : "usd";
  return (
    <Loaded query={found} skeleton={<Skeleton className="h-60 rounded-lg" />}>
      {({ prices }) => (
        <PricesForm key={kind} kind={kind} currency={currency} saved={prices} cost={wholesale.data?.prices ?? null} />
      )}
    </Loaded>
  );
}

function typedPrices(saved: Prices) {
  return {
    isOpen: saved?.isOpen ?? false,
    daysMin: String(saved?.daysMin ?? OFFERING_DAYS.min),
    daysMax: String(saved?.daysMax ?? OFFERING_DAYS.max),
    dailyMin: String(saved?.dailyMin ?? 100),
    dailyMax: String(saved?.dailyMax ?? 10_000),
    steps: saved?.steps.map(({ fromRequests, nano }) => ({
      id: `saved ${fromRequests}`,
      from: String(fromRequests),
      price: toUsdInput(nano),
    })) ?? [{ id: "first", from: "0", price: "" }],
  };
}
type Typed = ReturnType<typeof typedPrices>;

function wrongSteps(steps: readonly Step[], currency: string): string | null {
  for (const { from, price } of steps) {
    const wrongFrom = checkCount(from, { min: 0, max: OFFERING_TOTAL_REQUESTS.max });
    if (wrongFrom !== null) return t`From: ${wrongFrom}`;
    const wrong = wrongAmount(price, { currency });
    if (wrong !== null) return wrong;
    if (currency === "usd" && BigInt(parseUsd(price) ?? 0) > MEASURED_NANO_USD_MAX)
      return t`At most ${{ price: formatMoney(MEASURED_NANO_USD_MAX) }}.`;
  }
  return null;
}

type FormProps = { kind: Kind; currency: string; saved: Prices; cost: Prices };

/** What was typed, as it is sent. */
function pricesOf({ isOpen, daysMin, daysMax, dailyMin, dailyMax, steps }: ReturnType<typeof typedPrices>) {
  return {
    isOpen,
    daysMin: readCount(daysMin) ?? 0,
    daysMax: readCount(daysMax) ?? 0,
    dailyMin: readCount(dailyMin) ?? 0,
    dailyMax: readCount(dailyMax) ?? 0,
    steps: steps.map(({ from, price }) => ({ fromRequests: readCount(from) ?? 0, nano: parseUsd(price) ?? "" })),
  };
}

function PricesForm({ kind, currency, saved, cost }: FormProps) {
  const { role, lock } = useViewer();
  const refresh = useRefresh();
  const form = useForm({
    first: typedPrices(saved),
    wrong: ({ daysMin, daysMax, dailyMin, dailyMax, steps }) => ({
      isOpen: null,
      daysMin: checkCount(daysMin, OFFERING_DAYS),
      daysMax: checkCount(daysMax, { ...OFFERING_DAYS, min: readCount(daysMin) || OFFERING_DAYS.min }),
      dailyMin: checkCount(dailyMin, OFFERING_DAILY_REQUESTS.custom),
      dailyMax: checkCount(dailyMax, {
        ...OFFERING_DAILY_REQUESTS.custom,
        min: readCount(dailyMin) || OFFERING_DAILY_REQUESTS.custom.min,
      }),
      steps: wrongSteps(steps, currency),
    }),
    send: (typed) => ask(api["measured-prices"].put(pricesOf(typed), { query: { kind } })),
    onSent: async ({ prices }) => {
      await refresh();
      form.reset(typedPrices(prices));
      toast.done(t`Prices saved. Orders that were placed keep theirs.`);
    },
  });
  const { title, description, label } = WORDS[kind];
  return (
    <Section
      title={
        <>
          {title}{" "}
          <Badge tone={saved?.isOpen ? "ok" : "neutral"}>
            {saved?.isOpen ? t({ message: "On", context: "state" }) : t({ message: "Off", context: "state" })}
          </Badge>
        </>
      }
      description={description}
    >
      <PageForm form={form} saveLabel={t`Save prices`} lock={lock}>
        {role === "reseller" && <Cost cost={cost} />}
        <Checkbox
          label={label}
          checked={form.values.isOpen}
          onValue={(isOpen) => form.set({ isOpen })}
          error={form.errorOf("isOpen")}
        />
        <div className="grid gap-4 sm:grid-cols-2">
          <CountField label={t`Days, at least`} {...form.field("daysMin")} />
          <CountField label={t`Days, at most`} {...form.field("daysMax")} />
          <CountField label={t`Requests a day, at least`} {...form.field("dailyMin")} />
          <CountField label={t`Requests a day, at most`} {...form.field("dailyMax")} />
        </div>
        <OtherCurrency saved={saved} currency={currency} />
        <Steps form={form} currency={currency} />
      </PageForm>
    </Section>
  );
}

/** The prices have no effect, because they are in another currency than the seller's. */
function OtherCurrency({ saved, currency }: Pick<FormProps, "saved" | "currency">) {
  if (!saved || saved.currency === currency) return null;
  const [old, now] = [saved.currency.toUpperCase(), currency.toUpperCase()];
  return (
    <p className="text-13 text-warn">{t`These prices are in ${old}. They are not sold until you set them in ${now}.`}</p>
  );
}

/** What the operator charges a reseller. */
function Cost({ cost }: { cost: Prices }) {
  if (!cost?.isOpen)
    return (
      <p className="text-13 text-ink-2">
        <Trans>The operator does not sell made-to-measure packages yet.</Trans>
      </p>
    );
  const { daysMax, dailyMax } = cost;
  const [daysMin, dailyMin] = [formatCount(cost.daysMin), formatCount(cost.dailyMin)];
  const prices = cost.steps
    .map(({ fromRequests, nano }) =>
      plural(fromRequests, {
        one: `${{ price: formatMoney(nano) }} from # request`,
        other: `${{ price: formatMoney(nano) }} from # requests`,
      }),
    )
    .join(", ");
  return (
    <p className="text-13 text-ink-2">
      {t`Your cost of 1,000 requests: ${prices}.`}{" "}
      {t`${daysMin} to ${plural(daysMax, { one: "# day", other: "# days" })}, ${dailyMin} to ${plural(dailyMax, { one: "# request", other: "# requests" })} a day.`}{" "}
      <Trans>It is taken from your balance when the order is fulfilled.</Trans>
    </p>
  );
}

let stepsAdded = 0;

function Steps({ form, currency }: { form: Form<Typed, keyof Typed>; currency: string }) {
  const { steps } = form.values;
  const set = (index: number, part: Partial<Step>) =>
    form.set({ steps: steps.map((step, at) => (at === index ? { ...step, ...part } : step)) });
  const error = form.errorOf("steps");
  return (
    <fieldset className="grid gap-3">
      <legend className="mb-1 text-13 font-medium">
        <Trans>Price of 1,000 requests, by the requests of the package</Trans>
      </legend>
      {steps.map((step, index) => (
        <div key={step.id} className="grid grid-cols-[minmax(0,1fr)_minmax(0,1fr)_auto] items-end gap-2">
          <CountField
            label={t`From requests`}
            value={step.from}
            onValue={(from) => set(index, { from })}
            readOnly={index === 0}
          />
          <MoneyField
            label={t`Price`}
            currency={currency}
            value={step.price}
            onValue={(price) => set(index, { price })}
          />
          <IconButton
            icon={X}
            label={t`Remove price ${{ number: index + 1 }}`}
            disabled={index === 0}
            onClick={() => form.set({ steps: steps.filter((_, at) => at !== index) })}
          />
        </div>
      ))}
      {error && <FieldError>{error}</FieldError>}
      <Button
        size="sm"
        icon={Plus}
        className="justify-self-start"
        disabled={steps.length >= MEASURED_STEPS_MAX}
        onClick={() => form.set({ steps: [...steps, { id: `added ${++stepsAdded}`, from: "", price: "" }] })}
      >
        <Trans>Add a price for more requests</Trans>
      </Button>
    </fieldset>
  );
}
