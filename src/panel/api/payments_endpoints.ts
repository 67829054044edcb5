import { Elysia, t } from "elysia";
import { chooseMethod } from "../../commerce/checkouts_store.ts";
import { numberText, titleOf } from "../../commerce/invoice_titles.ts";
import { invoiceOfOrder } from "../../commerce/invoices_store.ts";
import { findOrder, type Method, type Order } from "../../commerce/orders_store.ts";
import {
  checkStripeSecrets,
  readPaymentSettings,
  setInstructions,
  setShop,
  type WaysToPay,
  waysToPay,
} from "../../commerce/payment_settings_store.ts";
import { sellerIdOf, sellerOfPerson } from "../../commerce/sellers_store.ts";
import { shopPageOf } from "../../commerce/shop_webhook.ts";
import { changeStripe } from "../../commerce/stripe_account.ts";
import { askAboutOrder, openCheckout } from "../../commerce/stripe_checkout.ts";
import { checkStripeKey } from "../../commerce/stripe_client.ts";
import type { Deps } from "../../deps.ts";
import { InputError } from "../../errors.ts";
import { originOf } from "../../http/host.ts";
import { factsOf } from "../../http/request_facts.ts";
import { findPackage, type Package } from "../../ledger/packages_store.ts";
import { TYPED_STRIPE_SECRET_CHARS_MAX } from "../../limits.ts";
import { askedCall } from "../../operations/asked_calls.ts";
import { PAGE_MAX, perform } from "../../operations/operation.ts";
import { endRefund, listPayments, refundPayment } from "../../operations/orders.ts";
import { Id, IdParam, orNull } from "./fields.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { ownView } from "./orders_endpoints.ts";
import { callBy, type Person, signedIn } from "./panel_session.ts";

/** Paying for an order, a seller's payments and refunds, and how a seller is paid. */

const TEXT_LENGTH_MAX = 4_000;

const Text = t.String({ maxLength: TEXT_LENGTH_MAX });
const SecretText = t.String({ maxLength: TYPED_STRIPE_SECRET_CHARS_MAX });
const PayMethod = t.Union([t.Literal("stripe"), t.Literal("instructions"), t.Literal("shop")]);
const OfOrder = { params: IdParam };

export function paymentsEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(payingEndpoints(deps))
    .use(receivingEndpoints(deps))
    .use(settingsEndpoints(deps));
}

function payingEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/ways-to-pay", async ({ person }) => {
      const { stripe, instructions, shopUrl } = await waysOf(deps, person);
      return { stripe, instructions: instructions !== null, shop: shopUrl !== null };
    })
    .get("/orders/:id", async ({ person, params }) => toJson(await ownOrder(deps, person, params.id)), OfOrder)
    .post(
      // Asks Stripe whether the customer who has returned from it has paid, in case its webhook is late or lost.
      "/orders/:id/look",
      async ({ person, params }) => {
        await findOrder(deps, { accountId: person.accountId, orderId: params.id });
        await askedCall(deps, { person, kind: "stripe" }, () => askAboutOrder(deps, params.id));
        return toJson(await ownOrder(deps, person, params.id));
      },
      OfOrder,
    )
    .post(
      "/orders/:id/pay",
      async ({ person, params, body: { method }, request }) => {
        checkOffered(await waysOf(deps, person), method);
        const choice = { accountId: person.accountId, orderId: params.id, method };
        const order = await chooseMethod({ ...deps, by: person.by }, choice);
        return { method, url: await pageOf(deps, { person, order, method, request }) };
      },
      { ...OfOrder, body: t.Object({ method: PayMethod }) },
    );
}

/** An order as its customer sees it, with how it can be paid, the package that it became, and its invoice. */
async function ownOrder(deps: Deps, { accountId }: Person, orderId: number) {
  const order = await findOrder(deps, { accountId, orderId });
  const { stripe, instructions, shopUrl } = await waysToPay(deps, order.sellerId);
  const found = order.packageId === null ? undefined : await findPackage(deps, order.packageId);
  const invoice = order.paidAt === null ? null : await invoiceOfOrder(deps, { accountId, orderId });
  return {
    order: ownView(order),
    ways: { stripe, instructions, shop: shopUrl !== null },
    package: found ? packageView(found) : null,
    invoice: invoice && { invoiceId: invoice.invoiceId, number: numberText(invoice.number), title: titleOf(invoice) },
  };
}

