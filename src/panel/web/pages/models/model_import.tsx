import { plural, t } from "@lingui/core/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { ArrowLeft } from "lucide-react";
import { useState } from "react";
import { i18n } from "#language";
import { MARKUP_PERCENT } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { formatMicroUsd, formatPrice } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { type Opened, useOpened } from "../../shared/page_hooks.ts";
import { wrongPercent } from "../../shared/typed_numbers.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { Checkbox } from "../../ui/choices.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Field, NativeSelect, PercentField } from "../../ui/fields.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { PageForm, useForm } from "../../ui/form.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { toast } from "../../ui/toast.ts";
import { MODELS_KEY, modelHref } from "./catalog.tsx";

/** Prices from a price list: choose a provider, look at what would change, choose models, confirm. */

type PriceList = NonNullable<Awaited<ReturnType<(typeof api.admin)["price-list"]["get"]>>["data"]>;
type Preview = NonNullable<Awaited<ReturnType<(typeof api.admin)["model-import"]["get"]>>["data"]>;
type Item = Preview["items"][number];
type Change = Item["changes"][number];

const FIRST_PROVIDER = "openai";
const ALSO_NEW = "1";

export function ModelImportPage() {
  const [wanted, setWanted] = useUrlState({ provider: "", markup: "0", new: "" });
  const priceList = useQuery({
    queryKey: [...MODELS_KEY, "price list"],
    queryFn: () => ask(api.admin["price-list"].get()),
  });
  return (
    <Page
      title={t`Import prices`}
      lead={
        <TextLink href="/admin/models" className="inline-flex items-center gap-1">
          <ArrowLeft size={14} aria-hidden /> {t`All models`}
        </TextLink>
      }
    >
      <Section
        description={t`Compares your models with a list of providers' prices. Nothing changes until you confirm it.`}
      >
        <Loaded query={priceList}>
          {(list) => <Choice list={list} wanted={wanted} onCompare={(changes) => setWanted(changes)} />}
        </Loaded>
      </Section>
      {wanted.provider !== "" && (
        <Comparison
          provider={wanted.provider}
          markup={wanted.markup}
          addsNew={wanted.new === ALSO_NEW}
          onAddsNew={(addsNew) => setWanted({ new: addsNew ? ALSO_NEW : "" })}
        />
      )}
    </Page>
  );
}

type Wanted = { provider: string; markup: string };

function Choice({
  list: { source, providers },
  wanted,
  onCompare,
}: {
  list: PriceList;
  wanted: Wanted;
  onCompare: (wanted: Wanted) => void;
}) {
  const form = useForm({
    first: { provider: wanted.provider || FIRST_PROVIDER, markup: wanted.markup },
    wrong: ({ markup }) => ({ provider: null, markup: wrongPercent(markup, MARKUP_PERCENT) }),
    send: async ({ provider, markup }) => onCompare({ provider, markup: markup.trim() }),
    onSent: () => {},
  });
  const { error, ...provider } = form.field("provider");
  return (
    <PageForm form={form} saveLabel={t`Compare`} isProminent>
      <div className="grid items-start gap-4 sm:grid-cols-[minmax(0,1fr)_10rem]">
        <Field
          label={t`Provider in the list`}
          hint={`${source}. ${t`Models are found by their names at providers, else by their ids.`}`}
          error={error}
        >
          <NativeSelect
            {...provider}
            options={providers.map(({ id, name, models }) => ({
              value: id,
              label: name,
              hint: plural(models, { one: "# model", other: "# models" }),
            }))}
          />
        </Field>
        <PercentField label={t`Markup`} hint={t`Added to its prices.`} required {...form.field("markup")} />
      </div>
    </PageForm>
  );
}

type ComparisonProps = Wanted & { addsNew: boolean; onAddsNew: (addsNew: boolean) => void };

