import { afterAll, afterEach, beforeEach, expect, test } from "bun:test";
import { Webhook } from "standardwebhooks";
import { foldAll } from "../../src/books/folding_store.ts";
import { claimBatch, EXPORTED_FIELDS, exportState } from "../../src/books/receipt_export_store.ts";
import { openSlices } from "../../src/books/short_transactions_store.ts";
import { readConfig } from "../../src/config.ts";
import { pauseAfter, startReceiptExport } from "../../src/messages/receipt_export.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { createLog } from "../../src/platform/log.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { createWorld, type World } from "../world.ts";
import { type Call, openReceiver } from "./post.ts";

/** Every receipt reaches the operator's own warehouse, in batches. Source: MSG-15, MSG-16. */

const SECRET = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
const ROWS = 7;
type Sent = { batchId: string; number: number; receipts: Record<string, unknown>[] };

let world: World;
let receiver: Awaited<ReturnType<typeof openReceiver>>;
let account = 0;
let made = 0;
beforeEach(async () => {
  world = await createWorld();
  receiver = await openReceiver();
  ({ accountId: account } = await world.addCustomer());
});
afterEach(async () => {
  await receiver.close();
  await world.close();
});
let shop: Shop | undefined;
afterAll(async () => await shop?.close());

const envOf = (env: Record<string, string> = {}) => ({
  RECEIPT_EXPORT_URL: receiver.url,
  RECEIPT_EXPORT_SECRET: SECRET,
  RECEIPT_EXPORT_ROWS: String(ROWS),
  MESSAGES_ALLOW_PRIVATE: receiver.hostPort,
  ...env,
});
/** One replica's export; it sends only when told to. */
function exporter(env: Record<string, string> = {}, log = createLog("silent")) {
  const config = readConfig({ DATABASE_URL: world.url, SECRET_KEY: "11".repeat(32), ...envOf(env) });
  const clock = { unixMs: () => Date.now() };
  const options = { config, version: "1.2.3", db: world.openDb(2), log, clock, random: () => 0, tickMs: 0 };
  const started = startReceiptExport(options);
  if (started === undefined) throw new Error("no export is configured");
  return started;
}
/** Receipts of `count` requests of the last month, written by one transaction. */
async function write(count: number, sql: Pick<World["sql"], "unsafe"> = world.sql, outcome = "settled"): Promise<void> {
  const charged = outcome === "settled" ? "n" : "0";
  await sql.unsafe(`
    insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd,
      charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated,
      further_counts, created_at, finished_at)
    select (left(request_id_floor(at)::text, 14) || '7000-8000-' || lpad(n::text, 12, '0'))::uuid, ${account}, 1, 'model-a', 'h', 'payg',
      '${outcome}', 'complete', 0, n, ${charged}, 0, 1, 0, 1, 0, false, '{"images":2}', at, at
    from (select n, clock_timestamp() - (n % 3) * interval '7 days' as at
      from generate_series(${made + 1}, ${made + count}) n) made`);
  made += count;
}
const verified = ({ body, headers }: Call) =>
  new Webhook(SECRET).verify(body, headers) as { type: string; timestamp: string; data: Sent };
const batches = () => receiver.calls.map((call) => verified(call).data);
const receiptsOf = (sent: Sent[]) => sent.flatMap(({ receipts }) => receipts);
/** What the warehouse has, one row a request, is what the database has. */
async function expectAll(sent = batches()): Promise<void> {
  const received = new Map(receiptsOf(sent).map((receipt) => [receipt.requestId, receipt]));
  const total = [...received.values()].reduce((sum, { chargedNanoUsd }) => sum + BigInt(String(chargedNanoUsd)), 0n);
  const [row] = await world.sql`
    select count(*)::int as n, coalesce(sum(charged_nano_usd), 0)::text as total from receipts where account_id = ${account}`;
  expect({ n: received.size, total: String(total) }).toEqual({ n: row?.n, total: row?.total });
}
const due = () => world.sql`update receipt_export set due_at = '-infinity'`;
const state = () => exportState({ db: world.openDb(1) });

