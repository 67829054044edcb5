import { Refusal, sentence } from "../errors.ts";
import type { Reader } from "../platform/long_reads.ts";
import type { ShedReason } from "../platform/metrics.ts";
import { createSemaphore, type Places, type Share } from "../platform/semaphore.ts";
import type { Fractions } from "../platform/share_limit.ts";
import { factsOf } from "./request_facts.ts";

/**
 * Requests that read from Postgres on the connections that everyone shares: an account and a tenant have a share of these, so that a burst
 * of one does not keep the others' reads and look-ups waiting. A request holds its place until it is answered, or until it begins what has
 * places of its own: a long read, a transaction that changes something, or a call to another server. Source: ADM-14.
 */

/** An account of a small pool has as many as it may make changes at once. */
const ACCOUNT_AT_ONCE_MIN = 3;
/** Requests with a place, for each connection: many have to wait for something else too. */
const PLACES_PER_CONNECTION = 4;
/** Of those that wait. A page of the panel makes six or so at once. */
const ACCOUNT_WAITING_MAX = 100;
const TENANT_WAITING_MAX = 300;
const WAITING_MAX = 1_000;
const WAIT_MS_MAX = 5_000;
const RETRY_AFTER_SECONDS = 1;

export type ReadPlaces = {
  /**
   * Waits for a place, and takes it for the request, once. Throws too_many_requests if the shares of the reader are used up, service_unavailable
   * if all places are, or the client has left.
   */
  enter(request: Request, reader: Reader): Promise<void>;
};

export type ReadPlacesOptions = {
  connections: number;
  fractions: Fractions;
  onShed: (reason: ShedReason) => void;
};

export function createReadPlaces({ connections, fractions, onShed }: ReadPlacesOptions): ReadPlaces {
  const accountMax = Math.max(ACCOUNT_AT_ONCE_MIN, Math.floor(connections * fractions.account));
  const tenantMax = Math.max(accountMax, Math.floor(connections * fractions.tenant));
  const shed = (refusal: Refusal): Refusal => {
    onShed("reads");
    return refusal;
  };
  const places: Places = createSemaphore({
    max: connections * PLACES_PER_CONNECTION,
    waitingMax: WAITING_MAX,
    shareFull: () =>
      shed(
        new Refusal("too_many_requests", {
          message: sentence(
            "This account reads {accountMax} things at once, and others of it wait. Try again in a moment.",
            { accountMax },
          ),
          limit: accountMax,
          retryAfterSeconds: RETRY_AFTER_SECONDS,
        }),
      ),
    allFull: () => shed(new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS })),
  });

  function sharesOf({ side, accountId, tenantId }: Reader): Share[] {
    const own = { id: `${side}:account:${accountId}`, atOnceMax: accountMax, waitingMax: ACCOUNT_WAITING_MAX };
    const tenant = { id: `${side}:tenant:${tenantId}`, atOnceMax: tenantMax, waitingMax: TENANT_WAITING_MAX };
    return tenantId === 0 ? [own] : [own, tenant];
  }

  return {
    async enter(request, reader) {
      const { signal } = request;
      const facts = factsOf(request);
      if (facts.leaveRead !== undefined) return;
      try {
        facts.leaveRead = await places.enter(sharesOf(reader), { waitMsMax: WAIT_MS_MAX, signal });
      } catch (error) {
        // The client has left: nobody gets this answer.
        throw signal.aborted ? new Refusal("service_unavailable") : error;
      }
    },
  };
}
