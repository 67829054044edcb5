import { createHmac } from "node:crypto";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import type { Body } from "../http/body.ts";
import { closeUnsettled } from "../ledger/holds_store.ts";
import type { Claim, Found, Holder, Lapsed, Wanted } from "../platform/claims.ts";
import { decrypt, encrypt } from "../platform/crypto.ts";
import { sha256 } from "../platform/runtime.ts";
import { type Caller, inTime, type Leave } from "./door.ts";
import { DROPPED_HEADER, jsonResponse } from "./flow.ts";

/**
 * A request with an `Idempotency-Key` is served and charged at most once: by API key, path and idempotency key. It stands between
 * body and model:
 *
 * | the first request …                     | the second, with the same body                     |
 * | --------------------------------------- | -------------------------------------------------- |
 * | is in flight                            | 409 idempotency_conflict, Retry-After              |
 * | was served, its answer is kept          | that answer, its request id, `idempotent-replayed` |
 * | was served, it was a stream or is older | 409 idempotency_conflict, not worth a retry        |
 * | was refused, or released                | is served                                          |
 * | lies in a replica that died             | what the books say of the first                    |
 *
 * With another body: 400 idempotency_mismatch. Where claims cannot be looked up: 503, since it might be served twice.
 */

const KEY_FORM = /^[\x21-\x7e]{1,255}$/;
/** What a client is told to wait for the first answer; nobody knows when it comes. */
const IN_FLIGHT_RETRY_SECONDS = 2;

/** One request behind the door: its body is read. */
type Call = { caller: Caller; request: Request; raw: Body; leave: Leave };
type Serve = (deps: Deps, caller: Caller, raw: Body, leave: Leave) => Promise<Response>;

/**
 * Serves a request, or answers it from what an earlier one with its Idempotency-Key came to. Without the header it is served as it is.
 * Throws invalid_request, idempotency_conflict, idempotency_mismatch, service_unavailable, and what `serve` throws.
 */
export function serveOnce(deps: Deps, call: Call, serve: Serve): Promise<Response> {
  const { caller, request, raw, leave } = call;
  const key = request.headers.get("idempotency-key");
  return key === null ? serve(deps, caller, raw, leave) : serveByKey(deps, { ...call, key }, serve);
}

async function serveByKey(deps: Deps, call: Call & { key: string }, serve: Serve): Promise<Response> {
  const { caller, key, leave } = call;
  const wanted = wantedOf(deps, call, key);
  const found = await deps.claims.take(wanted);
  if (found.state === "ours") return await serveClaimed(deps, call, { serve, wanted, claim: found.claim });
  if (found.state === "lapsed") {
    const claim = await takeOver(deps, caller, { wanted, found });
    return await serveClaimed(deps, call, { serve, wanted, claim });
  }
  const answer = replayOf(deps, wanted, found);
  leave();
  return answer;
}

/** What is claimed. Redis learns neither the key nor the body, nor can it try guesses. Throws invalid_request. */
function wantedOf({ config }: Deps, { caller, request, raw }: Call, key: string): Wanted {
  if (!KEY_FORM.test(key))
    throw new Refusal("invalid_request", {
      message: "The header Idempotency-Key must be 1 to 255 visible ASCII characters.",
    });
  const digestOf = (what: string, data: string | Uint8Array) =>
    createHmac("sha256", config.secretKey).update(`idempotency ${what}\0`).update(data).digest("base64url");
  return {
    id: digestOf("key", `${caller.key.keyId} ${new URL(request.url).pathname} ${key}`),
    owner: String(caller.key.accountId),
    requestId: caller.requestId,
    content: digestOf("body", sha256(raw.text)),
  };
}

/** Serves, and ends the claim as the hold ended: charged or not. */
async function serveClaimed(
  deps: Deps,
  { caller, raw, leave }: Call,
  { serve, wanted, claim }: { serve: Serve; wanted: Wanted; claim: Claim },
): Promise<Response> {
  const { trail, requestId } = caller;
  const left = Promise.withResolvers<void>();
  const end = () => (trail.settled ? claim.finish() : claim.free());
  try {
    const response = await serve(deps, { ...caller, claim }, raw, () => {
      leave();
      left.resolve();
    });
    if (!isJson(response)) {
      void left.promise.then(end); // A stream leaves when its hold has ended.
      return response;
    }
    // Before it is sent: also a client that has left by now gets this answer when it asks again.
    const text = await response.text();
    const dropped = response.headers.get(DROPPED_HEADER) ?? undefined;
    await claim.finish(encrypt(deps.config.secretKey, `${wanted.id}\n${dropped ?? ""}\n${text}`));
    return jsonResponse(text, requestId, dropped);
  } catch (error) {
    await end();
    throw error;
  }
}

function isJson(response: Response): boolean {
  return /^application\/json\b/.test(response.headers.get("content-type") ?? "");
}

/** The first answer again, under the first request's id, so that its receipt is found. Throws idempotency_conflict, idempotency_mismatch. */
function replayOf(deps: Deps, wanted: Wanted, found: Exclude<Found, { state: "ours" | "lapsed" }>): Response {
  checkSame(wanted, found);
  if (found.state === "in_flight") throw inFlight(found);
  const kept = found.answer && opened(deps, wanted, found.answer);
  if (kept === undefined) throw notKept(found);
  const response = jsonResponse(kept.text, found.requestId, kept.dropped);
  response.headers.set("idempotent-replayed", "true");
  deps.metrics.replayed();
  return response;
}

/** A kept answer: the id of what it answers, what was not sent on, and the JSON, each from a line of its own. */
type Kept = { text: string; dropped: string | undefined };

/** Undefined, and a line in the log, for what is not an answer to this request. */
function opened({ config, log }: Deps, { id, requestId }: Wanted, answer: Uint8Array): Kept | undefined {
  try {
    const kept = decrypt(config.secretKey, answer);
    const end = kept.indexOf("\n", id.length + 1);
    if (kept.startsWith(`${id}\n`) && end >= 0)
      return { text: kept.slice(end + 1), dropped: kept.slice(id.length + 1, end) || undefined };
    log.error({ requestId }, "a kept answer belongs to another request");
  } catch (err) {
    log.warn({ err, requestId }, "a kept answer cannot be read");
  }
  return undefined;
}

/** After the first request's replica died the books know what became of it. Throws idempotency_conflict, idempotency_mismatch. */
async function takeOver(
  deps: Deps,
  { key }: Caller,
  { wanted, found }: { wanted: Wanted; found: { lapsed: Lapsed } & Holder },
): Promise<Claim> {
  const { lapsed, requestId } = found;
  const status = await inTime(closeUnsettled(deps, { accountId: key.accountId, requestId }));
  if (status === "over") {
    const claim = await lapsed.takeOver();
    if (claim) return claim;
  }
  if (status === "settled") await lapsed.finish();
  checkSame(wanted, found);
  throw status === "settled" ? notKept(found) : inFlight(found);
}

function checkSame({ content }: Wanted, holder: Holder): void {
  if (content !== holder.content) throw new Refusal("idempotency_mismatch");
}

function inFlight({ requestId }: Holder): Refusal {
  return new Refusal("idempotency_conflict", {
    message: `The first request with this Idempotency-Key, ${requestId}, is still in flight.`,
    retryAfterSeconds: IN_FLIGHT_RETRY_SECONDS,
  });
}

function notKept({ requestId }: Holder): Refusal {
  return new Refusal("idempotency_conflict", {
    message: `The request with this Idempotency-Key was served and charged as ${requestId}; its answer is not kept.`,
  });
}
