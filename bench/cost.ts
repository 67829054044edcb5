import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Redis } from "ioredis";
import { UNFOLDED_RECORDS } from "../src/books/usage_rollups_store.ts";
import { connect, type Sql } from "../src/platform/db.ts";
import { command, type Flags } from "./command.ts";
import { booksOf, type Contender, GATEWAY_SETTINGS, type Shop, startContender, startProvider } from "./contenders.ts";
import { cpuMs } from "./cpu.ts";
import { perCore, rangeOf } from "./figures.ts";
import type { GeneratorQuestion, GeneratorReply, Job } from "./generator.ts";
import { type Helper, startHelper } from "./helper.ts";
import { disturbances, machine } from "./machine.ts";
import { asMarkdown, asText } from "./report.ts";
import { openServerMeter, type ServerMeter } from "./server_meter.ts";
import { type BenchServices, startBenchServices } from "./servers.ts";
import { writeFigures } from "./written.ts";

/**
 * `bun run bench:cost`: the full cost of one request: a real replica over HTTP, one request at a time and 256
 * concurrently, against a provider that answers immediately. Everything is counted, not estimated: WAL and rows by
 * Postgres, commands by Redis, CPU by the
 * kernel. Ends with 1 when an answer was wrong or the books differ. CPU is read from /proc: Linux only.
 */

const CONCURRENCY = [1, 256] as const;
/** Less than this says nothing about how many requests a core carries. */
const MEASURED_US_MIN = 0.5;
const REPLY_MS_MAX = 120_000;
const BODY_BYTES = 1024;
/** A backend reports its statistics when it has been idle for this long, or with its next transaction. */
const TOLD_MS_MAX = 30_000;
const TOLD_LOOK_MS = 250;
/** Work that a replica also does without requests: reading changes, leases, heartbeats. */
const IDLE_MS = 5_000;
const WARM_MS = 1_000;
const AT_A_SECOND = 1_000;
const SECONDS_A_DAY = 86_400;
const WHOLE = { rounds: 3, runMs: 5_000 } as const;
const QUICK = { rounds: 1, runMs: 2_000 } as const;

type Counts = {
  /** CPU of all Postgres's processes; null: they are not on this machine. */
  postgresMs: number | null;
  walBytes: number;
  commits: number;
  transactions: number;
  rows: Record<string, number>;
  /** Calls, including the commands of scripts. */
  redis: Record<string, number>;
  /** How often Redis read from a socket: commands that are sent together are read together. */
  redisReads: number;
};
type Cost = {
  concurrency: number;
  round: number;
  counts: Counts;
  /** While it was measured, of the gateway and of Redis. */
  cpuMs: Record<string, number | null>;
  reply: GeneratorReply;
};
type Stage = {
  services: BenchServices;
  redis: Redis;
  generator: Helper<GeneratorQuestion, GeneratorReply | "held">;
  replica: Contender;
  shop: Shop;
  meter: ServerMeter;
  sql: Sql;
  pids: Record<string, number>;
};

const host = machine();
const head = ["a request", ...CONCURRENCY.map((n) => `${n} in flight`)];

await command("cost", async (flags, atEnd) => {
  const services = await startBenchServices(false, say);
  atEnd(services.stop);
  process.env.DATABASE_URL = services.databaseUrl;
  const redis = new Redis(services.redisUrl);
  atEnd(async () => redis.disconnect());
  const provider = await startProvider({ BENCH_BREAKS_ONE_IN: "1000000000" });
  atEnd(provider.helper.stop);
  const generatorFile = join(import.meta.dirname, "generator.ts");
  const { helper: generator } = await startHelper<GeneratorQuestion, GeneratorReply | "held", object>(
    generatorFile,
    {},
  );
  atEnd(generator.stop);
  const replica = await startContender("tollgate", { provider, redisUrl: services.redisUrl, profileDir: undefined });
  atEnd(replica.stop);
  const shop = replica.shop as Shop;
  const meter = openServerMeter(shop.databaseUrl, services.postgresPid);
  const sql = connect({ databaseUrl: shop.databaseUrl, dbPrepare: true }, 1);
  atEnd(() => Promise.all([meter.close(), sql.end({ timeout: 5 })]));
  const pids = {
    gateway: replica.pid as number,
    ...(services.redisPid !== null && { redis: services.redisPid }),
  };
  return await run({ services, redis, generator, replica, shop, meter, sql, pids }, flags);
});

