import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readConfig } from "../../src/config.ts";
import { createLog } from "../../src/platform/log.ts";
import type { Server } from "../../src/platform/runtime.ts";
import { type Replica, startReplica } from "../../src/replica.ts";
import { createApp } from "../../src/server/app.ts";
import { listen } from "../../src/server/listen.ts";
import { closeBalanced } from "../gateway/checks.ts";
import { METERED_MODELS, METERED_ROWS, type MeteredRow, modelOf } from "../gateway/metered_endpoints.ts";
import { type Answer, type CallOptions, openShop, type Shop } from "../gateway/shop.ts";
import { PANEL, type PanelSession, signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import { PATIENT, TEST_SECRET_KEY } from "../replica.ts";
import { type BrokenSteps, brokenSteps } from "./broken_steps.ts";

/** A step that throws leaks no hold, whichever step it is. Source: END-17, END-15, IDE-2. */
/** A request has at least so many steps under its hold, and fewer than so many. */
const STEPS_MIN = 20;
const STEPS_MAX = 1_000;
const ANSWERED = [() => true, () => false] as const;
const PANEL_PATHS: Readonly<Record<string, string>> = {
  "/v1/chat/completions": "/api/panel/ai/chat",
  "/v1/responses": "/api/panel/ai/responses",
  "/v1/images/generations": "/api/panel/ai/image",
  "/v1/embeddings": "/api/panel/ai/embeddings",
};

let shop: Shop;
let replica: Replica;
let server: Server;
let steps: BrokenSteps;
let origin: string;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", models: METERED_MODELS });
  const config = readConfig({
    ...{ DATABASE_URL: shop.world.url, SECRET_KEY: TEST_SECRET_KEY, PORT: "0", LISTEN_HOST: "127.0.0.1" },
    ...{ BASE_URL: "http://api.tollgate.test/v1", PANEL_URL: "http://panel.tollgate.test", LOG_LEVEL: "silent" },
    SPOOL_DIR: `${shop.world.spoolDir}/broken`,
    PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${shop.provider.port},127.0.0.1:${shop.second.port}`,
    ...{ RATE_PER_MINUTE: "100000", RATE_ACCOUNT_PER_MINUTE: "1000000", ...PATIENT },
  });
  // A tenth of the real speed: a client that a busy machine stops for two seconds has not held a stream up (END-3).
  const clock = { nowMs: () => performance.now() / 10, wallMs: () => Date.now() };
  replica = await startReplica(config, clock, createLog("silent"));
  steps = brokenSteps(replica.deps);
  const { fetch } = createApp(steps.deps);
  server = listen(replica.deps, { variable: "PORT", port: 0, hostname: "127.0.0.1", fetch });
  origin = `http://127.0.0.1:${server.port}`;
});
afterEach(() => shop.provider.reset());
afterAll(async () => {
  await server.closeNow();
  expect(await replica.drain()).toBe(true);
  await closeBalanced(shop);
});

/** Sends one request, if it can with an Idempotency-Key. The connection may be cut. */
type Send = (idempotencyKey: string, onText?: CallOptions["onText"]) => Promise<Answer | undefined>;
/** How a request ends of which no step throws. */
type Ends = { charges: number; status: number | undefined };
const SERVED: Ends = { charges: 1, status: 200 };
type Doors = { readonly name: string; open(row: MeteredRow): Promise<{ accountId: number; send: Send }> };

const bodyOf = (row: MeteredRow) => ({ model: modelOf(row, "two-routes"), ...row.body("at dawn") });
const cut = () => undefined;

const API: Doors = {
  name: "the API",
  async open(row) {
    const { accountId, secret } = await shop.payer(100_000_000_000n);
    const send: Send = (key, onText) =>
      shop
        .call(row.path, {
          ...{ origin, secret, host: "api.tollgate.test", body: bodyOf(row), onText },
          headers: { "idempotency-key": key },
        })
        .catch(cut);
    return { accountId, send };
  },
};
const PLAYGROUND: Doors = {
  name: "the playground",
  async open(row) {
    const { accountId } = await shop.customer();
    const session: PanelSession = await signInTo(shop, { accountId }, { origin });
    const headers = { cookie: session.cookie, origin: `http://${PANEL}`, "x-csrf-token": session.csrf };
    const call = () =>
      shop.call(PANEL_PATHS[row.path] ?? row.path, { origin, host: PANEL, method: "POST", body: bodyOf(row), headers });
    return { accountId, send: () => call().catch(cut) };
  },
};

/** Everything that a request holds of this replica. */
const held = () => ({ holds: replica.deps.ledger.status().holds, inFlight: replica.deps.gate.inFlight() });
const NOTHING = { holds: 0, inFlight: 0 };

async function settled(accountId: number): Promise<number> {
  return (await shop.counters(accountId)).usage;
}

/** Whether nothing is held, and so many receipts are written: the row of a hold that was granted from idle money ends after its memory. */
async function isAtRest(accountId: number, receipts: number): Promise<boolean> {
  const { holds, usage, released } = await shop.counters(accountId);
  return Bun.deepEquals(held(), NOTHING) && holds === 0 && usage + released === receipts;
}

/**
 * Breaks each step of a request in turn. Returns the steps, and what was wrong after one of them. `hasClaim`: the request has an
 * Idempotency-Key, so it is sent again: charged by now or not, it is charged once.
 */
async function breakEach(accountId: number, send: Send, { hasClaim = false, ends = SERVED } = {}) {
  const broken: string[] = [];
  const wrong: string[] = [];
  for (let n = 0; n < STEPS_MAX; n++) {
    const { usage: before, released } = await shop.counters(accountId);
    steps.breakAt(n);
    const answer = await send(`step-${n}`);
    const isFree = await until(() => isAtRest(accountId, before + released + 1)).then(...ANSWERED);
    const step = steps.broken();
    const charges = (await settled(accountId)) - before;
    if (step === undefined) {
      expect({ status: answer?.status, charges, isFree }).toEqual({ ...ends, isFree: true });
      return { broken, wrong };
    }
    broken.push(step);
    const note = (what: object) => wrong.push(`${n} ${step}: ${JSON.stringify(what)}`);
    if (!isFree || charges > 1) note({ held: held(), charges, status: answer?.status });
    if (!isFree) return { broken, wrong };
    if (!hasClaim) continue;
    const again = await send(`step-${n}`);
    const served = (await settled(accountId)) - before;
    if (served !== 1) note({ charges, again: again?.status, served });
  }
  throw new Error(`a request has more than ${STEPS_MAX} steps`);
}

async function expectNothingLeft(accountId: number, breaking: ReturnType<typeof breakEach>): Promise<void> {
  const { broken, wrong } = await breaking;
  expect(wrong).toEqual([]);
  expect(broken.length).toBeGreaterThan(STEPS_MIN);
  expect(await shop.counters(accountId)).toMatchObject({ holds: 0 });
}

/** A client that leaves as soon as it has read something. */
async function leave(row: MeteredRow, secret: string): Promise<undefined> {
  const leaving = new AbortController();
  const response = await fetch(`${origin}${row.path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", host: "api.tollgate.test" },
    body: JSON.stringify(bodyOf(row)),
    signal: leaving.signal,
  });
  await response.body
    ?.getReader()
    .read()
    .catch(() => {}); // Cut by the broken step.
  leaving.abort();
}

describe.each(METERED_ROWS.map((row) => [row.name, row] as const))("%s", (_, row) => {
  // Not every endpoint has a playground.
  for (const door of row.path in PANEL_PATHS ? [API, PLAYGROUND] : [API])
    test(`${door.name}: no step that throws leaves a hold, a place or a claim behind, or charges twice`, async () => {
      const { accountId, send } = await door.open(row);
      expect((await send("first"))?.status).toBe(200);
      await expectNothingLeft(accountId, breakEach(accountId, send, { hasClaim: door === API }));
    });

  test("the same if the provider does not report what was used", async () => {
    const { accountId, send } = await API.open(row);
    shop.provider.always({ omitUsage: true });
    await expectNothingLeft(accountId, breakEach(accountId, send));
  });

  test("the same if the provider refuses the request", async () => {
    const { accountId, send } = await API.open(row);
    shop.provider.always({ status: 400 });
    await expectNothingLeft(accountId, breakEach(accountId, send, { ends: { charges: 0, status: 400 } }));
  });

  if (row.stream === null) return;

  test("the same if the provider breaks off", async () => {
    const { accountId, send } = await API.open(row);
    const cut = { tokens: 20, cutAfterChunks: 5 };
    const sendCut = (key: string) =>
      shop.brokenOff(cut, (onText) => send(key, onText), { script: shop.provider.always });
    await expectNothingLeft(accountId, breakEach(accountId, sendCut, { ends: { charges: 0, status: 200 } }));
  });

  test("the same if the client leaves", async () => {
    const { accountId, secret } = await shop.payer(100_000_000_000n);
    shop.provider.always({ tokens: 20, hang: "mid_stream" });
    const send = () => leave(row, secret);
    await expectNothingLeft(accountId, breakEach(accountId, send, { ends: { charges: 1, status: undefined } }));
  });
});
