import { rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Sql } from "postgres";

/**
 * One clock for a whole service, which a test sets: of its database and of its replicas. The database's own functions are hidden by
 * functions of the same names, so that every default and every statement of the service uses them.
 */
export type MovedTime = {
  /** For the replicas' environment. */
  env: { CLOCK_BACK_FILE: string; BUN_OPTIONS: string };
  /** Before replicas start. */
  install(sql: Sql): Promise<void>;
  /** From this moment on time runs as ever. */
  set(at: Date): Promise<void>;
  /** Unix time in ms, as the service sees it. */
  nowMs(): number;
  remove(): void;
};

const PRELOADED = ["moved_clock.ts", "../no_token_tables.ts"].map((name) =>
  fileURLToPath(new URL(`browser/${name}`, import.meta.url)),
);
/** Of Postgres: what says which time it is. */
const FUNCTIONS = ["clock_timestamp", "now", "statement_timestamp", "transaction_timestamp"];
/** As many as a world's own pool has. */
const POOL = 4;
const SEARCH_PATH = "set search_path to public, pg_catalog";

export function movedTime(start: Date): MovedTime {
  const file = join(tmpdir(), `tollgate-time-${process.pid}`);
  let backMs = Date.now() - start.getTime();
  let database: Sql | undefined;
  writeFileSync(file, String(backMs));

  async function write(sql: Sql): Promise<void> {
    writeFileSync(file, String(backMs));
    await sql.begin(async (tx) => {
      for (const name of FUNCTIONS)
        await tx.unsafe(`create or replace function public.${name}() returns timestamptz language sql
          ${name === "clock_timestamp" ? "volatile" : "stable"} as $$ select pg_catalog.${name}() - interval '${backMs} milliseconds' $$`);
    });
  }

  return {
    env: { CLOCK_BACK_FILE: file, BUN_OPTIONS: PRELOADED.map((path) => `--preload=${path}`).join(" ") },
    async install(sql) {
      database = sql;
      await write(sql);
      const [{ name } = { name: "" }] = await sql`select current_database() as name`;
      await sql.unsafe(`alter database ${name} ${SEARCH_PATH}`);
      const reserved = await Promise.all(Array.from({ length: POOL }, () => sql.reserve()));
      for (const one of reserved) {
        await one.unsafe(SEARCH_PATH);
        one.release();
      }
      const defaults = await sql`
        select format('alter table %I alter %I set default %s', c.relname, a.attname,
          replace(pg_get_expr(d.adbin, d.adrelid), 'pg_catalog.', '')) as statement
        from pg_attrdef d join pg_class c on c.oid = d.adrelid join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
        where c.relnamespace = 'public'::regnamespace and a.attgenerated = '' and not c.relispartition
          and pg_get_expr(d.adbin, d.adrelid) ~ '(now|timestamp)\\(\\)'`;
      for (const { statement } of defaults) await sql.unsafe(String(statement));
    },
    async set(at) {
      if (database === undefined) throw new Error("the clock is not installed");
      backMs = Date.now() - at.getTime();
      await write(database);
    },
    nowMs: () => Date.now() - backMs,
    remove: () => rmSync(file, { force: true }),
  };
}
