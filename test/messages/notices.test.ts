import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeNotices } from "../../src/messages/notices_store.ts";
import { createMessagesWorld, type MessagesWorld } from "./messages_world.ts";

/** Source: MSG-10. */
let world: MessagesWorld;
beforeAll(async () => {
  world = await createMessagesWorld();
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await world.close();
});

/** One run, a minute after the one before. */
async function run(options?: { looksMax: number }) {
  await aMinuteLater();
  return writeNotices(world.deps, options);
}
const aMinuteLater = () => world.sql`update notice_runs set ran_at = ran_at - interval '61 s'`;
async function told(accountId: number): Promise<string[]> {
  const rows = await world.sql`select kind from outbox_messages where account_id = ${accountId} order by id`;
  return rows.map(({ kind }) => kind);
}

test("a low balance causes one notice, and another only after the balance was above the threshold", async () => {
  const { accountId } = await world.addCustomer();
  await world.setBalance({ accountId }, 5_000_000_000n);
  const charge = (nanoUsd: number) =>
    world.sql`select add_balance(${accountId}, ${-nanoUsd}, 'correction', 'test', null)`;
  await run();
  expect(await told(accountId)).toEqual([]);
  await charge(4_500_000_000);
  await run();
  await run();
  const [message] = await world.sql`select data from outbox_messages where account_id = ${accountId}`;
  expect(message?.data).toEqual({ freeNanoUsd: "500000000", belowNanoUsd: "1000000000" });
  await world.setBalance({ accountId }, 5_000_000_000n);
  await run();
  await charge(5_000_000_000);
  await run();
  expect(await told(accountId)).toEqual(["balance_low", "balance_low"]);
});

test("an account that does not pay by balance, or has switched the notice off, gets none", async () => {
  const off = await world.addCustomer();
  await world.setBalance(off, 5n);
  await world.sql`update accounts set notice_balance_nano_usd = 0 where id = ${off.accountId}`;
  const package_ = await world.addCustomer();
  await run();
  expect([await told(off.accountId), await told(package_.accountId)]).toEqual([[], []]);
});

test("a package causes one notice each when it is nearly used up, used up, and about to end", async () => {
  const person = await world.addCustomer();
  const packageId = await world.givePackage(person, { dailyLimit: 10, days: 10 });
  const use = (units: number) => world.sql`update packages set units_taken = ${units} where id = ${packageId}`;
  await use(79);
  await run();
  expect(await told(person.accountId)).toEqual([]);
  await use(80);
  await run();
  await run();
  expect(await told(person.accountId)).toEqual(["package_80_percent"]);
  await use(100);
  await run();
  await run();
  expect(await told(person.accountId)).toEqual(["package_80_percent", "package_used_up"]);
  await use(0);
  await world.setClock(new Date(Date.now() + 8 * 86_400_000).toISOString());
  await run();
  await run();
  await world.setClock(null);
  expect(await told(person.accountId)).toEqual(["package_80_percent", "package_used_up", "package_ending"]);
});

test("a package that renews automatically is not about to end, unless its renewal fails", async () => {
  const person = await world.addCustomer();
  const packageId = await world.givePackage(person, { dailyLimit: 10, days: 10 });
  await world.sql`
    insert into renewals (package_id, account_id, source, told_nano, told_at) values (${packageId}, ${person.accountId}, 'balance', 1, now())`;
  await world.setClock(new Date(Date.now() + 8 * 86_400_000).toISOString());
  await run();
  expect(await told(person.accountId)).toEqual([]);
  await world.sql`update renewals set problem = 'insufficient_balance' where package_id = ${packageId}`;
  await run();
  await world.setClock(null);
  expect(await told(person.accountId)).toEqual(["package_ending"]);
});

test("a run looks at a limited number of balances and packages, and the next goes on after them, until all were looked at", async () => {
  await run(); // From the last to the first.
  const people = await Promise.all(Array.from({ length: 7 }, () => world.addCustomer()));
  for (const person of people) {
    const packageId = await world.givePackage(person, { dailyLimit: 10, days: 10 });
    await world.sql`update packages set units_taken = total_limit where id = ${packageId}`;
    await world.setBalance(person, 5n);
  }
  const looksMax = 3;
  const wereTold = async () => {
    const told = await Promise.all(people.map(({ accountId }) => toldKinds(accountId)));
    return told.flat().length;
  };
  const toldKinds = async (accountId: number) =>
    (await told(accountId)).filter((kind) => ["balance_low", "package_used_up"].includes(kind));
  const seen: number[] = [];
  while (seen.at(-1) !== 2 * people.length && seen.length < 100) {
    await run({ looksMax });
    seen.push(await wereTold());
  }
  expect(seen.at(-1)).toBe(2 * people.length);
  for (let i = 1; i < seen.length; i++) expect((seen[i] ?? 0) - (seen[i - 1] ?? 0)).toBeLessThanOrEqual(2 * looksMax);
  for (const { accountId } of people) expect(await toldKinds(accountId)).toHaveLength(2);
  await world.sql`update packages set units_taken = 0`;
});

test("one of many replicas runs the job each minute", async () => {
  await aMinuteLater();
  const all = await Promise.all(Array.from({ length: 8 }, () => writeNotices(world.deps)));
  expect(all.filter((count) => count !== null)).toHaveLength(1);
});
