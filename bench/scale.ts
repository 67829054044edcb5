import { readFileSync, writeFileSync } from "node:fs";
import { loadavg } from "node:os";
import { join } from "node:path";
import { connect } from "../src/platform/db.ts";
import { createWorld, type World } from "../test/world.ts";
import { command, type Flags } from "./command.ts";
import { perCore, type Range, rangeOf, type Spread, spread } from "./figures.ts";
import { rangeText } from "./goals.ts";
import { type Helper, startHelper } from "./helper.ts";
import { disturbances, machine } from "./machine.ts";
import { UsageError } from "./options.ts";
import { asMarkdown, asText } from "./report.ts";
import type { Account, DriveQuestion, DriveReply, Load } from "./scale_worker.ts";
import { diskMs, openServerMeter, type Waits } from "./server_meter.ts";
import { type BenchServices, startBenchServices } from "./servers.ts";
import { writeFigures } from "./written.ts";

/**
 * `bun run bench:scale`: how far one Postgres carries the ledger, and what limits it. One and two replicas' ledgers,
 * each in a process of its own, on one hot account and on 10,000 accounts, in alternating rounds; then accounts that others
 * contend for beside a thousand that nobody does. The ledgers are driven directly: behind HTTP, the gateway's own work would
 * be the limit long before Postgres is. Ends with 1 when the books differ, with 2 when the command line is wrong.
 * Postgres's CPU is read from /proc: on Linux, with the server on this machine. Elsewhere those columns are empty.
 */

const ACCOUNTS = 10_000;
const IN_FLIGHT = 256;
const REPLICAS = 2;
/** A replica's default, and what its configuration allows. */
const LANES = 4;
const LANES_MAX = 32;
const WARM_MS = 400;
const REPLY_MS_MAX = 60_000;
const WHOLE = { rounds: 4, runMs: 4_000, fairMs: 8_000 } as const;
const QUICK = { rounds: 2, runMs: 1_200, fairMs: 3_000 } as const;
/** With 100 or fewer samples, the p99 would be the slowest one. */
const DISK_TIMES = 200;
const COMMITS_A_ROUND = 200;
const FAIRNESS = {
  /** Pairs a second of the accounts that nobody contends for, on each replica. */
  perSecond: 250,
  others: 1_000,
  /**
   * Concurrent requests on each replica, of the account that both serve, and of the account whose lock another session
   * holds.
   */
  contended: 16,
  held: 4,
  heldMs: 200,
  ratioMax: 2,
} as const;

const WALLS: Record<keyof Waits, string> = {
  cpu: "CPU of a connection",
  disk: "fsync",
  lock: "lock",
  idle: "the ledger's process",
  other: "other waits",
};
/** Above this share of its cores, a machine has no idle core. */
const FULL_SHARE = 0.9;

type Case = { name: string; what: string; replicas: number; pick: "hot" | "uniform" | "zipf"; inFlight: number };
const CASES: readonly Case[] = [
  ...(["hot", "uniform", "zipf"] as const).flatMap((pick) =>
    [1, REPLICAS].map((replicas) => ({
      name: `${pick}-${replicas}`,
      what: `${pick === "hot" ? "one hot account" : `10,000 accounts, ${pick}`}, ${replicas === 1 ? "1 replica" : `${replicas} replicas`}`,
      ...{ replicas, pick, inFlight: IN_FLIGHT },
    })),
  ),
  { name: "hot-1-1000", what: "one hot account, 1 replica, 1,000 in flight", replicas: 1, pick: "hot", inFlight: 1000 },
];

type Figures = {
  name: string;
  round: number;
  perSecond: number;
  pairMs: Spread;
  /** µs of CPU a pair. */
  postgresUs: number | null;
  ledgerUs: number;
  walBytes: number;
  commits: number;
  /** Reserves and settles of one transaction. */
  rowsACommit: number;
  waits: Waits;
  /** Cores used by everything on the machine; null: not Linux. */
  busyCores: number | null;
};
type Fair = { round: number; alone: Spread; beside: Spread; perSecond: number };
type Worker = Helper<DriveQuestion, DriveReply>;
type Stage = {
  world: World;
  services: BenchServices;
  workers: Worker[];
  accounts: Account[];
  /** Pairs driven so far, the warm-ups too. */
  pairs: number;
};

const host = machine();
const lanes = Number(process.env.LEDGER_LANES || LANES);

