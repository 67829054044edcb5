import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { ERRORS, expectRefusal } from "../gateway/checks.ts";
import {
  type Answer,
  chatBody,
  embeddingBody,
  eventsOf,
  imageBody,
  openShop,
  responsesBody,
  type Shop,
} from "../gateway/shop.ts";
import {
  BAD_CHAT,
  BAD_EMBEDDING,
  BAD_IMAGE,
  GOOD_CHAT,
  GOOD_EMBEDDING,
  GOOD_IMAGE,
  NO_JSON,
  TWICE,
} from "../http/body_cases.ts";
import { BAD_RESPONSES, GOOD_RESPONSES } from "../http/responses_cases.ts";
import type { OfferingSpec } from "../world.ts";
import { type PanelSession, signInTo } from "./panel_client.ts";

/**
 * The panel's chat, responses, images and embeddings follow the rules of the API. Each case is sent to the API with a key, and to the panel with a
 * session, by two customers in the same situation. Code, provider calls, counters and receipts must be equal; statuses differ
 * only where ERR-9 says so. Source: ERR-9, ACC-1, ACC-2.
 */

type Kind = "chat" | "responses" | "image" | "embeddings";
type Customer = { accountId: number; secret: string; keyId: number };
/** The response to a case, and its effects. */
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
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

const PATHS = {
  chat: "/v1/chat/completions",
  responses: "/v1/responses",
  image: "/v1/images/generations",
  embeddings: "/v1/embeddings",
} as const;

const JSON_TYPE = { "content-type": "application/json" };

const atApi = (customer: Customer, kind: Kind, body: unknown) =>
  outcomeOf(customer, () => shop.call(PATHS[kind], { secret: customer.secret, body, headers: JSON_TYPE }));

const atPanel = (customer: Customer, session: PanelSession, kind: Kind, body: unknown) =>
  outcomeOf(customer, () => session.post(`/ai/${kind}`, body, JSON_TYPE));

