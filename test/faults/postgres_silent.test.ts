import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, type CallOptions, openShop, type Shop } from "../gateway/shop.ts";
import { codeOf, openWorldLedger, requestFor } from "../ledger/ledger_world.ts";
import { PANEL, signInTo } from "../panel/panel_client.ts";
import { sleep, until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { startTcpProxy, type TcpProxy } from "../tcp_proxy.ts";
import {
  accountAtRest,
  behave,
  callsOf,
  closeAtRest,
  HELD_NANO_USD,
  HELD_USAGE,
  PROMPT,
  receiptsOf,
  withReplica,
} from "./fault_shop.ts";

/**
 * Postgres falls silent: packets are dropped, or a COMMIT is done and its answer lost. No request waits for long,
 * nothing is done twice, and the replica recovers by itself. Source: REL-4.
 */
const LEASE_SECONDS = 4;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ env: { ...PROMPT, LEASE_SECONDS: String(LEASE_SECONDS) } });
});
afterAll(() => closeAtRest(shop));

/** A replica that reaches its Postgres through a proxy. */
async function behindProxy(
  env: Record<string, string>,
  work: (replica: ReplicaProcess, proxy: TcpProxy) => Promise<void>,
): Promise<void> {
  const proxy = await startTcpProxy(shop.world.url);
  const start = () => shop.start({ DATABASE_URL: proxy.url, ...env });
  await withReplica(start, (replica) => work(replica, proxy)).finally(proxy.close);
}

// A prepared statement sends its arguments, not its text: of a run the model comes behind a true or false, of an end the reason.
const RESERVE = 'e,\\"chat-a\\",';
const SETTLE = '\\"complete\\"';

describe("the reply to a COMMIT is lost: it is done once, with the same answer", () => {
  let proxy: TcpProxy;
  let replica: ReplicaProcess;
  beforeAll(async () => {
    proxy = await startTcpProxy(shop.world.url);
    replica = await shop.start({ DATABASE_URL: proxy.url, LEDGER_TIMEOUT_MS: "20000" });
  });
  afterAll(async () => {
    await replica.kill();
    await proxy.close();
  });

  for (const purse of ["package", "balance"] as const) {
    for (const [what, asking] of [
      ["reserve", RESERVE],
      ["settle", SETTLE],
    ] as const) {
      for (const stream of [false, true]) {
        test(`of a ${what}, ${purse}, ${stream ? "stream" : "answer"}`, async () => {
          const { origin } = replica;
          const buyer =
            purse === "package" ? await shop.customer({ dailyLimit: 5 }) : await shop.payer(5n * HELD_NANO_USD);
          const mark = behave(shop, { tokens: 10, usage: HELD_USAGE });
          const ask = () => shop.chat(buyer.secret, { stream, max_tokens: 10, ...mark }, { origin });
          // The lane's connection must already know the statement.
          expect((await ask()).status).toBe(200);
          const lost = proxy.dropNextReply(asking);
          const answering = ask();
          await lost;
          const answer = await answering;
          expect(answer.status).toBe(200);
          if (stream) expect(answer.text).toEndWith("data: [DONE]\n\n");
          expect(callsOf(shop, mark)).toBe(2);
          const receipts = await receiptsOf(shop, buyer.accountId);
          expect(receipts).toHaveLength(2);
          const [, receipt] = receipts;
          expect(receipt).toMatchObject({ outcome: "settled", reason: "complete", shortfall: 0 });
          expect(receipt?.requestId).toBe(answer.headers.get("x-request-id") ?? "");
          const left = purse === "package" ? { units: 2 } : { balance: Number(3n * HELD_NANO_USD) };
          expect(await shop.counters(buyer.accountId)).toMatchObject({ usage: 2, holds: 0, ...left });
        });
      }
    }
  }
});

/** Every kind of request that needs the database, with its normal answer. */
function calls(origin: string, known: { secret: string }, unknown: { secret: string }, cookie: string) {
  const at = (path: string, options: CallOptions = {}) => shop.call(path, { origin, ...options });
  const panel = { host: PANEL, headers: { origin: `http://${PANEL}`, cookie } };
  return {
    chat: { well: 200, call: () => shop.chat(known.secret, {}, { origin }) },
    stream: { well: 200, call: () => shop.chat(known.secret, { stream: true }, { origin }) },
    "chat of a key not seen before": { well: 200, call: () => shop.chat(unknown.secret, {}, { origin }) },
    models: { well: 200, call: () => at("/v1/models", { secret: known.secret }) },
    balance: { well: 200, call: () => at("/v1/balance", { secret: known.secret }) },
    usage: { well: 200, call: () => at("/v1/usage", { secret: known.secret }) },
    "the panel's keys": { well: 200, call: () => at("/api/panel/keys", panel) },
    "the panel's sign-in": {
      well: 401,
      call: () => at("/api/panel/sign-in", { ...panel, body: { email: "a@example.com", password: "wrong" } }),
    },
  };
}

