import { expect } from "bun:test";
import { Webhook } from "standardwebhooks";
import { type Answer, openShop, type ShopOptions } from "../gateway/shop.ts";
import { ok, PANEL, type PanelSession, signInTo } from "../panel/panel_client.ts";
import type { Person } from "../world.ts";
import { STRIPE_KEY, STRIPE_WEBHOOK_SECRET, startStripe } from "./stripe_stand_in.ts";

/** A service that sells: a replica, a stand-in for Stripe, and the operator and a reseller with a customer each. */

export const USD = 1_000_000_000n;
export const ACME = "ai.acme.test";
export type PayShop = Awaited<ReturnType<typeof openPayShop>>;

type PayShopOptions = Pick<ShopOptions, "replicas" | "redisUrl" | "fill"> & {
  /** Of the sellers' keys. */
  stripeMode?: "test" | "live";
  /** Stripe's clock: Unix time in ms. */
  nowMs?: () => number;
};

export async function openPayShop(
  env: Record<string, string> = {},
  { stripeMode = "test", nowMs, ...options }: PayShopOptions = {},
) {
  const stripe = await startStripe(nowMs);
  const shop = await openShop({ redisUrl: "", ...options, env: { STRIPE_API_BASE: stripe.base, ...env } });
  const { world } = shop;
  const { sql } = world;
  const acme = await world.addReseller();
  await sql`insert into hosts (host, reseller_id, status) values (${ACME}, ${acme.accountId}, 'active')`;
  const house = await world.addCustomer();
  const customer = await world.addCustomer(acme.accountId);
  const as = {
    admin: await signInTo(shop, await world.addAdmin()),
    acme: await signInTo(shop, acme, { host: ACME }),
    house: await signInTo(shop, house),
    customer: await signInTo(shop, customer, { host: ACME }),
  };
  const shopSecrets = new Map<number, string>();
  for (const [sellerId, session] of [
    [0, as.admin],
    [acme.accountId, as.acme],
  ] as const) {
    // Each seller has its own account at Stripe.
    const keys = {
      apiKey: `${STRIPE_KEY.replace("test", stripeMode)}${sellerId}`,
      webhookSecret: `${STRIPE_WEBHOOK_SECRET}${sellerId}`,
    };
    ok(await session.put("/payment-settings/stripe", { stripe: keys }));
    ok(await session.put("/payment-settings/instructions", { instructions: "IBAN XX00 1234" }));
    const { secret } = ok(await session.put("/payment-settings/shop", { shopUrl: "https://shop.example/pay" }));
    shopSecrets.set(sellerId, secret);
  }

  return {
    ...{ shop, world, sql, stripe, acme, house, customer, as, shopSecrets },
    sellerOf: (session: PanelSession) => (session === as.customer ? acme.accountId : 0),

    /** An offering with a retail price at both sellers. */
    async offering(price = 12n * USD, wholesaleNanoUsd = 4n * USD): Promise<number> {
      const offeringId = await world.addOffering({ wholesaleNanoUsd });
      for (const sellerId of [0, acme.accountId])
        await sql`insert into retail_prices values (${sellerId}, ${offeringId}, ${String(price)})`;
      return offeringId;
    },
    topUp: ({ accountId }: Person, nanoUsd: bigint) =>
      sql`select add_balance(${accountId}, ${String(nanoUsd)}, 'top_up', 'test', null)`,
    async balanceOf({ accountId }: Person): Promise<bigint> {
      const [row] = await sql`select balance_nano_usd::text as nano from balances where account_id = ${accountId}`;
      return BigInt(String(row?.nano));
    },
    async order(session: PanelSession, wanted: object) {
      return ok(await session.post("/orders", wanted)).order;
    },
    /** A new customer with a session, of the operator or of the reseller. */
    async newcomer(of: "house" | "acme" = "house"): Promise<PanelSession> {
      const isAcme = of === "acme";
      const person = await world.addCustomer(isAcme ? acme.accountId : undefined);
      return signInTo(shop, person, isAcme ? { host: ACME } : {});
    },
    orderRow: async (orderId: number) => (await sql`select * from orders where id = ${orderId}`)[0] ?? {},
    paymentsOf: (orderId: number) => sql`select * from payments where order_id = ${orderId} order by id`,
    tells: async (orderId: number) => {
      const rows =
        await sql`select kind from outbox_messages where (data ->> 'orderId')::bigint = ${orderId} order by id`;
      return rows.map(({ kind }) => String(kind));
    },

    /** Sends a webhook of Stripe about a session, a refund, a charge or a dispute. `origin`: to another replica. */
    async hook(
      sellerId: number,
      session: object,
      { origin, ...options }: Record<string, unknown> & { origin?: string } = {},
    ): Promise<Answer> {
      const secret = `${STRIPE_WEBHOOK_SECRET}${sellerId}`;
      const { body, headers } = await stripe.event(session, { secret, ...options });
      return shop.call(`/api/pay/stripe/${sellerId}`, { host: PANEL, body, headers, ...(origin && { origin }) });
    },
    /** Sends a webhook of a shop, signed now. */
    shopHook(
      sellerId: number,
      said: unknown,
      {
        at = new Date(),
        secret = shopSecrets.get(sellerId) ?? "",
        sent,
        origin,
      }: { at?: Date; secret?: string; sent?: string; origin?: string } = {},
    ): Promise<Answer> {
      const body = JSON.stringify(said);
      const headers = {
        "webhook-id": `msg_${Math.random()}`,
        "webhook-timestamp": String(Math.floor(at.getTime() / 1000)),
        "webhook-signature": "",
      };
      headers["webhook-signature"] = new Webhook(secret).sign(headers["webhook-id"], at, body);
      return shop.call(`/api/pay/shop/${sellerId}`, {
        host: PANEL,
        body: sent ?? body,
        headers,
        ...(origin && { origin }),
      });
    },
    /** Checks that the books balance, then ends everything. */
    async close(): Promise<void> {
      try {
        expect(await world.unbalanced()).toEqual([]);
      } finally {
        await shop.close();
        await stripe.stop();
      }
    },
  };
}
