import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { openKeyStates } from "../../src/catalog/key_states.ts";
import {
  endQuarantine,
  loadKeyRests,
  prunePauses,
  type RestToStore,
  storeRest,
  takeProbe,
} from "../../src/catalog/key_states_store.ts";
import { ProviderFailure } from "../../src/catalog/provider_errors.ts";
import { addProviderKey, listProviderKeys, updateProviderKey } from "../../src/catalog/provider_keys_store.ts";
import { addProvider } from "../../src/catalog/providers_store.ts";
import { until } from "../platform/own_redis.ts";
import { type CatalogWorld, createCatalogWorld } from "./catalog_world.ts";
import { route } from "./sockets.ts";

/** The states of keys in the database: how reports of replicas are merged, and when a key is probed. Source: PRV-11, PRV-14, PRV-15. */

let world: CatalogWorld;
let deps: CatalogWorld["deps"];
let providerId: number;
let keyId: number;
let changes: CatalogWorld["changes"];

beforeAll(async () => {
  world = await createCatalogWorld();
  ({ deps, changes } = world);
});
afterAll(() => world.close());
let names = 0;
beforeEach(async () => {
  providerId = await addProvider(deps, {
    name: `p${++names}`,
    baseUrl: "http://127.0.0.1:9000/v1",
    apiKey: "sk-0123456789",
  });
  keyId = (await listProviderKeys(deps, [providerId]))[0]?.id ?? 0;
  changes.length = 0;
});

const quarantine = (over: Partial<RestToStore> = {}) =>
  storeRest(deps, {
    ...{ keyId, state: "quarantined", why: "credentials", model: null, seconds: 1, isProbe: false },
    ...{ accountId: 1, payerId: 1 },
    ...over,
  });
const pause = (over: Partial<RestToStore> = {}) =>
  quarantine({ state: "cooling", why: "rate_limited", model: "gpt", seconds: 30, ...over });
const rests = async () => (await loadKeyRests(deps)).filter((rest) => rest.keyId === keyId);
const only = async () => {
  const all = await rests();
  expect(all.length).toBe(1);
  return all[0];
};
const leftSeconds = async () => ((await only())?.leftMs ?? Number.NaN) / 1000;
const addKey = (name: string) => addProviderKey(deps, providerId, { name, apiKey: "sk-9876543210" });
const listed = async () => (await listProviderKeys(deps, [providerId]))[0];

test("a refused key is probed immediately, then after 5 s, doubling up to 5 minutes; a key without credit waits 5 s first", async () => {
  for (const [why, waits] of [
    ["credentials", [0, 5, 10, 20, 40, 80, 160, 300, 300]],
    ["no_credit", [5, 10, 20, 40, 80, 160, 300, 300]],
  ] as const) {
    for (const [i, wait] of waits.entries()) {
      await quarantine({ why, isProbe: i > 0 });
      expect(await leftSeconds()).toBeWithin(wait - 2, wait + 0.1);
    }
    await endQuarantine(deps, { keyId, isServed: true });
  }
});

test("failures of other requests during a quarantine do not move the probe", async () => {
  await quarantine({ why: "no_credit" });
  for (let i = 0; i < 20; i++) await quarantine({ why: "no_credit", accountId: i, payerId: i });
  expect(await leftSeconds()).toBeWithin(2, 5.1);
});

test("a list of models ends a quarantine but keeps its count of failures; a served request, or a minute, resets the count", async () => {
  await quarantine();
  await endQuarantine(deps, { keyId, isServed: false });
  expect(await rests()).toEqual([]);
  await quarantine();
  expect(await leftSeconds()).toBeWithin(3, 5.1);
  await endQuarantine(deps, { keyId, isServed: true });
  await quarantine();
  expect(await leftSeconds()).toBe(0);
  await endQuarantine(deps, { keyId, isServed: false });
  await world.sql`update provider_keys set since = now() - interval '61 seconds' where id = ${keyId}`;
  await quarantine();
  expect(await leftSeconds()).toBe(0);
});

test("a quarantine applies to the payer after two of its accounts, and to everybody after two payers or a probe that proves it", async () => {
  await quarantine({ accountId: 11, payerId: 10 });
  expect(await only()).toMatchObject({ accountId: 11, payerId: 10 });
  await quarantine({ accountId: 12, payerId: 10 });
  expect(await only()).toMatchObject({ accountId: null, payerId: 10 });
  await quarantine({ accountId: 20, payerId: 20 });
  expect(await only()).toMatchObject({ accountId: null, payerId: null });
  await endQuarantine(deps, { keyId, isServed: true });
  await quarantine({ accountId: 11, payerId: 10 });
  await quarantine({ accountId: 0, payerId: 0, isProbe: true });
  expect(await only()).toMatchObject({ accountId: 11, payerId: 10 });
  await quarantine({ accountId: 0, payerId: 0, isProbe: true, isProven: true });
  expect(await only()).toMatchObject({ accountId: null, payerId: null });
});

