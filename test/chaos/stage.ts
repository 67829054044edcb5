import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import postgres from "postgres";
import { type Service, startPostgres, startRedis } from "../../scripts/services.ts";
import { freePort } from "../../src/demo/free_port.ts";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { redisBus } from "../../src/platform/bus.ts";
import { encrypt } from "../../src/platform/crypto.ts";
import { type Db, isPassing } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { type FakeProvider, startFakeProvider } from "../fake_provider.ts";
import type { Random } from "../random.ts";
import { isFrozen, type ReplicaProcess, startReplicaProcess, TEST_SECRET_KEY } from "../replica.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { createWorld, type ModelSpec, type World } from "../world.ts";
import type { Column, Finding } from "./checker.ts";

/**
 * The environment of a run: its own Postgres, Redis and two providers, and seats for replicas. A seat has a port, a
 * spool, a clock and connections to Postgres and Redis; the processes in it come and go.
 */

export const LEASE_SECONDS = 3;
const CALLS_KEPT_MAX = 1_000_000;
const BEHAVIOURS_AT_ONCE_MAX = 6;
const POSTGRES_CONNECTIONS_MAX = 100;
const START_TRIES_MAX = 4;
const TERM_MS_MAX = 60_000;
const BOOKS_MS_MAX = 120_000;
const BOOKS_AGAIN_MS = 150;
const PROVIDER_PACE_MS = 4;
const IMAGE_SIZE = "512x512";
const LAST_WORDS_CHARS = 500;

const REPLICA_ENV = {
  LEASE_SECONDS: String(LEASE_SECONDS),
  LEDGER_TIMEOUT_MS: "1800",
  DRAIN_SECONDS: "2",
  // A few settlements fill it.
  SPOOL_BYTES_MAX: "2048",
  RATE_PER_MINUTE: "100000",
  RATE_IN_FLIGHT: "10000",
  RATE_ACCOUNT_PER_MINUTE: "100000",
  RATE_TENANT_PER_MINUTE: "100000",
  ACCOUNT_SHARE: "1",
  TENANT_SHARE: "1",
  PROVIDER_CONNECT_MS: "2000",
  PROVIDER_FIRST_BYTE_MS: "6000",
  PROVIDER_IDLE_MS: "4000",
  PROVIDER_TOTAL_MS: "9000",
  CLIENT_IDLE_MS: "2500",
  LOG_LEVEL: "info",
  LOG_REQUESTS: "0", // It would be millions of lines, which the stage keeps.
};

/** Micro-USD per million tokens, and per image. */
export const PRICES = { input: 3_000_000n, output: 15_000_000n, image: 40_000n };
export const IMAGE = { model: "image-a", size: IMAGE_SIZE };

/** In the prompt of a stream that is too large for any buffer on its way. */
export const STOPPED_READER = "for a reader that stops";
const LARGE_EVENT_CHARS = 1_000_000;
const LARGE_EVENTS = 16;

/** Messages that a replica logs only if something is broken. */
const ALARMS = [
  '"level":"fatal"',
  "was ended twice",
  "the database rejected a row of the ledger",
  "the ledger refused to reserve a request",
  "a request failed",
  "UnhandledPromiseRejection",
  "Unhandled",
  "panic",
];

export type Stage = Awaited<ReturnType<typeof openStage>>;

