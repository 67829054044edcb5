import { startPostgres, startRedis, startServices } from "../scripts/services.ts";
import { connect, type Sql } from "../src/platform/db.ts";
import { postmasterOf } from "./cpu.ts";
import { type Spread, spread } from "./figures.ts";

/** The Postgres and Redis of a run: the bench's own, with fsync on, unless those of the environment are requested. */

export type BenchServices = {
  databaseUrl: string;
  redisUrl: string;
  /** The parent of Postgres's processes; null: it is not on this machine. */
  postgresPid: number | null;
  redisPid: number | null;
  /** "PostgreSQL 18.1, fsync on, …" */
  about: string;
  missing: string[];
  /** One insert after the other, each in a transaction of its own, over one connection; a first one is not counted. */
  commitMs(times: number): Promise<Spread>;
  stop(): Promise<void>;
};

/** Settings whose value says how durable, and how fast, a commit is. */
const SETTINGS = ["fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size"];

/** Throws one sentence when they can be neither found nor started. */
export async function startBenchServices(givenServices: boolean, log: (line: string) => void): Promise<BenchServices> {
  const started = givenServices ? await given() : await own(log);
  const sql = connect({ databaseUrl: started.databaseUrl, dbPrepare: true }, 1);
  const stop = async () => {
    await sql`drop table if exists tollgate_bench_commits`.catch(() => {}); // The server may have ended before us.
    await sql.end({ timeout: 5 }).catch(() => {});
    await started.stop();
  };
  try {
    const { about, missing, postgresPid } = await look(sql);
    if (started.redisPid === null) missing.push("Redis is not the bench's own: no figures of its CPU");
    await sql`create table if not exists tollgate_bench_commits (n int)`;
    return { ...started, about, missing, postgresPid, stop, commitMs: (times) => commitMs(sql, times) };
  } catch (error) {
    await stop();
    throw error;
  }
}

type Started = { databaseUrl: string; redisUrl: string; redisPid: number | null; stop(): Promise<void> };

async function own(log: (line: string) => void): Promise<Started> {
  const [postgres, redis] = await Promise.all([startPostgres({ log }), startRedis({ log })]);
  return {
    databaseUrl: postgres.url,
    redisUrl: redis.url,
    redisPid: redis.pid,
    stop: async () => {
      await Promise.all([postgres.stop(), redis.stop()]);
    },
  };
}

async function given(): Promise<Started> {
  const { databaseUrl, redisUrl, stop } = await startServices();
  return { databaseUrl, redisUrl, redisPid: null, stop };
}

async function look(sql: Sql): Promise<{ about: string; missing: string[]; postgresPid: number | null }> {
  const [row] = await sql`select pg_backend_pid() as pid, current_setting('server_version') as version`;
  const settings =
    await sql`select name, current_setting(name) as value from pg_settings where name = any(${SETTINGS})`;
  const settingOf = (name: string) => String(settings.find((setting) => setting.name === name)?.value);
  const missing: string[] = [];
  const postgresPid = postmasterOf(Number(row?.pid)) ?? null;
  if (postgresPid === null && process.platform === "linux")
    missing.push("Postgres is not on this machine: no figures of its CPU");
  if (settingOf("fsync") !== "on" || settingOf("synchronous_commit") === "off")
    missing.push(
      "this Postgres does not wait for its disk (fsync or synchronous_commit is off): its commits are no measure",
    );
  const about = `PostgreSQL ${String(row?.version).split(" ")[0]}, ${SETTINGS.map((name) => `${name} ${settingOf(name)}`).join(", ")}`;
  return { about, missing, postgresPid };
}

async function commitMs(sql: Sql, times: number): Promise<Spread> {
  const taken: number[] = [];
  await sql`insert into tollgate_bench_commits values (-1)`; // The first one is planned, on a connection that may be new.
  for (let n = 0; n < times; n++) {
    const beganMs = performance.now();
    await sql`insert into tollgate_bench_commits values (${n})`;
    taken.push(performance.now() - beganMs);
  }
  return spread(taken);
}
