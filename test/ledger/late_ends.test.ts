import { afterAll, beforeAll, expect, test } from "bun:test";
import { Escrow } from "../../src/ledger/escrow.ts";
import { settlementOf } from "../../src/ledger/finisher.ts";
import { takeLease } from "../../src/ledger/leases_store.ts";
import type { Hold, Usage } from "../../src/ledger/ledger.ts";
import {
  type BatchInput,
  type Finish,
  type FinishOutcome,
  type ReserveRequest,
  runBatch,
} from "../../src/ledger/ledger_store.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { changing } from "../../src/platform/changes_store.ts";
import type { Db } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { createWorld, type Person, type TestKey, type World } from "../world.ts";
import { drawn, knownAs, openSqlReplica, requestFor, usageOf } from "./ledger_world.ts";

/**
 * The idle amount of a row while ends of requests and draws run late: never below what its replica may grant. It may be higher until
 * the replica draws again. The replica under test has the real escrow; its statements are sent by hand. Source: ESC-2, ESC-4, ESC-8.
 */

let world: World;
let db: Db;

beforeAll(async () => {
  world = await createWorld();
  db = world.openDb();
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await db.close();
  await world.close();
});

type Customer = Person & { key: TestKey };

/** A customer with four units a day. */
async function addCustomer(): Promise<Customer> {
  const person = await world.addCustomer();
  await world.givePackage(person, { dailyLimit: 4 });
  return { ...person, key: await world.addKey(person) };
}

/** A replica whose batches are composed and sent one by one. The clock of its escrow stands still. */
async function openManualReplica(customer: Customer) {
  const startUnixMs = world.unixMs();
  const escrow = new Escrow({ leaseMs: 60_000, unitsMax: 256, nowMs: () => 0, wallMs: () => startUnixMs });
  const { leaseId } = escrow;
  await takeLease(world.sql, leaseId, 3600);
  escrow.leaseRenewed(leaseId, 0);

  function inputOf(finishes: readonly Finish[], reserves: readonly ReserveRequest[], draws: boolean): BatchInput {
    return {
      ...{ finishes, reserves, leaseId, share: 1, nowUnixMs: startUnixMs, wait: true },
      draws: draws ? [escrow.compose(customer.accountId, 0, finishes)] : [],
      idles: finishes.map((finish) => escrow.idleOf(finish)),
    };
  }
  return {
    escrow,
    /** A batch of one end, as the replica would send it now. */
    endOf: (hold: Hold, usage: Partial<Usage> = {}) =>
      inputOf([settlementOf(hold, usageOf(usage), { strict: false, reason: "complete" })], [], false),
    /** Sends a batch of one end. `isGivenUp`: the replica does not get the answer. Returns its outcome. */
    async send(input: BatchInput, isGivenUp = false): Promise<FinishOutcome | undefined> {
      const [finish, result] = [input.finishes[0], (await runBatch(world.sql, true, input)).finished[0]];
      if (finish && result && !isGivenUp) escrow.ended(finish, result.outcome === "already");
      return result?.outcome;
    },
    /** A draw, with a request if it is given. Returns its hold. `isLost`: the answer does not arrive. */
    async draw(request?: ReserveRequest, isLost = false): Promise<Hold | undefined> {
      const input = inputOf([], request ? [request] : [], true);
      const output = await runBatch(world.sql, true, input);
      const [draw, result] = [input.draws[0], output.drawn[0]];
      if (draw === undefined || result === undefined) throw new Error("the draw has no answer");
      if (isLost) escrow.lost(draw);
      else escrow.drawn(draw, result, { sentMs: 0, leaseId });
      const granted = output.reserved[0];
      return request && granted && !isLost ? escrow.granted(request, granted) : undefined;
    },
    grant: () => escrow.grant(ask(customer)),
  };
}

const ask = (customer: Customer) => requestFor(customer, customer.key, { known: knownAs("package") });

const idleUnits = async ({ accountId }: Customer) => (await drawn(world, accountId)).idle_units;

/**
 * One unit is used, two are in flight, one is idle in the replica. The end of the first request timed out when nothing was idle yet,
 * and ran after the draw that added the idle unit.
 */
async function runLateEnd() {
  const customer = await addCustomer();
  const replica = await openManualReplica(customer);
  const first = (await replica.draw(ask(customer))) as Hold;
  await replica.draw(ask(customer));
  const late = replica.endOf(first);
  expect(late.idles).toMatchObject([{ units: 0 }]);
  await replica.draw(ask(customer));
  expect(await idleUnits(customer)).toBe(1);
  expect(await replica.send(late, true)).toBe("settled");
  return { customer, replica, first };
}

