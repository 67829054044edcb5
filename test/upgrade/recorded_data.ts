import { gunzipSync, gzipSync } from "node:zlib";
import { Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import type postgres from "postgres";

/** All rows of a database, compressed: what a release has written, for the upgrade tests of later ones. Needs no program of Postgres. */

/** A recorded database is small: a test's. */
const BYTES_MAX = 5 * 1024 * 1024;

const Recorded = Type.Object({
  /** Rows of each table as JSON objects, and the last value of each sequence. */
  tables: Type.Record(Type.String(), Type.Array(Type.Record(Type.String(), Type.Unknown()))),
  sequences: Type.Record(Type.String(), Type.String()),
});

export async function recordData(sql: postgres.Sql): Promise<Uint8Array> {
  const tables: Record<string, unknown[]> = {};
  for (const name of await tablesOf(sql)) {
    const [row] = await sql.unsafe(`select coalesce(json_agg(t), '[]')::text as rows from ${name} t`);
    const rows: unknown = JSON.parse(String(row?.rows), keepNumbers);
    if (Array.isArray(rows) && rows.length > 0) tables[name] = rows;
  }
  const sequences = await sql`
    select quote_ident(schemaname) || '.' || quote_ident(sequencename) as name, last_value::text as value from pg_sequences
    where schemaname = 'public' and last_value is not null`;
  const bytes = gzipSync(
    JSON.stringify({ tables, sequences: Object.fromEntries(sequences.map(({ name, value }) => [name, value])) }),
  );
  if (bytes.length > BYTES_MAX) throw new Error(`the recorded data is too large: ${bytes.length} bytes`);
  return new Uint8Array(bytes);
}

/** Puts recorded rows into a database with the schema that they were recorded on, and no rows. */
export async function restoreData(sql: postgres.Sql, bytes: Uint8Array): Promise<void> {
  const { tables, sequences } = Value.Parse(Recorded, JSON.parse(gunzipSync(bytes).toString("utf8")));
  await sql.begin(async (tx) => {
    // Without triggers and foreign keys: rows are put back as they were, in any order.
    await tx`set local session_replication_role = 'replica'`;
    for (const name of await tablesOf(tx)) await tx.unsafe(`delete from ${name}`);
    for (const [name, rows] of Object.entries(tables)) {
      const columns = await writableColumns(tx, name);
      await tx.unsafe(
        `insert into ${name} (${columns}) overriding system value select ${columns} from json_populate_recordset(null::${name}, $1::text::json)`,
        [JSON.stringify(rows)],
      );
    }
    for (const [name, value] of Object.entries(sequences)) await tx`select setval(${name}::regclass, ${value}::bigint)`;
  });
}

/** Tables with rows of their own: partitions, and not what they are parts of. */
async function tablesOf(sql: Pick<postgres.Sql, "unsafe">): Promise<string[]> {
  const rows = await sql.unsafe(`
    select c.oid::regclass::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'public' and c.relkind = 'r' order by 1`);
  return rows.map(({ name }) => String(name));
}

async function writableColumns(sql: Pick<postgres.Sql, "unsafe">, name: string): Promise<string> {
  const rows = await sql.unsafe(
    `select quote_ident(attname) as name from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped
      and attgenerated = '' order by attnum`,
    [name],
  );
  return rows.map((row) => String(row.name)).join(", ");
}

/** Numbers that a double cannot hold stay as they are written. */
function keepNumbers(_key: string, value: unknown, { source }: { source?: string } = {}): unknown {
  return typeof value === "number" && source !== undefined && String(value) !== source ? source : value;
}
