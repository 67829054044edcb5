import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import Stripe from "stripe";
import { createStripeCards } from "./stripe_cards_stand_in.ts";

/**
 * A stand-in for Stripe's API over a socket: Checkout Sessions, cards on file and charges to them, refunds, disputes and the list of events, with idempotency keys and pages.
 * It counts its calls. Its webhooks are signed by Stripe's own library. Its hosted page can be paid in a browser.
 */

export type Session = {
  id: string;
  url: string;
  status: "open" | "complete" | "expired";
  payment_status: "unpaid" | "paid" | "no_payment_required";
  payment_intent: string | null;
  client_reference_id: string;
  customer_email: string | null;
  metadata: { order: string };
  amount_total: number;
  currency: string;
  account: string;
  /** The bank has refused the debit, days after the page was completed. */
  failed?: boolean;
};
export type Made = {
  id: string;
  object: "refund";
  payment_intent: string;
  amount: number;
  currency: string;
  status: "pending" | "succeeded" | "failed" | "canceled";
  failure_reason?: string;
  reason: string | null;
  metadata: Record<string, string>;
  account: string;
};
export type Disputed = {
  id: string;
  object: "dispute";
  payment_intent: string;
  amount: number;
  currency: string;
  reason: string;
  status: string;
  evidence_details: { due_by: number | null };
  account: string;
};
type Sent = { id: string; object: "event"; type: string; created: number; data: { object: object }; account: string };
export type Reply = { status: number; body: unknown };

export type StripeStandIn = Awaited<ReturnType<typeof startStripe>>;

export const STRIPE_KEY = "sk_test_0123456789abcdef";
export const STRIPE_WEBHOOK_SECRET = "whsec_0123456789abcdef0123456789abcdef";

