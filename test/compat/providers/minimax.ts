import { completion, type Entry, GOOD_WHOLE, STREAMED, WHOLE } from "../form.ts";

export default [
  {
    says: "No balance at the provider, in an answer with status 200: the next route answers",
    source: "platform.minimax.io/docs/api-reference/errorcode",
    request: WHOLE,
    provider: [
      {
        json: {
          choices: null,
          usage: { total_tokens: 0 },
          base_resp: { status_code: 1008, status_msg: "insufficient balance" },
        },
      },
      GOOD_WHOLE,
    ],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "An error as the only event of a stream",
    source: "platform.minimax.io/docs/api-reference/errorcode",
    request: STREAMED,
    provider: { events: [{ choices: null, base_resp: { status_code: 2013, status_msg: "invalid params" } }] },
    client: { error: "invalid_request", message: "invalid params" },
    charged: "nothing",
  },
  {
    says: "A good answer with a status of success",
    source: "platform.minimax.io/docs",
    request: WHOLE,
    provider: { json: completion({ content: "Tolls" }, "stop", { base_resp: { status_code: 0, status_msg: "" } }) },
    client: { text: "Tolls" },
    charged: { tokens: [5, 7] },
  },
] satisfies Entry[];
