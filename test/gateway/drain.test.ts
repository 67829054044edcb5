import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readdir, readFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { behave, callsOf, closeAtRest, hasMark, type Mark, withReplica } from "../faults/fault_shop.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { type ReplicaProcess, RUNTIME } from "../replica.ts";
import { startTcpProxy, type TcpProxy } from "../tcp_proxy.ts";
import { expectRefusal, rawCall } from "./checks.ts";
import { gaugeOf, shedBy } from "./metrics_reader.ts";
import { chatBody, eventsOf, openShop, type Shop } from "./shop.ts";

/**
 * SIGTERM: not ready, no new work, streams finish within the grace or end with an error event, all settled, exit code 0. A
 * second signal or a database that stays away: exit code 1, and what is not settled is in the spool. Each test ends a
 * process of its own. Source: END-12, REL-7.
 */

/** All tests begin at once and wait for the start of their replicas: on a busy machine, for longer than they take themselves. */
setDefaultTimeout(300_000);
const START_WAIT_MS_MAX = 200_000;
/** A replica on a busy machine may renew its lease seconds late. */
const LEASE_SECONDS = 8;
/** Signals within a second are one. */
const LATER_MS = 1_200;
/** Twice the duration of the short streams, for slow machines. */
const GRACE_SECONDS = 8;

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({
    redisUrl: "",
    env: { LEASE_SECONDS: String(LEASE_SECONDS), INTERNAL_PORT: "0" },
  });
});
// The shop's own replica reaps the holds of replicas that were ended immediately.
afterAll(() => closeAtRest(shop));

/**
 * Runs `work` with its own replica, which is killed afterwards if it is still running. Its connections are open and its ledger was used
 * once: on a busy machine the first request of a replica may get 503.
 */
const withOwn = (env: Record<string, string>, work: (replica: ReplicaProcess) => Promise<void>) =>
  withReplica(
    () => shop.start(env),
    async (replica) => {
      const { secret } = await shop.customer();
      await until(async () => (await shop.chat(secret, {}, { origin: replica.origin })).status === 200);
      await work(replica);
    },
    START_WAIT_MS_MAX,
  );

