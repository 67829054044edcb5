import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { Escrow } from "../../src/ledger/escrow.ts";
import { releaseOf, settlementOf } from "../../src/ledger/finisher.ts";
import { reapAccount, takeLease } from "../../src/ledger/leases_store.ts";
import type { Hold } from "../../src/ledger/ledger.ts";
import {
  type BatchInput,
  type BatchOutput,
  type Finish,
  type FinishResult,
  type ReserveRequest,
  runBatch,
} from "../../src/ledger/ledger_store.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { compareBooks, same } from "../books/compare_books.ts";
import { holds, TIMES } from "../property.ts";
import { createWorld, type World } from "../world.ts";
import { knownAs, tally, usageOf } from "./ledger_world.ts";
import { dateIn, LedgerModel, nextDayMs, type Terms, toIso } from "./model.ts";
import {
  type Charge,
  type Command,
  type EndPlan,
  FOUND,
  type key,
  MODELS,
  type Plan,
  PRICES,
  plan,
  REPLICAS,
  type RequestPlan,
  SELDOM,
  type Setup,
} from "./property_plans.ts";

/**
 * Any sequence of commands to the ledger gives the same answers and counters as the rules in model.ts. Three replicas use the real
 * escrow and the real SQL, one statement at a time: they draw ahead, grant from memory, lose answers, have statements that run late,
 * die, and settle late.
 * Source: PAY-9, QUO-3, QUO-4, QUO-5, QUO-6, MON-6, MON-7, END-13.
 */

const RUNS = 100;
/** The tables are compared after this many commands, and at the end. */
const COMPARE_EVERY = 12;
/** Shrinking a counter-example may take long. Above this limit the smallest one so far is reported. */
const SEARCH_MS_MAX = 4 * 60_000 * TIMES;
const TEST_TIMEOUT_MS = SEARCH_MS_MAX + 60_000;
const MINUTE_MS = 60_000;

/** Enough runs for every possible answer of the ledger. */
const RUNS_TO_REACH_ALL = 100;
const ANSWERS = [
  ...[
    "granted by package",
    "granted by payg",
    "granted from memory",
    "recall",
    "stale",
    "lease_ended",
    "clock_skew",
    "invalid_api_key",
    "model_not_found",
  ],
  ...[
    "package_required",
    "package_expired",
    "model_not_in_package",
    "package_quota_exceeded",
    "package_tokens_exceeded",
  ],
  "daily_quota_exceeded",
  ...["carryover_quota_exceeded", "key_request_limit_exceeded", "key_spend_limit_exceeded", "insufficient_balance"],
  ...[
    "payg_pricing_unavailable",
    "settled",
    "settled late",
    "shortfall",
    "released",
    "refused",
    "recall of an end",
    "recall of a late end",
    "already",
    "gone",
  ],
];

let world: World;
const reached: string[] = [];
let runs = 0;
let commandsRun = 0;

beforeAll(async () => {
  world = await createWorld();
  await world.setClock("2026-02-01T00:00:00Z");
  await world.sql`select make_receipt_months(16)`;
});
afterAll(() => world.close());

/** A run: the same three accounts in the database and in the model. */
type Run = {
  model: LedgerModel;
  people: { accountId: number; tenantId: number; packageKeyId: number; paygKeyId: number }[];
  offeringIds: number[];
  replicas: Escrow[];
  /** Granted requests. */
  granted: Hold[];
  /** Requests whose end has an answer. */
  ended: Set<string>;
  /** Batches that timed out and have not run yet. */
  late: BatchInput[];
};

/** A replica that has just started. */
async function startReplica(model: LedgerModel, { unitsMax }: { unitsMax: number }): Promise<Escrow> {
  const clock = () => model.nowMs;
  const escrow = new Escrow({ leaseMs: Number.MAX_SAFE_INTEGER / 4, unitsMax, nowMs: clock, wallMs: clock });
  await takeLease(world.sql, escrow.leaseId, 3600);
  escrow.leaseRenewed(escrow.leaseId, model.nowMs);
  return escrow;
}

