import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { loadCatalog } from "../../src/catalog/catalog_store.ts";
import { addModel } from "../../src/catalog/models_store.ts";
import {
  greaterOverhead,
  type HeldTokens,
  isNone,
  NO_OVERHEAD,
  OVERHEAD_MAX,
  OVERHEAD_PAYERS_MIN,
  type Overhead,
  OWN_OVERHEAD_MAX,
  overheadShown,
} from "../../src/catalog/overhead.ts";
import {
  decayOverheads,
  learnOverhead,
  listOverheads,
  loadOverheads,
  resetOverhead,
} from "../../src/catalog/overhead_store.ts";
import { addProvider } from "../../src/catalog/providers_store.ts";
import { addRoute, removeRoute } from "../../src/catalog/routes_store.ts";
import { InputError } from "../../src/errors.ts";
import { type CatalogWorld, createCatalogWorld } from "./catalog_world.ts";
import { rejectionOf } from "./sockets.ts";

/** What is learned from overruns, for which accounts, and for how long. Source: MON-8. */

let world: CatalogWorld;
let deps: CatalogWorld["deps"];
let providerId: number;
beforeAll(async () => {
  world = await createCatalogWorld();
  deps = world.deps;
  providerId = await addProvider(deps, { name: "acme", baseUrl: "http://127.0.0.1:9000/v1", apiKey: "sk-0123456789" });
});
afterAll(() => world.close());

let names = 0;
const newRoute = async (): Promise<number> => {
  const modelId = `m${++names}`;
  await addModel(deps, { id: modelId });
  return await addRoute(deps, { modelId, providerId });
};
const learn = (routeId: number, accountId: number, shown: Partial<Overhead>, payerId = accountId) =>
  learnOverhead(deps, { routeId, accountId, payerId, shown: { ...NO_OVERHEAD, ...shown } });
const forAll = async (routeId: number): Promise<Overhead> =>
  (await loadOverheads(deps.db.orm)).find((one) => one.routeId === routeId)?.overhead ?? NO_OVERHEAD;
const own = async (routeId: number, accountId: number) => {
  const [row] = await world.sql`
    select constant_tokens as constant, image_tokens as image, factor_permille as factor
    from route_overheads where route_id = ${routeId} and account_id = ${accountId}`;
  return row && { ...row };
};
/** Sets the database's clock to this many hours after a fixed moment; null: it runs again. */
const setClock = (hours: number | null) =>
  world.sql.unsafe(`create or replace function ledger_now() returns timestamptz language sql volatile as $$
    select ${hours === null ? "clock_timestamp()" : `timestamptz '2031-01-01' + interval '${hours} hours'`} $$`);

const PRICES = { inputMicroUsd: 3_000_000, cachedInputMicroUsd: 3_000_000, outputMicroUsd: 15_000_000 };
const HI: HeldTokens = { textTokens: 18, images: 0, imageInputTokens: 2048, outputTokens: 100 };
const shownBy = (
  held: Partial<HeldTokens>,
  promptTokens: number,
  completionTokens = 0,
  known: Partial<Overhead> = {},
) =>
  overheadShown(
    { ...HI, ...held },
    { promptTokens, completionTokens },
    { known: { ...NO_OVERHEAD, ...known }, prices: PRICES },
  );

test("an overrun of a short prompt is learned as a constant, never as a factor", () => {
  expect(shownBy({}, 418)).toEqual({ ...NO_OVERHEAD, constantTokens: 400 });
  expect(shownBy({}, 1_000_000)).toEqual({ ...NO_OVERHEAD, constantTokens: OWN_OVERHEAD_MAX.constantTokens });
});

test("an overrun of a prompt with images beyond the known constant is learned per image; without images it never is", () => {
  expect(shownBy({ images: 1 }, 18 + 36_835)).toEqual({ ...NO_OVERHEAD, imageTokens: 36_835 - 2048 });
  expect(shownBy({ images: 4 }, 18 + 4 * 36_835)?.imageTokens).toBe(36_835 - 2048);
  expect(shownBy({ images: 2 }, 18 + 400 + 2 * 3000, 0, { constantTokens: 400 })?.imageTokens).toBe(3000 - 2048);
  for (const textTokens of [2, 4_095, 4_096, 1_000_000])
    expect(shownBy({ textTokens }, 10_000_000)?.imageTokens).toBe(0);
});

test("an overrun of a long text beyond the known constant is learned as a factor", () => {
  expect(shownBy({ textTokens: 10_000 }, 14_000)).toEqual({ ...NO_OVERHEAD, factorPermille: 1400 });
  expect(shownBy({ textTokens: 10_000 }, 14_400, 0, { constantTokens: 400 })?.factorPermille).toBe(1400);
});

