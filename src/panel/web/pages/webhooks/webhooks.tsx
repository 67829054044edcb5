import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CirclePause, MoreHorizontal, Pencil, Play, Plus, RotateCw, Send, Trash2, Webhook } from "lucide-react";
import { api, ask } from "../../api.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { useSwitching } from "../../shared/switching.ts";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { SecretOnce } from "../../ui/copy_field.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { keptOnce } from "../../ui/kept_once.ts";
import { Menu } from "../../ui/menu.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Banner, Empty, Loaded, SkeletonRows, Status } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { kindWords } from "../messages/message_words.ts";
import { WebhookDeliveries } from "./webhook_deliveries.tsx";
import { EndpointDialog, RotateDialog } from "./webhook_dialogs.tsx";
import { type Endpoint, WEBHOOKS_KEY } from "./webhook_types.ts";

/** Webhooks: the endpoints that are called when something happens in the account. */

type Opened =
  | { kind: "edit"; endpoint: Endpoint | null }
  | { kind: "rotate" | "remove" | "deliveries"; endpoint: Endpoint };

const secret = keptOnce<string>();

export function WebhooksPage() {
  const { lock } = useViewer();
  const dialog = useOpened<Opened>();
  const shown = secret.useShown();
  const webhooks = useQuery({ queryKey: WEBHOOKS_KEY, queryFn: () => ask(api.webhooks.get()) });
  return (
    <Page
      title={t`Webhooks`}
      lead={t`Your server is called when something happens in your account. Each call is signed by the Standard Webhooks scheme, so that you can check where it comes from.`}
      action={
        <Button variant="primary" icon={Plus} onClick={() => dialog.open({ kind: "edit", endpoint: null })} {...lock}>
          <Trans>Add endpoint</Trans>
        </Button>
      }
    >
      <Loaded query={webhooks} skeleton={<SkeletonRows rows={2} />}>
        {({ endpoints, kinds }) => (
          <>
            {endpoints
              .filter(({ pausedWhy }) => pausedWhy !== null)
              .map(({ endpointId, url, pausedWhy }) => (
                <Banner key={endpointId} tone="bad" title={t`An endpoint was switched off`}>
                  <Trans>
                    {url} failed for days, so it is no longer called. Last answer: {pausedWhy}. Repair it, then switch
                    it on again.
                  </Trans>
                </Banner>
              ))}
            <Section title={t`Endpoints`} flush>
              <DataTable
                caption={t`Endpoints`}
                rows={endpoints}
                rowKey={({ endpointId }) => String(endpointId)}
                onRow={(endpoint) => dialog.open({ kind: "deliveries", endpoint })}
                columns={COLUMNS}
                actions={(endpoint) => <EndpointMenu endpoint={endpoint} onOpen={dialog.open} />}
                empty={
                  <Empty icon={Webhook}>
                    <Trans>No endpoints yet. Add the URL of your server, and choose its events.</Trans>
                  </Empty>
                }
              />
            </Section>
            <Dialogs dialog={dialog} kinds={kinds} onSecret={secret.show} />
          </>
        )}
      </Loaded>
      {shown !== null && (
        <SecretOnce
          open
          title={t`The endpoint's secret`}
          label={t`Signing secret`}
          value={shown}
          onDone={() => secret.show(null)}
        />
      )}
    </Page>
  );
}

const COLUMNS: Column<Endpoint>[] = [
  {
    head: "URL",
    cell: ({ url, kinds }) => <TwoLines below={kinds.map(kindWords).join(", ")}>{url}</TwoLines>,
  },
  {
    head: t`State`,
    cell: ({ enabled, failingSince, oldSecretUntil }) => (
      <span className="grid justify-items-start gap-1">
        {enabled ? (
          failingSince === null ? (
            <Status kind="active" />
          ) : (
            <Status kind="failed">
              <Trans>Failing</Trans>
            </Status>
          )
        ) : (
          <Status kind="disabled" />
        )}
        {enabled && failingSince !== null && (
          <span className="text-12 text-ink-2">
            <Trans>
              Since <Ago iso={failingSince} />
            </Trans>
          </span>
        )}
        {oldSecretUntil !== null && (
          <span className="text-12 text-ink-2">
            <Trans>
              Old secret until <Instant iso={oldSecretUntil} />
            </Trans>
          </span>
        )}
      </span>
    ),
  },
  { head: t`Added`, cell: ({ createdAt }) => <Ago iso={createdAt} />, hideBelow: "md" },
];

