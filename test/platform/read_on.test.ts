import { expect, test } from "bun:test";
import { createReadOn } from "../../src/platform/read_on.ts";
import { nextTurn } from "../../src/platform/runtime.ts";
import { until } from "./own_redis.ts";

const WITHOUT_LIMIT = { bytesMax: Number.POSITIVE_INFINITY, ms: 600_000, stallMs: 600_000, bodiesMax: 100 };

/** A body that gives pieces for ever, one in a turn of the event loop, or none if `bytes` is 0. */
function endless(bytes: number) {
  let given = 0;
  let cancelled = false;
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (bytes === 0) return new Promise(() => {});
        await nextTurn();
        given += bytes;
        controller.enqueue(new Uint8Array(bytes));
      },
      cancel() {
        cancelled = true;
      },
    },
    { highWaterMark: 0 },
  );
  return { body, given: () => given, cancelled: () => cancelled };
}

test("of a body without an end, as many bytes are read as the bound says", async () => {
  const { body, given, cancelled } = endless(1_000);
  await createReadOn({ ...WITHOUT_LIMIT, bytesMax: 5_500 }).read(body);
  expect(given()).toBe(6_000);
  expect(cancelled()).toBe(true);
});

test.each(["ms", "stallMs"] as const)(
  "a body that sends nothing is read for as long as the bound says: %s",
  async (bound) => {
    await createReadOn({ ...WITHOUT_LIMIT, [bound]: 20 }).read(endless(0).body);
  },
);

test("a body that sends byte after byte is read for as long as the bound says", async () => {
  const { body, cancelled } = endless(1);
  await createReadOn({ ...WITHOUT_LIMIT, ms: 50 }).read(body);
  await until(cancelled);
});

test("one body more than the bound ends the oldest, and no other", async () => {
  const readOn = createReadOn({ ...WITHOUT_LIMIT, bodiesMax: 2 });
  const ended: number[] = [];
  const readings = [0, 1, 2, 3].map((i) => readOn.read(endless(0).body).then(() => ended.push(i)));
  await Promise.all(readings.slice(0, 2));
  expect(ended).toEqual([0, 1]);
  readOn.close();
  await Promise.all(readings);
});

test("a piece that was asked for arrives before the body is cancelled", async () => {
  let give = () => {};
  let cancelled = false;
  const body = new ReadableStream<Uint8Array>(
    {
      pull: (controller) =>
        new Promise((resolve) => {
          give = () => {
            controller.enqueue(new Uint8Array(1));
            resolve();
          };
        }),
      cancel() {
        cancelled = true;
      },
    },
    { highWaterMark: 0 },
  );
  await createReadOn({ ...WITHOUT_LIMIT, stallMs: 20 }).read(body);
  await nextTurn();
  expect(cancelled).toBe(false);
  give();
  await until(() => cancelled);
});

test("close ends all, and later bodies are not read", async () => {
  const readOn = createReadOn(WITHOUT_LIMIT);
  const reading = readOn.read(endless(0).body);
  readOn.close();
  await reading;
  const later = endless(1_000);
  await readOn.read(later.body);
  expect(later.given()).toBe(0);
});

test("a body that ends, fails, or is being read by another ends the reading", async () => {
  const readOn = createReadOn(WITHOUT_LIMIT);
  await readOn.read(new Response("abc").body as ReadableStream<Uint8Array>);
  await readOn.read(new ReadableStream({ start: (controller) => controller.error(new Error("left")) }));
  const { body } = endless(0);
  body.getReader();
  await readOn.read(body);
});

test("the body is cancelled only when the answer was sent", async () => {
  const sent = Promise.withResolvers<void>();
  const { body, given, cancelled } = endless(1_000);
  const reading = createReadOn({ ...WITHOUT_LIMIT, bytesMax: 1 }).read(body, sent.promise);
  await until(() => given() === 1_000);
  expect(cancelled()).toBe(false);
  sent.resolve();
  await reading;
  expect(cancelled()).toBe(true);
});