await command("scale", async (flags, atEnd) => {
  if (!Number.isInteger(lanes) || lanes < 1 || lanes > LANES_MAX)
    throw new UsageError(`LEDGER_LANES must be a whole number from 1 to ${LANES_MAX}`);
  const services = await startBenchServices(false, say);
  atEnd(services.stop);
  process.env.DATABASE_URL = services.databaseUrl;
  const world = await createWorld();
  atEnd(() => world.close());
  const workers: Worker[] = [];
  for (let i = 0; i < REPLICAS; i++) {
    const worker = await startWorker(world);
    atEnd(() => worker.stop());
    workers.push(worker);
  }
  say(`writing ${ACCOUNTS.toLocaleString("en")} accounts`);
  const stage: Stage = { world, services, workers, accounts: await addAccounts(world), pairs: 0 };
  return await run(stage, flags);
});

function say(line: string): void {
  console.error(line);
}

async function startWorker(world: World): Promise<Worker> {
  const env = { BENCH_DATABASE_URL: world.url, BENCH_SPOOL_DIR: world.spoolDir, BENCH_LANES: String(lanes) };
  return (await startHelper<DriveQuestion, DriveReply, object>(join(import.meta.dirname, "scale_worker.ts"), env))
    .helper;
}

/** False when the books differ. */
async function run(stage: Stage, flags: Flags): Promise<boolean> {
  const lacks = [...disturbances(host), ...stage.services.missing];
  for (const line of lacks) say(`note: ${line}`);
  const times = flags.isQuick ? QUICK : WHOLE;
  const { rounds } = times;
  const [figures, fair, disk, commits]: [Figures[], Fair[], Spread[], Spread[]] = [[], [], [], []];
  for (let round = 1; round <= rounds; round++) {
    disk.push(diskMs(DISK_TIMES));
    commits.push(await stage.services.commitMs(COMMITS_A_ROUND));
    for (const one of round % 2 === 1 ? CASES : CASES.toReversed()) {
      const measured = await measure(stage, one, { round, runMs: times.runMs });
      say(`round ${round} of ${rounds}: ${one.what}: ${measured.perSecond.toFixed(0)} pairs a second`);
      figures.push(measured);
    }
    fair.push(await measureFairness(stage, { round, runMs: times.fairMs }));
    say(`round ${round} of ${rounds}: contended accounts beside others (load ${(loadavg()[0] ?? 0).toFixed(1)})`);
  }
  const differences = await differencesOf(stage);
  const { about } = stage.services;
  show({ figures, fair, disk, commits, lacks, about, pairs: stage.pairs, differences }, flags);
  return differences.length === 0;
}

async function drive(stage: Stage, loadsOf: (worker: number) => Load[], ms: number): Promise<DriveReply[]> {
  const asked = stage.workers
    .map((worker, i) => ({ worker, loads: loadsOf(i) }))
    .filter(({ loads }) => loads.length > 0);
  const replies = await Promise.all(
    asked.map(({ worker, loads }) => worker.ask({ loads, warmMs: WARM_MS, runMs: ms }, REPLY_MS_MAX)),
  );
  for (const { pairs } of replies) stage.pairs += pairs;
  return replies;
}

type Turn = { round: number; runMs: number };

async function measure(
  stage: Stage,
  { name, replicas, pick, inFlight }: Case,
  { round, runMs }: Turn,
): Promise<Figures> {
  const meter = openServerMeter(stage.world.url, stage.services.postgresPid);
  const watcher = openServerMeter(stage.world.url, null);
  await Promise.all([meter.read(), watcher.read()]); // Connected before the measurement.
  const before = await meter.read();
  const [busyBefore, beganMs, pairsBefore] = [busyMs(), performance.now(), stage.pairs];
  const watched = watcher.watch();
  const load: Load = {
    name,
    accounts: pick === "hot" ? stage.accounts.slice(0, 1) : stage.accounts,
    pick: pick === "zipf" ? "zipf" : "uniform",
    inFlight: inFlight / replicas,
  };
  const replies = await drive(stage, (worker) => (worker < replicas ? [load] : []), runMs);
  const waits = await watched();
  const [after, busyAfter, tookMs] = [await meter.read(), busyMs(), performance.now() - beganMs];
  await Promise.all([meter.close(), watcher.close()]);
  const taken = replies.flatMap((reply) => reply.taken[name] ?? []);
  const measured = replies.reduce((sum, reply) => sum + (reply.taken[name]?.length ?? 0) / reply.seconds, 0);
  // The server's counts are from the first pair of the warm-up to the last pair.
  const pairs = stage.pairs - pairsBefore;
  const cpu = before.cpuMs === null || after.cpuMs === null ? null : after.cpuMs - before.cpuMs;
  const commits = after.commits - before.commits;
  return {
    ...{ name, round, perSecond: measured, pairMs: spread(taken), waits },
    postgresUs: cpu === null ? null : (cpu * 1000) / pairs,
    ledgerUs: (replies.reduce((sum, reply) => sum + reply.cpuMs, 0) * 1000) / taken.length,
    walBytes: (after.walBytes - before.walBytes) / pairs,
    commits: commits / pairs,
    rowsACommit: (2 * pairs) / commits,
    busyCores: busyBefore === null || busyAfter === null ? null : (busyAfter - busyBefore) / tookMs,
  };
}

