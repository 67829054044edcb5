import { sellersInTestMode } from "../commerce/payment_settings_store.ts";
import { OPERATOR } from "../commerce/sellers_store.ts";
import type { Context } from "./context.ts";
import type { Found } from "./doctor_findings.ts";
import { terminal } from "./terminal.ts";

/** Part of the command `doctor`: how sellers are paid. */

/** Sellers that are named; of others, only their number. */
const NAMED_MAX = 10;

/** Sellers with a key of Stripe's test mode. Whether the replicas run in production is not known here. Source: BUY-13. */
export async function checkPayments(context: Context): Promise<Found> {
  if (!terminal().env.SECRET_KEY) return { state: "ok", detail: "not checked: SECRET_KEY is not set" };
  const ids = await sellersInTestMode(context);
  if (ids.length === 0) return { state: "ok", detail: "no seller has a key of Stripe's test mode" };
  const names = ids.slice(0, NAMED_MAX).map((id) => (id === OPERATOR ? "the operator" : `account ${id}`));
  const others = ids.length > names.length ? ` and ${ids.length - names.length} others` : "";
  return {
    state: "warning",
    detail: `${names.join(", ")}${others} can be paid in Stripe's test mode, in which nobody pays anything`,
    advice: "Set a live key on the page Payment settings. In production, such payments deliver nothing.",
  };
}
