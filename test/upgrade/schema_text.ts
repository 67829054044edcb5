import type postgres from "postgres";

/** What a database's schema is, as text: tables, columns, constraints, indexes, functions, triggers, views and sequences, each in a line. */
export async function schemaText(sql: postgres.Sql): Promise<string[]> {
  const rows = await sql.unsafe(`
    select text from (
      select format('%s %s %s %s %s %s', c.relkind, c.oid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
          coalesce(pg_get_expr(d.adbin, d.adrelid), '') || a.attidentity::text || a.attgenerated::text) as text
        from pg_class c join pg_attribute a on a.attrelid = c.oid left join pg_attrdef d on (d.adrelid, d.adnum) = (c.oid, a.attnum)
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S') and a.attnum > 0 and not a.attisdropped
      union all select format('options %s %s', oid::regclass, reloptions) from pg_class
        where relnamespace = 'public'::regnamespace and reloptions is not null
      union all select format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) from pg_constraint
        where connamespace = 'public'::regnamespace
      union all select pg_get_indexdef(indexrelid) from pg_index join pg_class c on c.oid = indrelid where c.relnamespace = 'public'::regnamespace
      union all select pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace and prokind in ('f', 'p')
      union all select pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = tgrelid
        where c.relnamespace = 'public'::regnamespace and not tgisinternal
      union all select format('view %s %s', oid::regclass, pg_get_viewdef(oid)) from pg_class
        where relnamespace = 'public'::regnamespace and relkind in ('v', 'm')
      union all select format('type %s %s', oid::regtype, typtype) from pg_type where typnamespace = 'public'::regnamespace and typtype in ('e', 'd')
    ) all_of_it order by text`);
  return rows.map(({ text }) => String(text));
}
