import { useInfiniteQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { CONFIRM, EMPTY } from "../../copy.ts";
import { formatCount, formatOf } from "../../format.ts";
import { type Person, useOpened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows, Status } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.tsx";
import { PEOPLE_KEY } from "./queries.ts";

/** Sections of a person's page: their keys, and a reseller's allotments. */

type TheirKey = NonNullable<Awaited<ReturnType<ReturnType<typeof api.people>["keys"]["get"]>>["data"]>["keys"][number];
type Grant = NonNullable<Awaited<ReturnType<typeof api.allotments.get>>["data"]>["allotments"][number];

const KEY_STATUS = { enabled: "active", disabled: "disabled", revoked: "revoked", expired: "expired" } as const;
const BILLING_MODE = { package: "Package", payg: "Balance" } as const;

/** Names and masked keys. Only the owner has the whole key. */
export function TheirKeys({ accountId }: { accountId: number }) {
  const { lock } = useViewer("keys");
  const refresh = useRefresh();
  const asking = useOpened<TheirKey>();
  const keys = useInfiniteQuery({
    queryKey: [...PEOPLE_KEY, "keys", accountId],
    queryFn: ({ pageParam }) =>
      ask(api.people({ id: accountId }).keys.get({ query: { ...(pageParam > 0 && { before: pageParam }) } })),
    initialPageParam: 0,
    getNextPageParam: ({ keys: rows, hasMore }) => (hasMore ? rows[rows.length - 1]?.keyId : undefined),
  });
  const columns: Column<TheirKey>[] = [
    { head: "Name", cell: ({ name }) => <span className="font-medium wrap-anywhere">{name}</span> },
    { head: "Key", cell: ({ masked }) => <span className="font-mono text-12">{masked}</span> },
    { head: "Billing", cell: ({ mode }) => BILLING_MODE[mode] },
    { head: "Created", hideBelow: "lg", cell: ({ createdAt }) => <Ago iso={createdAt} /> },
    { head: "Expires", hideBelow: "lg", cell: ({ expiresAt }) => (expiresAt ? <Instant iso={expiresAt} /> : "Never") },
    { head: "State", cell: ({ status }) => <Status kind={KEY_STATUS[status]} /> },
    {
      head: "Action",
      align: "right",
      cell: (key) =>
        key.status === "enabled" && (
          <Button size="sm" onClick={() => asking.open(key)} {...lock}>
            Switch off<span className="sr-only"> {key.name}</span>
          </Button>
        ),
    },
  ];
  const asked = asking.what && CONFIRM.disableTheirKey(asking.what.name);
  return (
    <Section title="Keys" flush>
      <Loaded query={keys} skeleton={<SkeletonRows rows={2} />}>
        {({ pages }) => (
          <DataTable
            caption="Keys"
            rows={pages.flatMap((page) => page.keys)}
            rowKey={({ keyId }) => String(keyId)}
            columns={columns}
            empty={<Empty>{EMPTY.theirKeys}</Empty>}
            older={toOlder(keys)}
          />
        )}
      </Loaded>
      {asking.what && asked && (
        <Confirm
          open={asking.isOpen}
          onOpenChange={(isOpen) => isOpen || asking.close()}
          title={asked.title}
          confirmLabel="Switch off"
          cancelLabel="Keep on"
          onConfirm={async () => {
            const keyId = asking.what?.keyId ?? 0;
            await ask(api.people({ id: accountId }).keys({ keyId }).disable.post());
            await refresh();
            toast.done(`Key ${asking.what?.name} is off.`);
          }}
        >
          {asked.body}
        </Confirm>
      )}
    </Section>
  );
}

/** Pieces of offerings that an admin granted a reseller. Unassigned pieces can be taken back. */
export function Allotments({ person, onGrant }: { person: Person; onGrant: () => void }) {
  const refresh = useRefresh();
  const taking = useOpened<Grant>();
  const grants = useGrants(person.accountId);
  const columns: Column<Grant>[] = [
    { head: "Offering", cell: ({ offeringName }) => <span className="font-medium wrap-anywhere">{offeringName}</span> },
    { head: "Reason", hideBelow: "lg", cell: ({ reason }) => reason },
    { head: "Granted", cell: ({ createdAt }) => <Ago iso={createdAt} /> },
    { head: "Pieces", align: "right", cell: ({ granted }) => formatCount(granted) },
    { head: "Assigned", align: "right", cell: ({ used }) => formatCount(used) },
    { head: "Left", align: "right", cell: ({ left }) => formatCount(left) },
    {
      head: "Action",
      align: "right",
      cell: (grant) =>
        grant.left > 0 && (
          <Button size="sm" onClick={() => taking.open(grant)}>
            Take back<span className="sr-only"> {grant.offeringName}</span>
          </Button>
        ),
    },
  ];
  return (
    <Section
      title="Allotments"
      description="Packages they may assign without paying the wholesale price."
      action={
        <Button size="sm" onClick={onGrant}>
          Grant
        </Button>
      }
      flush
    >
      <Loaded query={grants} skeleton={<SkeletonRows rows={2} />}>
        {({ pages }) => (
          <DataTable
            caption="Allotments"
            rows={pages.flatMap(({ allotments }) => allotments)}
            rowKey={({ allotmentId }) => String(allotmentId)}
            columns={columns}
            empty={<Empty>Nothing granted yet. They pay the wholesale price for each package.</Empty>}
            older={toOlder(grants)}
          />
        )}
      </Loaded>
      {taking.what && (
        <Confirm
          open={taking.isOpen}
          onOpenChange={(isOpen) => isOpen || taking.close()}
          title={`Take back ${formatOf(taking.what.left, "piece")} of ${taking.what.offeringName}?`}
          confirmLabel="Take back"
          cancelLabel="Keep them"
          onConfirm={async () => {
            const taken = await ask(api.allotments({ id: taking.what?.allotmentId ?? 0 }).withdraw.post());
            await refresh();
            toast.done(`${formatOf(taken.withdrawn, "piece")} taken back.`);
          }}
        >
          Packages that were assigned stay. The reseller pays the wholesale price again.
        </Confirm>
      )}
    </Section>
  );
}

function useGrants(accountId: number) {
  return useInfiniteQuery({
    queryKey: ["allotments", accountId],
    queryFn: ({ pageParam }) =>
      ask(api.allotments.get({ query: { resellerId: accountId, ...(pageParam > 0 && { before: pageParam }) } })),
    initialPageParam: 0,
    getNextPageParam: ({ allotments, hasMore }) =>
      hasMore ? allotments[allotments.length - 1]?.allotmentId : undefined,
  });
}
