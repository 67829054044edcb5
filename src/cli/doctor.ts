import { readdir } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { Command } from "commander";
import type { Redis } from "ioredis";
import { lossBoundsOf } from "../accounts/losses.ts";
import { readStops } from "../accounts/losses_store.ts";
import { checkNow } from "../books/check_runs_store.ts";
import { exportState } from "../books/receipt_export_store.ts";
import { chainProblems } from "../books/seal_check_store.ts";
import { listClosedMonths, listOpenMonths } from "../books/seals_store.ts";
import { openSlices } from "../books/short_transactions_store.ts";
import { listUnpriced } from "../books/unpriced_store.ts";
import { listModels } from "../catalog/models_store.ts";
import type { ProviderTest } from "../catalog/provider_check.ts";
import { listProviders } from "../catalog/providers_store.ts";
import { listRoutes } from "../catalog/routes_store.ts";
import { InputError } from "../errors.ts";
import { receiptMonthsAhead } from "../ledger/leases_store.ts";
import { createLog } from "../platform/log.ts";
import { migrationState, schemaSentence } from "../platform/migrate.ts";
import { connectRedis } from "../platform/redis.ts";
import { type Context, defineCommand } from "./context.ts";
import type { Finding, Found } from "./doctor_findings.ts";
import { checkBounds, checkMargins } from "./doctor_models.ts";
import { checkPayments } from "./doctor_payments.ts";
import { readOutbox, readServer, replicasUp } from "./doctor_store.ts";
import { operatorDoor } from "./door.ts";
import { knownSentence, sentenceOf } from "./errors.ts";
import type { Output } from "./output.ts";
import { progressOf } from "./progress.ts";
import { testProviders, unlistedSentence } from "./provider_test.ts";
import { verifyAll } from "./retention_commands.ts";
import { terminal } from "./terminal.ts";

/** The command `doctor`: checks everything the service depends on, and says what to do about each problem. */

const POSTGRES_VERSION_MIN = 150_000;
const REDIS_WAIT_MS = 3000;
const MONTHS_AHEAD_MIN = 2;
const REPLICA_SECONDS = 10;
const MESSAGE_SECONDS_MAX = 1800;
const EXPORT_SECONDS_MAX = 900;

type DoctorOptions = { full?: true; files?: string };

export function addDoctorCommand(program: Command): void {
  defineCommand(
    program
      .command("doctor")
      .description("check everything the service depends on; exits with 1 if something is wrong")
      .option("--full", "recheck every ledger record, and compare it with the seals; may take long")
      .option("--files <folder>", "with --full: also compare the files of exported months there"),
    {},
    async (context, { full, files }: DoctorOptions) => {
      if (files !== undefined && !full) throw new InputError("--files is only for doctor --full.");
      return show(await diagnose(context, full === true, files));
    },
  );
}

async function diagnose(context: Context, full: boolean, files: string | undefined): Promise<Finding[]> {
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
    ...(await guarded("bounds", "See: bun run cli model show", () => checkBounds(context))),
    ...(await guarded("margins", "See: bun run cli model show", () => checkMargins(context))),
    ...(await guarded("books", "Run doctor again.", () => checkBooks(context, full))),
    ...(await guarded("seals", "Run doctor again.", () => checkSeals(context, full, files))),
    ...(await guarded("unpriced", "Run doctor again.", () => checkUnpriced(context))),
    ...(await guarded("losses", "See: bun run cli account losses", () => checkLosses(context))),
    ...(await guarded("payments", "See the page Payment settings.", () => checkPayments(context))),
    ...(await guarded("messages", "See the page Mail.", () => checkMessages(context))),
    ...(await guarded("receipt export", "Run doctor again.", () => checkExport(context))),
    ...(await guarded("receipts", "Run doctor again.", () => checkMonths(context))),
    ...(await guarded("replicas", "Run doctor again.", () => checkReplicas(context))),
    ...spool,
  ];
}

/** The finding of `check`. A check that throws is a finding too; the sentence of a known error says itself what to do. */
async function guarded(
  what: string,
  advice: string,
  check: () => Promise<Omit<Finding, "what"> | Finding[]>,
): Promise<Finding[]> {
  try {
    const found = await check();
    return Array.isArray(found) ? found : [{ what, ...found }];
  } catch (error) {
    const known = knownSentence(error);
    return [
      { what, state: "wrong", ...(known === undefined ? { detail: sentenceOf(error), advice } : { detail: known }) },
    ];
  }
}

