import { Refusal } from "../src/errors.ts";
import { inProcessBus } from "../src/platform/bus.ts";
import { createLog } from "../src/platform/log.ts";
import { knownAs, openWorldLedger, requestFor, usageOf } from "../test/ledger/ledger_world.ts";
import { createWorld, type World } from "../test/world.ts";
import { disturbances, machine } from "./machine.ts";
import { startBenchServices } from "./servers.ts";

/**
 * `bun run bench:last-units`: several replicas' ledgers use one account down to its last unit. It prints how long the last hundred grants
 * took, how many requests were refused while units were left (there should be none), and whether the books agree. Ends
 * with 1 if a unit was lost or used twice, or a request was refused too early.
 */

const UNITS = 2_000;
const ROUNDS = 10;
const CLIENTS_A_LEDGER = 24;
/** What a provider takes. */
const CALL_MS = 20;
const LAST = 100;
/** Draws: by default, of a few units, and of none, so that the database decides about every request. */
const DRAWS = [
  { what: "draws of up to 256 units", escrowUnitsMax: 256 },
  { what: "draws of up to 4 units", escrowUnitsMax: 4 },
  { what: "nothing drawn ahead", escrowUnitsMax: 0 },
] as const;

type Grant = { startedMs: number; atMs: number };
type Round = { grants: Grant[]; refusalsMs: number[] };

const services = await startBenchServices(false, (line) => console.error(line));
process.env.DATABASE_URL = services.databaseUrl;
const world = await createWorld();
try {
  console.log(services.about);
  for (const line of disturbances(machine())) console.error(`note: ${line}`);
  let isExact = true;
  for (const ledgers of [1, 2, 3]) for (const draw of DRAWS) isExact = (await measure(ledgers, draw)) && isExact;
  process.exitCode = isExact ? 0 : 1;
} finally {
  await world.close();
  await services.stop();
}

/** Runs the rounds and prints a line. Returns whether everything was exact. */
async function measure(count: number, { what, escrowUnitsMax }: (typeof DRAWS)[number]): Promise<boolean> {
  const bus = inProcessBus(createLog("silent"));
  const ledgers = await Promise.all(
    Array.from({ length: count }, () => openWorldLedger(world, { bus, escrowUnitsMax })),
  );
  const rounds: Round[] = [];
  let wrong = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const customer = await world.addCustomer();
    const key = await world.addKey(customer);
    await world.givePackage(customer, { dailyLimit: UNITS });
    const request = () => requestFor(customer, key, { known: knownAs("package") });
    const done = await spend(
      ledgers.map(({ ledger }) => ledger),
      request,
    );
    rounds.push(done);
    if (done.grants.length !== UNITS || (await unitsUsed(world, customer.accountId)) !== UNITS) wrong++;
  }
  await Promise.all(ledgers.map((ledger) => ledger.close()));
  const lastMs = rounds.flatMap(({ grants }) => grants.slice(-LAST).map(({ startedMs, atMs }) => atMs - startedMs));
  const early = rounds.reduce((sum, round) => sum + refusedEarly(round), 0);
  const at = (share: number) =>
    (lastMs[Math.min(lastMs.length - 1, Math.floor(lastMs.length * share))] ?? 0).toFixed(1);
  lastMs.sort((a, b) => a - b);
  const books = await world.unbalanced();
  console.log(
    `${count} ${count === 1 ? "ledger" : "ledgers"}, ${what}: the last ${LAST} grants of ${UNITS} took ${at(0.5)} ms at p50, ${at(0.99)} at p99, ${at(1)} at most; ` +
      `refused too early: ${early}; rounds with a unit lost or doubled: ${wrong} of ${ROUNDS}; books that do not balance: ${books.length}`,
  );
  return early === 0 && wrong === 0 && books.length === 0;
}

type Reserver = Pick<Awaited<ReturnType<typeof openWorldLedger>>["ledger"], "reserve" | "settle">;

/** Clients on every ledger send requests until they are refused. */
async function spend(ledgers: readonly Reserver[], request: () => ReturnType<typeof requestFor>): Promise<Round> {
  const grants: Grant[] = [];
  const refusalsMs: number[] = [];
  async function client(ledger: Reserver): Promise<void> {
    for (;;) {
      const startedMs = performance.now();
      try {
        const hold = await ledger.reserve(request());
        grants.push({ startedMs, atMs: performance.now() });
        await Bun.sleep(CALL_MS);
        await ledger.settle(hold, usageOf());
      } catch (error) {
        if (!(error instanceof Refusal) || error.code !== "daily_quota_exceeded") throw error;
        refusalsMs.push(performance.now());
        return;
      }
    }
  }
  await Promise.all(ledgers.flatMap((ledger) => Array.from({ length: CLIENTS_A_LEDGER }, () => client(ledger))));
  grants.sort((a, b) => a.atMs - b.atMs);
  return { grants, refusalsMs };
}

/** Requests that were certainly refused too early: a later request got a unit. */
function refusedEarly({ grants, refusalsMs }: Round): number {
  const lastMs = Math.max(...grants.map(({ startedMs }) => startedMs));
  return refusalsMs.filter((atMs) => atMs < lastMs).length;
}

async function unitsUsed({ sql }: World, accountId: number): Promise<number> {
  const [row] =
    await sql`select sum(units_taken - package_drawn(packages))::int as used from packages where account_id = ${accountId}`;
  return Number(row?.used);
}
