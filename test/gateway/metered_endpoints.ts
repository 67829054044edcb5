import { expect } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import type { ModelSpec } from "../world.ts";
import { checkLifeCycle, readEvents } from "./response_events.ts";
import { type Answer, type CallOptions, eventsOf, PRICES, type Shop } from "./shop.ts";

/**
 * The metered endpoints as rows of one table: what differs between them. `metered_endpoints.test.ts` has the situations, and expects
 * the same of every row. A new metered endpoint is a row here.
 */

const INPUT_NANO = PRICES.inputMicroUsd / 1000;
const OUTPUT_NANO = PRICES.outputMicroUsd / 1000;
const IMAGE_NANO = PRICES.imageMicroUsd * 1000;

export type MeteredRow = {
  name: string;
  /** The beginning of its models' ids: "json" has json-main, json-two-routes … */
  slug: string;
  path: string;
  modality: "text" | "image" | "embedding" | "rerank";
  /** A model of another modality. */
  wrongModel: string;
  /** Its routes have their own /responses. */
  ownResponses?: boolean;
  /** Its routes have their own /completions. */
  ownCompletions?: boolean;
  /** How its streams end; null: it does not stream. */
  stream: StreamEnds | null;
  /** The body without its model. `text` is in what is sent to the provider. */
  body(text: string): Record<string, unknown>;
  /** A body that is refused, and the field that is named. */
  invalid: { over: Record<string, unknown>; param: string };
  /** A prompt with a part that cannot be sent beside one that can, and the part that is named. */
  unsent: { over: Record<string, unknown>; param: string };
  /** Checks a complete answer. */
  expectAnswer(answer: Answer, model: string): void;
  /** What a request with these tokens costs a balance, in nano-USD. */
  costNano(promptTokens: number, completionTokens: number): number;
  /** The provider's report if the answer costs more than was reserved; null if the price does not depend on it. */
  overrun: Behaviour | null;
};

export type StreamEnds = {
  /** The last event says that the answer is whole. */
  isWhole(answer: Answer): boolean;
  /** Checks a stream that was broken off, and returns the code and the message of its error. */
  brokenBy(answer: Answer): { code: string; message: string };
  /** The provider's stream up to its finish, with the text "Whole.", and the end of the client's stream if it breaks after that. */
  finish: { sent: string; ends: "whole" | "broken" };
};

const chatRow = {
  path: "/v1/chat/completions",
  modality: "text",
  wrongModel: "image-a",
  invalid: { over: { messages: [{ role: "king", content: "x" }] }, param: "messages.0.role" },
  unsent: {
    over: {
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "Read it." },
            { type: "file", file: {} },
          ],
        },
      ],
    },
    param: "messages.0.content.1",
  },
  costNano: (promptTokens, completionTokens) => promptTokens * INPUT_NANO + completionTokens * OUTPUT_NANO,
  overrun: { usage: { prompt_tokens: 5_000, completion_tokens: 1 } },
} as const satisfies Partial<MeteredRow>;

const CHAT_FINISH = [
  '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Whole."},"finish_reason":null}]}',
  '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
];
const MESSAGE =
  '{"id":"m","type":"message","role":"assistant","content":[{"type":"output_text","text":"Whole.","annotations":[]}]}';
const OWN_FINISH = [
  '{"type":"response.created","sequence_number":0,"response":{"id":"r","status":"in_progress","output":[]}}',
  '{"type":"response.in_progress","sequence_number":1,"response":{"id":"r","status":"in_progress","output":[]}}',
  '{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"m","type":"message","content":[]}}',
  '{"type":"response.content_part.added","sequence_number":3,"item_id":"m","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}',
  '{"type":"response.output_text.delta","sequence_number":4,"item_id":"m","output_index":0,"content_index":0,"delta":"Whole."}',
  `{"type":"response.output_item.done","sequence_number":5,"output_index":0,"item":${MESSAGE}}`,
  `{"type":"response.completed","sequence_number":6,"response":{"id":"r","status":"completed","output":[${MESSAGE}]}}`,
];
const eventsText = (payloads: readonly string[]) => payloads.map((payload) => `data: ${payload}\n\n`).join("");

const CHAT_ENDS: StreamEnds = {
  isWhole: ({ text }) => eventsOf(text).at(-1) === "[DONE]",
  brokenBy: ({ text }) => {
    expect(text).not.toContain("[DONE]");
    const { error, request_id } = JSON.parse(eventsOf(text).at(-1) ?? "");
    expect(request_id).toBeString();
    return error;
  },
  finish: { sent: eventsText(CHAT_FINISH), ends: "broken" },
};

