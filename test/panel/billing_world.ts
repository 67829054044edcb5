import { expect } from "bun:test";
import { openShop } from "../gateway/shop.ts";
import type { Person } from "../world.ts";
import { signInTo } from "./panel_client.ts";

/** A shop with sellers and their customers, for the tests of billing and of orders. */

export const ACME = "ai.acme.test";
export const USD = 1_000_000_000n;
export const SLOW_MS = 180_000;

export type Billing = Awaited<ReturnType<typeof openBilling>>;

/** Two resellers with a customer each, a customer of the operator (`house`), admins; and their sessions. */
export async function openBilling() {
  const shop = await openShop({ redisUrl: "" });
  const { world } = shop;
  const acme = await world.addReseller(ACME);
  const rival = await world.addReseller();
  const customer = await world.addCustomer(acme.accountId);
  const rivals = await world.addCustomer(rival.accountId);
  const house = await world.addCustomer();
  return {
    ...{ shop, acme, rival, customer, rivals, house },
    as: {
      admin: await signInTo(shop, await world.addAdmin()),
      otherAdmin: await signInTo(shop, await world.addAdmin()),
      acme: await signInTo(shop, acme, { host: ACME }),
      rival: await signInTo(shop, rival),
      customer: await signInTo(shop, customer, { host: ACME }),
      house: await signInTo(shop, house),
    },
    topUp: ({ accountId }: Person, nanoUsd: bigint) =>
      world.sql`select add_balance(${accountId}, ${String(nanoUsd)}, 'top_up', 'test', null)`,
    offering: (wholesaleNanoUsd = 4n * USD, over = {}) => world.addOffering({ wholesaleNanoUsd, ...over }),
    async balanceOf({ accountId }: Person) {
      const [row] =
        await world.sql`select balance_nano_usd::text as nano from balances where account_id = ${accountId}`;
      return BigInt(String(row?.nano));
    },
    /** A session on the reseller's domain. */
    signInFrom: (person: Person) => signInTo(shop, person, { host: ACME }),
    async close(): Promise<void> {
      expect(await world.unbalanced()).toEqual([]);
      await shop.close();
    },
  };
}
