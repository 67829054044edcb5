import { findPerson } from "../accounts/accounts_store.ts";
import { Refusal } from "../errors.ts";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { PERSONAL_TABLES } from "./personal_tables_store.ts";

/** What is kept of a person, as one document. Source: RET-7. */

/** Rows of one table in an export, the newest ones if there are more. */
export const ROWS_MAX = 10_000;

export type PersonData = {
  personId: number;
  exportedAt: string;
  /** Rows by table. */
  tables: Record<string, Record<string, unknown>[]>;
  /** Tables that have more rows of the person than are given here. */
  truncated: string[];
};

/** Reads all of one moment. Throws not_found. */
export async function exportPerson({ db }: { db: Db }, personId: number): Promise<PersonData> {
  const person = await findPerson({ db }, personId);
  if (!person) throw new Refusal("not_found");
  return await db.sql.begin("isolation level repeatable read read only", async (tx) => {
    await tx`select set_config('TimeZone', 'UTC', true)`;
    const [now] = await tx`select ledger_now()::text as at`;
    const data: PersonData = { personId, exportedAt: toIso(String(now?.at)), tables: {}, truncated: [] };
    for (const { table, exported, of } of PERSONAL_TABLES) {
      if (exported === null) continue;
      // Both parameters have a use in every statement, so that their types are known.
      const rows = await tx.unsafe(
        `with person as (select $1::text::bigint as id, $2::text as email)
        select to_jsonb(r) as row from (
          select ${exported} from ${table} where ${withPerson(of)} order by ${table}.ctid desc limit ${ROWS_MAX + 1}) r`,
        [String(personId), person.email.toLowerCase()],
      );
      if (rows.length > ROWS_MAX) data.truncated.push(table);
      data.tables[table] = rows.slice(0, ROWS_MAX).map(({ row }) => toRow(row));
    }
    return data;
  });
}

/** The condition with its parameters as columns of `person`. */
export function withPerson(of: string): string {
  return of.replaceAll("$1", "(select id from person)").replaceAll("$2", "(select email from person)");
}

function toRow(row: unknown): Record<string, unknown> {
  if (typeof row !== "object" || row === null) throw new Error("a row is no object");
  return { ...row };
}
