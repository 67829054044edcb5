import { mkdir, open, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Log } from "../platform/log.ts";
import type { Finish } from "./ledger_store.ts";

/**
 * Settlements that the database could not take, on disk until it can. A line a settlement: ids and counts, no text of a
 * client and no secret. Written with fsync before the client is told that its answer is complete; replayed file by file,
 * many lines at once, and a line replayed twice changes nothing, since a hold ends once.
 */

const RETRY_MS = 1000;
/** Lines that are replayed at once: the ledger commits them together. */
const REPLAYED_AT_ONCE = 500;
/** As many such lots that fail wholly, one after another, end a replay: one account whose lock is held must not. */
const LOTS_FAILED_MAX = 3;
/** A file that has grown to this is not written to any more: each is read whole when it is replayed. */
const FILE_BYTES_MAX = 8 * 1024 * 1024;
const FILE_NAME = /^\d{15}-\d+\.spool$/;
const ASIDE_NAME = "aside.jsonl";

export type Spool = {
  /** Resolves when the settlement is on disk. Keeps trying while the disk refuses. */
  add(finish: Finish): Promise<void>;
  /** Puts a settlement that the ledger refuses where a person will find it. */
  setAside(finish: Finish): Promise<void>;
  /**
   * Hands every waiting settlement to `apply`, the oldest file first, and what the disk refuses straight from memory. Returns
   * how many were taken; throws what `apply` threw first, once all have been tried or too many failed. What failed stays.
   */
  replay(apply: (finish: Finish) => Promise<void>): Promise<number>;
  /** Whether nothing waits. */
  empty(): boolean;
  /** Bytes on disk; settlements on disk, and those that wait for it. */
  waiting(): { bytes: number; settlements: number };
  /** Settlements that were set aside in this folder, of former lives too. */
  aside(): number;
  /** Whether there is room, and the disk takes writes. */
  ready(): boolean;
};

type SpoolOptions = {
  /** Of one replica alone. */
  directory: string;
  /** Beyond this the spool is not ready: no new work is taken. What has to be written still is. */
  bytesMax: number;
  /** Unix time in ms: it orders the files of a replica's lives. */
  startedMs: number;
  log: Log;
};

