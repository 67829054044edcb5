import {
  answerChat,
  chatHead,
  chatId,
  chatJsonTail,
  chatPieces,
  modelsJson,
  type Piece,
  unknownModel,
} from "./chat.ts";
import { chatOfCompletion, textPieces } from "./completions.ts";
import type { Reply } from "./delivery.ts";
import { type Played, refusalOf } from "./dialects.ts";
import { embeddingsJson, readEmbeddingRequest } from "./embeddings.ts";
import type { Behaviour } from "./faults.ts";
import { type ImageStore, imageEvents, imagesJson, readImageRequest } from "./images.ts";
import type { Call } from "./journal.ts";
import { ProviderError, readChatRequest } from "./request.ts";
import { readRerankRequest, rerankJson } from "./rerank.ts";
import { readResponsesRequest, responseJson, responsePieces } from "./responses.ts";

/** Model ids that contain `image` produce images, those that contain `embed` embeddings, `rank` scores; those that contain `reason` send reasoning. */
export const MODELS = [
  "sim-small",
  "sim-large",
  "sim-reason",
  "sim-vision",
  "sim-image",
  "sim-embed",
  "sim-rerank",
] as const;
/** Cached JSON answers, for load tests, which repeat the same bodies. */
const CACHED_MAX = 256;
const CACHED_BODY_CHARS_MAX = 4_096;

interface CachedChat {
  readonly tail: string;
  readonly tokens: number;
}

/** Settings and stores of a running provider that its API uses. */
export interface Api {
  readonly paceMs: number;
  readonly imageDelayMs: number;
  /** The Bearer keys that are accepted; undefined: every caller is. */
  readonly apiKeys: readonly string[] | undefined;
  readonly models: readonly string[] | "any";
  /** The provider that it plays; undefined: one that takes everything. */
  readonly played: Played | undefined;
  readonly images: ImageStore;
  /** Answers by request body. */
  readonly cache: Map<string, CachedChat>;
  /** The provider's origin, for images by URL. */
  url: string;
}

/** The reply to a call: an answer or an error, both in OpenAI's format. Of `behaviour`, only what changes the content is applied. */
export function replyTo(api: Api, call: Call, behaviour: Behaviour | undefined): Reply {
  try {
    if (call.path.startsWith("/images/")) return storedImageReply(api, call);
    if (api.apiKeys !== undefined && !isAccepted(api.apiKeys, call.headers.authorization))
      throw wrongKeyError(call.headers.authorization);
    const refused = call.method === "POST" && api.played ? refusalOf(api.played, parseJson(call.body)) : undefined;
    if (refused !== undefined) return jsonReply(call, refused.json, refused.status);
    const endpoint = `${call.method === "HEAD" ? "GET" : call.method} ${call.path}`;
    if (endpoint === "POST /v1/chat/completions") return chatReply(api, call, behaviour);
    if (endpoint === "POST /v1/responses") return responsesReply(api, call, behaviour);
    if (endpoint === "POST /v1/completions") return completionReply(api, call, behaviour);
    if (endpoint === "POST /v1/rerank") return rerankReply(api, call, behaviour);
    if (endpoint === "POST /v1/images/generations") return imagesReply(api, call, behaviour);
    if (endpoint === "POST /v1/embeddings") return embeddingsReply(api, call, behaviour);
    if (endpoint === "GET /v1/models") return jsonReply(call, modelsJson(modelIds(api), createdAt(call)));
    if (endpoint.startsWith("GET /v1/models/"))
      return jsonReply(call, modelsJson(modelIds(api), createdAt(call), decodeURIComponent(call.path.slice(11))));
    throw new ProviderError(404, `Invalid URL (${call.method} ${call.path})`);
  } catch (error) {
    if (error instanceof ProviderError) return jsonReply(call, error.body(), error.status);
    throw error;
  }
}

function chatReply(api: Api, call: Call, behaviour: Behaviour | undefined): Reply {
  const cached = behaviour ? undefined : api.cache.get(call.body);
  if (cached) return chatJsonReply(api, call, cached);
  const request = readChatRequest(parseJson(call.body));
  checkModel(api, request.model, "chat");
  const answer = answerChat(request, { id: call.id, created: createdAt(call) }, behaviour);
  if (request.stream) {
    const pieces = chatPieces(answer, request.includeUsage || api.played?.alwaysSendsUsage === true, behaviour);
    return reply(call, { contentType: "text/event-stream; charset=utf-8", pieces, paceMs: api.paceMs, stream: true });
  }
  const fresh = { tail: chatJsonTail(answer, behaviour), tokens: answer.tokens };
  // Each tool call has its own id, so such an answer cannot be cached.
  if (!behaviour && !request.tool && call.body.length <= CACHED_BODY_CHARS_MAX) {
    if (api.cache.size >= CACHED_MAX) api.cache.clear();
    api.cache.set(call.body, fresh);
  }
  return chatJsonReply(api, call, fresh);
}