function Comparison({ provider, markup, addsNew, onAddsNew }: ComparisonProps) {
  const confirming = useOpened<Item[]>();
  /** By digest: an item that has changed must be chosen again. */
  const [choices, setChoices] = useState<Readonly<Record<string, boolean>>>({});
  const comparison = useQuery({
    queryKey: [...MODELS_KEY, "import", provider, markup, addsNew],
    queryFn: () =>
      ask(api.admin["model-import"].get({ query: { provider, markup, ...(addsNew && { addsNew: "true" }) } })),
    // The shown comparison stays. The server compares again before it changes anything.
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnMount: "always",
  });
  const isChosen = ({ digest, kind }: Item) => choices[digest] ?? kind === "changed";
  const choose = (items: readonly Item[], isOn: boolean) =>
    setChoices((before) => ({ ...before, ...Object.fromEntries(items.map(({ digest }) => [digest, isOn])) }));
  return (
    <Loaded query={comparison}>
      {({ items, newModels }) => {
        const chosen = items.filter((item) => canApply(item) && isChosen(item));
        return (
          <>
            <Section
              title={t`Comparison`}
              description={summaryOf(items)}
              action={
                <Button variant="primary" disabled={chosen.length === 0} onClick={() => confirming.open(chosen)}>
                  {chosen.length === 0
                    ? t`Nothing chosen`
                    : plural({ count: chosen.length }, { one: "Apply to # model", other: "Apply to # models" })}
                </Button>
              }
            >
              <Checkbox
                label={plural(newModels, {
                  one: "Also show # model that you do not sell",
                  other: "Also show # models that you do not sell",
                })}
                hint={t`A model that is added is off until you give it a route and switch it on.`}
                checked={addsNew}
                onValue={onAddsNew}
              />
            </Section>
            {KINDS.map(({ kind, title }) => (
              <Items
                key={kind}
                title={title}
                items={items.filter((item) => item.kind === kind)}
                isChosen={isChosen}
                onChoose={choose}
              />
            ))}
            {confirming.what && (
              <Confirming
                key={confirming.times}
                wanted={{ provider, markup }}
                dialog={confirming}
                items={confirming.what}
              />
            )}
          </>
        );
      }}
    </Loaded>
  );
}

const KINDS = [
  { kind: "changed", title: t`Changes` },
  { kind: "new", title: t`New models` },
  { kind: "unmapped", title: t`Cannot be imported` },
  { kind: "unchanged", title: t`Unchanged` },
] as const;

function canApply({ kind }: Item): boolean {
  return kind === "changed" || kind === "new";
}

function summaryOf(items: readonly Item[]): string {
  if (items.length === 0) return t`You sell no model of this provider.`;
  const count = (kind: Item["kind"]) => items.filter((item) => item.kind === kind).length;
  const changed = plural({ count: count("changed") }, { one: "# changed", other: "# changed" });
  const added = plural({ count: count("new") }, { one: "# new", other: "# new" });
  const refused = plural({ count: count("unmapped") }, { one: "# cannot be imported", other: "# cannot be imported" });
  const unchanged = plural({ count: count("unchanged") }, { one: "# unchanged", other: "# unchanged" });
  return t`${changed}, ${added}, ${refused}, ${unchanged}.`;
}

type ItemsProps = {
  title: string;
  items: readonly Item[];
  isChosen: (item: Item) => boolean;
  onChoose: (items: readonly Item[], isOn: boolean) => void;
};

function Items({ title, items, isChosen, onChoose }: ItemsProps) {
  const [first] = items;
  if (first === undefined) return null;
  const isAll = items.every(isChosen);
  const columns: Column<Item>[] = [
    {
      head: t`Model`,
      className: "sm:w-72",
      cell: (item) =>
        canApply(item) ? (
          <Checkbox
            label={<ModelName item={item} />}
            checked={isChosen(item)}
            onValue={(isOn) => onChoose([item], isOn)}
          />
        ) : (
          <ModelName item={item} />
        ),
    },
    { head: first.kind === "unmapped" ? t`Why` : t`Prices`, cell: (item) => <What item={item} /> },
  ];
  return (
    <Section
      title={title}
      flush
      action={
        canApply(first) && (
          <Button size="sm" onClick={() => onChoose(items, !isAll)}>
            {isAll ? t`Choose none` : t`Choose all`}
          </Button>
        )
      }
    >
      <DataTable
        caption={title}
        rows={items}
        rowKey={({ modelId }) => modelId}
        columns={columns}
        empty={<Empty>{t`None.`}</Empty>}
      />
    </Section>
  );
}

