import { chunk, DONE, type Entry, GOOD_STREAM, GOOD_WHOLE, STREAMED, USAGE_CHUNK, WHOLE } from "../form.ts";

export default [
  {
    says: "A rate limit by the vendor's number, in a whole answer: the next route answers",
    source: "docs.bigmodel.cn/cn/faq/api-code",
    request: WHOLE,
    provider: [{ json: { code: 1302, msg: "rate limit" } }, GOOD_WHOLE],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "The same as the first event of a stream",
    source: "docs.bigmodel.cn/cn/faq/api-code",
    request: STREAMED,
    provider: [{ events: [{ error: { code: "1302", message: "rate limit" } }] }, GOOD_STREAM],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "Sensitive words in the prompt are the client's",
    source: "docs.bigmodel.cn/cn/faq/api-code",
    request: WHOLE,
    provider: { json: { error: { code: "1301", message: "The input may be unsafe." } } },
    client: { error: "invalid_request", message: "may be unsafe" },
    charged: "nothing",
  },
  {
    says: "The model's network error ends a stream as a failure",
    source: "docs.bigmodel.cn, finish_reason network_error",
    request: STREAMED,
    provider: { events: [chunk({ content: "Tolls" }), chunk({}, "network_error"), DONE] },
    client: { text: "Tolls", error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "An answer that a filter ended",
    source: "docs.bigmodel.cn, finish_reason sensitive",
    request: STREAMED,
    provider: { events: [chunk({ content: "Tolls" }), chunk({}, "sensitive"), USAGE_CHUNK, DONE] },
    client: { text: "Tolls", finish: "content_filter" },
    charged: { tokens: [5, 7] },
  },
] satisfies Entry[];