test("output beyond a short cap is learned as a constant of the same price, beyond a long cap as a factor", () => {
  expect(shownBy({}, 18, 200)).toEqual({ ...NO_OVERHEAD, constantTokens: 500 });
  expect(shownBy({ outputTokens: 5_000 }, 18, 10_000)).toEqual({ ...NO_OVERHEAD, factorPermille: 2000 });
  const free = { ...PRICES, inputMicroUsd: 0 };
  const used = { promptTokens: 18, completionTokens: 200 };
  expect(overheadShown(HI, used, { known: NO_OVERHEAD, prices: free })?.factorPermille).toBe(2000);
});

test("nothing is learned from an answer within its bounds", () => {
  expect(shownBy({}, 18, 100)).toBeUndefined();
  expect(shownBy({ images: 1 }, 2066, 100)).toBeUndefined();
});

test("the bound plus the learned overhead covers the answer it was learned from, up to the maximum", () => {
  const tokens = fc.oneof(fc.nat(100), fc.nat(20_000), fc.nat(2_000_000));
  const part = (least: number, most: number) => fc.integer({ min: least, max: most });
  const facts = fc.record({
    held: fc.record({
      textTokens: tokens,
      images: fc.nat(5),
      imageInputTokens: fc.nat(5_000),
      outputTokens: part(1, 20_000),
    }),
    promptTokens: tokens,
    completionTokens: tokens,
    known: fc.record({ constantTokens: part(0, 5_000), imageTokens: part(0, 5_000), factorPermille: part(1000, 3000) }),
  });
  const nano = (held: HeldTokens, { constantTokens, imageTokens, factorPermille }: Overhead) =>
    (Math.ceil((held.textTokens * factorPermille) / 1000) +
      constantTokens +
      held.images * (held.imageInputTokens + imageTokens)) *
      3 +
    Math.ceil((held.outputTokens * factorPermille) / 1000) * 15;
  fc.assert(
    fc.property(facts, ({ held, promptTokens, completionTokens, known }) => {
      const charge = promptTokens * 3 + completionTokens * 15;
      if (charge <= nano(held, known)) return;
      const shown = overheadShown(held, { promptTokens, completionTokens }, { known, prices: PRICES });
      const isCapped =
        shown === undefined ||
        shown.constantTokens >= OWN_OVERHEAD_MAX.constantTokens ||
        shown.imageTokens >= OWN_OVERHEAD_MAX.imageTokens ||
        shown.factorPermille >= OWN_OVERHEAD_MAX.factorPermille;
      expect(shown).toBeDefined();
      if (!isCapped && shown) expect(nano(held, greaterOverhead(known, shown))).toBeGreaterThanOrEqual(charge);
    }),
    { numRuns: 5_000 },
  );
});

test("fewer than three payers change only their own overhead: nothing more is reserved for others", async () => {
  const part = fc.record({
    constantTokens: fc.integer({ min: -5, max: 2 ** 40 }),
    imageTokens: fc.integer({ min: -5, max: 2 ** 40 }),
    factorPermille: fc.oneof(
      fc.integer({ min: -5, max: 2 ** 40 }),
      fc.constant(Number.POSITIVE_INFINITY),
      fc.constant(Number.NaN),
    ),
  });
  const overruns = fc.array(
    fc.record({ account: fc.nat(7), payer: fc.integer({ min: 1, max: OVERHEAD_PAYERS_MIN - 1 }), part }),
    {
      minLength: 1,
      maxLength: 12,
    },
  );
  await fc.assert(
    fc.asyncProperty(overruns, async (sequence) => {
      const routeId = await newRoute();
      // An account's payer never changes.
      for (const { account, payer, part } of sequence) await learn(routeId, 1 + payer * 100 + account, part, payer);
      expect(await forAll(routeId)).toEqual(NO_OVERHEAD);
      for (const known of await listOverheads(deps, [routeId])) {
        expect(known.payers).toBeLessThan(OVERHEAD_PAYERS_MIN);
        expect(greaterOverhead(OWN_OVERHEAD_MAX, known.largest)).toEqual(OWN_OVERHEAD_MAX);
      }
    }),
    { numRuns: 40 },
  );
});

