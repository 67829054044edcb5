import {
  answerChat,
  chatHead,
  chatId,
  chatJsonTail,
  chatPieces,
  modelsJson,
  type Piece,
  unknownModel,
} from "./answers.ts";
import type { Behaviour } from "./faults.ts";
import { type ImageStore, imageEvents, imagesJson, readImageRequest } from "./images.ts";
import type { Call } from "./journal.ts";
import { ProviderError, readChatRequest } from "./request.ts";
import type { Reply } from "./wire.ts";

/** Model ids with `image` in them make pictures, those with `reason` think aloud. */
export const MODELS = ["sim-small", "sim-large", "sim-reason", "sim-vision", "sim-image"] as const;
/** Answers kept for requests with the same body: what a load test sends. */
const PREPARED_MAX = 256;
const PREPARED_BODY_CHARS_MAX = 4_096;

interface PreparedChat {
  readonly tail: string;
  readonly tokens: number;
}

/** What the API side of a running provider needs to know. */
export interface Api {
  readonly paceMs: number;
  readonly imageDelayMs: number;
  readonly apiKey: string | undefined;
  readonly models: readonly string[] | "any";
  readonly images: ImageStore;
  readonly prepared: Map<string, PreparedChat>;
  /** The provider's own address, for pictures by URL. */
  url: string;
}

/** The good answer to a call, or OpenAI's error as one. Behaviours that change the words are in it already. */
export function answer(api: Api, call: Call, behaviour: Behaviour | undefined): Reply {
  try {
    if (call.path.startsWith("/images/")) return imageReply(api, call);
    if (api.apiKey !== undefined && call.headers.authorization !== `Bearer ${api.apiKey}`)
      throw wrongKey(call.headers.authorization);
    const route = `${call.method === "HEAD" ? "GET" : call.method} ${call.path}`;
    if (route === "POST /v1/chat/completions") return chatReply(api, call, behaviour);
    if (route === "POST /v1/images/generations") return imagesReply(api, call, behaviour);
    if (route === "GET /v1/models") return jsonReply(call, modelsJson(listed(api), createdAt(call)));
    if (route.startsWith("GET /v1/models/"))
      return jsonReply(call, modelsJson(listed(api), createdAt(call), decodeURIComponent(call.path.slice(11))));
    throw new ProviderError(404, `Invalid URL (${call.method} ${call.path})`);
  } catch (error) {
    if (error instanceof ProviderError) return jsonReply(call, error.body(), error.status);
    throw error;
  }
}

function chatReply(api: Api, call: Call, behaviour: Behaviour | undefined): Reply {
  const known = behaviour ? undefined : api.prepared.get(call.body);
  if (known) return chatJsonReply(api, call, known);
  const request = readChatRequest(parseJson(call.body));
  checkModel(api, request.model, "chat");
  const made = answerChat(request, { id: call.id, created: createdAt(call) }, behaviour);
  if (request.stream) {
    const pieces = chatPieces(made, request.includeUsage, behaviour);
    return reply(call, { contentType: "text/event-stream; charset=utf-8", pieces, paceMs: api.paceMs, stream: true });
  }
  const prepared = { tail: chatJsonTail(made, behaviour), tokens: made.tokens };
  // A tool call has an id of its own each time, so that answer is not kept.
  if (!behaviour && !request.tool && call.body.length <= PREPARED_BODY_CHARS_MAX) {
    if (api.prepared.size >= PREPARED_MAX) api.prepared.clear();
    api.prepared.set(call.body, prepared);
  }
  return chatJsonReply(api, call, prepared);
}

function chatJsonReply(api: Api, call: Call, { tail, tokens }: PreparedChat): Reply {
  const json = chatHead(chatId(call.id), createdAt(call), "chat.completion") + tail;
  return { ...jsonReply(call, json), paceMs: api.paceMs * tokens };
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

function imageReply(api: Api, call: Call): Reply {
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

function checkModel({ models }: Api, model: string, use: "chat" | "image"): void {
  if (models === "any") return;
  if (!models.includes(model)) throw unknownModel(model);
  if (model.includes("image") !== (use === "image"))
    throw new ProviderError(400, `The model '${model}' cannot be used for this.`, { param: "model" });
}

function listed({ models }: Api): readonly string[] {
  return models === "any" ? MODELS : models;
}

function createdAt(call: Call): number {
  return Math.floor(call.at / 1_000);
}

/** Like OpenAI's own, it shows a part of the key: a gateway that passes it on has leaked. */
function wrongKey(authorization = ""): ProviderError {
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
