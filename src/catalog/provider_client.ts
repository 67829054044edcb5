import type { Config } from "../config.ts";
import { ANSWER_MEMORY_FULL, type HeldAnswer } from "../platform/answer_memory.ts";
import { deadline } from "../platform/deadline.ts";
import type { Log } from "../platform/log.ts";
import { isRecord } from "../platform/records.ts";
import { type UpstreamTarget, upstreamFetch, upstreamTarget } from "../platform/runtime.ts";
import { controllerBy, type StopSignal } from "../platform/stop.ts";
import { createAddressPins } from "./address_pins.ts";
import type { Upstream } from "./catalog.ts";
import { decoded } from "./decoding.ts";
import type { Resolve } from "./guard.ts";
import { cleanWords, ProviderFailure, type Work } from "./provider_errors.ts";
import { callMessageOf, type MediaType, readUpTo, toError } from "./provider_response.ts";

/** Call URLs kept; base URLs change seldom, so this is far more than there are. */
const CALL_URLS_MAX = 10_000;
/** The largest public list of models is well below this. */
const MODELS_BODY_BYTES_MAX = 8 * 1024 * 1024;
const MODELS_MS_MAX = 10_000;
const MODELS_MAX = 20_000;

type Body = string | Uint8Array<ArrayBuffer>;

type CallOptions = {
  /** Ends the call at any moment, its body included. */
  signal: StopSignal;
  /** Sent to the provider as X-Request-Id. */
  requestId?: string;
  /** Sent to the provider unchanged: the span of ours that the call belongs to, never the client's own. */
  traceparent?: string | undefined;
  /** Called when the connection is made, right before the request is sent. If it throws, nothing is sent. */
  beforeSend?: (() => void) | undefined;
};

export type PostOptions = CallOptions & {
  accept: MediaType;
  /** Time limit for the headers; default PROVIDER_FIRST_BYTE_MS. */
  firstByteMs?: number;
};

export type WholeOptions = CallOptions & {
  /** From the call to the last byte. */
  totalMs: number;
  bytesMax: number;
  /** Counts what has arrived as held. `onFull`: it must end, because it holds too much. */
  hold?: (onFull: () => void) => HeldAnswer;
};

export type Ping = { ok: boolean; tookMs: number; models: number; problem: string | null };

export type ProviderClient = {
  /**
   * Sends one request and returns its usable response, body unread: the caller reads it within its own idle and total
   * limits, or cancels it. Throws ProviderFailure, ProviderRejection, or the reason of `signal`.
   */
  post(upstream: Upstream, path: string, body: Body, options: PostOptions): Promise<Response>;
  /**
   * Sends one request and returns the whole JSON of its usable response, not parsed. Throws ProviderFailure (also oversized,
   * timeout, cut), ProviderRejection, or the reason of `signal`.
   */
  postWhole(upstream: Upstream, path: string, body: Body, options: WholeOptions): Promise<string>;
  /** The models that the provider lists. Throws as `post` does. */
  listModels(upstream: Upstream, signal?: StopSignal): Promise<ListedModels>;
  /** Whether the provider answers and accepts the key. Throws only the reason of `signal`. */
  ping(upstream: Upstream, signal?: StopSignal): Promise<Ping>;
  /** Whether a connection to the provider can be made now. Sends nothing; never throws. */
  canConnect(upstream: Upstream): Promise<boolean>;
};

/** `owners`: who owns them, by the list. */
export type ListedModels = { ids: string[]; owners: ReadonlySet<string> };

type Call = {
  method: "GET" | "POST";
  path: string;
  body?: Body;
  accept: MediaType;
  requestId?: string | undefined;
  traceparent?: string | undefined;
  beforeSend?: CallOptions["beforeSend"];
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
export function createProviderClient(deps: ClientDeps): ProviderClient {
  const { config, log, now = () => performance.now() } = deps;
  const { send, pins, urlOf } = createSender({ ...deps, now });

  const whole = wholeBy(send);

  async function listModels(upstream: Upstream, signal: StopSignal): Promise<ListedModels> {
    const totalMs = Math.min(config.providerFirstByteMs, MODELS_MS_MAX);
    const limits = { signal, totalMs, bytesMax: MODELS_BODY_BYTES_MAX };
    return readModels(await whole(upstream, { method: "GET", path: "/models", accept: "application/json" }, limits));
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
      if (!response.ok) throw await toError(response, calledBy(upstream, call, signal));
      return response;
    },

    postWhole(upstream, path, body, options) {
      const { requestId, traceparent, beforeSend } = options;
      const accept = "application/json";
      return whole(upstream, { method: "POST", path, body, accept, requestId, traceparent, beforeSend }, options);
    },

    listModels: (upstream, signal = new AbortController().signal) => listModels(upstream, signal),

    async ping(upstream, signal = new AbortController().signal) {
      const startedAt = now();
      const tookMs = () => Math.round(now() - startedAt);
      try {
        pins.unpin(urlOf(upstream.baseUrl, ""));
        const models = await listModels(upstream, signal);
        return { ok: true, tookMs: tookMs(), models: models.ids.length, problem: null };
      } catch (thrown) {
        signal.throwIfAborted();
        log.debug({ provider: upstream.providerName, err: thrown }, "a provider did not answer its ping");
        return { ok: false, tookMs: tookMs(), models: 0, problem: callMessageOf(thrown) };
      }
    },

    async canConnect(upstream) {
      try {
        await pins.probe(urlOf(upstream.baseUrl, ""));
        return true;
      } catch (thrown) {
        log.debug({ provider: upstream.providerName, err: thrown }, "no connection to a provider could be made");
        return false;
      }
    },
  };
}