async function checkPostgres(context: Context): Promise<Found> {
  const { version } = await readServer(context);
  const detail = `version ${Math.floor(version / 10_000)} answers`;
  return version >= POSTGRES_VERSION_MIN
    ? { state: "ok", detail }
    : { state: "wrong", detail, advice: "Use Postgres 15 or newer." };
}

async function checkRedis({ config: { redisUrl } }: Context): Promise<Found> {
  if (redisUrl === "")
    return { state: "ok", detail: "not used: REDIS_URL is empty, which is fine for a single replica" };
  const redis = connectRedis(redisUrl, { log: createLog("silent"), use: "doctor" });
  try {
    let lost: Error | undefined;
    redis.on("error", (error: Error) => (lost = error));
    for (let waitedMs = 0; redis.status !== "ready"; waitedMs += 10) {
      if (waitedMs >= REDIS_WAIT_MS) throw new Error(`it does not answer (${lost?.message || "no connection"})`);
      await sleep(10);
    }
    return await checkRedisServer(redis);
  } finally {
    redis.disconnect();
  }
}

/** Whether it takes writes, which one that is full or has become a replica does not, and keeps what it has. */
async function checkRedisServer(redis: Redis): Promise<Found> {
  const refusal = await redis.set("tollgate:doctor", "", "PX", 1000).then(
    () => undefined,
    (error: Error) => error.message,
  );
  if (refusal !== undefined)
    return {
      state: "wrong",
      detail: `it refuses to write (${refusal})`,
      advice: "If it is full, give it more memory. If it is a replica, name the primary in REDIS_URL.",
    };
  const facts = await redis.info("memory").catch(() => ""); // Its user may have no right to ask.
  const policy = /^maxmemory_policy:(\S+)/m.exec(facts)?.[1] ?? "noeviction";
  if (policy === "noeviction" || /^maxmemory:0\s/m.test(facts)) return { state: "ok", detail: "answers" };
  return {
    state: "warning",
    detail: `answers, but its maxmemory-policy is ${policy}: a request whose Idempotency-Key it has dropped may be served twice`,
    advice: "Set maxmemory-policy to noeviction.",
  };
}

async function checkMigrations({ config }: Context): Promise<Found> {
  const state = await migrationState(config.databaseUrl);
  const { known, applied, schema } = state;
  if (schema === "older")
    return { state: "wrong", detail: `${applied} of ${known} applied`, advice: "Run: bun run cli migrate" };
  if (schema !== "current")
    return {
      state: "wrong",
      detail: `the database has ${applied}, this release has ${known}`,
      advice: schemaSentence(state),
    };
  return { state: "ok", detail: `all ${known} applied` };
}

async function checkProviders(context: Context): Promise<Found | Finding[]> {
  if (!(await listProviders(context)).some(({ enabled }) => enabled)) {
    return { state: "warning", detail: "none is enabled", advice: "Run: bun run cli provider add" };
  }
  if (!terminal().env.SECRET_KEY)
    return {
      state: "wrong",
      detail: "SECRET_KEY is not set, so their keys cannot be decrypted",
      advice: "Set SECRET_KEY to the value that the replicas have.",
    };
  return (await testProviders(operatorDoor(context))).map((test) => ({
    what: `provider ${test.name}`,
    ...foundOf(test),
  }));
}

