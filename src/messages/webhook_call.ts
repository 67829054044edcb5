import { Webhook } from "standardwebhooks";
import { assertCallable, GuardError, mayBePrivate, type Resolve } from "../catalog/guard.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { WEBHOOK_URL_CHARS_MAX } from "../limits.ts";
import { firstReachable } from "../platform/connect_any.ts";
import { upstreamFetch, upstreamTarget } from "../platform/runtime.ts";
import type { Owner } from "../platform/share_limit.ts";
import { within } from "../platform/time_limit.ts";
import type { Outcome } from "./claims_store.ts";

/** Calls a webhook: signed by the Standard Webhooks scheme, at public addresses only, without redirects. Source: MSG-9. */

const LOOK_UP_MS_MAX = 5_000;
const CALL_MS_MAX = 15_000;
/** Bytes of the answer that are read. */
const ANSWER_BYTES_MAX = 512;
/** The status by which a receiver says that the endpoint is gone for good. */
export const GONE = 410;

/** A POST of JSON to a server that somebody else has chosen. */
export type OutsideCall = {
  url: string;
  headers: Readonly<Record<string, string>>;
  body: string;
  allowPrivate: readonly string[];
  /** Whose server it is; left out: the operator's. */
  owner?: Owner;
  /** Looks up the host. Only tests set it. */
  resolve?: Resolve;
};
export type WebhookCall = Omit<OutsideCall, "headers"> & Signed;
type Signed = {
  /** As `whsec_…`; a call has one signature for each. */
  secrets: string[];
  /** The same in each attempt. */
  messageId: string;
  /** Unix time, ms. */
  unixMs: number;
  body: string;
};

/** The URL of an endpoint, as it is stored. Throws InputError, also for an address that is not public, and too_many_requests. */
export async function checkWebhookUrl(
  typed: string,
  options: Pick<OutsideCall, "allowPrivate" | "owner">,
): Promise<string> {
  const url = typed.trim();
  if (url.length > WEBHOOK_URL_CHARS_MAX)
    throw new InputError(
      sentence("The URL may have at most {webhookUrlCharsMax} characters.", {
        webhookUrlCharsMax: WEBHOOK_URL_CHARS_MAX,
      }),
      "url",
    );
  try {
    const checked = await look({ url, ...options });
    // Without https, events could be read on their way. A private address that the operator allowed is in its own
    // network.
    if (checked.url.protocol !== "https:" && !mayBePrivate(url, options.allowPrivate))
      throw new InputError("The URL must begin with https://.", "url");
    return checked.url.href;
  } catch (error) {
    if (error instanceof InputError || error instanceof Refusal) throw error;
    throw new InputError(error instanceof GuardError ? error.message : "The URL's host cannot be looked up.", "url");
  }
}

/** Makes one signed call. Never throws: every failure is an outcome. */
export async function callWebhook({ secrets, messageId, unixMs, ...call }: WebhookCall): Promise<Outcome> {
  return await callOutside({ ...call, headers: signatureOf({ secrets, messageId, unixMs, body: call.body }) });
}

/** Makes one call. Never throws: every failure is an outcome. */
export async function callOutside(call: OutsideCall): Promise<Outcome> {
  const startMs = performance.now();
  const ended = (outcome: Omit<Outcome, "tookMs">): Outcome => ({ ...outcome, tookMs: performance.now() - startMs });
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(new Error(`no answer within ${CALL_MS_MAX / 1000} s`)), CALL_MS_MAX);
  try {
    const { url, port, addresses } = await look(call);
    const address = await firstReachable(addresses, port, stop.signal);
    const response = await upstreamFetch(upstreamTarget(url, address), {
      method: "POST",
      headers: { "content-type": "application/json", "user-agent": "webhooks/1", ...call.headers },
      body: call.body,
      signal: stop.signal,
    });
    const { status } = response;
    const answer = await firstBytes(response);
    const said = status >= 300 && status < 400 ? "A redirect, which is not followed." : answer;
    return ended({ ok: status >= 200 && status < 300, isFinal: status === GONE, status, answer: said });
  } catch (error) {
    const reason = stop.signal.aborted ? stop.signal.reason : error;
    const answer = reason instanceof Error ? reason.message : String(reason);
    return ended({ ok: false, isFinal: false, status: null, answer });
  } finally {
    clearTimeout(timer);
  }
}

function look({ url, allowPrivate, owner, resolve }: Pick<OutsideCall, "url" | "allowPrivate" | "owner" | "resolve">) {
  const options = { allowPrivate, purpose: "The webhook's URL", ...(owner && { owner }), ...(resolve && { resolve }) };
  return within(LOOK_UP_MS_MAX, assertCallable(url, options));
}

/** The headers of the scheme. Source: MSG-9. */
export function signatureOf({ secrets, messageId, unixMs, body }: Signed): Record<string, string> {
  const at = new Date(unixMs);
  return {
    "webhook-id": messageId,
    "webhook-timestamp": String(Math.floor(unixMs / 1000)),
    "webhook-signature": secrets.map((secret) => new Webhook(secret).sign(messageId, at, body)).join(" "),
  };
}

/** The beginning of the answer's body as text. Closes the connection. */
async function firstBytes({ body }: Response): Promise<string> {
  if (body === null) return "";
  const reader = body.getReader();
  const pieces: Uint8Array[] = [];
  let size = 0;
  while (size < ANSWER_BYTES_MAX) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    size += value.byteLength;
  }
  reader.cancel().catch(() => {}); // The receiver may have disconnected.
  return new TextDecoder().decode(Buffer.concat(pieces).subarray(0, ANSWER_BYTES_MAX));
}