/**
 * Measures the others alone, and beside an account that both replicas serve and one whose lock another session holds.
 */
async function measureFairness(stage: Stage, { round, runMs }: Turn): Promise<Fair> {
  const { perSecond, others, contended, held, heldMs } = FAIRNESS;
  const [hot, locked] = stage.accounts as [Account, Account];
  const quiet: Load = { name: "others", accounts: stage.accounts.slice(2, 2 + others), pick: "uniform", perSecond };
  const disturbing: Load[] = [
    { name: "contended", accounts: [hot], pick: "uniform", inFlight: contended },
    { name: "held", accounts: [locked], pick: "uniform", inFlight: held },
  ];
  const alone = () => drive(stage, () => [quiet], runMs);
  const beside = async () => {
    const release = holdLock(stage.world.url, { accountId: locked.accountId, ms: heldMs });
    const replies = await drive(stage, () => [quiet, ...disturbing], runMs);
    await release();
    return replies;
  };
  const first = round % 2 === 1 ? await alone() : await beside();
  const second = round % 2 === 1 ? await beside() : await alone();
  const [calm, disturbed] = round % 2 === 1 ? [first, second] : [second, first];
  const all = (replies: DriveReply[], name: string) => replies.flatMap((reply) => reply.taken[name] ?? []);
  return {
    round,
    alone: spread(all(calm, "others")),
    beside: spread(all(disturbed, "others")),
    perSecond: all(disturbed, "contended").length / (disturbed[0]?.seconds ?? Number.NaN),
  };
}

/**
 * Another session that takes the account's lock, keeps it, releases it, and takes it again, until the returned
 * function is called.
 */
function holdLock(databaseUrl: string, { accountId, ms }: { accountId: number; ms: number }): () => Promise<void> {
  const sql = connect({ databaseUrl, dbPrepare: true }, 1);
  let isOver = false;
  const holding = (async () => {
    while (!isOver) {
      await sql`select pg_advisory_xact_lock(${accountId}), pg_sleep(${ms / 1000})`;
      await Bun.sleep(ms / 4);
    }
  })();
  return async () => {
    isOver = true;
    await holding;
    await sql.end({ timeout: 5 });
  };
}

/** Customers with a package and a key each, written all at once. */
async function addAccounts({ sql }: World): Promise<Account[]> {
  await sql`
    insert into accounts (role, email, name)
    select 'customer', 'scale' || n || '@example.com', 'scale' || n from generate_series(1, ${ACCOUNTS}) as n`;
  await sql`insert into balances (account_id) select id from accounts`;
  await sql`
    insert into packages (account_id, name, starts_at, ends_at, first_day, days, time_zone, daily_limit, total_limit, carryover)
    select id, 'plenty', now() - interval '1 day', now() + interval '29 days', current_date - 1, 30, 'UTC', 10000000, 300000000, false
    from accounts`;
  const rows = await sql`
    insert into keys (account_id, name, digest, prefix, suffix, mode)
    select id, 'key', sha256(('scale' || id)::bytea), 'sk-', 'bench', 'package' from accounts
    returning id, account_id`;
  await sql`analyze`;
  return rows.map((row) => ({ accountId: Number(row.account_id), keyId: Number(row.id) }));
}

