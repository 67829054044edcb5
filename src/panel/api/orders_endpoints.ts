import { type Static, Type } from "@sinclair/typebox";
import { Elysia, t } from "elysia";
import { disputesOf } from "../../commerce/disputes_store.ts";
import {
  type NewOrder,
  type Order,
  placeOrder,
  listOrders as readOrders,
  withdrawOrder,
} from "../../commerce/orders_store.ts";
import { sellerOfPerson } from "../../commerce/sellers_store.ts";
import type { Deps } from "../../deps.ts";
import { perform } from "../../operations/operation.ts";
import { declineOrder, fulfilOrder, listOrders } from "../../operations/orders.ts";
import { Id, IdInBody, IdParam, orNull, PositiveNano, PositiveNanoUsd, whole } from "./fields.ts";
import { once } from "./form_once.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { callBy, type Person, signedIn } from "./panel_session.ts";

/** Orders: any account places them; its reseller decides them, or an admin if it has none. */

const PAGE_MAX = 100;
const TEXT_LENGTH_MAX = 2000;

const Text = t.Optional(orNull(t.String({ maxLength: TEXT_LENGTH_MAX })));
const Page = {
  status: t.Optional(
    t.Union([
      t.Literal("open"),
      t.Literal("paid"),
      t.Literal("fulfilled"),
      t.Literal("refunded"),
      t.Literal("declined"),
      t.Literal("withdrawn"),
    ]),
  ),
  before: t.Optional(Id),
  limit: t.Optional(whole(1, PAGE_MAX)),
};
const OfOrder = { params: IdParam };
/** The path's id is an order's. */
const OF_ORDER = { path: { id: "orderId" } } as const;
const NewOrderBody = t.Union([
  t.Object({ kind: t.Literal("package"), offeringId: IdInBody, note: Text }),
  t.Object({ kind: t.Literal("top_up"), amountNanoUsd: PositiveNanoUsd, note: Text }),
  t.Object({
    kind: t.Literal("measured"),
    days: Type.Integer(),
    dailyLimit: Type.Integer(),
    /** As the page showed it. */
    priceNano: PositiveNano,
    note: Text,
  }),
]);

export function ordersEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(placingEndpoints(deps)).use(decidingEndpoints(deps));
}

function placingEndpoints(deps: Deps) {
  return signedIn(deps)
    .get(
      "/orders",
      async ({ person, query }) => {
        const { rows, hasMore } = await readOrders(deps, { ...query, accountId: person.accountId });
        return toJson({ orders: rows.map(ownView), hasMore });
      },
      { query: t.Object(Page) },
    )
    .post(
      "/orders",
      async ({ person, body, request }) => {
        const wanted = toOrder(deps, body);
        const order = await once(deps, { person, request }, () =>
          placeOrder({ ...deps, by: person.by }, person.accountId, wanted),
        );
        return toJson({ order: ownView(order) });
      },
      { body: NewOrderBody },
    )
    .post(
      "/orders/:id/withdraw",
      async ({ person, params }) => {
        const { accountId } = person;
        return toJson({
          order: ownView(await withdrawOrder({ ...deps, by: person.by }, { accountId, orderId: params.id })),
        });
      },
      OfOrder,
    );
}

function toOrder({ config }: Deps, body: Static<typeof NewOrderBody>): NewOrder {
  if (body.kind === "package") return body;
  if (body.kind === "top_up") return { ...body, amountNanoUsd: BigInt(body.amountNanoUsd) };
  return { ...body, priceNano: BigInt(body.priceNano), timeZone: config.billingTimeZone };
}

function decidingEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/orders/incoming",
      async ({ person, query, request }) => {
        const { rows, hasMore } = await perform(deps, listOrders, callBy(deps, { person, request }), {
          ...query,
          limit: query.limit ?? PAGE_MAX,
        });
        return toJson({ orders: await withDisputes(deps, person, rows), hasMore });
      },
      // An admin decides orders of resellers and house customers; `all` also lists those that resellers decide.
      { query: t.Object({ scope: t.Optional(t.Union([t.Literal("house"), t.Literal("all")])), ...Page }) },
    )
    .post("/orders/:id/decline", operate(deps, declineOrder, OF_ORDER), {
      ...OfOrder,
      body: bodyOf(declineOrder, "orderId"),
    })
    .post("/orders/:id/fulfil", operate(deps, fulfilOrder, OF_ORDER), {
      ...OfOrder,
      body: bodyOf(fulfilOrder, "orderId"),
    });
}

/** Includes the disputes at the person's own Stripe account. */
async function withDisputes(deps: Deps, person: Person, orders: readonly Order[]) {
  const sellerId = sellerOfPerson(person);
  const orderIds = orders.flatMap((order) => (order.sellerId === sellerId ? [order.orderId] : []));
  const disputed = await disputesOf(deps, { orderIds });
  return orders.map((order) => ({ ...order, disputes: disputed.filter(({ orderId }) => orderId === order.orderId) }));
}

/** An order as the account that placed it sees it: without the account, its seller's id and the wholesale price. */
export function ownView({ account: _, sellerId: _sellerId, offering, ...order }: Order) {
  return { ...order, offering: offering && { offeringId: offering.offeringId, name: offering.name } };
}
