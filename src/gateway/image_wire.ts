import type { Route } from "../catalog/catalog.ts";
import { fetchGuarded } from "../catalog/guard.ts";
import { type ProviderClient, readLimited } from "../catalog/provider_client.ts";
import { ProviderFailure } from "../catalog/provider_errors.ts";
import { Refusal } from "../errors.ts";
import type { Body } from "./body.ts";
import { patch } from "./json_spans.ts";
import { IMAGE_SIZE_DEFAULT, type ImageBody, PROMPT_CHARS } from "./wire.ts";

/** Images on the wire to a provider and back: `response_format` is met whatever the provider returns. Source: rulings › Images. */

const ANSWER_BYTES_MAX = 64 * 1024 * 1024;
const IMAGE_BYTES_MAX = 32 * 1024 * 1024;
const IMAGE_FETCH_MS = 30_000;
const PATH = "/images/generations";

export type ImageCall = {
  provider: ProviderClient;
  requestId: string;
  body: ImageBody;
  raw: Body;
  signal: AbortSignal;
  totalMs: number;
  allowPrivate: readonly string[];
  createdUnix: number;
};

/** The rule that the shape cannot hold: the prompt's length in code points. Throws invalid_request. */
export function checkPrompt({ prompt }: ImageBody): void {
  let chars = 0;
  for (const _ of prompt) if (++chars > PROMPT_CHARS.max) break;
  if (chars >= PROMPT_CHARS.min && chars <= PROMPT_CHARS.max) return;
  throw new Refusal("invalid_request", {
    message: `The field prompt must have ${PROMPT_CHARS.min} to ${PROMPT_CHARS.max} characters.`,
    param: "prompt",
  });
}

/** Calls a route and returns the answer's JSON for the client. Throws ProviderFailure when it brings no image. */
export async function fetchImageAnswer(call: ImageCall, route: Route): Promise<string> {
  const { provider, requestId, signal, totalMs } = call;
  const startMs = performance.now();
  const response = await provider.post(route, PATH, imagePayload(call, route), {
    signal,
    requestId,
    firstByteMs: totalMs,
    accept: "application/json",
  });
  const bytes = await readLimited(response, ANSWER_BYTES_MAX, signal, totalMs - (performance.now() - startMs));
  const answer = parseAnswer(new TextDecoder().decode(bytes));
  const data = await Promise.all(answer.data.map((item) => inFormat(item, call)));
  return JSON.stringify({
    ...answer,
    created: typeof answer.created === "number" ? answer.created : call.createdUnix,
    model: call.body.model,
    data,
  });
}

function imagePayload({ body, raw }: ImageCall, route: Route): string | Uint8Array<ArrayBuffer> {
  const edits = new Map<string, string | null>();
  if (route.upstreamModel !== body.model) edits.set("model", JSON.stringify(route.upstreamModel));
  // Our default, not the provider's: it is what the balance pays for.
  if (body.size === undefined || body.size === null) edits.set("size", JSON.stringify(IMAGE_SIZE_DEFAULT));
  const text = patch(raw.text, raw.spans, edits);
  return text === raw.text ? raw.bytes : text;
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
  if (!isAnswer(value)) throw new ProviderFailure("not_json", "the answer brings no image");
  return value;
}

function isAnswer(value: unknown): value is Answer {
  if (typeof value !== "object" || value === null || !("data" in value) || !Array.isArray(value.data)) return false;
  return (
    value.data.length > 0 &&
    value.data.every(
      (item) => typeof item === "object" && item !== null && (textIn(item, "url") ?? textIn(item, "b64_json")),
    )
  );
}

function textIn(item: Item, name: string): string | undefined {
  const value = item[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** One image as the client asked for it: a URL (a data URL where the provider gave bytes) or base64 (fetched where it gave a URL). */
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
    const { bytes } = await fetchGuarded(url, { ...limits, allowPrivate, signal });
    return Buffer.from(bytes).toString("base64");
  } catch (error) {
    throw new ProviderFailure(
      "not_json",
      `the image could not be fetched: ${error instanceof Error ? error.message : error}`,
    );
  }
}

/** The media type by the first bytes of the image. */
function imageType(base64: string): string {
  if (base64.startsWith("/9j/")) return "image/jpeg";
  if (base64.startsWith("UklGR")) return "image/webp";
  return "image/png";
}
