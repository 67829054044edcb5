import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import type { ReserveRequest, ReserveResult } from "../../src/ledger/ledger_store.ts";
import { holds, SEED, TIMES } from "../property.ts";
import { createWorld, type Person, type TestKey, type World } from "../world.ts";
import { openSqlReplica, requestFor } from "./ledger_world.ts";

/**
 * A batch answers many equal reserves together. Its answers must be those of the same reserves one after the other, for any mix of
 * keys, models, prices and amounts. Of two equal sets of accounts, one is asked in a batch, the other one reserve at a time.
 * Source: PAY-9, QUO-1, QUO-4, QUO-5.
 */

/** Most often enough for every possible answer to a reserve. */
const RUNS = 60;
const ACCOUNTS = 2;
const NOW = "2026-05-10T12:00:00.000Z";
const NOW_MS = 1_778_414_400_000;
const TEST_MS_MAX = 5 * 60_000 * TIMES;
const MORE_MAX = 5;

let world: World;
beforeAll(async () => {
  world = await createWorld();
  await world.setClock(NOW);
  await world.sql`select make_receipt_months(1)`;
});
afterAll(() => world.close());

const offering = fc.record({
  days: fc.constant(2),
  dailyLimit: fc.integer({ min: 1, max: 6 }),
  totalLimit: fc.integer({ min: 1, max: 16 }),
  carryover: fc.boolean(),
  tokenLimit: fc.constantFrom(null, null, 50, 400),
  modelIds: fc.constantFrom<string[] | null>(null, null, null, ["model-a"]),
});
const ceilings = fc.record({
  units: fc.option(fc.integer({ min: 1, max: 8 }), { freq: 2 }),
  nanoUsd: fc.option(fc.bigInt({ min: 300n, max: 9000n })),
  modelIds: fc.constantFrom<string[] | undefined>(undefined, undefined, undefined, ["model-b"]),
});
const account = fc.record({
  offering: fc.option(offering, { freq: 6 }),
  nanoUsd: fc.constantFrom<bigint>(0n, 0n, 700n, 9000n, 40_000n),
  /** Two keys in mode `package`, and one in mode `payg`. */
  keys: fc.tuple(ceilings, ceilings, ceilings),
});
const run = fc.record({
  account: fc.nat(ACCOUNTS - 1),
  key: fc.nat(2),
  model: fc.constantFrom("model-a", "model-a", "model-b"),
  outputPico: fc.constantFrom<bigint>(-1n, 0n, 500n, 1000n),
  /** One reserve each: the fields in which neighbours may differ. */
  reserves: fc.array(
    fc.record({
      capMax: fc.integer({ min: 1, max: 1500 }),
      capMin: fc.constant(1),
      promptPico: fc.constantFrom<bigint>(0n, 250_000n),
      promptTokens: fc.integer({ min: 1, max: 200 }),
      choices: fc.constantFrom(0, 0, 1, 2),
    }),
    { minLength: 1, maxLength: 9, size: "max" },
  ),
});
const plan = fc.record({
  accounts: fc.tuple(account, account),
  runs: fc.array(run, { minLength: 1, maxLength: 12, size: "max" }),
  /** How far the replica's clock differs from the database's. */
  skewMinutes: fc.oneof({ weight: 30, arbitrary: fc.constant(0) }, fc.constantFrom(-61, 61)),
});
type Plan = typeof plan extends fc.Arbitrary<infer T> ? T : never;

/** The plan's accounts, added to the database once more, and a function that reserves for them. */
async function enact({ accounts, runs }: Plan): Promise<ReserveRequest[]> {
  const people: { person: Person; keys: TestKey[] }[] = [];
  for (const { offering, nanoUsd, keys } of accounts) {
    const person = await world.addCustomer();
    await world.setBalance(person, nanoUsd);
    if (offering !== null) await world.givePackage(person, offering);
    const added: TestKey[] = [];
    for (const [i, { units, nanoUsd, modelIds }] of keys.entries()) {
      const key = await world.addKey(person, { mode: i === 2 ? "payg" : "package", modelIds });
      await world.sql`
        update keys set daily_units_max = ${units}, daily_spend_max_nano_usd = ${nanoUsd === null ? null : String(nanoUsd)}
        where id = ${key.keyId}`;
      added.push(key);
    }
    people.push({ person, keys: added });
  }
  return runs.flatMap(({ account, key, model, outputPico, reserves }) => {
    const { person, keys } = people[account] as { person: Person; keys: TestKey[] };
    return reserves.map((amounts) =>
      requestFor(person, keys[key] as TestKey, { modelId: model, outputPico, ...amounts }),
    );
  });
}