/** Differences between pairs, charged units and usage records; holds that are left; books that do not balance. */
async function differencesOf({ world, pairs }: Stage): Promise<string[]> {
  const [row] = await world.sql`
    select (select sum(units_taken - package_drawn(packages)) from packages) as units, (select sum(package_drawn(packages)) from packages) - (select coalesce(sum(idle_units), 0) from escrows) as held,
      (select count(*) from receipts where outcome = 'settled') as records, (select count(*) from escrows where units > idle_units or nano_usd > idle_nano_usd) as holds`;
  const [units, records] = [Number(row?.units), Number(row?.records)];
  const differs: string[] = [];
  if (units !== pairs || records !== pairs) differs.push(`${pairs} pairs, ${units} units, ${records} usage records`);
  if (Number(row?.held) !== 0 || Number(row?.holds) !== 0) differs.push(`${row?.held} units held, ${row?.holds} holds`);
  return [...differs, ...(await world.unbalanced())];
}

/** Work of all cores since the start, ms. */
function busyMs(): number | null {
  if (process.platform !== "linux") return null;
  const fields = (readFileSync("/proc/stat", "utf8").split("\n")[0] ?? "").trim().split(/\s+/).slice(1).map(Number);
  const [idle, waiting] = [fields[3] ?? 0, fields[4] ?? 0];
  // Guests are counted among the users.
  return (fields.slice(0, 8).reduce((sum, n) => sum + n, 0) - idle - waiting) * 10;
}

/** What limits the rate: the largest share of the time, or the cores if none is idle. */
function wallOf({ waits, busyCores }: Figures): string {
  if (busyCores !== null && busyCores > host.cores * FULL_SHARE) return `all ${host.cores} cores`;
  const kinds = Object.keys(WALLS) as (keyof Waits)[];
  return WALLS[kinds.reduce((largest, kind) => (waits[kind] > waits[largest] ? kind : largest))];
}

type Results = {
  figures: Figures[];
  fair: Fair[];
  disk: Spread[];
  commits: Spread[];
  lacks: string[];
  /** The server and its settings. */
  about: string;
  pairs: number;
  differences: string[];
};

function show(results: Results, { isQuick, write, json }: Flags): void {
  const { figures, fair, disk, commits, lacks, about, pairs, differences } = results;
  const { cpu, cores, memoryGb, system, bun } = host;
  const { rounds, runMs } = isQuick ? QUICK : WHOLE;
  const of = (spreads: Spread[], share: keyof Spread) => rangeText(rangeOf(spreads.map((one) => one[share])));
  const facts = [
    `bun run bench:scale${isQuick ? " --quick" : ""}: ${rounds} alternating rounds of ${runMs / 1000} s, medians; ${IN_FLIGHT} in flight in all, where nothing else is said; LEDGER_LANES=${lanes}`,
    `${cpu}, ${cores} cores shared by the replicas' ledgers and Postgres, ${memoryGb} GB, ${system}, Bun ${bun}; ${about}`,
    `a block of 8 KB is safe on this disk in ${of(disk, "p50")} ms (p50 of each round; p99 ${of(disk, "p99")}), a commit of one row takes ${of(commits, "p50")} ms (p99 ${of(commits, "p99")})`,
    ...lacks.map((line) => `note: ${line}`),
  ];
  const tables = [ratesTable(figures), wallTable(figures), ratios(figures), fairness(fair)];
  console.log(facts.join("\n"));
  for (const one of tables) console.log(asText(one));
  console.log(
    differences.length === 0
      ? `\n${pairs} pairs = ${pairs} units = ${pairs} usage records; no hold is left, every book balances`
      : `\nFAILED\n${differences.join("\n")}`,
  );
  if (json !== undefined) writeFileSync(json, `${JSON.stringify({ facts, ...results }, null, 1)}\n`);
  if (write !== undefined && differences.length === 0)
    writeFigures(write, "scale", [...facts.map((fact) => `- ${fact}`), "", ...tables.map(asMarkdown)].join("\n"));
}

/** The middle of a case's rounds, written down. */
function middleOf(figures: Figures[], pick: (one: Figures) => number | null, digits: number): string {
  return rangeOf(figures.map(pick))?.median.toFixed(digits) ?? "–";
}

/** A line for each case. */
function casesTable(figures: Figures[], head: string[], rowOf: (mine: Figures[]) => string[]) {
  const rows = CASES.map(({ name, what }) => [what, ...rowOf(figures.filter((one) => one.name === name))]);
  return { head: ["", ...head], rows };
}

