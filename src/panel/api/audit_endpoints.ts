import { t } from "elysia";
import { type AuditEntry, listAudit, namesIn } from "../../accounts/audit_store.ts";
import type { Deps } from "../../deps.ts";
import { csvResponse, FILE_WAIT_MS_MAX, type ReadPage, tableCsv } from "./csv_stream.ts";
import { Id, Instant, whole } from "./fields.ts";
import type { Cell } from "./formats.ts";
import { longRead, signedIn } from "./panel_session.ts";

/** The audit log, for admins: a page of it, and a file of all entries of a filter. */

const PAGE_MAX = 200;
/** Rows of one file; a last line says if there are more. */
const FILE_ROWS_MAX = 100_000;

const AuditFilter = {
  subject: t.Optional(t.String({ pattern: "^[a-z_]{1,40}$", says: "the name of a table, as in keys" })),
  accountId: t.Optional(Id),
  actorId: t.Optional(Id),
  start: t.Optional(Instant),
  end: t.Optional(Instant),
};

export function auditEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .get(
      "/audit",
      ({ person, query, request: { signal } }) =>
        longRead(deps, { person, signal }, async (reading) => {
          const page = await listAudit(reading, query);
          return { ...page, names: await namesIn(reading, page.entries) };
        }),
      { query: t.Object({ ...AuditFilter, before: t.Optional(Id), limit: t.Optional(whole(1, PAGE_MAX)) }) },
    )
    .get(
      "/audit.csv",
      async ({ person, query }) => {
        const read: ReadPage = (page, signal) => longRead(deps, { person, signal, waitMsMax: FILE_WAIT_MS_MAX }, page);
        const csv = await tableCsv(read, {
          columns: COLUMNS,
          cellsOf,
          page: async (reading, { after, limit }) => {
            const size = Math.min(limit, PAGE_MAX);
            const { entries, hasMore } = await listAudit(reading, {
              ...query,
              limit: size,
              ...(after !== undefined && { before: after }),
            });
            return { rows: entries, hasMore };
          },
          idOf: ({ id }) => id,
          rowsMax: FILE_ROWS_MAX,
          advice: "Use a filter for the others.",
        });
        const day = new Date(deps.clock.unixMs()).toISOString().slice(0, 10);
        return csvResponse(csv, `audit-${day}.csv`);
      },
      { query: t.Object(AuditFilter) },
    );
}

const COLUMNS = [
  "entry_id",
  "at",
  "actor_id",
  "actor",
  "token",
  "action",
  "subject",
  "subject_id",
  "subject_name",
  "account_id",
  "account",
  "before",
  "after",
  "request_id",
];

/** Values before and after as JSON, with the columns' names. */
function cellsOf({
  id,
  at,
  actor,
  token,
  action,
  subject,
  subjectId,
  subjectName,
  account,
  ...row
}: AuditEntry): Cell[] {
  return [
    ...[id, at, actor?.accountId ?? null, actor?.email ?? null, token?.name ?? null, action, subject, subjectId],
    ...[subjectName, account?.accountId ?? null, account?.name ?? null],
    ...[row.before && JSON.stringify(row.before), row.after && JSON.stringify(row.after), row.requestId],
  ];
}
