import type { Config } from "../config.ts";
import { every, type Job } from "../platform/every.ts";
import { topUpDue } from "./auto_top_up_store.ts";
import { fulfilWaiting } from "./order_fulfilment_store.ts";
import { renewDue } from "./renewal_steps_store.ts";
import { askAboutSetups, forgetRemoved } from "./stripe_cards.ts";
import { chargeDue } from "./stripe_charges.ts";
import { askAboutDue, type StripeDeps } from "./stripe_checkout.ts";
import { readMissedEvents } from "./stripe_events.ts";
import { sendPendingRefunds } from "./stripe_refunds.ts";
import { giveWaitingTrials } from "./trials_store.ts";

/**
 * What sellers do without a person: packages are renewed, balances topped up, and cards charged. And the repair of what a crash or a lost webhook left behind: paid
 * orders and trials that wait, open pages of Stripe, refunds without an answer, and refunds and disputes whose webhooks were lost. Source: BUY-4,
 * BUY-10, REN-5.
 */

const EVERY_MS = 10_000;
/** Orders that one round fulfils. */
const ORDERS_MAX = 50;
/** Trials that one round gives. */
const TRIALS_MAX = 50;
/** Steps of renewals that one round makes. */
const RENEWALS_MAX = 50;
/** Automatic top-ups that one round orders. */
const TOP_UPS_MAX = 50;

type UpkeepDeps = StripeDeps & { config: Pick<Config, "billingTimeZone"> };

/** Runs every ten seconds on every replica; each piece of work is claimed by one of them. */
export function startPaymentUpkeep(deps: UpkeepDeps, everyMs = EVERY_MS): Job {
  const failure = "orders and payments were not repaired";
  return every({ name: "payments", ms: everyMs, run: () => repair(deps), log: deps.log, failure });
}

async function repair(deps: UpkeepDeps): Promise<void> {
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
    () =>
      renewDue(deps, {
        renewalsMax: RENEWALS_MAX,
        onFailure: (err, renewalId) => log.warn({ err, renewalId }, "a package was not renewed; it is tried again"),
      }),
    () =>
      topUpDue(deps, {
        topUpsMax: TOP_UPS_MAX,
        timeZone: deps.config.billingTimeZone,
        onFailure: (err, accountId) => log.warn({ err, accountId }, "a balance was not topped up; it is tried again"),
      }),
    () => chargeDue(deps),
    () => askAboutSetups(deps),
    () => forgetRemoved(deps),
    () => askAboutDue(deps),
    () => sendPendingRefunds(deps),
    () => readMissedEvents(deps),
  ];
  const failures: unknown[] = [];
  for (const attempt of tries) await attempt().catch((err: unknown) => failures.push(err));
  if (failures.length > 0) throw failures.length === 1 ? failures[0] : new AggregateError(failures);
}