function say(line: string): void {
  console.error(line);
}

/** False when the books differ. Throws when an answer was wrong. */
async function run(stage: Stage, flags: Flags): Promise<boolean> {
  const lacks = [...disturbances(host), ...stage.services.missing];
  for (const line of lacks) say(`note: ${line}`);
  const { rounds, runMs } = flags.isQuick ? QUICK : WHOLE;
  let good = (await ask(stage, 64, WARM_MS)).good; // Code is compiled, caches are warm.
  say("what the replica does without requests");
  const idle = await measureIdle(stage);
  const costs: Cost[] = [];
  for (let round = 1; round <= rounds; round++) {
    for (const concurrency of round % 2 === 1 ? CONCURRENCY : CONCURRENCY.toReversed()) {
      const [before, beganMs] = [await countsOf(stage), performance.now()];
      const reply = await ask(stage, concurrency, runMs);
      const after = await countsOf(stage);
      good += reply.good;
      const idleShare = (performance.now() - beganMs) / idle.ms;
      const counts = minus(minus(after, before), idle.counts, idleShare);
      const cpu = minusEach(reply.cpuMs, idle.cpuMs, (reply.seconds * 1000) / idle.ms);
      costs.push({ concurrency, round, counts, cpuMs: cpu, reply });
      const perSecond = (reply.measured / reply.seconds).toFixed(0);
      say(`round ${round} of ${rounds}: ${concurrency} in flight: ${perSecond} requests a second`);
    }
  }
  const books = await booksOf(stage.shop);
  const broken = await stage.shop.world.unbalanced();
  const agree = books.units === good && books.records === good && books.holds === 0 && broken.length === 0;
  const differs = agree ? "" : `${good} good answers, ${JSON.stringify(books)}, ${broken.join("; ")}`;
  show({ costs, lacks, differs, about: stage.services.about, recordBytes: await recordBytes(stage.sql) }, flags);
  return agree;
}

async function ask(
  { generator, replica, shop, pids }: Stage,
  inFlight: number,
  runMs: number,
): Promise<GeneratorReply> {
  const job: Job = {
    ...{ port: replica.port, host: replica.host, secrets: shop.secrets, inFlight, bodyBytes: BODY_BYTES, status: 200 },
    ...{ plan: { delayMs: 0, chunks: 0, everyMs: 0 }, warmMs: 300, runMs, answersMin: 1, held: false },
    ...{ gatewayPid: null, pids },
  };
  const reply = await generator.ask({ kind: "run", job }, REPLY_MS_MAX);
  if (reply === "held") throw new Error("the generator held what it should have measured");
  if (reply.problems.length > 0) throw new Error(reply.problems.join("\n"));
  return reply;
}

type Idle = { ms: number; counts: Counts; cpuMs: Record<string, number | null> };

async function measureIdle(stage: Stage): Promise<Idle> {
  const [countsBefore, cpuBefore, beganMs] = [await countsOf(stage), cpuMs(stage.pids), performance.now()];
  await Bun.sleep(IDLE_MS);
  const counts = minus(await countsOf(stage), countsBefore);
  return { ms: performance.now() - beganMs, counts, cpuMs: minusEach(cpuMs(stage.pids), cpuBefore) };
}

async function countsOf({ sql, meter, redis }: Stage): Promise<Counts> {
  await told(sql);
  const { walBytes, commits, cpuMs } = await meter.read();
  return {
    postgresMs: cpuMs,
    walBytes,
    commits,
    ...(await rowsAndTransactions(sql)),
    redis: await redisCalls(redis),
    redisReads: await redisReads(redis),
  };
}

/** The bytes of a usage record on disk, with its indexes. */
async function recordBytes(sql: Sql): Promise<number> {
  const [row] = await sql`
    select sum(pg_total_relation_size(inhrelid))::float8 / (select count(*) from receipts) as bytes
    from pg_inherits where inhparent = 'receipts'::regclass`;
  return Number(row?.bytes);
}

