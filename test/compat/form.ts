import type { DialectName } from "../../src/catalog/dialects.ts";
import type { ErrorCode } from "../../src/errors.ts";

/**
 * The form of the corpus' entries. An entry is one exchange: what a client sends, what the provider answers, what the client must read,
 * and what is charged. README.md in this folder says how to add one.
 */

export type Entry = {
  /** What the entry shows, in one sentence. Unique in its file. */
  says: string;
  /** Where the shape was seen: an address, a repository with its issue or file, or a document's page. */
  source: string;
  request: ClientRequest;
  /** What the provider answers; of several, the answer of each route in turn. Each of them must be asked exactly once. */
  provider: ProviderAnswer | readonly ProviderAnswer[];
  /** What the client must read. */
  client: ClientReads;
  charged: Charged;
};

/** What the client sends, over a small request of the path. */
export type ClientRequest = {
  /** Default: "chat". An entry for chat is run through /responses too, as the same question, unless it says otherwise by `only`. */
  path?: Path;
  only?: "chat";
  /** Fields of the body; `model` and the text are there already. */
  body?: Readonly<Record<string, unknown>>;
  headers?: Readonly<Record<string, string>>;
  /** Who pays. Default: "package". */
  payer?: "package" | "balance";
};

export type Path = "chat" | "responses" | "completions" | "embeddings" | "images" | "rerank";

export type ProviderAnswer = {
  /** Of the provider. Default: "generic". */
  dialect?: DialectName;
  /** Default: 200. */
  status?: number;
  /** Sent as they stand. Without a content type it is that of the form: JSON for a `json`, an event stream for `events`. null: none is sent. */
  headers?: Readonly<Record<string, string | null>>;
  /**
   * How the body ends. Default: "whole", after its length. "closed": it has no length, and ends with the connection. "cut": the connection
   * ends before the length is reached; the runtimes may then drop what came before it, so it is for what comes before an answer.
   */
  end?: "whole" | "closed" | "cut";
  /** Fields that the body that the provider gets must have, with these values; undefined: the field must be absent. */
  got?: Readonly<Record<string, unknown>>;
  /** Texts that stand in the body that the provider gets. */
  gotText?: readonly string[];
} & (
  | { json: unknown }
  /** Each is an event: an object is its data, as JSON; a string stands as it is on the wire, with its line breaks. */
  | { events: readonly (string | object)[] }
  | { text: string }
  | { bytes: Uint8Array }
);

export type ClientReads = {
  /** The text of the answer. With `error`: the text of the events before the error event, without [DONE]. */
  text?: string;
  reasoning?: string;
  /** The names and arguments of the tool calls. */
  calls?: readonly { name: string; arguments: string }[];
  /** The `finish_reason` of a chat. */
  finish?: string;
  /** Prompt, completion and total tokens that the client is told. */
  usage?: readonly [number, number, number];
  /** What the usage says of the charge: USD, and what paid; null: it says nothing. */
  spent?: readonly [usd: number, mode: "package" | "payg"] | null;
  /** The code of the refusal, whose status is that of the table of errors; beside a `text`, that of the error event. */
  error?: ErrorCode;
  /** Part of the error's message, or the whole of it as a pattern. */
  message?: string | RegExp;
  param?: string | null;
  /** Seconds in the header Retry-After: from, to. */
  retryAfter?: readonly [number, number];
  /** Fields that the whole JSON answer of this path must have. Only for one path. */
  json?: Readonly<Record<string, unknown>>;
  /** Paths that the answer, or each event of a stream, must not have, as in `choices.0.delta.tool_calls`. */
  absent?: readonly string[];
  /** The tool calls have ids, no two of them one. */
  uniqueIds?: boolean;
  /** No text on the wire has half of a character as an escape: strict parsers refuse it. */
  wellFormed?: boolean;
  /** What stands nowhere on the wire. */
  unsaid?: readonly string[];
  /** As `json`, of each event of a stream of this path in order, without [DONE]. Only for one path. */
  events?: readonly Readonly<Record<string, unknown>>[];
};

/** `tokens`: prompt and completion, as they are charged. A request counts one unit of a package. */
export type Charged = "nothing" | { tokens: readonly [number, number] };

