/** PostgreSQL's lock file `postmaster.pid`: which server uses a folder, and what a crash leaves of it. */
import { spawnSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { processExists } from "./owned_process.ts";

const LOCK_FILE = "postmaster.pid";
const POLL_MS = 20;
/** A server whose parent was killed ends soon: its guard notices immediately. */
const RUNNING_MS_MAX = 3_000;
const STOPPING_MS_MAX = 30_000;

/**
 * Waits for an earlier server of this folder to end. Throws an Error with one sentence if it keeps running.
 * A lock file whose process id now belongs to another program is neutralized.
 */
export async function waitForPredecessor(data: string): Promise<void> {
  const startedAt = performance.now();
  for (;;) {
    const lock = readLockFile(data);
    if (!lock || lock.pid === process.pid) return;
    const isEmpty = !(lock.pid > 0);
    if (!isEmpty && !processExists(lock.pid)) return;
    if (!isEmpty && !isServerOf(data, lock.pid)) return neutralizeLockFile(data);
    const waitMs = lock.status === "stopping" ? STOPPING_MS_MAX : RUNNING_MS_MAX;
    if (performance.now() - startedAt > waitMs) {
      // A starting server fills its lock file immediately. One that stays empty was left by a power cut.
      if (isEmpty) return rmSync(join(data, LOCK_FILE), { force: true });
      throw new Error(
        `${data} is in use by another PostgreSQL (process ${lock.pid}): stop that one, or use another folder.`,
      );
    }
    await sleep(POLL_MS);
  }
}

/**
 * Writes our own process id into the lock file: PostgreSQL ignores a lock held by its parent. The file must not be deleted: it also
 * names the shared memory by which PostgreSQL checks that no child of the old server is left.
 */
function neutralizeLockFile(data: string): void {
  const path = join(data, LOCK_FILE);
  const [, ...rest] = readFileSync(path, "utf8").split("\n");
  writeFileSync(path, [process.pid, ...rest].join("\n"));
}

/** Line 1 of postmaster.pid is the process id, line 8 the state. Null if there is no file. */
export function readLockFile(data: string): { pid: number; status: string } | null {
  try {
    const lines = readFileSync(join(data, LOCK_FILE), "utf8").split("\n");
    // A single-user server writes a negative number.
    return { pid: Math.abs(Number(lines[0])), status: (lines[7] ?? "").trim() };
  } catch {
    return null;
  }
}

/** Whether the process is a PostgreSQL on this folder. Process ids are reused: after a crash it may be any program. */
function isServerOf(data: string, pid: number): boolean {
  if (process.platform !== "linux") {
    return spawnSync("ps", ["-ww", "-o", "command=", "-p", String(pid)], { encoding: "utf8" }).stdout.includes(
      ` ${data} `,
    );
  }
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").includes(data);
  } catch {
    return false;
  }
}