/** A stream that is read as it arrives. `ended` resolves with its text. */
async function openStream(origin: string, secret: string, behaviour: Behaviour) {
  const response = await fetch(`${origin}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
    body: JSON.stringify(chatBody({ stream: true, ...behave(shop, behaviour) })),
  });
  expect({ status: response.status, text: response.ok ? "" : await response.text() }).toEqual({
    status: 200,
    text: "",
  });
  let got = "";
  const ended = (async () => {
    for await (const bytes of response.body as ReadableStream<Uint8Array>) got += new TextDecoder().decode(bytes);
  })().catch(() => {}); // Cut off: what came until then is what counts.
  return { got: () => got, ended: ended.then(() => got) };
}

function signal(replica: ReplicaProcess): void {
  replica.process.kill("SIGTERM");
}

/** Resolves with the exit code, without a signal of our own. */
function exitOf({ process: child }: ReplicaProcess): Promise<number | null> {
  return new Promise((resolve) => child.once("exit", (code) => resolve(code)));
}

const lastEventOf = (text: string) => eventsOf(text).at(-1) ?? "";
const isWhole = (text: string) => lastEventOf(text) === "[DONE]";

/** Ended by the replica: only whole events, the last one an error, and no clean end. */
function expectEndedByUs(text: string): void {
  expect(text).not.toContain("[DONE]");
  expect(JSON.parse(lastEventOf(text))).toMatchObject({
    error: { code: "service_unavailable", type: "server_error", param: null },
    request_id: expect.any(String),
  });
}

/** The lines that wait in a replica's spool. */
async function spooled(directory: string): Promise<{ requestId: string }[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith(".spool"));
  // A file that no longer exists has been replayed.
  const texts = await Promise.all(names.map((name) => readFile(join(directory, name), "utf8").catch(() => "")));
  return texts.flatMap((text) => text.split("\n").filter(Boolean)).map((line) => JSON.parse(line));
}

test.concurrent("50 open streams that end within the drain time are complete and settled; later ones end with an error event and are released; exit code 0", () =>
  // A stream whose headers were sent would be ended by an event.
  withOwn({ DRAIN_SECONDS: String(GRACE_SECONDS), STREAM_HEADERS_MS: "0" }, async (replica) => {
    const [short, long] = await Promise.all([shop.customer(), shop.customer()]);
    const { held, open: goOn } = shop.provider.gateAfter(3, { tokens: 60 });
    const briefly = behave(shop, held);
    const atLength = behave(shop, { chunkDelayMs: 100, tokens: 5_000 });
    const open = (secret: string, mark: Mark) =>
      fetch(`${replica.origin}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
        body: JSON.stringify(chatBody({ stream: true, ...mark })),
      });
    const longs = await Promise.all(Array.from({ length: 25 }, () => open(long.secret, atLength)));
    const shorts = await Promise.all(Array.from({ length: 25 }, () => open(short.secret, briefly)));
    expect(await gaugeOf(replica, "open_streams")).toBe(50);
    const exited = replica.stop();
    await until(() => replica.logged().includes('"message":"draining"'));
    goOn();
    const texts = await Promise.all([...shorts, ...longs].map((response) => response.text()));
    expect(await exited).toBe(0);
    // The later ones would have gone on for minutes.
    for (const text of texts.slice(0, 25)) expect(isWhole(text)).toBe(true);
    for (const text of texts.slice(25)) expectEndedByUs(text);
    expect(await shop.counters(short.accountId)).toMatchObject({ usage: 25, released: 0, holds: 0, units: 25 });
    expect(await shop.counters(long.accountId)).toMatchObject({ usage: 0, released: 25, holds: 0, units: 0 });
    const reasons = await shop.world.sql`select distinct reason from receipts where account_id = ${long.accountId}`;
    expect(reasons.map(({ reason }) => reason)).toEqual(["ended_by_us"]);
    const calls = shop.provider.calls().filter(({ body }) => [briefly, atLength].some((mark) => hasMark(body, mark)));
    expect(calls).toHaveLength(50);
    for (const { id } of calls) expect((await shop.provider.waitForEnd(id)).outcome).not.toBe("open");
    // Nothing of what it logged is lost.
    await until(() => replica.logged().includes('"message":"drained"'));
  }));

test.concurrent("unanswered requests that end within the drain time are answered and settled; later ones get 503 and are released; exit code 0", () =>
  withOwn({ DRAIN_SECONDS: String(GRACE_SECONDS) }, async (replica) => {
    const [quick, slow] = await Promise.all([shop.customer(), shop.customer()]);
    const { held, open } = shop.provider.gate();
    const quickly = behave(shop, held);
    const never = behave(shop, { hang: "headers" });
    const answered = shop.chat(quick.secret, quickly, { origin: replica.origin });
    const refused = [false, true].map((stream) =>
      shop.chat(slow.secret, { stream, ...never }, { origin: replica.origin }),
    );
    await until(() => callsOf(shop, quickly) === 1 && callsOf(shop, never) === 2);
    const exited = replica.stop();
    await until(() => replica.logged().includes('"message":"draining"'));
    open();
    expect((await answered).status).toBe(200);
    for (const answer of await Promise.all(refused)) expectRefusal(answer, "service_unavailable");
    expect(await exited).toBe(0);
    expect(await shop.counters(quick.accountId)).toMatchObject({ usage: 1, released: 0, holds: 0, units: 1 });
    expect(await shop.counters(slow.accountId)).toMatchObject({ usage: 0, released: 2, holds: 0, units: 0 });
    for (const { id, body } of shop.provider.calls()) if (hasMark(body, never)) await shop.provider.waitForAborted(id);
  }));