/** Starts everything. `seats` replicas are running when it resolves. */
export async function openStage(seats: number, log: (line: string) => void) {
  // If this run is killed, the next run of the tests recognises the folder by its name and removes it.
  const folder = join(tmpdir(), `tollgate-${process.pid}-postgres-chaos`);
  mkdirSync(folder, { recursive: true });
  const findings: Finding[] = [];
  const note = (column: Column, what: string, about: Partial<Finding> = {}) => {
    const now = Date.now();
    findings.push({ column, what, fromMs: now, toMs: now, ...about });
  };

  const database = await ownPostgres(join(folder, "postgres"));
  const redis = await ownRedis();
  // The world opens its database on the server that the environment names.
  const givenUrl = process.env.DATABASE_URL;
  process.env.DATABASE_URL = database.url;
  const world = await createWorld();
  if (givenUrl === undefined) delete process.env.DATABASE_URL;
  else process.env.DATABASE_URL = givenUrl;
  const db = world.openDb();
  const bus = redisBus(redis.url, createLog("silent"));

  const provider = await startFakeProvider({ paceMs: PROVIDER_PACE_MS, journalCallsMax: CALLS_KEPT_MAX });
  const second = await startFakeProvider({ paceMs: PROVIDER_PACE_MS, journalCallsMax: CALLS_KEPT_MAX });
  const spoil = [spoilerOf(provider), spoilerOf(second)];
  // Set before the faulty behaviours, because the last rule is applied first.
  provider.when(({ body }) => body.includes(STOPPED_READER), largeStream());
  const providerWay = await startTcpProxy(provider.url);
  await prepareBooks(world, [
    { name: "first", baseUrl: `${providerWay.url}v1`, apiKey: provider.apiKey },
    { name: "second", baseUrl: second.baseUrl, apiKey: second.apiKey },
  ]);
  const env = {
    ...REPLICA_ENV,
    PROVIDER_ALLOW_PRIVATE: [providerWay.port, provider.port, second.port].map((port) => `127.0.0.1:${port}`).join(),
  };
  const replicas = await Promise.all(
    Array.from({ length: seats }, (_, index) => openSeat(index, { world, redisUrl: redis.url, env, note, log })),
  );
  let clockAheadSeconds = 0;
  // However this process ends, no replica stays behind; Postgres and Redis have guards of their own.
  const onExit = () => {
    for (const seat of replicas) seat.killNow();
  };
  let closing: Promise<void> | undefined;
  process.on("exit", onExit);
  await Promise.all(replicas.map((seat) => seat.start()));

  return {
    world,
    bus,
    database,
    redis,
    provider,
    second,
    providerWay,
    /** Makes a provider misbehave, the first or the second. */
    spoil,
    log,
    replicas,
    findings,
    note,

    /** Runs work on the books, and repeats it while Postgres is unreachable. Throws permanent errors, or after 40 s. */
    async books<T>(work: (db: Db) => Promise<T>): Promise<T> {
      const endsAt = performance.now() + BOOKS_MS_MAX;
      for (;;) {
        try {
          // A server that we have stopped need not be asked.
          if (database.isUp()) return await work(db);
        } catch (error) {
          if (!isPassing(error) || performance.now() > endsAt) throw error;
        }
        if (performance.now() > endsAt) throw new Error(`Postgres is not back after ${BOOKS_MS_MAX / 1000} s`);
        await sleep(BOOKS_AGAIN_MS);
      }
    },

    /** Sets the ledger's clock further ahead by this many seconds. */
    async advanceClock(seconds: number): Promise<void> {
      clockAheadSeconds += seconds;
      await world.sql.unsafe(
        `create or replace function ledger_now() returns timestamptz language sql volatile as
           $$ select clock_timestamp() + interval '${clockAheadSeconds} seconds' $$`,
      );
    },
    clockAheadSeconds: () => clockAheadSeconds,

    /** Keeps the logs for a person to read. Returns the folder. */
    keepLogs(name: string): string {
      const kept = join(tmpdir(), name);
      mkdirSync(kept, { recursive: true });
      for (const seat of replicas)
        seat.logs().forEach((text, life) => {
          writeFileSync(join(kept, `replica${seat.index}-${life}.log`), text);
        });
      return kept;
    },

    /** May be called again. */
    close(): Promise<void> {
      closing ??= close();
      return closing;
    },
  };

  async function close(): Promise<void> {
    database.thaw();
    redis.thaw();
    await Promise.all(replicas.map((seat) => seat.close()));
    await Promise.all([provider.stop(), second.stop(), providerWay.close()]);
    bus.close();
    // Not world.close(), which asks the server to drop the database: it may be down, and its folder goes anyway.
    await Promise.all([db.close(), world.sql.end({ timeout: 1 })]);
    await Promise.all([database.stop(), redis.stop()]);
    process.off("exit", onExit);
    for (const path of [folder, world.spoolDir]) rmSync(path, { recursive: true, force: true });
  }
}

/** Applies one of the behaviours to a share of the calls, until the returned function is called. */
export type Spoil = (share: number, behaviours: readonly Behaviour[], random: Random) => () => void;

