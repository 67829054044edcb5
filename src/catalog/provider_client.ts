import type { Config } from "../config.ts";
import { deadline } from "../platform/deadline.ts";
import type { Log } from "../platform/log.ts";
import { type UpstreamTarget, upstreamFetch, upstreamTarget } from "../platform/runtime.ts";
import { controllerBy, type StopSignal } from "../platform/stop.ts";
import { createReach, orAborted } from "./address_pins.ts";
import type { Route } from "./catalog.ts";
import type { Resolve } from "./guard.ts";
import { withoutEcho } from "./prompt_redaction.ts";
import { cleanWords, ProviderFailure, type ProviderRejection, toProviderError } from "./provider_errors.ts";

/** Of an error's body, read to learn why. */
const ERROR_BODY_BYTES_MAX = 64 * 1024;
const ERROR_BODY_MS_MAX = 5_000;
/** Places remembered; base URLs change seldom, so this is far more than there are. */
const PLACES_MAX = 10_000;
/** The largest public list of models is well below this. */
const MODELS_BODY_BYTES_MAX = 8 * 1024 * 1024;
const MODELS_MS_MAX = 10_000;
const MODELS_MAX = 20_000;

/** What is needed to call a provider; a Route has it. */
export type Upstream = Pick<Route, "providerName" | "baseUrl" | "apiKey">;

export type PostOptions = {
  /** Ends the call at any moment, its body included. */
  signal: StopSignal;
  accept: "application/json" | "text/event-stream";
  /** Until the headers; default PROVIDER_FIRST_BYTE_MS. */
  firstByteMs?: number;
  /** Told to the provider as X-Request-Id. */
  requestId?: string;
  /** Told to it as it stands: the span that it works for. Never the client's own. */
  traceparent?: string | undefined;
  /** Called once the provider is connected to, right before the request is sent. If it throws, nothing is sent. */
  beforeSend?: (() => void) | undefined;
};

export type WholeOptions = Pick<PostOptions, "signal" | "requestId" | "traceparent" | "beforeSend"> & {
  /** From the call to the last byte. */
  totalMs: number;
  bytesMax: number;
};

export type Ping = { ok: boolean; tookMs: number; models: number; problem: string | null };

export type ProviderClient = {
  /**
   * Sends one request and returns its good answer, body unread: the caller reads it within its own idle and total
   * limits, or cancels it. Throws ProviderFailure, ProviderRejection, or the reason of `signal`.
   */
  post(
    upstream: Upstream,
    path: string,
    body: string | Uint8Array<ArrayBuffer>,
    options: PostOptions,
  ): Promise<Response>;
  /**
   * Sends one request and returns its good answer's JSON, whole, not yet parsed. Throws ProviderFailure (also oversized, timeout,
   * cut), ProviderRejection, or the reason of `signal`.
   */
  postWhole(
    upstream: Upstream,
    path: string,
    body: string | Uint8Array<ArrayBuffer>,
    options: WholeOptions,
  ): Promise<string>;
  /** The ids of the models that the provider names. Throws as `post` does. */
  listModels(upstream: Upstream, signal?: StopSignal): Promise<string[]>;
  /** Whether the provider is there and takes the key. Never throws but for the reason of `signal`. */
  ping(upstream: Upstream, signal?: StopSignal): Promise<Ping>;
  /** Whether the provider can be connected to now. Sends nothing; never throws. */
  canConnect(upstream: Upstream): Promise<boolean>;
};

/** Where a call goes, and the target that its last address made of it. */
type Place = { readonly url: URL; readonly origin: string; target: UpstreamTarget | undefined };

type Call = {
  method: "GET" | "POST";
  path: string;
  body?: string | Uint8Array<ArrayBuffer>;
  requestId?: string | undefined;
  traceparent?: string | undefined;
  beforeSend?: PostOptions["beforeSend"];
  accept: PostOptions["accept"];
};

