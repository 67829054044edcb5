/**
 * Inputs that failed once, here or at other gateways, and what holds each of them today. docs/compatibility.md is made from it; a test finds
 * every reference.
 */

/** A reference: a file, and a text that stands in it; in the corpus, the `says` of an exchange. */
export type HeldBy = `${string} › ${string}`;

export type Input = {
  /** What a provider or a client sends. */
  input: string;
  /** What came of it before. */
  before: string;
  now: string;
  by: readonly [HeldBy, ...HeldBy[]];
};

export type InputGroup = { id: string; what: string; inputs: readonly [Input, ...Input[]] };

const DIALECTS_TEST = "test/gateway/dialects.test.ts";
const CONNECTIONS = "test/gateway/odd_connections.test.ts";
const WAITING = "test/gateway/waiting.test.ts";
const AGENTS = "test/agent_clients.test.ts";
const STREAMS_TEST = "test/gateway/provider_streams.test.ts";
const AGENTS_KNOW = "the client gets the code that agents know";

const input = (what: string, before: string, now: string, ...by: [HeldBy, ...HeldBy[]]): Input => ({
  input: what,
  before,
  now,
  by,
});

/** The same of each provider whose words are known. */
const tooLong = (file: string, providers: readonly string[]) =>
  providers.map((provider): HeldBy => `${file} › ${provider}: ${AGENTS_KNOW}`) as [HeldBy, ...HeldBy[]];

