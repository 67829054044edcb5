import { t } from "@lingui/core/macro";
import { Plural, Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { measuredPrice } from "../../../../commerce/measured_price.ts";
import { payableStepNano } from "../../../../platform/currencies.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { formatAmount, formatCount, formatZoneTime } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { advertised } from "../../shared/selling.tsx";
import { checkCount, readCount } from "../../shared/typed_numbers.ts";
import { CountField } from "../../ui/fields.tsx";
import { type FieldState, PageForm, useForm } from "../../ui/form.tsx";
import { Facts, Section } from "../../ui/page.tsx";
import { useTerms } from "./on_sale.tsx";
import { PackageStart } from "./package_start.tsx";

/** A made-to-measure package: the customer chooses days and requests a day, and sees how the price comes about. */

type Offer = NonNullable<NonNullable<Awaited<ReturnType<typeof api.measured.get>>["data"]>["offer"]>;

/** Positions of the slider between its ends. */
const POSITIONS = 200;

export function MeasuredSection() {
  const { data } = useQuery({ queryKey: ["measured"], queryFn: () => ask(api.measured.get()) });
  // Most sellers sell none: nothing is shown until it is known.
  if (!data?.offer) return null;
  return <MeasuredForm key={JSON.stringify(data.offer)} offer={data.offer} timeZone={data.timeZone} />;
}

function MeasuredForm({ offer, timeZone }: { offer: Offer; timeZone: string }) {
  const { lock } = useViewer();
  const refresh = useRefresh();
  const [, navigate] = useLocation();
  const [attempts, setAttempts] = useState(0);
  const formKey = useIdempotencyKey();
  const { daysMin, daysMax, dailyMin, dailyMax } = offer;
  const form = useForm({
    first: { days: String(daysMax), dailyLimit: String(dailyMin) },
    wrong: ({ days, dailyLimit }) => ({
      days: checkCount(days, { min: daysMin, max: daysMax }),
      dailyLimit: checkCount(dailyLimit, { min: dailyMin, max: dailyMax }),
    }),
    send: async (typed) => {
      setAttempts(attempts + 1);
      const price = priceOf(offer, typed);
      const size = { days: readCount(typed.days) ?? 0, dailyLimit: readCount(typed.dailyLimit) ?? 0 };
      const priceNano = String(price?.priceNano ?? 0);
      try {
        // Each attempt is a form of its own: the price may have been another one.
        return await ask(api.orders.post({ kind: "measured", ...size, priceNano }, sentOnce(`${formKey}-${attempts}`)));
      } catch (error) {
        // The seller may have changed its price.
        await refresh();
        throw error;
      }
    },
    onSent: async ({ order }) => {
      await refresh();
      navigate(`/billing/orders/${order.orderId}`);
    },
  });
  const price = priceOf(offer, form.values);
  return (
    <Section
      title={t`Made to measure`}
      description={t`Choose for how many days, and how many requests a day. All models. Unused requests expire at the end of the day.`}
    >
      <PageForm form={form} saveLabel={t`Buy this package`} isProminent lock={lock}>
        <SliderField label={t`Days`} min={daysMin} max={daysMax} {...form.field("days")} />
        <SliderField label={t`Requests a day`} min={dailyMin} max={dailyMax} {...form.field("dailyLimit")} />
        <Facts
          facts={[
            [
              t`Price`,
              <span key="price" aria-live="polite" className="tabular-nums">
                {price === null ? "–" : <Sum offer={offer} values={form.values} />}
              </span>,
            ],
            [t`Starts`, <PackageStart key="start" />],
            [t`Days begin`, t`at 00:00 ${{ zone: formatZoneTime(timeZone) }}`],
          ]}
        />
      </PageForm>
    </Section>
  );
}

type Typed = { days: string; dailyLimit: string };

/** null while a number is not within the bounds. */
function priceOf({ currency, steps, daysMin, daysMax, dailyMin, dailyMax }: Offer, typed: Typed) {
  const isRight =
    checkCount(typed.days, { min: daysMin, max: daysMax }) === null &&
    checkCount(typed.dailyLimit, { min: dailyMin, max: dailyMax }) === null;
  if (!isRight) return null;
  const size = { days: readCount(typed.days) ?? 0, dailyLimit: readCount(typed.dailyLimit) ?? 0 };
  const exact = steps.map(({ fromRequests, nano }) => ({ fromRequests, nano: BigInt(nano) }));
  return measuredPrice(exact, size, payableStepNano(currency));
}

/** "7 days × 500 requests = 3,500 requests, at $0.60 for 1,000: $2.10". */
function Sum({ offer, values }: { offer: Offer; values: Typed }) {
  const terms = useTerms();
  const size = priceOf(offer, values);
  if (size === null) return null;
  const days = readCount(values.days) ?? 0;
  const dailyLimit = readCount(values.dailyLimit) ?? 0;
  const { requests } = size;
  const perThousand = formatAmount(size.perThousandNano, offer.currency);
  const { price, note } = advertised(terms, String(size.priceNano));
  return (
    <>
      <Trans>
        <Plural value={days} one="# day" other="# days" /> ×{" "}
        <Plural value={dailyLimit} one="# request" other="# requests" /> ={" "}
        <Plural value={requests} one="# request" other="# requests" />, at {perThousand} for 1,000:{" "}
        <strong className="text-16">{price}</strong>
      </Trans>{" "}
      {note}
    </>
  );
}

/** A number with a slider below it. Both have the same value; the field takes every number, the slider has few positions. */
function SliderField({
  label,
  min,
  max,
  value,
  onValue,
  error,
}: FieldState & { label: string; min: number; max: number }) {
  const number = readCount(value);
  return (
    <div className="grid gap-2">
      <CountField
        label={label}
        hint={t`From ${{ min: formatCount(min) }} to ${{ max: formatCount(max) }}.`}
        value={value}
        onValue={onValue}
        error={error}
      />
      <input
        type="range"
        aria-label={t`${label}, slider`}
        min={min}
        max={max}
        step={Math.max(1, Math.floor((max - min) / POSITIONS))}
        value={number === null || Number.isNaN(number) ? min : number}
        onChange={(event) => onValue(event.currentTarget.value)}
        className="h-(--control) w-full accent-(--accent)"
      />
    </div>
  );
}
