import type Stripe from "stripe";
import { assertCallable } from "../catalog/guard.ts";
import { readUpTo } from "../catalog/provider_response.ts";
import type { Config } from "../config.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { firstReachable } from "../platform/connect_any.ts";
import type { Secret } from "../platform/crypto.ts";
import { upstreamFetch, upstreamTarget } from "../platform/runtime.ts";

/** Calls the API of Stripe by its own library, through the outbound guard. */

/** A whole call, its answer included. */
const CALL_MS_MAX = 10_000;
/** Attempts after the first. Calls that change something carry an idempotency key. */
const RETRIES_MAX = 1;
const ANSWER_BYTES_MAX = 1024 * 1024;

export type StripeConfig = Pick<Config, "stripeApiBase">;

/** A client with a seller's key. Loads the library with its first use: most replicas and commands never call Stripe. */
export async function createStripe({ stripeApiBase }: StripeConfig, apiKey: Secret): Promise<Stripe> {
  const { default: Library } = await import("stripe");
  const base = new URL(stripeApiBase);
  return new Library(apiKey.reveal(), {
    host: base.hostname,
    protocol: base.protocol === "http:" ? "http" : "https",
    port: base.port || (base.protocol === "http:" ? 80 : 443),
    timeout: CALL_MS_MAX,
    maxNetworkRetries: RETRIES_MAX,
    telemetry: false,
    httpClient: Library.createFetchHttpClient(callThroughGuard(base)),
  });
}

/** The library's `fetch`. The base URL may be private, because the operator has set it. */
function callThroughGuard(base: URL) {
  const allowPrivate = [`${base.hostname}:${base.port || (base.protocol === "http:" ? 80 : 443)}`];
  const call = async (
    asked: unknown,
    { method = "GET", headers, body, signal: given }: RequestInit = {},
  ): Promise<Response> => {
    const signal = given ?? AbortSignal.timeout(CALL_MS_MAX);
    const { url, port, addresses } = await assertCallable(String(asked), {
      allowPrivate,
      purpose: "Stripe's address",
    });
    const address = await firstReachable(addresses, port, signal);
    const response = await upstreamFetch(upstreamTarget(url, address), {
      method,
      headers: Object.fromEntries(new Headers(headers)),
      body: typeof body === "string" && body !== "" ? body : null,
      signal,
    });
    // Read here, because the library ends its time limit with the headers, and reads whatever comes.
    const text = await readUpTo(response, { bytesMax: ANSWER_BYTES_MAX, signal });
    return new Response(text === "" ? null : text, { status: response.status, headers: response.headers });
  };
  // Required by the type in one runtime. The library does not call it.
  return Object.assign(call, { preconnect: () => {} });
}

type Failure = Extract<keyof typeof Stripe.errors, `Stripe${string}Error`>;

/** Whether a call has failed in one of these ways, "StripeError" for any. Told by its fields, because its classes would load the library. */
export function isStripeError<Kind extends Failure>(
  error: unknown,
  ...kinds: readonly Kind[]
): error is InstanceType<(typeof Stripe.errors)[Kind]> {
  if (!(error instanceof Error && "type" in error && "rawType" in error)) return false;
  return kinds.some((kind) => kind === "StripeError" || kind === error.type);
}

/** The message for a person about a failed call. */
export function asStripeRefusal(error: unknown): InputError | Refusal {
  if (error instanceof InputError || error instanceof Refusal) return error;
  if (isStripeError(error, "StripeInvalidRequestError") && error.code === "amount_too_small")
    return new InputError("Stripe takes no amount that small. Choose another way to pay.", "method");
  return new Refusal("service_unavailable", {
    message: "Paying by card does not work right now. Try again later, or choose another way to pay.",
    retryAfterSeconds: 10,
  });
}

