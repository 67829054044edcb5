import type { Config } from "../config.ts";
import { InputError, Refusal } from "../errors.ts";
import type { Secret } from "../platform/crypto.ts";

/**
 * Stripe's test mode. Whoever pays there pays nothing: the numbers of its cards are public. Outside production its money counts, for
 * demos and tests. In production a payment with it is recorded with a problem, and pays for no order, whatever the settings say. Source:
 * BUY-13.
 */

export type StripeMode = "live" | "test";
export type TestMoneyConfig = Pick<Config, "production" | "testShop">;

export function modeOf(apiKey: Secret): StripeMode {
  return /^.k_live_/.test(apiKey.reveal()) ? "live" : "test";
}

/** Whether what is paid in Stripe's mode pays for an order. */
export function paysInMode({ production }: Pick<TestMoneyConfig, "production">, isLive: boolean): boolean {
  return isLive || !production;
}

/** Whether a key may be used here. */
export function isUsable({ production, testShop }: TestMoneyConfig, apiKey: Secret): boolean {
  return !production || testShop || modeOf(apiKey) === "live";
}

/** Throws InputError for a key that may not be used here. */
export function requireUsable(config: TestMoneyConfig, apiKey: Secret): void {
  if (isUsable(config, apiKey)) return;
  throw new InputError(
    "This is a key of Stripe's test mode: anybody could pay with the numbers of test cards. Enter a live key. To try the shop, set TEST_SHOP=true: then payments are recorded, and nothing is delivered.",
    "apiKey",
  );
}

/** Checks the mode of an event. Throws invalid_request, so that it shows as failed at Stripe. */
export function requireMode(config: TestMoneyConfig, { isLive, apiKey }: { isLive: boolean; apiKey: Secret }): void {
  const mode = modeOf(apiKey);
  if (isLive !== (mode === "live"))
    throw refused(
      `This event is of Stripe's ${isLive ? "live" : "test"} mode, and the seller's key is of its ${mode} mode.`,
    );
  if (!isUsable(config, apiKey)) throw refused("Events of Stripe's test mode are not taken here.");
}

function refused(message: string): Refusal {
  return new Refusal("invalid_request", { message, param: "livemode" });
}
