import { every, type Job } from "../platform/every.ts";
import { fulfilWaiting } from "./order_fulfilment_store.ts";
import { askAboutDue, type StripeDeps } from "./stripe_checkout.ts";
import { readMissedEvents } from "./stripe_events.ts";
import { sendPendingRefunds } from "./stripe_refunds.ts";
import { giveWaitingTrials } from "./trials_store.ts";

/**
 * Repairs what a crash or a lost webhook left behind: paid orders and trials that wait, open checkout pages, refunds without an answer, and
 * refunds and disputes whose webhooks were lost. Source: BUY-4, BUY-10.
 */

const EVERY_MS = 10_000;
/** Orders that one round fulfils. */
const ORDERS_MAX = 50;
/** Trials that one round gives. */
const TRIALS_MAX = 50;

/** Runs every ten seconds on every replica; each piece of work is claimed by one of them. */
export function startPaymentUpkeep(deps: StripeDeps, everyMs = EVERY_MS): Job {
  const failure = "orders and payments were not repaired";
  return every({ name: "payments", ms: everyMs, run: () => repair(deps), log: deps.log, failure });
}

async function repair(deps: StripeDeps): Promise<void> {
  const { log } = deps;
  const tries = [
    () =>
      fulfilWaiting(deps, {
        ordersMax: ORDERS_MAX,
        onFailure: (err, orderId) => log.warn({ err, orderId }, "a paid order was not fulfilled; it is tried again"),
      }),
    () =>
      giveWaitingTrials(deps, {
        trialsMax: TRIALS_MAX,
        onFailure: (err, accountId) => log.warn({ err, accountId }, "a trial was not given; it is tried again"),
      }),
    () => askAboutDue(deps),
    () => sendPendingRefunds(deps),
    () => readMissedEvents(deps),
  ];
  const failures: unknown[] = [];
  for (const attempt of tries) await attempt().catch((err: unknown) => failures.push(err));
  if (failures.length > 0) throw failures.length === 1 ? failures[0] : new AggregateError(failures);
}
