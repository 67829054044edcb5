import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CircleAlert, CircleCheck, CirclePause, MoreHorizontal, Pencil, Play, Plus, Zap } from "lucide-react";
import { type ReactNode, useState } from "react";
import type { DialectName } from "../../../../catalog/dialects.ts";
import { worstHealth } from "../../../../catalog/route_health.ts";
import { PROVIDER_URL_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { EMPTY } from "../../copy.ts";
import { formatCount, formatTook } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { useOpened } from "../../shared/page_hooks.ts";
import { useSwitching } from "../../shared/switching.ts";
import { idIn } from "../../shared/url_values.ts";
import { Button, IconButton, TextLink } from "../../ui/buttons.tsx";
import { CopyText } from "../../ui/copy_text.tsx";
import { Drawer } from "../../ui/dialog.tsx";
import { Field, NativeSelect, TextField } from "../../ui/fields.tsx";
import { FilterBar, useUrlState } from "../../ui/filter_bar.tsx";
import { type DialogState, type Form, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { Menu } from "../../ui/menu.tsx";
import { Facts, Page, Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, Problem, Status } from "../../ui/states.tsx";
import { type Column, DataTable, LoadOlder, toOlder } from "../../ui/table.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { HealthStatus, modelHref, type Route, RouteState } from "../models/catalog.tsx";
import {
  DIALECT_OPTIONS,
  dialectTitle,
  droppedToSend,
  FactFields,
  factLabel,
  factsToSend,
  type TypedFacts,
  typedDialect,
  typedDropped,
  typedFacts,
  wrongFacts,
} from "../models/fact_fields.tsx";
import { ProbeSection, ProviderDialect } from "./provider_facts.tsx";
import { ProviderKeyField, ProviderKeys, ProviderNameField } from "./provider_keys.tsx";

/** The providers. A key is written and never shown. One provider opens in a drawer: `?provider=…`. */

const PAGE_SIZE = 500;
const REFETCH_MS = 10_000;
const UNLISTED_SHOWN = 5;
const DROPPED_HINT = t`The provider does not take them, on any of its routes, for example: seed logit_bias. Empty: as the dialect says. none: all are sent.`;
const STATE_FILTER = [
  { value: "", label: t`All providers` },
  { value: "failing", label: t`Failing` },
] as const;
const PROVIDERS_KEY = [...ADMIN_KEY, "providers"] as const;

type Provider = NonNullable<Awaited<ReturnType<typeof api.admin.providers.get>>["data"]>["providers"][number];
type OneProvider = NonNullable<Awaited<ReturnType<ReturnType<typeof api.admin.providers>["get"]>>["data"]>;
type Known = Pick<Provider, "id" | "name" | "baseUrl" | "dialect" | "facts" | "dialectTakes" | "enabled">;
/** `keyCount`: with several keys, each is changed by itself. */
type Edited = Known & { keyCount: number };

export function ProvidersPage() {
  const [{ provider, state }, setUrl] = useUrlState({ provider: "", state: "" });
  const isFailing = state === "failing";
  const editing = useOpened<Edited | null>();
  const providers = useProviders();
  const openId = idIn(provider);
  const addButton = (
    <Button variant="primary" icon={Plus} onClick={() => editing.open(null)}>
      <Trans>Add provider</Trans>
    </Button>
  );
  return (
    <Page
      title={t`Providers`}
      lead={t`The services that answer requests, and the keys that they are called with.`}
      // An empty list has this button itself.
      action={providers.data?.pages[0]?.providers.length !== 0 && addButton}
    >
      <FilterBar>
        <NativeSelect
          label={t`State`}
          value={isFailing ? "failing" : ""}
          onValue={(next) => setUrl({ state: next })}
          options={STATE_FILTER}
        />
      </FilterBar>
      <Section flush>
        <Loaded query={providers}>
          {({ pages }) => (
            <ProvidersTable
              rows={pages.flatMap((page) => page.providers).filter((row) => !isFailing || isTroubled(row))}
              openId={openId}
              onOpen={(id) => setUrl({ provider: String(id) }, { push: true })}
              onChange={(row) => editing.open({ ...row, keyCount: row.keys })}
              empty={
                isFailing ? (
                  <Empty>{t`No provider is failing. A failing provider is left out for a moment, then tried again.`}</Empty>
                ) : (
                  <Empty action={addButton}>{EMPTY.providers}</Empty>
                )
              }
            />
          )}
        </Loaded>
        <LoadOlder older={toOlder(providers)}>{t`Load more`}</LoadOlder>
      </Section>
      <ProviderDrawer
        id={openId}
        onClose={() => setUrl({ provider: "" })}
        onChange={(one) => editing.open({ ...one, keyCount: one.keys.length })}
      />
      {editing.times > 0 && (
        <ProviderDialog
          key={editing.times}
          open={editing.isOpen}
          onClose={editing.close}
          provider={editing.what}
          onAdded={(id) => setUrl({ provider: String(id) }, { push: true })}
        />
      )}
    </Page>
  );
}

/** The overview counts the same providers as failing, except those whose keys alone are paused. */
function isTroubled({ enabled, openBreakers, restingKeys, health }: Provider): boolean {
  return enabled && (openBreakers > 0 || restingKeys > 0 || health === "failing");
}

function useProviders() {
  return useInfiniteQuery({
    queryKey: [...PROVIDERS_KEY, "list"],
    queryFn: ({ pageParam }) =>
      ask(api.admin.providers.get({ query: { limit: PAGE_SIZE, ...(pageParam !== "" && { after: pageParam }) } })),
    initialPageParam: "",
    getNextPageParam: (page) => (page.hasMore ? page.providers.at(-1)?.name : undefined),
    refetchInterval: REFETCH_MS,
  });
}

function ProvidersTable({
  rows,
  openId,
  onOpen,
  onChange,
  empty,
}: {
  rows: readonly Provider[];
  openId: number | null;
  onOpen: (id: number) => void;
  onChange: (provider: Provider) => void;
  empty: ReactNode;
}) {
  const switching = useProviderSwitching();
  const columns: Column<Provider>[] = [
    {
      head: t`Provider`,
      cell: ({ name, baseUrl }) => (
        <TwoLines below={baseUrl} isMono>
          {name}
        </TwoLines>
      ),
    },
    { head: t`Routes`, align: "right", cell: ({ routes }) => formatCount(routes) },
    { head: t`Keys`, align: "right", hideBelow: "lg", cell: ({ keys }) => formatCount(keys) },
    { head: t`State`, className: "sm:w-40", cell: (provider) => <ProviderState {...provider} /> },
    { head: t`Test`, className: "sm:w-80", cell: ({ id, name }) => <TestCell id={id} name={name} /> },
  ];
  return (
    <DataTable
      caption={t`Providers`}
      rows={rows}
      rowKey={({ id }) => String(id)}
      onRow={({ id }) => onOpen(id)}
      isSelected={({ id }) => id === openId}
      columns={columns}
      empty={empty}
      actions={(provider) => (
        <Menu
          trigger={<IconButton icon={MoreHorizontal} label={t`Actions for ${{ name: provider.name }}`} size="sm" />}
          items={[
            { label: t({ message: "Change", context: "verb" }), icon: Pencil, onSelect: () => onChange(provider) },
            provider.enabled
              ? {
                  label: t`Switch off`,
                  icon: CirclePause,
                  onSelect: () => switching.mutate({ what: provider, isOn: false }),
                }
              : { label: t`Switch on`, icon: Play, onSelect: () => switching.mutate({ what: provider, isOn: true }) },
          ]}
        />
      )}
    />
  );
}

function ProviderState({
  enabled,
  openBreakers,
  restingKeys,
  health,
}: Pick<Provider, "enabled" | "openBreakers" | "restingKeys" | "health">) {
  if (!enabled) return <Status kind="disabled" />;
  if (openBreakers > 0)
    return <Badge tone="warn">{plural(openBreakers, { one: "# route left out", other: "# routes left out" })}</Badge>;
  if (restingKeys > 0)
    return <Badge tone="warn">{plural(restingKeys, { one: "# key paused", other: "# keys paused" })}</Badge>;
  return <HealthStatus health={health} />;
}

function useProviderSwitching() {
  return useSwitching<Known>({
    send: ({ id }, isOn) => ask(api.admin.providers({ id }).patch({ enabled: isOn })),
    stale: ADMIN_KEY,
    done: ({ name }, isOn) => (isOn ? t`${name} is on.` : t`${name} is off: its routes are left out.`),
    stays: ({ name }, isOn) => (isOn ? t`${name} stays off.` : t`${name} stays on.`),
  });
}

/** Calls the provider: lists its models, and requests one token of `model` if it is given. */
function useTest(id: number) {
  return useMutation({
    mutationFn: (model: string) => ask(api.admin.providers({ id }).test.post(model === "" ? {} : { model })),
  });
}

function TestCell({ id, name }: { id: number; name: string }) {
  const test = useTest(id);
  return (
    <span className="flex min-w-0 items-center gap-3 max-sm:flex-row-reverse max-sm:text-start">
      <Button
        size="sm"
        icon={Zap}
        pending={test.isPending}
        onClick={() => test.mutate("")}
        className="row-above flex-none"
      >
        <Trans context="verb">
          Test<span className="sr-only"> {name}</span>
        </Trans>
      </Button>
      <TestResult test={test} />
    </span>
  );
}

/** How long the test took, or what failed, in the provider's own words. */
function TestResult({ test: { data, error } }: { test: ReturnType<typeof useTest> }) {
  return (
    <span role="status" className="min-w-0 text-13">
      {error && <Problem error={error} />}
      {data?.ok && (
        <span className="flex items-start gap-1.5 text-ok">
          <CircleCheck size={16} aria-hidden className="mt-0.5 flex-none" />
          <span>
            {tookText(data)}
            {data.unlisted.length > 0 && (
              <span className="block text-warn wrap-anywhere">{unlistedText(data.unlisted)}</span>
            )}
          </span>
        </span>
      )}
      {data && !data.ok && (
        <span className="flex items-start gap-1.5 text-bad">
          <CircleAlert size={16} aria-hidden className="mt-0.5 flex-none" />
          <span className="min-w-0 wrap-anywhere">{data.problem}</span>
        </span>
      )}
    </span>
  );
}

function tookText({ models, tookMs, chatTookMs }: { models: number; tookMs: number; chatTookMs: number | null }) {
  const took = formatTook(tookMs);
  if (chatTookMs === null) return plural(models, { one: `${took}, # model`, other: `${took}, # models` });
  const chatTook = formatTook(chatTookMs);
  return plural(models, {
    one: `${took}, # model; one token in ${chatTook}`,
    other: `${took}, # models; one token in ${chatTook}`,
  });
}

function unlistedText(unlisted: readonly string[]): string {
  const models = unlisted.slice(0, UNLISTED_SHOWN).join(", ");
  const more = unlisted.length - UNLISTED_SHOWN;
  return more > 0
    ? plural(more, { other: `It does not list these models of its routes: ${models} and # more` })
    : t`It does not list these models of its routes: ${models}`;
}

function ProviderDrawer({
  id,
  onClose,
  onChange,
}: {
  id: number | null;
  onClose: () => void;
  onChange: (provider: OneProvider) => void;
}) {
  // The last provider stays shown while the drawer closes.
  const [shownId, setShownId] = useState(id);
  if (id !== null && id !== shownId) setShownId(id);
  const switching = useProviderSwitching();
  const provider = useQuery({
    queryKey: [...PROVIDERS_KEY, "one", shownId],
    queryFn: () => ask(api.admin.providers({ id: shownId ?? 0 }).get()),
    enabled: shownId !== null,
    refetchInterval: id === null ? false : REFETCH_MS,
  });
  const { data } = provider;
  return (
    <Drawer
      open={id !== null}
      onOpenChange={onClose}
      title={data?.name ?? t`Provider`}
      footer={
        data && (
          <>
            <Button
              icon={data.enabled ? CirclePause : Play}
              pending={switching.isPending}
              // No toast with Undo: the drawer would cover it, and this button undoes it.
              onClick={() => switching.mutate({ what: data, isOn: !data.enabled, isQuiet: true })}
            >
              {data.enabled ? t`Switch off` : t`Switch on`}
            </Button>
            <Button icon={Pencil} onClick={() => onChange(data)}>
              <Trans context="verb">Change</Trans>
            </Button>
          </>
        )
      }
    >
      <Loaded query={provider}>{(loaded) => <ProviderDetails key={loaded.id} provider={loaded} />}</Loaded>
    </Drawer>
  );
}

function ProviderDetails({ provider }: { provider: OneProvider }) {
  const { name } = provider;
  const test = useTest(provider.id);
  const [model, setModel] = useState("");
  const modelIds = [...new Set(provider.routes.map(({ modelId }) => modelId))];
  return (
    <div className="grid gap-6">
      <Facts
        facts={[
          [t`Base URL`, <CopyText key="url" value={provider.baseUrl} what={t`base URL`} isWhole />],
          [t`Dialect`, <ProviderDialect key="dialect" {...provider} />],
          [
            t`State`,
            <ProviderState
              key="state"
              enabled={provider.enabled}
              health={worstHealth(provider.routes.filter(({ enabled }) => enabled).map(({ health }) => health))}
              openBreakers={provider.routes.filter(({ breaker }) => breaker.open).length}
              restingKeys={provider.keys.filter(({ enabled, state }) => enabled && state !== "active").length}
            />,
          ],
        ]}
      />
      <ProviderKeys provider={provider} />
      <section className="grid gap-3 border-t border-line pt-4" aria-label={t`Test`}>
        <h3 className="text-14">
          <Trans>Test</Trans>
        </h3>
        <Field label={t`What to test`}>
          <NativeSelect
            value={model}
            onValue={setModel}
            options={[
              { value: "", label: t`Its list of models` },
              ...modelIds.map((id) => ({ value: id, label: t`Its list of models, and a one-token answer from ${id}` })),
            ]}
          />
        </Field>
        <Button icon={Zap} pending={test.isPending} onClick={() => test.mutate(model)} className="justify-self-start">
          <Trans>Test now</Trans>
        </Button>
        <TestResult test={test} />
      </section>
      {provider.routes.length > 0 && <ProbeSection provider={provider} />}
      <section className="grid gap-1 border-t border-line pt-4" aria-label={t`Routes`}>
        <h3 className="text-14">
          <Trans>Routes that use it</Trans>
        </h3>
        {provider.routes.length === 0 && (
          <p className="text-13 text-ink-2">
            <Trans>
              None yet. Open or add a model under <TextLink href="/admin/models">Models</TextLink>, and give it a route
              to {name}.
            </Trans>
          </p>
        )}
        <ul className="grid">
          {provider.routes.map((route) => (
            <RouteLine key={route.id} route={{ ...route, providerEnabled: provider.enabled }} />
          ))}
        </ul>
        {provider.hasMoreRoutes && <p className="text-13 text-ink-3">{t`And more.`}</p>}
      </section>
    </div>
  );
}

type LineRoute = OneProvider["routes"][number] & Pick<Route, "providerEnabled">;

function RouteLine({ route }: { route: LineRoute }) {
  return (
    <li className="flex items-center justify-between gap-3 border-b border-line py-2 text-13 last:border-0">
      <TwoLines below={route.upstreamModel === route.modelId ? null : route.upstreamModel} isMono>
        <TextLink href={modelHref(route.modelId)} className="font-mono font-normal">
          {route.modelId}
        </TextLink>
      </TwoLines>
      <RouteState route={route} isShort />
    </li>
  );
}

function ProviderDialog({
  open,
  onClose,
  provider,
  onAdded,
}: DialogState & {
  /** null: a new one. */
  provider: Edited | null;
  onAdded: (id: number) => void;
}) {
  const send = useSaveProvider(provider);
  const form = useForm({
    first: typedProvider(provider),
    wrong: ({ name, baseUrl, apiKey, facts }) => ({
      name: isBlank(name) ? t`Enter a name.` : null,
      baseUrl: /^https?:\/\/\S+$/i.test(baseUrl.trim())
        ? null
        : t`Enter an address, such as https://api.example.com/v1`,
      apiKey: provider === null && isBlank(apiKey) ? t`Paste the key that the provider gave you.` : null,
      dialect: null,
      ...wrongFacts(facts),
      droppedParams: null,
    }),
    send,
    onSent: (saved) => {
      onClose();
      if (provider === null) onAdded(saved.id);
      const { name } = saved;
      toast.done(provider === null ? t`${name} is added. Test it now.` : t`${name} is changed.`);
    },
  });
  const isMoved = provider !== null && form.values.baseUrl.trim().replace(/\/+$/, "") !== provider.baseUrl;
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={provider === null ? t`Add provider` : t`Change ${{ name: provider.name }}`}
      submitLabel={provider === null ? t`Add provider` : t`Save`}
    >
      <ProviderNameField {...form.field("name")} />
      <TextField
        label={t`Base URL`}
        hint={t`The part before /chat/completions.`}
        required
        mono
        inputMode="url"
        {...form.field("baseUrl")}
        maxLength={PROVIDER_URL_CHARS_MAX}
        placeholder="https://api.example.com/v1"
      />
      {(provider === null || provider.keyCount === 1) && (
        <ProviderKeyField isNew={provider === null} isMoved={isMoved} {...form.field("apiKey")} />
      )}
      <DialectFields form={form} provider={provider} />
    </FormDialog>
  );
}

type ProviderForm = Form<TypedProvider, keyof TypedProvider | keyof ReturnType<typeof wrongFacts>>;

function DialectFields({ form, provider }: { form: ProviderForm; provider: Known | null }) {
  const { dialect, baseUrl } = form.values;
  const { name, says } = typedDialect(dialect, baseUrl);
  return (
    <>
      <Field label={t`Dialect`} hint={t`What it takes, and how it answers. A probe shows later whether this is right.`}>
        <NativeSelect
          value={dialect}
          onValue={(next) => form.set({ dialect: next })}
          options={[
            ...(provider === null ? [{ value: "", label: byAddress(dialect === "" ? name : null) }] : []),
            ...DIALECT_OPTIONS,
          ]}
        />
      </Field>
      <FactFields
        typed={form.values.facts}
        from="dialect"
        says={says}
        errorOf={form.errorOf}
        onChange={(facts) => form.set({ facts })}
      />
      <TextField
        label={factLabel("droppedParams")}
        optional
        hint={DROPPED_HINT}
        mono
        {...form.field("droppedParams")}
        placeholder={says.droppedParams.join(" ")}
      />
    </>
  );
}

/** `found`: the dialect of the typed address, if that is what is chosen. */
function byAddress(found: DialectName | null): string {
  return found === null ? t`By its address` : t`By its address: ${{ dialect: dialectTitle(found) }}`;
}

type TypedProvider = {
  name: string;
  baseUrl: string;
  apiKey: string;
  dialect: string;
  facts: TypedFacts;
  /** "": as the dialect says; "none": no parameter. */
  droppedParams: string;
};

function typedProvider(provider: Known | null): TypedProvider {
  const { name = "", baseUrl = "", dialect = "", facts = {} } = provider ?? {};
  return { name, baseUrl, apiKey: "", dialect, facts: typedFacts(facts), droppedParams: typedDropped(facts) };
}

function useSaveProvider(provider: Known | null) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  return async ({ apiKey, dialect, facts, droppedParams, ...typed }: TypedProvider) => {
    const fields = {
      name: typed.name.trim(),
      baseUrl: typed.baseUrl.trim(),
      ...(dialect !== "" && { dialect }),
      facts: { ...factsToSend(facts), droppedParams: droppedToSend(droppedParams) },
    };
    const saved =
      provider === null
        ? await ask(api.admin.providers.post({ ...fields, apiKey }, sentOnce(formKey)))
        : await ask(api.admin.providers({ id: provider.id }).patch({ ...fields, ...(!isBlank(apiKey) && { apiKey }) }));
    await client.invalidateQueries({ queryKey: ADMIN_KEY });
    return saved;
  };
}
