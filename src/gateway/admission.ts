import type { Deps } from "../deps.ts";
import type { BodyRoom } from "../http/body.ts";
import { type Body, readBody } from "../http/body.ts";
import type { Owner } from "../platform/share_limit.ts";
import type { Admission } from "./limits.ts";

/** The second step of a metered request: the replica's limits, the rate limits, and the body. */

/**
 * What a request has taken of the limits. One object for the whole request: a closure would keep the request's body in memory as
 * long as its stream is open.
 */
export class Slots {
  admission: Admission | undefined;
  rate: (() => void) | undefined;
  room: BodyRoom | undefined;

  /** Releases the concurrency and rate slots and the body's memory; idempotent. */
  release(): void {
    this.room?.close();
    this.admission?.release();
    this.rate?.();
  }
}

/** A request that has passed the limits: its body, and the slots that it holds until its hold has ended. */
export type Admitted = { raw: Body; slots: Slots };

/**
 * Gate → rate and per-key concurrency → body → replica slot, in this order: no byte of the body is read for a request over its rate
 * limit. Fills `slots`; the caller releases them, also after an error. `rateId` names what the rate limits count, as in `key:7`; `owner` is whose
 * share of the replica is used. Throws too_many_requests, service_unavailable, and what `readBody` throws.
 */
export async function admit(
  deps: Deps,
  request: Request,
  { rateId, owner, slots }: { rateId: string; owner: Owner; slots: Slots },
): Promise<Body> {
  slots.admission = deps.gate.admit(owner);
  slots.rate = await deps.limiter.enter(rateId, owner);
  const raw = await readBody(deps, request, { bytesMax: deps.config.bodyBytesMax, owner });
  slots.room = raw.room;
  slots.admission.takeSlot();
  return raw;
}
