import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { type Losses, openLosses } from "../../src/accounts/losses.ts";
import { listLosses } from "../../src/accounts/losses_store.ts";
import { Refusal } from "../../src/errors.ts";
import type { Db } from "../../src/platform/db.ts";
import type { Owner } from "../../src/platform/share_limit.ts";
import { until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { createWorld, type World } from "../world.ts";

/** Losses of an hour, over two replicas. Source: LOS-1, LOS-2, LOS-3. */
const BOUND = 1_000n;
const each = { account: BOUND, tenant: 3n * BOUND };
const bounds = { provider_time: each, shortfall: each, tokens: each };
const HOUR_BEGINS = "2030-01-01 10:00:00+00";
const HOUR_LATER = "2030-01-01 11:00:01+00";

let world: World;
let db: Db;
let replicas: Losses[];
let log: ReturnType<typeof quietLog>;
let nowMs: number;

beforeAll(async () => {
  world = await createWorld();
  db = world.openDb();
});
afterEach(async () => {
  for (const replica of replicas) await replica.stop();
  await world.setClock(null);
});
afterAll(async () => {
  await db.close();
  await world.close();
});

function open(): void {
  nowMs = 0;
  log = quietLog();
  const metrics = { lost: () => {}, shed: () => {} };
  const one = () => openLosses({ db, log: log.log, nowMs: () => nowMs, bounds, metrics, readEveryMs: 50 });
  replicas = [one(), one()];
}

/** The refusal of a request of this owner at a replica; undefined: it is admitted. */
function refusalAt(replica: number, owner: Owner): Refusal | undefined {
  try {
    replicas[replica]?.check(owner);
  } catch (error) {
    if (error instanceof Refusal) return error;
    throw error;
  }
  return undefined;
}
const isStopped = (owner: Owner) => until(() => [0, 1].every((at) => refusalAt(at, owner) !== undefined));
const isFree = (owner: Owner) => until(() => [0, 1].every((at) => refusalAt(at, owner) === undefined));
/** What the database has of an account or tenant. */
const noted = async (id: number, holder = "account") =>
  (await listLosses({ db }, { holderId: id, limit: 10 })).find((of) => of.holder === holder);
const note = async (replica: number, owner: Owner, amount: bigint) => {
  const before = (await noted(owner.accountId))?.amount ?? 0n;
  replicas[replica]?.note(owner, "provider_time", amount);
  await until(async () => (await noted(owner.accountId))?.amount === before + amount);
};

let ids = 0;
const someone = (tenantId = 0): Owner => ({ accountId: ++ids, tenantId });

test("the losses of all replicas are one sum: at the bound every replica refuses, below it none does", async () => {
  open();
  const [owner, other] = [someone(), someone()];
  await note(0, owner, 600n);
  await note(1, owner, 399n);
  await note(1, other, 999n);
  expect([0, 1].map((at) => refusalAt(at, owner))).toEqual([undefined, undefined]);
  await note(0, owner, 1n);
  await isStopped(owner);
  expect([0, 1].map((at) => refusalAt(at, other))).toEqual([undefined, undefined]);
  const refusal = refusalAt(0, owner);
  expect(refusal?.code).toBe("too_many_requests");
  expect(refusal?.facts.retryAfterSeconds).toBe(59);
  expect(refusal?.message).toBe(
    "Too many requests of this account ended unpaid at a time limit within an hour. Ask for shorter answers, and try again later.",
  );
  expect(log.lines.filter(({ accountId }) => accountId === owner.accountId).length).toBeGreaterThan(0);
});

test("an hour begins with its first loss, by the database's clock; when it ends, requests are admitted and the sum is kept", async () => {
  await world.setClock(HOUR_BEGINS);
  open();
  const owner = someone();
  await note(0, owner, BOUND);
  await isStopped(owner);
  await world.setClock(HOUR_LATER);
  await isFree(owner);
  await note(1, owner, 10n);
  expect(await noted(owner.accountId)).toMatchObject({ hourAmount: 10n, amount: 1_010n, times: 2 });
});

test("a replica that hears nothing from the database ends a stop by itself when the hour is over", async () => {
  open();
  const owner = someone();
  await note(0, owner, BOUND);
  await isStopped(owner);
  nowMs = 3_600_001;
  expect(refusalAt(0, owner)).toBeUndefined();
});

test("one customer, whatever it loses, does not stop the other customers of its reseller; several together do", async () => {
  open();
  const reseller = 1_000_000;
  const customers = Array.from({ length: 4 }, () => someone(reseller));
  const [first, second, third, honest] = customers as [Owner, Owner, Owner, Owner];
  for (let i = 0; i < 3; i++) await note(0, first, 50n * BOUND);
  await isStopped(first);
  expect(refusalAt(0, honest)).toBeUndefined();
  expect(await noted(reseller, "tenant")).toMatchObject({ hourAmount: BOUND, amount: 150n * BOUND, times: 3 });
  await note(0, second, 2n * BOUND);
  expect(refusalAt(0, honest)).toBeUndefined();
  await note(1, third, BOUND);
  await isStopped(honest);
  expect(refusalAt(0, honest)?.message).toStartWith("Too many requests of this service ended unpaid");
  expect(refusalAt(0, someone(reseller + 1))).toBeUndefined();
});