/** `nowMs`: its clock, Unix time in ms. */
export async function startStripe(nowMs = () => Date.now()) {
  const sessions = new Map<string, Session>();
  const refunds: Made[] = [];
  const disputes: Disputed[] = [];
  const events: Sent[] = [];
  const answered = new Map<string, { asked: string; reply: Reply }>();
  const calls: string[] = [];
  /** Refunds are refused with this message; with "" they are made. */
  let refuseRefunds = "";
  let isDown = false;
  /** Changes are made, and their answers are lost. */
  let losesAnswers = false;
  /** Calls are answered by 500, and the answer is kept by its idempotency key, as Stripe does. */
  let isBroken = false;
  /** Keys that Stripe no longer accepts. */
  const revoked = new Set<string>();
  /** Restricted keys, with Stripe's names of their permissions. */
  const restricted = new Map<string, ReadonlySet<string>>();
  /** An e-mail address that Stripe refuses. */
  let refusedEmail = "";
  let ids = 0;
  const cards = createStripeCards(() => ++ids);
  /** Called when a customer has paid on the page, before the browser is sent back: to send the webhook. */
  let onPaid: (session: Session) => Promise<void> = async () => {};
  /** Called when a refund is requested, before the answer. */
  let onRefund: () => Promise<unknown> = async () => {};

  function createSession(form: URLSearchParams, account: string): Reply {
    if (form.get("mode") === "setup") return cards.createSetup(form, account, port());
    const amount = Number(form.get("line_items[0][price_data][unit_amount]"));
    if (amount < 50) return failure(400, "invalid_request_error", "amount_too_small");
    // As at Stripe, a page lasts at least 30 minutes.
    if (Number(form.get("expires_at")) < nowMs() / 1000 + 1800)
      return failure(400, "invalid_request_error", "expires_at", { param: "expires_at" });
    if (refusedEmail !== "" && form.get("customer_email") === refusedEmail)
      return failure(400, "invalid_request_error", "email_invalid", { param: "customer_email" });
    const id = `cs_test_${++ids}`;
    const session: Session = {
      id,
      url: `http://127.0.0.1:${port()}/pay/${id}?back=${encodeURIComponent(String(form.get("success_url")))}`,
      status: "open",
      payment_status: "unpaid",
      payment_intent: null,
      client_reference_id: String(form.get("client_reference_id")),
      customer_email: form.get("customer_email"),
      metadata: { order: String(form.get("metadata[order]")) },
      amount_total: amount,
      currency: String(form.get("line_items[0][price_data][currency]")),
      account,
    };
    sessions.set(id, session);
    return { status: 200, body: shown(session) };
  }

  function addRefund(over: Partial<Made> & Pick<Made, "payment_intent" | "amount" | "account">): Made {
    const made: Made = {
      id: `re_${++ids}`,
      object: "refund",
      currency: [...sessions.values()].find((one) => one.payment_intent === over.payment_intent)?.currency ?? "usd",
      status: "succeeded",
      reason: null,
      metadata: {},
      ...over,
    };
    refunds.push(made);
    return made;
  }

  function route(method: string, url: URL, form: URLSearchParams, account: string): Reply {
    const [, , resource = "", ...rest] = url.pathname.split("/");
    const ofCards = cards.route({ method, resource, rest, form, account });
    if (ofCards) return ofCards;
    if (resource === "events")
      return page(
        events.filter((event) => isAsked(event, url)),
        url,
        account,
      );
    if (resource === "disputes")
      return page(
        disputes.filter((one) => isOf(one, url)),
        url,
        account,
      );
    if (resource === "refunds" && method === "GET" && rest[0]) {
      const made = refunds.find(({ id }) => id === rest[0]);
      return made ? { status: 200, body: made } : failure(404, "invalid_request_error", "resource_missing");
    }
    if (resource === "refunds" && method === "GET")
      return page(
        refunds.filter((one) => isOf(one, url)),
        url,
        account,
      );
    if (resource === "refunds") {
      if (refuseRefunds !== "")
        return failure(400, "invalid_request_error", "charge_disputed", { message: refuseRefunds });
      const [intent, amount] = [String(form.get("payment_intent")), Number(form.get("amount"))];
      const made = refunds.filter(({ payment_intent, status }) => payment_intent === intent && status !== "failed");
      const paid = [...sessions.values()].find(({ payment_intent }) => payment_intent === intent);
      // A payment that only a webhook of a test has named can be refunded, by an amount.
      if (paid ? paid.account !== account : !form.has("amount"))
        return failure(404, "invalid_request_error", "resource_missing", { message: `No such payment: ${intent}` });
      if (paid && made.reduce((sum, one) => sum + one.amount, amount) > paid.amount_total)
        return failure(400, "invalid_request_error", "charge_already_refunded", {
          message: "The refund is larger than what is left.",
        });
      const metadata = { refund_key: String(form.get("metadata[refund_key]")) };
      return { status: 200, body: addRefund({ payment_intent: intent, amount, metadata, account }) };
    }
    if (rest.length === 1 && method === "GET") {
      const isIts = ({ payment_intent }: Session) => payment_intent === url.searchParams.get("payment_intent");
      return page(
        [...sessions.values()].filter(isIts).map((one) => ({ ...shown(one), account: one.account })),
        url,
        account,
      );
    }
    if (rest.length === 1) return createSession(form, account);
    const session = sessions.get(rest[1] ?? "");
    if (!session || session.account !== account) return failure(404, "invalid_request_error", "resource_missing");
    if (rest[2] === "expire") session.status = "expired";
    if (url.searchParams.getAll("expand[0]").includes("payment_intent"))
      return { status: 200, body: expanded(session) };
    return { status: 200, body: shown(session) };
  }

  const server = createServer(async (request, response) => {
    const url = new URL(request.url ?? "/", "http://stripe");
    const text = await bodyOf(request);
    const send = ({ status, body }: Reply) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    const [, paid] = /^\/pay\/(\w+)$/.exec(url.pathname) ?? [];
    if (paid !== undefined) {
      const setup = cards.setups.get(paid);
      if (setup) {
        const done = String(url.searchParams.get("back"));
        if (request.method === "POST") {
          cards.complete(setup.id);
          return response.writeHead(303, { location: done }).end();
        }
        response.writeHead(200, { "content-type": "text/html" });
        return response.end(
          `<!doctype html><title>Card</title><h1>Save a card</h1><form method="post"><button>Save card</button></form>`,
        );
      }
      const session = sessions.get(paid);
      if (!session) return send(failure(404, "invalid_request_error", "resource_missing"));
      const back = String(url.searchParams.get("back"));
      if (request.method === "POST") {
        await onPaid(complete(session));
        return response.writeHead(303, { location: back }).end();
      }
      response.writeHead(200, { "content-type": "text/html" });
      return response.end(payPage(session, back));
    }
    calls.push(`${request.method} ${url.pathname}`);
    if (isDown) return request.socket.destroy();
    const account = request.headers.authorization?.replace("Bearer ", "") ?? "";
    if (!/^[sr]k_(?:test|live)_/.test(account) || account.includes("revoked") || revoked.has(account))
      return send(failure(401, "invalid_request_error", "api_key_expired"));
    const needed = permissionOf(request.method ?? "GET", url);
    if (restricted.get(account)?.has(needed) === false) return send(notPermitted(account, needed));
    const key = request.headers["idempotency-key"];
    const kept = typeof key === "string" ? answered.get(`${account} ${key}`) : undefined;
    if (kept && kept.asked !== text) return send(failure(400, "idempotency_error", "idempotency_key_in_use"));
    if (request.method === "POST" && url.pathname === "/v1/refunds") await onRefund();
    if (kept === undefined && url.pathname.endsWith("/confirm")) await cards.beforeConfirm();
    const broken = isBroken ? failure(500, "api_error", "broken") : undefined;
    const reply = kept?.reply ?? broken ?? route(request.method ?? "GET", url, new URLSearchParams(text), account);
    if (typeof key === "string" && request.method === "POST") answered.set(`${account} ${key}`, { asked: text, reply });
    return losesAnswers && request.method === "POST" ? request.socket.destroy() : send(reply);
  });
  const complete = (session: Session): Session =>
    Object.assign(session, {
      status: "complete",
      payment_status: "paid",
      payment_intent: session.payment_intent ?? `pi_${++ids}`,
    });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const port = () => (server.address() as AddressInfo).port;

  return {
    base: `http://127.0.0.1:${port()}`,
    sessions,
    cards,
    refunds,
    disputes,
    /** A refund made in Stripe's dashboard, in its currency's smallest unit. */
    refundInDashboard: (session: Session, amount: number, over: Partial<Made> = {}): Made =>
      addRefund({ payment_intent: String(session.payment_intent), amount, account: session.account, ...over }),
    /** A customer disputes a payment at its bank. */
    dispute(
      session: Pick<Session, "payment_intent" | "amount_total" | "currency" | "account">,
      over: Partial<Disputed> = {},
    ): Disputed {
      const disputed: Disputed = {
        ...{ id: `du_${++ids}`, object: "dispute", payment_intent: String(session.payment_intent) },
        ...{ amount: session.amount_total, currency: session.currency, reason: "fraudulent", status: "needs_response" },
        ...{ evidence_details: { due_by: 1_900_000_000 }, account: session.account },
        ...over,
      };
      disputes.push(disputed);
      return disputed;
    },
    /** An event that is in Stripe's list, whether or not a webhook brings it. */
    happened(type: string, object: { account: string }): void {
      const created = Math.floor(nowMs() / 1000);
      events.push({ id: `evt_${++ids}`, object: "event", type, created, data: { object }, account: object.account });
    },
    calls,
    refuseRefunds: (message: string) => {
      refuseRefunds = message;
      if (message === "") answered.clear();
    },
    whenRefunding: (call: () => Promise<unknown>) => {
      onRefund = call;
    },
    setDown: (down: boolean) => {
      isDown = down;
    },
    loseAnswers: (lost: boolean) => {
      losesAnswers = lost;
    },
    /** A day later Stripe has forgotten its idempotency keys. */
    forgetKeys: () => answered.clear(),
    setBroken: (broken: boolean) => {
      isBroken = broken;
    },
    ...{ revoked, restricted },
    refuseEmail: (email: string) => {
      refusedEmail = email;
    },
    /** The latest session with an order's reference. */
    sessionOf(reference: string): Session {
      const found = [...sessions.values()].filter((session) => session.client_reference_id === reference).at(-1);
      if (!found) throw new Error(`Stripe has no session of ${reference}`);
      return found;
    },
    /** The customer pays on the page. */
    pay(reference: string): Session {
      return complete(this.sessionOf(reference));
    },
    /** Sets what happens when a customer pays in the browser. By default no webhook is sent. */
    whenPaid: (call: (session: Session) => Promise<void>) => {
      onPaid = call;
    },
    /** A webhook about a session, as Stripe sends it, signed now unless told otherwise. */
    async event(
      session: object & { account?: string },
      {
        type = "checkout.session.completed",
        secret = STRIPE_WEBHOOK_SECRET,
        timestamp = Math.floor(nowMs() / 1000),
        livemode = isLive(session.account ?? ""),
      }: { type?: string; secret?: string; timestamp?: number; livemode?: boolean } = {},
    ): Promise<{ body: string; headers: { "stripe-signature": string } }> {
      const body = JSON.stringify({
        id: `evt_${++ids}`,
        object: "event",
        type,
        livemode,
        data: { object: { object: "checkout.session", livemode, ...session, account: undefined } },
      });
      const { webhooks } = new Stripe(STRIPE_KEY);
      const signature = await webhooks.generateTestHeaderStringAsync({ payload: body, secret, timestamp });
      return { body, headers: { "stripe-signature": signature } };
    },
    stop: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

/** The permission that a restricted key needs for a call, by Stripe's own name: what may be written may be read, too. */
function permissionOf(method: string, url: URL): string {
  const resource = url.pathname.split("/")[2] ?? "";
  return `rak_${PERMITTED[resource]}_${method === "GET" ? "read" : "write"}`;
}

const PERMITTED: Readonly<Record<string, string>> = {
  ...{ checkout: "checkout_session", refunds: "charge", customers: "customer", payment_intents: "payment_intent" },
  ...{ payment_methods: "payment_method", setup_intents: "setup_intent", disputes: "dispute", events: "event" },
};

/** As Stripe answers, whatever is asked. */
const notPermitted = (account: string, needed: string): Reply => ({
  status: 403,
  body: {
    error: {
      type: "invalid_request_error",
      message: `The provided key '${account.slice(0, 8)}***' does not have the required permissions for this endpoint on account 'acct_1'. Having the '${needed}' permission would allow this request to continue.`,
    },
  },
});

function payPage({ amount_total, currency }: Session, back: string): string {
  const amount = `${(amount_total / 100).toFixed(2)} ${currency.toUpperCase()}`;
  return `<!doctype html><title>Pay</title><h1>Pay ${amount}</h1>
    <form method="post"><button>Pay ${amount}</button></form><a href="${back}">Back</a>`;
}

/** A page of Stripe's list, newest first, of what belongs to the key's account. */
function page(all: readonly { id?: string; account: string }[], url: URL, account: string): Reply {
  const own = all.filter((one) => one.account === account).reverse();
  const after = url.searchParams.get("starting_after");
  const start = after === null ? 0 : own.findIndex(({ id }) => id === after) + 1;
  const size = Number(url.searchParams.get("limit") ?? 10);
  const data = own.slice(start, start + size).map(({ account: _, ...one }) => one);
  return { status: 200, body: { object: "list", url: url.pathname, data, has_more: own.length > start + size } };
}

function isOf({ payment_intent }: { payment_intent: string }, url: URL): boolean {
  const asked = url.searchParams.get("payment_intent");
  return asked === null || asked === payment_intent;
}

function isAsked({ type, created }: Sent, url: URL): boolean {
  const types = [...url.searchParams].flatMap(([name, value]) => (name.startsWith("types") ? [value] : []));
  return (types.length === 0 || types.includes(type)) && created >= Number(url.searchParams.get("created[gte]") ?? 0);
}

/** The session with its payment intent, which has no payment method if the bank refused. */
function expanded(session: Session) {
  const status = session.failed
    ? "requires_payment_method"
    : session.payment_status === "paid"
      ? "succeeded"
      : "processing";
  return { ...shown(session), payment_intent: session.payment_intent && { id: session.payment_intent, status } };
}

function shown({ account, failed: _, ...session }: Session) {
  return { object: "checkout.session", livemode: isLive(account), ...session };
}

export function isLive(account: string): boolean {
  return /^[sr]k_live_/.test(account);
}

export function failure(
  status: number,
  type: string,
  code: string,
  over: { message?: string; param?: string; payment_intent?: object } = {},
): Reply {
  return { status, body: { error: { type, code, message: code, ...over } } };
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const bytes of request) text += bytes;
  return text;
}
