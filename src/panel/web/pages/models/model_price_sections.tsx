import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Pencil } from "lucide-react";
import { formatCount, formatMicroUsd, formatMoney, formatPrice } from "../../format.ts";
import { Button } from "../../ui/buttons.tsx";
import { Facts, Figure, Figures, Section } from "../../ui/page.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import type { Model } from "./catalog.tsx";
import { bySize, FURTHER_PARTS, PART_NAMES } from "./price_parts.ts";

/** A model's page: what its tokens and its images cost. */

type Props = { model: Model; onChange: () => void };
type Prices = NonNullable<Model["prices"]>;
type Tier = NonNullable<Prices["further"]["tiers"]>[number];

export function TokenPrices({ model, onChange }: Props) {
  const { prices, example, exampleNanoUsd } = model;
  const request = prices?.further.request === undefined ? "" : ` + ${formatMicroUsd(prices.further.request)}`;
  const total = formatMoney(exampleNanoUsd ?? 0n);
  return (
    <Section
      title={t`Price per million tokens`}
      action={
        <Button size="sm" icon={Pencil} onClick={onChange}>
          {prices ? t`Change prices` : t`Set prices`}
        </Button>
      }
    >
      {prices === null || exampleNanoUsd === null ? (
        <p className="text-14 text-ink-2">{t`No price: it is sold by package only.`}</p>
      ) : (
        <div className="grid gap-6">
          <Figures>
            <Figure label={t`Input`}>{formatMicroUsd(prices.inputMicroUsd)}</Figure>
            <Figure label={t`Cached input`} {...(prices.cachedInputMicroUsd === null && { note: t`As input` })}>
              {formatMicroUsd(prices.cachedInputMicroUsd ?? prices.inputMicroUsd)}
            </Figure>
            <Figure label={t`Output`}>{formatMicroUsd(prices.outputMicroUsd)}</Figure>
          </Figures>
          <FurtherPrices further={prices.further} />
          <p className="rounded-md bg-sunken px-4 py-3 text-13 text-ink-2 tabular-nums">
            <Trans>
              For example: {{ promptTokens: formatCount(example.promptTokens) }} tokens in ×{" "}
              {{ inputPrice: formatPrice(prices.inputMicroUsd) }} +{" "}
              {{ completionTokens: formatCount(example.completionTokens) }} out ×{" "}
              {{ outputPrice: formatPrice(prices.outputMicroUsd) }}
              {request} = <strong className="font-semibold text-ink">{total}</strong>
            </Trans>
          </p>
        </div>
      )}
    </Section>
  );
}

function FurtherPrices({ further }: { further: Prices["further"] }) {
  const { tiers = [], request } = further;
  const facts = FURTHER_PARTS.flatMap((part) => {
    const microUsd = further[part];
    return microUsd === undefined ? [] : [[PART_NAMES[part], formatMicroUsd(microUsd)] as const];
  });
  if (request !== undefined) facts.push([t`Each request`, formatMicroUsd(request)]);
  return (
    <>
      {facts.length > 0 && <Facts facts={facts} />}
      {tiers.length > 0 && (
        <DataTable
          caption={t`Prices of requests with more input tokens`}
          rows={tiers}
          rowKey={({ above_input_tokens }) => String(above_input_tokens)}
          columns={TIER_COLUMNS}
          isInset
        />
      )}
    </>
  );
}

const TIER_COLUMNS: Column<Tier>[] = [
  {
    head: t`Above`,
    cell: ({ above_input_tokens: tokens }) => plural(tokens, { one: "# input token", other: "# input tokens" }),
  },
  { head: t`Input`, align: "right", cell: ({ input }) => formatMicroUsd(input) },
  { head: t`Cached input`, align: "right", cell: ({ cached_input, input }) => formatMicroUsd(cached_input ?? input) },
  { head: t`Output`, align: "right", cell: ({ output }) => formatMicroUsd(output) },
  {
    head: t`Others`,
    cell: (tier) =>
      FURTHER_PARTS.flatMap((part) => {
        const microUsd = tier[part];
        return microUsd === undefined ? [] : [`${PART_NAMES[part]} ${formatMicroUsd(microUsd)}`];
      }).join(", ") || t`None`,
  },
];

export function ImagePrices({ model, onChange }: Props) {
  return (
    <Section
      title={t`Price per image`}
      action={
        <Button size="sm" icon={Pencil} onClick={onChange}>
          {model.imagePrices.length > 0 ? t`Change prices` : t`Set prices`}
        </Button>
      }
    >
      {model.imagePrices.length === 0 ? (
        <p className="text-14 text-ink-2">{t`No price: images are sold by package only.`}</p>
      ) : (
        <Facts
          facts={model.imagePrices
            .toSorted((a, b) => bySize(a.size, b.size))
            .map(({ size: dimensions, quality, microUsd }) => {
              const size = dimensions.replace("x", " × ");
              return [quality === "standard" ? size : t`${size}, ${quality} quality`, formatMicroUsd(microUsd)];
            })}
        />
      )}
    </Section>
  );
}
