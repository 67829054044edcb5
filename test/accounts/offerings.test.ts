import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  addOffering,
  findOffering,
  listOfferings,
  type NewOffering,
  setOfferingEnabled,
} from "../../src/accounts/offerings_store.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

let names = 0;
const add = (wanted: Partial<NewOffering>) =>
  addOffering(world.deps, {
    name: `Starter ${++names}`,
    kind: "custom",
    dailyLimit: 500,
    timeZone: "UTC",
    wholesaleNanoUsd: 0n,
    ...wanted,
  });

test("the total is the daily limit times the days unless it says otherwise", async () => {
  expect(await add({ days: 7 })).toMatchObject({
    days: 7,
    dailyLimit: 500,
    totalLimit: 3500,
    carryover: false,
    tokenLimit: null,
    modelIds: null,
    enabled: true,
  });
  expect(await add({ days: 7, totalLimit: 1000 })).toMatchObject({ totalLimit: 1000 });
  expect(await add({ kind: "daily" })).toMatchObject({ days: 1, totalLimit: 500 });
});

test("daily: one day with 100 to 2000 requests; custom: 1 to 30 days", async () => {
  for (const dailyLimit of [100, 2000]) await add({ kind: "daily", dailyLimit });
  for (const dailyLimit of [99, 2001, 100.5])
    await expect(add({ kind: "daily", dailyLimit })).rejects.toThrow("100 to 2000");
  await expect(add({ kind: "daily", days: 2 })).rejects.toThrow("one day");
  for (const days of [1, 30]) await add({ days });
  for (const days of [0, 31, 1.5]) await expect(add({ days })).rejects.toThrow("1 to 30");
  for (const dailyLimit of [0, 1_000_001]) await expect(add({ dailyLimit })).rejects.toThrow("dailyLimit");
});

test("tokens, wholesale price and models stay within their bounds", async () => {
  await world.addModels({ id: "chat-1" });
  const offering = await add({
    carryover: true,
    tokenLimit: 1_000_000,
    modelIds: ["chat-1"],
    wholesaleNanoUsd: 4_200_000_001n,
  });
  expect(offering).toMatchObject({
    carryover: true,
    tokenLimit: 1_000_000,
    modelIds: ["chat-1"],
    wholesaleNanoUsd: 4_200_000_001n,
  });
  await expect(add({ tokenLimit: 0 })).rejects.toThrow("tokenLimit");
  await expect(add({ wholesaleNanoUsd: -1n })).rejects.toThrow("wholesale");
  await expect(add({ wholesaleNanoUsd: 10n ** 16n })).rejects.toThrow("wholesale");
  await expect(add({ modelIds: ["chat-2"] })).rejects.toThrow("no model chat-2");
  await expect(add({ totalLimit: 0 })).rejects.toThrow("totalLimit");
});

test("a time zone must be known to the runtime and to Postgres; an offset is refused, because they read it in opposite ways", async () => {
  expect(await add({ timeZone: "Europe/Berlin" })).toMatchObject({ timeZone: "Europe/Berlin" });
  for (const timeZone of ["", "Mars/Olympus", "+01:00", "UTC+1", "'; drop table offerings; --"]) {
    await expect(add({ timeZone })).rejects.toThrow("time zone");
  }
});

test("names are unique; an offering is found by name or id, and can be taken off sale", async () => {
  const offering = await add({ name: " Pro " });
  await expect(add({ name: "Pro" })).rejects.toThrow("already an offering");
  expect(await findOffering(world.deps, { name: "Pro" })).toEqual(offering);
  expect(await findOffering(world.deps, { offeringId: offering.offeringId })).toEqual(offering);
  expect(await setOfferingEnabled(world.deps, { offeringId: offering.offeringId, enabled: false })).toBe(true);
  expect((await listOfferings(world.deps, { enabled: true })).map(({ name }) => name)).not.toContain("Pro");
  expect((await listOfferings(world.deps)).map(({ name }) => name)).toContain("Pro");
  expect(await setOfferingEnabled(world.deps, { offeringId: 999_999, enabled: true })).toBe(false);
});