async function begin({ start, startMinute, offerings, people }: Setup): Promise<Run> {
  const model = new LedgerModel(Date.parse(start) + startMinute * MINUTE_MS);
  await world.setClock(toIso(model.nowMs));
  const offeringIds = await Promise.all(
    offerings.map(async (spec) => {
      const offeringId = await world.addOffering(spec);
      const { wholesaleNanoUsd, ...terms }: Terms & { wholesaleNanoUsd: bigint } = spec;
      model.offerings.set(offeringId, { offeringId, terms, wholesaleNanoUsd });
      return offeringId;
    }),
  );
  const reseller = await world.addReseller();
  const accounts = [reseller, await world.addCustomer(reseller.accountId), await world.addCustomer()];
  const replicas = await Promise.all(REPLICAS.map((options) => startReplica(model, options)));
  const run: Run = { model, people: [], offeringIds, replicas, granted: [], ended: new Set(), late: [] };
  for (const [i, { accountId }] of accounts.entries()) {
    const plan = people[i] as (typeof people)[number];
    const resellerId = i === 1 ? reseller.accountId : null;
    model.accounts.set(accountId, { accountId, resellerId, active: true, paygEnabled: plan.paygEnabled });
    const packageKeyId = await addKey(model, { accountId, mode: "package", ...plan.packageKey });
    const paygKeyId = await addKey(model, { accountId, mode: "payg", ...plan.paygKey });
    run.people.push({ accountId, tenantId: i < 2 ? reseller.accountId : 0, packageKeyId, paygKeyId });
    await world.sql`select set_payg(${accountId}, ${plan.paygEnabled})`;
    if (plan.nanoUsd > 0n) await step(run, { do: "money", who: i, nanoUsd: plan.nanoUsd });
    if (plan.package !== null)
      await step(run, { do: "assign", who: i, offering: plan.package, when: "now", paid: "operator" });
  }
  return run;
}

type KeyPlan = { accountId: number; mode: "package" | "payg" } & (typeof key extends fc.Arbitrary<infer T> ? T : never);

async function addKey(model: LedgerModel, plan: KeyPlan): Promise<number> {
  const { accountId, mode, unitsMax, nanoUsdMax, timeZone, modelIds } = plan;
  const { keyId } = await world.addKey({ accountId }, { mode, modelIds: modelIds ?? undefined });
  await world.sql`
    update keys set daily_units_max = ${unitsMax}, daily_spend_max_nano_usd = ${nanoUsdMax === null ? null : String(nanoUsdMax)},
      time_zone = ${timeZone} where id = ${keyId}`;
  model.keys.set(keyId, { keyId, ...plan, status: "enabled" });
  return keyId;
}

/** The last of a list counted backwards, round and round; undefined of an empty one. */
function fromEnd<T>(list: readonly T[], n: number): T | undefined {
  return list.length === 0 ? undefined : list[list.length - 1 - (n % list.length)];
}

function requestOf({ model, people }: Run, plan: RequestPlan): ReserveRequest {
  const person = people[plan.who] as Run["people"][number];
  const [outputPico, promptPico] = PRICES[plan.price] as [bigint, bigint];
  const keyId = plan.byBalance ? person.paygKeyId : person.packageKeyId;
  const key = model.keys.get(keyId);
  const modelId = MODELS[plan.model] as string;
  // The gateway checks this first: only such a request may be granted from memory.
  const isFit =
    key?.status === "enabled" &&
    key.unitsMax === null &&
    key.nanoUsdMax === null &&
    (key.modelIds === null || key.modelIds.includes(modelId));
  return {
    requestId: newRequestId(),
    accountId: person.accountId,
    tenantId: person.tenantId,
    keyId,
    host: "api.example.com",
    ownHost: true,
    modelId,
    promptPico,
    outputPico,
    capMax: plan.capMax,
    capMin: Math.max(1, Math.floor((plan.capMax * plan.leastPercent) / 100)),
    promptTokens: plan.promptTokens,
    choices: plan.choices,
    sendsCap: false,
    priceVersionId: null,
    markupBasisPoints: 0,
    known: isFit ? knownAs(key.mode) : null,
  };
}

function finishOf({ model, granted }: Run, plan: EndPlan): Finish | undefined {
  const among = {
    living: ({ requestId }: Hold) => model.holds.has(requestId),
    reaped: (hold: Hold) => model.endedLeases.has(hold.leaseId) && !model.receipts.has(hold.requestId),
    all: () => true,
  };
  const hold = fromEnd(granted.filter(among[plan.of]), plan.pick);
  if (hold === undefined) return undefined;
  const { settles, reason, promptTokens, completionTokens, strict } = plan;
  if (!settles) return releaseOf(hold, reason);
  const charges: Record<Charge, bigint> = {
    none: 0n,
    half: hold.heldNanoUsd / 2n,
    exact: hold.heldNanoUsd,
    one_more: hold.heldNanoUsd + 1n,
    much_more: hold.heldNanoUsd + 1700n,
  };
  // A request that a package pays is not charged. Source: PAY-2.
  const chargeNanoUsd = hold.mode === "payg" ? charges[plan.charge] : 0n;
  return settlementOf(hold, usageOf({ promptTokens, completionTokens, chargeNanoUsd }), { strict, reason });
}

