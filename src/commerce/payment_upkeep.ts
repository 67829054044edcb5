import { fulfilWaiting } from "./order_fulfilment_store.ts";
import { askAboutDue, type StripeDeps } from "./stripe_checkout.ts";
import { readMissedEvents } from "./stripe_events.ts";
import { sendPendingRefunds } from "./stripe_refunds.ts";

/**
 * Repairs what a crash or a lost webhook left behind: paid orders, open checkout pages, refunds without an answer, and
 * refunds and disputes whose webhooks were lost. Source: BUY-4, BUY-10.
 */

const EVERY_MS = 10_000;
/** Orders that one round fulfils. */
const ORDERS_MAX = 50;

export type PaymentUpkeep = { close(): Promise<void> };

/** Runs every ten seconds on every replica; each piece of work is claimed by one of them. Never throws. */
export function startPaymentUpkeep(deps: StripeDeps, everyMs = EVERY_MS): PaymentUpkeep {
  let running: Promise<void> = Promise.resolve();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let closed = false;
  const next = () => {
    if (closed) return;
    timer = setTimeout(() => {
      running = repair(deps).finally(next);
    }, everyMs);
  };
  next();
  return {
    close() {
      closed = true;
      clearTimeout(timer);
      return running;
    },
  };
}

async function repair(deps: StripeDeps): Promise<void> {
  const { log } = deps;
  const tries = [
    () =>
      fulfilWaiting(deps, {
        ordersMax: ORDERS_MAX,
        onFailure: (err, orderId) => log.warn({ err, orderId }, "a paid order was not fulfilled; it is tried again"),
      }),
    () => askAboutDue(deps),
    () => sendPendingRefunds(deps),
    () => readMissedEvents(deps),
  ];
  for (const attempt of tries)
    await attempt().catch((err) => log.warn({ err }, "orders and payments were not repaired; it is tried again"));
}
