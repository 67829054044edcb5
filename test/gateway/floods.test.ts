import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { Redis } from "ioredis";
import { type Service, startRedis } from "../../scripts/services.ts";
import { newApiKey, randomToken } from "../../src/platform/crypto.ts";
import { PANEL, PASSWORD, type PanelSession, signInTo } from "../panel/panel_client.ts";
import { OTHER_ROUTES, ROUTE_TABLE } from "../panel/route_table.ts";
import { sleep, until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { metricsOf } from "./metrics_reader.ts";
import { type Answer, openShop, type Shop } from "./shop.ts";
import { type StatementCounter, startStatementCounter } from "./statement_counter.ts";

/**
 * Refused traffic is cheap, by counts of the statements and commands that replicas send, and a remembered refusal never blocks a customer who
 * has just bought something. Two replicas, each a process.
 */
/** Concurrency of a flood: low enough that a ledger that is asked would commit for every few requests. */
const AT_ONCE = 4;
/** How often a statement may be sent that is not of every request: once for a batch of requests, or for what is remembered. */
const OF_ONE_TEXT_MAX = 100;
/** As long as replicas need to send each of the statements that they send by themselves, every second or more often. */
const IDLE_MS = 5_000;
const USD = 1_000_000_000;

let redis: Service;
let redisClient: Redis;
let counter: StatementCounter;
/** What replicas send without any request, such as heartbeats: how often depends on how long a test takes. */
let idle: ReadonlySet<string>;
let shop: Shop;
let first: ReplicaProcess;
let second: ReplicaProcess;
let admin: PanelSession;

beforeAll(async () => {
  redis = await startRedis();
  redisClient = new Redis(redis.url);
  shop = await openShop({
    replicas: 2,
    redisUrl: redis.url,
    env: { INTERNAL_PORT: "0", DB_PREPARE: "false" },
    async throughUrl(databaseUrl) {
      counter = await startStatementCounter(databaseUrl);
      return counter.url;
    },
  });
  [first, second] = shop.replicas as [ReplicaProcess, ReplicaProcess];
  await sleep(IDLE_MS);
  idle = new Set(counter.counts().keys());
  admin = await signInTo(shop, await shop.world.addAdmin());
});
afterEach(() => {
  shop.provider.reset();
});
afterAll(() => closeBalanced(shop, counter.close, () => redisClient.disconnect(), redis.stop));

/** How often the replicas sent, for `work`, the statement that they sent most often, of those that they do not send by themselves. */
async function statementsOf(work: () => Promise<unknown>): Promise<number> {
  const before = counter.counts();
  await work();
  let most = 0;
  for (const [text, count] of counter.counts())
    if (!idle.has(text)) most = Math.max(most, count - (before.get(text) ?? 0));
  return most;
}

test("statements are counted: each request of a new customer sends one", async () => {
  const customers = await Promise.all(Array.from({ length: 20 }, () => shop.customer()));
  const asked = await statementsOf(async () => {
    for (const { secret } of customers) expect((await shop.chat(secret)).status).toBe(200);
  });
  expect(asked).toBeGreaterThanOrEqual(20);
});

/** The number of commands that Redis ran during `work`. */
async function commandsOf(work: () => Promise<unknown>): Promise<number> {
  const count = async () => Number(/total_commands_processed:(\d+)/.exec(await redisClient.info("stats"))?.[1]);
  const before = await count();
  await work();
  return (await count()) - before;
}

const remembered = async (replica: ReplicaProcess) =>
  (await metricsOf(replica)).get("tollgate_ledger_refusals_remembered_total") ?? Number.NaN;

/** Sends requests, a few at a time, and counts the responses. */
async function flood(
  count: number,
  send: (i: number) => Promise<Answer>,
  atOnce = AT_ONCE,
): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  let sent = 0;
  const sender = async () => {
    while (sent < count) {
      const { status, json } = await send(sent++);
      const name = status === 200 ? "served" : `${status} ${json?.error?.code}`;
      counts[name] = (counts[name] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, sender));
  return counts;
}

/** Floods a replica with one key until stopped, so that it always remembers a refusal. */
function floodUntil(secret: string, { origin }: ReplicaProcess) {
  const STOPPED: Answer = { status: 0, headers: new Headers(), text: "", json: { error: { code: "stopped" } } };
  let stopped = false;
  let answered = 0;
  const send = async () => {
    if (stopped) return STOPPED;
    const answer = await shop.chat(secret, {}, { origin });
    answered++;
    return answer;
  };
  const counts = flood(20_000, send, 2);
  return {
    answered: () => answered,
    async stop(): Promise<Record<string, number>> {
      stopped = true;
      const { "0 stopped": _, ...answers } = await counts;
      return answers;
    },
  };
}

/** What is sent to endpoints that need no account, where it gets to a look-up. */
const OPEN_BODIES: Readonly<Record<string, unknown>> = {
  "POST /sign-in": { email: "nobody@tollgate.test", password: PASSWORD },
  "POST /sign-in/forgot": { email: "nobody@tollgate.test" },
  "POST /sign-in/identity": { identityProviderId: 1 },
  "POST /sign-in/identity/finish": { query: "code=none&state=none" },
  "POST /email-changes/:token": { answer: "cancel" },
  "POST /join/:token": { password: PASSWORD },
  "POST /links/:token": { password: PASSWORD },
};
/** Of every panel endpoint that needs no session, and of the other pages for anyone: what is asked, as often as it is called. */
const OPEN_ENDPOINTS: readonly (readonly [string, () => { path: string; method: string; body?: unknown }])[] = [
  ...Object.entries(ROUTE_TABLE)
    .filter(([, { who }]) => who === "open")
    .map(([name]) => {
      const [method = "", path = ""] = name.split(" ");
      const body = method === "GET" ? {} : { body: OPEN_BODIES[name] ?? {} };
      return [name, () => ({ path: `/api/panel${path.replace(":token", randomToken(32))}`, method, ...body })] as const;
    }),
  ...Object.entries(OTHER_ROUTES)
    .filter(([, { who }]) => who === "anyone")
    .map(([name, { call }]) => [name, () => ({ ...call, method: name.split(" ")[0] ?? "" })] as const),
];

describe("from one address, without an account", () => {
  /** More than any limit of such an endpoint, in its window. */
  const BEFORE = 80;
  /** All at once, so that those that are looked up in batches are in few. */
  const COUNTED = 40;
  /** Of a limit of five a minute, while a minute ends; or of a statement that a replica sends by itself once a minute. */
  const STATEMENTS_MAX = 12;
  let few: ReplicaProcess;
  beforeAll(async () => {
    few = await shop.start({ RATE_PER_MINUTE: "5", TRUSTED_PROXIES: "127.0.0.1,::1" });
  });
  afterAll(() => few.kill());

  test.each(OPEN_ENDPOINTS)(
    "%s is limited, asks the database nothing, or asks it for many requests together",
    async (name, asked) => {
      const address = `198.51.100.${1 + OPEN_ENDPOINTS.findIndex(([other]) => other === name)}`;
      const headers = { origin: `http://${PANEL}`, "x-forwarded-for": address };
      const send = () => shop.call(asked().path, { ...asked(), origin: few.origin, host: PANEL, headers });
      await flood(BEFORE, send);
      let counts: Record<string, number> = {};
      const statements = await statementsOf(async () => {
        counts = await flood(COUNTED, send, COUNTED);
      });
      expect({ isFew: statements <= STATEMENTS_MAX, counts, statements }).toEqual({ isFew: true, counts, statements });
    },
  );
});

describe("2,000 requests", () => {
  test("on a used-up key cost a few statements and no provider call; every refusal is counted", async () => {
    const customer = await shop.customer({ dailyLimit: 1, days: 5 });
    expect((await shop.chat(customer.secret)).status).toBe(200);
    const calls = shop.provider.callCount();
    const before = await remembered(first);
    const statements = await statementsOf(async () => {
      expect(await flood(2_000, () => shop.chat(customer.secret))).toEqual({ "402 daily_quota_exceeded": 2_000 });
    });
    const asked = 2_000 - ((await remembered(first)) - before);
    // One every quarter of a second, and the requests that were in flight at the first refusal: few, however slow the machine is.
    expect(asked).toBeLessThan(500);
    expect(statements).toBeLessThan(OF_ONE_TEXT_MAX + asked);
    expect(shop.provider.callCount()).toBe(calls);
    await until(async () => {
      const [row] = await shop.world.sql`
        select coalesce(sum(count), 0)::int as counted from refusal_counts
        where account_id = ${customer.accountId} and code = 'daily_quota_exceeded'`;
      return row?.counted === 2_000;
    });
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 1, released: 0, units: 1, holds: 0 });
  });

  test("on an empty balance cost a few statements, even if each has a different size", async () => {
    const payer = await shop.payer(1_000n);
    const content = (i: number) => ({
      messages: [{ role: "user", content: "toll ".repeat(1 + (i % 50)) }],
      max_tokens: 100,
    });
    const statements = await statementsOf(async () =>
      expect(await flood(2_000, (i) => shop.chat(payer.secret, content(i)))).toEqual({
        "402 insufficient_balance": 2_000,
      }),
    );
    expect(statements).toBeLessThan(2 * OF_ONE_TEXT_MAX);
  });

  const KEYS: [string, () => Promise<(i: number) => string>][] = [
    [
      "a revoked key",
      async () => {
        const { secret, keyId } = await shop.customer();
        await shop.world.sql`update keys set status = 'revoked' where id = ${keyId}`;
        return () => secret;
      },
    ],
    [
      "an unknown key",
      async () => {
        const { secret } = newApiKey();
        return () => secret;
      },
    ],
    [
      "malformed keys",
      async () => {
        const { secret } = newApiKey();
        const wrongChecksum = secret.slice(0, -1) + (secret.endsWith("0") ? "1" : "0");
        const forms = [wrongChecksum, `${secret}0`, "sk-1", "", "x".repeat(5_000)];
        return (i) => forms[i % forms.length] ?? "";
      },
    ],
  ];
  test.each(KEYS)("with %s cost a few statements, and none of the rate limiter", async (_, open) => {
    const secretOf = await open();
    let commands = 0;
    const statements = await statementsOf(async () => {
      commands = await commandsOf(async () =>
        expect(await flood(2_000, (i) => shop.chat(secretOf(i)))).toEqual({ "401 invalid_api_key": 2_000 }),
      );
    });
    expect(statements).toBeLessThan(OF_ONE_TEXT_MAX);
    expect(commands).toBeLessThan(200);
  });

  test("with different unknown keys, 64 at a time, are looked up in batches, and a valid key is served meanwhile", async () => {
    const customer = await shop.customer();
    const served: number[] = [];
    const statements = await statementsOf(async () => {
      const flooding = flood(2_000, () => shop.chat(newApiKey().secret), 64);
      // The key is new to the replica: its look-up goes with the others.
      for (let i = 0; i < 3; i++) served.push((await shop.chat(customer.secret)).status);
      expect(await flooding).toEqual({ "401 invalid_api_key": 2_000 });
    });
    expect(served).toEqual([200, 200, 200]);
    expect(statements).toBeLessThan(2_000 / 4);
  });

  test("on different unknown hosts, 64 at a time, are looked up in batches, and a reseller's domain is served meanwhile", async () => {
    const reseller = await shop.world.addReseller();
    const domain = "ai.flood.example";
    await shop.world.addHost(reseller, domain);
    const { secret } = await shop.world.addKey(await shop.world.addCustomer(reseller.accountId));
    const served: number[] = [];
    const strangers = () => flood(2_000, (i) => shop.call("/v1/models", { host: `x${i}.stranger.example` }), 64);
    const statements = await statementsOf(async () => {
      const flooding = strangers();
      // The domain is new to the replica: its look-up goes with the others.
      for (let i = 0; i < 3; i++) served.push((await shop.call("/v1/models", { secret, host: domain })).status);
      expect(await flooding).toEqual({ "403 host_not_allowed": 2_000 });
    });
    expect(served).toEqual([200, 200, 200]);
    // One look-up for all that arrived during the previous one.
    expect(statements).toBeLessThan(2_000 / 10);
    // Hosts that are known not to exist are not looked up again.
    expect(await statementsOf(strangers)).toBeLessThan(OF_ONE_TEXT_MAX);
  });

  test("of the panel without a session, 64 at a time, are looked up in batches: made-up cookies, and a reseller's brand", async () => {
    const domain = "panel.flood.example";
    await shop.world.addHost(await shop.world.addReseller(), domain);
    const madeUp = () => {
      const cookie = `tollgate_session=${randomBytes(32).toString("base64url")}`;
      return shop.call("/api/panel/me", { host: PANEL, headers: { cookie } });
    };
    expect(
      await statementsOf(async () => {
        expect(await flood(2_000, madeUp, 64)).toEqual({ "401 session_required": 2_000 });
      }),
    ).toBeLessThan(2_000 / 10);
    expect(
      await statementsOf(async () => {
        const brand = () => shop.call("/api/panel/brand/public", { host: domain });
        expect(await flood(2_000, brand, 64)).toEqual({ served: 2_000 });
      }),
    ).toBeLessThan(2_000 / 10);
  });
});

