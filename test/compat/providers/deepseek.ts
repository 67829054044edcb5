import { chunk, DONE, type Entry, STREAMED, USAGE } from "../form.ts";

export default [
  {
    says: "Reasoning before the answer, and the usage in the last chunk with its choice",
    source: "api-docs.deepseek.com/guides/reasoning_model",
    request: STREAMED,
    provider: {
      events: [
        ": keep-alive\n\n",
        chunk({ role: "assistant", content: null, reasoning_content: "" }),
        chunk({ content: null, reasoning_content: "Who pays?" }),
        chunk({ content: "Drivers.", reasoning_content: null }),
        chunk({ content: "", reasoning_content: null }, "stop", { usage: USAGE }),
        DONE,
      ],
    },
    client: { text: "Drivers.", reasoning: "Who pays?", finish: "stop" },
    charged: { tokens: [5, 7] },
  },
] satisfies Entry[];