function spoilerOf(provider: FakeProvider): Spoil {
  let spoil: { share: number; count: number; random: Random } | undefined;
  // Rules cannot be removed, so a fixed number of them is set, and their behaviours change.
  const slots: Behaviour[] = Array.from({ length: BEHAVIOURS_AT_ONCE_MAX }, () => ({}));
  slots.forEach((behaviour, index) => {
    provider.when(({ id, generation }) => {
      if (spoil === undefined || !generation) return false;
      const { share, count, random } = spoil;
      // Calls beyond the share stay normal: slots after `count` may still have an earlier fault's behaviour.
      return index < count && Math.floor((random.fork(`call ${id}`).next() / share) * count) === index;
    }, behaviour);
  });
  return (share, behaviours, random) => {
    behaviours.slice(0, slots.length).forEach((behaviour, index) => {
      const slot = slots[index] ?? {};
      for (const name of Object.keys(slot)) Reflect.deleteProperty(slot, name);
      Object.assign(slot, behaviour);
    });
    spoil = { share, count: Math.min(behaviours.length, slots.length), random };
    return () => {
      spoil = undefined;
    };
  };
}

function largeStream(): Behaviour {
  const chunk = (choice: object) =>
    `data: ${JSON.stringify({ id: "large", object: "chat.completion.chunk", choices: [choice] })}\n\n`;
  const event = chunk({ index: 0, delta: { content: "x".repeat(LARGE_EVENT_CHARS) }, finish_reason: null });
  const finish = chunk({ index: 0, delta: {}, finish_reason: "stop" });
  return { contentType: "text/event-stream", body: `${event.repeat(LARGE_EVENTS)}${finish}data: [DONE]\n\n` };
}

/** One life of a process in a seat. `endedMs` is Infinity while it runs, `leavingMs` until it is sent SIGTERM. */
export type Life = { startedMs: number; leavingMs: number; endedMs: number; end: "alive" | "killed" | "stopped" };
/** A time in which a process was stopped by a signal. */
export type Pause = { fromMs: number; toMs: number };
export type Seat = Awaited<ReturnType<typeof openSeat>>;

type SeatOptions = {
  world: World;
  redisUrl: string;
  env: Record<string, string>;
  note: (column: Column, what: string, about?: Partial<Finding>) => void;
  log: (line: string) => void;
};

