import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { MARKUP_PERCENT } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { formatPicoUsd } from "../../format.ts";
import { useOpened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { wrongPercent } from "../../shared/typed_numbers.ts";
import { Button } from "../../ui/buttons.tsx";
import { PercentField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { Facts, Page, Section } from "../../ui/page.tsx";
import { Empty, Loaded, Skeleton } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { bySize } from "../models/price_parts.ts";
import { formatMarkup, readMarkup, typedMarkup } from "./markup_text.ts";

/**
 * A reseller's markups on balance prices, for every model and for single ones, with the prices that its customers pay.
 */

const BASIS_POINTS = 10_000;
/** Pico-USD in a basis point of a micro-USD. */
const PICO_PER_BASIS_POINT = 100n;

type Markups = NonNullable<Awaited<ReturnType<typeof api.markup.get>>["data"]>;
type Model = Markups["models"][number];
type Price = Model["prices"][number];

/** The other parts are sizes of images. */
const PARTS: Readonly<Record<string, string>> = {
  input: t({ message: "input", context: "tokens" }),
  output: t({ message: "output", context: "tokens" }),
};

function partText({ part }: Price): string {
  return PARTS[part] ?? part;
}

export function MarkupPage() {
  const markups = useQuery({ queryKey: ["markup"], queryFn: () => ask(api.markup.get()) });
  return (
    <Page
      title={t`Markup`}
      lead={t`What you add to the prices of requests that your customers’ balances pay. Once a day it is credited to your balance. Packages are not affected.`}
    >
      <Loaded query={markups} skeleton={<Skeleton className="h-96 rounded-lg" />}>
        {(data) => <MarkupBody data={data} />}
      </Loaded>
    </Page>
  );
}

function MarkupBody({ data }: { data: Markups }) {
  const { lock } = useViewer();
  const dialog = useOpened<Model | "every">();
  const change = (what: Model | "every") => (
    <Button
      size="sm"
      {...lock}
      aria-label={
        what === "every" ? t`Change the markup on every model` : t`Change the markup on ${{ model: what.name }}`
      }
      onClick={() => dialog.open(what)}
    >
      <Trans>Change</Trans>
    </Button>
  );
  return (
    <>
      <Section
        title={t`Every model`}
        description={t`Applies to each model without a markup of its own. A change applies to requests that arrive after it.`}
        action={change("every")}
      >
        <p className="text-20 font-semibold tabular-nums">{formatMarkup(data.basisPoints)}</p>
      </Section>
      <Section title={t`Models`} description={t`Prices per million tokens, or per image.`} flush>
        <DataTable
          caption={t`Models with their markup, your cost and the retail price`}
          rows={data.models}
          rowKey={({ modelId }) => modelId}
          columns={columnsFor(data.basisPoints)}
          actions={change}
          empty={
            <Empty>
              <Trans>No model has a price yet. The operator sets prices.</Trans>
            </Empty>
          }
        />
      </Section>
      {dialog.what !== null && (
        <MarkupDialog
          key={dialog.times}
          open={dialog.isOpen}
          onClose={dialog.close}
          data={data}
          model={dialog.what === "every" ? null : dialog.what}
        />
      )}
    </>
  );
}

function columnsFor(everyModel: number): readonly Column<Model>[] {
  return [
    { head: t`Model`, cell: ({ name, modelId }) => <ModelName name={name} modelId={modelId} /> },
    {
      head: t`Markup`,
      align: "right",
      cell: ({ own }) => (
        <span className="grid">
          {formatMarkup(own ?? everyModel)}
          {own !== null && (
            <span className="text-12 text-ink-3">
              <Trans>of its own</Trans>
            </span>
          )}
        </span>
      ),
    },
    { head: t`Your cost`, align: "right", cell: ({ prices }) => <Prices prices={prices} basisPoints={0} /> },
    {
      head: t`Customers pay`,
      align: "right",
      cell: ({ prices, own }) => <Prices prices={prices} basisPoints={own ?? everyModel} />,
    },
  ];
}

function ModelName({ name, modelId }: { name: string; modelId: string }) {
  return (
    <TwoLines below={name === modelId ? null : modelId} isMono>
      {name}
    </TwoLines>
  );
}

/** One line a price: "$0.15 input". In one element, so that a card on a phone keeps them together. */
function Prices({ prices, basisPoints }: { prices: readonly Price[]; basisPoints: number }) {
  return (
    <div className="tabular-nums">
      {prices
        .toSorted((a, b) => bySize(a.part, b.part))
        .map((price) => (
          <div key={price.part}>
            {retailText(price, basisPoints)} <span className="text-12 text-ink-3">{partText(price)}</span>
          </div>
        ))}
    </div>
  );
}

function retailText({ microUsd }: Price, basisPoints: number): string {
  return formatPicoUsd(BigInt(microUsd) * PICO_PER_BASIS_POINT * BigInt(BASIS_POINTS + basisPoints));
}

/** The markup on one model, or (null) on every model. The page keeps a markup in percent; the server takes basis points. */
function MarkupDialog({ open, onClose, data, model }: DialogState & { data: Markups; model: Model | null }) {
  const refresh = useRefresh();
  const isOptional = model !== null;
  const now = model === null ? data.basisPoints : model.own;
  const wrong = (typed: string) => (isOptional && isBlank(typed) ? null : wrongPercent(typed, MARKUP_PERCENT));
  const form = useForm({
    first: { basisPoints: now === null ? "" : typedMarkup(now) },
    wrong: (typed) => ({ basisPoints: wrong(typed.basisPoints) }),
    send: ({ basisPoints: typed }) =>
      ask(api.markup.put({ modelId: model?.modelId ?? null, basisPoints: isBlank(typed) ? null : readMarkup(typed) })),
    onSent: async () => {
      await refresh();
      toast.done(t`The markup is saved.`);
      onClose();
    },
  });
  const { basisPoints: typed } = form.values;
  const basisPoints = wrong(typed) !== null ? null : isBlank(typed) ? data.basisPoints : readMarkup(typed);
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={model === null ? t`Markup on every model` : t`Markup on ${{ model: model.name }}`}
      description={t`Customers see the prices that they pay, not that there is a markup.`}
      size="sm"
      submitLabel={t`Save markup`}
    >
      <PercentField
        label={t`Markup`}
        hint={
          isOptional
            ? t`Empty: as every model, ${{ markup: formatMarkup(data.basisPoints) }}.`
            : t`Never below 0%: that is your cost.`
        }
        optional={isOptional}
        required={!isOptional}
        {...form.field("basisPoints")}
      />
      {model !== null && basisPoints !== null && (
        <Facts
          facts={model.prices
            .toSorted((a, b) => bySize(a.part, b.part))
            .map((price) => [
              t`Customers pay, ${{ part: partText(price) }}`,
              t`${{ price: retailText(price, basisPoints) }} (your cost ${{ cost: retailText(price, 0) }})`,
            ])}
        />
      )}
    </FormDialog>
  );
}
