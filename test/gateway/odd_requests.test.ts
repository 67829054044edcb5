import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { until } from "../platform/own_redis.ts";
import { holds } from "../property.ts";
import { closeBalanced } from "./checks.ts";
import { METERED_MODELS, METERED_ROWS, modelOf } from "./metered_endpoints.ts";
import { openShop, type Shop } from "./shop.ts";

/** Whatever a client sends in a field, it is served or refused: no 500, no hold left. Source: ERR-6, END-17. */

setDefaultTimeout(300_000);
const REQUESTS = Number(process.env.ODD_REQUESTS ?? 100);
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", models: METERED_MODELS });
});
afterAll(() => closeBalanced(shop));

/** Values that throw when they are turned into text or a number. */
const THROWS = { toString: 1, valueOf: 1 };
const odd = fc.oneof(
  fc.constantFrom<unknown>(THROWS, [THROWS], [[THROWS]], { length: 1e9 }, null, -1, 1e308, "", "__proto__", true),
  fc.jsonValue({ maxDepth: 2 }),
);
const FIELDS = [
  "n stream stream_options logprobs top_logprobs max_tokens max_completion_tokens stop user prompt_cache_key",
  "metadata response_format reasoning reasoning_effort tools tool_choice parallel_tool_calls modalities seed",
  "service_tier store logit_bias temperature functions function_call web_search_options prediction audio",
  "include text instructions truncation max_output_tokens previous_response_id conversation prompt background",
  "size quality response_format style background output_format encoding_format dimensions messages input",
  "suffix echo best_of query documents top_n return_documents",
].flatMap((names) => names.split(" "));
const EXAMPLES: [Record<string, unknown>][] = [
  ...FIELDS.map((name): [Record<string, unknown>] => [{ [name]: THROWS }]),
  [{ logprobs: true, top_logprobs: THROWS }],
];
const TYPES = [
  ...["function_call", "function_call_output", "custom_tool_call", "reasoning", "item_reference", "additional_tools"],
  ...["web_search_call", "mcp_call", "function", "custom", "namespace", "web_search"],
];
/** A member of an item, a message or a tool. */
const member = fc.oneof(odd, fc.constantFrom<unknown>("function", "user", "assistant", "x", ...TYPES));
const item = fc.dictionary(
  fc.constantFrom(
    ...["type", "role", "content", "call_id", "name", "arguments", "output", "summary", "id", "status", "function"],
    ...["tool_calls", "tool_call_id", "encrypted_content", "tools", "parameters", "namespace", "input", "text"],
  ),
  member,
);
const field = fc.oneof(odd, item, fc.array(item, { minLength: 1, maxLength: 3 }));

const rows = METERED_ROWS.map((row) => [row.name, row] as const);
test.each(rows)("odd requests: %s", async (_, row) => {
  const { secret, accountId } = await shop.payer(1_000_000_000_000n);
  const sent = async (over: Record<string, unknown>) => {
    const body = { ...row.body("at dawn"), ...over, model: modelOf(row, "two-routes") };
    const answer = await shop.call(row.path, { secret, body });
    expect([answer.status, answer.text.slice(0, 200)]).not.toContain(500);
    expect(answer.text).not.toContain("internal_error");
  };
  await holds(fc.asyncProperty(fc.dictionary(fc.constantFrom(...FIELDS), field, { maxKeys: 4 }), sent), {
    numRuns: REQUESTS,
    examples: EXAMPLES,
  });
  await until(async () => (await shop.counters(accountId)).holds === 0);
});
