import { type Entry, GOOD_STREAM, STREAMED, WHOLE } from "../form.ts";

export default [
  {
    says: "Filter results come first, then the connection breaks: the next route answers",
    source: "github.com/langchain4j/langchain4j/issues/2385",
    request: STREAMED,
    provider: [
      {
        events: [
          {
            id: "",
            object: "",
            created: 0,
            model: "",
            choices: [],
            prompt_filter_results: [{ prompt_index: 0, content_filter_results: {} }],
          },
        ],
        end: "closed",
      },
      GOOD_STREAM,
    ],
    client: { text: "good", finish: "stop" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "The same before an error",
    source: "github.com/openai/openai-python/issues/1677",
    request: STREAMED,
    provider: [
      {
        events: [
          { id: "", object: "", created: 0, model: "", choices: [], prompt_filter_results: [] },
          { error: { code: "429", message: "Requests have exceeded call rate limit." } },
        ],
      },
      GOOD_STREAM,
    ],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "A refusal by the content filter",
    source: "learn.microsoft.com/azure/ai-services/openai/concepts/content-filter",
    request: WHOLE,
    provider: {
      status: 400,
      json: {
        error: {
          message: "The response was filtered due to the prompt triggering the content management policy.",
          type: null,
          param: "prompt",
          code: "content_filter",
          status: 400,
        },
      },
    },
    client: { error: "invalid_request", message: "content management policy", param: "prompt" },
    charged: "nothing",
  },
] satisfies Entry[];