test("every receipt arrives once, signed, in batches of bounded size, and the state says how far behind the export is", async () => {
  await write(3 * ROWS + 2);
  await write(1, world.sql, "released");
  expect(await state()).toMatchObject({ oldestSeconds: expect.any(Number), receipts: 0, failures: 0 });
  const replica = exporter();
  await replica.run();
  expect(batches().map(({ number, receipts }) => [number, receipts.length])).toEqual([
    [1, ROWS],
    [2, ROWS],
    [3, ROWS],
    [4, 2],
    [5, 1],
  ]);
  expect(receiptsOf(batches())).toHaveLength(3 * ROWS + 3);
  await expectAll();
  for (const call of receiver.calls) expect(call.headers["webhook-id"]).toBe(`batch_${verified(call).data.batchId}`);
  const [first] = receiptsOf(batches());
  expect(Object.keys(first ?? {})).toEqual(EXPORTED_FIELDS);
  expect(first).toMatchObject({ accountId: account, furtherCounts: { images: 2 }, packageId: null, estimated: false });
  expect(replica.status()).toEqual({ oldestSeconds: 0, receipts: 3 * ROWS + 3, failures: 0 });
  await write(2);
  await replica.run();
  expect(receiptsOf(batches())).toHaveLength(3 * ROWS + 5);
});

