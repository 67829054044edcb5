import type { Deps } from "../deps.ts";
import type { BodyRoom } from "../http/body.ts";
import { type Body, readBody } from "../http/body.ts";
import type { LimitedRequest } from "../platform/rate_limit.ts";
import type { Owner } from "../platform/share_limit.ts";
import type { Admission } from "./gate.ts";

/** The second step of a metered request: the replica's limits, the rate limits, and the body. */

/**
 * What a request has taken of the limits. One object for the whole request: a closure would keep the request's body in memory as
 * long as its stream is open.
 */
export class Slots {
  readonly limits: LimitedRequest;
  admission: Admission | undefined;
  room: BodyRoom | undefined;
  /** Tokens that the request has used; they replace those that it had reserved of tokens a minute. Set when its hold ends. */
  tokensUsed = 0;

  constructor(limits: LimitedRequest) {
    this.limits = limits;
  }

  /** Releases the slots and the body's memory, and corrects the tokens of the minute; idempotent. */
  release(): void {
    this.room?.close();
    this.admission?.release();
    this.limits.release(this.tokensUsed);
  }
}

/** A request that has passed the limits: its body, and the slots that it holds until its hold has ended. */
export type Admitted = { request: Request; raw: Body; slots: Slots };

/**
 * Gate → losses of the hour → rate and per-key concurrency → body → replica slot, in this order: no byte of the body is read for a request over its rate
 * limit. Fills `slots`; the caller releases them, also after an error. `owner` is whose share of the replica is used;
 * `numbersMax` as in `readBody`. Throws too_many_requests, service_unavailable, and what `readBody` throws.
 */
export async function admit(
  deps: Deps,
  request: Request,
  { owner, slots, numbersMax }: { owner: Owner; slots: Slots; numbersMax?: number | undefined },
): Promise<Body> {
  slots.admission = deps.gate.admit(owner);
  deps.losses.check(owner);
  // Awaited only when it is a promise: far below its limits a request costs no turn of the event loop.
  const entered = slots.limits.enter();
  if (entered !== undefined) await entered;
  const raw = await readBody(deps, request, { bytesMax: deps.config.bodyBytesMax, owner, numbersMax });
  slots.room = raw.room;
  slots.admission.takeSlot();
  return raw;
}