async function openSeat(index: number, { world, redisUrl, env, note, log }: SeatOptions) {
  const postgresWay = await startTcpProxy(world.url);
  const redisWay = await startTcpProxy(redisUrl);
  const port = await freePort();
  const spoolDir = join(world.spoolDir, `replica${index}`);
  const clockFile = join(world.spoolDir, `clock${index}`);
  mkdirSync(spoolDir, { recursive: true });
  writeFileSync(clockFile, "0");
  const lives: Life[] = [];
  const pauses: Pause[] = [];
  const processes: { replica: ReplicaProcess; readTo: number }[] = [];
  /** The current process, and whether we have caused its end. */
  let running: ReplicaProcess | undefined;
  let doomed = false;
  let ended: Promise<void> = Promise.resolve();
  let starting: Promise<void> | undefined;
  let closed = false;

  function adopt(replica: ReplicaProcess): void {
    const never = Number.POSITIVE_INFINITY;
    const life: Life = { startedMs: Date.now(), leavingMs: never, endedMs: never, end: "alive" };
    lives.push(life);
    processes.push({ replica, readTo: 0 });
    running = replica;
    const child = replica.process;
    ended = new Promise((resolve) => {
      const onEnd = () => {
        life.endedMs = Date.now();
        // An unclean end leaves holds behind, as a kill does.
        life.end = child.exitCode === 0 ? "stopped" : "killed";
        running = undefined;
        resolve();
        if (doomed || closed) return;
        note(
          "broken",
          `replica ${index} ended by itself (${child.signalCode ?? child.exitCode}): ${lastWords(replica)}`,
        );
        // As a supervisor of replicas would.
        seat.start().catch((error) => note("broken", `replica ${index} does not start again: ${error}`));
      };
      if (child.exitCode !== null || child.signalCode !== null) onEnd();
      else child.once("exit", onEnd);
    });
  }

  async function launch(more: Record<string, string>): Promise<void> {
    for (let triesLeft = START_TRIES_MAX; ; triesLeft--) {
      try {
        const replica = await startReplicaProcess({ ...seatEnv(), ...more });
        doomed = more.FAILPOINTS?.includes("kill") ?? false;
        return adopt(replica);
      } catch (error) {
        if (triesLeft === 1 || closed) throw error;
        log(
          `replica ${index} did not start and is started again: ${String(error).replace(/\s+/g, " ").slice(-LAST_WORDS_CHARS)}`,
        );
        await sleep(500);
      }
    }
  }

  const seat = {
    index,
    port,
    spoolDir,
    lives,
    pauses,
    postgresWay,
    redisWay,
    isRunning: () => running !== undefined,
    isFrozen: () => running !== undefined && isFrozen(running),
    /** Resolves when the process that runs now has ended. */
    ended: () => ended,
    logs: () => processes.map(({ replica }) => replica.logged()),

    /** Starts a replica. With a failpoint that kills, it ends by itself, which is not a finding. */
    async start(more: Record<string, string> = {}): Promise<void> {
      if (running !== undefined || closed) return;
      starting ??= launch(more).finally(() => {
        starting = undefined;
      });
      await starting;
    },

    async kill(): Promise<void> {
      seat.killNow();
      await ended;
    },
    killNow(): void {
      doomed = true;
      running?.process.kill("SIGKILL");
    },
    freeze(): void {
      pauses.push({ fromMs: Date.now(), toMs: Number.POSITIVE_INFINITY });
      running?.process.kill("SIGSTOP");
    },
    /** Also after a freeze by a failpoint, which began at an unknown time since the start. */
    thaw(): void {
      running?.process.kill("SIGCONT");
      const pause = pauses.at(-1);
      if (pause?.toMs === Number.POSITIVE_INFINITY) pause.toMs = Date.now();
      else pauses.push({ fromMs: lives.at(-1)?.startedMs ?? 0, toMs: Date.now() });
    },

    /**
     * Sends SIGTERM, and returns the exit code. `twice`: sends it again immediately, so that the process does not
     * wait.
     */
    async term(twice = false): Promise<number | null> {
      doomed = true;
      const child = running?.process;
      const life = lives.at(-1);
      if (child === undefined || life === undefined) return null;
      life.leavingMs = Date.now();
      child.kill("SIGTERM");
      if (twice) {
        await sleep(100);
        child.kill("SIGTERM");
      }
      const inTime = await Promise.race([ended.then(() => true), sleep(TERM_MS_MAX).then(() => false)]);
      if (!inTime) {
        note("broken", `replica ${index} did not end within ${TERM_MS_MAX / 1000} s of SIGTERM`);
        await seat.kill();
      }
      return child.exitCode;
    },

    /** Sets this replica's clock ahead, or behind. */
    setClock: (aheadMs: number) => writeFileSync(clockFile, String(-aheadMs)),
    /** Files of settlements that wait. */
    spooled: () => (existsSync(spoolDir) ? readdirSync(spoolDir).filter((name) => name.endsWith(".spool")) : []),
    setAside: () => existsSync(join(spoolDir, "aside.jsonl")),

    /** Whether /readyz says yes within 2 s. */
    async isReady(): Promise<boolean> {
      return fetch(`http://localhost:${port}/readyz`, { signal: AbortSignal.timeout(2000) }).then(
        ({ status }) => status === 200,
        () => false,
      );
    },

    /** Reads what the log has said since the last time; alarms become findings. */
    readLog(): void {
      for (const entry of processes) {
        const text = entry.replica.logged();
        const end = text.lastIndexOf("\n") + 1;
        if (end <= entry.readTo) continue;
        for (const line of text.slice(entry.readTo, end).split("\n"))
          if (ALARMS.some((alarm) => line.includes(alarm)))
            note("broken", `replica ${index} logged: ${line.slice(0, 600)}`);
        entry.readTo = end;
      }
    },

    async close(): Promise<void> {
      closed = true;
      await starting?.catch(() => {}); // The starter has already reported it.
      await seat.kill();
      await Promise.all([postgresWay.close(), redisWay.close()]);
    },
  };

  function seatEnv(): Record<string, string> {
    return {
      ...env,
      PORT: String(port),
      DATABASE_URL: postgresWay.url,
      REDIS_URL: redisWay.url,
      SPOOL_DIR: spoolDir,
      CLOCK_BACK_FILE: clockFile,
      BUN_OPTIONS: `--preload=${join(import.meta.dirname, "../browser/moved_clock.ts")}`,
    };
  }
  return seat;
}

