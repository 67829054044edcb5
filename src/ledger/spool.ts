import { randomInt } from "node:crypto";
import {
  closeSync,
  fdatasyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../platform/log.ts";
import { nextTurn } from "../platform/runtime.ts";
import type { Finish } from "./ledger_store.ts";

/**
 * Settlements on disk while the database is away. One line per settlement: ids and counts, no client text and no secrets. A
 * line is written with fsync before the client is told that its response is complete. Replay goes file by file, many lines at
 * once; the next one sends what is left of a file. Replaying a line twice, as after a restart, is harmless, because a hold ends once.
 *
 * A process that starts takes over the files that it finds, by renaming them. The process that wrote them may still run, as during a
 * restart. It then notices that its file is no longer there, and writes the same lines to another one.
 *
 * Files are read and written synchronously: asynchronous calls wait for a thread of the runtime's pool, behind whatever else is there. The
 * spool pauses after a write for as long as the write took, so that it takes at most half of the event loop's time.
 */

const RETRY_MS = 1000;
/** Lines replayed at once: the ledger commits them together. */
const REPLAYED_AT_ONCE = 500;
/** The replay ends after this many consecutive lots in which every line failed. (One locked account must not end it.) */
const LOTS_FAILED_MAX = 3;
/** The largest file: a replay reads a whole file into memory. */
const FILE_BYTES_MAX = 8 * 1024 * 1024;
const FILE_NAME = /^\d{15}-[\w-]+\.spool$/;
const ASIDE_NAME = "aside.jsonl";

export type Spool = {
  /** Resolves when the settlement is on disk. Retries while the disk fails. */
  add(finish: Finish): Promise<void>;
  /** Writes a settlement that the database rejects to a file for the operator. */
  setAside(finish: Finish): Promise<void>;
  /**
   * Calls `apply` for every settlement, the oldest file first; if the disk fails, also for those that wait for it in memory.
   * Returns how many succeeded. Throws the first error of `apply` after all were tried, or too many failed. Failed ones stay.
   */
  replay(apply: (finish: Finish) => Promise<void>): Promise<number>;
  /** Whether there is no settlement on disk or waiting for it. */
  empty(): boolean;
  /** `settlements` includes those that wait for the disk. */
  waiting(): { bytes: number; settlements: number };
  /** Settlements that were set aside in this folder, also before a restart. */
  aside(): number;
  /** Whether there is room and the disk works. */
  ready(): boolean;
};

type SpoolOptions = {
  /** One replica's own folder. */
  directory: string;
  /** Above this the spool is not ready, and the replica admits no new work. Settlements are still written. */
  bytesMax: number;
  /** Unix time in ms when the process started: it orders the files. */
  startedMs: number;
  log: Log;
};

/** Opens the spool. Takes over and reads the files that another process left. */
export async function openSpool(options: SpoolOptions): Promise<Spool> {
  const { directory, startedMs } = options;
  mkdirSync(directory, { recursive: true });
  const names = namesFrom(startedMs);
  const files = new Map<string, Size>();
  for (const found of readdirSync(directory)
    .filter((name) => FILE_NAME.test(name))
    .sort()) {
    const name = names();
    const isTaken = orAbsent(() => renameSync(join(directory, found), join(directory, name))) !== ABSENT;
    if (isTaken) files.set(name, sizeOf(textOf(join(directory, name))));
  }
  const { lines } = sizeOf(textOf(join(directory, ASIDE_NAME)));
  return new DiskSpool(options, { names, files, aside: lines });
}

/**
 * Names of files, in ascending order; no other process makes the same. Only digits: a replica of an older release, as after a return
 * to it, reads no other names.
 */
function namesFrom(startedMs: number): () => string {
  const started = `${String(startedMs).padStart(15, "0")}-${String(randomInt(10 ** 10)).padStart(10, "0")}`;
  let sequence = 0;
  return () => `${started}${String(sequence++).padStart(6, "0")}.spool`;
}

class DiskSpool implements Spool {
  readonly #options: SpoolOptions;
  /** The files on disk, oldest first. */
  readonly #files: Map<string, Size>;
  /** Of files that were not replayed completely: the places of the settlements that were. */
  readonly #replayed = new Map<string, Set<number>>();
  readonly #nextName: () => string;
  #aside: number;
  /** The file being written; undefined: the next write begins one. */
  #writing: string | undefined;
  /** Settlements that are not on disk yet. */
  readonly #queue = new Set<Waiting>();
  #flushing = false;
  #diskFailed = false;
  #replaying: Promise<number> | undefined;

  constructor(
    options: SpoolOptions,
    { names, files, aside }: { names: () => string; files: Map<string, Size>; aside: number },
  ) {
    this.#options = options;
    this.#nextName = names;
    this.#files = files;
    this.#aside = aside;
  }

  add(finish: Finish): Promise<void> {
    return new Promise((done) => {
      this.#queue.add({ finish, done });
      if (!this.#flushing) void this.#flush();
    });
  }

  async setAside(finish: Finish): Promise<void> {
    append(this.#pathOf(ASIDE_NAME), toLine(finish));
    this.#aside++;
  }

  replay(apply: (finish: Finish) => Promise<void>): Promise<number> {
    this.#replaying ??= this.#replayFiles(apply).finally(() => {
      this.#replaying = undefined;
    });
    return this.#replaying;
  }

  empty(): boolean {
    return this.#files.size === 0 && this.#queue.size === 0;
  }

  waiting(): { bytes: number; settlements: number } {
    const { bytes, lines } = sum(this.#files.values());
    return { bytes, settlements: lines + this.#queue.size };
  }

  aside(): number {
    return this.#aside;
  }

  ready(): boolean {
    return !this.#diskFailed && sum(this.#files.values()).bytes < this.#options.bytesMax;
  }

  async #flush(): Promise<void> {
    this.#flushing = true;
    // After a failure, tries until the disk works again, even if nothing waits any more.
    while (this.#queue.size > 0 || this.#diskFailed) {
      await nextTurn(); // What ends in this turn shares a write.
      if (this.#writing !== undefined && (this.#files.get(this.#writing)?.bytes ?? 0) >= FILE_BYTES_MAX)
        this.#writing = undefined;
      this.#writing ??= this.#nextName();
      await this.#write(this.#writing);
    }
    this.#flushing = false;
  }

  /** Writes all that waits. If the disk fails, waits a moment. */
  async #write(name: string): Promise<void> {
    const batch = [...this.#queue];
    const before = this.#files.get(name) ?? EMPTY;
    this.#files.set(name, before);
    const text = batch.map(({ finish }) => toLine(finish)).join("") || "\n";
    try {
      const startMs = performance.now();
      const now = sum([before, sizeOf(text)]);
      if (append(this.#pathOf(name), text) < now.bytes) return this.#wasTaken(name);
      this.#files.set(name, now);
      this.#diskFailed = false;
      for (const settlement of batch) this.#leave(settlement);
      if (batch.length === 0) this.#discard(name);
      await sleep(performance.now() - startMs);
    } catch (error) {
      const { log } = this.#options;
      if (!this.#diskFailed)
        log.error({ err: error }, "the spool cannot write to its disk; settlements wait in memory");
      this.#diskFailed = true;
      // A line may be half written: the next attempt uses a new file, and the replay skips a torn last line.
      this.#writing = undefined;
      if (before === EMPTY) this.#discard(name);
      await sleep(RETRY_MS);
    }
  }

  /**
   * A process that has started meanwhile replays the file. It may have read it before the last lines were written, so they are written to
   * another one.
   */
  #wasTaken(name: string): void {
    const { log } = this.#options;
    log.warn({ file: name }, "another process uses the spool's folder: each replica needs its own");
    this.#writing = undefined;
    this.#discard(name);
  }

  /** It is on disk or in the database. */
  #leave(settlement: Waiting): void {
    if (this.#queue.delete(settlement)) settlement.done();
  }

  /** Deletes a file that is empty, or whose lines will be written to another file. */
  #discard(name: string): void {
    try {
      rmSync(this.#pathOf(name), { force: true });
      this.#files.delete(name);
    } catch (error) {
      const { log } = this.#options;
      log.warn({ err: error, file: name }, "a torn spool file could not be deleted; it stays until the next replay");
    }
  }

  async #replayFiles(apply: (finish: Finish) => Promise<void>): Promise<number> {
    const names = [...this.#files.keys()];
    // New settlements go to another file.
    this.#writing = undefined;
    const run = createReplay(apply);
    for (const name of names) {
      const replayed = this.#replayed.get(name) ?? new Set<number>();
      this.#replayed.set(name, replayed);
      const finishes = this.#finishesIn(textOf(this.#pathOf(name)), name);
      const waiting = finishes.map((finish, place) => ({ finish, done: () => void replayed.add(place) }));
      if (!(await run.apply(waiting.filter((_, place) => !replayed.has(place))))) continue;
      rmSync(this.#pathOf(name), { force: true });
      this.#files.delete(name);
      this.#replayed.delete(name);
    }
    // Settlements that wait for a failed disk can be replayed from memory.
    if (this.#diskFailed) {
      const waiting = [...this.#queue];
      await run.apply(waiting.map((settlement) => ({ ...settlement, done: () => this.#leave(settlement) })));
    }
    return run.result();
  }

  #finishesIn(text: string, file: string): Finish[] {
    return text.split("\n").flatMap((line) => {
      const finish = line === "" ? [] : fromLine(line);
      if (finish === undefined)
        this.#options.log.error({ file }, "skipped a torn line in the spool: its hold is released when its lease ends");
      return finish ?? [];
    });
  }

  #pathOf(name: string): string {
    return join(this.#options.directory, name);
  }
}

/** A settlement to be written to the disk, or replayed. */
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

/** One replay: many at a time, continuing after failures. */
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
    /** Whether all succeeded. Throws when too many lots have failed. */
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
    /** How many succeeded. Throws the first failure. */
    result(): number {
      if (failure) throw failure.reason;
      return taken;
    },
  };
}

/** A file's text; empty if there is no such file. */
function textOf(path: string): string {
  const text = orAbsent(() => readFileSync(path, "utf8"));
  return text === ABSENT ? "" : text;
}

const ABSENT = Symbol("no such file");

function orAbsent<T>(work: () => T): T | typeof ABSENT {
  try {
    return work();
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return ABSENT;
    throw error;
  }
}

/** Appends to a file. Returns its size, once the text is on disk; 0: the file was renamed meanwhile. */
function append(path: string, text: string): number {
  const file = openSync(path, "a", 0o600);
  try {
    writeFileSync(file, text);
    fdatasyncSync(file);
    return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  } finally {
    closeSync(file);
  }
}

function toLine(finish: Finish): string {
  const { chargeNanoUsd, heldNanoUsd, costNanoUsd, providerCostNanoUsd } = finish;
  const amounts = {
    chargeNanoUsd: String(chargeNanoUsd),
    heldNanoUsd: String(heldNanoUsd),
    costNanoUsd: costNanoUsd === null ? null : String(costNanoUsd),
    providerCostNanoUsd: providerCostNanoUsd === null ? null : String(providerCostNanoUsd),
  };
  return `${JSON.stringify({ ...finish, ...amounts })}\n`;
}

function fromLine(line: string): Finish | undefined {
  try {
    const read = JSON.parse(line);
    const amounts = {
      chargeNanoUsd: BigInt(read.chargeNanoUsd),
      heldNanoUsd: BigInt(read.heldNanoUsd),
      costNanoUsd: typeof read.costNanoUsd === "string" ? BigInt(read.costNanoUsd) : null,
      providerCostNanoUsd: typeof read.providerCostNanoUsd === "string" ? BigInt(read.providerCostNanoUsd) : null,
    };
    // A replica that did not know further counts, markups or who answered may have written the line.
    return { furtherCounts: null, markupBasisPoints: 0, routeId: null, firstMs: null, ...read, ...amounts };
  } catch {
    return undefined; // A crash during a write leaves a torn last line. The caller logs it.
  }
}