/** Runs one command on both sides. Throws if they differ. */
async function step(run: Run, command: Command): Promise<void> {
  const { model, people } = run;
  switch (command.do) {
    case "reserve":
      return batch(run, { ...command, reserves: [requestOf(run, command.request)], finishes: [] });
    case "burst": {
      for (let i = 0; i < command.count; i++)
        await batch(run, { ...command, reserves: [requestOf(run, command.request)], finishes: [] });
      return;
    }
    case "end": {
      const finish = finishOf(run, command.end);
      if (finish) await batch(run, { ...command, reserves: [], finishes: [finish] });
      return;
    }
    case "draw":
      return batch(run, { ...command, reserves: [], finishes: [], draws: [personOf(run, command.who).accountId] });
    case "recall": {
      const { accountId } = personOf(run, command.who);
      run.replicas[command.replica]?.recall(accountId);
      return batch(run, { ...command, reserves: [], finishes: [], draws: [accountId] });
    }
    case "run_late": {
      const [input] = run.late.splice(command.pick % Math.max(1, run.late.length), 1);
      if (input !== undefined) await send(run, input);
      return;
    }
    case "die": {
      const dead = run.replicas[command.replica] as Escrow;
      model.endedLeases.add(dead.leaseId);
      await world.sql`update leases set ended = true where id = ${dead.leaseId}`;
      run.replicas[command.replica] = await startReplica(model, REPLICAS[command.replica] as (typeof REPLICAS)[number]);
      return;
    }
    case "batch": {
      const ends = new Map<string, Finish>();
      for (const end of command.ends) {
        const finish = finishOf(run, end);
        if (finish !== undefined && !ends.has(finish.requestId)) ends.set(finish.requestId, finish);
      }
      const finishes = [...ends.values()];
      return batch(run, {
        ...command,
        reserves: command.reserves.map((plan) => requestOf(run, plan)),
        finishes: command.twice ? finishes.flatMap((finish) => [finish, finish]) : finishes,
      });
    }
    case "clock": {
      model.nowMs = Math.max(model.nowMs, momentOf(run, command) + command.byMs);
      return world.setClock(toIso(model.nowMs));
    }
    case "reaper":
      return reap(run);
    case "money": {
      const { accountId } = personOf(run, command.who);
      const [row] = await world.sql`
        select code, balance::text from add_balance(${accountId}, ${String(command.nanoUsd)}, 'correction', null, null)`;
      const isIdle = model.idleNano(accountId) > 0n;
      const balance = model.addBalance(accountId, command.nanoUsd);
      const code = balance !== null ? null : isIdle ? "idle" : "refused";
      return same("balance", { ...row }, { code, balance: balance?.toString() ?? null });
    }
    case "transfer": {
      const [from, to] = [personOf(run, command.who).accountId, personOf(run, command.to).accountId];
      const [row] = await world.sql`
        select code from transfer_balance(${from}, ${to}, ${String(command.nanoUsd)}, null, null)`;
      return same("transfer", row?.code, idleIf(run, from, model.transfer(from, to, command.nanoUsd)));
    }
    case "payg": {
      const { accountId } = personOf(run, command.who);
      const account = model.accounts.get(accountId);
      if (account) account.paygEnabled = command.enabled;
      const [row] = await world.sql`select set_payg(${accountId}, ${command.enabled}) as known`;
      rightsChanged(run, accountId);
      return same("payg", row?.known, true);
    }
    case "assign": {
      const { accountId } = personOf(run, command.who);
      // Only a reseller pays, for itself and for its customer.
      const reseller = people[0]?.accountId ?? null;
      const payerId = command.paid === "operator" || command.who === 2 ? null : reseller;
      const offeringId = run.offeringIds[command.offering] as number;
      const fromAllotment = payerId !== null && command.paid === "allotment";
      const [row] = await world.sql`
        select code, package_id from assign_package(${accountId}, ${offeringId}, ${command.when}, ${payerId}, null,
          ${fromAllotment})`;
      const order = { accountId, offeringId, when: command.when, payerId, fromAllotment };
      const code = model.assign({ ...order, packageId: Number(row?.package_id) });
      rightsChanged(run, accountId);
      return same("assigned", row?.code, idleIf(run, payerId ?? 0, code));
    }
    case "end_package": {
      const p = fromEnd(model.packages, command.pick);
      if (p === undefined) return;
      const [row] = await world.sql`select end_package(${p.accountId}, ${p.packageId}) as ended`;
      rightsChanged(run, p.accountId);
      return same("ended", row?.ended, model.endPackage(p));
    }
    case "key": {
      const { packageKeyId, paygKeyId } = personOf(run, command.who);
      const key = model.keys.get(command.byBalance ? paygKeyId : packageKeyId);
      if (key === undefined || key.status === "revoked") return;
      const { status, unitsMax, nanoUsdMax } = command;
      key.status = status;
      model.limitKey(key, { unitsMax, nanoUsdMax });
      await world.sql`
        update keys set status = ${status}, daily_units_max = ${unitsMax},
          daily_spend_max_nano_usd = ${nanoUsdMax === null ? null : String(nanoUsdMax)} where id = ${key.keyId}`;
      return rightsChanged(run, key.accountId);
    }
    case "account": {
      const { accountId } = personOf(run, command.who);
      const account = model.accounts.get(accountId);
      if (account) account.active = command.active;
      const status = command.active ? "active" : "suspended";
      await world.sql`update accounts set status = ${status} where id = ${accountId}`;
      return rightsChanged(run, accountId);
    }
    case "allotment": {
      const resellerId = personOf(run, 0).accountId;
      const offeringId = run.offeringIds[command.offering] as number;
      const [row] = await world.sql`
        insert into allotments (reseller_id, offering_id, granted) values (${resellerId}, ${offeringId}, ${command.pieces})
        returning id`;
      model.allotments.push({ allotmentId: Number(row?.id), resellerId, offeringId, granted: command.pieces });
      return;
    }
  }
}

