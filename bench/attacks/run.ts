import process from "node:process";
import { parseArgs } from "node:util";
import { startServices } from "../../scripts/services.ts";
import { raiseFetchLimit } from "../../src/platform/runtime.ts";
import { COUNTING } from "../../test/replica.ts";
import type { Attack } from "./attack.ts";

/**
 * The attacks of a malicious customer, run against replicas with their default limits, each beside a neighbour:
 * `bun run attacks [--only PART-OF-NAME]`. Prints a table; ends with 1 if an attack is not stopped, or the neighbour was not served as it
 * is alone.
 */

const HEAD = ["attack", "the attacker", "others", "the neighbour", "stopped"];
/** As in production; tests use larger values. */
const DEFAULTS = {
  RATE_PER_MINUTE: "600",
  RATE_IN_FLIGHT: "300",
  RATE_ACCOUNT_PER_MINUTE: "6000",
  RATE_TENANT_PER_MINUTE: "60000",
  ACCOUNT_SHARE: "0.25",
  TENANT_SHARE: "0.5",
  EVENT_LOOP_LAG_MAX_MS: "500",
  DB_POOL_MAX: "10",
  LEDGER_LANES: "4",
  LOG_REQUESTS: "0",
  ...COUNTING,
};

/** More than any attack sends at once: by default, Bun's fetch has room for 256. */
const FETCHES_MAX = 10_000;

raiseFetchLimit(FETCHES_MAX);
const only = readFlags();
const services = await startServices();
process.env.DATABASE_URL = services.databaseUrl;
process.env.REDIS_URL = services.redisUrl;
// These modules read the environment, so they are imported after it is set.
const { openShop } = await import("../../test/gateway/shop.ts");
const { allowanceAttacks } = await import("./allowances.ts");
const { moneyAttacks } = await import("./money.ts");
const { isServed, shownBeside, startNeighbour } = await import("./neighbour.ts");
const { peopleAttacks } = await import("./people.ts");
const { starvingAttacks } = await import("./starving.ts");
const { silentReceiver } = await import("./silent_receiver.ts");
const { unpaidAttacks } = await import("./unpaid.ts");
try {
  process.exitCode = (await run()) ? 0 : 1;
} finally {
  await services.stop();
}

/** Ends the process with 2, and one line, if the command line is invalid. */
function readFlags(): string | undefined {
  try {
    return parseArgs({ options: { only: { type: "string" } } }).values.only;
  } catch (error) {
    console.error(error instanceof Error ? error.message.split(". ")[0] : error);
    process.exit(2);
  }
}

async function run(): Promise<boolean> {
  const receiver = await silentReceiver();
  const attacks = [
    ...[...moneyAttacks, ...allowanceAttacks, ...unpaidAttacks].map((attack) => ({
      ...attack,
      env: { ...DEFAULTS, RATE_PER_MINUTE: "100000", RATE_IN_FLIGHT: "10000", ...attack.env },
    })),
    ...[...starvingAttacks, ...peopleAttacks].map((attack) => ({
      ...attack,
      env: { ...DEFAULTS, MESSAGES_ALLOW_PRIVATE: receiver, ...attack.env },
    })),
  ].filter(({ name }) => only === undefined || name.includes(only));
  const rows: string[][] = [];
  for (const attack of attacks) {
    console.log(`running: ${attack.name}`);
    const row = await rowOf(attack);
    rows.push([attack.name, ...row]);
    console.log(`  ${row.join(" · ")}`);
  }
  console.log(`\n${[HEAD, HEAD.map(() => "---"), ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n")}`);
  return rows.length > 0 && rows.every((row) => row.at(-1) === "yes");
}

/** Runs one attack in a shop of its own. The cells of its row, without its name. */
async function rowOf({ env, replicas = 1, run: runAttack }: Attack): Promise<string[]> {
  const neighbour = await startNeighbour();
  const PROVIDER_ALLOW_PRIVATE = `127.0.0.1:${neighbour.port}`;
  const shop = await openShop({ env: { ...env, PROVIDER_ALLOW_PRIVATE }, replicas, fill: neighbour.addModel });
  try {
    let end: Awaited<ReturnType<typeof neighbour.watch>> | undefined;
    const { attacker, others, isStopped, close } = await runAttack(shop, async (origin) => {
      const origins = origin === undefined ? shop.replicas.map((replica) => replica.origin) : [origin];
      end = await neighbour.watch(shop, origins);
    });
    if (end === undefined) throw new Error("the attack did not begin");
    const beside = await end();
    await close?.();
    const books = await shop.world.unbalanced();
    const told = [others, books[0] && `BOOKS: ${books[0]}`].filter(Boolean).join(" ");
    return [attacker, told, shownBeside(beside), isStopped && isServed(beside) && books.length === 0 ? "yes" : "NO"];
  } finally {
    await shop.close();
    await neighbour.stop();
  }
}