test("an end whose draw was lost in a failover is late: it takes what the package still has, and the rest of the row stays", async () => {
  const customer = await addCustomer();
  const replica = await openManualReplica(customer);
  const first = (await replica.draw(ask(customer))) as Hold;
  const second = (await replica.draw(ask(customer))) as Hold;
  // A standby that had not received the second draw has become the primary.
  const { accountId } = customer;
  await world.sql.begin(async (tx) => {
    await tx`update escrows set units = units - 1 where account_id = ${accountId} and package_id > 0`;
    await tx`update package_days set units_taken = units_taken - 1
      where package_id in (select id from packages where account_id = ${accountId})`;
    await tx`update packages set units_taken = units_taken - 1 where account_id = ${accountId}`;
  });
  for (const hold of [first, second]) expect(await replica.send(replica.endOf(hold))).toBe("settled");
  const receipts = await world.sql`
    select outcome, reason, units from receipts where account_id = ${accountId} order by request_id`;
  expect([...receipts]).toEqual([
    { outcome: "settled", reason: "complete", units: 1 },
    { outcome: "settled", reason: "late", units: 1 },
  ]);
  expect(await drawn(world, accountId)).toMatchObject({ units: 0 });
});

test("an end that runs after a later draw: another replica's request is not refused, but waits for the idle unit", async () => {
  const { customer, replica, first } = await runLateEnd();
  expect(await idleUnits(customer)).toBe(1);
  const other = await openSqlReplica(world);
  expect((await other.reserve([ask(customer)]))[0]?.code).toBe("recall");
  replica.escrow.recall(customer.accountId);
  expect(await replica.send(replica.endOf(first))).toBe("already");
  expect(replica.escrow.due()).toEqual([customer.accountId]);
  await replica.draw();
  expect(replica.grant()).toBeUndefined();
  expect((await other.reserve([ask(customer)]))[0]?.code).toBeNull();
});

async function untilRevoked({ key }: Customer): Promise<void> {
  await until(async () => {
    const [row] = await world.sql`select status from keys where id = ${key.keyId}`;
    return row?.status === "revoked";
  });
}

/** A change that ends a right of the customer. `isOver`: it has returned. By its clock, which stands still, nothing drawn runs out. */
function revokeKey({ accountId, key }: Customer) {
  const state = { isOver: false };
  const deps = { db, bus: inProcessBus(createLog("silent")), nowMs: () => 0 };
  const done = changing(deps, async (tx) => {
    await tx.execute(`select lock_accounts(array[${accountId}]::bigint[])`);
    await tx.execute(`update keys set status = 'revoked' where id = ${key.keyId}`);
  }).then(() => {
    state.isOver = true;
  });
  return { done, state };
}

test("an end that runs after a later draw: a change of rights waits until the replica has drawn again", async () => {
  const { customer, replica } = await runLateEnd();
  const change = revokeKey(customer);
  await untilRevoked(customer);
  await sleep(300);
  expect(change.state.isOver).toBe(false);
  replica.escrow.accountsChanged(new Set([customer.accountId]));
  expect(replica.escrow.due()).toEqual([customer.accountId]);
  await replica.draw();
  await change.done;
});

test("a draw that keeps idle units, sent before the replica knew of a change of rights: the change waits for the next one", async () => {
  const customer = await addCustomer();
  const replica = await openManualReplica(customer);
  for (let i = 0; i < 3; i++) await replica.draw(ask(customer));
  const change = revokeKey(customer);
  await untilRevoked(customer);
  // The unit that it keeps may be granted until it has read the answer.
  await replica.draw();
  await sleep(200);
  expect([change.state.isOver, await idleUnits(customer)]).toEqual([false, 1]);
  expect(replica.escrow.due()).toEqual([customer.accountId]);
  expect(replica.grant()).toBeUndefined();
  await replica.draw();
  await change.done;
});

