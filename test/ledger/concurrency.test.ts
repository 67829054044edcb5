import { afterAll, beforeAll, expect, test } from "bun:test";
import type { TransactionSql } from "postgres";
import { releaseOf, settlementOf } from "../../src/ledger/finisher.ts";
import type { Hold } from "../../src/ledger/ledger.ts";
import type { ReserveRequest } from "../../src/ledger/ledger_store.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import type { Sql } from "../../src/platform/db.ts";
import { until } from "../platform/own_redis.ts";
import { createWorld, type OfferingSpec, type World } from "../world.ts";
import {
  codeOf,
  type OpenLedger,
  openSqlReplica,
  openWorldLedger,
  requestFor,
  tally,
  usageOf,
} from "./ledger_world.ts";

/** Races between two ledgers on one database, as two replicas have them. */

let world: World;
let a: OpenLedger;
let b: OpenLedger;

beforeAll(async () => {
  world = await createWorld();
  a = await openWorldLedger(world);
  b = await openWorldLedger(world);
});
afterAll(async () => {
  await a.close();
  await b.close();
  await world.close();
});

/** Another transaction. Its locks are held from when this resolves until `release` is called. */
async function holdIn(lock: (tx: TransactionSql) => Promise<unknown>) {
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const { promise: taken, resolve: take } = Promise.withResolvers<void>();
  const holding = world.sql.begin(async (tx) => {
    await lock(tx);
    take();
    await released;
  });
  await Promise.race([taken, holding]);
  return { holding, release };
}

async function race(spec: OfferingSpec | null, nanoUsd: bigint | null, over: Partial<ReserveRequest> = {}) {
  const person = await world.addCustomer();
  const key = await world.addKey(person, { mode: nanoUsd === null ? "package" : "payg" });
  if (spec) await world.givePackage(person, spec);
  if (nanoUsd !== null) await world.setBalance(person, nanoUsd);
  const codes = await Promise.all(
    Array.from({ length: 200 }, (_, i) => codeOf((i % 2 ? a : b).ledger.reserve(requestFor(person, key, over)))),
  );
  return tally(codes);
}

test("200 concurrent requests on two replicas for 100: exactly 100 are granted (daily, total, carryover, balance)", async () => {
  expect(await race({ dailyLimit: 100, days: 5 }, null)).toEqual({ granted: 100, daily_quota_exceeded: 100 });
  expect(await race({ dailyLimit: 500, totalLimit: 100, days: 5 }, null)).toEqual({
    granted: 100,
    package_quota_exceeded: 100,
  });
  expect(await race({ dailyLimit: 100, days: 5, carryover: true }, null)).toEqual({
    granted: 100,
    carryover_quota_exceeded: 100,
  });
  expect(await race(null, 100_000n, { outputPico: 1000n })).toEqual({ granted: 100, insufficient_balance: 100 });
});

test("one busy account and many quiet ones: every account gets exactly its own quota", async () => {
  const people = await Promise.all(
    Array.from({ length: 30 }, async () => {
      const person = await world.addCustomer();
      await world.givePackage(person, { dailyLimit: 5 });
      return { person, key: await world.addKey(person) };
    }),
  );
  const codes = await Promise.all(
    people.flatMap(({ person, key }, p) =>
      Array.from({ length: 10 }, (_, i) =>
        codeOf(((p + i) % 2 ? a : b).ledger.reserve(requestFor(person, key))).then((code) => `${p} ${code}`),
      ),
    ),
  );
  const counts = tally(codes);
  for (let p = 0; p < people.length; p++) expect(counts[`${p} granted`]).toBe(5);
});

test("a locked account delays no other account; its own request waits and is granted", async () => {
  const held = await world.addCustomer();
  const heldKey = await world.addKey(held);
  await world.givePackage(held, { dailyLimit: 5 });
  const others = [];
  while (others.length < 3) {
    const person = await world.addCustomer();
    await world.givePackage(person, { dailyLimit: 5 });
    others.push({ person, key: await world.addKey(person) });
  }
  const { holding, release } = await holdIn((tx) => tx`select pg_advisory_xact_lock(${held.accountId})`);
  let granted = false;
  const waiting = a.ledger.reserve(requestFor(held, heldKey)).then(() => {
    granted = true;
  });
  await Promise.all(others.map(({ person, key }) => a.ledger.reserve(requestFor(person, key))));
  expect(granted).toBe(false);
  release();
  await Promise.all([holding, waiting]);
  expect(granted).toBe(true);
});

test("a batch that waits for a locked row delays no other account", async () => {
  const [stuck, other] = await Promise.all(
    [0, 1].map(async () => {
      const person = await world.addCustomer();
      await world.givePackage(person, { dailyLimit: 5 });
      return { person, key: await world.addKey(person) };
    }),
  );
  if (!stuck || !other) throw new Error("no people");
  const { holding, release } = await holdIn(
    (tx) => tx`select from packages where account_id = ${stuck.person.accountId} for update`,
  );
  let granted = false;
  const waiting = a.ledger.reserve(requestFor(stuck.person, stuck.key)).then(() => {
    granted = true;
  });
  await Bun.sleep(20);
  await a.ledger.reserve(requestFor(other.person, other.key));
  expect(granted).toBe(false);
  release();
  await Promise.all([holding, waiting]);
});