describe("in a flood on a refused key", () => {
  const news: [
    string,
    () => Promise<{ secret: string; accountId: number }>,
    string,
    (at: string) => Promise<Answer>,
  ][] = [
    [
      "a new package",
      () => shop.customer(null),
      "package_required",
      async (at) =>
        admin.post(`${at}/packages`, { offeringId: await shop.world.addOffering(), when: "now", payWith: "operator" }),
    ],
    [
      "a top-up",
      () => shop.payer(1n),
      "insufficient_balance",
      (at) => admin.post(`${at}/balance`, { kind: "top_up", amountNanoUsd: String(1_000 * USD), reason: "paid" }),
    ],
    [
      "the balance switched on",
      async () => {
        const payer = await shop.payer(BigInt(1_000 * USD));
        await shop.world.sql`select set_payg(${payer.accountId}, false)`;
        return payer;
      },
      "package_required",
      (at) => admin.patch(`${at}/payg`, { enabled: true }),
    ],
  ];
  test.each(news)(
    "%s takes effect immediately on the replica that made it, and soon on all",
    async (_, open, code, make) => {
      // Repeated, because a remembered refusal may expire just then.
      for (let round = 0; round < 5; round++) {
        const buyer = await open();
        const floods = [first, second].map((replica) => floodUntil(buyer.secret, replica));
        try {
          await until(() => floods.every(({ answered }) => answered() > 20));
          const made = await make(`/people/${buyer.accountId}`);
          expect({ status: made.status, text: made.text }).toMatchObject({ status: 200 });
          expect((await shop.chat(buyer.secret)).status).toBe(200);
          // The other one may remember a refusal for a moment; how long, refusal_memory.test.ts shows.
          await until(async () => (await shop.chat(buyer.secret, {}, { origin: second.origin })).status === 200);
        } finally {
          for (const flooding of floods) await flooding.stop();
        }
        let served = 1 + 1;
        for (const flooding of floods) {
          const { served: more = 0, ...refused } = await flooding.stop();
          expect(Object.keys(refused)).toEqual([`402 ${code}`]);
          served += more;
        }
        expect(await shop.counters(buyer.accountId)).toMatchObject({ usage: served, holds: 0 });
      }
    },
  );

  test("a released unit is granted once, and finally every unit is used", async () => {
    const UNITS = 30;
    const customer = await shop.customer({ dailyLimit: UNITS, days: 5 });
    let calls = 0;
    shop.provider.when(() => calls++ % 3 === 0 && calls < 60, {
      status: 400,
      body: '{"error":{"message":"no","type":"invalid_request_error"}}',
    });
    const floods = [first, second].map((replica) => floodUntil(customer.secret, replica));
    try {
      await until(async () => (await shop.counters(customer.accountId)).usage === UNITS);
      // Both go on for a while: nothing more is granted.
      const answered = floods.map((flooding) => flooding.answered());
      await until(() => floods.every((flooding, i) => flooding.answered() >= (answered[i] ?? 0) + 50));
    } finally {
      for (const flooding of floods) await flooding.stop();
    }
    let served = 0;
    for (const flooding of floods) {
      const { served: some = 0, "400 invalid_request": failed = 0, ...refused } = await flooding.stop();
      expect(Object.keys(refused)).toEqual(["402 daily_quota_exceeded"]);
      expect(failed).toBeGreaterThan(0);
      served += some;
    }
    expect(served).toBe(UNITS);
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: UNITS, units: UNITS, holds: 0 });
    expectRefusal(await shop.chat(customer.secret), "daily_quota_exceeded");
  });
});
