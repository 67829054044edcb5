import { expect, test } from "bun:test";
import { openShop } from "../gateway/shop.ts";
import { managementOf } from "./management_client.ts";

/** Ten thousand writes through the management API. Source: MGT-5. */

const WRITES = 10_000;
const AT_ONCE = 16;
const SLOW_MS = 900_000;

test(
  "of 10,000 writes a reseller's are made until its limit of changes a day; each that was made is made once",
  async () => {
    const shop = await openShop({ redisUrl: "" });
    const busy = await shop.world.addReseller();
    const own = await managementOf(shop, busy, "reseller");
    const { accountId } = await shop.world.addCustomer(busy.accountId);
    await shop.world.setBalance(busy, 1_000_000_000n);
    const counts = { made: 0, refused: 0 };
    let next = 0;
    const work = async () => {
      for (let i = next++; i < WRITES; i = next++) {
        const { status, json } = await own.post(`/accounts/${accountId}/balance`, {
          kind: "top_up",
          amountNanoUsd: "1",
        });
        if (status === 200) counts.made++;
        else if (status === 429) counts.refused++;
        else throw new Error(`${status} ${json?.error?.message}`);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    expect(counts.made + counts.refused).toBe(WRITES);
    expect(counts.refused).toBeGreaterThan(0);
    const [row] = await shop.world.sql`
      select (select balance_nano_usd from balances where account_id = ${accountId})::int as balance,
        (select count(*)::int from api_writes where account_id = ${busy.accountId}) as kept`;
    // What was refused left no claim.
    expect(row).toEqual({ balance: counts.made, kept: counts.made });
    expect(await shop.world.unbalanced()).toEqual([]);
    await shop.close();
  },
  SLOW_MS,
);