test("docs/webhooks.md has every field of an exported receipt", async () => {
  const guide = await Bun.file(`${import.meta.dir}/../../docs/webhooks.md`).text();
  const [, json = ""] = /```json sample\n([^`]+)```/.exec(guide) ?? [];
  expect(Object.keys(JSON.parse(json).data.receipts[0])).toEqual(EXPORTED_FIELDS);
});

test("a transaction that commits after later ones is not passed over, and one of many receipts is divided in its order", async () => {
  const [written, committing] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slow = world.sql.begin(async (tx) => {
    await write(2 * ROWS + 1, tx);
    written.resolve();
    await committing.promise;
  });
  await Promise.race([written.promise, slow]);
  await write(ROWS + 1);
  const replica = exporter();
  await replica.run();
  expect(receiptsOf(batches())).toHaveLength(ROWS + 1);
  committing.resolve();
  await slow;
  for (let n = 0; n < 5; n++) await write(1);
  await replica.run();
  expect(receiptsOf(batches())).toHaveLength(3 * ROWS + 7);
  await expectAll();
  const [largest] = await world.sql`
    select array_agg(request_id::text order by request_id) as ids from receipts group by written_in order by count(*) desc limit 1`;
  const divided = receiptsOf(batches()).map(({ requestId }) => requestId);
  expect(divided.filter((id) => largest?.ids.includes(id))).toEqual(largest?.ids);
});

test("while a transaction is sent in parts, an earlier one that ends is sent too, and no part is sent twice", async () => {
  const db = world.openDb(2);
  const [written, committing] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slow = world.sql.begin(async (tx) => {
    await write(3, tx);
    written.resolve();
    await committing.promise;
  });
  await Promise.race([written.promise, slow]);
  await write(2 * ROWS);
  const claimId = newRequestId();
  const part = await claimBatch({ db }, { claimId, rowsMax: ROWS });
  expect(part?.receipts).toHaveLength(ROWS);
  committing.resolve();
  await slow;
  await due();
  // Two of the three fit before the rest: the cursor keeps its place in the other transaction.
  await exporter({ RECEIPT_EXPORT_ROWS: "2" }).run();
  expect(batches()[0]?.batchId).toBe(part?.batchId ?? "");
  expect(receiptsOf(batches())).toHaveLength(2 * ROWS + 3);
  await expectAll();
});

test("a batch that fails comes again as it was, after growing pauses, by any replica, and nothing of it is in the log", async () => {
  const lines: string[] = [];
  const log = createLog("info", { write: (line: string) => lines.push(line) });
  await write(ROWS + 1);
  let fails = 3;
  receiver.does.answer = () => (fails-- > 0 ? { status: 500, body: "the warehouse is full" } : { status: 200 });
  const [one, two] = [exporter({}, log), exporter({}, log)];
  await one.run();
  await two.run();
  expect(receiver.calls).toHaveLength(1);
  expect(await state()).toMatchObject({ isDue: false, failures: 1, failure: "status 500: the warehouse is full" });
  for (const replica of [two, one]) {
    await due();
    await replica.run();
  }
  expect((await state()).failures).toBe(3);
  await due();
  await two.run();
  const sent = batches();
  expect(sent.map(({ number }) => number)).toEqual([1, 1, 1, 1, 2]);
  expect(new Set(receiver.calls.slice(0, 4).map(({ body }) => body)).size).toBe(1);
  expect(await state()).toMatchObject({ oldestSeconds: null, failures: 0, failure: null, receipts: ROWS + 1 });
  await expectAll();
  expect(lines.length).toBeGreaterThan(0);
  for (const secret of [SECRET, receiver.url]) expect(lines.join("")).not.toContain(secret);
  expect([0, 1, 2, 8, 9, 40].map((failures) => pauseAfter(failures, 0) / 1000)).toEqual([1, 2, 4, 256, 300, 300]);
});

test("a receiver that hangs holds one call, until it is restarted", async () => {
  await write(2 * ROWS);
  const begun = Promise.withResolvers<void>();
  receiver.does.answer = () => {
    begun.resolve();
    return null;
  };
  const [one, two] = [exporter(), exporter()];
  const hanging = one.run();
  await begun.promise;
  await two.run();
  expect(receiver.calls).toHaveLength(1);
  receiver.does.answer = () => ({ status: 204 });
  receiver.hangUp();
  await hanging;
  expect((await state()).failures).toBe(1);
  await due();
  await two.run();
  await expectAll();
});

test("two replicas at once send each batch once", async () => {
  const replicas = [exporter(), exporter()];
  for (let n = 0; n < 6; n++) {
    await write(ROWS);
    await Promise.all(replicas.map((replica) => replica.run()));
  }
  await Promise.all(replicas.map((replica) => replica.run()));
  const sent = batches();
  expect(new Set(sent.map(({ batchId }) => batchId)).size).toBe(sent.length);
  expect(receiptsOf(sent)).toHaveLength(6 * ROWS);
  await expectAll();
});

test("a claim that has ended does not advance the cursor: the batch is sent again by another replica", async () => {
  await write(ROWS);
  const answering = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  receiver.does.answer = async () => {
    begun.resolve();
    await answering.promise;
    return { status: 200 };
  };
  const paused = exporter().run();
  await begun.promise;
  await due();
  receiver.does.answer = () => ({ status: 500 });
  await exporter().run();
  answering.resolve();
  await paused;
  expect(await state()).toMatchObject({ receipts: 0, failures: 1 });
  receiver.does.answer = () => ({ status: 200 });
  await due();
  await exporter().run();
  expect(new Set(batches().map(({ batchId }) => batchId)).size).toBe(1);
  expect((await state()).receipts).toBe(ROWS);
});

test("a receipt that is settled late is sent again, as settled, also if it was part of a batch that failed", async () => {
  await write(1, world.sql, "released");
  const replica = exporter();
  receiver.does.answer = () => ({ status: 503 });
  await replica.run();
  await world.sql`
    update receipts set outcome = 'settled', reason = 'late', charged_nano_usd = 5, written_in = default where account_id = ${account}`;
  receiver.does.answer = () => ({ status: 200 });
  await due();
  await replica.run();
  expect(receiptsOf(batches()).map(({ outcome }) => outcome)).toEqual(["released", "settled"]);
  await expectAll();
});

test("after a restore on another server everything is sent again, under new batch ids", async () => {
  await write(ROWS + 1);
  const replica = exporter();
  await replica.run();
  const ids = batches().map(({ batchId }) => batchId);
  await world.sql`
    update receipt_export set server = 'another', sent = '1000000000000900:1000000000000900:'`;
  await world.sql`update receipts set written_in = '1000000000000000' where account_id = ${account}`;
  await world.sql`update book_closing set server = 'another'`;
  await foldAll(openSlices(world.sql));
  receiver.calls.length = 0;
  await replica.run();
  expect(receiptsOf(batches())).toHaveLength(ROWS + 1);
  await expectAll();
  for (const { batchId } of batches()) expect(ids).not.toContain(batchId);
});

test("OTLP: a log record for each receipt; a collector that rejects some of them has not taken the batch", async () => {
  await write(2);
  receiver.does.answer = () => ({
    status: 200,
    body: '{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"old"}}',
  });
  const replica = exporter({
    RECEIPT_EXPORT_FORM: "otlp",
    RECEIPT_EXPORT_SECRET: "",
    RECEIPT_EXPORT_HEADERS: "api-key=k1",
  });
  await replica.run();
  expect(await state()).toMatchObject({ receipts: 0, failure: "the collector rejected 1 receipts" });
  receiver.does.answer = () => ({ status: 200, body: "{}" });
  await due();
  await replica.run();
  expect((await state()).receipts).toBe(2);
  const [call] = receiver.calls;
  expect(call?.headers).toMatchObject({ "api-key": "k1", "content-type": "application/json" });
  const { resourceLogs } = JSON.parse(call?.body ?? "");
  const [{ resource, scopeLogs }] = resourceLogs;
  expect(resource.attributes).toContainEqual({ key: "service.name", value: { stringValue: "tollgate" } });
  const [{ scope, logRecords }] = scopeLogs;
  expect(scope.attributes).toContainEqual({ key: "tollgate.batch.number", value: { intValue: "1" } });
  const [stored] = await world.sql`
    select request_id::text as id, floor(extract(epoch from finished_at) * 1000)::text as ms, charged_nano_usd::text as charged
    from receipts where account_id = ${account} order by written_in, request_id limit 1`;
  expect(logRecords).toHaveLength(2);
  expect(logRecords[0]).toMatchObject({ timeUnixNano: `${stored?.ms}000000`, body: { stringValue: stored?.id } });
  expect(logRecords[0].attributes).toContainEqual({
    key: "tollgate.receipt.chargedNanoUsd",
    value: { stringValue: stored?.charged },
  });
});

test("the address is called only through the guard, and must be https unless the operator allowed it", async () => {
  await write(1);
  const replica = exporter({ RECEIPT_EXPORT_URL: `https://${receiver.hostPort}/`, MESSAGES_ALLOW_PRIVATE: "" });
  await replica.run();
  expect(receiver.calls).toHaveLength(0);
  expect((await state()).failure).toMatch(/public|private/);
  expect(() => exporter({ MESSAGES_ALLOW_PRIVATE: "" })).toThrow(/RECEIPT_EXPORT_URL must begin with https/);
  expect(() => exporter({ RECEIPT_EXPORT_SECRET: "" })).toThrow(/RECEIPT_EXPORT_SECRET must be set together/);
});