/** A model that is not listed may still be served, so it is only a warning. */
function foundOf(test: ProviderTest): Found {
  const { ok, tookMs, models, problem } = test;
  const unlisted = unlistedSentence(test);
  if (!ok)
    return {
      state: "wrong",
      detail: problem ?? "the test failed",
      advice: "Correct it with provider set, or disable it with provider set --disable.",
    };
  const detail = `answers in ${tookMs} ms, lists ${models} models`;
  if (unlisted === "") return { state: "ok", detail };
  return {
    state: "warning",
    detail: `${detail}, but ${unlisted}`,
    advice:
      "Requests on that route will probably get 503. Set the provider's name of the model: model route --upstream.",
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
    return { state: "warning", detail: "none is enabled", advice: "Run: bun run cli model add" };
  if (lost.length > 0)
    return {
      state: "warning",
      detail: `no route serves ${lost.join(", ")}`,
      advice: "Add one with model route, or disable the model with model set --disable.",
    };
  return { state: "ok", detail: `${enabled.length} enabled, each has a route` };
}

/** The same check as replicas run, stored in the same place. It runs in slices so that requests do not slow down. */
async function checkBooks({ db }: Context, full: boolean): Promise<Found> {
  let changed = 0;
  const { results } = await checkNow(db.sql, {
    full,
    onSlice: progressOf("books"),
    onChanged: (pieces) => (changed += pieces),
  });
  const broken = results.flatMap(({ name, rows }) => (rows !== null && rows > 0 ? `${name} (${rows})` : []));
  const uncounted = results.filter(({ rows }) => rows === null).map(({ name }) => name);
  if (broken.length > 0) {
    return {
      state: "wrong",
      detail: `do not balance: ${broken.join(", ")}`,
      advice: "Look at the rows of these views with psql. Change nothing manually until you know the cause.",
    };
  }
  if (uncounted.length > 0)
    return {
      state: "warning",
      detail: `not checked in time: ${uncounted.join(", ")}`,
      advice: "Run doctor again: the check continues where it stopped.",
    };
  if (changed > 0)
    return {
      state: "warning",
      detail: "balance, but receipts, transactions or their sums were changed manually after they had been summed up",
      advice: "Find out who changed them. The sums have been computed again from the rows.",
    };
  return { state: "ok", detail: `all ${results.length} checks passed` };
}

/** Seals of months of receipts. With --full, all that they were made of is compared with them. */
async function checkSeals(context: Context, full: boolean, files: string | undefined): Promise<Found | Finding[]> {
  const { sql } = context.db;
  const closed = await listClosedMonths(sql);
  const slices = openSlices(sql, { onSlice: progressOf("seals") });
  const problems = full
    ? (await verifyAll(slices, context, files)).problems
    : closed.flatMap((month, i) => chainProblems(month, closed[i - 1]));
  if (problems.length > 0)
    return problems.map(({ month, problem }) => ({
      what: `seal of ${month}`,
      state: "wrong" as const,
      detail: problem,
      advice: "Find out who changed it, and compare with a backup or with exported files. Drop nothing until then.",
    }));
  const due = (await listOpenMonths(sql)).filter(({ isDue, isEmpty }) => isDue && !isEmpty).map(({ month }) => month);
  if (due.length > 0)
    return {
      state: "warning",
      detail: `${due.join(", ")} could be sealed`,
      advice: "A replica does it within ten minutes. Or run: bun run cli retention seal",
    };
  const sealed = closed.filter(({ seal }) => seal !== null).length;
  return { state: "ok", detail: `${sealed} sealed months ${full ? "are unchanged" : "name one another"}` };
}

/** Counts that providers report and that have no price. The check of the books has summed them up. Source: IMP-6. */
async function checkUnpriced({ db }: Context): Promise<Found | Finding[]> {
  const counts = await listUnpriced(db.sql);
  if (counts.length === 0) return { state: "ok", detail: "every count that providers report has a price" };
  return counts.map(({ modelId, kind, tokens, requests, since }) => ({
    what: `unpriced ${modelId}`,
    state: "warning" as const,
    detail: `its provider has reported ${tokens} tokens of ${kind} in ${requests} requests since ${since}, and it has no such price: charged at its highest ${kind.endsWith("output") ? "output" : "input"} price`,
    advice: "Compare its prices with those of its provider: bun run cli model import",
  }));
}

/** Accounts and resellers that are refused, because nobody paid what their requests cost. */
async function checkLosses({ db, config }: Context): Promise<Found> {
  const bounds = Object.entries(lossBoundsOf(config)).map(([kind, most]) => ({ kind, ...most }));
  const stops = await readStops({ db }, bounds);
  if (stops.length === 0) return { state: "ok", detail: "no account is refused for what nobody paid" };
  const who = stops.length === 1 ? "an account or reseller is" : `${stops.length} accounts or resellers are`;
  return {
    state: "warning",
    detail: `${who} refused for up to an hour, because too much of what their requests cost was not paid`,
    advice: "See who: bun run cli account losses",
  };
}

/** Mail servers that do not answer, and mails and webhook calls that have waited too long. */
async function checkMessages({ db }: Context): Promise<Found | Finding[]> {
  const { waiting, oldestSeconds, failed, downServers } = await readOutbox({ db });
  if (downServers.length > 0)
    return downServers.map(({ tenantId, name, since, why }) => ({
      what: name === null ? "mail server" : `mail server of ${name}`,
      state: "warning" as const,
      detail: `has not answered since ${since}: ${why}`,
      advice:
        tenantId === 0
          ? "Check SMTP_URL and the server. Its mails wait, and go out when it answers."
          : "Its reseller sets it on the page Mail. Mails to the reseller's customers wait until it answers.",
    }));
  if (oldestSeconds > MESSAGE_SECONDS_MAX)
    return {
      state: "warning",
      detail: `${waiting} wait, the oldest for ${Math.round(oldestSeconds / 60)} minutes`,
      advice: "The page Mail says why. Check SMTP_URL, and that a replica is running.",
    };
  return { state: "ok", detail: `${waiting} wait, ${failed} were given up in the last 24 hours` };
}

/** How far behind the export of receipts is. */
async function checkExport(context: Context): Promise<Found> {
  if (context.config.receiptExport === undefined)
    return { state: "ok", detail: "not used: RECEIPT_EXPORT_URL is empty" };
  const { oldestSeconds, failures, failure, receipts } = await exportState(context);
  const detail = `${receipts} delivered, ${oldestSeconds === null ? "none waits" : `the next one has waited for ${Math.round(oldestSeconds)} s`}`;
  if (failure !== null)
    return {
      state: "warning",
      detail: `${detail}; ${failures} calls in a row failed, the last: ${failure}`,
      advice: "Check the server behind RECEIPT_EXPORT_URL, and RECEIPT_EXPORT_SECRET or RECEIPT_EXPORT_HEADERS.",
    };
  if ((oldestSeconds ?? 0) > EXPORT_SECONDS_MAX)
    return { state: "warning", detail, advice: "Check that a replica with RECEIPT_EXPORT_URL is running." };
  return { state: "ok", detail };
}

async function checkMonths(context: Context): Promise<Found> {
  const months = await receiptMonthsAhead(context);
  if (months >= MONTHS_AHEAD_MIN) return { state: "ok", detail: `tables for ${months} months ahead exist` };
  const advice = "Start a replica: it creates the tables of the coming months every hour.";
  return { state: months === 0 ? "wrong" : "warning", detail: `tables for only ${months} months ahead exist`, advice };
}

async function checkReplicas(context: Context): Promise<Found> {
  const up = await replicasUp(context, REPLICA_SECONDS);
  return up > 0
    ? { state: "ok", detail: `${up} running` }
    : { state: "warning", detail: "none is running", advice: "Start one: bun run start" };
}

async function checkSpool({ config: { spoolDir } }: Context): Promise<Found> {
  const names = await readdir(spoolDir).catch((error: NodeJS.ErrnoException): string[] => {
    if (error.code === "ENOENT") return []; // No replica has run on this machine.
    throw error;
  });
  if (names.includes("aside.jsonl")) {
    return {
      state: "wrong",
      detail: `${spoolDir}/aside.jsonl has settlements that the ledger rejected`,
      advice: "Report them: each line is a request whose usage is not recorded.",
    };
  }
  const waiting = names.filter((name) => name.endsWith(".spool")).length;
  if (waiting === 0) return { state: "ok", detail: `no settlements wait in ${spoolDir} on this machine` };
  return {
    state: "warning",
    detail: `${waiting} files of settlements wait in ${spoolDir}`,
    advice: "Start the replica that uses this folder: it settles them before anything else.",
  };
}

function show(findings: Finding[]): Output {
  const wrong = findings.filter(({ state }) => state === "wrong").length;
  const warnings = findings.filter(({ state }) => state === "warning").length;
  const lines = findings.flatMap(({ what, state, detail, advice }) => [
    `${state.padEnd(7)}  ${what}: ${detail}`,
    ...(advice === undefined ? [] : [`         → ${advice}`]),
  ]);
  const warned = warnings === 1 ? "1 warning" : `${warnings} warnings`;
  const verdict =
    wrong > 0 ? `${wrong} wrong, ${warned}.` : warnings > 0 ? `Nothing is wrong; ${warned}.` : "Everything is fine.";
  return { text: [...lines, "", verdict].join("\n"), json: { ok: wrong === 0, findings }, exitCode: wrong > 0 ? 1 : 0 };
}