type ClientDeps = {
  config: Pick<Config, "providerConnectMs" | "providerFirstByteMs" | "providerAllowPrivate">;
  log: Log;
  /** A monotonic clock, ms. */
  now?: () => number;
  /** Looks a name up. Only tests give one. */
  resolve?: Resolve;
};

/** Calls providers: fixed headers, guarded addresses, no redirects, a limit on every wait. */
export function createProviderClient({
  config,
  log,
  now = () => performance.now(),
  resolve,
}: ClientDeps): ProviderClient {
  const reach = createReach({
    connectMs: config.providerConnectMs,
    allowPrivate: config.providerAllowPrivate,
    now,
    ...(resolve && { resolve }),
  });

  /** By base URL, and path: two texts that stay the same, where one made of both would be made anew for each call. */
  const places = new Map<string, Map<string, Place>>();

  /** A path behind a base URL, worked out once. */
  function placeOf(baseUrl: string, path: string): Place {
    const known = places.get(baseUrl)?.get(path);
    if (known) return known;
    const url = addressOf(baseUrl, path);
    const place = { url, origin: url.origin, target: undefined };
    if (places.size >= PLACES_MAX) places.clear();
    const ofBase = places.get(baseUrl) ?? new Map<string, Place>();
    places.set(baseUrl, ofBase.set(path, place));
    return place;
  }

  /** Up to the headers, whatever they say. */
  async function send(upstream: Upstream, call: Call, signal: AbortSignal): Promise<Response> {
    const place = placeOf(upstream.baseUrl, call.path);
    signal.throwIfAborted();
    const address = reach.known(place) ?? (await reach.ensure(place, signal));
    call.beforeSend?.();
    try {
      if (place.target?.address !== address) place.target = upstreamTarget(place.url, address);
      const init = { method: call.method, headers: headersOf(upstream, call), body: call.body ?? null, signal };
      const response = await upstreamFetch(place.target, init);
      reach.reached(place);
      return response;
    } catch (thrown) {
      // A caller who left says nothing about the provider; a limit that it passed does.
      if (!signal.aborted || signal.reason instanceof ProviderFailure) reach.lost(place);
      signal.throwIfAborted();
      // The connection stood a moment ago: a request may be what made the provider close it.
      throw new ProviderFailure("hung_up", cleanWords(messageOf(thrown), [upstream.apiKey.reveal()]));
    }
  }

  async function whole(upstream: Upstream, call: Call, { signal, totalMs, bytesMax }: WholeOptions): Promise<string> {
    const limit = limitedBy(signal, totalMs, wholeTooLate);
    try {
      const response = await send(upstream, call, limit.signal);
      if (!isGood(response, call.accept)) throw await toError(response, { upstream, call, signal: limit.signal });
      return await readUpTo(response, bytesMax, limit.signal);
    } finally {
      limit.stopClock();
    }
  }

  return {
    async post(upstream, path, body, options) {
      const { signal, accept, firstByteMs = config.providerFirstByteMs, requestId, traceparent, beforeSend } = options;
      const limit = limitedBy(signal, firstByteMs, headersTooLate);
      const call = { method: "POST", path, body, accept, requestId, traceparent, beforeSend } as const;
      let response: Response;
      try {
        response = await send(upstream, call, limit.signal);
      } finally {
        limit.stopClock();
      }
      if (!isGood(response, accept)) throw await toError(response, { upstream, call, signal });
      return response;
    },

    postWhole(upstream, path, body, options) {
      const { requestId, traceparent, beforeSend } = options;
      return whole(
        upstream,
        { method: "POST", path, body, accept: "application/json", requestId, traceparent, beforeSend },
        options,
      );
    },

    listModels: (upstream, signal = new AbortController().signal) => listModels(upstream, signal),

    async ping(upstream, signal = new AbortController().signal) {
      const startedAt = now();
      const tookMs = () => Math.round(now() - startedAt);
      try {
        reach.lost(placeOf(upstream.baseUrl, ""));
        const models = await listModels(upstream, signal);
        return { ok: true, tookMs: tookMs(), models: models.length, problem: null };
      } catch (thrown) {
        signal.throwIfAborted();
        log.debug({ provider: upstream.providerName, err: thrown }, "a provider did not answer its ping");
        return { ok: false, tookMs: tookMs(), models: 0, problem: messageOf(thrown) };
      }
    },

    async canConnect(upstream) {
      try {
        await reach.check(placeOf(upstream.baseUrl, ""));
        return true;
      } catch (thrown) {
        log.debug({ provider: upstream.providerName, err: thrown }, "a provider cannot be connected to");
        return false;
      }
    },
  };

  async function listModels(upstream: Upstream, signal: StopSignal): Promise<string[]> {
    const totalMs = Math.min(config.providerFirstByteMs, MODELS_MS_MAX);
    const limits = { signal, totalMs, bytesMax: MODELS_BODY_BYTES_MAX };
    return readModelIds(await whole(upstream, { method: "GET", path: "/models", accept: "application/json" }, limits));
  }
}