test("closing waits for rows of locked accounts in every queue, and answers them", async () => {
  const held = await world.addCustomer();
  const heldKey = await world.addKey(held);
  await world.givePackage(held, { dailyLimit: 5 });
  const own = await openWorldLedger(world);
  const { holding, release } = await holdIn((tx) => tx`select pg_advisory_xact_lock(${held.accountId})`);
  let outcome = "none";
  const waiting = codeOf(own.ledger.reserve(requestFor(held, heldKey))).then((code) => {
    outcome = code;
  });
  let closed = false;
  // Immediately: the row is not yet in the lane of rows that wait for a lock.
  const closing = own.close().then(() => {
    closed = true;
  });
  // Longer than the pause after a closed connection, and than a batch waits for a lock.
  await Bun.sleep(2500);
  expect({ outcome, closed }).toEqual({ outcome: "none", closed: false });
  release();
  await Promise.all([holding, closing, waiting]);
  expect(outcome).toBe("granted");
});

test("no grant commits after a revocation", async () => {
  const person = await world.addCustomer();
  const packageId = await world.givePackage(person, { dailyLimit: 100_000 });
  const unitsTaken = async (sql: Sql | TransactionSql): Promise<number> =>
    Number((await sql`select units_taken from packages where id = ${packageId}`)[0]?.units_taken);
  for (let round = 0; round < 5; round++) {
    const key = await world.addKey(person);
    let unitsAtRevocation = -1;
    const codes: string[] = [];
    const count = (code: string) => codes.filter((one) => one === code).length;
    let isOver = false;
    const asking = [a, b].map(async ({ ledger }) => {
      while (!isOver) {
        const many = Array.from({ length: 10 }, () => codeOf(ledger.reserve(requestFor(person, key))));
        codes.push(...(await Promise.all(many)));
      }
    });
    await until(() => count("granted") > 20);
    await world.sql.begin(async (tx) => {
      await tx`select lock_accounts(${[person.accountId]}::bigint[])`;
      await tx`update keys set status = 'revoked' where id = ${key.keyId}`;
      unitsAtRevocation = await unitsTaken(tx);
    });
    await until(() => count("invalid_api_key") > 20);
    isOver = true;
    await Promise.all(asking);
    expect(await unitsTaken(world.sql)).toBe(unitsAtRevocation);
  }
});

test("a draw that runs twice reserves once", async () => {
  const person = await world.addCustomer();
  const key = await world.addKey(person, { mode: "payg" });
  await world.setBalance(person, 10_000n);
  const reserves = [requestFor(person, key, { outputPico: 1000n })];
  const replica = await openSqlReplica(world);
  const draws = replica.draws(reserves);
  expect((await replica.batch({ reserves, draws })).reserved[0]?.code).toBeNull();
  expect((await replica.batch({ reserves, draws })).reserved[0]?.code).toBe("stale");
  const [row] = await world.sql`select held_nano_usd::int as held from balances where account_id = ${person.accountId}`;
  expect(row?.held).toBe(1000);
});

test("one row with a negative, huge or NUL value among 511 good rows fails alone", async () => {
  const person = await world.addCustomer();
  const key = await world.addKey(person, { mode: "payg" });
  await world.setBalance(person, 1_000_000_000n);
  const bad: Partial<ReserveRequest>[] = [
    { outputPico: 1n, capMax: -5, capMin: -5, promptPico: -1_000_000n },
    { promptPico: 9n * 10n ** 30n },
    { modelId: "a\0b" },
  ];
  for (const over of bad) {
    const asks = Array.from({ length: 512 }, (_, i) =>
      requestFor(person, key, { outputPico: 1n, ...(i === 200 && over) }),
    );
    const codes = await Promise.all(asks.map((ask) => codeOf(a.ledger.reserve(ask))));
    expect(tally(codes)).toEqual({ granted: 511, internal_error: 1 });
    expect(codes[200]).toBe("internal_error");
  }
});

test("impossible counts of a settlement are clamped; all others are stored unchanged", async () => {
  const person = await world.addCustomer();
  const key = await world.addKey(person);
  await world.givePackage(person, { dailyLimit: 1000 });
  const holds = await Promise.all(Array.from({ length: 50 }, () => a.ledger.reserve(requestFor(person, key))));
  const odd = [-1, 1e300, Number.NaN, 1.5, Number.POSITIVE_INFINITY];
  await Promise.all(
    holds.map((hold: Hold, i) =>
      a.ledger.settle(hold, usageOf({ promptTokens: i < odd.length ? (odd[i] as number) : 7, completionTokens: 1 })),
    ),
  );
  const rows =
    await world.sql`select prompt_tokens from receipts where account_id = ${person.accountId} order by request_id`;
  expect(rows).toHaveLength(50);
  expect(tally(rows.map((row) => String(row.prompt_tokens)))).toEqual({ "0": 3, "1": 1, "2000000000": 1, "7": 45 });
});

test("a hold ends once: a second end throws, and a repeated settlement gets the same answer", async () => {
  const person = await world.addCustomer();
  const key = await world.addKey(person);
  await world.givePackage(person, { dailyLimit: 10 });
  const hold = await a.ledger.reserve(requestFor(person, key, { requestId: newRequestId() }));
  await a.ledger.settle(hold, usageOf());
  await expect(a.ledger.settle(hold, usageOf())).rejects.toThrow("ended twice");
  const replica = await openSqlReplica(world);
  const usage = usageOf({ promptTokens: 1, completionTokens: 1 });
  const repeats = [
    settlementOf(hold, usage, { strict: false, reason: "complete" }),
    releaseOf(hold, "provider_failed"),
  ];
  for (const repeat of repeats) expect((await replica.finish([repeat]))[0]?.outcome).toBe("already");
  const [count] = await world.sql`select count(*)::int as n from receipts where account_id = ${person.accountId}`;
  expect(count?.n).toBe(1);
});

test("the books balance after all of this", async () => {
  expect(await world.unbalanced()).toEqual([]);
});