/** Waits until the statistics contain all receipts, and the rollups too. */
async function told(sql: Sql): Promise<void> {
  const lastMs = performance.now() + TOLD_MS_MAX;
  const [row] = await sql`select count(*)::float8 as receipts from receipts`;
  // Statistics of other tables come in the same message as those of the receipts; one more read covers the rest.
  for (let looksAlike = 0; looksAlike < 2; ) {
    const [now] = await sql`
      select exists (select from ${sql.unsafe(UNFOLDED_RECORDS)} tail) as is_behind,
        (select sum(n_tup_ins) from pg_stat_user_tables where relname like 'receipts%')::float8 as told`;
    looksAlike = now?.told === row?.receipts && now?.is_behind === false ? looksAlike + 1 : 0;
    if (looksAlike === 0 && performance.now() > lastMs)
      throw new Error(
        `Postgres has told of ${now?.told} receipts, there are ${row?.receipts}; ${now?.is_behind ? "not " : ""}all are summed up`,
      );
    await Bun.sleep(TOLD_LOOK_MS);
  }
}

async function rowsAndTransactions(sql: Sql): Promise<Pick<Counts, "rows" | "transactions">> {
  const tables = await sql`
    select relname as name, (n_tup_ins + n_tup_upd + n_tup_del)::float8 as n from pg_stat_user_tables`;
  const [row] = await sql`select xact_commit::float8 as n from pg_stat_database where datname = current_database()`;
  const rows: Record<string, number> = {};
  for (const { name, n } of tables) {
    const table = String(name).replace(/^receipts_\d+_\d+$/, "receipts");
    rows[table] = (rows[table] ?? 0) + Number(n);
  }
  return { rows, transactions: Number(row?.n) };
}

async function redisCalls(redis: Redis): Promise<Record<string, number>> {
  const lines = (await redis.info("commandstats")).matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm);
  const calls = [...lines].map(([, command, n]) => [String(command), Number(n)] as const);
  return Object.fromEntries(calls.filter(([command]) => command !== "info"));
}

/** a − share × b, name by name; values that were not measured stay unknown. */
function minusEach<N extends number | null>(a: Record<string, N>, b: Record<string, N>, share = 1): Record<string, N> {
  const pairs = Object.keys(a).map((name) => {
    const value = a[name] ?? null;
    return [name, value === null ? null : value - share * (b[name] ?? 0)];
  });
  return Object.fromEntries(pairs);
}

async function redisReads(redis: Redis): Promise<number> {
  const said = /^total_reads_processed:(\d+)/m.exec(await redis.info("stats"))?.[1];
  if (said === undefined) throw new Error("this Redis does not count its reads: it is older than 6");
  return Number(said);
}

function minus(a: Counts, b: Counts, share = 1): Counts {
  return {
    postgresMs: a.postgresMs === null ? null : a.postgresMs - share * (b.postgresMs ?? 0),
    walBytes: a.walBytes - share * b.walBytes,
    commits: a.commits - share * b.commits,
    transactions: a.transactions - share * b.transactions,
    rows: minusEach(a.rows, b.rows, share),
    redis: minusEach(a.redis, b.redis, share),
    redisReads: a.redisReads - share * b.redisReads,
  };
}

type Results = { costs: Cost[]; lacks: string[]; differs: string; about: string; recordBytes: number };

function show({ costs, lacks, differs, about, recordBytes }: Results, { isQuick, write, json }: Flags): void {
  const { cpu, cores, memoryGb, system, bun } = host;
  const { rounds, runMs } = isQuick ? QUICK : WHOLE;
  const settings = Object.entries(GATEWAY_SETTINGS).map((pair) => pair.join("="));
  const facts = [
    `bun run bench:cost${isQuick ? " --quick" : ""}: ${rounds} alternating rounds of ${runMs / 1000} s`,
    `${cpu}, ${cores} cores shared by client, provider, gateway, Redis and Postgres, ${memoryGb} GB, ${system}, Bun ${bun}; ${about}`,
    `the gateway's settings other than its defaults: ${settings.join(" ")}`,
    `a usage record keeps ${recordBytes.toFixed(0)} bytes on disk, its indexes included`,
    ...lacks.map((line) => `note: ${line}`),
  ];
  const tables = [costTable(costs), carriedTable(costs, recordBytes)];
  console.log([facts.join("\n"), ...tables.map(asText)].join("\n"));
  console.log(
    differs === ""
      ? "\nanswers, units and usage records agree; no hold is left, every book balances"
      : `\nFAILED\n${differs}`,
  );
  if (json !== undefined) writeFileSync(json, `${JSON.stringify({ facts, costs, differs }, null, 1)}\n`);
  if (write !== undefined && differs === "")
    writeFigures(write, "cost", [...facts.map((fact) => `- ${fact}`), "", ...tables.map(asMarkdown)].join("\n"));
}