const RESPONSE_ENDS: StreamEnds = {
  isWhole: ({ text }) => ["completed", "incomplete"].includes(checkLifeCycle(readEvents(text)).status),
  brokenBy: ({ text }) => {
    const { status, error } = checkLifeCycle(readEvents(text));
    expect([status, error.code]).toEqual(["failed", "server_error"]);
    const shutDown = /restarting/.test(error.message);
    return { ...error, code: shutDown ? "service_unavailable" : "provider_unavailable" };
  },
  finish: { sent: eventsText(CHAT_FINISH), ends: "broken" },
};

const chatOf = (text: string) => ({ messages: [{ role: "user", content: text }], max_tokens: 16 });

const responsesRow = {
  ...chatRow,
  path: "/v1/responses",
  invalid: { over: { input: [{ role: "king", content: "x" }] }, param: "input.0.role" },
  unsent: {
    over: { input: [{ role: "user", content: [{ type: "input_text", text: "Read it." }, { type: "input_file" }] }] },
    param: "input.0.content.1",
  },
} as const satisfies Partial<MeteredRow>;

const responsesOf = (text: string) => ({ input: text, max_output_tokens: 16 });

const responsesJson = {
  ...responsesRow,
  stream: null,
  body: responsesOf,
  expectAnswer: ({ json }: Answer, model: string) => {
    expect(json).toMatchObject({ object: "response", model, usage: { total_tokens: expect.any(Number) } });
    expect(json.output[0].content[0].text.length).toBeGreaterThan(0);
  },
};

