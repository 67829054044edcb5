import { type Entry, GOOD_STREAM, GOOD_WHOLE } from "../form.ts";

/** The official library for JavaScript. */
const headers = { "user-agent": "OpenAI/JS 6.9.1", "x-stainless-lang": "js", "x-stainless-retry-count": "0" };

export default [
  {
    says: "A whole answer, asked with all of its headers",
    source: "npm openai 6.9.1",
    request: { headers, body: { temperature: 0.5 } },
    provider: { ...GOOD_WHOLE, got: { temperature: 0.5, model: "up" } },
    client: { text: "good", finish: "stop", usage: [5, 7, 12] },
    charged: { tokens: [5, 7] },
  },
  {
    says: "A stream paid by balance",
    source: "npm openai 6.9.1",
    request: { headers, body: { stream: true }, payer: "balance" },
    provider: GOOD_STREAM,
    client: { text: "good", finish: "stop" },
    charged: { tokens: [5, 7] },
  },
] satisfies Entry[];
