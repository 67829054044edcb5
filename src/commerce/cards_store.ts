import { randomUUID } from "node:crypto";
import { and, desc, eq, gt, isNotNull, ne, sql } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { cardCharges, cardSetups, cards } from "../platform/schema_renewals.ts";

/** Cards on file: what a person sees of one, saved and removed. The numbers are at Stripe. Source: CRD-1, CRD-2. */

/** A page that expires sooner is not handed out any more. */
const PAGE_LEFT_MINUTES_MIN = 31;
const ASK_SECONDS = 60;
const DETACH_AGAIN_SECONDS = 600;
/** Automatic charges of an account that were not paid. A renewal and a top-up that fail as often as they may have four. */
const UNPAID_TRIES_PER_DAY_MAX = 10;

/** Of one account at one seller's Stripe account. */
export type CardPlace = { accountId: number; sellerId: number };

export type Card = {
  /** As in "visa". */
  brand: string;
  lastFour: string;
  /** null: not known. */
  expiresMonth: number | null;
  expiresYear: number | null;
};
/** What Stripe knows it by. */
export type SavedCard = Card & { customerId: string; paymentMethodId: string };

/** The card that is saved; undefined: none is. */
export async function findCard({ db }: { db: Db }, place: CardPlace): Promise<SavedCard | undefined> {
  return cardIn(db.orm, place);
}

export async function cardIn(tx: Tx, place: CardPlace): Promise<SavedCard | undefined> {
  const [row] = await tx.select().from(cards).where(isAt(place));
  if (!row?.paymentMethodId || !row.brand || !row.lastFour) return undefined;
  const { customerId, paymentMethodId, brand, lastFour, expiresMonth, expiresYear } = row;
  return { customerId, paymentMethodId, brand, lastFour, expiresMonth, expiresYear };
}

/**
 * Throws InputError (for field `param`) unless the account has a card that may be charged automatically. Called where a customer switches
 * charges on: each time makes a try, and somebody who tries out stolen cards would harm the seller at Stripe. Source: CRD-6.
 */
export async function requireChargeable(tx: Tx, place: CardPlace, param?: string): Promise<void> {
  if (!(await cardIn(tx, place))) throw new InputError("Save a card first.", param);
  const [row] = await tx
    .select({ tries: sql<number>`coalesce(sum(${cardCharges.tries}), 0)::int` })
    .from(cardCharges)
    .where(
      and(
        eq(cardCharges.accountId, place.accountId),
        ne(cardCharges.status, "paid"),
        gt(cardCharges.createdAt, sql`clock_timestamp() - interval '24 hours'`),
      ),
    );
  if ((row?.tries ?? 0) >= UNPAID_TRIES_PER_DAY_MAX)
    throw new InputError(
      sentence(
        "Your card was charged {tries} times within 24 hours, and not paid. Pay an order yourself, or try again tomorrow.",
        { tries: row?.tries ?? 0 },
      ),
      param,
    );
}

/** Stripe's customer of an account, also after its card was removed; null: Stripe has yet to make one. */
export async function customerOf({ db }: { db: Db }, place: CardPlace): Promise<string | null> {
  const [row] = await db.orm.select({ customerId: cards.customerId }).from(cards).where(isAt(place));
  return row?.customerId ?? null;
}

/** Any customer that a seller's Stripe account has; null: none. It shows whether another key is of the same account. */
export async function anyCustomerOf({ db }: { db: Db }, sellerId: number): Promise<string | null> {
  const [row] = await db.orm
    .select({ customerId: cards.customerId })
    .from(cards)
    .where(eq(cards.sellerId, sellerId))
    .limit(1);
  return row?.customerId ?? null;
}

export type CardSetup = CardPlace & { setupId: number; requestKey: string; expiresAt: number };

const setupColumns = {
  setupId: cardSetups.id,
  accountId: cardSetups.accountId,
  sellerId: cardSetups.sellerId,
  requestKey: cardSetups.requestKey,
  expiresAt: sql<number>`floor(extract(epoch from ${cardSetups.expiresAt}))`.mapWith(Number),
};

