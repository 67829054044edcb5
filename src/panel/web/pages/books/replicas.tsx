import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { type ReplicaTrouble, troublesOf } from "../../../../ledger/replica_health.ts";
import { api, ask } from "../../api.ts";
import { formatCount, formatDuration, formatTook } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { CopyText } from "../../ui/copy_text.tsx";
import { Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";

/** The replicas, and their health. */

const REFETCH_MS = 3_000;

type Replica = NonNullable<Awaited<ReturnType<typeof api.admin.replicas.get>>["data"]>["replicas"][number];

/** Fixed widths, so that nothing moves when figures change. */
const REPLICA_COLUMNS: Column<Replica>[] = [
  {
    head: t`Replica`,
    className: "sm:w-44",
    cell: ({ id }) => <CopyText value={id} what={t`replica id`} />,
  },
  {
    head: t`Version`,
    hideBelow: "lg",
    cell: ({ version }) => <span className="wrap-anywhere">{version || t`Unknown`}</span>,
  },
  {
    head: t`Runtime`,
    hideBelow: "lg",
    className: "sm:w-24",
    cell: ({ status }) => RUNTIMES[status?.runtime ?? "none"],
  },
  { head: t`Started`, hideBelow: "md", className: "sm:w-28", cell: ({ startedAt }) => <Ago iso={startedAt} /> },
  {
    head: t({ message: "Seen", context: "column: when a replica reported last" }),
    className: "sm:w-24",
    cell: ({ ageMs }) => (ageMs < 2_000 ? t`now` : t`${{ duration: formatDuration(ageMs) }} ago`),
  },
  {
    head: t`In flight`,
    align: "right",
    className: "sm:w-24",
    cell: ({ status }) => (status ? formatCount(status.inFlight) : ""),
  },
  {
    head: t`Ledger p99`,
    align: "right",
    className: "sm:w-28",
    cell: ({ status }) =>
      status === null ? "" : status.ledgerP99Ms === null ? t`idle` : formatTook(status.ledgerP99Ms),
  },
  { head: t`Health`, className: "sm:w-48", cell: (replica) => <Health replica={replica} /> },
];
const RUNTIMES = /* not a text */ { bun: "Bun", deno: "Deno", none: "" } as const;

export function Replicas() {
  const replicas = useQuery({
    queryKey: [...ADMIN_KEY, "replicas"],
    queryFn: () => ask(api.admin.replicas.get()),
    refetchInterval: REFETCH_MS,
  });
  return (
    <Section
      title={t`Replicas`}
      description={t`Each reports its health every second. A replica that stops reporting is shown for five minutes.`}
      flush
    >
      <div className="sm:[&_table]:table-fixed">
        <Loaded query={replicas} skeleton={<SkeletonRows rows={2} />}>
          {({ replicas: rows }) => (
            <DataTable
              caption={t`Replicas`}
              rows={rows}
              rowKey={({ id }) => id}
              columns={REPLICA_COLUMNS}
              empty={<Empty>{t`No replica has reported in the last five minutes.`}</Empty>}
            />
          )}
        </Loaded>
      </div>
    </Section>
  );
}

const TROUBLES = {
  silent: { tone: "bad", says: t`Silent` },
  database_down: { tone: "bad", says: t`No database` },
  cut_off: { tone: "warn", says: t`Cut off from other replicas` },
  spool: { tone: "warn", says: t`Charges waiting on disk` },
  draining: { tone: "warn", says: t`Draining` },
} as const satisfies Record<ReplicaTrouble, object>;

function Health({ replica }: { replica: Replica }) {
  const troubles = troublesOf(replica);
  if (troubles.length === 0 && replica.status === null) return <Badge>{t`Different version`}</Badge>;
  return (
    <span className="inline-flex flex-wrap gap-1">
      {troubles.map((trouble) => (
        <Badge key={trouble} tone={TROUBLES[trouble].tone}>
          {TROUBLES[trouble].says}
        </Badge>
      ))}
      {troubles.length === 0 && <Badge tone="ok">{t`Healthy`}</Badge>}
    </span>
  );
}