type Figure = (cost: Cost) => number | null;

/** Makes the rows of a table: the median of the rounds, for each number in flight. */
function rowsOf(costs: Cost[]) {
  return (what: string, digits: number, of: Figure): string[] => {
    const range = (concurrency: number) => rangeOf(costs.filter((cost) => cost.concurrency === concurrency).map(of));
    return [what, ...CONCURRENCY.map((concurrency) => range(concurrency)?.median.toFixed(digits) ?? "–")];
  };
}

/** µs of a process's CPU a request. Postgres's is that of the whole round: it sums up usage some seconds behind the requests. */
function cpuUs(name: "gateway" | "postgres" | "redis"): Figure {
  return ({ counts, cpuMs, reply }) => {
    const [ms, requests] =
      name === "postgres" ? [counts.postgresMs, reply.good] : [cpuMs[name] ?? null, reply.measured];
    // What is subtracted for the time without requests may be more than a process uses that is hardly asked.
    return ms === null ? null : Math.max(0, (ms * 1000) / requests);
  };
}

function costTable(costs: Cost[]) {
  const row = rowsOf(costs);
  const a = (what: string, digits: number, pick: (counts: Counts) => number) =>
    row(what, digits, ({ counts, reply }) => Math.max(0, pick(counts)) / reply.good);
  const sum = (counts: Record<string, number>) => Object.values(counts).reduce((total, n) => total + n, 0);
  /** The rows of counts by name, without those that are zero. */
  const byName = (pick: (counts: Counts) => Record<string, number>) =>
    [...new Set(costs.flatMap(({ counts }) => Object.keys(pick(counts))))]
      .sort()
      .map((name) => a(`· ${name}`, 2, (counts) => pick(counts)[name] ?? 0))
      .filter(([, ...cells]) => cells.some((cell) => Number(cell) >= 0.01));
  return {
    title: "What a request costs",
    note: "medians of the rounds; an answer of 1 KB, 32 accounts; the replica's work without requests is subtracted",
    head,
    rows: [
      row("requests a second", 0, ({ reply }) => reply.measured / reply.seconds),
      row("gateway CPU, µs", 0, cpuUs("gateway")),
      row("Postgres CPU, µs", 0, cpuUs("postgres")),
      row("Redis CPU, µs", 0, cpuUs("redis")),
      a("WAL, bytes", 0, ({ walBytes }) => walBytes),
      a("commits that write", 3, ({ commits }) => commits),
      a("transactions = Postgres round trips", 3, ({ transactions }) => transactions),
      a("rows written", 2, ({ rows }) => sum(rows)),
      ...byName(({ rows }) => rows),
      a("Redis round trips", 2, ({ redisReads }) => redisReads),
      a("Redis commands, those inside the script too", 2, ({ redis }) => sum(redis)),
      ...byName(({ redis }) => redis),
    ],
  };
}

/** What the costs say about machines. */
function carriedTable(costs: Cost[], recordBytes: number) {
  const row = rowsOf(costs);
  const aCore = (name: Parameters<typeof cpuUs>[0]): Figure => {
    const us = cpuUs(name);
    return (cost) => {
      const ofRequest = us(cost) ?? 0;
      return ofRequest < MEASURED_US_MIN ? null : perCore(ofRequest);
    };
  };
  const gbADay = (bytes: number) => (bytes * AT_A_SECOND * SECONDS_A_DAY) / 1e9;
  return {
    title: "What that carries",
    note: "assumes that a core is busy for 70 % of the time; –: too little to be measured",
    head,
    rows: [
      row("requests a second, a core of gateway", 0, aCore("gateway")),
      row("requests a second, a core of Postgres", 0, aCore("postgres")),
      row("requests a second, Redis, which has one core", 0, aCore("redis")),
      row("requests a second, 1,000 commits a second", 0, ({ counts, reply }) => (1000 * reply.good) / counts.commits),
      row("WAL at 1,000 requests a second, GB a day", 0, ({ counts, reply }) => gbADay(counts.walBytes / reply.good)),
      row("usage records at 1,000 requests a second, GB a day", 0, () => gbADay(recordBytes)),
    ],
  };
}
