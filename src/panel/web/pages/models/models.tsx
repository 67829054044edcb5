import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { ArrowDownToLine, CirclePause, MoreHorizontal, Play, Plus } from "lucide-react";
import { useEffect, useRef } from "react";
import { useLocation } from "wouter";
import { i18n } from "#language";
import { MODALITIES } from "../../../../catalog/modalities.ts";
import { CATALOG_NAME_CHARS_MAX, MODEL_ID_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { EMPTY } from "../../copy.ts";
import { formatMicroUsd } from "../../format.ts";
import { useOpened } from "../../shared/page_hooks.ts";
import { Button, ButtonLink, IconButton } from "../../ui/buttons.tsx";
import { Field, NativeSelect, TextField } from "../../ui/fields.tsx";
import { FilterBar, SearchInput, useUrlState } from "../../ui/filter_bar.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { Menu } from "../../ui/menu.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded } from "../../ui/states.tsx";
import { type Column, DataTable, LoadOlder, toOlder } from "../../ui/table.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import {
  type ListedModel,
  MODALITY_OPTIONS,
  MODELS_KEY,
  ModelStatus,
  modelHref,
  useModelSwitching,
} from "./catalog.tsx";
import { Margin } from "./margins.tsx";
import { ModelPage } from "./model.tsx";
import { routesHealth } from "./route_states.ts";

/** The models, their prices and routes. One model is at `/admin/models?model=…`. */

const PAGE_SIZE = 500;
/** A breaker opens and closes within seconds. */
const REFETCH_MS = 10_000;
const MODEL_ID = /^[A-Za-z0-9][\w.:@+/-]{0,127}$/;

export function ModelsPage() {
  const [{ model }] = useUrlState({ model: "" });
  useFreshStart(model);
  return model === "" ? <ModelList /> : <ModelPage key={model} id={model} />;
}

/** The list and a model share a path, so focus and scroll position must be reset between them. */
function useFreshStart(model: string): void {
  const before = useRef(model);
  useEffect(() => {
    if (before.current === model) return;
    before.current = model;
    window.scrollTo(0, 0);
    document.getElementById("content")?.focus({ preventScroll: true });
  }, [model]);
}

function ModelList() {
  const [{ q }, setFilter] = useUrlState({ q: "" });
  const adding = useOpened<true>();
  const models = useInfiniteQuery({
    queryKey: [...MODELS_KEY, "list"],
    queryFn: ({ pageParam }) =>
      ask(api.admin.models.get({ query: { limit: PAGE_SIZE, ...(pageParam !== "" && { after: pageParam }) } })),
    initialPageParam: "",
    getNextPageParam: (page) => (page.hasMore ? page.models.at(-1)?.id : undefined),
    refetchInterval: REFETCH_MS,
  });
  const addButton = (
    <Button variant="primary" icon={Plus} onClick={() => adding.open(true)}>
      {t`Add model`}
    </Button>
  );
  const wanted = q.trim().toLowerCase();
  return (
    <Page
      title={t`Models`}
      lead={t`The models you sell, their prices, and the providers that answer.`}
      // An empty list has the second button itself.
      action={<Actions>{models.data?.pages[0]?.models.length !== 0 && addButton}</Actions>}
    >
      <FilterBar isFiltered={q !== ""} onClear={() => setFilter({ q: "" })}>
        <SearchInput
          label={t`Search by name`}
          placeholder={t`Name of a model`}
          value={q}
          onValue={(typed) => setFilter({ q: typed })}
          maxLength={MODEL_ID_CHARS_MAX}
        />
      </FilterBar>
      <Section flush>
        <Loaded query={models}>
          {({ pages }) => {
            const all = pages.flatMap((page) => page.models);
            return (
              <ModelsTable
                rows={all.filter(({ id, name }) => `${id} ${name}`.toLowerCase().includes(wanted))}
                empty={
                  all.length === 0 ? (
                    <Empty action={addButton}>{EMPTY.models}</Empty>
                  ) : (
                    <Empty>{t`No model with that name.`}</Empty>
                  )
                }
              />
            );
          }}
        </Loaded>
        <LoadOlder older={toOlder(models)}>{t`Load more`}</LoadOlder>
      </Section>
      {adding.times > 0 && <AddModel key={adding.times} open={adding.isOpen} onClose={adding.close} />}
    </Page>
  );
}

/** The import, and the button that an empty list shows itself. */
function Actions({ children }: { children: React.ReactNode }) {
  return (
    <>
      <ButtonLink href="/admin/models/import" icon={ArrowDownToLine}>
        {t`Import prices`}
      </ButtonLink>
      {children}
    </>
  );
}

