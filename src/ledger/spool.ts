import { mkdir, open, readdir, readFile, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import type { Log } from "../platform/log.ts";
import type { Finish } from "./ledger_store.ts";

/**
 * Settlements that the database could not take, on disk until it can. A line a settlement: ids and counts, no text of a
 * client and no secret. Written with fsync before the client is told that its answer is complete; replayed in order,
 * and a line replayed twice changes nothing, since a hold ends once.
 */

/** Beyond this the replica says that it is not ready, and takes no new work. */
const BYTES_MAX = 256 * 1024 * 1024;
const RETRY_MS = 1000;
const FILE_NAME = /^\d{15}-\d+\.spool$/;
const ASIDE_NAME = "aside.jsonl";

export type Spool = {
  /** Resolves when the settlement is on disk. Keeps trying while the disk refuses. */
  add(finish: Finish): Promise<void>;
  /** Puts a settlement that the ledger refuses where a person will find it. */
  setAside(finish: Finish): Promise<void>;
  /** Hands every waiting settlement to `apply`, oldest first. Stops at the first that throws; what is left stays. */
  replay(apply: (finish: Finish) => Promise<void>): Promise<number>;
  /** Whether nothing waits. */
  empty(): boolean;
  /** Whether there is room, and the disk takes writes. */
  ready(): boolean;
};

/** Opens the spool in `directory`, which belongs to one replica. `startedMs` (Unix time) orders the files of its lives. */
export async function openSpool({
  directory,
  startedMs,
  log,
}: {
  directory: string;
  startedMs: number;
  log: Log;
}): Promise<Spool> {
  await mkdir(directory, { recursive: true });
  let files = (await readdir(directory)).filter((name) => FILE_NAME.test(name)).sort();
  let bytes = 0;
  for (const name of files) bytes += (await stat(join(directory, name))).size;
  let sequence = 0;
  /** The file that is written to now; undefined: the next write begins one. */
  let writing: string | undefined;
  let queue: { line: string; done: () => void }[] = [];
  let flushing: Promise<void> | undefined;
  let diskFailed = false;
  let replaying: Promise<number> | undefined;

  async function flush(): Promise<void> {
    while (queue.length > 0) {
      const batch = queue;
      queue = [];
      writing ??= nextName();
      const name = writing;
      if (!files.includes(name)) files = [...files, name];
      const text = batch.map(({ line }) => line).join("");
      try {
        await append(join(directory, name), text);
        bytes += text.length;
        diskFailed = false;
        for (const { done } of batch) done();
      } catch (error) {
        if (!diskFailed) log.error({ err: error }, "the spool's disk refuses writes; settlements wait in memory");
        diskFailed = true;
        queue = [...batch, ...queue];
        // A line may be half written: the next try takes a fresh file, and replay passes over a torn last line.
        writing = undefined;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    flushing = undefined;
  }

  function nextName(): string {
    return `${String(startedMs).padStart(15, "0")}-${String(sequence++).padStart(6, "0")}.spool`;
  }

  async function replayFiles(apply: (finish: Finish) => Promise<void>): Promise<number> {
    // What is written from now on goes into another file.
    while (flushing) await flushing;
    writing = undefined;
    let count = 0;
    for (const name of files) {
      const path = join(directory, name);
      const text = await readFile(path, "utf8");
      for (const line of text.split("\n")) {
        if (line === "") continue;
        const finish = fromLine(line);
        if (finish === undefined) {
          log.error(
            { file: name },
            "a torn line in the spool is passed over: its hold is released when its lease ends",
          );
          continue;
        }
        await apply(finish);
        count++;
      }
      await unlink(path);
      bytes -= Buffer.byteLength(text);
      files = files.filter((other) => other !== name);
    }
    return count;
  }

  return {
    add(finish) {
      return new Promise((done) => {
        queue.push({ line: toLine(finish), done });
        flushing ??= flush();
      });
    },
    setAside: (finish) => append(join(directory, ASIDE_NAME), toLine(finish)),
    replay(apply) {
      replaying ??= replayFiles(apply).finally(() => {
        replaying = undefined;
      });
      return replaying;
    },
    empty: () => files.length === 0 && queue.length === 0,
    ready: () => !diskFailed && bytes < BYTES_MAX,
  };
}

async function append(path: string, text: string): Promise<void> {
  const file = await open(path, "a", 0o600);
  try {
    await file.writeFile(text);
    await file.datasync();
  } finally {
    await file.close();
  }
}

function toLine(finish: Finish): string {
  return `${JSON.stringify({ ...finish, chargeNanoUsd: String(finish.chargeNanoUsd) })}\n`;
}

function fromLine(line: string): Finish | undefined {
  try {
    const read = JSON.parse(line);
    return { ...read, chargeNanoUsd: BigInt(read.chargeNanoUsd) };
  } catch {
    return undefined; // A crash in the middle of a write leaves a torn last line; the caller says so.
  }
}