/** What is wrong with an entry; an empty list if nothing is. An entry without its right value would pass whatever happens. */
export function problemsOf(entry: Partial<Entry>): string[] {
  const { says, source, request, provider, client, charged } = entry;
  const missing = Object.entries({ says, source, request, provider, client, charged })
    .filter(([, value]) => value === undefined || value === "")
    .map(([name]) => `it has no \`${name}\``);
  if (client === undefined || charged === undefined || request === undefined) return missing;
  const problems = [...missing];
  const isRefused = client.error !== undefined;
  if (!isRefused && isWordless(client)) problems.push("`client` does not say what is read");
  if (isRefused && charged !== "nothing") problems.push("an error charges nothing");
  if (charged !== "nothing" && charged.tokens.length !== 2)
    problems.push("`charged` has no tokens of prompt and answer");
  const isShaped = client.json !== undefined || client.events !== undefined;
  if (isShaped && isForBoth(request)) problems.push("`json` and `events` are those of one path: set `only`");
  return problems;
}

function isWordless({ text, calls, json, events, spent }: ClientReads): boolean {
  return [text, calls, json, events, spent].every((read) => read === undefined);
}

/** Whether the entry is run through chat and through responses. */
export function isForBoth({ path = "chat", only }: ClientRequest): boolean {
  return path === "chat" && only === undefined;
}

/** What an exchange tries. */
export const KINDS = {
  A: "What a provider takes: its dialect, and what it is sent",
  B: "Reading whole answers",
  C: "Requests as clients send them",
  E: "Streams of a shape that nobody foresaw",
  F: "What costs somebody money or closes a route: refusals in disguise, errors without a name, empty answers, the next route, who pays",
} as const;
export type Kind = keyof typeof KINDS;

/** The kind of an exchange, by what it has. `file`: as in `providers/azure.ts`. */
export function kindOf({ request, provider, charged }: Entry, file: string): Kind {
  if (file.startsWith("clients/")) return "C";
  const answers = "map" in provider ? provider : [provider];
  if (answers.some(({ got, gotText }) => got !== undefined || gotText !== undefined)) return "A";
  if (charged === "nothing" || answers.length > 1) return "F";
  return request.body?.stream === true || answers.some((answer) => "events" in answer) ? "E" : "B";
}

/** Where an exchange is from. */
export function originOf({
  source,
}: Entry): "a public issue, document or source" | "tried, or known without an address" | "constructed" {
  if (source.endsWith("constructed")) return "constructed";
  const isPublic = /[\w-]\.(?:com|ai|org|io|dev|rs|net|cn)\b|^(?:PyPI|npm|RFC) /.test(source);
  return isPublic ? "a public issue, document or source" : "tried, or known without an address";
}

const HEAD = { id: "chatcmpl-7", object: "chat.completion.chunk", created: 1_763_856_000, model: "up" };
export const DONE = "data: [DONE]\n\n";
export const USAGE = { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 };

/** A chunk of a chat stream, in OpenAI's shape. */
export function chunk(delta: object, finish: string | null = null, more: object = {}): object {
  return { ...HEAD, choices: [{ index: 0, delta, finish_reason: finish }], ...more };
}

/** The chunk that ends an answer. */
export const STOP = chunk({}, "stop");
/** The chunk with the usage behind it. */
export const USAGE_CHUNK = { ...HEAD, choices: [], usage: USAGE };

/** A whole chat answer, in OpenAI's shape. */
export function completion(message: object, finish: string | null = "stop", more: object = {}): object {
  const choices = [{ index: 0, message: { role: "assistant", ...message }, finish_reason: finish }];
  return { ...HEAD, object: "chat.completion", choices, usage: USAGE, ...more };
}

/** What a good provider answers: "good" as a stream, or as a whole. */
export const GOOD_STREAM: ProviderAnswer = {
  events: [chunk({ role: "assistant", content: "" }), chunk({ content: "good" }), STOP, USAGE_CHUNK, DONE],
};
export const GOOD_WHOLE: ProviderAnswer = { json: completion({ content: "good" }) };
export const STREAMED: ClientRequest = { body: { stream: true } };
export const WHOLE: ClientRequest = {};

/** What a provider says of a prompt that is too long. */
export function context(status: number, json: unknown): ProviderAnswer {
  return { status, json };
}

/** A number that is written as it stands here: a double may not have it. */
export function exactly(digits: string): object {
  return (JSON as unknown as { rawJSON(text: string): object }).rawJSON(digits);
}