test("a kill -9 between the receiver's answer and the cursor sends the same batch again, and skips nothing", async () => {
  shop = await openShop({ env: { ...envOf({ RECEIPT_EXPORT_ROWS: "2" }) } });
  const { secret } = await shop.customer();
  const { sql } = shop.world;
  for (let n = 0; n < 9; n++)
    expect(
      (
        await shop.call("/v1/chat/completions", {
          secret,
          body: { model: "chat-a", messages: [{ role: "user", content: "hi" }] },
        })
      ).status,
    ).toBe(200);
  const exported = async () => Number((await sql`select receipts from receipt_export`)[0]?.receipts);
  await until(async () => (await exported()) === 9);
  await shop.replicas[0]?.stop();
  await sql`update receipt_export set sent = '3:3:', receipts = 0`;
  receiver.calls.length = 0;
  const doomed = await shop.start({ FAILPOINTS: "after_export=kill@2" });
  await until(() => doomed.process.signalCode === "SIGKILL");
  const doubtful = batches().at(-1)?.batchId ?? "";
  // The dead replica's claim ends, as it would after a minute.
  await sql`update receipt_export set due_at = '-infinity'`;
  const last = await shop.start();
  await until(async () => (await exported()) === 9);
  expect(last.logged()).not.toContain(SECRET);
  await last.stop();
  const ids = batches().map(({ batchId }) => batchId);
  expect(ids.filter((id) => id === doubtful)).toHaveLength(2);
  expect(new Set(ids).size).toBe(ids.length - 1);
  const received = new Set(receiptsOf(batches()).map(({ requestId }) => requestId));
  const stored = await sql`select request_id::text as id from receipts`;
  expect([...received].sort()).toEqual(stored.map(({ id }) => id).sort());
});