/** A signal that ends with `signal`, or with what `late` makes once `ms` have passed. `stopClock`: from now on only with `signal`. */
function limitedBy(
  signal: StopSignal,
  ms: number,
  late: (ms: number) => ProviderFailure,
): { signal: AbortSignal; stopClock: () => void } {
  const limit = controllerBy(signal);
  return { signal: limit.signal, stopClock: deadline(ms, () => limit.abort(late(ms))) };
}

function headersTooLate(firstByteMs: number): ProviderFailure {
  return new ProviderFailure("timeout", `No headers within ${firstByteMs} ms.`, { limit: "provider_first_byte" });
}

function wholeTooLate(totalMs: number): ProviderFailure {
  return new ProviderFailure("timeout", `No whole answer within ${totalMs} ms.`, { limit: "provider_total" });
}

/** The body's text; what is left of one that is too large is let go. Throws ProviderFailure (oversized, cut) or the reason of `signal`. */
export async function readUpTo(response: Response, bytesMax: number, signal: AbortSignal): Promise<string> {
  try {
    // Of a length that is known and fits, the runtime makes one text, for a fraction of what a stream costs. It ends with the call.
    const declared = response.headers.get("content-length");
    if (declared !== null && Number(declared) <= bytesMax) return await response.text();
    const { pieces, isWhole } = await readPieces(response, bytesMax, signal);
    if (isWhole) return new TextDecoder().decode(Buffer.concat(pieces));
  } catch (thrown) {
    signal.throwIfAborted();
    throw new ProviderFailure("cut", `The answer broke off. ${cleanWords(messageOf(thrown))}`);
  }
  throw new ProviderFailure("oversized", `The answer is larger than ${bytesMax} bytes.`);
}

/** The body, or its first pieces, until they are more than `bytesMax`; what is left of it is let go. Throws what the body throws, or the reason of `signal`. */
async function readPieces(
  response: Response,
  bytesMax: number,
  signal: AbortSignal,
): Promise<{ pieces: Uint8Array[]; isWhole: boolean }> {
  const pieces: Uint8Array[] = [];
  const reader = response.body?.getReader();
  if (!reader) return { pieces, isWhole: true };
  let size = 0;
  let isWhole = false;
  try {
    while (size <= bytesMax) {
      const { done, value } = await orAborted(reader.read(), signal);
      if (done) {
        isWhole = true;
        break;
      }
      pieces.push(value);
      size += value.byteLength;
    }
  } finally {
    // Not waited for: a provider that hangs would hang us too.
    if (!isWhole) reader.cancel().catch(() => {});
  }
  return { pieces, isWhole };
}

/** Whether an answer is what was asked for, as far as its head tells. */
function isGood(response: Response, accept: PostOptions["accept"]): boolean {
  return response.ok && !isEncoded(response) && isFitting(mediaTypeOf(response), accept);
}

