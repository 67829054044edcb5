import { chunk, DONE, type Entry, STOP, STREAMED, USAGE } from "../form.ts";

export default [
  {
    says: "Comments while the model thinks, and the usage in a chunk with an empty choice",
    source: "openrouter.ai/docs/api-reference/streaming",
    request: STREAMED,
    provider: {
      events: [
        ": OPENROUTER PROCESSING\n\n",
        chunk({ role: "assistant", content: "" }, null, { provider: "OpenAI" }),
        chunk({ role: "assistant", content: "Tolls" }, null, { provider: "OpenAI" }),
        STOP,
        chunk({ role: "assistant", content: "" }, null, { provider: "OpenAI", usage: USAGE }),
        DONE,
      ],
    },
    client: { text: "Tolls", finish: "stop" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "An error after half an answer",
    source: "openrouter.ai/docs/api-reference/errors-and-debugging, mid-stream errors",
    request: STREAMED,
    provider: {
      events: [
        chunk({ role: "assistant", content: "Tolls" }),
        chunk({ content: "" }, "error", {
          error: { code: "server_error", message: "Provider disconnected unexpectedly" },
        }),
      ],
    },
    client: { text: "Tolls", error: "provider_unavailable" },
    charged: "nothing",
  },
] satisfies Entry[];
