import { rm } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { takeLease } from "../src/ledger/leases_store.ts";
import { type BatchInput, type BatchOutput, type ReserveRequest, runBatch } from "../src/ledger/ledger_store.ts";
import { openLedger } from "../src/ledger/open_ledger.ts";
import { newRequestId } from "../src/platform/crypto.ts";
import { connect, type Sql, sqlState } from "../src/platform/db.ts";
import { createLog } from "../src/platform/log.ts";
import { createWorld, type World } from "../test/world.ts";
import { rangeOf } from "./figures.ts";
import { rangeText } from "./goals.ts";
import { disturbances, machine } from "./machine.ts";
import { startBenchServices } from "./servers.ts";

/**
 * Reserve + settle pairs a second on ONE hot account: group commit against a transaction for each step, alternating in
 * one run, on one Postgres of the bench's own, with the same SQL. Ends with 1 if a pair was lost or counted twice, with
 * 2 for invalid flags.
 */

const USAGE_TEXT = `bun run bench:ledger [flags]
  --commit-delay MS   a slower disk: Postgres waits so long before each flush of a commit, 0 to 100 (0)`;

const IN_FLIGHT = [64, 256, 1000] as const;
const ROUNDS = 3;
const ROUND_MS = 3_000;
const WARM_UP_MS = 500;
const WARM_UP_IN_FLIGHT = 64;
/** Connections of the one-by-one contender: the hot account lets one of them commit at a time. */
const SINGLE_CONNECTIONS = 32;
/** With more connections, some would wait for the account longer than the limit for its lock. */
const SINGLE_IN_FLIGHT_MAX = 256;
const LEASE_SECONDS = 600;
const LOCK_NOT_AVAILABLE = "55P03";
const USAGE = { promptTokens: 100, cachedTokens: 0, completionTokens: 50, chargeNanoUsd: 0n, estimated: false };

type Contender = { pair(): Promise<void>; inFlightMax: number; close(): Promise<void> };
type Asker = () => ReserveRequest;

const say = (line: string) => console.error(line);
const commitDelayMs = readCommitDelay();
const services = await startBenchServices(false, say);
process.env.DATABASE_URL = services.databaseUrl;
const world = await createWorld();
try {
  console.log(services.about);
  if (commitDelayMs > 0) {
    await delayCommits(world);
    console.log(`commit_delay ${commitDelayMs} ms, commit_siblings 0`);
  }
  for (const line of [...disturbances(machine()), ...services.missing]) say(`note: ${line}`);
  process.exitCode = (await run(world)) ? 0 : 1;
} finally {
  await world.close();
  await services.stop();
}