/** Whether Stripe has refused a call for good. Any other failure may succeed later. */
export function isFinal(error: unknown): error is Error {
  // 409: an earlier call with this idempotency key is still running, and may succeed.
  if (isStripeError(error, "StripeError") && error.statusCode === 409) return false;
  return isStripeError(error, "StripeInvalidRequestError", "StripeIdempotencyError", "StripeCardError");
}

/** Whether the account of the key has no such page or payment. Another account may have it. */
export function isMissing(error: unknown): boolean {
  return isStripeError(error, "StripeInvalidRequestError") && error.code === "resource_missing";
}

/**
 * What a key must be allowed: the name in Stripe's dashboard, and a call that needs it and changes nothing. What may only be read is listed. A
 * call that writes names something that does not exist: Stripe answers that it is missing, once the key may write.
 */
type Permission = { name: string; ask: (stripe: Stripe) => Promise<unknown> };

const REFUNDS: Permission = { name: "Refunds", ask: ({ refunds }) => refunds.create({ payment_intent: "pi_none" }) };
const OF_A_KEY: readonly Permission[] = [
  { name: "Checkout Sessions", ask: ({ checkout }) => checkout.sessions.expire("cs_none") },
  REFUNDS,
  { name: "Customers", ask: ({ customers }) => customers.update("cus_none", {}) },
  { name: "PaymentIntents", ask: ({ paymentIntents }) => paymentIntents.cancel("pi_none") },
  { name: "PaymentMethods", ask: ({ paymentMethods }) => paymentMethods.detach("pm_none") },
  { name: "SetupIntents", ask: ({ setupIntents }) => setupIntents.cancel("seti_none") },
  { name: "Disputes", ask: ({ disputes }) => disputes.list({ limit: 1 }) },
  { name: "Events", ask: ({ events }) => events.list({ limit: 1 }) },
];

/** Asks Stripe whether a key may do all that sales need. Throws InputError that names what it may not, or service_unavailable. */
export async function checkStripeKey(config: StripeConfig, apiKey: Secret): Promise<void> {
  const missing = await missingOf(config, apiKey, OF_A_KEY);
  if (missing.length === 0) return;
  throw new InputError(
    sentence(
      "This key may not do all that sales need. In Stripe's dashboard, give it these permissions: {missing}. Nothing was changed.",
      { missing: missing.join(", ") },
    ),
    "apiKey",
  );
}

/** Whether Stripe says that a key may not, or no longer, make refunds. False also if Stripe cannot be asked. */
export async function isBarredFromRefunds(config: StripeConfig, apiKey: Secret): Promise<boolean> {
  try {
    return (await missingOf(config, apiKey, [REFUNDS])).length > 0;
  } catch (error) {
    return error instanceof InputError;
  }
}

/** The permissions that a key lacks, with Stripe's own names of them. Throws InputError (Stripe does not accept it), service_unavailable. */
async function missingOf(config: StripeConfig, apiKey: Secret, wanted: readonly Permission[]): Promise<string[]> {
  const stripe = await createStripe(config, apiKey);
  const answers = await Promise.allSettled(wanted.map(({ ask }) => ask(stripe)));
  return wanted.flatMap(({ name }, i) => {
    const answer = answers[i];
    if (answer?.status !== "rejected") return [];
    const error: unknown = answer.reason;
    if (isStripeError(error, "StripePermissionError")) {
      const [, named] = /'(rak_\w+)'/.exec(error.message) ?? [];
      return [named === undefined ? name : `${name} (${named})`];
    }
    // Stripe looks at what is asked after it has looked at who may ask.
    if (isStripeError(error, "StripeInvalidRequestError")) return [];
    if (isStripeError(error, "StripeAuthenticationError"))
      throw new InputError("Stripe does not accept this key. Nothing was changed.", "apiKey");
    throw new Refusal("service_unavailable", {
      message: "Stripe cannot be asked about this key right now. Nothing was changed.",
      retryAfterSeconds: 10,
    });
  });
}
