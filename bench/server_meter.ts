import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "../src/platform/db.ts";
import { cpuMs } from "./cpu.ts";
import { type Spread, spread } from "./figures.ts";

/** The work of a Postgres between two readings, and what its connections waited for. */

/** How often the connections are sampled. */
const LOOK_MS = 20;
const DISK_BLOCK = Buffer.alloc(8192);
const DISK_BLOCKS = 256;

export type Reading = {
  walBytes: number;
  /** Transactions that wrote: each is a commit. */
  commits: number;
  /** Of all its processes; null: they are not on this machine, or this is not Linux. */
  cpuMs: number | null;
};

/**
 * The share of samples in which a connection was on the CPU, waited for the disk, waited for a lock, or in which none
 * was active.
 */
export type Waits = { cpu: number; disk: number; lock: number; other: number; idle: number };

export type ServerMeter = {
  read(): Promise<Reading>;
  /** Samples the database's connections until the returned function is called. */
  watch(): () => Promise<Waits>;
  close(): Promise<void>;
};

/** `postgresPid` is the parent of the server's processes, null if they are not on this machine. */
export function openServerMeter(databaseUrl: string, postgresPid: number | null): ServerMeter {
  const sql = connect({ databaseUrl, dbPrepare: true }, 1);
  return {
    async read() {
      const [row] = await sql`
        select pg_current_wal_insert_lsn() - '0/0'::pg_lsn as wal, pg_snapshot_xmax(pg_current_snapshot())::text as xid`;
      const cpu = postgresPid === null ? null : (cpuMs({ postgres: postgresPid }).postgres ?? null);
      return { walBytes: Number(row?.wal), commits: Number(row?.xid), cpuMs: cpu };
    },
    watch() {
      let isOver = false;
      const looks: Waits = { cpu: 0, disk: 0, lock: 0, other: 0, idle: 0 };
      const watching = (async () => {
        while (!isOver) {
          const rows = await sql`
            select coalesce(wait_event_type, '') as type, coalesce(wait_event, '') as event from pg_stat_activity
            where datname = current_database() and pid <> pg_backend_pid() and state = 'active'`;
          const kinds = rows.map(({ type, event }) => kindOf(String(type), String(event)));
          if (kinds.length === 0) looks.idle++;
          for (const kind of kinds) looks[kind] += 1 / kinds.length;
          await Bun.sleep(LOOK_MS);
        }
      })();
      return async () => {
        isOver = true;
        await watching;
        const all = Object.values(looks).reduce((sum, n) => sum + n, 0);
        const shares = Object.entries(looks).map(([kind, n]) => [kind, all === 0 ? 0 : n / all]);
        return Object.fromEntries(shares) as Waits;
      };
    },
    close: () => sql.end({ timeout: 5 }),
  };
}

function kindOf(type: string, event: string): keyof Waits {
  if (type === "") return "cpu";
  if (type === "Lock") return "lock";
  // WalSync and WalWrite are the disk itself, WALWrite is waiting for a neighbour's flush.
  if (/^wal_?(sync|write)/i.test(event)) return "disk";
  return "other";
}

/** How long this machine's disk (that of the folder for temporary files) needs to flush a block; ms. */
export function diskMs(times: number): Spread {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-bench-disk-"));
  const file = openSync(join(folder, "blocks"), "w");
  try {
    // Like Postgres, into a file that has its size already.
    for (let i = 0; i < DISK_BLOCKS; i++) writeSync(file, DISK_BLOCK);
    fdatasyncSync(file);
    const taken: number[] = [];
    for (let i = 0; i < times; i++) {
      writeSync(file, DISK_BLOCK, 0, DISK_BLOCK.length, (i % DISK_BLOCKS) * DISK_BLOCK.length);
      const beganMs = performance.now();
      fdatasyncSync(file);
      taken.push(performance.now() - beganMs);
    }
    return spread(taken);
  } finally {
    closeSync(file);
    rmSync(folder, { recursive: true, force: true });
  }
}
