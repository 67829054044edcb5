import type { Refusal } from "../errors.ts";
import type { Hold, Usage } from "../ledger/ledger.ts";
import type { EndReason } from "../ledger/ledger_store.ts";
import { jsonResponse, streamResponse } from "./answers.ts";
import { hasLeft } from "./authenticate.ts";
import { countStreamError } from "./refusal_counts.ts";
import type { ReservedRequest } from "./reserve.ts";
import type { Keeper } from "./responses/stored_responses.ts";

/**
 * The life of a hold in the gateway: from the reservation to its one end. Nothing else settles or releases. (The ledger itself releases
 * a reservation that got no answer in time, and a hold whose lease has ended.)
 *
 * A request is served inside `withHold`, and a stream ends inside `endStream`. Both end the hold by the outcome. If a step throws before
 * that, the hold is released: a mistake of ours costs a customer nothing, and leaves nothing held. Source: END-17.
 */

/** How a request that has a hold was served. */
export type Outcome =
  /**
   * The whole answer has arrived, and nothing of it was sent to the client yet. `text` is the JSON that the client gets, and that
   * `keeper` stores.
   */
  | { how: "answered"; usage: Usage; text: string; dropped: string | undefined; keeper?: Keeper | undefined }
  /** A stream has begun. Its owner has the hold now, and ends it by `endStream`. null: the client has left. */
  | { how: "relayed"; stream: ReadableStream<Uint8Array> | null; dropped: string | undefined }
  /** The client of a stream left before its first event, after the request had reached a provider. */
  | { how: "client_left"; usage: Usage; error: unknown }
  /** The whole answer has nothing in it: nobody pays. `text` as in `answered`. */
  | { how: "free"; text: string; dropped: string | undefined }
  /** There is no answer: nobody pays. `error` is what the client gets. */
  | { how: "failed"; reason: EndReason; error: unknown };

/** How a stream ended that had begun. `event`: the error event that the client is sent, if any. */
export type StreamEnd =
  /** The answer is complete. All of it but the last event was sent. */
  | ({ how: "streamed" } & SettledStream)
  /** The client left, and pays what it was sent. */
  | ({ how: "client_left" } & SettledStream)
  /** It is complete, and has nothing in it: nobody pays. */
  | { how: "free"; settled: (chargedNanoUsd: bigint) => void }
  /** It broke off: nobody pays. `event` tells the client `error`. */
  | { how: "failed"; reason: EndReason; error: Refusal; event: string };

/** `settled` is told what was charged. */
type SettledStream = { usage: Usage; event?: string | undefined; settled: (chargedNanoUsd: bigint) => void };

/**
 * Serves a request under a hold. `reserving` is the ledger's answer to its reservation. Returns the response to the client; throws the
 * refusal of the reservation, the error of the outcome, and what `serve` throws. A whole answer throws insufficient_balance if it cost
 * more than the balance covers, and service_unavailable if a retry took the request over: the client does not get it, and pays nothing.
 */
export async function withHold(
  request: Omit<ReservedRequest, "hold">,
  reserving: Hold | Promise<Hold>,
  serve: (reserved: ReservedRequest) => Promise<Outcome>,
): Promise<Response> {
  // Awaited only when it is a promise: what was drawn ahead is granted without a turn of the event loop.
  const hold = reserving instanceof Promise ? await reserving : reserving;
  const reserved: ReservedRequest = { ...request, hold };
  let outcome: Outcome;
  try {
    noteReserved(reserved);
    outcome = await serve(reserved);
    if (outcome.how !== "relayed") return await end(reserved, outcome);
  } catch (error) {
    await releaseIfOpen(reserved);
    throw error;
  }
  return streamResponse(outcome.stream, request.caller.requestId, outcome.dropped);
}

