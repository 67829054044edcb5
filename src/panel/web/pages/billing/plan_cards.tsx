import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Check } from "lucide-react";
import type { SellingTerms } from "../../../../commerce/order_amounts.ts";
import { boundsText, limitsText } from "../../copy.ts";
import { formatList, formatZoneTime } from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { advertised, toTerms } from "../../shared/selling.tsx";
import { Button } from "../../ui/buttons.tsx";
import { Hint } from "../../ui/hint.tsx";
import { inPlace } from "../../ui/in_place.tsx";
import { Section } from "../../ui/page.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";
import { type Offering, useOfferings } from "./on_sale.tsx";

/** What a customer can buy, as cards with name, price and terms. */

/** More models than this are counted, with their names on hover. */
const MODELS_NAMED_MAX = 4;

export function PlanCards({ onBuy }: { onBuy: (offering: Offering) => void }) {
  const offerings = useOfferings();
  return (
    <Loaded query={offerings} skeleton={<Skeleton className="h-64 rounded-lg" />}>
      {({ offerings: rows, terms }) =>
        rows.length > 0 && (
          <Section
            title={t`Packages on sale`}
            description={t`A package starts when it is paid. If you have another one, it starts when that has ended.`}
          >
            <ul className="grid gap-4 sm:grid-cols-2 lg:grid-cols-3">
              {rows.toSorted(byPrice).map((offering) => (
                <PlanCard key={offering.offeringId} offering={offering} terms={toTerms(terms)} onBuy={onBuy} />
              ))}
            </ul>
          </Section>
        )
      }
    </Loaded>
  );
}

function PlanCard({
  offering,
  terms,
  onBuy,
}: {
  offering: Offering;
  terms: SellingTerms;
  onBuy: (offering: Offering) => void;
}) {
  const { lock } = useViewer();
  const { name, priceNano } = offering;
  const shown = priceNano === null ? null : advertised(terms, priceNano);
  return (
    <li className="flex min-w-0 flex-col gap-4 rounded-md border border-line p-4 sm:p-5">
      <div>
        <h3 className="text-14 font-semibold wrap-anywhere">{name}</h3>
        <p className="mt-1 text-20 font-semibold tabular-nums">
          {shown === null ? (
            <span className="text-ink-2">{t`Price on request`}</span>
          ) : (
            <>
              {shown.price} <span className="text-13 font-normal text-ink-2">{forHowLong(offering)}</span>
            </>
          )}
        </p>
        {shown?.note && <p className="text-13 text-ink-2">{shown.note}</p>}
      </div>
      <PlanLines offering={offering} />
      <Button
        variant={priceNano === null ? "secondary" : "primary"}
        onClick={() => onBuy(offering)}
        className="w-full"
        {...lock}
      >
        {priceNano === null ? (
          <Trans context="button">
            Order<span className="sr-only"> {name}</span>
          </Trans>
        ) : (
          <Trans>
            Buy<span className="sr-only"> {name}</span>
          </Trans>
        )}
      </Button>
    </li>
  );
}

/** The terms of a plan, each with a tick. */
export function PlanLines({ offering }: { offering: Offering }) {
  return (
    <ul className="grid flex-1 content-start gap-2 text-13 text-ink-2">
      {inPlace(planLines(offering), (line) => (
        <li className="flex items-start gap-2">
          <Check size={14} aria-hidden className="mt-0.5 flex-none text-ok" />
          <Hint
            says={isCountOfModels(line, offering) ? offering.modelIds?.join(", ") : null}
            className="min-w-0 wrap-anywhere"
          >
            {line}
          </Hint>
        </li>
      ))}
    </ul>
  );
}

/** The cheapest first; those without a price last. */
function byPrice(a: Offering, b: Offering): number {
  if (a.priceNano === null || b.priceNano === null) return Number(a.priceNano === null) - Number(b.priceNano === null);
  const difference = BigInt(a.priceNano) - BigInt(b.priceNano);
  return difference < 0n ? -1 : difference > 0n ? 1 : a.name.localeCompare(b.name);
}

export function forHowLong({ days }: Offering): string {
  return plural(days, { one: "for one day", other: "for # days" });
}

/** The terms of an offering, one per line. */
function planLines(offering: Pick<Offering, (typeof SAID)[number]>): string[] {
  const { days, dailyLimit, totalLimit, carryover, tokenLimit, modelIds, limits, timeZone } = offering;
  const { requestBounds } = offering;
  const limited = limits === null ? "" : limitsText(limits);
  return [
    days === 1
      ? plural(dailyLimit, { one: "# request in one day", other: "# requests in one day" })
      : t`${plural(dailyLimit, { one: "# request", other: "# requests" })} a day for ${plural(days, { one: "# day", other: "# days" })}`,
    ...(totalLimit < dailyLimit * days
      ? [plural(totalLimit, { one: "At most # request in total", other: "At most # requests in total" })]
      : []),
    ...(days === 1
      ? []
      : [carryover ? t`Unused requests stay usable on later days` : t`Unused requests expire at the end of the day`]),
    ...(tokenLimit === null
      ? []
      : [plural(tokenLimit, { one: "At most # token in total", other: "At most # tokens in total" })]),
    modelsLine(modelIds),
    ...(limited === "" ? [] : [t`At most ${limited}`]),
    boundsText(requestBounds),
    t`Days begin at 00:00 ${{ zone: formatZoneTime(timeZone) }}`,
  ];
}

const SAID = [
  "days",
  "dailyLimit",
  "totalLimit",
  "carryover",
  "tokenLimit",
  "modelIds",
  "limits",
  "requestBounds",
  "timeZone",
] as const satisfies readonly (keyof Offering)[];

/** The line that counts models without naming them. */
function isCountOfModels(line: string, { modelIds }: Pick<Offering, "modelIds">): boolean {
  return modelIds !== null && modelIds.length > MODELS_NAMED_MAX && line === modelsLine(modelIds);
}

function modelsLine(modelIds: readonly string[] | null): string {
  if (modelIds === null) return t`All models`;
  if (modelIds.length > MODELS_NAMED_MAX)
    return plural({ count: modelIds.length }, { one: "# model", other: "# models" });
  return t`Only ${{ models: formatList(modelIds) }}`;
}
