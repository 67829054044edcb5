import type { Sql } from "./db.ts";

const PING_MS_MAX = 1500;

/** Whether the database answers now. Never throws, and never waits longer than 1.5 s. */
export async function ping(sql: Sql): Promise<boolean> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), PING_MS_MAX);
  });
  const answered = sql`select 1`.then(
    () => true,
    () => false, // "No" is the answer here.
  );
  return await Promise.race([answered, late]).finally(() => clearTimeout(timer));
}
