import process from "node:process";
import { parseArgs } from "node:util";
import { startServices } from "../../scripts/services.ts";
import { raiseFetchLimit } from "../../src/platform/runtime.ts";

/**
 * The attacks of a malicious customer, run against a replica with its default limits:
 * `bun run attacks [--only PART-OF-NAME]`. Prints a table; ends with 1 if an attack is not stopped.
 */

const HEAD = ["attack", "the attacker", "others", "stopped"];
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
    ...starvingAttacks.map((attack) => ({
      ...attack,
      env: { ...DEFAULTS, MESSAGES_ALLOW_PRIVATE: receiver, ...attack.env },
    })),
  ].filter(({ name }) => only === undefined || name.includes(only));
  const rows: string[][] = [];
  for (const { name, env, replicas = 1, run: runAttack } of attacks) {
    console.log(`running: ${name}`);
    const shop = await openShop({ env, replicas });
    try {
      const { attacker, others, isStopped } = await runAttack(shop);
      const books = await shop.world.unbalanced();
      rows.push([name, attacker, books.length > 0 ? `${others} BOOKS: ${books[0]}` : others, isStopped ? "yes" : "NO"]);
      console.log(`  ${rows.at(-1)?.slice(1).join(" · ")}`);
    } finally {
      await shop.close();
    }
  }
  console.log(`\n${[HEAD, HEAD.map(() => "---"), ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n")}`);
  return rows.length > 0 && rows.every((row) => row.at(-1) === "yes");
}
