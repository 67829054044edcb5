import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import postgres, { type Sql } from "postgres";
import { freePort } from "../../src/demo/free_port.ts";
import { processExists } from "../../src/demo/postgres/owned_process.ts";
import { type DebianServer, debianPostgres } from "../debian_postgres.ts";
import { until } from "../platform/own_redis.ts";

/**
 * A primary and its hot standby, as the guide sets them up (Postgres in pairs), and what happens to such a pair. Source:
 * docs/operations.md.
 */
export type PostgresPair = {
  primaryUrl: string;
  standbyUrl: string;
  /** Both servers: their addresses differ, and their port is the same. */
  hosts: readonly string[];
  port: string;
  /** Runs a statement on a server. */
  ask(url: string, statement: string): Promise<Record<string, unknown>[]>;
  /** Kills the primary with all its processes, as a machine that loses power. */
  killPrimary(): Promise<void>;
  /** Starts the former primary on its own data, as if nothing had happened. */
  restartPrimary(): Promise<void>;
  /** The primary sends nothing to its standby any more, which stays connected. */
  stopSending(): Promise<void>;
  /** Waits until the standby has all that the primary has committed. */
  caughtUp(): Promise<void>;
  /** Makes the standby the primary. */
  promote(): void;
  /** Stops both, and deletes their data. */
  remove(): Promise<void>;
};

const STANDBY = "standby_1";
const HOSTS = ["127.0.0.1", "127.0.0.2"] as const;

/** `synchronous`: each commit waits until the standby has it on its disk. */
export async function postgresPair({ synchronous }: { synchronous: boolean }): Promise<PostgresPair> {
  const place = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-pair-`));
  const debian = debianPostgres(place);
  debian.init("primary");
  const port = await freePort();
  const [host, standbyHost] = HOSTS;
  let primary = await debian.start("primary", { host, port });
  const primaryUrl = primary.url;
  const data = join(place, "standby");
  const conninfo = `host=${host} port=${port} user=postgres application_name=${STANDBY}`;
  debian.run("pg_basebackup", ["-d", conninfo, "-D", data, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]);
  const standby = await debian.start("standby", { host: standbyHost, port });
  const isFollowing = async () =>
    (
      await ask(
        primaryUrl,
        `select 1 from pg_stat_replication where application_name = '${STANDBY}' and state = 'streaming'`,
      )
    ).length === 1;
  await until(isFollowing);
  if (synchronous) {
    await ask(primaryUrl, `alter system set synchronous_standby_names = '${STANDBY}'`);
    await ask(primaryUrl, "select pg_reload_conf()");
    await until(
      async () => (await ask(primaryUrl, "select 1 from pg_stat_replication where sync_state = 'sync'")).length === 1,
    );
  }

  return {
    primaryUrl,
    standbyUrl: standby.url,
    hosts: HOSTS,
    port: String(port),
    ask,
    async killPrimary() {
      await killAll(primary);
    },
    async restartPrimary() {
      primary = await debian.start("primary", { host, port });
    },
    async stopSending() {
      const [sender] = await ask(primaryUrl, "select pid from pg_stat_replication");
      process.kill(Number(sender?.pid), "SIGSTOP");
    },
    async caughtUp() {
      const [primaryAt] = await ask(primaryUrl, "select pg_current_wal_lsn()::text as lsn");
      const isThere = `select pg_last_wal_replay_lsn() >= '${primaryAt?.lsn}' as "isThere"`;
      await until(async () => (await ask(standby.url, isThere))[0]?.isThere === true);
    },
    promote: () => debian.run("pg_ctl", ["promote", "-w", "-D", data]),
    async remove() {
      await Promise.all([primary.server.stop(), standby.server.stop()]);
      rmSync(place, { recursive: true, force: true });
    },
  };
}

async function ask(url: string, statement: string): Promise<Record<string, unknown>[]> {
  const sql: Sql = postgres(url, { max: 1, onnotice: () => {} });
  try {
    return [...(await sql.unsafe(statement))];
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** The postmaster first: it would restart its children. */
async function killAll({ server: { pid } }: DebianServer): Promise<void> {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").map(Number);
  for (const each of [pid, ...children]) if (processExists(each)) process.kill(each, "SIGKILL");
  await until(() => ![pid, ...children].some(processExists));
}
