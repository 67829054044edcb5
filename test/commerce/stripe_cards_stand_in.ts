import { failure, isLive, type Reply } from "./stripe_stand_in.ts";

/**
 * The part of the stand-in for Stripe that keeps customers, their cards and payments: pages on which a card is saved, and charges without the
 * person. As at Stripe, a payment succeeds once, however often it is confirmed.
 */

/** What the bank says when a card is charged. */
export type Bank = "pays" | "refuses" | "expired" | "asks" | "asks_later" | "processing";
type Setup = {
  id: string;
  url: string;
  status: "open" | "complete" | "expired";
  customer: string | null;
  method: string | null;
  metadata: { card_setup: string };
  account: string;
};
type Method = { id: string; customer: string | null; bank: Bank; lastFour: string; account: string };
export type Intent = {
  id: string;
  status:
    | "requires_confirmation"
    | "requires_payment_method"
    | "requires_action"
    | "processing"
    | "succeeded"
    | "canceled";
  amount: number;
  currency: string;
  customer: string;
  metadata: { order: string };
  account: string;
};
type Asked = { method: string; resource: string; rest: string[]; form: URLSearchParams; account: string };

export function createStripeCards(nextId: () => number) {
  const setups = new Map<string, Setup>();
  const customers = new Map<string, string>();
  const methods = new Map<string, Method>();
  const intents = new Map<string, Intent>();
  /** Payments that took money, by the id of the payment: twice for one would be a double charge. */
  const charged: string[] = [];
  let onConfirm: () => Promise<unknown> = async () => {};
  const missing = (what: string) =>
    failure(404, "invalid_request_error", "resource_missing", { message: `No such ${what}` });

  function createSetup(form: URLSearchParams, account: string, port: number): Reply {
    const id = `cs_setup_${nextId()}`;
    const url = `http://127.0.0.1:${port}/pay/${id}?back=${encodeURIComponent(String(form.get("success_url")))}`;
    const customer = form.get("customer");
    if (customer !== null && customers.get(customer) !== account) return missing("customer");
    const metadata = { card_setup: String(form.get("metadata[card_setup]")) };
    const setup: Setup = { id, url, status: "open", customer, method: null, metadata, account };
    setups.set(id, setup);
    return { status: 200, body: shownSetup(setup) };
  }

  /** The person enters a card on the page. */
  function complete(setupId: string, bank: Bank = "pays"): Setup {
    const setup = setups.get(setupId);
    if (!setup) throw new Error(`Stripe has no page ${setupId}`);
    if (setup.status === "complete") return setup;
    const customer = setup.customer ?? `cus_${nextId()}`;
    customers.set(customer, setup.account);
    const method: Method = {
      ...{ id: `pm_${nextId()}`, customer, bank, account: setup.account },
      lastFour: bank === "pays" ? "4242" : "0341",
    };
    methods.set(method.id, method);
    return Object.assign(setup, { status: "complete", customer, method: method.id });
  }

  /** A card of a new customer, as if it had been saved. */
  function add(account: string): Method & { customer: string } {
    const customer = `cus_${nextId()}`;
    customers.set(customer, account);
    const method = { id: `pm_${nextId()}`, customer, bank: "pays" as const, lastFour: "4242", account };
    methods.set(method.id, method);
    return method;
  }

  function route({ method, resource, rest, form, account }: Asked): Reply | undefined {
    const [first = "", second] = rest;
    if (resource === "customers") {
      if (customers.get(first) !== account) return missing("customer");
      return { status: 200, body: { id: first, object: "customer" } };
    }
    if (resource === "payment_methods" && second === "detach") {
      const found = methods.get(first);
      if (!found || found.account !== account || found.customer === null) return missing("payment method");
      found.customer = null;
      return { status: 200, body: { id: first, object: "payment_method" } };
    }
    if (resource === "checkout" && second !== undefined && setups.has(second) && method === "GET") {
      const setup = setups.get(second);
      return setup?.account === account ? { status: 200, body: shownSetup(setup, true) } : missing("session");
    }
    if (resource !== "payment_intents") return undefined;
    if (first === "") return createIntent(form, account);
    const intent = intents.get(first);
    if (!intent || intent.account !== account) return missing("payment_intent");
    if (second === "confirm") return confirm(intent, String(form.get("payment_method")));
    if (second === "cancel") {
      if (intent.status === "succeeded" || intent.status === "canceled") return unexpected(intent);
      intent.status = "canceled";
    }
    return { status: 200, body: shownIntent(intent) };
  }

  function createIntent(form: URLSearchParams, account: string): Reply {
    const amount = Number(form.get("amount"));
    const customer = String(form.get("customer"));
    if (amount < 50) return failure(400, "invalid_request_error", "amount_too_small");
    if (customers.get(customer) !== account) return missing("customer");
    const intent: Intent = {
      ...{ id: `pi_card_${nextId()}`, status: "requires_confirmation", amount, currency: String(form.get("currency")) },
      ...{ customer, metadata: { order: String(form.get("metadata[order]")) }, account },
    };
    intents.set(intent.id, intent);
    return { status: 200, body: shownIntent(intent) };
  }

  function confirm(intent: Intent, methodId: string): Reply {
    if (["succeeded", "canceled", "processing"].includes(intent.status)) return unexpected(intent);
    const method = methods.get(methodId);
    if (!method || method.customer !== intent.customer) return missing("payment method");
    const refused = (code: string) => {
      intent.status = "requires_payment_method";
      return failure(402, "card_error", code, { payment_intent: shownIntent(intent) });
    };
    switch (method.bank) {
      case "refuses":
        return refused("card_declined");
      case "expired":
        return refused("expired_card");
      case "asks":
        return refused("authentication_required");
      case "asks_later":
        intent.status = "requires_action";
        break;
      case "processing":
        intent.status = "processing";
        break;
      case "pays":
        intent.status = "succeeded";
        charged.push(intent.id);
    }
    return { status: 200, body: shownIntent(intent) };
  }

  const unexpected = (intent: Intent) =>
    failure(400, "invalid_request_error", "payment_intent_unexpected_state", { payment_intent: shownIntent(intent) });

  function shownSetup({ account, method, ...setup }: Setup, isExpanded = false) {
    const found = methods.get(method ?? "");
    const card = found && { brand: "visa", last4: found.lastFour, exp_month: 4, exp_year: 2031 };
    const payment_method = isExpanded ? found && { id: found.id, object: "payment_method", card } : method;
    return {
      ...{ object: "checkout.session", mode: "setup", payment_status: "no_payment_required", payment_intent: null },
      ...{ ...setup, livemode: isLive(account) },
      setup_intent: method && { id: `seti_${setup.id}`, object: "setup_intent", payment_method },
    };
  }

  return {
    ...{ setups, customers, methods, intents, charged, createSetup, complete, add, route },
    beforeConfirm: () => onConfirm(),
    whenConfirming: (call: () => Promise<unknown>) => {
      onConfirm = call;
    },
    /** The bank has something else to say about all cards from now on. */
    setBank(bank: Bank): void {
      for (const method of methods.values()) method.bank = bank;
    },
    /** A payment as Stripe's events show it. */
    shown: shownIntent,
  };
}

function shownIntent({ account, ...intent }: Intent) {
  const amount_received = intent.status === "succeeded" ? intent.amount : 0;
  return { object: "payment_intent", ...intent, amount_received, livemode: isLive(account) };
}