function ratesTable(figures: Figures[]) {
  const head = [
    "pairs/s",
    "p50 ms",
    "p99 ms",
    "Postgres µs",
    "pairs/s a core",
    "ledger µs",
    "WAL bytes",
    "commits",
    "rows a commit",
  ];
  return {
    title: "Reserve and settle: rates, and what a pair costs",
    note: "a pair is a request's reserve and settle; p50 and p99 are of both together; µs are CPU; pairs/s a core assume that a core of Postgres is busy for 70 % of the time",
    ...casesTable(figures, head, (mine) => [
      middleOf(mine, (f) => f.perSecond, 0),
      middleOf(mine, (f) => f.pairMs.p50, 1),
      middleOf(mine, (f) => f.pairMs.p99, 1),
      middleOf(mine, (f) => f.postgresUs, 1),
      middleOf(mine, ({ postgresUs }) => (postgresUs === null ? null : perCore(postgresUs)), 0),
      middleOf(mine, (f) => f.ledgerUs, 1),
      middleOf(mine, (f) => f.walBytes, 0),
      middleOf(mine, (f) => f.commits, 4),
      middleOf(mine, (f) => f.rowsACommit, 0),
    ]),
  };
}

function wallTable(figures: Figures[]) {
  const share = (mine: Figures[], kind: keyof Waits) => `${middleOf(mine, ({ waits }) => waits[kind] * 100, 0)} %`;
  return {
    title: "What limits the rate",
    note:
      "the state of Postgres was sampled every 20 ms: the share of samples in which a connection was on the CPU, waited for the disk, or waited for a lock, " +
      "or in which none was active, so that Postgres waited for the ledgers; the limit is the largest share, or the machine's CPU if no core is idle",
    ...casesTable(figures, ["on CPU", "disk", "lock", "none", "cores busy", "limit"], (mine) => [
      ...[share(mine, "cpu"), share(mine, "disk"), share(mine, "lock"), share(mine, "idle")],
      ...[middleOf(mine, (f) => f.busyCores, 2), mostOften(mine.map(wallOf))],
    ]),
  };
}

function mostOften(words: string[]): string {
  const counted = [...Map.groupBy(words, (word) => word)].sort(([, a], [, b]) => b.length - a.length);
  return counted[0]?.[0] ?? "–";
}

function ratios(figures: Figures[]) {
  const ratio = (a: string, b: string): Range | null =>
    rangeOf(
      figures
        .filter(({ name }) => name === a)
        .map((one) => {
          const other = figures.find(({ name, round }) => name === b && round === one.round);
          return other === undefined ? null : one.perSecond / other.perSecond;
        }),
    );
  const line = (what: string, a: string, b: string) => [what, rangeText(ratio(a, b))];
  return {
    title: "Ratios of pairs a second",
    note: "median (smallest–largest) of the rounds, each ratio within one round",
    head: ["", "ratio"],
    rows: [
      line("hot account: 2 replicas to 1", "hot-2", "hot-1"),
      line("10,000 accounts, uniform: 2 replicas to 1", "uniform-2", "uniform-1"),
      line("10,000 accounts, zipf: 2 replicas to 1", "zipf-2", "zipf-1"),
      line("1 replica: hot account to 10,000 uniform", "hot-1", "uniform-1"),
      line("hot account: 1,000 in flight to 256", "hot-1-1000", "hot-1"),
    ],
  };
}

function fairness(fair: Fair[]) {
  const { perSecond, others, contended, held, heldMs, ratioMax } = FAIRNESS;
  const ratio = rangeOf(fair.map(({ alone, beside }) => beside.p99 / alone.p99));
  const row = (what: string, pick: (one: Fair) => number) => [what, rangeText(rangeOf(fair.map(pick)))];
  return {
    title: "A contended account beside others",
    note:
      `${others} others with ${perSecond * REPLICAS} pairs a second over ${REPLICAS} replicas; one account with ${contended} concurrent requests on each replica, ` +
      `and one with ${held} per replica whose lock another session holds for ${heldMs} ms at a time`,
    head: ["", "median (smallest–largest) of the rounds"],
    rows: [
      row("p50 of the others alone, ms", ({ alone }) => alone.p50),
      row("p50 of the others beside them, ms", ({ beside }) => beside.p50),
      row("p99 of the others alone, ms", ({ alone }) => alone.p99),
      row("p99 of the others beside them, ms", ({ beside }) => beside.p99),
      row("pairs a second of the contended account", (one) => one.perSecond),
      [
        `p99 beside to alone (goal ≤ ${ratioMax}: ${ratio !== null && ratio.median <= ratioMax ? "met" : "MISSED"})`,
        rangeText(ratio),
      ],
    ],
  };
}
