import type { KeyedRoute } from "../catalog/catalog.ts";
import type { ProviderClient, WholeOptions } from "../catalog/provider_client.ts";
import { ProviderFailure } from "../catalog/provider_errors.ts";
import type { Body } from "../http/body.ts";
import { patch } from "../http/json_spans.ts";
import { isRecord } from "../platform/records.ts";
import { nextTurn } from "../platform/runtime.ts";
import { EMBEDDINGS_BYTES_MAX } from "./answer_bytes.ts";
import { numberOf } from "./call_numbers.ts";
import type { Payload } from "./chat_payload.ts";
import type { Attempt } from "./dispatch.ts";
import { readVector, type Vector, vectorJson } from "./embedding_vectors.ts";
import type { Namer } from "./end_users.ts";
import { type LargeEmbeddings, TEXT_BYTES_A_NUMBER } from "./large_embeddings.ts";
import { EMBEDDING_PARAMETERS, filterParameters } from "./parameters.ts";
import type { ListPlaces } from "./provider_json.ts";
import type { EmbeddingRequest } from "./request_shapes.ts";
import { type Called, entriesOf } from "./upstream_chat.ts";
import type { ReportedUsage } from "./usage_counts.ts";
import { reportOfEntries } from "./usage_reports.ts";

/**
 * Embedding requests to a provider and its answers. The provider is asked for base64, a quarter of the bytes, if it takes it; the client gets its
 * `encoding_format`, whichever of the two the provider sends. Source: EMB-3, EMB-4.
 */

/** Numbers that are converted in one turn of the event loop: about 10 ms of work. */
const NUMBERS_A_TURN = 50_000;
const PATH = "/embeddings";
/** Of a model that was not asked for a number of its own. */
const DIMENSIONS_ASSUMED = 1_536;
/** Of a number in base64 of float32. */
const BASE64_BYTES_A_NUMBER = 16 / 3;

/** Members of an entry that have its numbers. */
const VECTORS = ["embedding", "values", "vector"];
const PLACES: ListPlaces = {
  lists: ["data", "embeddings", "result", "results", "output", "float", "predictions", "vectors"],
  entry: VECTORS,
};

export type EmbeddingCall = Attempt & {
  provider: ProviderClient;
  requestId: string;
  body: EmbeddingRequest;
  raw: Body;
  namer: Namer;
  totalMs: number;
  large: LargeEmbeddings;
};

/** `data` is the JSON of the embeddings in the client's form; `rawUsage` is the provider's usage object, unchanged. */
export type EmbeddingAnswer = {
  data: string;
  usage: ReportedUsage | undefined;
  rawUsage: unknown;
  dropped: string | undefined;
};

type Fields = Readonly<Record<string, unknown>>;

/** About how large the client's answer will be. A short request may have one of many MiB, so memory is reserved for it. Source: ADM-3. */
export function answerBytesOf({ input, fields }: EmbeddingRequest): number {
  const bytesANumber = fields.encoding_format === "base64" ? BASE64_BYTES_A_NUMBER : TEXT_BYTES_A_NUMBER;
  return Math.ceil(input.count * (fields.dimensions ?? DIMENSIONS_ASSUMED) * bytesANumber);
}

/**
 * Calls a route and reads its answer. Throws ProviderFailure if it does not have one embedding for each input, or if the route's answer
 * to so many was too large before.
 */
export async function fetchEmbeddings(call: EmbeddingCall, route: KeyedRoute): Promise<EmbeddingAnswer> {
  const { requestId, traceparent, beforeSend, signal, totalMs, body, large } = call;
  if (large.has(route.id, body)) throw new ProviderFailure("too_large", "its answer to so many was too large before");
  const limits = { signal, requestId, traceparent, beforeSend, totalMs, bytesMax: EMBEDDINGS_BYTES_MAX };
  const payload = embeddingPayload(call, route);
  const called = { route, sent: payload.text };
  const answer = answerOf(await textOf(call, route, { sent: payload.text, limits }), called);
  const data = await dataJson(inOrder(answer.data, body.input.count), body.fields.encoding_format ?? "float");
  const { usage, raw: rawUsage } = reportOfEntries(answer.fields, answer.data);
  return { data, usage, rawUsage, dropped: payload.dropped };
}

