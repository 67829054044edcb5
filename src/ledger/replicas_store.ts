import { type Static, Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import type { Sql } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";

/** One row per replica, which its heartbeat writes every second. All times are the database's. */

/** How long a replica without a heartbeat is shown. A replica that drains deletes its row. */
const SHOWN_SECONDS = 300;
const FORGOTTEN_HOURS = 24;
const LIST_MAX = 200;

/** A replica's status. Keep it small: it is written every second. */
export const ReplicaStatus = Type.Object({
  /** Open holds, and ledger rows waiting or in flight. */
  holds: Type.Integer(),
  /** Age of the oldest open hold; null: there is none. */
  oldestHoldMs: Type.Union([Type.Integer(), Type.Null()]),
  queued: Type.Integer(),
  /** Whether no settlement waits on its disk. */
  spoolEmpty: Type.Boolean(),
  /** Metered requests in progress. */
  inFlight: Type.Integer(),
  /** p99 latency of the reservations of the last minute; null: there were none. */
  ledgerP99Ms: Type.Union([Type.Number(), Type.Null()]),
  /** When its reaper last looked for ended leases; null: not yet. It waits until the database was up for a full lease. */
  reapedAt: Type.Union([Type.String(), Type.Null()]),
  draining: Type.Boolean(),
  /** Whether messages of other replicas arrive. */
  busHealthy: Type.Boolean(),
  /** Whether the previous heartbeat reached the database. */
  databaseUp: Type.Boolean(),
  runtime: Type.Union([Type.Literal("bun"), Type.Literal("deno")]),
  /** Routes that it skips now, or that could not serve a request: the first ones. Absent: it is of an older release. */
  routes: Type.Optional(
    Type.Array(
      Type.Object({
        routeId: Type.Integer(),
        dueInMs: Type.Integer(),
        forAll: Type.Boolean(),
        trouble: Type.Union([Type.String(), Type.Null()]),
      }),
    ),
  ),
});
export type ReplicaStatus = Static<typeof ReplicaStatus>;

export type Replica = {
  id: string;
  version: string;
  startedAt: string;
  seenAt: string;
  ageMs: number;
  /** null: it is of another release, whose words we do not know. */
  status: ReplicaStatus | null;
};

/** Says that this replica is up, and how it is. Returns the database's time, ISO 8601. */
export async function heartbeat(
  sql: Sql,
  { id, version, status }: { id: string; version: string; status: ReplicaStatus },
): Promise<string> {
  const [row] = await sql`
    insert into replicas (id, version, status) values (${id}, ${version}, ${JSON.stringify(status)}::text::jsonb)
    on conflict (id) do update set seen_at = clock_timestamp(), version = excluded.version, status = excluded.status
    returning seen_at::text as seen_at`;
  return toIso(String(row?.seen_at));
}

/** Replicas with a recent heartbeat, the last started first. */
export async function recentReplicas(sql: Sql): Promise<Replica[]> {
  const rows = await sql`
    select id, version, started_at::text as started_at, seen_at::text as seen_at, status,
      floor(greatest(0, extract(epoch from clock_timestamp() - seen_at) * 1000))::int as age_ms
    from replicas where seen_at > clock_timestamp() - make_interval(secs => ${SHOWN_SECONDS})
    order by started_at desc, id limit ${LIST_MAX}`;
  return rows.map((row) => ({
    id: String(row.id),
    version: String(row.version),
    startedAt: toIso(String(row.started_at)),
    seenAt: toIso(String(row.seen_at)),
    ageMs: Number(row.age_ms),
    status: Value.Check(ReplicaStatus, row.status) ? row.status : null,
  }));
}

/** Deletes the row of a replica that shuts down. */
export async function leave(sql: Sql, id: string): Promise<void> {
  await sql`delete from replicas where id = ${id}`;
}

/** Deletes the rows of replicas without a heartbeat for a day. */
export async function forgetReplicas(sql: Sql): Promise<void> {
  await sql`delete from replicas where seen_at < clock_timestamp() - make_interval(hours => ${FORGOTTEN_HOURS})`;
}
