import { expect, test } from "bun:test";
import { Refusal } from "../../src/errors.ts";
import { createSemaphore, type Share } from "../../src/platform/semaphore.ts";
import { sleep } from "./own_redis.ts";

const open = (max = 4, waitingMax = 10) =>
  createSemaphore({
    max,
    waitingMax,
    shareFull: () => new Refusal("too_many_requests"),
    allFull: () => new Refusal("service_unavailable"),
  });
const account = (id: number): Share => ({ id: `account:${id}`, atOnceMax: 2, waitingMax: 3 });
const tenant = (id: number): Share => ({ id: `tenant:${id}`, atOnceMax: 3, waitingMax: 5 });
const patient = { waitMsMax: 60_000 };
const codeOf = (entering: Promise<unknown>) =>
  entering.then(
    () => "entered",
    (error: unknown) => (error instanceof Refusal ? error.code : String(error)),
  );

test("an account gets its share of slots and no more; other slots stay free", async () => {
  const places = open();
  const leaves = [await places.enter([account(1)], patient), await places.enter([account(1)], patient)];
  let third = false;
  const waiting = places.enter([account(1)], patient).then((leave) => {
    third = true;
    return leave;
  });
  leaves.push(await places.enter([account(2)], patient), await places.enter([account(3)], patient));
  expect([places.taken(), third]).toEqual([4, false]);
  leaves[2]?.();
  await sleep(0);
  expect([places.taken(), third]).toEqual([3, false]);
  leaves[0]?.();
  leaves[0]?.();
  leaves.push(await waiting);
  expect(places.taken()).toBe(3);
  for (const leave of leaves) leave();
  expect(places.taken()).toBe(0);
});

test("a tenant's accounts share the tenant's slots; a tenant without free slots delays no other", async () => {
  const places = open();
  for (const id of [1, 2, 3]) await places.enter([account(id), tenant(1)], patient);
  const waiting = codeOf(places.enter([account(4), tenant(1)], { waitMsMax: 20 }));
  expect(await codeOf(places.enter([account(5)], patient))).toBe("entered");
  expect(await waiting).toBe("too_many_requests");
});

test("waiting callers of different accounts are served in turn; at the time limit the error says whose share is full", async () => {
  const places = open(1);
  const leave = await places.enter([account(1)], patient);
  const order: number[] = [];
  const entering = [2, 3, 4].map(async (id) => {
    const left = await places.enter([account(id)], patient);
    order.push(id);
    left();
  });
  expect(await codeOf(places.enter([account(5)], { waitMsMax: 10 }))).toBe("service_unavailable");
  leave();
  await Promise.all(entering);
  expect(order).toEqual([2, 3, 4]);
  expect(places.taken()).toBe(0);
});

test("accounts of one tenant take turns: one that has waiting callers in front of them all does not get all of the tenant's slots", async () => {
  const places = open(10);
  const order: number[] = [];
  const leaves: (() => void)[] = [];
  for (const id of [1, 1, 2]) leaves.push(await places.enter([account(id), tenant(1)], patient));
  for (const id of [1, 1, 2, 3])
    void places.enter([account(id), tenant(1)], patient).then((leave) => {
      order.push(id);
      leaves.push(leave);
    });
  for (let i = 0; i < 4; i++) {
    leaves[i]?.();
    await sleep(0);
  }
  // Each time, whoever has none is next.
  expect(order).toEqual([3, 1, 2, 1]);
});

test("the number of waiting callers is limited, per share and in total", async () => {
  const places = open(2, 4);
  for (let i = 0; i < 2; i++) await places.enter([account(1)], patient);
  const waiting = [1, 1, 1].map((id) => places.enter([account(id)], patient));
  expect(await codeOf(places.enter([account(1)], patient))).toBe("too_many_requests");
  waiting.push(places.enter([account(2)], patient));
  expect(await codeOf(places.enter([account(3)], patient))).toBe("service_unavailable");
  expect(waiting).toHaveLength(4);
});

test("a caller that leaves while waiting takes no slot, and frees its place in the queue", async () => {
  const places = open(1);
  const leave = await places.enter([account(1)], patient);
  const client = new AbortController();
  const left = codeOf(places.enter([account(1)], { waitMsMax: 60_000, signal: client.signal }));
  client.abort(new Refusal("not_found"));
  expect(await left).toBe("not_found");
  leave();
  expect(places.taken()).toBe(0);
  expect(await codeOf(places.enter([account(1)], patient))).toBe("entered");
});
