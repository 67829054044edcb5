import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { Megaphone, MoreHorizontal, Pencil, Plus, Trash2 } from "lucide-react";
import { api, ask } from "../../api.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button, ButtonLink, IconButton } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Menu } from "../../ui/menu.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Empty } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { ChangeIncident, NewIncident } from "./incident_dialogs.tsx";
import { componentWords, INCIDENTS_KEY, type Incident } from "./incident_types.ts";
import { INCIDENT_WORDS, STATUS_KEY } from "./status_words.ts";

/** What a seller writes on its status page: incidents and planned maintenance. */

type Opened = { kind: "new" } | { kind: "change" | "remove"; incident: Incident };

export function IncidentsPage() {
  const { role, lock } = useViewer("incidents");
  const dialog = useOpened<Opened>();
  const incidents = useInfiniteQuery({
    queryKey: INCIDENTS_KEY,
    queryFn: ({ pageParam }) => ask(api.incidents.get({ query: pageParam === null ? {} : { before: pageParam } })),
    initialPageParam: null as number | null,
    getNextPageParam: ({ rows, hasMore }) => (hasMore ? (rows.at(-1)?.incidentId ?? null) : null),
  });
  return (
    <Page
      title={t`Incidents`}
      lead={
        role === "admin"
          ? t`What status pages say about incidents and planned maintenance. Yours are shown on the page of every brand.`
          : t`What your status page says about incidents and planned maintenance, beside those of the operator.`
      }
      action={
        <>
          <ButtonLink href="/status">
            <Trans>Open status page</Trans>
          </ButtonLink>
          <Button variant="primary" icon={Plus} onClick={() => dialog.open({ kind: "new" })} {...lock}>
            <Trans>New incident</Trans>
          </Button>
        </>
      }
    >
      <Section flush>
        <DataTable
          caption={t`Incidents and maintenance`}
          rows={incidents.data?.pages.flatMap(({ rows }) => rows)}
          rowKey={({ incidentId }) => String(incidentId)}
          columns={COLUMNS}
          actions={(incident) => <IncidentMenu incident={incident} onOpen={dialog.open} />}
          empty={
            <Empty icon={Megaphone}>
              <Trans>No incidents yet. Tell customers when something is wrong, or planned.</Trans>
            </Empty>
          }
          older={toOlder(incidents)}
        />
      </Section>
      <Dialogs dialog={dialog} />
    </Page>
  );
}

const COLUMNS: Column<Incident>[] = [
  {
    head: t`Title`,
    cell: ({ title, components }) => <TwoLines below={components.map(componentWords).join(", ")}>{title}</TwoLines>,
  },
  {
    head: t`State`,
    cell: ({ status }) => <Badge tone={INCIDENT_WORDS[status][1]}>{INCIDENT_WORDS[status][0]}</Badge>,
  },
  { head: t`Begins`, cell: ({ beginsAt }) => <Instant iso={beginsAt} /> },
  {
    head: t`Ends`,
    cell: ({ endsAt }) =>
      endsAt === null ? t({ message: "Open", context: "state of an incident" }) : <Instant iso={endsAt} />,
    hideBelow: "md",
  },
];

function IncidentMenu({ incident, onOpen }: { incident: Incident; onOpen: (what: Opened) => void }) {
  const { lock } = useViewer("incidents");
  if (lock.disabled) return null;
  return (
    <Menu
      trigger={<IconButton icon={MoreHorizontal} label={t`Actions for ${{ name: incident.title }}`} size="sm" />}
      items={[
        { label: t`Post an update`, icon: Pencil, onSelect: () => onOpen({ kind: "change", incident }) },
        "line",
        { label: t`Remove`, icon: Trash2, tone: "danger", onSelect: () => onOpen({ kind: "remove", incident }) },
      ]}
    />
  );
}

function Dialogs({ dialog }: { dialog: ReturnType<typeof useOpened<Opened>> }) {
  const client = useQueryClient();
  const { what, isOpen: open, close: onClose, times } = dialog;
  if (what === null) return null;
  if (what.kind === "new") return <NewIncident key={times} open={open} onClose={onClose} />;
  if (what.kind === "change")
    return <ChangeIncident key={times} open={open} onClose={onClose} incident={what.incident} />;
  return (
    <Confirm
      open={open}
      onOpenChange={onClose}
      title={t`Remove this from the status page?`}
      confirmLabel={t`Remove`}
      cancelLabel={t`Keep`}
      onConfirm={async () => {
        await ask(api.incidents({ id: what.incident.incidentId }).delete());
        await Promise.all([INCIDENTS_KEY, STATUS_KEY].map((queryKey) => client.invalidateQueries({ queryKey })));
        toast.done(t`Removed.`);
      }}
    >
      {t`${{ title: what.incident.title }} and its updates are no longer shown. To say that it is over, post an update instead.`}
    </Confirm>
  );
}