function readCommitDelay(): number {
  try {
    const { values } = parseArgs({ options: { "commit-delay": { type: "string", default: "0" } } });
    const ms = Number(values["commit-delay"]);
    if (ms >= 0 && ms <= 100) return ms;
    throw new Error("--commit-delay must be a number from 0 to 100");
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\n${USAGE_TEXT}`);
    process.exit(2);
  }
}

/** For connections that are opened from here on. */
async function delayCommits({ sql, url }: World): Promise<void> {
  const name = new URL(url).pathname.slice(1);
  await sql.unsafe(`alter database "${name}" set commit_delay = ${Math.round(commitDelayMs * 1000)}`);
  await sql.unsafe(`alter database "${name}" set commit_siblings = 0`);
}

/** false: the books differ from the requests. */
async function run(world: World): Promise<boolean> {
  const ask = await hotAccount(world);
  const grouped = await openGrouped(world, ask);
  const single = openSingle(world, ask);
  let pairs = 0;
  const rateOf = async ({ pair, inFlightMax }: Contender, inFlight: number, forMs = ROUND_MS) => {
    const driven = await drive(pair, Math.min(inFlight, inFlightMax), forMs);
    pairs += driven.pairs;
    return driven.perSecond;
  };
  try {
    for (const contender of [grouped, single]) await rateOf(contender, WARM_UP_IN_FLIGHT, WARM_UP_MS);
    console.log("reserve + settle pairs a second on one hot account: median (smallest–largest) of the rounds");
    console.log(`in flight   group commit   transaction per step, at most ${SINGLE_IN_FLIGHT_MAX} in flight   ratio`);
    for (const inFlight of IN_FLIGHT) {
      const rounds: { grouped: number; single: number }[] = [];
      for (let round = 1; round <= ROUNDS; round++) {
        // In turns, so that a slower phase of the machine does not always affect the same one.
        const first = round % 2 === 1 ? await rateOf(grouped, inFlight) : await rateOf(single, inFlight);
        const second = round % 2 === 1 ? await rateOf(single, inFlight) : await rateOf(grouped, inFlight);
        rounds.push(round % 2 === 1 ? { grouped: first, single: second } : { grouped: second, single: first });
      }
      const range = (pick: (round: (typeof rounds)[number]) => number) => rangeText(rangeOf(rounds.map(pick)));
      console.log(
        `${inFlight}   ${range((r) => r.grouped)}   ${range((r) => r.single)}   ${range((r) => r.grouped / r.single)}`,
      );
    }
    return await isExact(world, pairs);
  } finally {
    await Promise.all([grouped.close(), single.close()]);
  }
}

/** A customer with a package that no run uses up. Returns what makes its requests. */
async function hotAccount(world: World): Promise<Asker> {
  const { accountId } = await world.addCustomer();
  const { keyId } = await world.addKey({ accountId });
  await world.givePackage({ accountId }, { dailyLimit: 1_000_000 });
  // More than can be sold: a minute of this bench would use up the largest offering.
  await world.sql`update packages set daily_limit = 10000000, total_limit = 300000000`;
  return () => ({
    ...{ requestId: newRequestId(), accountId, keyId, tenantId: 0, host: "api.example.com", ownHost: true },
    ...{
      modelId: "model-a",
      promptPico: 0n,
      outputPico: -1n,
      capMax: 1,
      capMin: 1,
      promptTokens: 100,
      choices: 0,
      sendsCap: false,
      priceVersionId: 1,
      markupBasisPoints: 0,
      known: { mode: "package", epoch: Number.MAX_SAFE_INTEGER, tenantEpoch: 0 },
    },
  });
}

/** The ledger as a replica has it, but with room for every load. */
async function openGrouped(world: World, ask: Asker): Promise<Contender> {
  const spoolDir = join(world.spoolDir, "bench");
  const db = world.openDb();
  const ledger = await openLedger({
    config: {
      databaseUrl: world.url,
      dbPrepare: true,
      ledgerLanes: 4,
      ledgerQueueMax: 100_000,
      ledgerTimeoutMs: 30_000,
      leaseSeconds: LEASE_SECONDS,
      escrowUnitsMax: 256,
      escrowShare: 8,
      spoolDir,
      spoolBytesMax: 1024 * 1024 * 1024,
    },
    db,
    log: createLog("warn"),
    nowMs: () => performance.now(),
    wallMs: Date.now,
    startedMs: 0,
  });
  return {
    inFlightMax: Number.POSITIVE_INFINITY,
    async pair() {
      await ledger.settle(await ledger.reserve(ask()), USAGE);
    },
    async close() {
      await ledger.close();
      await db.close();
      await rm(spoolDir, { recursive: true, force: true });
    },
  };
}

/** The ledger's own SQL, with a transaction for each reserve and each settlement, and nothing drawn ahead. */
function openSingle(world: World, ask: Asker): Contender {
  const connections = Array.from({ length: SINGLE_CONNECTIONS }, () => {
    const sql = connect({ databaseUrl: world.url, dbPrepare: true, fetchTypes: false }, 1);
    const leaseId = crypto.randomUUID();
    return { sql, leaseId, draws: 0, ready: takeLease(sql, leaseId, LEASE_SECONDS) };
  });
  let turn = 0;
  return {
    inFlightMax: SINGLE_IN_FLIGHT_MAX,
    async pair() {
      const connection = connections[turn++ % connections.length] as (typeof connections)[number];
      const { sql, leaseId, ready } = connection;
      await ready;
      const asked = ask();
      const { accountId } = asked;
      const draw = { accountId, tenantId: 0, units: 0, nanoUsd: 0n, knownEpoch: 0, returns: false, keeps: [] };
      const common = { leaseId, share: 1, wait: true };
      const { reserved } = await step(sql, () => ({
        ...common,
        draws: [{ ...draw, number: ++connection.draws }],
        reserves: [asked],
      }));
      const result = reserved[0];
      if (result?.code !== null) throw new Error(`the pair was refused: ${result?.code}`);
      const { requestId, keyId, host, modelId, priceVersionId, markupBasisPoints } = asked;
      const held = {
        packageId: result.packageId ?? 0,
        day: result.day,
        keyDay: null,
        heldNanoUsd: 0n,
        heldTokens: null,
      };
      const drawn = {
        requestId,
        accountId,
        keyId,
        host,
        modelId,
        priceVersionId,
        markupBasisPoints,
        leaseId,
        ...held,
        capTokens: null,
      };
      const end = {
        settles: true,
        reason: "complete",
        strict: false,
        furtherCounts: null,
        costNanoUsd: null,
        reportedUsage: null,
        tried: null,
        ...{ routeId: 1, firstMs: 20, providerCostNanoUsd: 1_000n },
      } as const;
      const finish = { ...drawn, ...USAGE, ...end, reservedAtUs: Date.now() * 1000 };
      await step(sql, () => ({ ...common, finishes: [finish] }));
    },
    close: async () => {
      await Promise.all(connections.map(({ sql }) => sql.end()));
    },
  };
}

/** One transaction. On a slow machine it waits longer for the account than the ledger allows: then, as a batch would, it asks again. */
async function step(
  sql: Sql,
  inputOf: () => Pick<BatchInput, "leaseId" | "share" | "wait"> & Partial<BatchInput>,
): Promise<BatchOutput> {
  for (;;) {
    const input = inputOf();
    const { finishes = [] } = input;
    const idles = finishes.map(() => ({ drawNumber: 0, units: 0, nanoUsd: 0n }));
    try {
      return await runBatch(sql, true, { draws: [], reserves: [], ...input, finishes, idles, nowUnixMs: Date.now() });
    } catch (error) {
      if (sqlState(error) !== LOCK_NOT_AVAILABLE) throw error;
    }
  }
}

/** Prints and returns whether the books have one unit and one usage record per pair, and balance. */
async function isExact(world: World, pairs: number): Promise<boolean> {
  const [row] = await world.sql`
    select sum(units_taken - package_drawn(packages))::int as used,
      sum(package_drawn(packages) - package_idle(account_id, id, null))::int as held,
      (select count(*)::int from receipts where outcome = 'settled') as records from packages`;
  const broken = await world.unbalanced();
  console.log(
    `pairs driven, warm-up included: ${pairs}; units used: ${row?.used}, held: ${row?.held}, usage records: ${row?.records}; ` +
      `books that do not balance: ${broken.length}${broken.map((one) => `\n${one}`).join("")}`,
  );
  return row?.used === pairs && row?.records === pairs && row?.held === 0 && broken.length === 0;
}

async function drive(
  pair: () => Promise<void>,
  inFlight: number,
  forMs: number,
): Promise<{ pairs: number; perSecond: number }> {
  const startMs = performance.now();
  let pairs = 0;
  await Promise.all(
    Array.from({ length: inFlight }, async () => {
      while (performance.now() - startMs < forMs) {
        await pair();
        pairs++;
      }
    }),
  );
  return { pairs, perSecond: (pairs / (performance.now() - startMs)) * 1000 };
}
