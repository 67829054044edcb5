import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { RULED } from "../gateway/checks.ts";
import { type Answer, chatBody, eventsOf, imageBody, openShop, type Shop } from "../gateway/shop.ts";
import { BAD_CHAT, BAD_IMAGE, GOOD_CHAT, GOOD_IMAGE, NO_JSON, TWICE } from "../http/body_cases.ts";
import type { OfferingSpec } from "../world.ts";
import { PANEL, signInTo } from "./panel_client.ts";

/**
 * One set of rules, two doors: every case goes through the API with a key and through the panel with a session, each
 * time by a customer of its own in the same situation, and must leave the same code, calls, counters and records.
 * Statuses differ only where the rulings say so. Source: ERR-9, ACC-1.
 */

type Kind = "chat" | "image";
type Customer = { accountId: number; secret: string; keyId: number };
/** What one door did with a case. */
type Outcome = {
  status: number;
  code: string | null;
  param: unknown;
  limit: unknown;
  used: unknown;
  remaining: unknown;
  resets: string;
  answer: unknown;
  providerCalls: number;
  counters: Record<string, number>;
  records: Record<string, unknown>[];
};

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
}, 60_000);
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

const PATHS = { chat: "/v1/chat/completions", image: "/v1/images/generations" } as const;

async function atApi(customer: Customer, kind: Kind, body: unknown): Promise<Outcome> {
  return outcomeOf(customer, () => shop.call(PATHS[kind], { secret: customer.secret, body, headers: JSON_TYPE }));
}

async function atPanel(customer: Customer, kind: Kind, body: unknown): Promise<Outcome> {
  const session = await signInTo(shop, customer);
  return outcomeOf(customer, () =>
    shop.call(`/api/panel/ai/${kind}`, {
      host: PANEL,
      body,
      headers: { ...JSON_TYPE, cookie: session.cookie, origin: `http://${PANEL}`, "x-csrf-token": session.csrf },
    }),
  );
}

const JSON_TYPE = { "content-type": "application/json" };

async function outcomeOf({ accountId }: Customer, call: () => Promise<Answer>): Promise<Outcome> {
  const calls = shop.provider.callCount() + shop.second.callCount();
  const { status, json, text } = await call();
  const records = await shop.world.sql`
    select model_id, mode, outcome, reason, units, held_nano_usd::text as held, charged_nano_usd::text as charged, prompt_tokens, completion_tokens,
      estimated, package_id is not null as of_package, host
    from receipts where account_id = ${accountId} order by request_id`;
  const error = json?.error;
  return {
    status,
    code: error?.code ?? null,
    param: error?.param,
    limit: error?.limit,
    used: error?.used,
    remaining: error?.remaining,
    resets: typeof error?.resets_at,
    answer: error === undefined ? contentOf(text, json) : null,
    providerCalls: shop.provider.callCount() + shop.second.callCount() - calls,
    counters: await shop.counters(accountId),
    records: records.map((row) => ({ ...row, host: "its own" })),
  };
}

