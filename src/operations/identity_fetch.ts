import type { CustomFetchOptions } from "openid-client";
import { assertCallable, mayBePrivate } from "../catalog/guard.ts";
import { firstReachable } from "../platform/connect_any.ts";
import { upstreamFetch, upstreamTarget } from "../platform/runtime.ts";
import type { Owner } from "../platform/share_limit.ts";
import { messageOf } from "../platform/thrown.ts";

/** Calls of identity providers: at public addresses only, by https, without redirects, with limits of time and size. Source: OIDC-10, SEC-3. */

/** Of one call: look-up, connect, headers and body. */
const CALL_MS_MAX = 5_000;
/** Of one answer: keys and groups take some tens of thousands of bytes. */
const ANSWER_BYTES_MAX = 256 * 1024;
const SERVER_ERROR = 500;

/** The provider is not there: it cannot be called, is silent, or fails. The message is for the operator. */
export class IdentityAwayError extends Error {
  override readonly name = "IdentityAwayError";
}

export type IdentityFetchOptions = {
  /** `host:port` pairs that may have private addresses, and speak plain http. */
  allowPrivate: readonly string[];
  /** The seller that named the provider; left out: the operator. */
  owner?: Owner;
};

/** The `fetch` of an identity provider's calls. Throws IdentityAwayError. */
export function identityFetch(options: IdentityFetchOptions) {
  return async (url: string, { method, headers, body }: CustomFetchOptions): Promise<Response> => {
    const stop = new AbortController();
    const late = new IdentityAwayError(`no answer within ${CALL_MS_MAX} ms`);
    const timer = setTimeout(() => stop.abort(late), CALL_MS_MAX);
    try {
      const address = await addressOf(url, options, stop.signal);
      const sent = body instanceof URLSearchParams ? body.toString() : typeof body === "string" ? body : null;
      const response = await upstreamFetch(upstreamTarget(url, address), {
        method,
        // Sign-ins are rare: a kept connection would often be one that the provider is just closing, and a code is sent only once.
        headers: { ...headers, "user-agent": "identity/1", connection: "close" },
        body: sent,
        signal: stop.signal,
      });
      if (response.status >= SERVER_ERROR) {
        await response.body?.cancel();
        throw new IdentityAwayError(`answered with status ${response.status}`);
      }
      const bytes = await readAll(response);
      return new Response(bytes.byteLength === 0 ? null : bytes, {
        status: response.status,
        headers: response.headers,
      });
    } catch (error) {
      if (error instanceof IdentityAwayError) throw error;
      throw stop.signal.aborted ? late : new IdentityAwayError(messageOf(error), { cause: error });
    } finally {
      clearTimeout(timer);
    }
  };
}

async function addressOf(
  url: string,
  { allowPrivate, owner }: IdentityFetchOptions,
  signal: AbortSignal,
): Promise<string> {
  if (!url.startsWith("https:") && !mayBePrivate(url, allowPrivate))
    throw new IdentityAwayError("an address of the identity provider does not begin with https://");
  const guard = { allowPrivate, purpose: "An address of the identity provider" };
  const { addresses, port } = await assertCallable(url, {
    ...guard,
    ...(owner && { owner }),
  });
  return await firstReachable(addresses, port, signal);
}

async function readAll({ body }: Response): Promise<Uint8Array<ArrayBuffer>> {
  if (body === null) return new Uint8Array();
  const reader = body.getReader();
  const pieces: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(Buffer.concat(pieces));
    pieces.push(value);
    size += value.byteLength;
    if (size <= ANSWER_BYTES_MAX) continue;
    reader.cancel().catch(() => {}); // It is closed in any case.
    throw new IdentityAwayError(`answered more than ${ANSWER_BYTES_MAX} bytes`);
  }
}