/** The URL of a call, and its target at the last address. */
type CallUrl = { readonly url: URL; readonly origin: string; target: UpstreamTarget | undefined };

/** Sends calls, each to the pinned address of its provider. */
function createSender({ config, now, resolve }: ClientDeps & { now: () => number }) {
  const pins = createAddressPins({
    connectMs: config.providerConnectMs,
    allowPrivate: config.providerAllowPrivate,
    now,
    ...(resolve && { resolve }),
  });
  /** By base URL, then path: both strings exist already, so that none is built for each call. */
  const urls = new Map<string, Map<string, CallUrl>>();

  /** A path behind a base URL, parsed once. */
  function urlOf(baseUrl: string, path: string): CallUrl {
    const known = urls.get(baseUrl)?.get(path);
    if (known) return known;
    const url = joinUrl(baseUrl, path);
    const callUrl = { url, origin: url.origin, target: undefined };
    if (urls.size >= CALL_URLS_MAX) urls.clear();
    const byPath = urls.get(baseUrl) ?? new Map<string, CallUrl>();
    urls.set(baseUrl, byPath.set(path, callUrl));
    return callUrl;
  }

  /** Returns when the headers have arrived, whatever they say. */
  async function send(upstream: Upstream, call: Call, signal: AbortSignal): Promise<Response> {
    const callUrl = urlOf(upstream.baseUrl, call.path);
    signal.throwIfAborted();
    const address = pins.pinned(callUrl) ?? (await pins.connected(callUrl, signal));
    call.beforeSend?.();
    try {
      if (callUrl.target?.address !== address) callUrl.target = upstreamTarget(callUrl.url, address);
      const init = { method: call.method, headers: headersOf(upstream, call), body: call.body ?? null, signal };
      const response = decoded(await upstreamFetch(callUrl.target, init));
      pins.answered(callUrl);
      return response;
    } catch (thrown) {
      // A client that disconnected says nothing about the provider; a time limit that was exceeded does.
      if (!signal.aborted || signal.reason instanceof ProviderFailure) pins.unpin(callUrl);
      signal.throwIfAborted();
      // The connection existed a moment ago: the request itself may have made the provider close it.
      throw new ProviderFailure("hung_up", cleanWords(callMessageOf(thrown), [upstream.apiKey.reveal()]));
    }
  }

  return { send, pins, urlOf };
}

/** Sends calls, and reads their whole answers. */
function wholeBy(send: ReturnType<typeof createSender>["send"]) {
  return async (upstream: Upstream, call: Call, { signal, totalMs, bytesMax, hold }: WholeOptions): Promise<string> => {
    let isSent = false;
    const beforeSend = () => {
      call.beforeSend?.();
      isSent = true;
    };
    // Most providers send no headers before the answer is complete, so a request that was sent counts as accepted.
    const limit = limitedBy(signal, totalMs, (ms) => wholeTooLate(ms, isSent ? "begun" : "none"));
    const held = hold?.(() => limit.abort(memoryFull()));
    try {
      const response = await send(upstream, { ...call, beforeSend }, limit.signal);
      if (!response.ok) throw await toError(response, calledBy(upstream, call, limit.signal));
      return await readUpTo(response, { bytesMax, signal: limit.signal, held });
    } finally {
      held?.close();
      limit.stopClock();
    }
  };
}

function calledBy({ apiKey }: Upstream, { body }: Call, signal: StopSignal) {
  return { apiKey, sent: body ?? "", signal };
}

/** A signal that aborts with `signal`, or with `late(ms)` after `ms`. After `stopClock` only with `signal`. */
function limitedBy(
  signal: StopSignal,
  ms: number,
  late: (ms: number) => ProviderFailure,
): { signal: AbortSignal; abort: (reason: ProviderFailure) => void; stopClock: () => void } {
  const limit = controllerBy(signal);
  const abort = (reason: ProviderFailure) => limit.abort(reason);
  return { signal: limit.signal, abort, stopClock: deadline(ms, () => limit.abort(late(ms))) };
}

function headersTooLate(firstByteMs: number): ProviderFailure {
  return new ProviderFailure("timeout", `No headers within ${firstByteMs} ms.`, { limit: "provider_first_byte" });
}

function memoryFull(): ProviderFailure {
  return new ProviderFailure("no_memory", ANSWER_MEMORY_FULL, { work: "too_large" });
}

function wholeTooLate(totalMs: number, work: Work): ProviderFailure {
  return new ProviderFailure("timeout", `No whole answer within ${totalMs} ms.`, { limit: "provider_total", work });
}

/** All headers that a provider gets. None comes from the client. */
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

/** Appends `path` to the path of `baseUrl`. Its query stays, since some providers put a version there. */
function joinUrl(baseUrl: string, path: string): URL {
  const url = URL.parse(baseUrl);
  if (!url) throw new ProviderFailure("address", "The provider's base URL is not a URL.");
  let base = url.pathname;
  while (base.endsWith("/")) base = base.slice(0, -1);
  url.pathname = base + path;
  return url;
}

function readModels(text: string): ListedModels {
  const notAList = () => new ProviderFailure("not_json", "Its list of models cannot be read.");
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw notAList();
  }
  const list = typeof parsed === "object" && parsed !== null && "data" in parsed ? parsed.data : parsed;
  if (!Array.isArray(list)) throw notAList();
  const models = list.slice(0, MODELS_MAX).filter(isRecord);
  const textsOf = (name: "id" | "owned_by") =>
    models.map((model) => model[name]).filter((text) => typeof text === "string");
  return { ids: textsOf("id"), owners: new Set(textsOf("owned_by")) };
}
