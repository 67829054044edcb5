import { afterAll, beforeAll, expect, test } from "bun:test";
import { createWorld, type World } from "../world.ts";
import { codeOf, openWorldLedger, requestFor } from "./ledger_world.ts";

/** A replica that shuts down while requests still wait for the database. */

let world: World;
beforeAll(async () => {
  world = await createWorld();
});
afterAll(() => world.close());

test("a request that waits for a recall while its replica shuts down is refused in time", async () => {
  const person = await world.addCustomer();
  await world.givePackage(person, { dailyLimit: 1, days: 1 });
  const key = await world.addKey(person);
  const holder = await openWorldLedger(world);
  const closing = await openWorldLedger(world, { timeoutMs: 600 });
  const hold = await holder.ledger.reserve(requestFor(person, key));
  // As if a replica had drawn the unit ahead, and died.
  await world.sql`update escrows set idle_units = 1 where account_id = ${person.accountId}`;
  const code = codeOf(closing.ledger.reserve(requestFor(person, key)));
  await Bun.sleep(100);
  await closing.close();
  // The unit is never returned.
  expect(await code).toBe("service_unavailable");
  await holder.ledger.release(hold, "not_dispatched");
  await holder.close();
  expect(await world.unbalanced()).toEqual([]);
});

test("a ledger whose lease has ended and cannot be renewed closes in time", async () => {
  const person = await world.addCustomer();
  await world.givePackage(person, { dailyLimit: 5, days: 1 });
  const key = await world.addKey(person);
  let passedMs = 0;
  const { ledger, db } = await openWorldLedger(world, { timeoutMs: 600, nowMs: () => performance.now() + passedMs });
  await ledger.release(await ledger.reserve(requestFor(person, key)), "not_dispatched");
  // The renewal waits for this lock, as it would for a database that fell silent.
  const locked = Promise.withResolvers<void>();
  const unlock = Promise.withResolvers<void>();
  const holding = world.sql.begin(async (tx) => {
    await tx`select from leases where id = ${ledger.leaseId()} for update`;
    locked.resolve();
    await unlock.promise;
  });
  await locked.promise;
  passedMs = 3_600_000;
  expect(await codeOf(ledger.reserve(requestFor(person, key)))).toBe("service_unavailable");
  try {
    // The renewal is let go on only afterwards.
    await ledger.close();
  } finally {
    unlock.resolve();
    await holding;
    await db.close();
  }
});