test("an end under the current draw lowers the idle amount, and an older one does not raise it again", async () => {
  const customer = await addCustomer();
  const replica = await openManualReplica(customer);
  const first = (await replica.draw(ask(customer))) as Hold;
  const second = (await replica.draw(ask(customer))) as Hold;
  await replica.draw(ask(customer));
  const older = replica.endOf(first);
  expect(replica.grant()).toBeDefined();
  const newer = replica.endOf(second);
  expect([older, newer].map(({ idles }) => idles[0]?.units)).toEqual([1, 0]);
  for (const input of [newer, older]) {
    await replica.send(input);
    expect(await idleUnits(customer)).toBe(0);
  }
  // So no request waits for a unit that is in use.
  const other = await openSqlReplica(world);
  expect((await other.reserve([ask(customer)]))[0]?.code).toBe("daily_quota_exceeded");
});

test("a row that says too much after a lost answer is corrected by the next draw, and waiting requests get an answer", async () => {
  const customer = await addCustomer();
  const replica = await openManualReplica(customer);
  const first = (await replica.draw(ask(customer))) as Hold;
  await replica.draw(ask(customer));
  // It runs and draws ahead, but its answer is lost. The end does not know of that row.
  await replica.draw(undefined, true);
  const end = replica.endOf(first);
  expect(await idleUnits(customer)).toBe(2);
  expect(await replica.send(end)).toBe("settled");
  expect(await idleUnits(customer)).toBe(2);
  const other = await openSqlReplica(world);
  expect((await other.reserve([ask(customer)]))[0]?.code).toBe("recall");
  expect(replica.escrow.due()).toEqual([customer.accountId]);
  await replica.draw();
  const results = await other.reserve([ask(customer), ask(customer), ask(customer)]);
  expect(results.map(({ code }) => code)).toEqual([null, null, "daily_quota_exceeded"]);
});

test("a recall of units that are all in use by now is answered by a draw, and the request that waits is refused", async () => {
  const customer = await addCustomer();
  const replica = await openManualReplica(customer);
  for (let i = 0; i < 3; i++) await replica.draw(ask(customer));
  expect(replica.grant()).toBeDefined();
  const other = await openSqlReplica(world);
  expect((await other.reserve([ask(customer)]))[0]?.code).toBe("recall");
  replica.escrow.recall(customer.accountId);
  expect(replica.escrow.due()).toEqual([customer.accountId]);
  await replica.draw();
  expect((await other.reserve([ask(customer)]))[0]?.code).toBe("daily_quota_exceeded");
});

test("an end that costs more than its hold, and must wait for idle money, keeps its hold in the draw of the same batch", async () => {
  const person = await world.addCustomer();
  await world.setBalance(person, 1_000n);
  const customer = { ...person, key: await world.addKey(person, { mode: "payg" }) };
  const request = () =>
    requestFor(customer, customer.key, { promptPico: 300_000n, outputPico: 0n, known: knownAs("payg") });
  const replica = await openManualReplica(customer);
  const costly = (await replica.draw(request())) as Hold;
  await replica.draw(request());
  // Another replica draws a part of the rest ahead.
  const other = await openSqlReplica(world);
  const rest = { accountId: customer.accountId, tenantId: 0, knownEpoch: 0, returns: true, keeps: [] };
  await other.batch({ draws: [{ ...rest, number: 1, units: 0, nanoUsd: 400n }] });
  expect(await drawn(world, customer.accountId)).toMatchObject({ nano_usd: 650, idle_nano_usd: 50 });

  const end = replica.endOf(costly, { chargeNanoUsd: 680n });
  replica.escrow.recall(customer.accountId); // So it draws nothing ahead,
  replica.escrow.unwanted(customer.accountId); // and returns what it does not keep.
  const draw = replica.escrow.compose(customer.accountId, 0, end.finishes);
  const both = await runBatch(world.sql, true, { ...end, draws: [draw] });
  expect(both.finished[0]?.outcome).toBe("recall");
  if (both.drawn[0] === undefined) throw new Error("the draw has no answer");
  replica.escrow.drawn(draw, both.drawn[0], { sentMs: 0, leaseId: replica.escrow.leaseId });
  expect(await drawn(world, customer.accountId)).toMatchObject({ nano_usd: 650, idle_nano_usd: 50 });

  await other.batch({ draws: [{ ...rest, number: 2, units: 0, nanoUsd: 0n }] });
  expect(await replica.send(replica.endOf(costly, { chargeNanoUsd: 680n }))).toBe("settled");
  // The draw may have kept more than it needed: another one follows.
  expect(replica.escrow.due()).toEqual([customer.accountId]);
  await replica.draw();
  expect(await drawn(world, customer.accountId)).toMatchObject({ nano_usd: 300, idle_nano_usd: 0 });
});
