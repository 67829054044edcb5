import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { CONFIRM, EMPTY } from "../../copy.ts";
import { formatCount } from "../../format.ts";
import { type Person, useOpened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows, Status } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { PEOPLE_KEY } from "./queries.ts";

/** Sections of a person's page: their keys, and a reseller's allotments. */

type TheirKey = NonNullable<Awaited<ReturnType<ReturnType<typeof api.people>["keys"]["get"]>>["data"]>["keys"][number];
type Grant = NonNullable<Awaited<ReturnType<typeof api.allotments.get>>["data"]>["allotments"][number];

const KEY_STATUS = { enabled: "active", disabled: "disabled", revoked: "revoked", expired: "expired" } as const;
const BILLING_MODE = { package: t`Package`, payg: t`Balance` } as const;

/** Names and masked keys. Only the owner has the whole key. */
const KEY_COLUMNS: readonly Column<TheirKey>[] = [
  { head: t`Name`, cell: ({ name }) => <span className="font-medium wrap-anywhere">{name}</span> },
  { head: t`Key`, cell: ({ masked }) => <span className="font-mono text-12">{masked}</span> },
  { head: t`Billing`, cell: ({ mode }) => BILLING_MODE[mode] },
  { head: t`Created`, hideBelow: "lg", cell: ({ createdAt }) => <Ago iso={createdAt} /> },
  {
    head: t`Expires`,
    hideBelow: "lg",
    cell: ({ expiresAt }) => (expiresAt ? <Instant iso={expiresAt} /> : t({ message: "Never", context: "expires" })),
  },
  { head: t`State`, cell: ({ status }) => <Status kind={KEY_STATUS[status]} /> },
];

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
    ...KEY_COLUMNS,
    {
      head: t`Action`,
      align: "right",
      cell: (key) => {
        const { name, status } = key;
        return (
          status === "enabled" && (
            <Button size="sm" onClick={() => asking.open(key)} {...lock}>
              <Trans>
                Switch off<span className="sr-only"> {name}</span>
              </Trans>
            </Button>
          )
        );
      },
    },
  ];
  const asked = asking.what && CONFIRM.disableTheirKey(asking.what.name);
  return (
    <Section title={t`Keys`} flush>
      <Loaded query={keys} skeleton={<SkeletonRows rows={2} />}>
        {({ pages }) => (
          <DataTable
            caption={t`Keys`}
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
          confirmLabel={t`Switch off`}
          cancelLabel={t`Keep on`}
          onConfirm={async () => {
            const keyId = asking.what?.keyId ?? 0;
            await ask(api.people({ id: accountId }).keys({ keyId }).disable.post());
            await refresh();
            toast.done(t`Key ${{ name: asking.what?.name ?? "" }} is off.`);
          }}
        >
          {asked.body}
        </Confirm>
      )}
    </Section>
  );
}

/** Pieces of offerings that an admin granted a reseller. Unassigned pieces can be taken back. */
const GRANT_COLUMNS: readonly Column<Grant>[] = [
  { head: t`Offering`, cell: ({ offeringName }) => <span className="font-medium wrap-anywhere">{offeringName}</span> },
  { head: t`Reason`, hideBelow: "lg", cell: ({ reason }) => reason },
  { head: t`Granted`, cell: ({ createdAt }) => <Ago iso={createdAt} /> },
  { head: t`Pieces`, align: "right", cell: ({ granted }) => formatCount(granted) },
  { head: t`Assigned`, align: "right", cell: ({ used }) => formatCount(used) },
  { head: t({ message: "Left", context: "not used yet" }), align: "right", cell: ({ left }) => formatCount(left) },
];

export function Allotments({ person, onGrant }: { person: Person; onGrant: () => void }) {
  const refresh = useRefresh();
  const taking = useOpened<Grant>();
  const grants = useGrants(person.accountId);
  const columns: Column<Grant>[] = [
    ...GRANT_COLUMNS,
    {
      head: t`Action`,
      align: "right",
      cell: (grant) => {
        const { offeringName, left } = grant;
        return (
          left > 0 && (
            <Button size="sm" onClick={() => taking.open(grant)}>
              <Trans>
                Take back<span className="sr-only"> {offeringName}</span>
              </Trans>
            </Button>
          )
        );
      },
    },
  ];
  return (
    <Section
      title={t`Allotments`}
      description={t`Packages they may assign without paying the wholesale price.`}
      action={
        <Button size="sm" onClick={onGrant}>
          {t({ message: "Grant", context: "to give" })}
        </Button>
      }
      flush
    >
      <Loaded query={grants} skeleton={<SkeletonRows rows={2} />}>
        {({ pages }) => (
          <DataTable
            caption={t`Allotments`}
            rows={pages.flatMap(({ allotments }) => allotments)}
            rowKey={({ allotmentId }) => String(allotmentId)}
            columns={columns}
            empty={<Empty>{t`Nothing granted yet. They pay the wholesale price for each package.`}</Empty>}
            older={toOlder(grants)}
          />
        )}
      </Loaded>
      {taking.what && (
        <Confirm
          open={taking.isOpen}
          onOpenChange={(isOpen) => isOpen || taking.close()}
          title={t`Take back ${plural({ pieces: taking.what.left }, { one: "# piece", other: "# pieces" })} of ${{ offering: taking.what.offeringName }}?`}
          confirmLabel={t`Take back`}
          cancelLabel={t`Keep them`}
          onConfirm={async () => {
            const taken = await ask(api.allotments({ id: taking.what?.allotmentId ?? 0 }).withdraw.post());
            await refresh();
            toast.done(
              plural({ pieces: taken.withdrawn }, { one: "# piece taken back.", other: "# pieces taken back." }),
            );
          }}
        >
          <Trans>Packages that were assigned stay. The reseller pays the wholesale price again.</Trans>
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
