import { Elysia, t } from "elysia";
import type { Deps } from "../../deps.ts";
import { InputError } from "../../errors.ts";
import {
  type Decider,
  declineOrder,
  fulfilOrder,
  listIncoming,
  listOrders,
  type Order,
  placeOrder,
  withdrawOrder,
} from "../../ledger/orders_store.ts";
import { viewOf } from "./billing_routes.ts";
import { longRead } from "./long_read.ts";
import { Id, IdInBody, once, type Person, signedIn, toWire, whole } from "./panel_session.ts";

/** Orders: asked for by everybody, decided by the reseller of who asked, or where there is none by an admin. */

const PAGE_MAX = 100;
/** What a text may have is checked by its store; this is where nobody has to read on. */
const TEXT_LENGTH_MAX = 2000;

const Text = t.Optional(t.Union([t.String({ maxLength: TEXT_LENGTH_MAX }), t.Null()]));
export const When = t.Union([t.Literal("now"), t.Literal("after")]);
export const PayWithName = t.Union([t.Literal("balance"), t.Literal("allotment"), t.Literal("operator")]);
/** Nano-USD above zero, as digits. */
export const Amount = t.String({
  pattern: "^[1-9][0-9]{0,15}$",
  maxLength: 16,
  says: "nano-USD above 0, as a string of digits",
});
const Page = {
  status: t.Optional(
    t.Union([t.Literal("open"), t.Literal("fulfilled"), t.Literal("declined"), t.Literal("withdrawn")]),
  ),
  before: t.Optional(Id),
  limit: t.Optional(whole(1, PAGE_MAX)),
};
const OfOrder = { params: t.Object({ id: Id }) };

export function ordersRoutes(deps: Deps) {
  return new Elysia({ normalize: false }).use(askingRoutes(deps)).use(decidingRoutes(deps));
}

function askingRoutes(deps: Deps) {
  return signedIn(deps)
    .get(
      "/orders",
      async ({ person, query }) => {
        const { rows, hasMore } = await listOrders(deps, { ...query, accountId: person.accountId });
        return toWire({ orders: rows.map(ownView), hasMore });
      },
      { query: t.Object(Page) },
    )
    .post(
      "/orders",
      async ({ person, body, request }) => {
        const wanted = body.kind === "package" ? body : { ...body, amountNanoUsd: BigInt(body.amountNanoUsd) };
        const order = await once(deps, person, request, () =>
          placeOrder({ ...deps, by: person.by }, person.accountId, wanted),
        );
        return toWire({ order: ownView(order) });
      },
      {
        body: t.Union([
          t.Object({ kind: t.Literal("package"), offeringId: IdInBody, note: Text }),
          t.Object({ kind: t.Literal("top_up"), amountNanoUsd: Amount, note: Text }),
        ]),
      },
    )
    .post(
      "/orders/:id/withdraw",
      async ({ person, params }) => {
        const { accountId } = person;
        return toWire({
          order: ownView(await withdrawOrder({ ...deps, by: person.by }, { accountId, orderId: params.id })),
        });
      },
      OfOrder,
    );
}

function decidingRoutes(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/orders/incoming",
      async ({ person, query: { scope, ...page }, request: { signal } }) => {
        const houseOnly = person.role === "admin" && scope !== "all";
        const { rows, hasMore } = await longRead(deps, { person, signal }, (reading) =>
          listIncoming(reading, { ...page, ...deciderOf(person), houseOnly }),
        );
        return toWire({ orders: rows, hasMore });
      },
      // An admin is asked by house customers and resellers; `all` shows what resellers are asked too.
      { query: t.Object({ scope: t.Optional(t.Union([t.Literal("house"), t.Literal("all")])), ...Page }) },
    )
    .post(
      "/orders/:id/decline",
      async ({ person, params, body }) => {
        const decision = { ...deciderOf(person), orderId: params.id, answer: body.answer ?? null };
        return toWire({ order: await declineOrder({ ...deps, by: person.by }, decision) });
      },
      { ...OfOrder, body: t.Object({ answer: Text }) },
    )
    .post(
      "/orders/:id/fulfil",
      async ({ person, params, body: { when = "now", payWith } }) => {
        checkPayWith(person, payWith);
        const wanted = { ...deciderOf(person), orderId: params.id, when, payWith };
        const { order, package: handedOut } = await fulfilOrder({ ...deps, by: person.by }, wanted);
        return toWire({ order, package: handedOut && viewOf(person, handedOut) });
      },
      { ...OfOrder, body: t.Object({ when: t.Optional(When), payWith: t.Optional(PayWithName) }) },
    );
}

/** Only an admin gives what nobody pays for. Throws InputError. Source: rulings › Resellers. */
export function checkPayWith({ role }: Person, payWith: "balance" | "allotment" | "operator" | undefined): void {
  if (payWith === "operator" && role !== "admin")
    throw new InputError("Pay with your balance or your allotment.", "payWith");
}

function deciderOf({ role, accountId }: Person): Decider {
  return { resellerId: role === "admin" ? null : accountId };
}

/** An order as the one who placed it sees it. */
function ownView({ account: _, offering, ...order }: Order) {
  return { ...order, offering: offering && { offeringId: offering.offeringId, name: offering.name } };
}
