import { afterAll, expect, test } from "bun:test";
import { loadKeySnapshots } from "../../src/accounts/key_snapshots_store.ts";
import { createKey, updateKey } from "../../src/accounts/keys_store.ts";
import { addOffering } from "../../src/accounts/offerings_store.ts";
import { checkRateLimits, type RateLimitsInput } from "../../src/accounts/rate_limits.ts";
import { accountLimits, setAccountLimits } from "../../src/accounts/rate_limits_store.ts";
import { InputError } from "../../src/errors.ts";
import { digestOfKey } from "../../src/platform/crypto.ts";
import { createAccountsWorld } from "./accounts_world.ts";

/** Limits of requests and tokens: what may be set, and what applies. Source: LIM-1, LIM-2, LIM-6. */
const world = await createAccountsWorld();
await world.addModels({ id: "chat-1" }, { id: "chat-2" });
afterAll(() => world.close());

const paramOf = async (work: () => unknown): Promise<string | null> => {
  try {
    await work();
  } catch (error) {
    if (error instanceof InputError) return error.param;
    throw error;
  }
  return expect.unreachable();
};

test("each number must be whole, from 1 to its maximum; the error names the field", async () => {
  const wrong: [RateLimitsInput, string][] = [
    ...[0, -1, 1.5, Number.NaN, 1_000_001, 1e30].map((requestsPerMinute): [RateLimitsInput, string] => [
      { requestsPerMinute },
      "limits.requestsPerMinute",
    ]),
    [{ tokensPerMinute: 1_000_000_001 }, "limits.tokensPerMinute"],
    [{ requestsAtOnce: 100_001 }, "limits.requestsAtOnce"],
    [{ models: { "chat-1": { tokensPerMinute: 0 } } }, "limits.models.chat-1.tokensPerMinute"],
    [{ models: Object.fromEntries(Array.from({ length: 51 }, (_, i) => [`m${i}`, {}])) }, "limits.models"],
  ];
  for (const [limits, param] of wrong) expect(await paramOf(() => checkRateLimits(limits))).toBe(param);
  const most = { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000, requestsAtOnce: 100_000 };
  expect(checkRateLimits(most)).toEqual({ ...most, models: {} });
});

test("empty limits are none", () => {
  const empty: (RateLimitsInput | null)[] = [
    null,
    {},
    { requestsPerMinute: null, models: {} },
    { models: { "chat-1": {} } },
  ];
  for (const limits of empty) expect(checkRateLimits(limits)).toBeNull();
});

test("the database refuses what the code would never write", async () => {
  const person = await world.addCustomer();
  for (const limits of ['{"requestsPerMinute": 0}', '{"models": {"a": {"tokensPerMinute": 2000000000}}}', "[]", "5"])
    await expect(
      world.sql`update accounts set limits = ${limits}::text::jsonb where id = ${person.accountId}`.execute(),
    ).rejects.toThrow("accounts_limits");
});

test("the lowest of account, package and reseller applies to an account, and with that of the key to a request", async () => {
  const reseller = await world.addReseller();
  const person = await world.addCustomer(reseller.accountId);
  await setAccountLimits(world.deps, { ...reseller, limits: { requestsPerMinute: 100, requestsAtOnce: 9 } });
  await setAccountLimits(world.deps, { ...person, limits: { requestsPerMinute: 80 } });
  const offering = { requestsPerMinute: 90, tokensPerMinute: 5_000, models: { "chat-1": { requestsPerMinute: 7 } } };
  await world.givePackage(person, { limits: offering });
  const wanted = { name: "k", mode: "package" as const, modelIds: null, hosts: null, expiresAt: null };
  const { secret } = await createKey(world.deps, { ...person, ...wanted, limits: { requestsPerMinute: 80 } });
  const digest = digestOfKey(secret) ?? "";
  const snapshot = (await loadKeySnapshots(world.deps, [digest])).get(digest);
  expect(snapshot?.limits).toEqual({
    key: { requestsPerMinute: 80, tokensPerMinute: null, requestsAtOnce: null },
    account: { requestsPerMinute: 80, tokensPerMinute: 5_000, requestsAtOnce: 9 },
    models: new Map([["chat-1", { requestsPerMinute: 7, tokensPerMinute: null, requestsAtOnce: null }]]),
  });
});

test("a reseller's customer may have at most what the reseller has, and a key what its account has", async () => {
  const reseller = await world.addReseller();
  const person = await world.addCustomer(reseller.accountId);
  const models = { "chat-1": { tokensPerMinute: 500 } };
  await setAccountLimits(world.deps, { ...reseller, limits: { requestsPerMinute: 100, models } });
  const set = (limits: RateLimitsInput) => setAccountLimits(world.deps, { ...person, limits });
  expect(await paramOf(() => set({ requestsPerMinute: 101 }))).toBe("limits.requestsPerMinute");
  const above = (tokensPerMinute: number) => set({ models: { "chat-1": { tokensPerMinute } } });
  expect(await paramOf(() => above(501))).toBe("limits.models.chat-1.tokensPerMinute");
  expect(await paramOf(() => set({ models: { "chat-2": { requestsPerMinute: 101 } } }))).toBe(
    "limits.models.chat-2.requestsPerMinute",
  );
  expect(await paramOf(() => set({ models: { "chat-9": { requestsPerMinute: 1 } } }))).toBe("limits.models");
  expect((await accountLimits(world.deps, person.accountId)).own).toBeNull();
  await above(500);
  await set({ requestsPerMinute: 50 });

  const wanted = { name: "k", mode: "payg" as const, modelIds: null, hosts: null, expiresAt: null };
  const create = (requestsPerMinute: number) =>
    createKey(world.deps, { ...person, ...wanted, limits: { requestsPerMinute } });
  expect(await paramOf(() => create(51))).toBe("limits.requestsPerMinute");
  const { key } = await create(50);
  const change = (limits: RateLimitsInput | null) => updateKey(world.deps, { ...person, keyId: key.keyId }, { limits });
  expect(await paramOf(() => change({ requestsPerMinute: 60 }))).toBe("limits.requestsPerMinute");
  expect(await change({ requestsAtOnce: 2 })).toMatchObject({ limits: { requestsPerMinute: null, requestsAtOnce: 2 } });
  expect(await change(null)).toMatchObject({ limits: null });
});

test("an offering's limits go with its packages, and name only models of the catalog", async () => {
  const offering = { name: "limited", kind: "custom" as const, dailyLimit: 5, timeZone: "UTC", wholesaleNanoUsd: 0n };
  const models = { "no-such-model": { requestsPerMinute: 1 } };
  expect(await paramOf(() => addOffering(world.deps, { ...offering, limits: { models } }))).toBe("limits.models");
  const { offeringId, limits } = await addOffering(world.deps, { ...offering, limits: { requestsAtOnce: 3 } });
  expect(limits).toEqual({ requestsPerMinute: null, tokensPerMinute: null, requestsAtOnce: 3, models: {} });
  const person = await world.addCustomer();
  await world.assign(person, offeringId);
  expect((await accountLimits(world.deps, person.accountId)).package).toEqual(limits);
});
