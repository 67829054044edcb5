import { completion, type Entry, GOOD_STREAM, GOOD_WHOLE, USAGE } from "../form.ts";

/** `usage: {"include": true}`, by which clients of OpenRouter ask what a request costs. */

const SOURCE = "openrouter.ai/docs/use-cases/usage-accounting; github.com/OpenRouterTeam/ai-sdk-provider";
const INCLUDE = { usage: { include: true } };
/** 5 tokens at 3 USD and 7 at 15 USD per million. */
const COST_USD = 0.00012;
const EMBEDDED = {
  json: { object: "list", data: [{ index: 0, embedding: [0.1, 0.2] }], usage: { prompt_tokens: 5, total_tokens: 5 } },
};
const PICTURE = { json: { created: 1_763_856_000, data: [{ b64_json: "iVBORw0KGgo=" }] } };
const READS = { text: "good", usage: [5, 7, 12] } as const;
const CHARGED = { tokens: [5, 7] } as const;

export default [
  {
    says: "A whole answer that a package pays",
    source: SOURCE,
    request: { body: INCLUDE },
    provider: { ...GOOD_WHOLE, got: { usage: undefined } },
    client: { ...READS, spent: [0, "package"] },
    charged: CHARGED,
  },
  {
    says: "A whole answer that the balance pays",
    source: SOURCE,
    request: { body: INCLUDE, payer: "balance" },
    provider: GOOD_WHOLE,
    client: { ...READS, spent: [COST_USD, "payg"] },
    charged: CHARGED,
  },
  {
    says: "A stream that a package pays has the chunk with the usage, although stream_options did not ask",
    source: SOURCE,
    request: { body: { ...INCLUDE, stream: true } },
    provider: { ...GOOD_STREAM, got: { usage: undefined } },
    client: { ...READS, spent: [0, "package"] },
    charged: CHARGED,
  },
  {
    says: "A stream that the balance pays",
    source: SOURCE,
    request: { body: { ...INCLUDE, stream: true, stream_options: { include_usage: true } }, payer: "balance" },
    provider: GOOD_STREAM,
    client: { ...READS, spent: [COST_USD, "payg"] },
    charged: CHARGED,
  },
  {
    says: "The provider's own cost is not shown in its place",
    source: `${SOURCE}: usage.cost, in credits of the operator`,
    request: { body: INCLUDE, payer: "balance" },
    provider: {
      json: completion({ content: "good" }, "stop", {
        usage: { ...USAGE, cost: 0.9, cost_details: { upstream_inference_cost: 0.8 } },
      }),
    },
    client: { ...READS, spent: [COST_USD, "payg"] },
    charged: CHARGED,
  },
  {
    says: "Nor where the client did not ask",
    source: SOURCE,
    request: { body: { usage: { include: false } }, payer: "balance" },
    provider: { json: completion({ content: "good" }, "stop", { usage: { ...USAGE, cost: 0.9 } }) },
    client: { ...READS, spent: null },
    charged: CHARGED,
  },
  ...[null, {}, { include: null }].map(
    (usage): Entry => ({
      says: `It does not ask with ${JSON.stringify(usage)}`,
      source: SOURCE,
      request: { body: { usage } },
      provider: GOOD_WHOLE,
      client: { ...READS, spent: null },
      charged: CHARGED,
    }),
  ),
  {
    says: "A value that is none",
    source: SOURCE,
    request: { body: { usage: { include: "yes" } } },
    provider: [],
    client: { error: "invalid_request", param: "usage.include" },
    charged: "nothing",
  },
  {
    says: "Embeddings",
    source: SOURCE,
    request: { path: "embeddings", body: INCLUDE, payer: "balance" },
    provider: EMBEDDED,
    client: { json: { usage: { prompt_tokens: 5, cost: 0.000015, mode: "payg" } } },
    charged: { tokens: [5, 0] },
  },
  {
    says: "An image",
    source: SOURCE,
    request: { path: "images", body: { ...INCLUDE, response_format: "b64_json" }, payer: "balance" },
    provider: PICTURE,
    client: { json: { usage: { cost: 0.04, mode: "payg" } } },
    charged: { tokens: [0, 0] },
  },
] satisfies Entry[];