/** The end of what a process has logged. */
function lastWords(replica: ReplicaProcess): string {
  return replica.logged().trimEnd().split("\n").slice(-5).join(" | ").slice(-LAST_WORDS_CHARS);
}

/** A Postgres that can be crashed, frozen and started again, durable as in production. */
async function ownPostgres(dataDir: string) {
  const port = await freePort();
  const settings = { max_connections: POSTGRES_CONNECTIONS_MAX };
  let service: Service = await startPostgres({ dataDir, port, settings });
  const sql = postgres(service.url, { max: 1, onnotice: () => {} });
  let frozen: number[] = [];
  let isUp = true;
  const pids = async () => {
    const rows = await sql<{ pid: number }[]>`select pid from pg_stat_activity where pid <> pg_backend_pid()`;
    return [service.pid, ...rows.map(({ pid }) => pid)];
  };
  const signalAll = (all: readonly number[], signal: "SIGKILL" | "SIGSTOP" | "SIGCONT") => {
    for (const pid of all) {
      try {
        process.kill(pid, signal);
      } catch {
        // It ended in the meantime.
      }
    }
  };
  return {
    url: service.url,
    /** `whole`: SIGKILL to every process; else an immediate shutdown, as of pg_ctl stop -m immediate. */
    async crash(whole: boolean): Promise<void> {
      const all = await pids();
      isUp = false;
      if (whole) signalAll(all, "SIGKILL");
      else process.kill(service.pid, "SIGQUIT");
      await service.stop();
    },
    async start(): Promise<void> {
      service = await startPostgres({ dataDir, port, settings });
      isUp = true;
    },
    isUp: () => isUp,
    /** SIGSTOP to every process: connections are accepted, but nobody answers. */
    async freeze(): Promise<void> {
      frozen = await pids();
      signalAll(frozen, "SIGSTOP");
    },
    thaw(): void {
      signalAll(frozen, "SIGCONT");
      frozen = [];
    },
    async stop(): Promise<void> {
      await sql.end({ timeout: 1 });
      await service.stop();
    },
  };
}

async function ownRedis() {
  const port = await freePort();
  let service: Service | undefined = await startRedis({ port });
  const signal = (name: NodeJS.Signals) => {
    if (service) process.kill(service.pid, name);
  };
  return {
    url: service.url,
    freeze: () => signal("SIGSTOP"),
    thaw: () => signal("SIGCONT"),
    async kill(): Promise<void> {
      signal("SIGKILL");
      await service?.stop();
      service = undefined;
    },
    async start(): Promise<void> {
      service = await startRedis({ port });
    },
    async stop(): Promise<void> {
      await service?.stop();
    },
  };
}

/**
 * The catalog, and a record of every revocation, which is made within its own transaction, while its locks are held.
 */
async function prepareBooks(
  { sql, addProvider, addModels }: World,
  providers: { name: string; baseUrl: string; apiKey: string }[],
): Promise<void> {
  const secretKey = Buffer.from(TEST_SECRET_KEY, "base64");
  for (const { name, baseUrl, apiKey } of providers) await addProvider(name, baseUrl, encrypt(secretKey, apiKey));
  const [first = "", second = ""] = providers.map(({ name }) => name);
  const model = (id: string, ...through: string[]): ModelSpec => ({
    ...{ id, contextLength: 8192, defaultCapTokens: 1000, routes: through.map((provider) => ({ provider })) },
  });
  const prices = { inputMicroUsd: Number(PRICES.input), outputMicroUsd: Number(PRICES.output) };
  await addModels(
    { ...model("chat-a", first), ...prices },
    { ...model("chat-b", second), ...prices },
    { ...model("chat-two-routes", first, second), ...prices },
    model("chat-unpriced", first),
    { ...model(IMAGE.model, first), modality: "image", imagePrices: { [IMAGE.size]: Number(PRICES.image) } },
  );
  await sql`create table revoked_keys (key_id bigint, at timestamptz)`;
}

/** Records that a key's revocation has returned: from now on nothing may be granted for it. */
export async function noteRevoked({ sql }: World, keyId: number): Promise<void> {
  await sql`insert into revoked_keys values (${keyId}, ledger_now())`;
}

export const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
