import type { Config } from "../config.ts";
import type { Log } from "../platform/log.ts";
import { upstreamFetch } from "../platform/runtime.ts";
import type { Route } from "./catalog.ts";
import type { Resolve } from "./guard.ts";
import { cleanWords, ProviderFailure, type ProviderRejection, toProviderError } from "./provider_errors.ts";
import { createReach, orAborted } from "./reach.ts";

/** Of an error's body, read to learn why. */
const ERROR_BODY_BYTES_MAX = 64 * 1024;
const ERROR_BODY_MS_MAX = 5_000;
/** The largest public list of models is well below this. */
const MODELS_BODY_BYTES_MAX = 8 * 1024 * 1024;
const MODELS_MS_MAX = 10_000;
const MODELS_MAX = 20_000;

/** What is needed to call a provider; a Route has it. */
export type Upstream = Pick<Route, "providerName" | "baseUrl" | "apiKey">;

export type PostOptions = {
  /** Ends the call at any moment, its body included. */
  signal: AbortSignal;
  accept: "application/json" | "text/event-stream";
  /** Until the headers; default PROVIDER_FIRST_BYTE_MS. An answer that is not streamed has its headers when it is whole. */
  firstByteMs?: number;
  /** Told to the provider as X-Request-Id. */
  requestId?: string;
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
  /** The ids of the models that the provider names. Throws as `post` does. */
  listModels(upstream: Upstream, signal?: AbortSignal): Promise<string[]>;
  /** Whether the provider is there and takes the key. Never throws but for the reason of `signal`. */
  ping(upstream: Upstream, signal?: AbortSignal): Promise<Ping>;
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

  type Call = {
    method: "GET" | "POST";
    path: string;
    body?: string | Uint8Array<ArrayBuffer>;
    requestId?: string | undefined;
    accept: PostOptions["accept"];
  };

  /** Up to the headers, whatever they say. */
  async function send(
    upstream: Upstream,
    call: Call,
    limits: { signal: AbortSignal; firstByteMs: number },
  ): Promise<Response> {
    const url = addressOf(upstream.baseUrl, call.path);
    await reach.ensure(url, limits.signal);
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(), limits.firstByteMs);
    try {
      const response = await upstreamFetch(url, {
        method: call.method,
        headers: headersOf(upstream, call),
        body: call.body ?? null,
        signal: AbortSignal.any([limits.signal, deadline.signal]),
      });
      reach.reached(url);
      return response;
    } catch (thrown) {
      limits.signal.throwIfAborted();
      reach.lost(url);
      if (deadline.signal.aborted) throw new ProviderFailure("timeout", `No headers within ${limits.firstByteMs} ms.`);
      throw new ProviderFailure("connect", cleanWords(messageOf(thrown), [upstream.apiKey.reveal()]));
    } finally {
      clearTimeout(timer);
    }
  }

  async function listModels(upstream: Upstream, signal: AbortSignal): Promise<string[]> {
    const call: Call = { method: "GET", path: "/models", accept: "application/json" };
    const response = await send(upstream, call, {
      signal,
      firstByteMs: Math.min(config.providerFirstByteMs, MODELS_MS_MAX),
    });
    await assertGood(response, { accept: call.accept, signal, secrets: [upstream.apiKey.reveal()] });
    return readModelIds(await readLimited(response, MODELS_BODY_BYTES_MAX, signal, MODELS_MS_MAX));
  }

  return {
    async post(upstream, path, body, { signal, accept, firstByteMs = config.providerFirstByteMs, requestId }) {
      const response = await send(upstream, { method: "POST", path, body, accept, requestId }, { signal, firstByteMs });
      await assertGood(response, { accept, signal, secrets: [upstream.apiKey.reveal()] });
      return response;
    },

    listModels: (upstream, signal = new AbortController().signal) => listModels(upstream, signal),

    async ping(upstream, signal = new AbortController().signal) {
      const startedAt = now();
      const tookMs = () => Math.round(now() - startedAt);
      try {
        reach.lost(addressOf(upstream.baseUrl, ""));
        const models = await listModels(upstream, signal);
        return { ok: true, tookMs: tookMs(), models: models.length, problem: null };
      } catch (thrown) {
        signal.throwIfAborted();
        log.debug({ provider: upstream.providerName, err: thrown }, "a provider did not answer its ping");
        return { ok: false, tookMs: tookMs(), models: 0, problem: messageOf(thrown) };
      }
    },
  };
}

/**
 * A body whole, at most `bytesMax` bytes within `totalMs` from now. Throws ProviderFailure (oversized, timeout, cut) or
 * the reason of `signal`; the rest of the body is let go.
 */
