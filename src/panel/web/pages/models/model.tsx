import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { ArrowLeft, CirclePause, MoreHorizontal, Pencil, Play, Plus, Trash2 } from "lucide-react";
import { i18n } from "#language";
import { MODALITIES } from "../../../../catalog/modalities.ts";
import { ApiError, api, ask } from "../../api.ts";
import { EMPTY } from "../../copy.ts";
import { FAILURES } from "../../failures.ts";
import { formatCount, formatMicroUsd } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { useOpened } from "../../shared/page_hooks.ts";
import { useSwitching } from "../../shared/switching.ts";
import { Button, ButtonLink, IconButton, TextLink } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Menu } from "../../ui/menu.tsx";
import { Facts, Page, Section } from "../../ui/page.tsx";
import { Banner, Empty, Loaded } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import {
  HIDES_TOKENS,
  hidesTokensOf,
  MODELS_KEY,
  type Model,
  ModelStatus,
  providerHref,
  ROUTE_CHOICES,
  type Route,
  RouteState,
  useModelSwitching,
} from "./catalog.tsx";
import { dialectTitle } from "./fact_fields.tsx";
import { lossText } from "./loss_text.ts";
import { Margin } from "./margins.tsx";
import { Bounds, EditBounds } from "./model_bounds.tsx";
import { EditModel } from "./model_dialogs.tsx";
import { ImagePrices, TokenPrices } from "./model_price_sections.tsx";
import { ImagePricesDialog, PricesDialog } from "./price_fields.tsx";
import { RouteDialog } from "./route_dialog.tsx";
import { RouteReports } from "./route_reports.tsx";
import { ROUTE_STATES_MEANING, routesHealth } from "./route_states.ts";

/** One model: its routes in the order they are tried, its prices, its details. */

/** A breaker opens and closes within seconds. */
const REFETCH_MS = 5_000;

type Opening = { kind: "fields" | "bounds" | "prices" | "images" } | { kind: "route"; route: Route | null };

