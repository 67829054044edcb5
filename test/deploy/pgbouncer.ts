import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../../src/demo/free_port.ts";
import { startOwnedProcess } from "../../src/demo/postgres/owned_process.ts";
import { connect } from "../../src/platform/db.ts";

/** A real PgBouncer in transaction mode, in front of the tests' Postgres. */

const PROGRAM = "/usr/sbin/pgbouncer";
const START_MS_MAX = 60_000;
const PORT_TRIES_MAX = 5;
const POLL_MS = 20;
/** PgBouncer refuses to run as root: it runs as the user `nobody`. */
const NOBODY = 65_534;

export type PgBouncer = Awaited<ReturnType<typeof startPgBouncer>>;
export type PgBouncerOptions = {
  /** The database behind it. */
  databaseUrl: string;
  /** The role that logs in, here and in Postgres. */
  role: string;
  password: string;
  /** Maximum number of connections to Postgres per database. */
  poolSize: number;
};

/** Starts it. Throws a message if it is not installed. */
export async function startPgBouncer(options: PgBouncerOptions) {
  if (!existsSync(PROGRAM))
    throw new Error("The test of the pooler needs a real PgBouncer, which is not installed: apt-get install pgbouncer");
  for (let triesLeft = PORT_TRIES_MAX; ; triesLeft--) {
    try {
      return await startOn(await freePort(), options);
    } catch (error) {
      // Another process may have taken the port meanwhile.
      if (triesLeft === 1) throw error;
    }
  }
}

async function startOn(port: number, { databaseUrl, role, password, poolSize }: PgBouncerOptions) {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-pgbouncer-"));
  chmodSync(folder, 0o755); // Another user may have to read here.
  const users = join(folder, "users.txt");
  const settings = join(folder, "pgbouncer.ini");
  const configure = (to: URL) =>
    writeFileSync(
      settings,
      `[databases]
* = host=${to.hostname} port=${to.port || 5432}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${users}
admin_users = ${role}
pool_mode = transaction
default_pool_size = ${poolSize}
max_client_conn = 500
server_login_retry = 1
`,
    );
  writeFileSync(users, `"${role}" "${password}"\n`);
  configure(new URL(databaseUrl));
  const outputFile = join(folder, "output");
  const isRoot = process.getuid?.() === 0;
  const server = startOwnedProcess({
    command: PROGRAM,
    args: [settings],
    env: { LC_ALL: "C" },
    outputFile,
    stopSignal: "SIGINT",
    ...(isRoot ? { uid: NOBODY, gid: NOBODY } : {}),
  });
  const stop = () => server.stop().finally(() => rmSync(folder, { recursive: true, force: true }));
  const output = () => readFileSync(outputFile, "utf8");
  const endsAt = performance.now() + START_MS_MAX;
  while (!output().includes("process up")) {
    if (server.hasExited() || performance.now() > endsAt) {
      const said = output().trim().split("\n").slice(-3).join(" ");
      await stop();
      throw new Error(`PgBouncer did not start on port ${port}: ${said}`);
    }
    await sleep(POLL_MS);
  }
  /** The URL of a database behind it. */
  const urlOf = (database: string) => `postgres://${role}:${password}@127.0.0.1:${port}/${database}`;
  return {
    urlOf,
    /** Its settings name the server of this URL from now on, and it reads them. */
    async moveTo(url: string): Promise<void> {
      configure(new URL(url));
      const console_ = connect({ databaseUrl: urlOf("pgbouncer"), dbPrepare: false, fetchTypes: false }, 1);
      await console_.unsafe("reload").simple();
      await console_.end({ timeout: 5 });
    },
    stop,
  };
}
