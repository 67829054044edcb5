import type { Route } from "../catalog/catalog.ts";
import { fetchGuarded, GuardError } from "../catalog/guard.ts";
import type { ProviderClient } from "../catalog/provider_client.ts";
import { ProviderFailure } from "../catalog/provider_errors.ts";
import type { Body } from "../http/body.ts";
import { patch } from "../http/json_spans.ts";
import { controllerBy } from "../platform/stop.ts";
import type { Attempt } from "./dispatch.ts";
import { filterParameters } from "./parameters.ts";
import { IMAGE_SIZE_DEFAULT, type ImageBody } from "./request_shapes.ts";
import { type ImagePrice, qualityOf } from "./reserve.ts";
import type { Payload } from "./upstream_chat.ts";

/**
 * Image requests to a provider and its answers. The client gets its `response_format`, whatever the provider returns.
 * Source: IMG-1.
 */

const ANSWER_BYTES_MAX = 64 * 1024 * 1024;
const IMAGE_BYTES_MAX = 32 * 1024 * 1024;
const IMAGE_FETCH_MS = 30_000;
/** One image is requested and charged. Without this limit a provider could make us fetch any number. Source: IMG-1. */
const IMAGES_MAX = 1;
const PATH = "/images/generations";

export type ImageCall = Attempt & {
  provider: ProviderClient;
  requestId: string;
  body: ImageBody;
  raw: Body;
  price: ImagePrice;
  totalMs: number;
  allowPrivate: readonly string[];
  createdUnix: number;
};

/** `text` is the JSON that the client gets; `rawUsage` is the provider's usage object, unchanged. */
export type ImageAnswer = { text: string; rawUsage: unknown; dropped: string | undefined };

/** Calls a route and reads its answer. Throws ProviderFailure if it contains no image. */
export async function fetchImageAnswer(call: ImageCall, route: Route): Promise<ImageAnswer> {
  const { provider, requestId, traceparent, beforeSend, signal, totalMs } = call;
  const limits = { signal, requestId, traceparent, beforeSend, totalMs, bytesMax: ANSWER_BYTES_MAX };
  const payload = imagePayload(call, route);
  const answer = parseAnswer(await provider.postWhole(route, PATH, payload.text, limits));
  const data = await Promise.all(answer.data.map((item) => inFormat(item, call)));
  const text = JSON.stringify({
    ...answer,
    created: typeof answer.created === "number" ? answer.created : call.createdUnix,
    model: call.body.model,
    data,
  });
  return { text, rawUsage: answer.usage, dropped: payload.dropped };
}

/** The body for a route: the client's bytes, without dropped parameters, and with the model's upstream name and a size. */
function imagePayload({ body, raw, price }: ImageCall, route: Route): Payload {
  const { changed, dropped } = filterParameters({
    kind: "image",
    body,
    spans: raw.spans,
    allowed: route.allowedParams,
    leaveOut: qualityOf(body) === price.quality ? undefined : "quality",
  });
  const edits = new Map<string, string | null>();
  for (const [name, value] of changed) edits.set(name, value === undefined ? null : JSON.stringify(value));
  if (route.upstreamModel !== body.model) edits.set("model", JSON.stringify(route.upstreamModel));
  // Our default size, not the provider's: it is the one that is charged.
  if (body.size === undefined || body.size === null) edits.set("size", JSON.stringify(IMAGE_SIZE_DEFAULT));
  return { text: patch(raw.text, raw.spans, edits), dropped };
}

type Item = Record<string, unknown>;
type Answer = Item & { data: Item[] };

function parseAnswer(text: string): Answer {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ProviderFailure("not_json", "the answer is not JSON");
  }
  const answer = firstImages(value);
  if (answer === undefined) throw new ProviderFailure("not_json", "the answer contains no image");
  return answer;
}

function firstImages(value: unknown): Answer | undefined {
  if (typeof value !== "object" || value === null || !("data" in value) || !Array.isArray(value.data)) return undefined;
  const data = value.data.slice(0, IMAGES_MAX);
  return data.length > 0 && data.every(isImage) ? { ...value, data } : undefined;
}

function isImage(item: unknown): item is Item {
  if (typeof item !== "object" || item === null) return false;
  const fields: Item = { ...item };
  return (textIn(fields, "url") ?? textIn(fields, "b64_json")) !== undefined;
}

function textIn(item: Item, name: string): string | undefined {
  const value = item[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** One image in the client's format: a URL (a data URL if the provider sent base64), or base64 (fetched if the provider sent a URL). */
async function inFormat(item: Item, call: ImageCall): Promise<Item> {
  const { url: _url, b64_json: _b64, ...rest } = item;
  const url = textIn(item, "url");
  const base64 = textIn(item, "b64_json") ?? base64OfDataUrl(url);
  if (call.body.response_format === "b64_json")
    return { ...rest, b64_json: base64 ?? (await fetchBase64(url as string, call)) };
  return { ...rest, url: url ?? `data:${imageType(base64 as string)};base64,${base64}` };
}

function base64OfDataUrl(url: string | undefined): string | undefined {
  return url === undefined ? undefined : /^data:image\/[\w.+-]+;base64,(.+)$/s.exec(url)?.[1];
}

async function fetchBase64(url: string, { allowPrivate, signal }: ImageCall): Promise<string> {
  const limits = { bytesMax: IMAGE_BYTES_MAX, timeoutMs: IMAGE_FETCH_MS };
  try {
    const { bytes } = await fetchGuarded(url, { ...limits, allowPrivate, signal: controllerBy(signal).signal });
    return Buffer.from(bytes).toString("base64");
  } catch (error) {
    // Without the guard's message, which names the host: a provider could put a prompt into it.
    const why = error instanceof GuardError ? error.kind : "failed";
    throw new ProviderFailure("not_json", `the image could not be fetched from its URL: ${why}`);
  }
}

/** The media type, by the first bytes of the image. */
function imageType(base64: string): string {
  if (base64.startsWith("/9j/")) return "image/jpeg";
  if (base64.startsWith("UklGR")) return "image/webp";
  return "image/png";
}