/** Ends the hold of a stream by what `endOf` finds. Returns the error event that the client is sent, if any. Throws what `endOf` throws. */
export async function endStream(
  request: ReservedRequest,
  endOf: () => StreamEnd | Promise<StreamEnd>,
): Promise<string | undefined> {
  try {
    const ended = await endOf();
    if (ended.how === "failed") {
      countStreamError(request.deps, request.caller.record, ended.error);
      await release(request, ended.reason);
      return ended.event;
    }
    if (ended.how === "free") {
      await release(request, "provider_failed");
      ended.settled(0n);
      return undefined;
    }
    const reason = ended.how === "streamed" ? "complete" : "client_left";
    ended.settled(await settle(request, ended.usage, { reason }));
    return ended.event;
  } catch (error) {
    await releaseIfOpen(request);
    throw error;
  }
}

async function end(request: ReservedRequest, outcome: Exclude<Outcome, { how: "relayed" }>): Promise<Response> {
  if (outcome.how === "answered") return await answer(request, outcome);
  if (outcome.how === "free") {
    await release(request, "provider_failed");
    return jsonResponse(request.deps, request.caller, outcome);
  }
  if (outcome.how === "failed") await release(request, outcome.reason);
  else await settle(request, outcome.usage, { reason: "client_left" });
  throw outcome.error;
}

async function answer(request: ReservedRequest, outcome: Extract<Outcome, { how: "answered" }>): Promise<Response> {
  const { usage, text, keeper } = outcome;
  const { record } = request.caller;
  // Built before it is charged: after that, no step of ours may fail.
  const response = jsonResponse(request.deps, request.caller, outcome);
  await settle(request, usage, { strict: true, reason: hasLeft(request.caller) ? "client_left" : "complete" });
  record.bytesOut = Buffer.byteLength(text);
  // Only now: nobody may fetch an answer that was not paid.
  await keeper?.keep(text);
  keeper?.close();
  return response;
}

function noteReserved({ deps, caller: { record, key, host } }: ReservedRequest): void {
  record.reservedMs = deps.clock.nowMs();
  deps.failpoint("after_reserve");
  record.isReserved = true;
  deps.keyUses.note(key.keyId, host.name);
}

/**
 * Releases a hold whose end is not on its way. A hold whose end was sent to the ledger is left alone: a settlement that the database did
 * not confirm waits in the spool.
 */
async function releaseIfOpen(request: ReservedRequest): Promise<void> {
  const { deps, caller, hold } = request;
  if (!deps.ledger.isOpen(hold)) return;
  try {
    await release(request, "gateway_failed");
  } catch (err) {
    // The error that is thrown to the caller is the first one.
    deps.log.error({ err, requestId: caller.requestId }, "the hold of a request that failed could not be released");
  }
}

/** Returns what was charged, in nano-USD; while the settlement waits in the spool, what will be. */
async function settle(
  { deps, caller, hold, slots }: ReservedRequest,
  usage: Usage,
  end: { strict?: boolean; reason: EndReason },
): Promise<bigint> {
  const { record, claim } = caller;
  let isCharged = false;
  slots.tokensUsed = usage.promptTokens + usage.completionTokens;
  try {
    deps.failpoint("before_settle");
    record.settleStartedMs = deps.clock.nowMs();
    const { chargedNanoUsd, spooled } = await deps.ledger.settle(hold, usage, end);
    isCharged = true;
    record.settledMs = deps.clock.nowMs();
    record.end = end.reason;
    deps.failpoint("after_settle");
    return spooled ? usage.chargeNanoUsd : chargedNanoUsd;
  } finally {
    slots.release();
    claim?.holdEnded(isCharged);
  }
}

async function release({ deps, caller, hold, slots }: ReservedRequest, reason: EndReason): Promise<void> {
  const { record, claim } = caller;
  try {
    record.releaseStartedMs = deps.clock.nowMs();
    await deps.ledger.release(hold, reason);
    record.releasedMs = deps.clock.nowMs();
    record.end = reason;
  } finally {
    slots.release();
    claim?.holdEnded(false);
  }
}