/** Opens the spool. */
export async function openSpool({ directory, bytesMax, startedMs, log }: SpoolOptions): Promise<Spool> {
  await mkdir(directory, { recursive: true });
  /** What waits on disk, oldest first, by file. */
  const files = new Map<string, Size>();
  for (const name of (await readdir(directory)).filter((name) => FILE_NAME.test(name)).sort())
    files.set(name, sizeOf(await textOf(join(directory, name))));
  let { lines: aside } = sizeOf(await textOf(join(directory, ASIDE_NAME)));
  let sequence = 0;
  /** The file that is written to now; undefined: the next write begins one. */
  let writing: string | undefined;
  const queue = new Set<Waiting>();
  let flushing = false;
  /** The one write under way. */
  let appending: Promise<void> | undefined;
  let diskFailed = false;
  let replaying: Promise<number> | undefined;

  async function flush(): Promise<void> {
    flushing = true;
    // A disk that failed is asked until it takes writes again, also when the ledger has taken what waited.
    while (queue.size > 0 || diskFailed) {
      const batch = [...queue];
      if (writing !== undefined && (files.get(writing)?.bytes ?? 0) >= FILE_BYTES_MAX) writing = undefined;
      writing ??= nextName();
      const name = writing;
      const before = files.get(name) ?? EMPTY;
      files.set(name, before);
      const text = batch.map(({ finish }) => toLine(finish)).join("") || "\n";
      try {
        appending = append(join(directory, name), text);
        await appending;
        files.set(name, sum([before, sizeOf(text)]));
        diskFailed = false;
        for (const settlement of batch) leave(settlement);
        if (batch.length === 0) await discard(name);
      } catch (error) {
        if (!diskFailed) log.error({ err: error }, "the spool's disk refuses writes; settlements wait in memory");
        diskFailed = true;
        // A line may be half written: the next try takes a fresh file, and replay passes over a torn last line.
        writing = undefined;
        if (before === EMPTY) await discard(name);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    flushing = false;
  }

  /** It is on disk, or the ledger has taken it. */
  function leave(settlement: Waiting): void {
    if (queue.delete(settlement)) settlement.done();
  }

  /** Lets go of a file that says nothing, or whose every line is written anew elsewhere. */
  async function discard(name: string): Promise<void> {
    try {
      await rm(join(directory, name), { force: true });
      files.delete(name);
    } catch (error) {
      log.warn({ err: error, file: name }, "a torn file of the spool stays until it is replayed");
    }
  }

  function nextName(): string {
    return `${String(startedMs).padStart(15, "0")}-${String(sequence++).padStart(6, "0")}.spool`;
  }

  async function replayFiles(apply: (finish: Finish) => Promise<void>): Promise<number> {
    const whole = [...files.keys()];
    // What is written from now on goes into another file. The write under way is waited for, but not one that the disk
    // refuses again and again: to replay may be what makes room on it.
    writing = undefined;
    await appending?.catch(() => {}); // `flush` tells of it.
    const run = createReplay(apply);
    for (const name of whole) {
      const path = join(directory, name);
      const finishes = finishesIn(await textOf(path), name);
      if (!(await run.apply(finishes.map((finish) => ({ finish, done() {} }))))) continue;
      await rm(path, { force: true });
      files.delete(name);
    }
    // What the disk refuses need not wait for it.
    if (diskFailed) await run.apply([...queue].map((settlement) => ({ ...settlement, done: () => leave(settlement) })));
    return run.result();
  }

  function finishesIn(text: string, file: string): Finish[] {
    return text.split("\n").flatMap((line) => {
      const finish = line === "" ? [] : fromLine(line);
      if (finish === undefined)
        log.error({ file }, "a torn line in the spool is passed over: its hold is released when its lease ends");
      return finish ?? [];
    });
  }

  return {
    add(finish) {
      return new Promise((done) => {
        queue.add({ finish, done });
        if (!flushing) void flush();
      });
    },
    async setAside(finish) {
      await append(join(directory, ASIDE_NAME), toLine(finish));
      aside++;
    },
    replay(apply) {
      replaying ??= replayFiles(apply).finally(() => {
        replaying = undefined;
      });
      return replaying;
    },
    empty: () => files.size === 0 && queue.size === 0,
    waiting() {
      const { bytes, lines } = sum(files.values());
      return { bytes, settlements: lines + queue.size };
    },
    aside: () => aside,
    ready: () => !diskFailed && sum(files.values()).bytes < bytesMax,
  };
}

/** A settlement that is not on disk yet. */
type Waiting = { finish: Finish; done: () => void };

type Size = { bytes: number; lines: number };
const EMPTY: Size = { bytes: 0, lines: 0 };

function sizeOf(text: string): Size {
  return { bytes: Buffer.byteLength(text), lines: text.split("\n").length - 1 };
}

function sum(sizes: Iterable<Size>): Size {
  let { bytes, lines } = EMPTY;
  for (const size of sizes) {
    bytes += size.bytes;
    lines += size.lines;
  }
  return { bytes, lines };
}

/** One replay: many at a time, and on past those that fail. */
function createReplay(apply: (finish: Finish) => Promise<void>) {
  let taken = 0;
  let lotsFailed = 0;
  let failure: { reason: unknown } | undefined;

  async function take({ finish, done }: Waiting): Promise<void> {
    await apply(finish);
    done();
    taken++;
  }

  return {
    /** Whether all were taken. Throws once too many lots have failed. */
    async apply(settlements: readonly Waiting[]): Promise<boolean> {
      let allTaken = true;
      for (let i = 0; i < settlements.length; i += REPLAYED_AT_ONCE) {
        const results = await Promise.allSettled(settlements.slice(i, i + REPLAYED_AT_ONCE).map(take));
        const failed = results.filter((result) => result.status === "rejected");
        failure ??= failed[0];
        if (failed.length > 0) allTaken = false;
        lotsFailed = failed.length === results.length ? lotsFailed + 1 : 0;
        if (failure && lotsFailed >= LOTS_FAILED_MAX) throw failure.reason;
      }
      return allTaken;
    },
    /** How many were taken. Throws the first failure. */
    result(): number {
      if (failure) throw failure.reason;
      return taken;
    },
  };
}

/** A file's text; none where the disk refused to make the file at all. */
async function textOf(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return "";
    throw error;
  }
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