describe("not ready", () => {
  test.concurrent("during the drain notice: /readyz says draining, requests are served with Connection: close; then no new work; exit code 0", () =>
    withOwn({ DRAIN_NOTICE_SECONDS: "3", DRAIN_SECONDS: String(GRACE_SECONDS) }, async (replica) => {
      const { secret, accountId } = await shop.customer();
      const stream = await openStream(replica.origin, secret, { chunkDelayMs: 100, tokens: 60 });
      await until(() => stream.got().includes("data: "));
      const path = (path: string) => ["GET", path, "HTTP/1.1\r\nHost: localhost\r\n\r\n"].join(" ");
      expect((await rawCall(replica.port, path("/readyz"))).headers.get("connection")).toBeNull();
      const kept = keptAlive(replica, path("/healthz"));
      await until(() => kept.answers() === 1);
      const exited = exitOf(replica);
      signal(replica);
      await until(async () => (await gaugeOf(replica, "draining")) === 1);
      const ready = await rawCall(replica.port, path("/readyz"));
      expect([ready.status, ready.json, ready.headers.get("connection")]).toEqual([
        503,
        { status: "not_ready", reason: "draining" },
        "close",
      ]);
      expect((await rawCall(replica.port, path("/healthz"))).status).toBe(200);
      const body = JSON.stringify(chatBody());
      const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
      const served = await rawCall(replica.port, head, body);
      expect([served.status, served.headers.get("connection")]).toEqual([200, "close"]);
      // A keep-alive connection gets one more response, and is then closed by the server.
      kept.ask();
      await until(() => kept.answers() === 2 && kept.closed());
      expect(isWhole(await stream.ended)).toBe(true);
      expect(await exited).toBe(0);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 2, units: 2, holds: 0, released: 0 });
      await expect(fetch(`${replica.origin}/healthz`)).rejects.toThrow();
    }));

  test.concurrent("without a drain notice: a request on an open connection gets 503, the connection is closed, and nothing is reserved", () =>
    withOwn({ DRAIN_SECONDS: "20" }, async (replica) => {
      const [{ secret }, refused] = await Promise.all([shop.customer(), shop.customer()]);
      const stream = await openStream(replica.origin, secret, { chunkDelayMs: 100, tokens: 40 });
      await until(() => stream.got().includes("data: "));
      const mark = behave(shop, {});
      const body = JSON.stringify(chatBody(mark));
      const late = keptAlive(replica, `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n`);
      await until(late.connected);
      await sleep(200); // The head that has begun is read.
      const exited = exitOf(replica);
      signal(replica);
      await until(async () => (await gaugeOf(replica, "draining")) === 1);
      const before = await shop.counters(refused.accountId);
      // The connection was opened before the signal, so no listener can refuse it.
      late.send(
        `Authorization: Bearer ${refused.secret}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
      await until(late.closed);
      expect(await shop.counters(refused.accountId)).toEqual(before);
      expect(callsOf(shop, mark)).toBe(0);
      if (RUNTIME === "deno") {
        // Deno's server closes a connection on which it is only reading, without a response.
        expect(late.text()).toBe("");
      } else {
        expect(late.text()).toContain("service_unavailable");
        expect(late.text().toLowerCase()).toContain("connection: close");
        expect(late.text().toLowerCase()).toContain("retry-after: ");
        expect(await shedBy(replica, "draining")).toBe(1);
      }
      expect(isWhole(await stream.ended)).toBe(true);
      expect(await exited).toBe(0);
    }));
});

/** A keep-alive connection that repeats the same request. */
function keptAlive(replica: ReplicaProcess, request: string) {
  let got = "";
  let closed = false;
  let connected = false;
  const socket = connect(replica.port, "127.0.0.1", () => {
    connected = true;
    socket.write(request);
  });
  socket.on("data", (bytes) => {
    got += bytes;
  });
  socket.on("error", () => {}); // "close" follows.
  socket.on("close", () => {
    closed = true;
  });
  return {
    ask: () => socket.write(request),
    send: (text: string) => socket.write(text),
    connected: () => connected,
    text: () => got,
    answers: () => got.split("HTTP/1.1 ").length - 1,
    closed: () => closed,
  };
}

/** Runs `work` with a replica whose database can be cut off, and passes it the spool's directory. */
async function behindProxy(
  env: Record<string, string>,
  work: (seat: { replica: ReplicaProcess; database: TcpProxy; spoolDir: string }) => Promise<void>,
): Promise<void> {
  const database = await startTcpProxy(shop.world.url);
  const spoolDir = join(shop.world.spoolDir, `drain${database.port}`);
  const common = { DATABASE_URL: database.url, SPOOL_DIR: spoolDir, CACHE_TTL_MS: "600000", LEDGER_TIMEOUT_MS: "1800" };
  const own = withOwn({ ...common, ...env }, (replica) => work({ replica, database, spoolDir }));
  await own.finally(database.close);
}

describe("while the database is away", () => {
  for (const [how, takeAway] of [
    ["refuses connections", (database: TcpProxy) => database.cut()],
    ["hears all and says nothing", (database: TcpProxy) => database.dropReplies()],
  ] as const) {
    test.concurrent(`(it ${how}) answers are complete, their settlements wait in the spool, and the exit code is 1; after a restart each is settled once`, () =>
      behindProxy({ DRAIN_SECONDS: String(GRACE_SECONDS) }, async ({ replica, database, spoolDir }) => {
        const [short, long] = await Promise.all([shop.customer(), shop.customer()]);
        const open = (count: number, secret: string, tokens: number) =>
          Promise.all(
            Array.from({ length: count }, () => openStream(replica.origin, secret, { chunkDelayMs: 100, tokens })),
          );
        const shorts = await open(6, short.secret, 40);
        const longs = await open(4, long.secret, 5_000);
        expect(await gaugeOf(replica, "open_streams")).toBe(10);
        takeAway(database);
        const exited = replica.stop();
        for (const { ended } of shorts) expect(isWhole(await ended)).toBe(true);
        for (const { ended } of longs) expectEndedByUs(await ended);
        expect({ code: await exited, log: replica.logged() }).toMatchObject({ code: 1 });
        const lines = await spooled(spoolDir);
        // A silent database may still have executed the statement: then the replay finds it done.
        expect(new Set(lines.map(({ requestId }) => requestId)).size).toBe(10);
        await until(() => replica.logged().includes("settlements wait in the spool for the next start"));
        await withOwn({ SPOOL_DIR: spoolDir }, async (next) => {
          await until(async () => (await spooled(spoolDir)).length === 0);
          expect(await shop.counters(short.accountId)).toMatchObject({ usage: 6, units: 6, holds: 0, released: 0 });
          // Released, or returned by the reaper before the replay: that leaves no receipt.
          const { released, ...others } = await shop.counters(long.accountId);
          expect(others).toMatchObject({ usage: 0, units: 0, holds: 0 });
          expect(released).toBeOneOf([0, 4]);
          expect(await next.stop()).toBe(0);
        });
      }));
  }

  test.concurrent("(it hears all and says nothing) with nothing open, the replica ends before its deadline, with exit code 0", () =>
    behindProxy({ DRAIN_SECONDS: "20" }, async ({ replica, database }) => {
      database.dropReplies();
      const exited = exitOf(replica);
      signal(replica);
      expect({ code: await exited, log: replica.logged() }).toMatchObject({ code: 0 });
      expect(replica.logged()).not.toContain("the deadline");
    }));

  test.concurrent("the spool is replayed and the exit code is 0 if the database comes back within the drain time", () =>
    behindProxy({ DRAIN_SECONDS: "60" }, async ({ replica, database, spoolDir }) => {
      const { secret, accountId } = await shop.customer();
      const brief = { chunkDelayMs: 100, tokens: 40 };
      const streams = await Promise.all(Array.from({ length: 3 }, () => openStream(replica.origin, secret, brief)));
      expect(await gaugeOf(replica, "open_streams")).toBe(3);
      database.cut();
      const exited = replica.stop();
      for (const { ended } of streams)
        expect({ last: lastEventOf(await ended), log: replica.logged() }).toMatchObject({ last: "[DONE]" });
      expect((await spooled(spoolDir)).length).toBe(3);
      database.mend();
      expect(await exited).toBe(0);
      expect(await spooled(spoolDir)).toEqual([]);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 3, units: 3, holds: 0, released: 0 });
    }));

  test.concurrent("a second SIGTERM ends the process immediately with exit code 1; open settlements are in the spool, and are settled once", () =>
    behindProxy({ DRAIN_SECONDS: "60", LEDGER_TIMEOUT_MS: "30000" }, async ({ replica, database, spoolDir }) => {
      const { secret, accountId } = await shop.customer();
      const mark = behave(shop, { delayMs: 2_500 });
      const answers = Array.from({ length: 3 }, () =>
        shop.chat(secret, mark, { origin: replica.origin }).catch(() => "cut"),
      );
      await until(() => callsOf(shop, mark) === 3);
      database.hang();
      for (const { id, body } of shop.provider.calls()) if (hasMark(body, mark)) await shop.provider.waitForEnd(id);
      await until(async () => (await gaugeOf(replica, "ledger_queue_rows")) === 3);
      const exited = exitOf(replica);
      signal(replica);
      await until(async () => (await gaugeOf(replica, "draining")) === 1);
      await sleep(LATER_MS);
      // The database stays silent until the process has ended: what it waited for has not come.
      signal(replica);
      expect(await exited).toBe(1);
      // A settlement on disk counts: an answer that is still delivered is correct.
      for (const answer of await Promise.all(answers)) if (typeof answer !== "string") expect(answer.status).toBe(200);
      expect((await spooled(spoolDir)).length).toBe(3);
      database.mend();
      await withOwn({ SPOOL_DIR: spoolDir }, async () => {
        await until(async () => (await spooled(spoolDir)).length === 0);
        expect(await shop.counters(accountId)).toMatchObject({ usage: 3, units: 3, holds: 0, released: 0 });
      });
    }));
});

test.concurrent("two signals at once are one, as Ctrl-C under `bun run`: an open stream ends within the drain time, and the exit code is 0", () =>
  withOwn({ DRAIN_SECONDS: String(GRACE_SECONDS) }, async (replica) => {
    const { secret, accountId } = await shop.customer();
    const stream = await openStream(replica.origin, secret, { chunkDelayMs: 50, tokens: 40 });
    await until(() => stream.got().includes("data: "));
    const exited = exitOf(replica);
    replica.process.kill("SIGINT");
    replica.process.kill("SIGINT");
    await until(() => replica.logged().includes('"draining"'));
    replica.process.kill("SIGINT");
    expect(isWhole(await stream.ended)).toBe(true);
    expect(await exited).toBe(0);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
  }));

test.concurrent("a second SIGTERM with open streams ends the process immediately with exit code 1: they are cut without [DONE], and their units return when the lease ends", () =>
  withOwn({ DRAIN_SECONDS: "60" }, async (replica) => {
    const { secret, accountId } = await shop.customer();
    const long = { chunkDelayMs: 50, tokens: 5_000 };
    const streams = await Promise.all(Array.from({ length: 5 }, () => openStream(replica.origin, secret, long)));
    const exited = exitOf(replica);
    signal(replica);
    await until(async () => (await gaugeOf(replica, "draining")) === 1);
    await sleep(LATER_MS);
    // The streams would have gone on for minutes, and been given a minute.
    signal(replica);
    expect(await exited).toBe(1);
    for (const { ended } of streams) expect(await ended).not.toContain("[DONE]");
    await until(() => replica.logged().includes("a second signal"));
    await until(async () => (await shop.counters(accountId)).holds === 0);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0, released: 0 });
  }));
