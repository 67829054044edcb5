import { chunk, completion, DONE, type Entry, STOP, USAGE_CHUNK } from "../form.ts";

/** Answers with another number of choices than `n` asks for. What the provider reports is charged, and the client reads what there is. */

const SOURCE = "github.com/ollama/ollama/pull/6948; docs.ollama.com/api/openai-compatibility: n is not supported";
const ONE = completion({ content: "one" });
const TWO = {
  ...ONE,
  choices: [0, 1].map((index) => ({
    ...{ index, finish_reason: "stop" },
    message: { role: "assistant", content: "four" },
  })),
};
const CHARGED = { tokens: [5, 7] } as const;
const usage = [5, 7, 12] as const;

export default [
  {
    says: "Three choices were asked for, and one comes: one is read, and what is reported of it is charged",
    source: SOURCE,
    request: { only: "chat", body: { n: 3 } },
    provider: { json: ONE, got: { n: 3 } },
    client: { text: "one", usage, json: { choices: [{ index: 0, message: { content: "one" } }] } },
    charged: CHARGED,
  },
  {
    says: "Likewise paid by the balance, which had reserved three: the rest is returned",
    source: SOURCE,
    request: { only: "chat", body: { n: 3, max_tokens: 100 }, payer: "balance" },
    provider: { json: ONE, got: { n: 3 } },
    client: { text: "one", usage, json: { choices: [{ index: 0 }] } },
    charged: CHARGED,
  },
  {
    says: "Likewise as a stream",
    source: SOURCE,
    request: { only: "chat", body: { n: 3, stream: true, stream_options: { include_usage: true } } },
    provider: { events: [chunk({ role: "assistant", content: "one" }), STOP, USAGE_CHUNK, DONE] },
    client: { text: "one", usage },
    charged: CHARGED,
  },
  {
    says: "Likewise of a provider that reports the first choice alone: it is all there is",
    source: SOURCE,
    request: { only: "chat", body: { n: 3 } },
    provider: { dialect: "llama.cpp", json: ONE },
    client: { text: "one", usage, json: { choices: [{ index: 0 }] } },
    charged: CHARGED,
  },
  {
    says: "Two of three choices, of a provider that reports the first alone: two are charged",
    source: "github.com/ggml-org/llama.cpp, tools/server, b10434",
    request: { only: "chat", body: { n: 3, max_tokens: 100 } },
    provider: { dialect: "llama.cpp", json: TWO },
    client: { text: "four", usage: [5, 14, 19], json: { choices: [{ index: 0 }, { index: 1 }] } },
    charged: { tokens: [5, 14] },
  },
  {
    says: "One choice without a usage: its text is counted, not that of the choices that are missing",
    source: SOURCE,
    request: { only: "chat", body: { n: 3 } },
    provider: { json: { ...ONE, usage: undefined } },
    client: { text: "one", usage: [12, 2, 14], json: { choices: [{ index: 0 }] } },
    charged: { tokens: [12, 2] },
  },
  {
    says: "More choices than were asked for: all are read, and what is reported is charged",
    source: "tried on a replica on 28 November 2026",
    request: { only: "chat", body: {} },
    provider: { json: TWO },
    client: { text: "four", usage, json: { choices: [{ index: 0 }, { index: 1 }] } },
    charged: CHARGED,
  },
] satisfies Entry[];
