import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { Lock, Search } from "lucide-react";
import type { ReactNode } from "react";
import { useLocation } from "wouter";
import { i18n } from "#language";
import { MODALITIES, MODALITY_NAMES } from "../../../../catalog/modalities.ts";
import { MODEL_ID_CHARS_MAX } from "../../../../limits.ts";
import { ApiError, api, ask } from "../../api.ts";
import { formatCompact, formatPicoUsd } from "../../format.ts";
import { oneOf } from "../../shared/url_values.ts";
import { Button, ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { Checkbox } from "../../ui/choices.tsx";
import { NativeSelect } from "../../ui/fields.tsx";
import { FilterBar, SearchInput, useUrlState } from "../../ui/filter_bar.tsx";
import { Hint } from "../../ui/hint.tsx";
import { inPlace } from "../../ui/in_place.tsx";
import { Section } from "../../ui/page.tsx";
import { Scrolling } from "../../ui/scrolling.tsx";
import { Badge, Empty, Loaded } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { bySize, PART_NAMES } from "./price_parts.ts";

/** Models and their prices: to search, to sort, and to compare a few. The URL has search, order and choice. */

/** Shown for a model without a price: the balance cannot pay for it. */
const PACKAGE_ONLY = t`Package only`;
/** The most models that fit side by side. */
const COMPARED_MAX = 6;

export type Model = NonNullable<Awaited<ReturnType<(typeof api)["model-prices"]["get"]>>["data"]>["models"][number];

const KINDS = [
  { value: "", label: t`All kinds` },
  ...MODALITY_NAMES.map((value) => ({ value, label: i18n._(MODALITIES[value].label) })),
];
const SORTS = [
  { value: "name", label: t`By name` },
  { value: "input", label: t`Cheapest input` },
  { value: "output", label: t`Cheapest output` },
  { value: "context", label: t`Longest context` },
  { value: "newest", label: t`Newest` },
] as const;
type Sort = (typeof SORTS)[number]["value"];

export function ModelPrices() {
  const models = useQuery({ queryKey: ["model-prices"], queryFn: () => ask(api["model-prices"].get()) });
  const [url, setUrl] = useUrlState({ q: "", kind: "", sort: "name", compare: "" });
  if (models.data === undefined && needsSession(models.error)) return <SignInFirst />;
  const sort = oneOf(SORTS, url.sort, "name");
  const kind = oneOf(KINDS, url.kind, "");
  const chosen = url.compare === "" ? [] : url.compare.split(",");
  const choose = (ids: readonly string[]) => setUrl({ compare: ids.join(",") });
  return (
    <Loaded query={models}>
      {({ models: all }) => {
        const rows = all.filter((model) => isWanted(model, url.q, kind)).toSorted(ORDERS[sort]);
        const compared = all.filter(({ id }) => chosen.includes(id));
        return (
          <>
            <FilterBar
              isFiltered={url.q !== "" || kind !== ""}
              onClear={() => setUrl({ q: "", kind: "" })}
              aside={
                <NativeSelect
                  label={t({ message: "Order", context: "how a list is sorted" })}
                  value={sort}
                  onValue={(next) => setUrl({ sort: next })}
                  options={SORTS}
                />
              }
            >
              <SearchInput
                label={t`Search by name`}
                placeholder={t`Name of a model`}
                value={url.q}
                onValue={(typed) => setUrl({ q: typed })}
                maxLength={MODEL_ID_CHARS_MAX}
              />
              <NativeSelect label={t`Kind`} value={kind} onValue={(next) => setUrl({ kind: next })} options={KINDS} />
            </FilterBar>
            {compared.length > 0 && <Comparison models={compared} onClear={() => choose([])} />}
            <Section flush>
              <ModelsTable rows={rows} isAny={all.length > 0} chosen={chosen} onChoose={choose} />
            </Section>
          </>
        );
      }}
    </Loaded>
  );
}

export function needsSession(error: unknown): boolean {
  return error instanceof ApiError && error.code === "session_required";
}

export function SignInFirst() {
  return (
    <Section>
      <Empty
        icon={Lock}
        action={
          <ButtonLink href="/sign-in?next=/models" variant="primary">
            {t`Sign in`}
          </ButtonLink>
        }
      >
        {t`Sign in to see the models and what they cost you.`}
      </Empty>
    </Section>
  );
}

function isWanted({ id, name, modality }: Model, q: string, kind: string): boolean {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${id} ${name}`.toLowerCase();
  return (kind === "" || modality === kind) && words.every((word) => text.includes(word));
}

const numberOf = (picoUsd: string | undefined) => (picoUsd === undefined ? null : Number(picoUsd));

/** Models without the value come last. */
const by = (worth: (model: Model) => number | null) => (a: Model, b: Model) =>
  (worth(a) ?? Number.POSITIVE_INFINITY) - (worth(b) ?? Number.POSITIVE_INFINITY) || a.id.localeCompare(b.id);

const ORDERS: Record<Sort, (a: Model, b: Model) => number> = {
  name: (a, b) => a.id.localeCompare(b.id),
  input: by(({ prices }) => numberOf(prices?.tiers[0]?.inputPicoUsd)),
  output: by(({ prices }) => numberOf(prices?.tiers[0]?.outputPicoUsd)),
  context: by(({ contextLength }) => (contextLength === null ? null : -contextLength)),
  newest: by(({ createdAt }) => -Date.parse(createdAt)),
};

function ModelsTable({
  rows,
  isAny,
  chosen,
  onChoose,
}: {
  rows: readonly Model[];
  /** Whether there is a model to find. */
  isAny: boolean;
  chosen: readonly string[];
  onChoose: (ids: readonly string[]) => void;
}) {
  const columns: Column<Model>[] = [
    { head: t`Model`, cell: (model) => <ModelName model={model} /> },
    { head: t`Context`, align: "right", cell: ({ contextLength }) => contextText(contextLength) },
    { head: t`Input`, align: "right", cell: (model) => rateOf(model, "inputPicoUsd") },
    {
      head: t`Cached input`,
      align: "right",
      hideBelow: "lg",
      cell: (model) => rateOf(model, "cachedInputPicoUsd"),
    },
    { head: t`Output`, align: "right", cell: (model) => rateOf(model, "outputPicoUsd") },
    {
      head: t`Per image`,
      align: "right",
      className: "whitespace-nowrap",
      cell: ({ imagePrices }) => imagesText(imagePrices),
    },
    {
      head: t({ message: "Compare", context: "column: choose models to compare" }),
      className: "sm:w-28",
      cell: ({ id }) => (
        <Checkbox
          label={<span className="sr-only">{t`Compare ${id}`}</span>}
          checked={chosen.includes(id)}
          disabled={!chosen.includes(id) && chosen.length >= COMPARED_MAX}
          onValue={(isOn) => onChoose(isOn ? [...chosen, id] : chosen.filter((each) => each !== id))}
        />
      ),
    },
  ];
  return (
    <>
      <p className="border-b border-line px-4 py-2 text-13 text-ink-3 sm:px-6">
        {plural({ count: rows.length }, { one: "# model.", other: "# models." })}{" "}
        {t`In US dollars, per million tokens or per image.`}
      </p>
      <DataTable
        caption={t`Models and their prices`}
        rows={rows}
        rowKey={({ id }) => id}
        columns={columns}
        empty={<Empty icon={Search}>{isAny ? t`No model matches.` : t`No models are sold here yet.`}</Empty>}
      />
    </>
  );
}

function ModelName({ model: { id, name, modality, status } }: { model: Model }) {
  const [path] = useLocation();
  return (
    <span className="grid min-w-0 gap-0.5 py-1">
      <span className="flex flex-wrap items-center gap-2 font-medium wrap-anywhere">
        <TextLink href={`${path}?model=${encodeURIComponent(id)}`}>{name}</TextLink>
        {status === "preview" && <Badge>{t`Preview`}</Badge>}
      </span>
      <span className="font-normal text-ink-2">
        {name !== id && <code className="font-mono text-12">{id}</code>}
        {name !== id && ", "}
        {i18n._(MODALITIES[modality].label)}
      </span>
    </span>
  );
}

/** null for a part that the model is not charged by. */
function rateOf(model: Model, part: "inputPicoUsd" | "cachedInputPicoUsd" | "outputPicoUsd"): ReactNode {
  const tier = model.prices?.tiers[0];
  if (tier === undefined) {
    const isSoldByImage = model.imagePrices.length > 0;
    if (isSoldByImage || part !== "inputPicoUsd") return null;
    return <span className="whitespace-nowrap text-ink-3">{PACKAGE_ONLY}</span>;
  }
  if (MODALITIES[model.modality].isInputOnly && part !== "inputPicoUsd") return null;
  const price = formatPicoUsd(tier[part]);
  const hasTiers = (model.prices?.tiers.length ?? 0) > 1;
  return (
    <Hint says={hasTiers ? t`More for long prompts. Choose Compare to see all prices.` : null}>
      {hasTiers ? (
        <Trans>
          {price}
          <span aria-hidden>+</span>
          <span className="sr-only"> and more for long prompts</span>
        </Trans>
      ) : (
        price
      )}
    </Hint>
  );
}

function contextText(tokens: number | null): string {
  return tokens === null ? "" : formatCompact(tokens);
}

/** The cheapest image, "from" if there are dearer ones. */
function imagesText(prices: Model["imagePrices"]): string {
  const [least, ...others] = prices.map(({ picoUsd }) => picoUsd).sort((a, b) => Number(a) - Number(b));
  if (least === undefined) return "";
  const price = formatPicoUsd(least);
  return others.some((picoUsd) => picoUsd !== least) ? t`from ${price}` : price;
}

/** Every price of a few models, side by side. */
function Comparison({ models, onClear }: { models: readonly Model[]; onClear: () => void }) {
  const rows = comparedRows(models);
  return (
    <Section
      title={t`Compared`}
      description={t`Every price of these models, per million tokens or per image.`}
      action={
        <Button size="sm" variant="quiet" onClick={onClear}>
          {t({ message: "Clear", context: "verb" })}
        </Button>
      }
      flush
    >
      <Scrolling label={t`Compared models`} className="overflow-x-auto">
        <table className="w-full text-13 [&_td]:border-t [&_td]:border-line [&_td]:px-4 [&_td]:py-2 [&_th]:px-4 [&_th]:py-2 [&_th]:text-start sm:[&_th:first-child]:ps-6">
          <caption className="sr-only">{t`Compared models`}</caption>
          <thead>
            <tr>
              <td className="border-t-0!" />
              {models.map(({ id }) => (
                <th key={id} scope="col" className="min-w-36 font-medium wrap-anywhere">
                  {id}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(({ head, cells }) => (
              <tr key={head}>
                <th scope="row" className="min-w-36 border-t border-line font-normal text-ink-2">
                  {head}
                </th>
                {inPlace(cells, (cell) => (
                  <td className="tabular-nums">{cell ?? <span className="text-ink-3">–</span>}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolling>
    </Section>
  );
}

const FIRST_FACT = t`Input`;
type Compared = { head: string; cells: (string | null)[] };

/** A line for each fact that at least one of the models has. */
function comparedRows(models: readonly Model[]): Compared[] {
  const rows: Compared[] = [
    { head: t`Kind`, cells: models.map(({ modality }) => i18n._(MODALITIES[modality].label)) },
    { head: t`Context, tokens`, cells: models.map(({ contextLength }) => contextText(contextLength) || null) },
  ];
  const facts = models.map(factsOf);
  // Those that are paid by tokens first: their prices stand together.
  const byTokens = facts.toSorted((a, b) => Number(b.has(FIRST_FACT)) - Number(a.has(FIRST_FACT)));
  const heads = [...new Set(byTokens.flatMap((each) => [...each.keys()]))];
  for (const head of heads) rows.push({ head, cells: facts.map((each) => each.get(head) ?? null) });
  return rows;
}

/** The prices of a model, by what they are for. */
export function factsOf({ prices, imagePrices, modality }: Model): Map<string, string> {
  const facts = new Map<string, string>();
  for (const tier of prices?.tiers ?? []) {
    const { aboveInputTokens } = tier;
    const ofTier = (part: string) =>
      aboveInputTokens > 0 ? t`${part}, prompts above ${{ tokens: formatCompact(aboveInputTokens) }}` : part;
    facts.set(ofTier(FIRST_FACT), formatPicoUsd(tier.inputPicoUsd));
    if (!MODALITIES[modality].isInputOnly) {
      facts.set(ofTier(t`Cached input`), formatPicoUsd(tier.cachedInputPicoUsd));
      facts.set(ofTier(t`Output`), formatPicoUsd(tier.outputPicoUsd));
    }
    for (const { part, picoUsd } of tier.further) facts.set(ofTier(PART_NAMES[part]), formatPicoUsd(picoUsd));
  }
  if (prices !== null && prices.requestPicoUsd !== "0")
    facts.set(t`Each request, in addition`, formatPicoUsd(prices.requestPicoUsd));
  for (const { size, picoUsd } of imagePrices.toSorted((a, b) => bySize(a.size, b.size)))
    facts.set(t`Image ${size}`, formatPicoUsd(picoUsd));
  if (facts.size === 0) facts.set(FIRST_FACT, PACKAGE_ONLY);
  return facts;
}
