import { and, desc, eq, gte, lt, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import type { Actor } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { pageOf, pageSize } from "../platform/pages.ts";
import { inSlices } from "../platform/prune.ts";
import { accounts, apiTokens } from "../platform/schema_accounts.ts";
import { auditEntries } from "../platform/schema_service.ts";

/** The audit log. Written by triggers (note_audit), and by `noteAction` where no trigger can know enough. */

const PAGE_MAX = 200;
/** Entries deleted in one statement. */
const PRUNE_ROWS = 5_000;

/** One lookup by primary key for each entry of a page. A route is named by its model. */
const SUBJECT_NAME = sql<string | null>`case ${auditEntries.subject}
  when 'keys' then (select name from keys where id = ${auditEntries.subjectId}::bigint)
  when 'api_tokens' then (select name from api_tokens where id = ${auditEntries.subjectId}::bigint)
  when 'members' then (select name from accounts where id = ${auditEntries.subjectId}::bigint)
  when 'member_invitations' then (select email from member_invitations where id = ${auditEntries.subjectId}::bigint)
  when 'passkeys' then (select name from passkeys where id = ${auditEntries.subjectId}::bigint)
  when 'identity_providers' then (select name from identity_providers where id = ${auditEntries.subjectId}::bigint)
  when 'identities' then (select email from identities where id = ${auditEntries.subjectId}::bigint)
  when 'packages' then (select name from packages where id = ${auditEntries.subjectId}::bigint)
  when 'retail_prices' then (select name from offerings where id = ${auditEntries.subjectId}::bigint)
  when 'offerings' then (select name from offerings where id = ${auditEntries.subjectId}::bigint)
  when 'providers' then (select name from providers where id = ${auditEntries.subjectId}::bigint)
  when 'routes' then (select model_id from routes where id = ${auditEntries.subjectId}::bigint)
end`;

export type AuditAction = "added" | "changed" | "removed" | "viewed";

export type AuditEntry = {
  id: number;
  at: string;
  /** null: the command line or the service itself. */
  actor: { accountId: number; name: string; email: string } | null;
  /** The token of the management API that the actor used; null: none. */
  token: { tokenId: number; name: string } | null;
  requestId: string | null;
  action: AuditAction;
  /** The table, and the row's id in it. */
  subject: string;
  subjectId: string;
  /** Its current name; null: it has none, or was deleted. */
  subjectName: string | null;
  /** The account it concerns; null: none. */
  account: { accountId: number; name: string } | null;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
};

export type AuditFilter = {
  subject?: string;
  accountId?: number;
  actorId?: number;
  /** Entries since this moment, and before that one, ISO 8601. */
  start?: string;
  end?: string;
  /** The last id of the previous page. */
  before?: number;
  limit?: number;
};

/** Entries, newest first. */
export async function listAudit(
  { db }: { db: Db },
  { subject, accountId, actorId, start, end, before, limit = 50 }: AuditFilter = {},
): Promise<{ entries: AuditEntry[]; hasMore: boolean }> {
  const size = pageSize(limit, PAGE_MAX);
  const actor = alias(accounts, "actor");
  const rows = await db.orm
    .select({
      id: auditEntries.id,
      at: auditEntries.createdAt,
      actor: { accountId: actor.id, name: actor.name, email: actor.email },
      token: { tokenId: apiTokens.id, name: apiTokens.name },
      requestId: auditEntries.requestId,
      action: auditEntries.action,
      subject: auditEntries.subject,
      subjectId: auditEntries.subjectId,
      subjectName: SUBJECT_NAME,
      account: { accountId: accounts.id, name: accounts.name },
      before: auditEntries.before,
      after: auditEntries.after,
    })
    .from(auditEntries)
    .leftJoin(actor, eq(actor.id, auditEntries.actorId))
    .leftJoin(apiTokens, eq(apiTokens.id, auditEntries.tokenId))
    .leftJoin(accounts, eq(accounts.id, auditEntries.accountId))
    .where(
      and(
        subject === undefined ? undefined : eq(auditEntries.subject, subject),
        accountId === undefined ? undefined : eq(auditEntries.accountId, accountId),
        actorId === undefined ? undefined : eq(auditEntries.actorId, actorId),
        start === undefined ? undefined : gte(auditEntries.createdAt, start),
        end === undefined ? undefined : lt(auditEntries.createdAt, end),
        before === undefined ? undefined : lt(auditEntries.id, before),
      ),
    )
    .orderBy(desc(auditEntries.id))
    .limit(size + 1);
  const page = pageOf(rows, size);
  return { entries: page.rows.map((row) => ({ ...row, at: toIso(row.at) })), hasMore: page.hasMore };
}

/** Columns of audited tables that name an account. Seller 0 is the operator. */
const ACCOUNT_COLUMNS = [
  "account_id",
  "reseller_id",
  "seller_id",
  "actor_id",
  "created_by",
  "person_id",
  "made_by",
  "decided_by",
  "paid_by_account_id",
  "counterpart_id",
] as const;

/** The names that stand for the ids in entries' values: of accounts, offerings and providers, by id. */
export type AuditNames = Record<"accounts" | "offerings" | "providers", Record<string, string>>;

/** The names of what the entries' values refer to. What was deleted has none. */
export async function namesIn({ db }: { db: Db }, entries: readonly AuditEntry[]): Promise<AuditNames> {
  const idsIn = (columns: readonly string[]) => {
    const values = entries.flatMap(({ before, after }) => [before, after]);
    const ids = values.flatMap((fields) => columns.map((column) => fields?.[column]));
    return [...new Set(ids.filter((id) => typeof id === "number"))];
  };
  const { sql: read } = db;
  const toNames = (rows: Row[]) => Object.fromEntries(rows.map(({ id, name }) => [String(id), String(name)]));
  const [accountIds, offeringIds, providerIds] = [
    idsIn(ACCOUNT_COLUMNS),
    idsIn(["offering_id", "trial_offering_id"]),
    idsIn(["provider_id"]),
  ];
  return {
    accounts: toNames(await read<Row[]>`select id, name from accounts where id = any (${accountIds}::bigint[])`),
    offerings: toNames(await read<Row[]>`select id, name from offerings where id = any (${offeringIds}::bigint[])`),
    providers: toNames(await read<Row[]>`select id, name from providers where id = any (${providerIds}::bigint[])`),
  };
}
type Row = { id: unknown; name: unknown };

/** Deletes entries older than `keptDays`; returns how many. Ids are nearly in the order of time. */
export async function pruneAudit({ db }: { db: Db }, keptDays: number): Promise<number> {
  return await inSlices(PRUNE_ROWS, async () => {
    const deleted = await db.orm.execute(sql`
      delete from audit_entries using (
        select id, created_at from audit_entries order by id limit ${PRUNE_ROWS}) as oldest
      where audit_entries.id = oldest.id and oldest.created_at < clock_timestamp() - make_interval(days => ${keptDays}::int)
      returning 1`);
    return deleted.length;
  });
}

/** Writes an entry for an action that no trigger can see, in the transaction of the action. */
export async function noteAction(
  tx: Tx,
  by: Actor,
  entry: Pick<AuditEntry, "action" | "subject" | "before" | "after"> & { accountId: number },
): Promise<void> {
  await tx.insert(auditEntries).values({
    ...entry,
    actorId: by.accountId,
    tokenId: by.tokenId ?? null,
    requestId: by.requestId,
    subjectId: String(entry.accountId),
  });
}