function personOf({ people }: Run, who: number): Run["people"][number] {
  return people[who] as Run["people"][number];
}

/** Notifies each replica of a change of rights. */
function rightsChanged({ replicas }: Run, accountId: number): void {
  for (const escrow of replicas) escrow.accountsChanged(new Set([accountId]));
}

/** No request is refused while idle money would suffice: it is recalled. */
function idleIf({ model }: Run, payerId: number, code: string | null): string | null {
  return code === "insufficient_balance" && model.idleNano(payerId) > 0n ? "idle" : code;
}

async function reap({ model, people }: Run): Promise<void> {
  for (const { accountId } of people) await reapAccount(world.sql, accountId);
  model.reap();
}

type Batch = {
  reserves: ReserveRequest[];
  finishes: Finish[];
  /** Accounts that draw without a waiting request. */
  draws?: number[];
  replica: number;
  fate: "answered" | "lost" | "late";
  wait?: boolean;
  skewMinutes?: number;
};

/** One batch of a replica, as its lanes send it (src/ledger/batch.ts). */
async function batch(
  run: Run,
  { finishes, replica, fate, wait = false, skewMinutes = 0, ...asked }: Batch,
): Promise<void> {
  const { model } = run;
  const escrow = run.replicas[replica] as Escrow;
  const { leaseId } = escrow;
  const reserves = asked.reserves.filter((request) => !grantFromMemory(run, { escrow, request }));
  const tenants = new Map(reserves.map(({ accountId, tenantId }) => [accountId, tenantId]));
  for (const accountId of asked.draws ?? [])
    tenants.set(accountId, run.people.find((person) => person.accountId === accountId)?.tenantId ?? 0);
  for (const { accountId } of finishes)
    if (!tenants.has(accountId) && escrow.wantsDraw(accountId)) tenants.set(accountId, escrow.tenantOf(accountId));
  const input: BatchInput = {
    ...{ finishes, reserves, leaseId, wait, share: REPLICAS[replica]?.share ?? 1 },
    draws: [...tenants].map(([accountId, tenantId]) =>
      escrow.compose(accountId, tenantId, endingOf(run, finishes, accountId)),
    ),
    idles: finishes.map((finish) => escrow.idleOf(finish)),
    nowUnixMs: model.nowMs + skewMinutes * MINUTE_MS,
  };
  if (fate === "late") run.late.push(input);
  const output = fate === "late" ? undefined : await send(run, input);
  if (output === undefined || fate === "lost") {
    for (const draw of input.draws) escrow.lost(draw);
    return;
  }
  for (const [i, draw] of input.draws.entries()) {
    const result = output.drawn[i];
    if (result) escrow.drawn(draw, result, { sentMs: model.nowMs, leaseId });
  }
  for (const [i, request] of reserves.entries()) {
    const result = output.reserved[i];
    if (result?.code === null) keep(run, escrow.granted(request, result));
    else if (result?.code === "recall") escrow.recall(request.accountId);
  }
  const told = new Set<string>();
  for (const [i, finish] of finishes.entries()) {
    const outcome = output.finished[i]?.outcome;
    if (outcome === "recall") escrow.recall(finish.accountId);
    else if (!told.has(finish.requestId) && !run.ended.has(finish.requestId))
      run.replicas
        .find((one) => one.leaseId === finish.leaseId)
        ?.ended(finish, outcome === "gone" || outcome === "already");
    if (outcome !== "recall") run.ended.add(finish.requestId);
    told.add(finish.requestId);
  }
}