function responsesReply(api: Api, call: Call, behaviour: Behaviour | undefined): Reply {
  const request = readResponsesRequest(parseJson(call.body));
  checkModel(api, request.model, "chat");
  const answer = answerChat(request, { id: call.id, created: createdAt(call) }, behaviour);
  if (!request.stream) return { ...jsonReply(call, responseJson(answer)), paceMs: api.paceMs * answer.tokens };
  const pieces = responsePieces(answer, behaviour);
  return reply(call, { contentType: "text/event-stream; charset=utf-8", pieces, paceMs: api.paceMs, stream: true });
}

function chatJsonReply(api: Api, call: Call, { tail, tokens }: CachedChat): Reply {
  const json = chatHead(chatId(call.id), createdAt(call), "chat.completion") + tail;
  return { ...jsonReply(call, json), paceMs: api.paceMs * tokens };
}

function completionReply(api: Api, call: Call, behaviour: Behaviour | undefined): Reply {
  const reply = chatReply(api, { ...call, body: chatOfCompletion(parseJson(call.body)) }, behaviour);
  return { ...reply, pieces: textPieces(reply.pieces) };
}

function rerankReply(api: Api, call: Call, behaviour: Behaviour | undefined): Reply {
  const request = readRerankRequest(parseJson(call.body));
  checkModel(api, request.model, "rank");
  return jsonReply(call, rerankJson(request, behaviour));
}

function imagesReply(api: Api, call: Call, behaviour: Behaviour | undefined): Reply {
  const request = readImageRequest(parseJson(call.body));
  checkModel(api, request.model, "image");
  const images = api.images.draw(request).map((png) => ({ png, url: api.url + api.images.store(png) }));
  if (request.stream) {
    const pieces = imageEvents(images, createdAt(call)).map((text) => ({ text, chunk: true }));
    return reply(call, { contentType: "text/event-stream; charset=utf-8", pieces, paceMs: 0, stream: true });
  }
  return { ...jsonReply(call, imagesJson(request, createdAt(call), images, behaviour)), paceMs: api.imageDelayMs };
}

function embeddingsReply(api: Api, call: Call, behaviour: Behaviour | undefined): Reply {
  const request = readEmbeddingRequest(parseJson(call.body));
  checkModel(api, request.model, "embed");
  return jsonReply(call, embeddingsJson(request, behaviour));
}

function storedImageReply(api: Api, call: Call): Reply {
  const png = api.images.find(call.path);
  if (!png) throw new ProviderError(404, "There is no such image.");
  return reply(call, { contentType: "image/png", pieces: [{ text: png, chunk: true }] });
}

export function jsonReply(call: Call, json: string, status = 200): Reply {
  return reply(call, { status, contentType: "application/json", pieces: [{ text: json, chunk: true }] });
}

function reply(
  call: Call,
  { contentType, ...rest }: { contentType: string; pieces: Piece[] } & Partial<Omit<Reply, "headers" | "pieces">>,
): Reply {
  const headers = {
    "content-type": contentType,
    "x-request-id": `req_simulated${call.id}`,
    "openai-organization": "org-simulated",
  };
  return { status: 200, paceMs: 0, stream: false, headers, ...rest };
}

function checkModel({ models }: Api, model: string, use: "chat" | "image" | "embed" | "rank"): void {
  if (models === "any") return;
  if (!models.includes(model)) throw unknownModel(model);
  const serves = (["image", "embed", "rank"] as const).find((word) => model.includes(word)) ?? "chat";
  if (serves !== use) throw new ProviderError(400, `The model '${model}' cannot be used for this.`, { param: "model" });
}

function modelIds({ models }: Api): readonly string[] {
  return models === "any" ? MODELS : models;
}

function createdAt(call: Call): number {
  return Math.floor(call.at / 1_000);
}

function isAccepted(apiKeys: readonly string[], authorization = ""): boolean {
  return apiKeys.some((key) => authorization === `Bearer ${key}`);
}

/** Shows a part of the key, as OpenAI does: a gateway that passes this message on leaks its provider key. */
function wrongKeyError(authorization = ""): ProviderError {
  const key = authorization.replace(/^Bearer /i, "");
  const shown = key.length > 12 ? `${key.slice(0, 6)}****${key.slice(-4)}` : "****";
  return new ProviderError(401, `Incorrect API key provided: ${shown}.`, { code: "invalid_api_key" });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ProviderError(400, "We could not parse the JSON body of your request.");
  }
}
