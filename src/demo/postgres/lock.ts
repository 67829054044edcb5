/** PostgreSQL's lock file `postmaster.pid`: which server runs on a folder, and what a crash leaves of it. */
import { spawnSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { processExists } from "./owned_process.ts";

const lockFile = "postmaster.pid";
const pollMs = 20;
/** A predecessor whose parent was killed is on its way down: its guard notices at once. */
const predecessorWaitMs = 3_000;
const predecessorStoppingWaitMs = 30_000;

/**
 * Waits for an earlier server of this folder that is about to end; throws when it stays.
 * A lock file whose process number now belongs to something else is made harmless.
 */
export async function outlivePredecessor(data: string): Promise<void> {
  const startedAt = performance.now();
  for (;;) {
    const lock = readLockFile(data);
    if (!lock || lock.pid === process.pid) return;
    const isCutShort = !(lock.pid > 0);
    if (!isCutShort && !processExists(lock.pid)) return;
    if (!isCutShort && !isServerOf(data, lock.pid)) return disarmLockFile(data);
    const waitMs = lock.status === "stopping" ? predecessorStoppingWaitMs : predecessorWaitMs;
    if (performance.now() - startedAt > waitMs) {
      // A starting server fills its lock file at once: one that stays empty is what a power cut left.
      if (isCutShort) return rmSync(join(data, lockFile), { force: true });
      throw new Error(
        `${data} is in use by another PostgreSQL (process ${lock.pid}): stop that one, or use another folder.`,
      );
    }
    await sleep(pollMs);
  }
}

/**
 * PostgreSQL takes its parent's process number in the lock file for stale. Deleting the file would be wrong: it also names the
 * shared memory by which PostgreSQL sees that no child of the old server is left.
 */
function disarmLockFile(data: string): void {
  const path = join(data, lockFile);
  const [, ...rest] = readFileSync(path, "utf8").split("\n");
  writeFileSync(path, [process.pid, ...rest].join("\n"));
}

/** Line 1 of postmaster.pid is the process, line 8 the state. */
export function readLockFile(data: string): { pid: number; status: string } | null {
  try {
    const lines = readFileSync(join(data, lockFile), "utf8").split("\n");
    // A negative number is a single-user server's.
    return { pid: Math.abs(Number(lines[0])), status: (lines[7] ?? "").trim() };
  } catch {
    return null;
  }
}

/** Process numbers are used again: after a crash the number may by now belong to any program. */
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