async function outcomeOf({ accountId }: Customer, call: () => Promise<Answer>): Promise<Outcome> {
  const calls = shop.provider.callCount() + shop.second.callCount();
  const response = await call();
  const { status, json, text } = response;
  if (json?.error) expectRefusal(response, json.error.code, { param: json.error.param, status });
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

/** The content of a response, without ids and times. */
function contentOf(text: string, json: Answer["json"]): unknown {
  if (json?.choices) return json.choices;
  if (json?.output) return json.output.map(({ id, ...item }: { id: string }) => item);
  if (json?.data) return json.data.map((image: object) => Object.keys(image));
  return eventsOf(text).map((event) => event.replace(/"(id|created)":("[^"]*"|\d+)/g, ""));
}

/** The panel's code and status where the API returns `code`. Source: ERR-9. */
function ruledAtPanel(kind: Kind, { code, status }: Outcome): Pick<Outcome, "code" | "status"> {
  if (code === "invalid_request" || (kind === "image" && code === "model_not_found"))
    return { code: "validation_failed", status: 422 };
  if ((kind === "chat" || kind === "responses") && (code === "package_required" || code === "package_expired"))
    return { code, status: 422 };
  return { code, status };
}

/** Sends a case to the API and to the panel, and compares. Returns the API's outcome. */
async function both(situation: () => Promise<Customer>, kind: Kind, body: unknown): Promise<Outcome> {
  const api = await atApi(await situation(), kind, body);
  const customer = await situation();
  const panel = await atPanel(customer, await signInTo(shop, customer), kind, body);
  expect(panel).toEqual({ ...api, ...ruledAtPanel(kind, api) });
  return api;
}

/** The reserved amount may differ. */
function withoutHeld({ records, ...rest }: Outcome): object {
  return { ...rest, records: records.map(({ held, ...record }) => record) };
}

const withPackage = (spec: OfferingSpec | null = {}, key: Parameters<Shop["customer"]>[1] = {}) => {
  return () => shop.customer(spec, key);
};

/** A customer who has sent `n` requests. */
const after = (n: number, spec: OfferingSpec) => async () => {
  const customer = await shop.customer(spec);
  for (let i = 0; i < n; i++) expect((await shop.chat(customer.secret)).status).toBe(200);
  return customer;
};

describe("validation", () => {
  // Bodies are checked before entitlements, so one customer each serves all cases.
  let api: Customer;
  let panel: Customer;
  let session: PanelSession;
  beforeAll(async () => {
    api = await shop.customer({ dailyLimit: 10_000 });
    panel = await shop.customer({ dailyLimit: 10_000 });
    session = await signInTo(shop, panel);
  });

  const compare = async (kind: Kind, body: unknown) => {
    const sent = typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body);
    const one = await atApi(api, kind, sent);
    expect(await atPanel(panel, session, kind, sent)).toEqual({ ...one, ...ruledAtPanel(kind, one) });
    return one;
  };

  const bad = [
    ...[...NO_JSON, ...TWICE, ...BAD_CHAT].map((one) => ["chat", one] as const),
    ...BAD_RESPONSES.map((one) => ["responses", one] as const),
    ...BAD_IMAGE.map((one) => ["image", one] as const),
    ...BAD_EMBEDDING.map((one) => ["embeddings", one] as const),
  ];
  for (const [kind, [what, body, param = null, code = "invalid_request"]] of bad) {
    test(`${kind}, ${what}: ${code}, provider not called`, async () => {
      const records = (await shop.counters(api.accountId)).usage;
      const outcome = await compare(kind, body);
      expect(outcome).toMatchObject({ code, param, status: ERRORS[code]?.[0], providerCalls: 0 });
      expect(outcome.counters.usage).toBe(records);
    });
  }

  const good = [
    ...GOOD_CHAT.map((one) => ["chat", one] as const),
    ...GOOD_RESPONSES.map((one) => ["responses", one] as const),
    ...GOOD_IMAGE.map((one) => ["image", one] as const),
    ...GOOD_EMBEDDING.map((one) => ["embeddings", one] as const),
  ];
  for (const [kind, [what, body]] of good) {
    test(`${kind}, ${what}: served`, async () => {
      expect(await compare(kind, body)).toMatchObject({ status: 200, providerCalls: 1 });
    });
  }
});

/** A customer whose only answer had more tokens than its package. */
const tokensUsedUp = async () => {
  shop.provider.next({ usage: { prompt_tokens: 20, completion_tokens: 400 } });
  return await after(1, { tokenLimit: 400 })();
};

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
  ["a standard package whose day is used up", after(1, { dailyLimit: 1, days: 3 }), "daily_quota_exceeded"],
  [
    "a carryover package that is used up",
    after(1, { dailyLimit: 1, days: 3, carryover: true }),
    "carryover_quota_exceeded",
  ],
  ["a package whose total is used up", after(2, { dailyLimit: 5, totalLimit: 2 }), "package_quota_exceeded"],
  ["a package whose token allowance is used up", tokensUsedUp, "package_quota_exceeded"],
  ["a model that is not in the package", withPackage({ modelIds: ["vendor/chat-b"] }), "model_not_in_package"],
  ["a model that the key may not use", withPackage({}, { modelIds: ["vendor/chat-b"] }), "model_not_found"],
  ["a package", withPackage(), null],
  ["a package, streaming", withPackage(), null, { stream: true }],
  ["a package, streaming with usage", withPackage(), null, { stream: true, stream_options: { include_usage: true } }],
  ["a used-up package beside a balance", usedUpWithBalance, null],
  ["a balance", balanceOf(1_000_000_000n), null],
  ["a balance, streaming", balanceOf(1_000_000_000n), null, { stream: true }],
  ["a balance that lowers max_tokens", balanceOf(5_000_000n), null],
  ["a balance that is too small", balanceOf(1_000n), "insufficient_balance"],
  [
    "a max_tokens that the balance does not cover",
    balanceOf(5_000_000n),
    "insufficient_balance",
    { max_tokens: 100_000 },
  ],
  ["an empty balance", withPackage(null, { mode: "payg" }), "package_required"],
  ["pay-as-you-go switched off", switchedOff, "package_required"],
  ["a model without a price", balanceOf(1_000_000_000n), "payg_pricing_unavailable", { model: "chat-unpriced" }],
  ["a key whose daily request limit is reached", usedOnce(withCeilings({ units: 1 })), "key_request_limit_exceeded"],
  ["a key whose daily spending limit is reached", withCeilings({ nanoUsd: 1_000 }), "key_spend_limit_exceeded"],
];

describe("entitlement, chat", () => {
  for (const [what, situation, code, over = {}] of CASES) {
    test(`${what}: ${code ?? "served"}`, async () => {
      const outcome = await both(situation, "chat", chatBody(over));
      if (code !== null) expect((await both(situation, "chat", chatBody({ ...over, stream: true }))).code).toBe(code);
      expect(outcome.code).toBe(code);
      expect(outcome.providerCalls).toBe(code === null ? 1 : 0);
      expect(outcome.records.at(-1)?.outcome ?? null).toBe(outcome.records.length === 0 ? null : "settled");
    });
  }
});

describe.each([
  ["responses", responsesBody],
  ["image", imageBody],
  ["embeddings", embeddingBody],
] as const)("entitlement, %s", (kind, body) => {
  const onlyChat = [
    "a model without a price",
    "a max_tokens that the balance does not cover",
    "a balance that lowers max_tokens",
    ...(kind === "image" ? ["a package whose token allowance is used up"] : []),
  ];
  const cases = CASES.filter(([what, , , over]) => !onlyChat.includes(what) && !(over && "stream" in over));
  for (const [what, situation, code] of cases) {
    test(`${what}: ${code ?? "served"}`, async () => {
      const outcome = await both(situation, kind, body());
      expect(outcome.code).toBe(code);
      expect(outcome.providerCalls).toBe(code === null ? 1 : 0);
    });
  }
});

describe("a provider that", () => {
  const failing: [what: string, behaviour: Behaviour, code: string][] = [
    ["is down", { status: 500 }, "provider_unavailable"],
    ["refuses the request", { status: 400 }, "invalid_request"],
  ];
  for (const [what, behaviour, code] of failing) {
    for (const stream of [false, true]) {
      test(`${what}, ${stream ? "stream" : "JSON"}: ${code}, nothing is charged`, async () => {
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

  test("uses more than was reserved: charged the same", async () => {
    const overrun = async () => {
      const payer = await shop.payer(1_000_000_000_000n);
      shop.provider.next({ usage: { completion_tokens: 50_000 } });
      return payer;
    };
    const api = await atApi(await overrun(), "chat", chatBody());
    const customer = await overrun();
    const panel = await atPanel(customer, await signInTo(shop, customer), "chat", chatBody());
    expect(api).toMatchObject({ status: 200, counters: { usage: 1, holds: 0 } });
    expect(withoutHeld(panel)).toEqual(withoutHeld(api));
  });
});