const responsesStream = {
  ...responsesRow,
  stream: RESPONSE_ENDS,
  body: (text: string) => ({ ...responsesOf(text), stream: true }),
  expectAnswer: ({ headers, text }: Answer, model: string) => {
    expect(headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    const { status, output, ...response } = checkLifeCycle(readEvents(text));
    expect(["completed", "incomplete"]).toContain(status);
    expect(response).toMatchObject({ object: "response", model, usage: { total_tokens: expect.any(Number) } });
    expect(output[0].content[0].text.length).toBeGreaterThan(0);
  },
};

const textOf = (text: string) => ({ prompt: text, max_tokens: 16 });
const TEXT_FINISH = [
  '{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"Whole.","logprobs":null,"finish_reason":null}]}',
  '{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}',
];

const completionsRow = {
  ...chatRow,
  path: "/v1/completions",
  invalid: { over: { prompt: [[1, 2]] }, param: "prompt" },
  unsent: { over: { prompt: ["A toll gate", { type: "image_url", image_url: { url: "data:," } }] }, param: "prompt" },
} as const satisfies Partial<MeteredRow>;

const completionsJson = {
  ...completionsRow,
  stream: null,
  body: textOf,
  expectAnswer: ({ json }: Answer, model: string) => {
    expect(json).toMatchObject({ object: "text_completion", model, usage: { total_tokens: expect.any(Number) } });
    expect(json.choices[0].text.length).toBeGreaterThan(0);
    expect(Object.keys(json.choices[0])).toEqual(["text", "index", "logprobs", "finish_reason"]);
  },
};

const completionsStream = {
  ...completionsRow,
  stream: CHAT_ENDS,
  body: (text: string) => ({ ...textOf(text), stream: true }),
  expectAnswer: ({ headers, text }: Answer, model: string) => {
    expect(headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    const events = eventsOf(text);
    expect(events.at(-1)).toBe("[DONE]");
    const chunks = events.slice(0, -1).map((event) => JSON.parse(event));
    for (const chunk of chunks) expect(chunk).toMatchObject({ object: "text_completion", model });
    expect(chunks.map(({ choices }) => choices[0]?.text ?? "").join("").length).toBeGreaterThan(0);
  },
};

export const METERED_ROWS: readonly MeteredRow[] = [
  {
    ...chatRow,
    name: "chat, JSON",
    slug: "json",
    stream: null,
    body: chatOf,
    expectAnswer: ({ json }, model) => {
      expect(json).toMatchObject({ object: "chat.completion", model, usage: { total_tokens: expect.any(Number) } });
      expect(json.choices[0].message.content.length).toBeGreaterThan(0);
    },
  },
  {
    ...chatRow,
    name: "chat, stream",
    slug: "stream",
    stream: CHAT_ENDS,
    body: (text) => ({ ...chatOf(text), stream: true }),
    expectAnswer: ({ headers, text }, model) => {
      expect(headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
      const events = eventsOf(text);
      expect(events.at(-1)).toBe("[DONE]");
      expect(JSON.parse(events[0] ?? "")).toMatchObject({ object: "chat.completion.chunk", model });
    },
  },
  { ...responsesJson, name: "responses, JSON, translated", slug: "told-json" },
  { ...responsesStream, name: "responses, stream, translated", slug: "told-stream" },
  { ...responsesJson, name: "responses, JSON, a provider's own", slug: "own-json", ownResponses: true },
  {
    ...responsesStream,
    ...{ name: "responses, stream, a provider's own", slug: "own-stream", ownResponses: true },
    stream: { ...RESPONSE_ENDS, finish: { sent: eventsText(OWN_FINISH), ends: "whole" } },
  },
  { ...completionsJson, name: "completions, JSON, translated", slug: "text-json" },
  { ...completionsStream, name: "completions, stream, translated", slug: "text-stream" },
  { ...completionsJson, name: "completions, JSON, a provider's own", slug: "own-text-json", ownCompletions: true },
  {
    ...completionsStream,
    ...{ name: "completions, stream, a provider's own", slug: "own-text-stream", ownCompletions: true },
    stream: { ...CHAT_ENDS, finish: { sent: eventsText(TEXT_FINISH), ends: "broken" } },
  },
  {
    name: "images",
    slug: "image",
    path: "/v1/images/generations",
    modality: "image",
    wrongModel: "chat-a",
    stream: null,
    body: (text) => ({ prompt: `A toll gate ${text}` }),
    invalid: { over: { size: "1x1" }, param: "size" },
    unsent: { over: { prompt: ["A toll gate", { type: "image_url", image_url: { url: "data:," } }] }, param: "prompt" },
    expectAnswer: ({ json }, model) => {
      expect(json).toMatchObject({ created: expect.any(Number), model, data: [{ url: expect.any(String) }] });
    },
    costNano: () => IMAGE_NANO,
    overrun: null,
  },
  {
    name: "embeddings",
    slug: "embed",
    path: "/v1/embeddings",
    modality: "embedding",
    wrongModel: "vendor/chat-b",
    stream: null,
    body: (text) => ({ input: [text, "A toll gate"] }),
    invalid: { over: { input: ["x", ""] }, param: "input.1" },
    unsent: { over: { input: ["A toll gate", { type: "image_url", image_url: { url: "data:," } }] }, param: "input.1" },
    expectAnswer: ({ json }, model) => {
      expect(json).toMatchObject({ object: "list", model, usage: { total_tokens: expect.any(Number) } });
      expect(json.data.map(({ index }: { index: number }) => index)).toEqual([0, 1]);
    },
    costNano: (promptTokens) => promptTokens * INPUT_NANO,
    overrun: { usage: { prompt_tokens: 5_000 } },
  },
  {
    name: "rerank",
    slug: "rank",
    path: "/v1/rerank",
    modality: "rerank",
    wrongModel: "embed-a",
    stream: null,
    body: (text) => ({ query: text, documents: ["A toll gate", text] }),
    invalid: { over: { documents: [] }, param: "documents" },
    unsent: { over: { documents: ["A toll gate", { image: "data:," }] }, param: "documents.1.text" },
    expectAnswer: ({ json }, model) => {
      expect(json).toMatchObject({ object: "list", model, usage: { total_tokens: expect.any(Number) } });
      expect(json.results.map(({ index }: { index: number }) => index)).toEqual([1, 0]);
    },
    costNano: (promptTokens) => promptTokens * INPUT_NANO,
    overrun: { usage: { prompt_tokens: 5_000 } },
  },
];

/** The models of a row. */
const MODELS = ["main", "two-routes", "unpriced", "over-rest", "over-covered", "hides"] as const;
type ModelName = (typeof MODELS)[number];

export const modelOf = ({ slug }: MeteredRow, name: ModelName = "main") => `${slug}-${name}`;

/** The models of every row. */
export const METERED_MODELS: readonly ModelSpec[] = METERED_ROWS.flatMap((row) =>
  MODELS.map((name) => specOf(row, name)),
);

function specOf(row: MeteredRow, name: ModelName): ModelSpec {
  const isImage = row.modality === "image";
  const hasNoOutput = row.modality === "embedding" || row.modality === "rerank";
  const facts = row.ownCompletions ? { completions: "own" } : {};
  const route = { provider: "first", ownResponses: row.ownResponses === true, facts };
  const backup = { ...route, provider: "second", upstreamModel: "backup" };
  return {
    ...{ id: modelOf(row, name), modality: row.modality, defaultCapTokens: 1000, hidesTokens: name === "hides" },
    ...(name !== "unpriced" &&
      (isImage
        ? { imagePrices: { "1024x1024": PRICES.imageMicroUsd } }
        : { inputMicroUsd: PRICES.inputMicroUsd, outputMicroUsd: hasNoOutput ? 0 : PRICES.outputMicroUsd })),
    routes: name === "two-routes" ? [route, backup] : [route],
  };
}

/** One request of a row. */
export function ask(
  shop: Shop,
  row: MeteredRow,
  { model = "main", text = "at dawn", over = {}, ...options }: AskOptions,
): Promise<Answer> {
  return shop.call(row.path, { ...options, body: { model: modelOf(row, model), ...row.body(text), ...over } });
}
type AskOptions = CallOptions & { model?: ModelName; text?: string; over?: Record<string, unknown> };