/** A page to save a card on, which Stripe has yet to make: the one whose making got no answer, or a new one. */
export async function setupOf({ db }: { db: Db }, place: CardPlace): Promise<CardSetup> {
  const isUnanswered = and(
    ...[eq(cardSetups.accountId, place.accountId), eq(cardSetups.sellerId, place.sellerId)],
    ...[eq(cardSetups.status, "open"), sql`${cardSetups.sessionId} is null`],
    sql`${cardSetups.expiresAt} > clock_timestamp() + make_interval(mins => ${PAGE_LEFT_MINUTES_MIN})`,
  );
  const [open] = await db.orm
    .select(setupColumns)
    .from(cardSetups)
    .where(isUnanswered)
    .orderBy(desc(cardSetups.id))
    .limit(1);
  if (open) return open;
  const [added] = await db.orm
    .insert(cardSetups)
    .values({ ...place, requestKey: randomUUID() })
    .returning(setupColumns);
  if (!added) throw new Error("a page to save a card was not added");
  return added;
}

/** Stores the page that Stripe has made. */
export async function noteSetup({ db }: { db: Db }, { setupId }: CardSetup, sessionId: string): Promise<void> {
  await db.orm.update(cardSetups).set({ sessionId }).where(eq(cardSetups.id, setupId));
}

/** The next page gets a new idempotency key: Stripe would repeat a failed answer for the same one. */
export async function dropSetup({ db }: { db: Db }, { setupId }: CardSetup): Promise<void> {
  await db.orm.update(cardSetups).set({ status: "closed" }).where(eq(cardSetups.id, setupId));
}

/** A page to ask Stripe about. */
export type AskedSetup = CardPlace & { sessionId: string };

const askedColumns = {
  accountId: cardSetups.accountId,
  sellerId: cardSetups.sellerId,
  sessionId: sql<string>`${cardSetups.sessionId}`,
};

/** Claims the pages that Stripe is to be asked about now: each is claimed by one replica. Expired ones are closed. */
export async function takeDueSetups({ db }: { db: Db }, setupsMax: number): Promise<AskedSetup[]> {
  await db.orm.execute(sql`
    update card_setups set status = 'closed' where status = 'open' and expires_at < clock_timestamp() - interval '1 hour'`);
  return await db.orm
    .update(cardSetups)
    .set({ askAt: sql`clock_timestamp() + make_interval(secs => ${ASK_SECONDS})` })
    .where(sql`${cardSetups.id} in (select id from card_setups where status = 'open' and session_id is not null
      and ask_at <= clock_timestamp() order by ask_at limit ${setupsMax} for update skip locked)`)
    .returning(askedColumns);
}

/** The open pages of an account, whose person waits. */
export async function openSetupsOf({ db }: { db: Db }, { accountId, sellerId }: CardPlace): Promise<AskedSetup[]> {
  return await db.orm
    .select(askedColumns)
    .from(cardSetups)
    .where(
      and(
        ...[eq(cardSetups.accountId, accountId), eq(cardSetups.sellerId, sellerId), eq(cardSetups.status, "open")],
        isNotNull(cardSetups.sessionId),
      ),
    )
    .orderBy(desc(cardSetups.id))
    .limit(3);
}

/** Whether a page of a seller is still open. */
export async function isSetupOpen({ db }: { db: Db }, sellerId: number, sessionId: string): Promise<boolean> {
  const open = await db.orm.select({ id: cardSetups.id }).from(cardSetups).where(isOpenPage(sellerId, sessionId));
  return open.length > 0;
}

/**
 * Saves the card of a completed page, in place of the former one. A page saves a card once: a report that is repeated, or comes after the
 * card was removed, changes nothing. Source: CRD-1.
 */