export async function readLimited(
  response: Response,
  bytesMax: number,
  signal: AbortSignal,
  totalMs: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const { bytes, isWhole } = await readUpTo(response, bytesMax, signal, totalMs);
  if (!isWhole) throw new ProviderFailure("oversized", `The answer is larger than ${bytesMax} bytes.`);
  return bytes;
}

/** The body, or its first `bytesMax` bytes; what is left of it is cancelled. */
async function readUpTo(
  response: Response,
  bytesMax: number,
  signal: AbortSignal,
  totalMs: number,
): Promise<{ bytes: Uint8Array<ArrayBuffer>; isWhole: boolean }> {
  const reader = response.body?.getReader();
  if (!reader) return { bytes: new Uint8Array(), isWhole: true };
  const deadline = new AbortController();
  const timer = setTimeout(
    () => deadline.abort(new ProviderFailure("timeout", `No whole answer within ${totalMs} ms.`)),
    totalMs,
  );
  const limit = AbortSignal.any([signal, deadline.signal]);
  const chunks: Uint8Array[] = [];
  let size = 0;
  let isWhole = false;
  try {
    while (size <= bytesMax) {
      const { done, value } = await orAborted(reader.read(), limit);
      if (done) {
        isWhole = true;
        break;
      }
      chunks.push(value);
      size += value.byteLength;
    }
  } catch (thrown) {
    limit.throwIfAborted();
    throw new ProviderFailure("cut", `The answer broke off. ${cleanWords(messageOf(thrown))}`);
  } finally {
    clearTimeout(timer);
    // Not waited for: a provider that hangs would hang us too.
    if (!isWhole) reader.cancel().catch(() => {});
  }
  const all = Buffer.concat(chunks);
  return { bytes: new Uint8Array(all.subarray(0, bytesMax)), isWhole };
}

type AnswerFacts = { accept: PostOptions["accept"]; signal: AbortSignal; secrets: readonly string[] };

/** Throws what a bad answer means, its body read or let go. */
async function assertGood(response: Response, { accept, signal, secrets }: AnswerFacts): Promise<void> {
  if (!response.ok) throw await toError(response, signal, secrets);
  const problem = problemOf(response, accept);
  if (!problem) return;
  letGo(response);
  throw problem;
}

async function toError(
  response: Response,
  signal: AbortSignal,
  secrets: readonly string[],
): Promise<ProviderFailure | ProviderRejection> {
  const { status } = response;
  const isRedirect = response.type === "opaqueredirect" || (status >= 300 && status < 400);
  if (isRedirect || isEncoded(response)) {
    letGo(response);
    if (isRedirect) return new ProviderFailure("redirect", "It answered with a redirect.", { status });
    // Its words cannot be read, but its status can.
    return toProviderError({ status, text: "", retryAfter: response.headers.get("retry-after"), secrets });
  }
  const text = await readUpTo(response, ERROR_BODY_BYTES_MAX, signal, ERROR_BODY_MS_MAX).then(
    ({ bytes }) => new TextDecoder().decode(bytes),
    (thrown: unknown) => {
      signal.throwIfAborted();
      return messageOf(thrown); // The status is enough to go on with.
    },
  );
  return toProviderError({ status, text, retryAfter: response.headers.get("retry-after"), secrets });
}

function problemOf(response: Response, accept: PostOptions["accept"]): ProviderFailure | undefined {
  const { status } = response;
  // Compressed bytes could be a thousand times their size, and nobody asked for them.
  if (isEncoded(response))
    return new ProviderFailure("encoded", "It answered compressed, which was not asked for.", { status });
  const mediaType = (response.headers.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  const isFitting =
    accept === "application/json" ? /^application\/(?:[\w.+-]+\+)?json$/.test(mediaType) : mediaType === accept;
  if (isFitting) return undefined;
  return new ProviderFailure(
    "not_json",
    `It answered with ${cleanWords(mediaType) || "no content type"} in place of ${accept}.`,
    { status },
  );
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
  { body, accept, requestId }: { body?: unknown; accept: string; requestId?: string | undefined },
): Record<string, string> {
  return {
    authorization: `Bearer ${apiKey.reveal()}`,
    ...(body !== undefined && { "content-type": "application/json" }),
    accept,
    "accept-encoding": "identity",
    "user-agent": "tollgate",
    ...(requestId !== undefined && { "x-request-id": requestId }),
  };
}

/** `baseUrl` with `path` behind its own; a query in it stays, since some providers carry a version there. */
function addressOf(baseUrl: string, path: string): URL {
  const url = URL.parse(baseUrl);
  if (!url) throw new ProviderFailure("address", "The provider's base URL is not a URL.");
  url.pathname = url.pathname.replace(/\/+$/, "") + path;
  return url;
}

function readModelIds(bytes: Uint8Array): string[] {
  const notAList = () => new ProviderFailure("not_json", "Its list of models cannot be read.");
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder().decode(bytes));
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
