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
import { toast } from "../../ui/toast.tsx";
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
      title="Incidents"
      lead={
        role === "admin"
          ? "What status pages say about incidents and planned maintenance. Yours are shown on the page of every brand."
          : "What your status page says about incidents and planned maintenance, beside those of the operator."
      }
      action={
        <>
          <ButtonLink href="/status">Open status page</ButtonLink>
          <Button variant="primary" icon={Plus} onClick={() => dialog.open({ kind: "new" })} {...lock}>
            New incident
          </Button>
        </>
      }
    >
      <Section flush>
        <DataTable
          caption="Incidents and maintenance"
          rows={incidents.data?.pages.flatMap(({ rows }) => rows)}
          rowKey={({ incidentId }) => String(incidentId)}
          columns={COLUMNS}
          actions={(incident) => <IncidentMenu incident={incident} onOpen={dialog.open} />}
          empty={<Empty icon={Megaphone}>No incidents yet. Tell customers when something is wrong, or planned.</Empty>}
          older={toOlder(incidents)}
        />
      </Section>
      <Dialogs dialog={dialog} />
    </Page>
  );
}

const COLUMNS: Column<Incident>[] = [
  {
    head: "Title",
    cell: ({ title, components }) => <TwoLines below={components.map(componentWords).join(", ")}>{title}</TwoLines>,
  },
  {
    head: "State",
    cell: ({ status }) => <Badge tone={INCIDENT_WORDS[status][1]}>{INCIDENT_WORDS[status][0]}</Badge>,
  },
  { head: "Begins", cell: ({ beginsAt }) => <Instant iso={beginsAt} /> },
  { head: "Ends", cell: ({ endsAt }) => (endsAt === null ? "Open" : <Instant iso={endsAt} />), hideBelow: "md" },
];

function IncidentMenu({ incident, onOpen }: { incident: Incident; onOpen: (what: Opened) => void }) {
  const { lock } = useViewer("incidents");
  if (lock.disabled) return null;
  return (
    <Menu
      trigger={<IconButton icon={MoreHorizontal} label={`Actions for ${incident.title}`} size="sm" />}
      items={[
        { label: "Post an update", icon: Pencil, onSelect: () => onOpen({ kind: "change", incident }) },
        "line",
        { label: "Remove", icon: Trash2, tone: "danger", onSelect: () => onOpen({ kind: "remove", incident }) },
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
      title="Remove this from the status page?"
      confirmLabel="Remove"
      cancelLabel="Keep"
      onConfirm={async () => {
        await ask(api.incidents({ id: what.incident.incidentId }).delete());
        await Promise.all([INCIDENTS_KEY, STATUS_KEY].map((queryKey) => client.invalidateQueries({ queryKey })));
        toast.done("Removed.");
      }}
    >
      {what.incident.title} and its updates are no longer shown. To say that it is over, post an update instead.
    </Confirm>
  );
}
