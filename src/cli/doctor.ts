import { readdir } from "node:fs/promises";
import process from "node:process";
import type { Command } from "commander";
import type { CheckOptions } from "../books/check.ts";
import { checkNow } from "../books/check_runs_store.ts";
import { listModels } from "../catalog/models_store.ts";
import { isNone, overheadWords } from "../catalog/overhead.ts";
import { listOverheads } from "../catalog/overhead_store.ts";
import type { ProviderTest } from "../catalog/provider_check.ts";
import { listProviders } from "../catalog/providers_store.ts";
import { listRoutes } from "../catalog/routes_store.ts";
import { receiptMonthsAhead } from "../ledger/holds_store.ts";
import { createLog } from "../platform/log.ts";
import { migrationState, schemaSentence } from "../platform/migrate.ts";
import { connectRedis } from "../platform/redis.ts";
import { type Context, does } from "./context.ts";
import { readServer, replicasUp } from "./doctor_store.ts";
import { sentenceOf } from "./errors.ts";
import type { Output } from "./output.ts";
import { testProviders, unlistedSentence } from "./provider_test.ts";

/** The command `doctor`: what an operator looks at first when something is wrong. */

const POSTGRES_VERSION_MIN = 150_000;
const REDIS_WAIT_MS = 3000;
const MONTHS_AHEAD_MIN = 2;
const REPLICA_SECONDS = 10;
const OVERHEADS_SHOWN = 20;
const PROGRESS_MS = 2_000;

export type Finding = {
  what: string;
  /** `wrong` makes the exit code 1. */
  state: "ok" | "warning" | "wrong";
  detail: string;
  /** What to do about it. */
  advice?: string;
};

type DoctorOptions = { full?: true };

export function addDoctorCommand(program: Command): void {
  does(
    program
      .command("doctor")
      .description("check everything the service stands on; exit 1 when something is wrong")
      .option("--full", "read every receipt and entry again, however long that takes"),
    {},
    async (context, { full }: DoctorOptions) => show(await diagnose(context, full === true)),
  );
}

async function diagnose(context: Context, full: boolean): Promise<Finding[]> {
  const postgres = await guarded("Postgres", "Start it, or correct DATABASE_URL.", () => checkPostgres(context));
  const redis = await guarded("Redis", "Start it, or correct REDIS_URL.", () => checkRedis(context));
  const spool = await guarded("spool", "Check SPOOL_DIR.", () => checkSpool(context));
  if (postgres.some(({ state }) => state === "wrong")) return [...postgres, ...redis, ...spool];
  const migrations = await guarded("migrations", "Run: bun run cli migrate", () => checkMigrations(context));
  if (migrations.some(({ state }) => state === "wrong")) return [...postgres, ...redis, ...migrations, ...spool];
  return [
    ...postgres,
    ...redis,
    ...migrations,
    ...(await guarded("providers", "See the provider's own status page.", () => checkProviders(context))),
    ...(await guarded("models", "See: bun run cli model list", () => checkModels(context))),
    ...(await guarded("overheads", "See: bun run cli model show", () => checkOverheads(context))),
    ...(await guarded("books", "Run doctor again.", () => checkBooks(context, full))),
    ...(await guarded("receipts", "Run doctor again.", () => checkMonths(context))),
    ...(await guarded("replicas", "Run doctor again.", () => checkReplicas(context))),
    ...spool,
  ];
}

/** What `check` finds; that it fails is a finding too. */
async function guarded(
  what: string,
  advice: string,
  check: () => Promise<Omit<Finding, "what"> | Finding[]>,
): Promise<Finding[]> {
  try {
    const found = await check();
    return Array.isArray(found) ? found : [{ what, ...found }];
  } catch (error) {
    return [{ what, state: "wrong", detail: sentenceOf(error), advice }];
  }
}

type Found = Omit<Finding, "what">;

async function checkPostgres(context: Context): Promise<Found> {
  const { version } = await readServer(context);
  const detail = `version ${Math.floor(version / 10_000)} answers`;
  return version >= POSTGRES_VERSION_MIN
    ? { state: "ok", detail }
    : { state: "wrong", detail, advice: "Use Postgres 15 or newer." };
}

