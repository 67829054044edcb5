import { openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { recordData } from "./recorded_data.ts";

/** Trade for the upgrade tests: customers of every kind, and clients that go on while a release replaces another. */

const CLIENTS = 8;

/** Secrets of customers: of packages and of balances, of the operator and of a reseller. */
export async function customersOf(shop: Shop): Promise<string[]> {
  const reseller = await shop.world.addReseller("ai.upgrade.test");
  const theirs = await shop.world.addCustomer(reseller.accountId);
  await shop.world.givePackage(theirs, { dailyLimit: 1_000_000 });
  const own = [await shop.customer({ dailyLimit: 1_000_000 }), await shop.payer(1_000_000_000_000n)];
  return [...own.map(({ secret }) => secret), (await shop.world.addKey(theirs)).secret];
}

/** Clients that ask one request after the other, whole and as streams, at all replicas in use. */
export function startLoad(shop: Shop, secrets: readonly string[]) {
  const origins = new Set(shop.replicas.map(({ origin }) => origin));
  const failures: string[] = [];
  let answers = 0;
  let isOver = false;
  let turn = 0;
  const client = async (i: number): Promise<void> => {
    while (!isOver) {
      const all = [...origins];
      const origin = all[turn++ % all.length] ?? "";
      const secret = secrets[i % secrets.length] ?? "";
      try {
        const answer = await shop.chat(secret, { stream: i % 2 === 0 }, { origin, ...hostOf(i) });
        if (answer.status === 200) answers++;
        else failures.push(`${answer.status} ${answer.text.slice(0, 200)}`);
      } catch (error) {
        failures.push(String(error));
      }
    }
  };
  const hostOf = (i: number) => (i % secrets.length === secrets.length - 1 ? { host: "ai.upgrade.test" } : {});
  const clients = Array.from({ length: CLIENTS }, (_, i) => client(i));
  return {
    use: (origin: string) => void origins.add(origin),
    leave: (origin: string) => void origins.delete(origin),
    /** Waits until each client has been answered some more times. */
    async goesOn(): Promise<void> {
      const wanted = answers + 3 * CLIENTS;
      await until(() => answers >= wanted || failures.length > 0);
      throwAny(failures);
    },
    async end(): Promise<{ answers: number; failures: string[] }> {
      isOver = true;
      await Promise.all(clients);
      return { answers, failures };
    },
  };
}

/** What customers of a shop have written, recorded. */
export async function recordTrade(): Promise<Uint8Array> {
  const shop = await openShop({ redisUrl: "" });
  const load = startLoad(shop, await customersOf(shop));
  await load.goesOn();
  throwAny((await load.end()).failures);
  throwAny(await shop.world.unbalanced());
  const data = await recordData(shop.world.sql);
  await shop.close();
  return data;
}

function throwAny(problems: readonly string[]): void {
  if (problems.length > 0) throw new Error(problems.slice(0, 3).join("\n"));
}