test("the third largest value of all payers applies to everybody, for each part and up to the maximum", async () => {
  const routeId = await newRoute();
  await learn(routeId, 1, { constantTokens: 10_000, imageTokens: 200_000 });
  await learn(routeId, 2, { constantTokens: 400, imageTokens: 100_000, factorPermille: 90_000 });
  expect(await forAll(routeId)).toEqual(NO_OVERHEAD);
  await learn(routeId, 3, { constantTokens: 300, factorPermille: 50_000 });
  expect(await forAll(routeId)).toEqual({ ...NO_OVERHEAD, constantTokens: 300 });
  await learn(routeId, 4, { constantTokens: 350, imageTokens: 90_000, factorPermille: 60_000 });
  expect(await forAll(routeId)).toEqual({
    constantTokens: 350,
    imageTokens: OVERHEAD_MAX.imageTokens,
    factorPermille: OVERHEAD_MAX.factorPermille,
  });
  const [known] = await listOverheads(deps, [routeId]);
  expect(known).toMatchObject({
    payers: 4,
    accounts: 4,
    largest: { constantTokens: 10_000 },
    accountIds: [1, 2, 4, 3],
  });
});

test("the accounts of one tenant are one payer", async () => {
  const routeId = await newRoute();
  for (const accountId of [11, 12, 13, 14]) await learn(routeId, accountId, { constantTokens: 400 }, 10);
  expect(await forAll(routeId)).toEqual(NO_OVERHEAD);
  expect((await listOverheads(deps, [routeId]))[0]).toMatchObject({ payers: 1, accounts: 4 });
});

test("two hundred concurrent overruns store the largest value of each part; smaller values write nothing", async () => {
  const routeId = await newRoute();
  await Promise.all(
    Array.from({ length: 200 }, (_, i) => learn(routeId, 1, { constantTokens: (i * 37) % 200, imageTokens: i })),
  );
  expect(await own(routeId, 1)).toEqual({ constant: 199, image: 199, factor: 1000 });
  expect(await learn(routeId, 1, { constantTokens: 199 })).toBe(false);
  expect(await learn(999_999, 1, { constantTokens: 1 })).toBe(false);
});

test("an overhead is halved each day by the database's clock, however often the job runs, and finally removed", async () => {
  try {
    await setClock(0);
    const routeId = await newRoute();
    for (const accountId of [1, 2, 3])
      await learn(routeId, accountId, { constantTokens: 400, imageTokens: 34_787, factorPermille: 3000 });
    await setClock(0.5);
    await decayOverheads(deps);
    expect((await forAll(routeId)).constantTokens).toBe(400);
    for (let hour = 1; hour <= 24; hour++) {
      await setClock(hour);
      await Promise.all([decayOverheads(deps), decayOverheads(deps), decayOverheads(deps)]);
    }
    const after = await forAll(routeId);
    expect(after.constantTokens).toBeWithin(175, 201);
    expect(after.imageTokens).toBeWithin(17_300, 17_395);
    expect(after.factorPermille).toBeWithin(1975, 2001);
    // The job did not run for nine days.
    await setClock(240);
    await decayOverheads(deps);
    expect((await forAll(routeId)).imageTokens).toBeWithin(32, 35);
    await setClock(24 * 40);
    await decayOverheads(deps);
    expect(await forAll(routeId)).toEqual(NO_OVERHEAD);
    expect(await own(routeId, 1)).toBeUndefined();
  } finally {
    await setClock(null);
  }
});

test("a reset removes the overhead immediately, is in the audit log, and reaches every replica", async () => {
  const routeId = await newRoute();
  for (const accountId of [1, 2, 3]) await learn(routeId, accountId, { constantTokens: 400 });
  const told: string[] = [];
  deps.bus.subscribe((changes) => void told.push(...changes.map(({ kind, ref }) => `${kind} ${ref}`)));
  await resetOverhead(deps, routeId);
  expect(await forAll(routeId)).toEqual(NO_OVERHEAD);
  expect(await listOverheads(deps, [routeId])).toEqual([]);
  expect(told).toEqual(expect.arrayContaining(["account 1", "account 2", "account 3", `catalog ${routeId}`]));
  const [entry] = await world.sql`
    select action, after from audit_entries where subject = 'routes' and subject_id = ${String(routeId)} order by id desc limit 1`;
  expect(entry).toMatchObject({ action: "changed", after: { overhead_reset_at: expect.any(String) } });
  expect(await rejectionOf(resetOverhead(deps, 999_999))).toBeInstanceOf(InputError);
});

test("a route's overhead is loaded with the catalog and removed with the route", async () => {
  const routeId = await newRoute();
  for (const accountId of [1, 2, 3]) await learn(routeId, accountId, { imageTokens: 7 });
  const loaded = () =>
    loadCatalog(deps.db.orm).then(({ overheads }) => overheads.find((one) => one.routeId === routeId));
  expect((await loaded())?.overhead).toEqual({ ...NO_OVERHEAD, imageTokens: 7 });
  await removeRoute(deps, routeId);
  expect(await loaded()).toBeUndefined();
  expect(isNone(NO_OVERHEAD)).toBe(true);
});