function ModelsTable({ rows, empty }: { rows: readonly ListedModel[]; empty: React.ReactNode }) {
  const switching = useModelSwitching();
  const columns: Column<ListedModel>[] = [
    {
      head: t`Model`,
      cell: (model) => (
        <TwoLines below={model.name === model.id ? null : model.name}>
          <span className="font-mono">{model.id}</span>
        </TwoLines>
      ),
    },
    { head: t`Kind`, hideBelow: "md", cell: ({ modality }) => i18n._(MODALITIES[modality].label) },
    { head: t`State`, cell: (model) => <ModelStatus model={model} /> },
    { head: t`Price`, cell: (model) => <Price model={model} /> },
    {
      head: t`Margin`,
      hideBelow: "md",
      cell: ({ lowestMarginPermille }) => <Margin permille={lowestMarginPermille} />,
    },
    { head: t`Routes`, cell: (model) => <RoutesHealth model={model} /> },
  ];
  return (
    <DataTable
      caption={t`Models`}
      rows={rows}
      rowKey={({ id }) => id}
      rowHref={({ id }) => modelHref(id)}
      columns={columns}
      empty={empty}
      actions={(model) => (
        <Menu
          trigger={<IconButton icon={MoreHorizontal} label={t`Actions for ${{ model: model.id }}`} size="sm" />}
          items={[
            { label: t({ message: "Open", context: "verb" }), href: modelHref(model.id) },
            model.enabled
              ? {
                  label: t`Switch off`,
                  icon: CirclePause,
                  onSelect: () => switching.mutate({ what: model, isOn: false }),
                }
              : { label: t`Switch on`, icon: Play, onSelect: () => switching.mutate({ what: model, isOn: true }) },
          ]}
        />
      )}
    />
  );
}

/** "$3.00 in, $15.00 out" per million tokens; images from the lowest to the highest price. */
function Price({ model: { prices, imagePrices } }: { model: ListedModel }) {
  const sizes = imagePrices.map(({ microUsd }) => microUsd);
  const [low, high] = [Math.min(...sizes), Math.max(...sizes)];
  if (prices === null && sizes.length === 0) return <span className="text-ink-3">{t`By package only`}</span>;
  return (
    <span className="grid text-ink">
      {prices && (
        <span>
          <Trans>
            {{ input: formatMicroUsd(prices.inputMicroUsd) }} in, {{ output: formatMicroUsd(prices.outputMicroUsd) }}{" "}
            out
            <span className="text-ink-3"> /M</span>
          </Trans>
        </span>
      )}
      {sizes.length > 0 && (
        <span>
          {high > low ? (
            <Trans>
              {{ low: formatMicroUsd(low) }} to {{ high: formatMicroUsd(high) }}
              <span className="text-ink-3"> an image</span>
            </Trans>
          ) : (
            <Trans>
              {{ price: formatMicroUsd(low) }}
              <span className="text-ink-3"> an image</span>
            </Trans>
          )}
        </span>
      )}
    </span>
  );
}

function RoutesHealth({ model: { enabled, routes } }: { model: ListedModel }) {
  const { tone, words } = routesHealth(routes);
  // A model that is off needs no warning.
  return <Badge tone={enabled ? tone : "neutral"}>{words}</Badge>;
}

function AddModel({ open, onClose }: DialogState) {
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const formKey = useIdempotencyKey();
  const form = useForm({
    first: { id: "", name: "", modality: "text" as ListedModel["modality"] },
    wrong: ({ id }) => ({
      id: MODEL_ID.test(id.trim())
        ? null
        : t`Start with a letter or digit; up to ${{ max: MODEL_ID_CHARS_MAX }} letters, digits and . _ : @ + / -`,
      name: null,
      modality: null,
    }),
    send: async ({ id, name, modality }) => {
      const named = isBlank(name) ? {} : { name: name.trim() };
      const added = await ask(api.admin.models.post({ id: id.trim(), ...named, modality }, sentOnce(formKey)));
      await client.invalidateQueries({ queryKey: MODELS_KEY });
      return added;
    },
    onSent: (added) => {
      onClose();
      navigate(modelHref(added.id));
      toast.done(t`${{ model: added.id }} is added. Give it a route and a price.`);
    },
  });
  const { error, ...modality } = form.field("modality");
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Add model`}
      description={t`Routes and prices come next, on its own page.`}
      submitLabel={t`Add model`}
    >
      <TextField
        label={t`Id`}
        hint={t`Clients send it as the model of a request. It cannot be changed later.`}
        required
        mono
        {...form.field("id")}
        maxLength={MODEL_ID_CHARS_MAX}
        placeholder="vendor/model-1"
      />
      <TextField
        label={t`Name`}
        optional
        hint={t`If empty, the id.`}
        {...form.field("name")}
        maxLength={CATALOG_NAME_CHARS_MAX}
      />
      <Field label={t`Kind`} error={error}>
        <NativeSelect {...modality} options={MODALITY_OPTIONS} />
      </Field>
    </FormDialog>
  );
}