export const INPUTS: readonly InputGroup[] = [
  {
    id: "A1",
    what: "The name of the output limit",
    inputs: [
      input(
        "The limit under the name that the route does not take, paid by a package and by a balance",
        "refused or ignored for packages, right for balances",
        "sent under the route's name, whoever pays",
        `${DIALECTS_TEST} › the cap has one name, for a package and a balance, the client's own and the default`,
      ),
      input(
        "Both names at once",
        "both were sent",
        "one is sent; `max_completion_tokens` counts",
        "clients/bodies.ts › LiteLLM: both names of the limit, and a role developer",
      ),
    ],
  },
  {
    id: "A2",
    what: "Roles",
    inputs: [
      input(
        "The role `developer`, to a provider that does not know it",
        "422 of the provider",
        "sent as `system`",
        "clients/bodies.ts › LiteLLM: both names of the limit, and a role developer",
        `${DIALECTS_TEST} › every dialect is played, and each refuses a request as a client sends it`,
      ),
      input(
        "Two system messages in a row, to a provider that takes one",
        "refused",
        "sent as one; places in refusals are the client's",
        "clients/places.ts › System messages that were merged into one",
      ),
    ],
  },
  {
    id: "A3",
    what: "No tools",
    inputs: [
      input(
        "`tools: []`, with `tool_choice` and `parallel_tool_calls`",
        "400 of OpenAI, DashScope, DeepSeek, vLLM",
        "all three are left out",
        "clients/bodies.ts › No tools, with what depends on them",
        "clients/defaults.ts › Zed: no tools, and how they are called",
      ),
    ],
  },
  {
    id: "A4",
    what: "Options of a stream",
    inputs: [
      input(
        "`stream_options` without a stream",
        "400 of the provider",
        "left out",
        "clients/bodies.ts › Options of a stream without one",
      ),
      input(
        "A provider that does not know them",
        "400 of the provider",
        "left out by the dialect",
        `${DIALECTS_TEST} › every dialect is played, and each refuses a request as a client sends it`,
      ),
    ],
  },
  {
    id: "A5",
    what: "Embeddings' form",
    inputs: [
      input(
        "A provider that refuses base64; a client that wants either form",
        "400 of the provider",
        "numbers are asked for, and encoded here",
        `${DIALECTS_TEST} › embeddings: numbers and base64, whichever it is asked for`,
      ),
    ],
  },
  {
    id: "A6",
    what: "Contents of messages",
    inputs: [
      input(
        "`null`, an empty text or parts beside tool calls",
        "400 of some providers",
        "written as the route takes it",
        "clients/defaults.ts › An SDK that sends null as the content of a call, and its result as parts",
        `${DIALECTS_TEST} › every dialect is played, and each refuses a request as a client sends it`,
      ),
      input(
        "A list of texts, to a provider that takes one text",
        "refused",
        "sent as one text",
        `${DIALECTS_TEST} › every dialect is played, and each refuses a request as a client sends it`,
      ),
      input(
        "Images in a tool's message",
        "400 of most providers",
        "moved into a message of the user that follows",
        "clients/places.ts › An image that was moved out of a tool's message",
      ),
      input(
        "Legacy `functions`, `function_call`, the role `function`",
        "refused here",
        "sent as they are, or as tools; the client reads `function_call`",
        "clients/legacy_functions.ts › A call comes back as function_call",
        "clients/legacy_functions.ts › A call in pieces, and a second one, which the form cannot have",
      ),
    ],
  },
  {
    id: "A7",
    what: "Parameters that a provider does not take",
    inputs: [
      input(
        "A parameter that a dialect drops, and one that only OpenRouter has",
        "400 of the provider",
        "left out, and named in `x-dropped-params`",
        "clients/bodies.ts › What only OpenRouter has",
        `${DIALECTS_TEST} › every dialect is played, and each refuses a request as a client sends it`,
      ),
      input(
        "null for everything that is not set",
        "400 of llama.cpp, KoboldCpp, Gemini, Mistral",
        "left out",
        "clients/defaults.ts › Clients that send null for everything that is not set",
      ),
    ],
  },
  {
    id: "A8",
    what: "Where the usage stands",
    inputs: [
      input(
        "At the top; in the last chunk alone",
        "read",
        "read",
        "providers/openai.ts › A stream with its usage in the last chunk",
      ),
      input(
        "In the choice that finishes (Moonshot)",
        "33,000 tokens were charged for 4,473,000",
        "read",
        "providers/moonshot.ts › The usage of a stream stands in the choice with the finish_reason",
      ),
      input(
        "In every chunk",
        "relayed in each",
        "the last one counts; the client gets one",
        "providers/vllm.ts › The same, not asked for: no chunk has a usage",
      ),
      input(
        "Zeros or null after good counts",
        "zeros were charged",
        "the good counts stay",
        "providers/gateways.ts › Good counts are followed by zeros",
        "providers/gateways.ts › Good counts are followed by null",
      ),
      input(
        "With the first text, and never again",
        "one token was charged",
        "the larger of it and our own count",
        "providers/early_usage.ts › A usage with the first text, and never again: the text counts",
      ),
      input(
        "Under Anthropic's and Gemini's names",
        "counted here",
        "read",
        "providers/gateways.ts › Anthropic's names, with the cache beside the input",
        "providers/gateways.ts › Gemini's names, with thoughts",
      ),
      input(
        "In `timings`, `details`, `delta.usage`; texts with an exponent",
        "counted here",
        "read",
        "providers/native_counts.ts › llama.cpp: `timings`",
        "providers/native_counts.ts › TGI: `details`",
        "providers/native_counts.ts › Cohere: `delta.usage`",
        "providers/native_counts.ts › Counts as texts: with an exponent",
      ),
    ],
  },
  {
    id: "A9",
    what: "A prompt that is too long, in each provider's words",
    inputs: [
      input(
        "As a status",
        "the provider's own 400, 413, 422 or 500: agents never compacted",
        "400 `context_length_exceeded`",
        ...tooLong("providers/context_lengths.ts", [
          ...["OpenAI", "SGLang", "llama.cpp", "Ollama", "Mistral", "Anthropic", "Gemini", "vLLM, newer"],
        ]),
        "providers/overlong_prompts.ts › Cerebras, its sentence alone: the client gets the code that agents know",
      ),
      input(
        "As the first event of a stream",
        "503, and the route's failure",
        "400 `context_length_exceeded`",
        `providers/vllm.ts › A prompt that is too long, as the first event: ${AGENTS_KNOW}`,
      ),
    ],
  },
  {
    id: "A10",
    what: "Silence before the first token",
    inputs: [
      input(
        "A reasoning model that says nothing for minutes",
        "503 after the usual limit",
        "waits as long as the route's fact says",
        "test/gateway/first_token.test.ts › a route that may be silent for less than usual fails while the usual limit is not reached",
        "test/gateway/first_token.test.ts › by the route's fact, before the headers",
      ),
    ],
  },
  {
    id: "A11",
    what: "A dialect is chosen, overridden and probed",
    inputs: [
      input(
        "A provider that is added in the panel, with a wrong fact",
        "there was none",
        "refused at its field",
        "test/browser/dialects.test.ts › a provider is added with a dialect and a fact of its own; wrong values are refused at their fields, and nothing is stored",
      ),
      input(
        "A probe of a provider; of one that is none",
        "there was none",
        "a few tiny requests propose the facts; what is none is reported",
        "test/catalog/provider_probe.test.ts › its own facts hold, with few requests of few tokens",
        "test/catalog/provider_probe.test.ts › a provider that is none is reported, and nothing is proposed",
      ),
    ],
  },
  {
    id: "B1",
    what: "An error in an answer of status 200",
    inputs: [
      input(
        "As the first event of a stream",
        "503: SDKs tried again, and the route got the blame",
        "what its code says: 400 with the cleaned message",
        "providers/vllm.ts › An error as the first event of a stream is the client's",
        "providers/vllm.ts › The same with the error under its key",
      ),
      input("As a whole answer", "503", "what its code says", "providers/vllm.ts › A whole error with status 200"),
    ],
  },
  {
    id: "B2",
    what: "Another form than was asked for",
    inputs: [
      input("A JSON error to a stream", "503", "400", "providers/proxies.ts › A JSON error in answer to a stream"),
      input(
        "A whole completion to a stream",
        "paid by the operator, given to nobody",
        "a short stream, charged once",
        "providers/proxies.ts › A whole answer to a stream is sent as a short stream, and charged once",
      ),
      input(
        "Events under `text/plain`, under JSON's type, or without one",
        "503",
        "read by looking",
        "providers/proxies.ts › Events as plain text",
        "providers/proxies.ts › Events as JSON",
        "providers/proxies.ts › Events as nothing",
      ),
    ],
  },
  {
    id: "B3",
    what: "Nothing said yet",
    inputs: [
      input(
        "A role, then a break or an error; a second route",
        "the client saw a broken stream",
        "the second route answers",
        "providers/proxies.ts › A role and then an error: the next route answers",
        "providers/proxies.ts › A role and then broken JSON: the next route answers",
      ),
      input(
        "Azure's empty choices with filter results, then a break",
        "the client saw a broken stream",
        "the second route answers",
        "providers/azure.ts › Filter results come first, then the connection breaks: the next route answers",
      ),
    ],
  },
  {
    id: "B4",
    what: "Nothing in it",
    inputs: [
      input(
        "`choices: []`, `[null]`, `[{}]`, `message: null`",
        "relayed and charged",
        "the next route, then 503",
        "providers/proxies.ts › A whole answer without a message (no choice): the next route answers",
        "providers/proxies.ts › A whole answer without a message, and no other route",
      ),
      input(
        "An empty text with `stop` and no tokens",
        "charged",
        "free; the next route is asked",
        "providers/proxies.ts › A complete answer without words or tokens: the next route answers",
      ),
    ],
  },
  {
    id: "B5",
    what: "A usage that is missing or odd",
    inputs: [
      input(
        "None, although it was asked for",
        "charged, and shown as none",
        "the client reads three integers, those that are charged",
        "providers/llama_cpp.ts › No usage, although it is asked for: it is counted here",
        "test/gateway/usage_shown.test.ts › a prompt alone: our count of the completion",
      ),
      input(
        "Two counts without a total; a prompt and a total",
        "relayed as it came",
        "the missing one is the difference",
        "providers/gateways.ts › A prompt and a total",
      ),
      input(
        "Fractions, texts",
        "relayed as they came",
        "whole numbers, rounded up",
        "providers/odd_answers.ts › Counts as fractions, of a proxy that divides them",
        "providers/gateways.ts › Counts as text",
      ),
    ],
  },
  {
    id: "B6",
    what: "Ids and numbers",
    inputs: [
      input(
        "`created` with a fraction or in milliseconds; no `index`, no `role`",
        "relayed as they came: strict clients failed",
        "whole seconds; filled",
        "providers/gateways.ts › Milliseconds as the time, and no index, role and id of a call, whose arguments are an object",
      ),
      input(
        "Two calls of a stream without an index",
        "relayed as they came",
        "0 and 1",
        "providers/gateways.ts › Two calls of a stream have neither index nor id",
      ),
      input(
        "Embeddings that all have the index 0",
        "503",
        "the order of the list",
        "providers/other_lists.ts › Two embeddings that all have the index 0",
      ),
    ],
  },
  {
    id: "B7",
    what: "The end",
    inputs: [
      input(
        "[DONE] twice; bytes behind it",
        "complete, once",
        "complete, once",
        "providers/spellings.ts › The end of a stream: twice on one line",
        "providers/spellings.ts › The end of a stream: a chunk behind it",
      ),
      input(
        "No blank line at the end",
        "complete",
        "complete",
        "providers/spellings.ts › The end of a stream: no line end",
        "providers/servers.ts › No blank line between events",
      ),
    ],
  },
  {
    id: "B8",
    what: "Compression that was not asked for",
    inputs: [
      input(
        "gzip, deflate, Brotli, zstd under their header",
        "503",
        "decoded within the limits of an answer",
        "providers/proxies.ts › A whole answer in gzip, which was not asked for",
        "providers/proxies.ts › A whole answer in deflate, which was not asked for",
        "providers/proxies.ts › A whole answer in br, which was not asked for",
        "providers/servers.ts › A whole answer in zstd, which was not asked for",
      ),
      input(
        "Without a header, or under another one",
        "503: paid by the operator",
        "decoded by its first bytes",
        "providers/encodings.ts › A whole answer in gzip without a header",
        "providers/encodings.ts › Brotli under the header of gzip",
      ),
      input(
        "A bomb",
        "bounded",
        "a failure, within the limits of an answer",
        "providers/proxies.ts › A bomb in gzip is a failure",
        "providers/encodings.ts › A bomb in gzip without a header is a failure",
      ),
    ],
  },
  {
    id: "B9",
    what: "A time to wait",
    inputs: [
      input(
        "`Retry-After` as a date; `retry-after-ms`",
        "asked again after 1.6 s",
        "obeyed, by the answer's own `Date`",
        "providers/proxies.ts › A wait as a date, by the answer's own",
        "providers/proxies.ts › A wait in milliseconds",
      ),
    ],
  },
  {
    id: "B10",
    what: "A kept connection that closes as it is used",
    inputs: [
      input(
        "It closes as the request arrives, unanswered",
        "503 with one route",
        "the next route, else 503 with `Retry-After`: the provider had received all of them, so none is sent twice",
        "docs/decisions.md › **560.",
        "test/catalog/provider_client.test.ts › a socket closed or reset before the headers is a failure",
      ),
    ],
  },
  {
    id: "C1",
    what: "The wrong place",
    inputs: [
      input(
        "Without /v1, /v1 twice, Azure's deployments",
        "a page, or a 404 without a hint",
        "404 that names the path",
        "test/server/wrong_places.test.ts › every kind gets 404 in the envelope, with the endpoint to use and its whole address, and nothing is charged",
        "test/server/wrong_places.test.ts › POST /openai/deployments/mine/chat/completions?api-version=2024-10-21",
      ),
      input(
        "Cursor's `input` and flat tools at /chat/completions",
        "400",
        "served",
        "test/gateway/chat_requests.test.ts › Cursor's requests at /chat/completions",
      ),
    ],
  },
  {
    id: "C2",
    what: "Headers and connections",
    inputs: [
      input("`Content-Type` twice with equal values", "415", "served", `${CONNECTIONS} › equal values are served`),
      input(
        "`Expect: 100-continue` with the body held back",
        "not tried",
        "100 or a final status at once",
        `${CONNECTIONS} › the client is told to go on, or gets its answer, before it sends the body; then it is served`,
      ),
      input(
        "HTTP/1.0; a client that has closed its sending side",
        "not tried",
        "served",
        `${CONNECTIONS} › HTTP/1.0: a stream arrives to its end, without chunked coding, and the connection closes`,
        `${CONNECTIONS} › HTTP/1.0, and a client that has closed its sending side`,
      ),
    ],
  },
  {
    id: "C3",
    what: "Long waits",
    inputs: [
      input(
        "A stream whose provider is silent for 70 s, and a client that gives up after 60 s",
        "the client left",
        "headers and comments from 15 s on",
        `${WAITING} › has its headers and comments, then the answer`,
        `${WAITING} › has the next route's answer after the first has failed`,
        "test/clients_tried.ts › WAITS_TRIED",
      ),
    ],
  },
  {
    id: "C4",
    what: "Agents and prompts that are too long",
    inputs: [
      input(
        "opencode, Codex CLI, Continue, Qwen Code, Cline at the end of their context",
        "they tried again, or stopped",
        "they read `context_length_exceeded`, and compact or say so",
        `${AGENTS} › opencode asks for a summary and goes on`,
        `${AGENTS} › Codex CLI says that it ran out of the model's context window`,
        `${AGENTS} › Continue says that the context length is exceeded, and asks no more`,
        `${AGENTS} › Qwen Code compacts the conversation and goes on`,
        `${AGENTS} › Cline says that the context window is exceeded, and that a first message leaves nothing to compact`,
      ),
    ],
  },
  {
    id: "D1",
    what: "The corpus",
    inputs: [
      input(
        "An entry without its right value",
        "there was none",
        "refused",
        "test/compat/compat.test.ts › an entry without its right value is refused",
      ),
      input(
        "`demo --dialect`",
        "there was none",
        "the simulated provider refuses what that one refuses",
        "test/demo.test.ts › --dialect: the simulated provider refuses what that one refuses, and the gateway knows; another start has another one",
      ),
    ],
  },
  {
    id: "E1",
    what: "Streams of a shape that nobody foresaw",
    inputs: [
      input(
        "A member that changes in front of the choices",
        "8 to 16 µs an event in place of 1.3",
        "learned by its place: all shapes below 3 µs",
        `${STREAMS_TEST} › all events have one id, one creation time and the sold model name`,
        `${STREAMS_TEST} › there is a stream of each dialect`,
        "bench/streams.ts › --in-place",
      ),
      input(
        "Padding of random length in each chunk",
        "the same",
        "the same",
        "providers/odd_answers.ts › Padding of random length in every chunk",
      ),
    ],
  },
  {
    id: "F1",
    what: "Refusals in disguise",
    inputs: [
      input(
        "An error as the first event, as JSON to a stream, as `400 text/plain`",
        "503: two customers who did it closed the route to a third",
        "400, and nobody's failure",
        "providers/vllm.ts › An error as the first event of a stream is the client's",
        "providers/proxies.ts › A JSON error in answer to a stream",
        "providers/proxies.ts › A 400 in plain text is the client's",
        "test/gateway/own_mistakes.test.ts › a request that is too large or too expensive for the provider is the client's error: 400",
      ),
    ],
  },
  {
    id: "F2",
    what: "Errors without an `error`",
    inputs: [
      input(
        "vLLM's object `error`, alone and behind half an answer",
        "14 of 14 forms counted as an answer, and were charged",
        "an error; nothing is charged",
        "providers/vllm.ts › An error as the first event of a stream is the client's",
        "providers/vllm.ts › An error after half an answer is no chunk",
      ),
      input(
        "An event named `error`",
        "charged",
        "an error",
        "providers/proxies.ts › An error event with a name of its own",
        "providers/servers.ts › An event that is an error by its name alone",
      ),
      input(
        "Zhipu's code and `msg`; MiniMax's `base_resp`",
        "charged",
        "an error",
        "providers/zhipu.ts › The same as the first event of a stream",
        "providers/minimax.ts › No balance at the provider, in an answer with status 200: the next route answers",
        "providers/minimax.ts › An error as the only event of a stream",
      ),
      input("`event: ping`", "relayed", "dropped", "providers/proxies.ts › A ping is dropped"),
    ],
  },
  {
    id: "F3",
    what: "Empty answers",
    inputs: [
      input(
        "A stream with only a usage",
        "relayed and charged",
        "the next route answers",
        "providers/proxies.ts › A stream with nothing but its usage: the next route answers",
      ),
      input(
        "A whole answer without a message",
        "relayed and charged",
        "the next route answers",
        "providers/proxies.ts › A whole answer without a message (a null): the next route answers",
        "providers/proxies.ts › A whole answer without a message (an empty object): the next route answers",
        "providers/proxies.ts › A whole answer without a message (message null): the next route answers",
      ),
    ],
  },
  {
    id: "F4",
    what: "The next route after a chunk without content",
    inputs: [
      input(
        "A role, then an error, the end of the connection or broken JSON",
        "the second route was not asked",
        "the second route answers",
        "providers/proxies.ts › A role and then an error: the next route answers",
        "providers/proxies.ts › A role and then broken JSON: the next route answers",
        "providers/proxies.ts › Empty deltas and then the end: the next route answers",
      ),
      input(
        "Azure's filter results, then a reset",
        "the second route was not asked",
        "the second route answers",
        "providers/azure.ts › Filter results come first, then the connection breaks: the next route answers",
        "providers/azure.ts › The same before an error",
      ),
    ],
  },
  {
    id: "F5",
    what: "Usage that is charged",
    inputs: [
      input(
        "In the finishing choice; `cached_tokens` at the top",
        "33,000 of 4,473,000 were charged",
        "read",
        "providers/moonshot.ts › The usage of a stream stands in the choice with the finish_reason",
        "providers/moonshot.ts › Cached tokens beside the counts are shown as details",
      ),
      input(
        "Good counts, then zeros",
        "zeros were charged",
        "the good counts",
        "providers/gateways.ts › Good counts are followed by zeros",
      ),
      input(
        "A prompt and a total; Anthropic's names; texts",
        "too little was charged",
        "read",
        "providers/gateways.ts › A prompt and a total",
        "providers/gateways.ts › Anthropic's names, with the cache beside the input",
        "providers/gateways.ts › Counts as text",
      ),
    ],
  },
  {
    id: "F6",
    what: "Usage as it is shown",
    inputs: [
      input(
        "null, {}, fractions, lists",
        "relayed as they came",
        "the three integers that are charged",
        "providers/odd_answers.ts › Details of null",
        "providers/odd_answers.ts › A total that is not their sum",
        "providers/usage_places.ts › A usage as a list",
      ),
      input(
        "None although asked",
        "charged and not shown",
        "shown as charged",
        "providers/llama_cpp.ts › No usage, although it is asked for: it is counted here",
      ),
    ],
  },
  {
    id: "F7",
    what: "The schema of answers",
    inputs: [
      input(
        "Times, indexes, roles, ids, arguments as an object",
        "relayed as they came",
        "as OpenAI's schema has them",
        "providers/gateways.ts › Milliseconds as the time, and no index, role and id of a call, whose arguments are an object",
      ),
      input(
        "A content of thinking and text",
        "relayed as a list",
        "a text, and `reasoning_content`",
        "providers/gateways.ts › A content of thinking and text, and another vendor's finish_reason",
      ),
      input(
        "Other vendors' finish reasons: `model_length`, `sensitive`, `network_error`",
        "read as success",
        "`length`, `content_filter`, a failure",
        "providers/proxies.ts › The finish reason model_length of a vendor",
        "providers/finish_words.ts › max_new_tokens is length",
        "providers/finish_words.ts › token_limit is length, in a stream without [DONE]",
        "providers/finish_words.ts › upstream_error behind half an answer is a failure",
        "providers/zhipu.ts › An answer that a filter ended",
        "providers/zhipu.ts › The model's network error ends a stream as a failure",
      ),
    ],
  },
  {
    id: "F8",
    what: "Good answers that were thrown away",
    inputs: [
      input(
        "An empty error beside a good answer",
        "503",
        "the answer",
        "providers/proxies.ts › An empty error beside a good answer is none",
      ),
      input(
        "A whole completion to a stream; another content type, or none",
        "503",
        "the answer",
        "providers/proxies.ts › A whole answer to a stream is sent as a short stream, and charged once",
        "providers/proxies.ts › A whole answer as plain text",
        "providers/proxies.ts › A whole answer as nothing",
      ),
      input("[DONE] with a space", "an error event", "the end", "providers/proxies.ts › [DONE] with spaces"),
    ],
  },
  {
    id: "F9",
    what: "Images",
    inputs: [
      input(
        "`b64_json` that is a data URL already",
        "given out with two heads",
        "plain base64",
        "providers/images.ts › A data URL as base64",
      ),
      input(
        "Line breaks and the letters of URLs",
        "relayed",
        "one form, with padding",
        "providers/images.ts › With line breaks and the letters of URLs",
        "providers/images.ts › Without padding",
      ),
    ],
  },
  {
    id: "F10",
    what: "What is sent",
    inputs: [
      input(
        "The limit's name for packages, `developer`, empty tools, `stream_options` without a stream, base64 always",
        "refused by providers",
        "written in the route's dialect",
        `${DIALECTS_TEST} › the cap has one name, for a package and a balance, the client's own and the default`,
        "clients/bodies.ts › LiteLLM: both names of the limit, and a role developer",
        "clients/bodies.ts › No tools, with what depends on them",
        "clients/bodies.ts › Options of a stream without one",
        `${DIALECTS_TEST} › embeddings: numbers and base64, whichever it is asked for`,
      ),
    ],
  },
  {
    id: "F11",
    what: "A prompt that vanished and was charged",
    inputs: [
      input(
        "A part without a type, with a text",
        "sent as no content, and charged",
        "the text is sent",
        "clients/bodies.ts › Parts as the Responses API has them, and one without a type",
      ),
      input(
        "`input_audio`, `file`, as the only part",
        "sent as no content, and charged",
        "400 that names the part",
        "clients/unsent_parts.ts › Audio alone is refused, and costs nothing: chat",
        "clients/unsent_parts.ts › A file alone is refused, and costs nothing: chat",
      ),
    ],
  },
  {
    id: "F12",
    what: "Waiting, lengths and connections",
    inputs: [
      input(
        "A prompt that is too long",
        "the provider's own words",
        "400 `context_length_exceeded`",
        `providers/context_lengths.ts › vLLM, newer: ${AGENTS_KNOW}`,
      ),
      input(
        "Silence before the first token",
        "the client left",
        "comments from 15 s on",
        `${WAITING} › has its headers and comments, then the answer`,
      ),
      input(
        "`Retry-After` as a date, `retry-after-ms`",
        "asked again after 1.6 s",
        "obeyed",
        "providers/proxies.ts › A wait as a date, by the answer's own",
        "providers/proxies.ts › A wait in milliseconds",
      ),
      input("`Content-Type` twice", "415", "served", `${CONNECTIONS} › equal values are served`),
      input(
        "A kept connection that closes as the request arrives",
        "13 of 26 were 503",
        "the next route; no request is sent twice",
        "docs/decisions.md › **560.",
      ),
    ],
  },
];
