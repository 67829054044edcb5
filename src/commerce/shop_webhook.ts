import { Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import { Webhook } from "standardwebhooks";
import type { Config } from "../config.ts";
import { Refusal } from "../errors.ts";
import type { ChangeDeps } from "../platform/changes_store.ts";
import type { Clock } from "../platform/clock.ts";
import { constantTimeEqual } from "../platform/crypto.ts";
import { decimalAmount, decimalsOf } from "../platform/currencies.ts";
import type { Failpoint } from "../platform/failpoints.ts";
import { NANO_DECIMALS } from "../platform/usd.ts";
import type { Order } from "./orders_store.ts";
import { shopSecretOf } from "./payment_settings_store.ts";
import { EXTERNAL_ID_CHARS_MAX, type Receipt, receivePayment } from "./payments_store.ts";

/**
 * Payment through a shop of the seller: the customer is sent there, and the shop reports the payment by a signed
 * webhook. Source: BUY-2, BUY-8.
 */

const Paid = Type.Object({
  order: Type.String({ minLength: 1, maxLength: 40 }),
  /** As in 12.50. */
  amount: Type.String({ pattern: "^[0-9]{1,10}(\\.[0-9]{1,3})?$" }),
  currency: Type.String({ pattern: "^[A-Za-z]{3}$" }),
  payment_id: Type.String({ minLength: 1, maxLength: EXTERNAL_ID_CHARS_MAX, pattern: "^[!-~]+$" }),
});
const FORMS: Record<string, string> = {
  order: "the reference of an order",
  amount: "an amount as text, as in 12.50, with no more decimals than its currency has",
  currency: "a currency of three letters, as in usd",
  payment_id: `1 to ${EXTERNAL_ID_CHARS_MAX} visible ASCII characters`,
};

type ShopDeps = ChangeDeps & {
  config: Pick<Config, "secretKey">;
  clock: Pick<Clock, "unixMs">;
  failpoint?: Failpoint;
};
/** A report may be this old, or this far ahead. */
const TOLERANCE_SECONDS = 300;
export type SignedHeaders = { "webhook-id": string; "webhook-timestamp": string; "webhook-signature": string };

/**
 * Takes a webhook of a seller's shop: `body` exactly as received. Throws invalid_request (a wrong or old signature, a body of another
 * form), not_found (no shop, no such order), and temporary errors: then the shop should send it again. The scheme is
 * that of standardwebhooks.com. Source: BUY-2, BUY-3.
 */
export async function takeShopWebhook(
  deps: ShopDeps,
  { sellerId, body, headers }: { sellerId: number; body: string; headers: SignedHeaders },
): Promise<Receipt> {
  const secret = await shopSecretOf(deps, sellerId);
  if (secret === undefined) throw new Refusal("not_found", { message: "This seller takes no webhooks of a shop." });
  const said = verified(secret.reveal(), { body, headers, nowUnixMs: deps.clock.unixMs() });
  if (!Value.Check(Paid, said)) {
    const param = Value.Errors(Paid, said).First()?.path.split("/")[1] ?? "";
    const form = FORMS[param];
    const message = form === undefined ? "The body must be a JSON object." : `The field ${param} must be ${form}.`;
    throw new Refusal("invalid_request", { message, ...(form !== undefined && { param }) });
  }
  const currency = said.currency.toLowerCase();
  if ((said.amount.split(".")[1]?.length ?? 0) > (decimalsOf(currency) ?? 2))
    throw new Refusal("invalid_request", {
      message: `The field amount must be ${FORMS.amount}.`,
      param: "amount",
    });
  const receipt = await receivePayment(deps, {
    sellerId,
    reference: said.order,
    method: "shop",
    externalId: said.payment_id,
    currency,
    amountNano: nanoOf(said.amount),
  });
  if (receipt.outcome === "unknown")
    throw new Refusal("not_found", { message: "This seller has no such order.", param: "order" });
  return receipt;
}

type Signed = { body: string; headers: SignedHeaders; nowUnixMs: number };

/** The body. The scheme's library would compare the timestamp with this machine's clock, so only its signature is used. */
function verified(secret: string, { body, headers, nowUnixMs }: Signed): unknown {
  const sentSeconds = Number(/^\d{1,12}$/.exec(headers["webhook-timestamp"])?.[0] ?? Number.NaN);
  const isRecent = Math.abs(Math.floor(nowUnixMs / 1000) - sentSeconds) <= TOLERANCE_SECONDS;
  if (isRecent) {
    const expected = new Webhook(secret).sign(headers["webhook-id"], new Date(sentSeconds * 1000), body);
    const isOurs = headers["webhook-signature"].split(" ").some((given) => constantTimeEqual(given, expected));
    const said = isOurs ? parsed(body) : undefined;
    if (said !== undefined) return said;
  }
  throw new Refusal("invalid_request", {
    message: "The signature does not fit this body and this address, or it is older than five minutes.",
    param: "webhook-signature",
  });
}

/** undefined: it is no JSON. */
function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined; // The refusal says what was wrong.
  }
}

/** The URL where the customer pays: the shop's address, with the order's reference and amount. */
export function shopPageOf(shopUrl: string, { reference, currency, totalNano }: Order): string {
  const url = new URL(shopUrl);
  url.searchParams.set("order", reference);
  url.searchParams.set("amount", decimalAmount(totalNano ?? 0n, currency));
  url.searchParams.set("currency", currency);
  return url.href;
}

function nanoOf(amount: string): bigint {
  const [whole = "0", decimals = ""] = amount.split(".");
  return BigInt(whole + decimals.padEnd(NANO_DECIMALS, "0"));
}