/** The first ends of requests of an account: a ledger sends no others. */
function endingOf({ ended }: Run, finishes: readonly Finish[], accountId: number): Finish[] {
  const own = finishes.filter((finish) => finish.accountId === accountId && !ended.has(finish.requestId));
  return [...new Map(own.map((finish) => [finish.requestId, finish])).values()];
}

/** Runs a batch on both sides. */
async function send({ model }: Run, input: BatchInput): Promise<BatchOutput> {
  const output = await runBatch(world.sql, true, input);
  const wanted = model.batch(input);
  const drawn = output.drawn.map((result) => ({ ...result, epoch: 0, tenantEpoch: 0 }));
  const answers = { ...output, drawn, finished: byRequest(input, output) };
  same("batch", answers, { ...wanted, finished: byRequest(input, wanted) });
  reached.push(...wanted.reserved.map(({ code, packageId }) => code ?? `granted by ${packageId ? "package" : "payg"}`));
  for (const [i, { outcome, shortfallNanoUsd }] of wanted.finished.entries()) {
    const reason = model.receipts.get((input.finishes[i] as Finish).requestId)?.reason;
    const isLate = outcome === "recall" && model.escrowFor(input.finishes[i] as Finish) === undefined;
    const word = outcome === "settled" && reason === "late" ? "settled late" : outcome;
    reached.push(word === "recall" ? `recall of ${isLate ? "a late" : "an"} end` : word);
    if (shortfallNanoUsd > 0n) reached.push("shortfall");
  }
  return output;
}

/** The answers to ends by request. Which of two equal ends of a batch is the first is not determined. */
function byRequest({ finishes }: BatchInput, { finished }: BatchOutput): string[] {
  return finishes
    .map(({ requestId }, i) => {
      const { outcome, chargedNanoUsd, shortfallNanoUsd, units } = finished[i] as FinishResult;
      return `${requestId} ${outcome} ${chargedNanoUsd} ${shortfallNanoUsd} ${units}`;
    })
    .sort();
}

/** A request that a replica grants from memory must be one that the rules grant, at this moment. */
function grantFromMemory(run: Run, { escrow, request }: { escrow: Escrow; request: ReserveRequest }): boolean {
  const { model } = run;
  const hold = escrow.grant(request);
  if (hold === undefined) return false;
  const account = model.accounts.get(request.accountId);
  const p = model.activePackage(request.accountId);
  const isDue =
    hold.mode === "payg"
      ? account?.paygEnabled === true && hold.capTokens === request.capMax
      : p?.packageId === hold.packageId && hold.day === dateIn(p.timeZone, model.nowMs);
  same("granted from memory by the rules", isDue && account?.active, true);
  reached.push("granted from memory");
  keep(run, hold);
  return true;
}

function keep({ model, granted }: Run, hold: Hold): void {
  granted.push(hold);
  const { requestId, mode, day, keyDay, heldNanoUsd, heldTokens, capTokens, leaseId } = hold;
  model.holds.set(requestId, {
    ...{ request: hold, mode, day, keyDay, capTokens, leaseId, nanoUsd: heldNanoUsd, tokens: heldTokens ?? 0 },
    package: model.packages.find(({ packageId }) => packageId === hold.packageId) ?? null,
  });
}

/**
 * The drawn amounts cover everything that replicas count: requests in flight and idle amounts. The idle amount of a row is never below
 * what its replica may grant: refusals and changes of rights rely on that.
 */