export async function saveCard(deps: ChangeDeps, sellerId: number, sessionId: string, card: SavedCard): Promise<void> {
  await changing(deps, async (tx) => {
    const [closed] = await tx
      .update(cardSetups)
      .set({ status: "closed" })
      .where(isOpenPage(sellerId, sessionId))
      .returning({ accountId: cardSetups.accountId });
    if (!closed) return;
    const { accountId } = closed;
    const former = sql`case when cards.payment_method_id <> ${card.paymentMethodId}
      then array_append(cards.to_detach, cards.payment_method_id) else cards.to_detach end`;
    await tx
      .insert(cards)
      .values({ accountId, sellerId, ...card })
      .onConflictDoUpdate({
        target: [cards.accountId, cards.sellerId],
        set: { ...card, toDetach: former, tryAt: sql`clock_timestamp()`, savedAt: sql`clock_timestamp()` },
      });
  });
}

/** Nothing is saved on this page any more. */
export async function closeSetup({ db }: { db: Db }, sellerId: number, sessionId: string): Promise<void> {
  await db.orm.update(cardSetups).set({ status: "closed" }).where(isOpenPage(sellerId, sessionId));
}

/** Removes a card. From the commit on nothing is charged to it, and Stripe is told later to forget it. Returns false if none was saved. */
export async function removeCard(deps: ChangeDeps, place: CardPlace): Promise<boolean> {
  const removed = await changing(
    deps,
    async (tx) => {
      await tx
        .update(cardSetups)
        .set({ status: "closed" })
        .where(and(eq(cardSetups.accountId, place.accountId), eq(cardSetups.status, "open")));
      return await tx
        .update(cards)
        .set({
          ...{ paymentMethodId: null, brand: null, lastFour: null, expiresMonth: null, expiresYear: null },
          toDetach: sql`array_append(to_detach, payment_method_id)`,
          tryAt: sql`clock_timestamp()`,
        })
        .where(and(isAt(place), isNotNull(cards.paymentMethodId)))
        .returning({ accountId: cards.accountId });
    },
    { protects: true },
  );
  return removed.length > 0;
}

/** In the transaction that changes a seller's account at Stripe: the former account's cards are of no use. */
export async function forgetCards(tx: Tx, sellerId: number): Promise<void> {
  await tx.delete(cards).where(eq(cards.sellerId, sellerId));
  await tx.delete(cardSetups).where(eq(cardSetups.sellerId, sellerId));
}

/** Stripe does not know this customer, or this card of it, any more. */
export async function forgetCard(deps: ChangeDeps, place: CardPlace, paymentMethodId: string): Promise<void> {
  await changing(deps, async (tx) => {
    await tx.delete(cards).where(and(isAt(place), eq(cards.paymentMethodId, paymentMethodId)));
  });
}

export type Detaching = CardPlace & { paymentMethodIds: string[] };

/** Claims removed cards that Stripe is yet to forget. */
export async function takeDetaching({ db }: { db: Db }, cardsMax: number): Promise<Detaching[]> {
  return await db.orm
    .update(cards)
    .set({ tryAt: sql`clock_timestamp() + make_interval(secs => ${DETACH_AGAIN_SECONDS})` })
    .where(sql`(${cards.accountId}, ${cards.sellerId}) in (select account_id, seller_id from cards
      where to_detach <> '{}' and try_at <= clock_timestamp() order by try_at limit ${cardsMax} for update skip locked)`)
    .returning({ accountId: cards.accountId, sellerId: cards.sellerId, paymentMethodIds: cards.toDetach });
}

export async function noteDetached({ db }: { db: Db }, place: CardPlace, paymentMethodId: string): Promise<void> {
  await db.orm
    .update(cards)
    .set({ toDetach: sql`array_remove(to_detach, ${paymentMethodId})` })
    .where(isAt(place));
}

function isAt({ accountId, sellerId }: CardPlace) {
  return and(eq(cards.accountId, accountId), eq(cards.sellerId, sellerId));
}

function isOpenPage(sellerId: number, sessionId: string) {
  return and(
    ...[eq(cardSetups.sellerId, sellerId), eq(cardSetups.sessionId, sessionId)],
    ne(cardSetups.status, "closed"),
  );
}