function EndpointMenu({ endpoint, onOpen }: { endpoint: Endpoint; onOpen: (what: Opened) => void }) {
  const { lock } = useViewer();
  const { endpointId: id, url, enabled } = endpoint;
  const switching = useSwitching<Endpoint>({
    send: ({ endpointId }, isOn) => ask(api.webhooks({ id: endpointId }).patch({ enabled: isOn })),
    stale: WEBHOOKS_KEY,
    done: (_, isOn) => (isOn ? t`The endpoint is on.` : t`The endpoint is off.`),
    stays: (_, isOn) => (isOn ? t`The endpoint stays off.` : t`The endpoint stays on.`),
  });
  const testing = useMutation({
    mutationFn: () => ask(api.webhooks({ id }).test.post()),
    onSuccess: ({ ok, status, answer }) =>
      ok
        ? toast.done(t`The endpoint has answered with ${{ status: status ?? "" }}.`)
        : toast.failed(
            new Error(status === null ? answer : t`It answered with ${status}. ${answer}`),
            t`The test call failed.`,
          ),
    onError: (error) => toast.failed(error),
  });
  if (lock.disabled) return null;
  return (
    <Menu
      trigger={<IconButton icon={MoreHorizontal} label={t`Actions for ${url}`} size="sm" />}
      items={[
        { label: t`Send a test call`, icon: Send, onSelect: () => testing.mutate() },
        { label: t`Change events`, icon: Pencil, onSelect: () => onOpen({ kind: "edit", endpoint }) },
        { label: t`New secret`, icon: RotateCw, onSelect: () => onOpen({ kind: "rotate", endpoint }) },
        {
          label: enabled ? t`Switch off` : t`Switch on`,
          icon: enabled ? CirclePause : Play,
          onSelect: () => switching.mutate({ what: endpoint, isOn: !enabled, isQuiet: true }),
        },
        "line",
        { label: t`Remove`, icon: Trash2, tone: "danger", onSelect: () => onOpen({ kind: "remove", endpoint }) },
      ]}
    />
  );
}

function Dialogs({
  dialog,
  kinds,
  onSecret,
}: {
  dialog: ReturnType<typeof useOpened<Opened>>;
  kinds: readonly string[];
  onSecret: (secret: string) => void;
}) {
  const client = useQueryClient();
  const { what, isOpen: open, close: onClose, times } = dialog;
  if (what?.kind === "edit")
    return <EndpointDialog key={times} {...{ open, onClose, kinds, onSecret }} edited={what.endpoint} />;
  if (what?.kind === "rotate")
    return <RotateDialog key={times} {...{ open, onClose, onSecret }} endpoint={what.endpoint} />;
  if (what?.kind === "deliveries")
    return <WebhookDeliveries key={times} {...{ open, onClose }} endpoint={what.endpoint} />;
  if (what?.kind !== "remove") return null;
  return (
    <Confirm
      open={open}
      onOpenChange={onClose}
      title={t`Remove this endpoint?`}
      confirmLabel={t`Remove endpoint`}
      cancelLabel={t`Keep endpoint`}
      onConfirm={async () => {
        await ask(api.webhooks({ id: what.endpoint.endpointId }).delete());
        await client.invalidateQueries({ queryKey: WEBHOOKS_KEY });
        toast.done(t`Endpoint removed.`);
      }}
    >
      {t`${{ url: what.endpoint.url }} is no longer called. Waiting calls are not sent.`}
    </Confirm>
  );
}