/** What a client reads in an answer, without ids and times. */
function contentOf(text: string, json: Answer["json"]): unknown {
  if (json?.choices) return json.choices;
  if (json?.data) return json.data.map((image: object) => Object.keys(image));
  return eventsOf(text).map((event) => event.replace(/"(id|created)":("[^"]*"|\d+)/g, ""));
}

/** The panel's code and status for what the API answers with `code`. Source: ERR-9. */
function ruledAtPanel(kind: Kind, { code, status }: Outcome): Pick<Outcome, "code" | "status"> {
  if (code === "invalid_request" || (kind === "image" && code === "model_not_found"))
    return { code: "validation_failed", status: 422 };
  if (kind === "chat" && (code === "package_required" || code === "package_expired")) return { code, status: 422 };
  return { code, status };
}

/** Runs a case through both doors. Returns the API's outcome. */
async function both(situation: () => Promise<Customer>, kind: Kind, body: unknown): Promise<Outcome> {
  const api = await atApi(await situation(), kind, body);
  const panel = await atPanel(await situation(), kind, body);
  expect(panel).toEqual({ ...api, ...ruledAtPanel(kind, api) });
  return api;
}

/** What was held is not compared: all else is alike. */
function withoutHeld({ records, ...rest }: Outcome): object {
  return { ...rest, records: records.map(({ held, ...record }) => record) };
}

const withPackage = (spec: OfferingSpec | null = {}, key: Parameters<Shop["customer"]>[1] = {}) => {
  return () => shop.customer(spec, key);
};

/** A customer whose package has been used by `n` requests. */
const after = (n: number, spec: OfferingSpec) => async () => {
  const customer = await shop.customer(spec);
  for (let i = 0; i < n; i++) expect((await shop.chat(customer.secret)).status).toBe(200);
  return customer;
};

describe("validation", () => {
  // Bodies are judged before entitlements, so one customer at each door serves for all of them.
  let api: Customer;
  let panel: Customer;
  let session: Awaited<ReturnType<typeof signInTo>>;
  beforeAll(async () => {
    api = await shop.customer({ dailyLimit: 10_000 });
    panel = await shop.customer({ dailyLimit: 10_000 });
    session = await signInTo(shop, panel);
  });

  const sentAs = (body: unknown) =>
    typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body);
  const atDoors = async (kind: Kind, body: unknown) => {
    const sent = sentAs(body);
    const one = await outcomeOf(api, () =>
      shop.call(PATHS[kind], { secret: api.secret, body: sent, headers: JSON_TYPE }),
    );
    const two = await outcomeOf(panel, () =>
      shop.call(`/api/panel/ai/${kind}`, {
        host: PANEL,
        body: sent,
        headers: { ...JSON_TYPE, cookie: session.cookie, origin: `http://${PANEL}`, "x-csrf-token": session.csrf },
      }),
    );
    expect(two).toEqual({ ...one, ...ruledAtPanel(kind, one) });
    return one;
  };

  const bad = [
    ...[...NO_JSON, ...TWICE, ...BAD_CHAT].map((one) => ["chat", one] as const),
    ...BAD_IMAGE.map((one) => ["image", one] as const),
  ];
  for (const [kind, [what, body, param = null, code = "invalid_request"]] of bad) {
    test(`${kind}, ${what}: ${code} at both doors, provider not called`, async () => {
      const records = (await shop.counters(api.accountId)).usage;
      const outcome = await atDoors(kind, body);
      expect(outcome).toMatchObject({ code, param, status: RULED[code]?.[0], providerCalls: 0 });
      expect(outcome.counters.usage).toBe(records);
    });
  }

  const good = [...GOOD_CHAT.map((one) => ["chat", one] as const), ...GOOD_IMAGE.map((one) => ["image", one] as const)];
  for (const [kind, [what, body]] of good) {
    test(`${kind}, ${what}: served alike at both doors`, async () => {
      expect(await atDoors(kind, body)).toMatchObject({ status: 200, providerCalls: 1 });
    });
  }
});

type EntitlementCase = [
  what: string,
  situation: () => Promise<Customer>,
  code: string | null,
  body?: Record<string, unknown>,
];

const balanceOf = (nanoUsd: bigint) => () => shop.payer(nanoUsd);
const ended = async () => {
  const customer = await shop.customer();
  await shop.world.sql`
    select end_package(${customer.accountId}, (select id from packages where account_id = ${customer.accountId}))`;
  return customer;
};
const switchedOff = async () => {
  const payer = await shop.payer(1_000_000_000n);
  await shop.world.sql`select set_payg(${payer.accountId}, false)`;
  return payer;
};
const usedUpWithBalance = async () => {
  const customer = await after(1, { dailyLimit: 1 })();
  await shop.world.setBalance(customer, 1_000_000_000n);
  return customer;
};
const withCeilings = (ceilings: { units?: number; nanoUsd?: number }) => async () => {
  const payer = await shop.payer(1_000_000_000n);
  await shop.world.sql`
    update keys set daily_units_max = ${ceilings.units ?? null}, daily_spend_max_nano_usd = ${ceilings.nanoUsd ?? null}
    where id = ${payer.keyId}`;
  return payer;
};
const usedOnce = (situation: () => Promise<Customer>) => async () => {
  const customer = await situation();
  expect((await shop.chat(customer.secret)).status).toBe(200);
  return customer;
};
const CASES: EntitlementCase[] = [
  ["no package, no balance", withPackage(null), "package_required"],
  ["a package that ended", ended, "package_expired"],
  ["standard package, today used up", after(1, { dailyLimit: 1, days: 3 }), "daily_quota_exceeded"],
  [
    "carryover package, all of it used up",
    after(1, { dailyLimit: 1, days: 3, carryover: true }),
    "carryover_quota_exceeded",
  ],
  ["the total used up", after(2, { dailyLimit: 5, totalLimit: 2 }), "package_quota_exceeded"],
  ["the token allowance used up", after(1, { tokenLimit: 1 }), "package_quota_exceeded"],
  ["a model outside of the package", withPackage({ modelIds: ["vendor/chat-b"] }), "model_not_in_package"],
  ["a model outside of the key", withPackage({}, { modelIds: ["vendor/chat-b"] }), "model_not_found"],
  ["a package that serves", withPackage(), null],
  ["a package that serves a stream", withPackage(), null, { stream: true }],
  ["a stream with usage", withPackage(), null, { stream: true, stream_options: { include_usage: true } }],
  ["used up, with a balance to step in", usedUpWithBalance, null],
  ["a balance that serves", balanceOf(1_000_000_000n), null],
  ["a balance that serves a stream", balanceOf(1_000_000_000n), null, { stream: true }],
  ["a balance that lowers the cap", balanceOf(5_000_000n), null],
  ["a balance too small", balanceOf(1_000n), "insufficient_balance"],
  ["a cap that the balance does not cover", balanceOf(5_000_000n), "insufficient_balance", { max_tokens: 100_000 }],
  ["an empty balance", withPackage(null, { mode: "payg" }), "package_required"],
  ["a balance that is switched off", switchedOff, "package_required"],
  ["a model without a price", balanceOf(1_000_000_000n), "payg_pricing_unavailable", { model: "chat-unpriced" }],
  ["the key's ceiling of requests reached", usedOnce(withCeilings({ units: 1 })), "key_request_limit_exceeded"],
  ["the key's ceiling of spending reached", withCeilings({ nanoUsd: 1_000 }), "key_spend_limit_exceeded"],
];

describe("entitlement, chat", () => {
  for (const [what, situation, code, over = {}] of CASES) {
    test(`${what}: ${code ?? "served"}, alike at both doors`, async () => {
      const outcome = await both(situation, "chat", chatBody(over));
      expect(outcome.code).toBe(code);
      expect(outcome.providerCalls).toBe(code === null ? 1 : 0);
      expect(outcome.records.at(-1)?.outcome ?? null).toBe(outcome.records.length === 0 ? null : "settled");
    });
  }
});

describe("entitlement, images", () => {
  const onlyChat = ["a model without a price", "a cap that the balance does not cover", "the token allowance used up"];
  const cases = CASES.filter(([what, , , over]) => !onlyChat.includes(what) && !(over && "stream" in over));
  for (const [what, situation, code] of cases) {
    if (what === "a balance that lowers the cap") continue; // An image has none.
    test(`${what}: ${code ?? "served"}, alike at both doors`, async () => {
      const outcome = await both(situation, "image", imageBody());
      expect(outcome.code).toBe(code);
      expect(outcome.providerCalls).toBe(code === null ? 1 : 0);
    });
  }
});

describe("when the provider fails", () => {
  const failing: [what: string, behaviour: Behaviour, code: string][] = [
    ["down", { status: 500 }, "provider_unavailable"],
    ["refuses the request", { status: 400 }, "invalid_request"],
  ];
  for (const [what, behaviour, code] of failing) {
    for (const stream of [false, true]) {
      test(`${what}, ${stream ? "stream" : "JSON"}: ${code}, alike at both doors`, async () => {
        const failingNow = (situation: () => Promise<Customer>) => async () => {
          const customer = await situation();
          shop.provider.next(behaviour);
          return customer;
        };
        const outcome = await both(failingNow(balanceOf(1_000_000_000_000n)), "chat", chatBody({ stream }));
        expect(outcome.code).toBe(code);
        expect(outcome.counters).toMatchObject({ usage: 0, released: 1, holds: 0 });
      });
    }
  }

  test("it overruns the hold: charged alike at both doors", async () => {
    const overrun = (nanoUsd: bigint) => async () => {
      const payer = await shop.payer(nanoUsd);
      shop.provider.next({ usage: { completion_tokens: 50_000 } });
      return payer;
    };
    const api = await atApi(await overrun(1_000_000_000_000n)(), "chat", chatBody());
    const panel = await atPanel(await overrun(1_000_000_000_000n)(), "chat", chatBody());
    expect(api).toMatchObject({ status: 200, counters: { usage: 1, holds: 0 } });
    expect(withoutHeld(panel)).toEqual(withoutHeld(api));
  });
});