function checkCovered({ model, replicas }: Run): void {
  for (const escrow of replicas) {
    const own = [...model.holds.values()].filter(({ leaseId }) => leaseId === escrow.leaseId);
    for (const e of model.escrows.filter(({ leaseId, keyId }) => leaseId === escrow.leaseId && keyId === 0)) {
      const inFlight = own.filter(
        (hold) =>
          hold.request.accountId === e.accountId && hold.package === e.package && (hold.day ?? "-infinity") === e.day,
      );
      const day = e.package === null ? null : e.day;
      const idle = escrow.idleOf({ ...e, packageId: e.package?.packageId ?? 0, day });
      const units = (e.package === null ? 0 : inFlight.length) + idle.units;
      const nanoUsd = inFlight.reduce((sum, hold) => sum + hold.nanoUsd, idle.nanoUsd);
      const [drawn, known] = [`${e.units} ${e.nanoUsd}`, `${units} ${nanoUsd}`];
      same(
        "covered",
        { covered: e.units >= units && e.nanoUsd >= nanoUsd, drawn, known },
        { covered: true, drawn, known },
      );
      const isTold = e.idleUnits >= idle.units && e.idleNanoUsd >= idle.nanoUsd;
      const [told, had] = [`${e.idleUnits} ${e.idleNanoUsd}`, `${idle.units} ${idle.nanoUsd}`];
      same("what is idle is told", { isTold, told, had }, { isTold: true, told, had });
    }
  }
}

/** The times to which the clock is set. */
function momentOf({ model, people }: Run, command: Command & { do: "clock" }): number {
  const { accountId, paygKeyId } = people[command.who] as Run["people"][number];
  const active = model.activePackage(accountId);
  const zone = active?.timeZone ?? model.keys.get(paygKeyId)?.timeZone ?? "UTC";
  switch (command.to) {
    case "midnight":
      return nextDayMs(zone, model.nowMs);
    case "package_end":
      return active?.endsAtMs ?? model.nowMs;
    case "moments":
      return model.nowMs + command.n;
    default:
      return model.nowMs + command.n * MINUTE_MS;
  }
}

async function play({ setup, commands }: Plan): Promise<void> {
  runs++;
  const run = await begin(setup);
  const { model } = run;
  for (const [i, command] of commands.entries()) {
    commandsRun++;
    await step(run, command).catch((cause) => {
      throw new Error(`the rules are broken by command ${i}: ${fc.stringify(command)}`, { cause });
    });
    checkCovered(run);
    if (i % COMPARE_EVERY === COMPARE_EVERY - 1) await compareBooks(world, model);
  }
  await comeToRest(run);
  await compareBooks(world, model);
  const left = model.escrows.filter((e) => e.units !== 0 || e.nanoUsd !== 0n || e.tokens !== 0);
  same("drawn in the end", left, []);
}

/** Ends all requests, runs late statements, reaps ended leases, and lets quiet replicas return their idle amounts. */
async function comeToRest(run: Run): Promise<void> {
  const { model } = run;
  for (const input of run.late.splice(0)) await send(run, input);
  await reap(run);
  for (const hold of run.granted) {
    const replica = run.replicas.findIndex(({ leaseId }) => leaseId === hold.leaseId);
    if (run.ended.has(hold.requestId) || replica < 0) continue;
    await batch(run, { reserves: [], finishes: [releaseOf(hold, "not_dispatched")], replica, fate: "answered" });
  }
  for (let round = 0; round < 3; round++) {
    model.nowMs += 1_100;
    await world.setClock(toIso(model.nowMs));
    for (const [replica, escrow] of run.replicas.entries())
      for (const accountId of escrow.due())
        await batch(run, { reserves: [], finishes: [], draws: [accountId], replica, fate: "answered" });
  }
}

test(
  "any sequence of commands is answered and written down as the rules say",
  async () => {
    await holds(fc.asyncProperty(plan, play), {
      numRuns: RUNS,
      examples: [...FOUND, ...SELDOM],
      interruptAfterTimeLimit: SEARCH_MS_MAX,
      markInterruptAsFailure: true,
    });
    console.log(`properties: ${runs} runs, ${commandsRun} commands`, tally(reached));
    // Random commands test only what they reach.
    if (runs >= RUNS_TO_REACH_ALL) expect([...ANSWERS].filter((answer) => !reached.includes(answer))).toEqual([]);
  },
  TEST_TIMEOUT_MS,
);

test("the books balance after all of this", async () => {
  expect(await world.unbalanced()).toEqual([]);
});