for (const how of ["hang", "dropReplies"] as const) {
  const what = how === "hang" ? "no packet passes" : "no reply comes";

  test(`silent, ${what}: every request gets 503 while it is; the replica is alive, not ready, and recovers by itself`, () =>
    behindProxy({}, async (replica, proxy) => {
      const { origin } = replica;
      const [known, unknown] = [await shop.customer({ dailyLimit: 1000 }), await shop.customer({ dailyLimit: 1000 })];
      const session = await signInTo(shop, known, { origin });
      const everything = calls(origin, known, unknown, session.cookie);
      expect((await everything.chat.call()).status).toBe(200);
      const providerCalls = shop.provider.callCount();
      proxy[how]();
      const refused: Promise<{ name: string; answer: Answer }>[] = [];
      const health: Promise<{ path: string; answer: Answer }>[] = [];
      // Some arrive while others already wait. All are answered before the silence ends.
      for (const pauseMs of [0, 300, 500, 900, 1200]) {
        await sleep(pauseMs);
        for (const [name, { call }] of Object.entries(everything))
          refused.push(call().then((answer) => ({ name, answer })));
        for (const path of ["/healthz", "/readyz"])
          health.push(shop.call(path, { origin }).then((answer) => ({ path, answer })));
      }
      for (const { name, answer } of await Promise.all(refused)) {
        // Two lists of an account wait for the silent server: those that come then wait for one of the two to end, its share.
        const isShared = name === "usage" && answer.status === 429;
        expectRefusal(answer, isShared ? "too_many_requests" : "service_unavailable");
      }
      for (const { path, answer } of await Promise.all(health)) {
        if (path === "/healthz") expect(answer).toMatchObject({ status: 200 });
        else expect(answer).toMatchObject({ status: 503, json: { reason: "database_unreachable" } });
      }
      expect(shop.provider.callCount()).toBe(providerCalls);

      proxy.mend();
      for (const { well, call } of Object.values(everything)) await until(async () => (await call()).status === well);
      await until(async () => (await shop.call("/readyz", { origin })).status === 200);
      // The holds of refused requests are returned, also if their COMMIT had been done.
      await accountAtRest(shop, known.accountId);
      const receipts = await receiptsOf(shop, known.accountId);
      const settled = receipts.filter(({ outcome }) => outcome === "settled");
      expect((await shop.counters(known.accountId)).units).toBe(settled.length);
      for (const { outcome, units } of receipts) if (outcome === "released") expect(units).toBe(0);
    }));
}

test("connections lost again and again while they are set up: the replica keeps running, and recovers when they succeed", () =>
  behindProxy({}, async (replica, proxy) => {
    const { origin } = replica;
    const customer = await shop.customer({ dailyLimit: 1000 });
    for (let i = 0; i < 4; i++) {
      // The first thing a connection of the pool asks is which types of arrays there are.
      const lost = proxy.dropNextReply("typarray");
      proxy.cut();
      proxy.mend();
      await lost;
      expect((await shop.call("/healthz", { origin })).status).toBe(200);
    }
    await until(async () => (await shop.call("/readyz", { origin })).status === 200);
    await until(async () => (await shop.chat(customer.secret, {}, { origin })).status === 200);
    expect(replica.process.exitCode).toBeNull();
  }));

test("silent: a reserve is given up at its own time limit, however many earlier attempts it waited for", async () => {
  const TIMEOUT_MS = 3_000;
  const proxy = await startTcpProxy(shop.world.url);
  /** Which of two timers of this process, set together with the request, ran before it was given up. */
  const givenUp = async (asked: Promise<string>) => {
    const ran: number[] = [];
    const timers = [TIMEOUT_MS * 0.9, TIMEOUT_MS * 1.4].map((ms) => setTimeout(() => ran.push(ms), ms));
    const code = await asked;
    const after = [...ran];
    for (const timer of timers) clearTimeout(timer);
    return { code, after };
  };
  const open = await openWorldLedger(shop.world, {
    databaseUrl: proxy.url,
    timeoutMs: TIMEOUT_MS,
    leaseSeconds: LEASE_SECONDS,
  });
  const customer = await shop.customer({ dailyLimit: 1000 });
  await open.ledger.release(await open.ledger.reserve(requestFor(customer, customer)), "not_dispatched");
  proxy.hang();
  const refusals = [];
  for (let i = 0; i < 12; i++) {
    refusals.push(givenUp(codeOf(open.ledger.reserve(requestFor(customer, customer)))));
    await sleep(125);
  }
  for (const { code, after } of await Promise.all(refusals)) {
    expect(code).toBe("service_unavailable");
    // An attempt takes half of it: a request that had to wait for one more would take half as long again.
    expect(after).toEqual([TIMEOUT_MS * 0.9]);
  }
  expect(open.ledger.status()).toMatchObject({ holds: 0 });
  proxy.mend();
  await until(async () => (await codeOf(open.ledger.reserve(requestFor(customer, customer)))) === "granted");
  proxy.cut();
  await open.close();
  await proxy.close();
});