function ModelName({ item: { modelId, listed, kind } }: { item: Item }) {
  return (
    <span className="grid min-w-0 py-1 font-normal">
      <span className="font-mono wrap-anywhere">{modelId}</span>
      {listed !== null && <span className="text-12 wrap-anywhere text-ink-2">{listed}</span>}
      {kind === "unchanged" && (
        <TextLink href={modelHref(modelId)} className="justify-self-start text-12">
          {t({ message: "Open", context: "verb" })}
        </TextLink>
      )}
    </span>
  );
}

function What({ item: { kind, changes, notes, reason } }: { item: Item }) {
  if (reason !== null) return <span className="text-ink-2">{reason}</span>;
  if (kind === "unchanged" && notes.length === 0) return <Badge tone="ok">{t`As in the list`}</Badge>;
  return (
    <ul className="flex flex-wrap gap-x-6 gap-y-1 py-1 tabular-nums">
      {changes.map((change) => (
        <li key={change.label} className="wrap-anywhere">
          <span className="text-ink-2">{i18n._(change.label)}</span>{" "}
          {change.from !== null && `${amountText(change, change.from)} → `}
          <strong className="font-semibold text-ink">{amountText(change, change.to)}</strong>
        </li>
      ))}
      {notes.map((note) => (
        <li key={note} className="w-full text-12 wrap-anywhere text-ink-3">
          {note}
        </li>
      ))}
    </ul>
  );
}

const STATUS_WORDS: ReadonlyMap<string, string> = new Map([
  ["active", t({ message: "active", context: "state of a model" })],
  ["preview", t({ message: "preview", context: "state of a model" })],
  ["deprecated", t({ message: "deprecated", context: "state of a model" })],
]);

function amountText({ unit }: Change, value: string | number | null): string {
  if (value === null) return t`none`;
  if (typeof value === "string") return STATUS_WORDS.get(value) ?? value;
  if (unit === "tokens") return plural(value, { one: "# token", other: "# tokens" });
  return unit === "per_million" ? formatPrice(value) : formatMicroUsd(value);
}

function Confirming({ wanted, dialog, items }: { wanted: Wanted; dialog: Opened<Item[]>; items: readonly Item[] }) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  const added = items.filter(({ kind }) => kind === "new").length;
  const confirmed = items.map(({ modelId, digest }) => ({ modelId, digest }));
  return (
    <Confirm
      open={dialog.isOpen}
      onOpenChange={dialog.close}
      title={plural({ count: items.length }, { one: "Apply to # model?", other: "Apply to # models?" })}
      confirmLabel={t`Apply`}
      isDanger={false}
      onConfirm={async () => {
        try {
          await ask(
            api.admin["model-import"].post(
              { providers: [wanted.provider], markup: wanted.markup, confirmed },
              sentOnce(formKey),
            ),
          );
          toast.done(
            plural(
              { count: items.length },
              { one: "Prices of # model are imported.", other: "Prices of # models are imported." },
            ),
          );
        } finally {
          // Also after a refusal, because then a shown item has changed.
          await client.invalidateQueries({ queryKey: ADMIN_KEY });
        }
      }}
    >
      {t`${plural(
        { changed: items.length - added },
        {
          one: "# model will have new prices for requests from now on",
          other: "# models will have new prices for requests from now on",
        },
      )}, and ${plural(added, {
        one: "# model will be added, off",
        other: "# models will be added, off",
      })}. All of it is applied, or nothing.`}
    </Confirm>
  );
}