export function ModelPage({ id }: { id: string }) {
  const model = useQuery({
    queryKey: [...MODELS_KEY, "one", id],
    queryFn: () => ask(api.admin.model.get({ query: { id } })),
    refetchInterval: REFETCH_MS,
  });
  const switching = useModelSwitching();
  const dialog = useOpened<Opening>();
  const { data } = model;
  if (model.error instanceof ApiError && model.error.code === "not_found" && data === undefined) {
    return (
      <Page title={id}>
        <Empty action={<ButtonLink href="/admin/models">{t`All models`}</ButtonLink>}>{FAILURES.notFound}</Empty>
      </Page>
    );
  }
  return (
    <Page
      title={id}
      lead={
        <TextLink href="/admin/models" className="inline-flex items-center gap-1">
          <ArrowLeft size={14} aria-hidden /> {t`All models`}
        </TextLink>
      }
      action={
        data && (
          <Button
            icon={data.enabled ? CirclePause : Play}
            variant={data.enabled ? "secondary" : "primary"}
            pending={switching.isPending}
            onClick={() => switching.mutate({ what: data, isOn: !data.enabled })}
          >
            {data.enabled ? t`Switch off` : t`Switch on`}
          </Button>
        )
      }
    >
      <Loaded query={model}>
        {(loaded) => (
          <>
            <Reachable model={loaded} onAddRoute={() => dialog.open({ kind: "route", route: null })} />
            {loaded.losing.map((loss) => (
              <Banner key={loss.routeId} tone="bad" title={t`A route loses money`}>
                {lossText(loss)}
              </Banner>
            ))}
            <RoutesSection model={loaded} onOpen={(route) => dialog.open({ kind: "route", route })} />
            <RouteReports model={loaded} />
            {(loaded.modality !== "image" || loaded.prices) && (
              <TokenPrices model={loaded} onChange={() => dialog.open({ kind: "prices" })} />
            )}
            {(loaded.modality === "image" || loaded.imagePrices.length > 0) && (
              <ImagePrices model={loaded} onChange={() => dialog.open({ kind: "images" })} />
            )}
            {loaded.modality !== "image" && <Bounds model={loaded} onChange={() => dialog.open({ kind: "bounds" })} />}
            <Details model={loaded} onChange={() => dialog.open({ kind: "fields" })} />
            {dialog.what && <OpenDialog key={dialog.times} model={loaded} dialog={dialog} what={dialog.what} />}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function OpenDialog({
  model,
  dialog: { isOpen, close },
  what,
}: {
  model: Model;
  dialog: { isOpen: boolean; close: () => void };
  what: Opening;
}) {
  const props = { open: isOpen, onClose: close, model };
  if (what.kind === "route") return <RouteDialog {...props} route={what.route} />;
  if (what.kind === "bounds") return <EditBounds {...props} />;
  if (what.kind === "prices") return <PricesDialog {...props} />;
  return what.kind === "images" ? <ImagePricesDialog {...props} /> : <EditModel {...props} />;
}

/** Why requests for it fail, or cannot be paid from a balance. */
function Reachable({ model, onAddRoute }: { model: Model; onAddRoute: () => void }) {
  const { answering } = routesHealth(model.routes);
  const isPriced = model.modality === "image" ? model.imagePrices.length > 0 : model.prices !== null;
  if (!model.enabled) {
    return (
      <Banner title={t`Switched off`}>{t`Customers do not see it, and requests for it get model_not_found.`}</Banner>
    );
  }
  if (answering === 0) {
    return (
      <Banner
        tone="warn"
        title={t`No route can answer`}
        action={
          model.routes.length === 0 && (
            <Button size="sm" onClick={onAddRoute}>
              {t`Add route`}
            </Button>
          )
        }
      >
        {model.routes.length === 0
          ? t`It has no route, so requests get provider_unavailable.`
          : t`Every route is off or failing, so requests get provider_unavailable.`}
      </Banner>
    );
  }
  return isPriced ? null : (
    <Banner title={t`By package only`}>{t`It has no price, so no balance can pay for it.`}</Banner>
  );
}

function RouteActions({ route, ...rest }: { route: Route }) {
  const label = t`Actions for the route to ${{ route: nameOf(route) }}`;
  return <IconButton {...rest} icon={MoreHorizontal} label={label} size="sm" />;
}

function RoutesSection({ model, onOpen }: { model: Model; onOpen: (route: Route | null) => void }) {
  const client = useQueryClient();
  const removing = useOpened<Route>();
  const refresh = () => client.invalidateQueries({ queryKey: ADMIN_KEY });
  const switching = useRouteSwitching();
  const add = (
    <Button size="sm" icon={Plus} onClick={() => onOpen(null)}>
      {t`Add route`}
    </Button>
  );
  return (
    <Section
      title={t`Routes`}
      description={`${CHOSEN_BY[model.routeChoice]} ${t`A route that fails repeatedly is left out for a moment. States: by the requests of the last 24 hours, on all replicas.`} ${ROUTE_STATES_MEANING}`}
      action={add}
      flush
    >
      <DataTable
        caption={t`Routes of ${{ model: model.id }}`}
        rows={model.routes}
        rowKey={({ id }) => String(id)}
        columns={ROUTE_COLUMNS}
        empty={<Empty>{EMPTY.routes}</Empty>}
        actions={(route) => (
          <Menu
            trigger={<RouteActions route={route} />}
            items={[
              {
                label: t({ message: "Change", context: "menu: change a route" }),
                icon: Pencil,
                onSelect: () => onOpen(route),
              },
              route.enabled
                ? {
                    label: t`Switch off`,
                    icon: CirclePause,
                    onSelect: () => switching.mutate({ what: route, isOn: false }),
                  }
                : { label: t`Switch on`, icon: Play, onSelect: () => switching.mutate({ what: route, isOn: true }) },
              "line",
              { label: t`Remove`, icon: Trash2, tone: "danger", onSelect: () => removing.open(route) },
            ]}
          />
        )}
      />
      {removing.what && (
        <Confirm
          open={removing.isOpen}
          onOpenChange={removing.close}
          title={t`Remove the route to ${{ route: nameOf(removing.what) }}?`}
          confirmLabel={t`Remove route`}
          cancelLabel={t`Keep route`}
          onConfirm={async () => {
            if (removing.what) await ask(api.admin.routes({ id: removing.what.id }).delete());
            await refresh();
            toast.done(t`The route is removed.`);
          }}
        >
          {model.routes.length === 1
            ? t`It is the only route: requests for this model will get provider_unavailable.`
            : t`Requests under way finish. New requests use the other routes.`}
        </Confirm>
      )}
    </Section>
  );
}

const CHOSEN_BY: Readonly<Record<Model["routeChoice"], string>> = {
  order: t`The route with the lowest priority number is tried first. Routes with the same priority share requests by weight.`,
  weight: t`The routes share requests by weight. Their priorities do not count.`,
  price: t`The route that costs you least is tried first: 3 million input tokens and 1 million output tokens, or an image. Routes of the same cost are tried by priority, then by weight; those without a cost come last.`,
  latency: t`The route that answered fastest in the last minutes is tried first. Routes that are nearly as fast are tried by priority, then by weight. One request in 20 goes to any route, so that a slow one is measured again.`,
};

function nameOf({ providerName, upstreamModel }: Route): string {
  return `${providerName}, ${upstreamModel}`;
}

const ROUTE_COLUMNS: Column<Route>[] = [
  {
    head: t`Provider`,
    cell: ({ providerId, providerName, upstreamModel }) => (
      <TwoLines below={upstreamModel} isMono>
        <TextLink href={providerHref(providerId)}>{providerName}</TextLink>
      </TwoLines>
    ),
  },
  { head: t`Priority`, align: "right", cell: ({ priority }) => formatCount(priority) },
  { head: t`Weight`, align: "right", cell: ({ weight }) => formatCount(weight) },
  { head: t`Cost`, hideBelow: "lg", cell: (route) => <Cost of={route} /> },
  {
    head: t`Margin`,
    align: "right",
    hideBelow: "md",
    cell: ({ marginPermille }) => <Margin permille={marginPermille} />,
  },
  {
    head: t({ message: "Sends", context: "column: what a route sends to its provider" }),
    hideBelow: "lg",
    cell: ({ dialect, takes, facts, ownResponses, allowedParams, droppedParams }) => {
      const [allowed, dropped] = [allowedParams.join(" "), droppedParams.join(" ")];
      return (
        <span className="text-ink-2">
          {dialectTitle(dialect)}, <code className="font-mono text-12">{takes.capField}</code>
          {Object.keys(facts).length > 0 && `, ${t`with facts of its own`}`}
          {ownResponses && `, ${t`has /responses`}`}
          {allowed !== "" && (
            <>
              ,{" "}
              <Trans>
                and <code className="font-mono text-12 wrap-anywhere">{allowed}</code>
              </Trans>
            </>
          )}
          {dropped !== "" && (
            <>
              ,{" "}
              <Trans>
                without <code className="font-mono text-12 wrap-anywhere">{dropped}</code>
              </Trans>
            </>
          )}
        </span>
      );
    },
  },
  { head: t`State`, className: "sm:w-44", cell: (route) => <RouteState route={route} /> },
];

/** What the provider charges the operator. */
function Cost({ of: { costInputMicroUsd, costOutputMicroUsd, costImageMicroUsd } }: { of: Route }) {
  const parts = [
    costInputMicroUsd !== null && costOutputMicroUsd !== null
      ? t`${{ input: formatMicroUsd(costInputMicroUsd) }} in, ${{ output: formatMicroUsd(costOutputMicroUsd) }} out /M`
      : null,
    costImageMicroUsd === null ? null : t`${{ price: formatMicroUsd(costImageMicroUsd) }} an image`,
  ].filter((part) => part !== null);
  return parts.length === 0 ? <span className="text-ink-3">{t`Unknown`}</span> : parts.join("; ");
}

function useRouteSwitching() {
  return useSwitching<Route>({
    send: ({ id }, isOn) => ask(api.admin.routes({ id }).patch({ enabled: isOn })),
    stale: ADMIN_KEY,
    done: (of, isOn) => {
      const route = nameOf(of);
      return isOn ? t`The route to ${route} is on.` : t`The route to ${route} is off.`;
    },
    stays: (of, isOn) => {
      const route = nameOf(of);
      return isOn ? t`The route to ${route} stays off.` : t`The route to ${route} stays on.`;
    },
  });
}

function Details({ model, onChange }: { model: Model; onChange: () => void }) {
  return (
    <Section
      title={t`Details`}
      action={
        <Button size="sm" icon={Pencil} onClick={onChange}>
          {t`Change details`}
        </Button>
      }
    >
      <Facts
        facts={[
          [t`State`, <ModelStatus key="state" model={model} />],
          [t`Name`, model.name],
          [t`Owned by`, model.ownedBy],
          [t`Kind`, i18n._(MODALITIES[model.modality].label)],
          [
            t`Context`,
            model.contextLength === null
              ? t`Unknown`
              : plural({ count: model.contextLength }, { one: "# token", other: "# tokens" }),
          ],
          [
            t`Output without max_tokens`,
            plural(
              { count: model.defaultCapTokens },
              { one: "# token for pay-as-you-go", other: "# tokens for pay-as-you-go" },
            ),
          ],
          [t`Routes chosen by`, ROUTE_CHOICES[model.routeChoice]],
          [t`Hides tokens`, HIDES_TOKENS[hidesTokensOf(model)]],
          ...(model.architecture
            ? [
                [
                  t`Architecture`,
                  <code key="architecture" className="font-mono text-12 wrap-anywhere">
                    {JSON.stringify(model.architecture)}
                  </code>,
                ] as const,
              ]
            : []),
          [t({ message: "Added", context: "when a model was added" }), <Instant key="added" iso={model.createdAt} />],
        ]}
      />
    </Section>
  );
}
