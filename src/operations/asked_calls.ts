import { type ErrorCode, Refusal } from "../errors.ts";
import type { ShedReason } from "../platform/metrics.ts";
import type { RateLimiter } from "../platform/rate_limit.ts";
import type { RequestLimits } from "../platform/rate_tallies.ts";
import { createSemaphore, type Places } from "../platform/semaphore.ts";

/**
 * Calls to other servers that are made because a person asks, and whose answer the person waits for: the test of a webhook or a mail
 * server, the look-up of an address, a question to Stripe. The other side decides how long they take. Source: ADM-11.
 */

/** Of one kind, by the account that signed in, over all replicas. A page that waits for a payment asks 20 times a minute. */
const PER_MINUTE = 60;
/** In one replica. */
const ACCOUNT_AT_ONCE = 3;
const TENANT_AT_ONCE = 16;
const AT_ONCE = 64;
const RETRY_AFTER_SECONDS = 5;

/**
 * Each kind has places of its own, so that receivers that are silent on purpose keep nobody from paying. `receiver`: at an address that a
 * person chose; nobody waits for a place, because it may be held on purpose. Of those that wait: an account's, and all.
 */
const KINDS = {
  receiver: { waitMsMax: 0, accountWaitingMax: 1, waitingMax: 0 },
  stripe: { waitMsMax: 10_000, accountWaitingMax: 8, waitingMax: 64 },
} as const;
export type CallKind = keyof typeof KINDS;
/** Who asks: the account that signed in, or the owner of the token. */
type Asker = { session: { accountId: number; tenantId: number }; leaveRead: () => void };
export type CallPlaces = Readonly<Record<CallKind, Places>>;
type CallDeps = { callPlaces: CallPlaces; limiter: RateLimiter };

const LIMITS: RequestLimits = {
  key: { requestsPerMinute: PER_MINUTE, tokensPerMinute: null, requestsAtOnce: null },
  account: null,
  models: new Map(),
};

export function createCallPlaces(onShed: (reason: ShedReason) => void): CallPlaces {
  const shed = (code: ErrorCode, words: string) => {
    onShed("asked_calls");
    const message = `${words} Try again when one has ended.`;
    return new Refusal(code, { message, limit: ACCOUNT_AT_ONCE, retryAfterSeconds: RETRY_AFTER_SECONDS });
  };
  const create = (kind: CallKind) =>
    createSemaphore({
      max: AT_ONCE,
      waitingMax: KINDS[kind].waitingMax,
      shareFull: () =>
        shed("too_many_requests", `This account may wait for ${ACCOUNT_AT_ONCE} answers of other servers at once.`),
      allFull: () => shed("service_unavailable", "Too many answers of other servers are waited for."),
    });
  return { receiver: create("receiver"), stripe: create("stripe") };
}

/** Makes a call that a person asked for. Throws what `call` throws, too_many_requests, service_unavailable. */
export async function askedCall<T>(
  deps: CallDeps,
  { person, kind }: { person: Asker; kind: CallKind },
  call: () => Promise<T>,
): Promise<T> {
  person.leaveRead();
  const { accountId, tenantId } = person.session;
  const { waitMsMax, accountWaitingMax, waitingMax } = KINDS[kind];
  const account = { id: `account:${accountId}`, atOnceMax: ACCOUNT_AT_ONCE, waitingMax: accountWaitingMax };
  const tenant = { id: `tenant:${tenantId}`, atOnceMax: TENANT_AT_ONCE, waitingMax };
  const leave = await deps.callPlaces[kind].enter(tenantId === 0 ? [account] : [account, tenant], { waitMsMax });
  try {
    await count(deps, person, kind);
    return await call();
  } finally {
    leave();
  }
}

/** Counts a delivery that a person asks for again: the outbox makes it, and nobody waits. Throws too_many_requests. */
export function countDelivery(deps: Pick<CallDeps, "limiter">, person: Asker): Promise<void> {
  return count(deps, person, "outbox");
}

async function count(
  { limiter }: Pick<CallDeps, "limiter">,
  { session }: Asker,
  kind: CallKind | "outbox",
): Promise<void> {
  await limiter.begin(`calls:${kind}:${session.accountId}`, undefined, LIMITS).take();
}
