import { chunk, completion, DONE, type Entry, STOP, STREAMED, WHOLE } from "../form.ts";

/** Moonshot's Kimi: the usage stands in the last choice of a stream, and the cached tokens beside the other counts. */

const USAGE = { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12, cached_tokens: 4 };
const CHARGED = { tokens: [5, 7] } as const;
const READS = { text: "good", usage: [5, 7, 12] } as const;

export default [
  {
    says: "The usage of a stream stands in the choice with the finish_reason",
    source: "github.com/earendil-works/pi/issues/2017",
    request: { body: { stream: true, stream_options: { include_usage: true } } },
    provider: {
      events: [
        chunk({ role: "assistant", content: "good" }),
        {
          ...(STOP as { id: string }),
          choices: [{ index: 0, delta: {}, finish_reason: "stop", usage: USAGE }],
        },
        DONE,
      ],
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "The same, and the client did not ask for the usage",
    source: "github.com/earendil-works/pi/pull/2016",
    request: { only: "chat", ...STREAMED },
    provider: {
      events: [
        chunk({ role: "assistant", content: "good" }),
        {
          ...(STOP as { id: string }),
          choices: [{ index: 0, delta: {}, finish_reason: "stop", usage: USAGE }],
        },
        DONE,
      ],
    },
    client: {
      text: "good",
      events: [
        { choices: [{ index: 0, delta: { role: "assistant", content: "good" }, finish_reason: null }] },
        { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] },
      ],
    },
    charged: CHARGED,
  },
  {
    says: "Cached tokens beside the counts are shown as details",
    source: "github.com/Bike4Mind/bike4mind/pull/1089",
    request: { ...WHOLE, only: "chat" },
    provider: { json: completion({ content: "good" }, "stop", { usage: USAGE }) },
    client: { ...READS, json: { usage: { ...USAGE, prompt_tokens_details: { cached_tokens: 4 } } } },
    charged: CHARGED,
  },
] satisfies Entry[];