/** The text of a route's answer. Notes if it is too large. */
async function textOf(
  { provider, large, body }: EmbeddingCall,
  route: KeyedRoute,
  { sent, limits }: { sent: string; limits: WholeOptions },
): Promise<string> {
  try {
    return await provider.postWhole(route, PATH, sent, limits);
  } catch (error) {
    if (error instanceof ProviderFailure && error.work === "too_large") large.note(route.id, body);
    throw error;
  }
}

/** The body for a route: the client's bytes, without dropped parameters, and with the model's upstream name and base64. */
function embeddingPayload({ body: { fields }, raw, namer }: EmbeddingCall, route: KeyedRoute): Payload {
  const { changed, dropped } = filterParameters({
    list: EMBEDDING_PARAMETERS,
    body: fields,
    spans: raw.spans,
    by: route,
    namer,
  });
  const edits = new Map<string, string | null>();
  for (const [name, value] of changed) edits.set(name, value === undefined ? null : JSON.stringify(value));
  if (route.upstreamModel !== fields.model) edits.set("model", JSON.stringify(route.upstreamModel));
  // Numbers are every provider's default, and some refuse the field whatever its value. Source: DIA-11.
  if (route.facts.embeddings === "float") edits.set("encoding_format", null);
  else if (fields.encoding_format !== "base64") edits.set("encoding_format", '"base64"');
  return { text: patch(raw.text, raw.spans, edits), dropped };
}

function answerOf(text: string, called: Called): { data: readonly unknown[]; fields: Fields } {
  const { list, fields } = entriesOf(text, PLACES, called);
  // Bare numbers are one embedding.
  const data = typeof list?.[0] === "number" ? [list] : list;
  if (data === undefined) throw failure("the answer is not a list of embeddings");
  return { data, fields };
}

/**
 * The embeddings in the order of the inputs. Their indexes decide, from 0 or from 1. If they have none, or all have the same, the order
 * of the list does. Throws ProviderFailure.
 */
function inOrder(data: readonly unknown[], count: number): unknown[] {
  if (data.length !== count) throw failure(`the answer has ${data.length} embeddings for ${count} inputs`);
  const items: Fields[] = data.map((item) => (isRecord(item) ? item : { embedding: item }));
  const indexes = items.map(({ index }) => numberOf(index) ?? index ?? undefined);
  const isListed = indexes.every((index) => index === indexes[0]);
  const first = !isListed && !indexes.includes(0) && indexes.includes(count) ? 1 : 0;
  const ordered: unknown[] = new Array(count).fill(undefined);
  for (const [place, item] of items.entries()) {
    const index = indexes[place];
    const at = isListed || index === undefined ? place : typeof index === "number" ? index - first : -1;
    if (!(at in ordered) || ordered[at] !== undefined)
      throw failure("the indexes of the embeddings are not those of the inputs");
    // Vertex AI has the numbers of each prediction in an object.
    ordered[at] = [...VECTORS, "embeddings"].map((name) => item[name]).find((vector) => isPresent(vector)) ?? null;
  }
  return ordered;
}

/** The JSON of the answer's `data`. Gives way to other requests in between, because an answer may have millions of numbers. */
async function dataJson(embeddings: readonly unknown[], form: "float" | "base64"): Promise<string> {
  const parts: string[] = [];
  let dimensions: number | undefined;
  let converted = 0;
  for (const [index, embedding] of embeddings.entries()) {
    const vector = checked(embedding, dimensions);
    dimensions = vector.numbers.length;
    parts.push(`{"object":"embedding","index":${index},"embedding":${vectorJson(vector, form)}}`);
    converted += dimensions;
    if (converted < NUMBERS_A_TURN) continue;
    converted = 0;
    await nextTurn();
  }
  return `[${parts.join(",")}]`;
}

/** An embedding that has as many dimensions as the one before it. Throws ProviderFailure. */
function checked(embedding: unknown, dimensions: number | undefined): Vector {
  const vector = readVector(embedding);
  if (vector === undefined) throw failure("an embedding is neither finite numbers nor base64 of them");
  if (dimensions !== undefined && vector.numbers.length !== dimensions)
    throw failure("the embeddings differ in their dimensions");
  return vector;
}

function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function failure(why: string): ProviderFailure {
  return new ProviderFailure("not_json", why);
}