function packageView({ name, state, startsAt, endsAt, timeZone }: Package) {
  return { name, state, startsAt, endsAt, timeZone };
}

function waysOf(deps: Deps, person: Person): Promise<WaysToPay> {
  const resellerId = person.role === "customer" && person.tenantId > 0 ? person.tenantId : null;
  return waysToPay(deps, sellerIdOf({ role: person.role, resellerId }));
}

function checkOffered({ stripe, instructions, shopUrl }: WaysToPay, method: Method): void {
  const offered = { stripe, instructions: instructions !== null, shop: shopUrl !== null };
  if (!offered[method]) throw new InputError("This way to pay is not offered.", "method");
}

type Paying = { person: Person; order: Order; method: Method; request: Request };

/** Where the customer continues: Stripe's or the shop's page; null: the order's own page has the instructions. */
async function pageOf(deps: Deps, { person, order, method, request }: Paying): Promise<string | null> {
  if (method === "instructions") return null;
  const { shopUrl } = await waysOf(deps, person);
  if (method === "shop") return shopUrl === null ? null : shopPageOf(shopUrl, order);
  const returnTo = `${originOf(deps, factsOf(request).url)}/billing/orders/${order.orderId}`;
  return await askedCall(deps, { person, kind: "stripe" }, () => openCheckout(deps, { order, returnTo }));
}

function receivingEndpoints(deps: Deps) {
  return (
    signedIn(deps, ...listPayments.roles)
      .get(
        "/payments",
        async ({ person, query, request }) => {
          const call = callBy(deps, { person, request });
          const { rows, hasMore } = await perform(deps, listPayments, call, { ...query, limit: PAGE_MAX });
          return toJson({ payments: rows, hasMore });
        },
        {
          query: t.Object({
            before: t.Optional(Id),
            show: t.Optional(
              t.Union([t.Literal("all"), t.Literal("problems"), t.Literal("disputed"), t.Literal("to_answer")]),
            ),
          }),
        },
      )
      .post("/payments/:id/refunds", operate(deps, refundPayment, { path: { id: "paymentId" } }), {
        params: IdParam,
        body: bodyOf(refundPayment, "paymentId", "sellerId"),
      })
      // A former account at Stripe no longer answers: the seller says whether it has made the refund.
      .post("/refunds/:id/end", operate(deps, endRefund, { path: { id: "refundId" } }), {
        params: IdParam,
        body: bodyOf(endRefund, "refundId", "sellerId"),
      })
  );
}

function settingsEndpoints(deps: Deps) {
  const ofPerson = async (person: Person) => {
    const sellerId = sellerOfPerson(person);
    const settings = await readPaymentSettings(deps, sellerId);
    const origin = originOf(deps, new URL(deps.config.panelUrl));
    const hooks = { stripe: `/api/pay/stripe/${sellerId}`, shop: `/api/pay/shop/${sellerId}` };
    // A reseller's shop and Stripe call an address on the reseller's domain.
    return { settings, hooks, origin: person.role === "admin" ? origin : null };
  };
  return signedIn(deps, "reseller", "admin")
    .get("/payment-settings", async ({ person }) => ofPerson(person))
    .put(
      "/payment-settings/instructions",
      async ({ person, body }) => {
        await setInstructions({ ...deps, by: person.by }, sellerOfPerson(person), body.instructions);
        return ofPerson(person);
      },
      { body: t.Object({ instructions: orNull(Text) }) },
    )
    .put(
      "/payment-settings/stripe",
      async ({ person, body }) => {
        const secrets = body.stripe && checkStripeSecrets(body.stripe);
        await askedCall(deps, { person, kind: "stripe" }, async () => {
          if (secrets) await checkStripeKey(deps.config, secrets.apiKey);
          await changeStripe(deps, { sellerId: sellerOfPerson(person), secrets, by: person.by });
        });
        return ofPerson(person);
      },
      { body: t.Object({ stripe: orNull(t.Object({ apiKey: SecretText, webhookSecret: SecretText })) }) },
    )
    .put(
      "/payment-settings/shop",
      async ({ person, body }) => {
        const secret = await setShop({ ...deps, by: person.by }, sellerOfPerson(person), body.shopUrl);
        return { ...(await ofPerson(person)), secret: secret?.reveal() ?? null };
      },
      { body: t.Object({ shopUrl: orNull(Text) }) },
    );
}
