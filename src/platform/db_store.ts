import type { Sql } from "./db.ts";

const PING_MS_MAX = 1500;

/** Whether the database answers, and can be written to: after a failover the server may be a standby. Never throws; waits at most PING_MS_MAX. */
export async function ping(sql: Sql): Promise<boolean> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), PING_MS_MAX);
  });
  const answered = sql`select current_setting('transaction_read_only') = 'off' as writable`.then(
    ([row]) => row?.writable === true,
    () => false, // An error means no.
  );
  return await Promise.race([answered, late]).finally(() => clearTimeout(timer));
}