/** The counters of the reserves' keys and accounts, in their order. */
async function countersOf(reserves: ReserveRequest[]) {
  const accounts = [...new Set(reserves.map(({ accountId }) => accountId))];
  const packages = await world.sql`
    select units_taken, tokens_taken from packages where account_id = any(${accounts}) order by account_id`;
  const days = await world.sql`
    select d.units_taken, d.units_max from package_days d join packages p on p.id = d.package_id
    where p.account_id = any(${accounts}) order by p.account_id`;
  const balances = await world.sql`
    select held_nano_usd from balances where account_id = any(${accounts}) order by account_id`;
  const keyDays = await world.sql`
    select k.units_taken, k.taken_nano_usd, row_number() over (order by k.key_id) from key_days k join keys on keys.id = k.key_id
    where keys.account_id = any(${accounts}) order by k.key_id`;
  return [packages, days, balances, keyDays].map((rows) => rows.map((row) => ({ ...row })));
}

/** Two accounts have different packages. */
const comparable = ({ packageId, ...result }: ReserveResult) => ({ ...result, byPackage: packageId !== null });

const seen = new Set<string>();
const ALL = [
  ...["carryover_quota_exceeded", "clock_skew", "daily_quota_exceeded", "granted by package", "granted by payg"],
  ...["insufficient_balance", "key_request_limit_exceeded", "key_spend_limit_exceeded", "model_not_found"],
  ...["model_not_in_package", "package_quota_exceeded", "package_required", "package_tokens_short"],
  "payg_pricing_unavailable",
];

test(
  "any batch of reserves gives the same answers and counts as the same reserves one by one",
  async () => {
    const property = fc.asyncProperty(plan, async (made) => {
      const [together, apart] = [await enact(made), await enact(made)];
      const replica = await openSqlReplica(world, () => NOW_MS + made.skewMinutes * 60_000);
      const draws = replica.draws(together);
      const { reserved } = await replica.batch({ reserves: together, draws });
      const wanted: ReserveResult[] = [];
      for (const request of apart) wanted.push(...(await replica.reserve([request])));
      expect(reserved.map(comparable)).toEqual(wanted.map(comparable));
      expect(await countersOf(together)).toEqual(await countersOf(apart));
      for (const { code, packageId } of reserved) seen.add(code ?? `granted by ${packageId ? "package" : "payg"}`);

      // The same batch again: its successful draws are stale, and nothing is counted twice.
      const counted = await countersOf(together);
      const again = await replica.batch({ reserves: together, draws });
      const gave = new Set(together.flatMap(({ accountId }, i) => (reserved[i]?.code === null ? [accountId] : [])));
      for (const [i, { accountId }] of together.entries())
        if (gave.has(accountId)) expect(again.reserved[i]?.code).toBe("stale");
      expect(await countersOf(together)).toEqual(counted);
    });
    await holds(property, { numRuns: RUNS });
    // Every answer must occur. If a rare one has not, more runs follow.
    for (let more = 1; more <= MORE_MAX && seen.size < ALL.length; more++)
      await holds(property, { seed: SEED + more, numRuns: RUNS });
    expect([...seen].sort()).toEqual(ALL);
  },
  TEST_MS_MAX,
);

test("interleaved reservations of several accounts: each gets its own answer, in any order of ids", async () => {
  const people = await Promise.all([1, 2, 3].map(() => world.addCustomer()));
  const keys = await Promise.all(people.map((person) => world.addKey(person)));
  for (const [i, person] of people.entries()) await world.givePackage(person, { dailyLimit: i + 1 });
  // The account of the highest id first.
  const turns = [2, 0, 1, 2, 0, 1, 2, 0, 1];
  const reserves = turns.map((i) => requestFor(people[i] as Person, keys[i] as TestKey));
  const answers = await (await openSqlReplica(world)).reserve(reserves);
  const granted = [2, 0, 1].map((who) => answers.filter(({ code }, i) => turns[i] === who && code === null).length);
  expect(granted).toEqual([3, 1, 2]);
  expect(answers.map(({ code }) => code === null)).toEqual([true, true, true, true, false, true, true, false, false]);
});

test("the books balance after all of this", async () => {
  expect(await world.unbalanced()).toEqual([]);
});
