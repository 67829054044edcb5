import type { Deps } from "../deps.ts";
import type { Operation } from "../http/openapi.ts";
import { type Admitted, admit, Slots } from "./admission.ts";
import { authenticate, type Caller } from "./authenticate.ts";
import { serveOnce } from "./idempotency.ts";
import { countRefusal } from "./refusal_counts.ts";
import { waitOf } from "./waiting.ts";

/**
 * What a metered endpoint is, and the steps that are the same for all of them. Each step that can refuse is one function:
 *
 *   authenticate (host → key) → admit (gate → rate and per-key concurrency → body → replica slot) → serveOnce (idempotency claim)
 *   → the endpoint's own: body check → requireModel → reserve (limits of model and tokens → entitlement) → withHold: dispatch → settle or
 *   release → response
 *
 * With warm caches, only the rate limit and an Idempotency-Key ask anything outside the process before the reserve: Redis, and
 * Postgres when a dead replica's claim is taken over. In the reserve, the database decides. Every hold ends exactly once, in hold.ts.
 */

/** Serves a metered request once it is admitted. Throws the refusal. */
type Serve = (deps: Deps, caller: Caller, admitted: Admitted) => Promise<Response>;

/** A metered endpoint. All are POST. Router, OpenAPI document, hints and metrics follow from the list in `metered_endpoints.ts`. */
export type MeteredEndpoint = {
  /** Below `/v1`. */
  path: `/${string}`;
  operation: Operation;
  serve: Serve;
  /** With `stream: true` its answer is a stream. */
  streams?: boolean;
  /** The numbers that its body may have beyond the values of any body. */
  numbersMax?: number;
};

/** A request to a metered endpoint. Throws the refusal. */
export async function serveMetered(
  deps: Deps,
  request: Request,
  { serve, streams = false, numbersMax }: MeteredEndpoint,
): Promise<Response> {
  const authenticated = authenticate(deps, request);
  const caller = authenticated instanceof Promise ? await authenticated : authenticated;
  const { record, limits } = caller;
  const slots = new Slots(limits);
  record.limits = limits;
  const failed = (error: unknown) => {
    slots.release();
    countRefusal(deps, record, error);
    return error;
  };
  try {
    const raw = await admit(deps, request, { owner: caller.key, slots, numbersMax });
    const wait = waitOf(deps, { request, record, raw, streams });
    if (wait === undefined) return await serveOnce(deps, { caller, request, raw, slots }, serve);
    return await wait.answer(serveOnce(deps, { caller: { ...caller, wait }, request, raw, slots }, serve), failed);
  } catch (error) {
    throw failed(error);
  }
}
