import { afterAll, expect, test } from "bun:test";
import sharp from "sharp";
import { createPdfDrawer } from "../../src/commerce/pdf_drawer.ts";
import { until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { INVOICE, LOOKS, textOf } from "./sample_invoice.ts";

/** Invoices are drawn in a worker. Source: INV-4. */

/** A busy machine draws sixteen files, one after the other, in more than their usual time. */
const PATIENT = { waitMs: 150_000, stuckMs: 150_000 };
const drawer = createPdfDrawer(quietLog().log, PATIENT);
afterAll(() => drawer.close());

/** A worker that runs `script`. */
const workerOf = (script: string) => () =>
  new Worker(URL.createObjectURL(new Blob([script], { type: "application/javascript" })), { type: "module" });

test("a file is drawn in the worker, with a logo of any format, and the next one by the same worker", async () => {
  const logo = await sharp({ create: { width: 320, height: 80, channels: 4, background: "#0a7d5c" } })
    .webp()
    .toBuffer();
  const [first, second] = await Promise.all([drawer.draw(INVOICE, { ...LOOKS, logo }), drawer.draw(INVOICE, LOOKS)]);
  expect(Buffer.from(first).toString("latin1")).toContain("/Subtype /Image");
  expect(textOf(second)).toContain("Acme Inference GmbH");
});

test("40 concurrent files: those beyond the queue get 503 immediately, and all others are drawn", async () => {
  const drawn = await Promise.allSettled(
    Array.from({ length: 40 }, (_, i) => drawer.draw({ ...INVOICE, accountId: 1 + (i % 10) }, LOOKS)),
  );
  const refused = drawn.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
  expect(refused).toHaveLength(24);
  for (const error of refused) expect(error).toMatchObject({ code: "service_unavailable" });
  expect(textOf(await drawer.draw(INVOICE, LOOKS))).toContain("Acme");
});

test("of 30 concurrent files of one account four are drawn; another account's is drawn beside them", async () => {
  const flood = Promise.allSettled(Array.from({ length: 30 }, () => drawer.draw({ ...INVOICE, accountId: 1 }, LOOKS)));
  expect(textOf(await drawer.draw({ ...INVOICE, accountId: 2 }, LOOKS))).toContain("Acme");
  expect((await flood).filter(({ status }) => status === "fulfilled")).toHaveLength(4);
});

test("a file that cannot be drawn has its own error, and the worker continues", async () => {
  const broken = { ...INVOICE, issuedAt: "never" };
  await expect(drawer.draw(broken, LOOKS)).rejects.toThrow(/date|time/i);
  expect(textOf(await drawer.draw(INVOICE, LOOKS))).toContain("Acme");
});

test("a file gets 503 if its worker dies or cannot start, and another worker is started later", async () => {
  let started = 0;
  const { log, lines } = quietLog();
  const startWorker = () => {
    started++;
    return workerOf("postMessage({ ready: true }); onmessage = () => { throw new Error('died'); }")();
  };
  const one = createPdfDrawer(log, { startWorker });
  // Nothing runs before the first file.
  expect(started).toBe(0);
  for (const drawn of await Promise.allSettled([one.draw(INVOICE, LOOKS), one.draw(INVOICE, LOOKS)]))
    expect(drawn).toMatchObject({ status: "rejected", reason: { code: "service_unavailable" } });
  expect(lines[0]).toMatchObject({ worker: "pdf" });
  await expect(one.draw(INVOICE, LOOKS)).rejects.toMatchObject({ code: "service_unavailable" });
  expect(started).toBe(1);
  await until(async () => {
    await one.draw(INVOICE, LOOKS).catch(() => undefined);
    return started === 2;
  });
  one.close();
  await expect(one.draw(INVOICE, LOOKS)).rejects.toMatchObject({ code: "service_unavailable" });
});
