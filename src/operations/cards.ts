import { Type } from "@sinclair/typebox";
import { findAccount } from "../accounts/accounts_store.ts";
import { type CardPlace, findCard, removeCard as remove } from "../commerce/cards_store.ts";
import { waysToPay } from "../commerce/payment_settings_store.ts";
import { findSellerOf } from "../commerce/sellers_store.ts";
import { askAboutCard, openSetup } from "../commerce/stripe_cards.ts";
import { InputError, Refusal } from "../errors.ts";
import type { Db } from "../platform/db.ts";
import { orNull, text } from "./fields.ts";
import { type Caller, changing, type OperationDeps, operation } from "./operation.ts";

/** A buyer's own card on file at its seller. Source: CRD-1, CRD-2. */

const BUYERS = ["customer", "reseller"] as const;
const URL_CHARS_MAX = 500;

const CardShape = Type.Object(
  {
    isOffered: Type.Boolean({ description: "The seller charges cards." }),
    card: orNull(
      Type.Object({
        brand: Type.String({ description: "As in visa." }),
        lastFour: Type.String(),
        expiresMonth: orNull(Type.Integer()),
        expiresYear: orNull(Type.Integer()),
      }),
    ),
  },
  { title: "Card" },
);

export const getCard = operation({
  name: "cards.get",
  says: "Returns your card on file: what you recognise it by. Its number is at Stripe.",
  scope: "payments:read",
  roles: BUYERS,
  route: "GET /card",
  input: {},
  output: CardShape,
  run: async (deps, { caller }) => shown(deps, await placeOf(deps, caller)),
});

export const saveCard = operation({
  name: "cards.save",
  says: "Returns the address of a page of Stripe on which you save a card, in place of the one on file.",
  scope: "payments:write",
  roles: BUYERS,
  route: "POST /card",
  input: { returnTo: text(URL_CHARS_MAX, "The address that the page returns to.") },
  output: Type.Object({ url: Type.String() }, { title: "CardPage" }),
  async run(deps, call, { returnTo }) {
    if (!/^https?:$/.test(URL.parse(returnTo)?.protocol ?? ""))
      throw new InputError("The address must begin with https://.", "returnTo");
    const place = await placeOf(deps, call.caller);
    const { email } = (await findAccount(deps, place.accountId)) ?? {};
    if (email === undefined) throw new Refusal("not_found");
    return { url: await call.callOut("stripe", () => openSetup(deps, { ...place, returnTo, email })) };
  },
});

export const lookForCard = operation({
  name: "cards.look",
  says: "Asks Stripe whether you have saved a card on its page, and returns your card on file.",
  scope: "payments:write",
  roles: BUYERS,
  route: "POST /card/look",
  input: {},
  output: CardShape,
  async run(deps, call) {
    const place = await placeOf(deps, call.caller);
    await call.callOut("stripe", () => askAboutCard(changing(deps, call), place));
    return shown(deps, place);
  },
});

export const removeCard = operation({
  name: "cards.remove",
  says: "Removes your card on file. Nothing is charged to it from then on.",
  scope: "payments:write",
  roles: BUYERS,
  route: "DELETE /card",
  input: {},
  output: Type.Object({ removed: Type.Boolean() }),
  run: async (deps, call) => ({ removed: await remove(changing(deps, call), await placeOf(deps, call.caller)) }),
});

async function placeOf(deps: { db: Db }, { accountId }: Caller): Promise<CardPlace> {
  const sellerId = await findSellerOf(deps.db.orm, accountId);
  if (sellerId === null) throw new Refusal("not_found");
  return { accountId, sellerId };
}

async function shown(deps: OperationDeps, place: CardPlace) {
  const { stripe: isOffered } = await waysToPay(deps, place.sellerId);
  const saved = await findCard(deps, place);
  if (saved === undefined) return { isOffered, card: null };
  // Not Stripe's ids: whoever has them knows more than the person needs.
  const { brand, lastFour, expiresMonth, expiresYear } = saved;
  return { isOffered, card: { brand, lastFour, expiresMonth, expiresYear } };
}