async function checkRedis({ config: { redisUrl } }: Context): Promise<Found> {
  if (redisUrl === "")
    return { state: "ok", detail: "not used: REDIS_URL is empty, which is right for a single replica" };
  const redis = connectRedis(redisUrl, { log: createLog("silent"), use: "doctor" });
  try {
    let lost: Error | undefined;
    redis.on("error", (error: Error) => (lost = error));
    for (let waitedMs = 0; redis.status !== "ready"; waitedMs += 10) {
      if (waitedMs >= REDIS_WAIT_MS) throw new Error(`it does not answer (${lost?.message || "no connection"})`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await redis.ping();
    return { state: "ok", detail: "answers" };
  } finally {
    redis.disconnect();
  }
}

async function checkMigrations({ config }: Context): Promise<Found> {
  const state = await migrationState(config.databaseUrl);
  const { known, applied, schema } = state;
  if (schema === "older")
    return { state: "wrong", detail: `${applied} of ${known} are applied`, advice: "Run: bun run cli migrate" };
  if (schema !== "current")
    return {
      state: "wrong",
      detail: `the database has ${applied}, this release knows ${known}`,
      advice: schemaSentence(state),
    };
  return { state: "ok", detail: `all ${known} are applied` };
}

async function checkProviders(context: Context): Promise<Found | Finding[]> {
  if (!(await listProviders(context)).some(({ enabled }) => enabled)) {
    return { state: "warning", detail: "there is none enabled", advice: "Run: bun run cli provider add" };
  }
  if (!process.env.SECRET_KEY)
    return {
      state: "wrong",
      detail: "SECRET_KEY is not set, so their keys cannot be read",
      advice: "Set SECRET_KEY as the replicas have it.",
    };
  return (await testProviders(context)).map((test) => ({ what: `provider ${test.name}`, ...foundOf(test) }));
}

/** A model that is not listed may be served all the same, so that it is no more than a warning. */
function foundOf(test: ProviderTest): Found {
  const { ok, tookMs, models, problem } = test;
  const unlisted = unlistedSentence(test);
  if (!ok)
    return {
      state: "wrong",
      detail: problem ?? "it failed",
      advice: "Mend it with provider set, or switch it off with provider set --disable.",
    };
  const detail = `answers in ${tookMs} ms, lists ${models} models`;
  if (unlisted === "") return { state: "ok", detail };
  return {
    state: "warning",
    detail: `${detail}, but ${unlisted}`,
    advice: "Requests on that route are likely to get 503. Name the provider's own model: model route --upstream.",
  };
}

async function checkModels(context: Context): Promise<Found> {
  const providers = new Set((await listProviders(context)).filter(({ enabled }) => enabled).map(({ id }) => id));
  const served = new Set(
    (await listRoutes(context))
      .filter((route) => route.enabled && providers.has(route.providerId))
      .map(({ modelId }) => modelId),
  );
  const enabled = (await listModels(context)).filter((model) => model.enabled);
  const lost = enabled.filter(({ id }) => !served.has(id)).map(({ id }) => id);
  if (enabled.length === 0)
    return { state: "warning", detail: "there is none enabled", advice: "Run: bun run cli model add" };
  if (lost.length > 0)
    return {
      state: "warning",
      detail: `no route serves ${lost.join(", ")}`,
      advice: "Add one with model route, or switch the model off with model set --disable.",
    };
  return { state: "ok", detail: `${enabled.length} enabled, each has a route` };
}

/** Routes whose answers cost more than was held for them: money is lost there until their settings are right. */
async function checkOverheads(context: Context): Promise<Found | Finding[]> {
  const known = await listOverheads(context);
  if (known.length === 0) return { state: "ok", detail: "no answer cost more than was held for it lately" };
  const routes = await listRoutes(context);
  return known.slice(0, OVERHEADS_SHOWN).map(({ routeId, overhead, largest, accounts, firstAt }) => {
    const route = routes.find(({ id }) => id === routeId);
    const held = isNone(overhead)
      ? `only for ${accounts === 1 ? "the account" : `the ${accounts} accounts`} that met it is more held: at most ${overheadWords(largest)}`
      : `for everybody is held on top: ${overheadWords(overhead)}`;
    return {
      what: `overhead ${route?.modelId ?? ""} ${routeId}: ${route?.providerName ?? ""}/${route?.upstreamModel ?? ""}`,
      state: "warning" as const,
      detail: `answers have cost more than their holds since ${firstAt}; ${held}`,
      advice: `Correct --image-tokens, --cap-field or the prices; then run: bun run cli model reset-overhead ${route?.modelId ?? ""}`,
    };
  });
}

/** A check like those of the replicas, and stored like theirs: in slices, none of which is felt by requests. */
async function checkBooks({ db }: Context, full: boolean): Promise<Found> {
  let changed = 0;
  const { results } = await checkNow(db.sql, { full, onSlice: progress(), onChanged: (pieces) => (changed += pieces) });
  const broken = results.flatMap(({ name, rows }) => (rows !== null && rows > 0 ? `${name} (${rows})` : []));
  const uncounted = results.filter(({ rows }) => rows === null).map(({ name }) => name);
  if (broken.length > 0) {
    return {
      state: "wrong",
      detail: `do not balance: ${broken.join(", ")}`,
      advice: "Look at the rows of the views named here with psql; change nothing by hand before you know why.",
    };
  }
  if (uncounted.length > 0)
    return {
      state: "warning",
      detail: `not counted in time: ${uncounted.join(", ")}`,
      advice: "Run doctor again: the closing goes on from where it is.",
    };
  if (changed > 0)
    return {
      state: "warning",
      detail: "balance, but receipts, entries or their sums were changed by hand after they had been folded",
      advice: "Find out who changed them; the closed sums are those of the rows again.",
    };
  return { state: "ok", detail: `balance, ${results.length} of ${results.length}` };
}

/** Says on stderr what a long check is at, every few seconds. */
function progress(): CheckOptions["onSlice"] {
  let saidMs = performance.now();
  return ({ doing, done, longestMs }) => {
    if (performance.now() - saidMs < PROGRESS_MS) return;
    saidMs = performance.now();
    process.stderr.write(`books: ${doing}, ${done} slices, the longest ${Math.round(longestMs)} ms\n`);
  };
}

async function checkMonths(context: Context): Promise<Found> {
  const months = await receiptMonthsAhead(context);
  if (months >= MONTHS_AHEAD_MIN) return { state: "ok", detail: `${months} months are prepared` };
  const advice = "Start a replica: it prepares the coming months each hour.";
  return { state: months === 0 ? "wrong" : "warning", detail: `only ${months} months ahead are prepared`, advice };
}

async function checkReplicas(context: Context): Promise<Found> {
  const up = await replicasUp(context, REPLICA_SECONDS);
  return up > 0
    ? { state: "ok", detail: `${up} up` }
    : { state: "warning", detail: "none was heard of lately", advice: "Start one." };
}

async function checkSpool({ config: { spoolDir } }: Context): Promise<Found> {
  const names = await readdir(spoolDir).catch((error: NodeJS.ErrnoException): string[] => {
    if (error.code === "ENOENT") return []; // No replica has run here.
    throw error;
  });
  if (names.includes("aside.jsonl")) {
    return {
      state: "wrong",
      detail: `${spoolDir}/aside.jsonl has settlements that the ledger would not take`,
      advice: "Report them: each line is a request whose usage is not in the books.",
    };
  }
  const waiting = names.filter((name) => name.endsWith(".spool")).length;
  if (waiting === 0) return { state: "ok", detail: `nothing waits in ${spoolDir} on this machine` };
  return {
    state: "warning",
    detail: `${waiting} files of settlements wait in ${spoolDir}`,
    advice: "Start the replica whose folder this is: it books them first of all.",
  };
}

function show(findings: Finding[]): Output {
  const wrong = findings.filter(({ state }) => state === "wrong").length;
  const warnings = findings.filter(({ state }) => state === "warning").length;
  const lines = findings.flatMap(({ what, state, detail, advice }) => [
    `${state.padEnd(7)}  ${what}: ${detail}`,
    ...(advice === undefined ? [] : [`         → ${advice}`]),
  ]);
  const verdict =
    wrong > 0
      ? `${wrong} wrong, ${warnings} warnings.`
      : warnings > 0
        ? `Nothing is wrong, ${warnings} warnings.`
        : "All is well.";
  return { text: [...lines, "", verdict].join("\n"), json: { ok: wrong === 0, findings }, exitCode: wrong > 0 ? 1 : 0 };
}
