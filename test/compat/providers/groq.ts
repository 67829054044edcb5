import { chunk, completion, type Entry, STREAMED, USAGE } from "../form.ts";

/** Groq says more about itself than others do: the tier that served, times in the usage, and in `x_groq` why a stream ended early. */

const ERROR = { x_groq: { id: "req_01k09cscjye71b378wsrqtfc80", error: "over capacity" } };

export default [
  {
    says: "A service tier that OpenAI does not have is not sent on: strict clients fail at it",
    source: "github.com/64bit/async-openai/pull/457; github.com/divar-ir/ai-doc-gen/issues/18",
    request: { only: "chat" },
    provider: {
      dialect: "groq",
      json: completion({ content: "good" }, "stop", {
        usage: { queue_time: 0.24, ...USAGE, prompt_time: 0.04, completion_time: 0.49, total_time: 0.53 },
        usage_breakdown: null,
        x_groq: { id: "req_01k09cscjye71b378wsrqtfc80" },
        service_tier: "on_demand",
      }),
    },
    client: { text: "good", usage: [5, 7, 12], absent: ["service_tier", "x_groq"] },
    charged: { tokens: [5, 7] },
  },
  {
    says: "A tier that OpenAI has is sent on",
    source: "platform.openai.com/docs/api-reference/chat/object: service_tier",
    request: { only: "chat" },
    provider: { json: completion({ content: "good" }, "stop", { service_tier: "default" }) },
    client: { text: "good", json: { service_tier: "default" } },
    charged: { tokens: [5, 7] },
  },
  {
    says: "The same in every chunk of a stream",
    source: "console.groq.com/docs/api-reference#chat-create: service_tier",
    request: { only: "chat", ...STREAMED },
    provider: {
      dialect: "groq",
      events: ["go", "o", "d"]
        .map((content) => chunk({ content }, null, { service_tier: "on_demand" }))
        .concat(chunk({}, "stop", { service_tier: "on_demand", x_groq: { usage: USAGE } })),
    },
    client: { text: "good", absent: ["service_tier", "x_groq"] },
    charged: { tokens: [5, 7] },
  },
  {
    says: "An error in x_groq, behind half an answer",
    source: "github.com/groq/groq-python: types/chat/chat_completion_chunk.py, XGroq.error",
    request: STREAMED,
    provider: {
      dialect: "groq",
      events: [chunk({ role: "assistant", content: "good" }), chunk({}, null, ERROR), "data: [DONE]\n\n"],
    },
    client: { text: "good", error: "provider_unavailable" },
    charged: "nothing",
  },
] satisfies Entry[];