test("a 402 quarantines the key for nobody until another failure does", async () => {
  await quarantine({ why: "no_credit", accountId: 0, payerId: 0 });
  expect(await only()).toMatchObject({ accountId: 0, payerId: 0 });
  await quarantine({ why: "no_credit", accountId: 3, payerId: 3 });
  expect(await only()).toMatchObject({ accountId: 3, payerId: 3 });
});

test("one of eight replicas probes a key, and the next one only after that replica's lease", async () => {
  await quarantine();
  const take = () => takeProbe(deps, { keyId, leaseSeconds: 15 });
  const taken = await Promise.all(Array.from({ length: 8 }, take));
  expect(taken.filter(Boolean).length).toBe(1);
  expect(await take()).toBe(false);
  await world.sql`update provider_keys set until = now() where id = ${keyId}`;
  expect(await take()).toBe(true);
});

test("pauses are kept by model: the longer of one payer's pauses applies, or the second payer's", async () => {
  await pause();
  await pause({ model: "other", accountId: 2, payerId: 2 });
  expect((await rests()).map(({ model, payerId }) => [model, payerId]).sort()).toEqual([
    ["gpt", 1],
    ["other", 2],
  ]);
  await world.sql`delete from provider_key_pauses where model = 'other'`;
  await pause({ seconds: 2 });
  expect(await leftSeconds()).toBeWithin(20, 31);
  await pause({ accountId: 2, payerId: null, seconds: 2 });
  expect(await leftSeconds()).toBeWithin(0, 2.1);
  expect(await only()).toMatchObject({ accountId: null, payerId: null });
});

test("a pause that is over is no longer listed, can begin again, and is deleted an hour later", async () => {
  await pause();
  expect(await listed()).toMatchObject({ state: "cooling", models: ["gpt"], why: null });
  await world.sql`update provider_key_pauses set until = now() - interval '1 second' where key_id = ${keyId}`;
  expect([await rests(), (await listed())?.state]).toEqual([[], "active"]);
  await pause({ accountId: 9, payerId: 9 });
  expect(await only()).toMatchObject({ accountId: 9, payerId: 9 });
  await world.sql`update provider_key_pauses set until = now() - interval '61 minutes' where key_id = ${keyId}`;
  await prunePauses(deps);
  expect((await world.sql`select 1 from provider_key_pauses where key_id = ${keyId}`).length).toBe(0);
});

test("a key's state is published for that key alone, without a reload of the catalog; a new secret ends all its states", async () => {
  await pause();
  await quarantine();
  expect(new Set(changes.map(({ kind, ref }) => `${kind} ${ref}`))).toEqual(new Set([`provider_key ${keyId}`]));
  expect(await listed()).toMatchObject({ state: "quarantined", why: "credentials", forAll: false });
  await updateProviderKey(deps, keyId, { apiKey: "sk-new-0123456789" });
  expect([await rests(), await listed()]).toMatchObject([[], { state: "active", why: null, until: null }]);
});

test("a key that may not list models is known to the provider: its quarantine ends; one that is refused again is closed to everybody", async () => {
  for (const status of [403, 401]) {
    await quarantine({ accountId: 11, payerId: 10 });
    const { providerName, baseUrl, apiKey } = route("http://127.0.0.1:9000/v1");
    const states = await openKeyStates({
      ...deps,
      catalog: { upstreamOf: (id) => (id === keyId ? { providerName, baseUrl, apiKey } : undefined) },
      provider: { listModels: () => Promise.reject(new ProviderFailure("credentials", "they said no", { status })) },
      nowMs: () => performance.now(),
    });
    if (status === 403) await until(async () => (await rests()).length === 0);
    else await until(async () => (await only())?.payerId === null);
    states.close();
  }
});

test("a replica that loads the shared states keeps a key's own state until it is written, however long the database takes", async () => {
  const [slow, unwritten, shared] = [keyId, await addKey("second"), await addKey("third")];
  const none = async (): Promise<never> => {
    throw new Error("not asked here");
  };
  const states = await openKeyStates({
    ...deps,
    catalog: { upstreamOf: () => undefined },
    provider: { listModels: none },
    nowMs: () => performance.now(),
  });
  const { pool } = states;
  const refuse = (id: number) => {
    const base = route("http://127.0.0.1:9000/v1");
    const failure = new ProviderFailure("credentials", "they said no", { status: 401 });
    pool.failed({ ...base, key: { ...base.key, id } }, { accountId: 1, payerId: 1 }, failure);
  };
  await world.sql.begin(async (tx) => {
    await tx`select 1 from provider_keys where id = ${slow} for update`;
    refuse(slow);
    refuse(unwritten);
    // Another replica's report makes this one load the states.
    await quarantine({ keyId: shared });
    await until(() => pool.isQuarantined(shared));
    expect([pool.isQuarantined(slow), pool.isQuarantined(unwritten)]).toEqual([true, true]);
  });
  await until(async () => {
    const written = (await loadKeyRests(deps)).map((rest) => rest.keyId);
    return written.includes(slow) && written.includes(unwritten);
  });
  states.close();
});