/** What a bad answer means, its body read or let go. */
async function toError(
  response: Response,
  { upstream, call, signal }: { upstream: Upstream; call: Call; signal: StopSignal },
): Promise<ProviderFailure | ProviderRejection> {
  if (response.ok) {
    letGo(response);
    return problemOf(response, call.accept);
  }
  const { status } = response;
  const secrets = [upstream.apiKey.reveal()];
  const isRedirect = response.type === "opaqueredirect" || (status >= 300 && status < 400);
  if (isRedirect || isEncoded(response)) {
    letGo(response);
    if (isRedirect) return new ProviderFailure("redirect", "It answered with a redirect.", { status });
    // Its words cannot be read, but its status can.
    return toProviderError({ status, text: "", retryAfter: response.headers.get("retry-after"), secrets });
  }
  const limit = limitedBy(signal, ERROR_BODY_MS_MAX, wholeTooLate);
  const text = await readPieces(response, ERROR_BODY_BYTES_MAX, limit.signal)
    .then(
      ({ pieces }) => new TextDecoder().decode(Buffer.concat(pieces).subarray(0, ERROR_BODY_BYTES_MAX)),
      (thrown: unknown) => {
        signal.throwIfAborted();
        return messageOf(thrown); // The status is enough to go on with.
      },
    )
    .finally(limit.stopClock);
  const sent = call.body ?? "";
  // No error's words may quote the request's body.
  const words = withoutEcho(text, typeof sent === "string" ? sent : new TextDecoder().decode(sent));
  return toProviderError({ status, text: words, retryAfter: response.headers.get("retry-after"), secrets });
}

function problemOf(response: Response, accept: PostOptions["accept"]): ProviderFailure {
  const { status } = response;
  // Compressed bytes could be a thousand times their size, and nobody asked for them.
  if (isEncoded(response))
    return new ProviderFailure("encoded", "It answered compressed, which was not asked for.", { status });
  const words = cleanWords(mediaTypeOf(response)) || "no content type";
  return new ProviderFailure("not_json", `It answered with ${words} in place of ${accept}.`, { status });
}

function mediaTypeOf(response: Response): string {
  return (response.headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
}

function isFitting(mediaType: string, accept: PostOptions["accept"]): boolean {
  if (mediaType === accept) return true;
  return accept === "application/json" && /^application\/(?:[\w.+-]+\+)?json$/.test(mediaType);
}

function isEncoded(response: Response): boolean {
  const encoding = response.headers.get("content-encoding");
  return encoding !== null && encoding.trim().toLowerCase() !== "identity";
}

function letGo(response: Response): void {
  response.body?.cancel().catch(() => {}); // Already broken: then there is nothing to let go of.
}

/** The whole list of what a provider gets to see. Never a header of the client's. */
function headersOf(
  { apiKey }: Upstream,
  { body, accept, requestId, traceparent }: Pick<Call, "body" | "accept" | "requestId" | "traceparent">,
): Record<string, string> {
  const headers: Record<string, string> = {
    authorization: `Bearer ${apiKey.reveal()}`,
    accept,
    "accept-encoding": "identity",
    "user-agent": "tollgate",
  };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (requestId !== undefined) headers["x-request-id"] = requestId;
  if (traceparent !== undefined) headers.traceparent = traceparent;
  return headers;
}

/** `baseUrl` with `path` behind its own; a query in it stays, since some providers carry a version there. */
function addressOf(baseUrl: string, path: string): URL {
  const url = URL.parse(baseUrl);
  if (!url) throw new ProviderFailure("address", "The provider's base URL is not a URL.");
  let base = url.pathname;
  while (base.endsWith("/")) base = base.slice(0, -1);
  url.pathname = base + path;
  return url;
}

function readModelIds(text: string): string[] {
  const notAList = () => new ProviderFailure("not_json", "Its list of models cannot be read.");
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw notAList();
  }
  const list = typeof parsed === "object" && parsed !== null && "data" in parsed ? parsed.data : parsed;
  if (!Array.isArray(list)) throw notAList();
  return list
    .slice(0, MODELS_MAX)
    .map((model: unknown) => (typeof model === "object" && model !== null && "id" in model ? model.id : undefined))
    .filter((id) => typeof id === "string");
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Deno says only "fetch failed" and tells the rest in the cause.
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}
