import { createHmac } from "node:crypto";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { closeUnsettled } from "../ledger/leases_store.ts";
import { decrypt, encrypt } from "../platform/crypto.ts";
import {
  type Found,
  type Holder,
  type IdempotencyClaim,
  type Lapsed,
  REDIS_LIMITS,
  type Wanted,
} from "../platform/idempotency_claims.ts";
import { sha256 } from "../platform/runtime.ts";
import { inTime } from "../platform/time_limit.ts";
import type { Admitted } from "./admission.ts";
import { DROPPED_HEADER, jsonResponse } from "./answers.ts";
import type { Caller, CallerClaim } from "./authenticate.ts";

/**
 * A request with an `Idempotency-Key` is served and charged at most once for each API key, path and idempotency key. This step comes
 * after the body is read and before the body is checked:
 *
 * | the first request                             | a second request with the same body                          |
 * | --------------------------------------------- | ------------------------------------------------------------ |
 * | is in flight                                  | 409 idempotency_conflict with `Retry-After`                  |
 * | was charged, and its answer is kept           | the same answer and request id, with `idempotent-replayed`   |
 * | was charged, and its answer is no longer kept | 409 idempotency_conflict with `x-should-retry: false`        |
 * | was refused or released                       | is served                                                    |
 * | was on a replica that died                    | is served, or 409 if the ledger says that the first was charged |
 *
 * A stream is never kept. A second request with another body gets 400 idempotency_mismatch. If claims cannot be looked up, the request
 * gets 503, because it might be served twice.
 */

const KEY_FORM = /^[\x21-\x7e]{1,255}$/;
/** `Retry-After` while the first request is in flight. */
const IN_FLIGHT_RETRY_SECONDS = 2;

/** An admitted request. */
type Call = Admitted & { caller: Caller; request: Request };
type Serve = (deps: Deps, caller: Caller, admitted: Admitted) => Promise<Response>;

/**
 * Serves a request, or answers it from the result of an earlier request with the same Idempotency-Key. A request without the header
 * is simply served. Throws invalid_request, idempotency_conflict, idempotency_mismatch, service_unavailable, and what `serve` throws.
 */
export function serveOnce(deps: Deps, call: Call, serve: Serve): Promise<Response> {
  const key = call.request.headers.get("idempotency-key");
  return key === null ? serve(deps, call.caller, call) : serveByKey(deps, { ...call, key }, serve);
}

async function serveByKey(deps: Deps, call: Call & { key: string }, serve: Serve): Promise<Response> {
  const wanted = wantedOf(deps, call, call.key);
  const found = await deps.claims.take(wanted);
  if (found.state === "ours") return await serveClaimed(deps, call, { serve, wanted, claim: found.claim });
  if (found.state === "lapsed") {
    const claim = await takeOver(deps, call.caller, { wanted, found });
    return await serveClaimed(deps, call, { serve, wanted, claim });
  }
  const response = replayOf(deps, call.caller, { wanted, found });
  call.slots.release();
  return response;
}

/** The claim to take. Redis gets neither the key nor the body, only keyed digests that it cannot guess. Throws invalid_request. */
function wantedOf({ config, ledger }: Deps, { caller, request, raw }: Call, key: string): Wanted {
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
    servedBy: ledger.leaseId(),
    content: digestOf("body", sha256(raw.text)),
  };
}

/** Serves a claimed request. The claim ends as the hold ends: finished if it was charged, and otherwise freed. */
async function serveClaimed(
  deps: Deps,
  { caller, request, raw, slots }: Call,
  { serve, wanted, claim }: { serve: Serve; wanted: Wanted; claim: IdempotencyClaim },
): Promise<Response> {
  const served = new ServedClaim(claim);
  try {
    const response = await serve(deps, { ...caller, claim: served }, { request, raw, slots });
    if (!isJson(response)) {
      void served.ended.then(() => served.end()); // The hold of a stream ends later.
      return response;
    }
    // The answer is kept before it is sent: a client that has left by now gets it with its retry.
    const text = await response.text();
    const dropped = response.headers.get(DROPPED_HEADER) ?? undefined;
    // One that is too long to be kept is not encrypted first: embeddings may have 100 MB.
    const isKept = text.length <= REDIS_LIMITS.answerBytesMax;
    await claim.finish(isKept ? encrypt(deps.config.secretKey, `${wanted.id}\n${dropped ?? ""}\n${text}`) : undefined);
    return jsonResponse(deps, caller, { text, dropped });
  } catch (error) {
    await served.end();
    throw error;
  }
}

/** A claim whose request is being served. It is told how the hold ended. */
class ServedClaim implements CallerClaim {
  readonly #claim: IdempotencyClaim;
  readonly #ended = Promise.withResolvers<void>();
  #isCharged = false;

  constructor(claim: IdempotencyClaim) {
    this.#claim = claim;
  }

  /** Resolves when the hold has ended. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  alive(): boolean {
    return this.#claim.alive();
  }

  holdEnded(isCharged: boolean): void {
    this.#isCharged = isCharged;
    this.#ended.resolve();
  }

  /** Ends the claim. A request that had no hold was not charged. */
  end(): Promise<void> {
    return this.#isCharged ? this.#claim.finish() : this.#claim.free();
  }
}

function isJson(response: Response): boolean {
  return /^application\/json\b/.test(response.headers.get("content-type") ?? "");
}

/** The kept answer, under the first request's id, so that its receipt can be found. Throws idempotency_conflict, idempotency_mismatch. */
function replayOf(
  deps: Deps,
  caller: Caller,
  { wanted, found }: { wanted: Wanted; found: Exclude<Found, { state: "ours" | "lapsed" }> },
): Response {
  checkSame(wanted, found);
  if (found.state === "in_flight") throw inFlight(found);
  const kept = found.answer && openKept(deps, wanted, found.answer);
  if (kept === undefined) throw notKept(found);
  const response = jsonResponse(deps, caller, { ...kept, requestId: found.requestId });
  response.headers.set("idempotent-replayed", "true");
  deps.metrics.replayed();
  return response;
}

/** A kept answer. It is stored as three lines: the id of the claim, the dropped parameters, the JSON. */
type KeptAnswer = { text: string; dropped: string | undefined };

/** Decrypts a kept answer. Logs and returns undefined if it is not an answer to this request. */
function openKept({ config, log }: Deps, { id, requestId }: Wanted, answer: Uint8Array): KeptAnswer | undefined {
  try {
    const kept = decrypt(config.secretKey, answer);
    const end = kept.indexOf("\n", id.length + 1);
    if (kept.startsWith(`${id}\n`) && end >= 0)
      return { text: kept.slice(end + 1), dropped: kept.slice(id.length + 1, end) || undefined };
    log.error({ requestId }, "a kept answer belongs to another request");
  } catch (err) {
    log.warn({ err, requestId }, "a kept answer cannot be decrypted");
  }
  return undefined;
}

/** Takes over the claim of a replica that died, unless the ledger says that its request was charged. Throws idempotency_conflict, idempotency_mismatch. */
async function takeOver(
  deps: Deps,
  { key, host }: Caller,
  { wanted, found }: { wanted: Wanted; found: { lapsed: Lapsed } & Holder },
): Promise<IdempotencyClaim> {
  const { lapsed, requestId, servedBy: leaseId } = found;
  const request = { accountId: key.accountId, requestId, leaseId, keyId: key.keyId, host: host.name };
  const status = await inTime(closeUnsettled(deps, request));
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
