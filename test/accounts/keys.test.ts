import { afterAll, beforeAll, expect, test } from "bun:test";
import { addHost } from "../../src/accounts/hosts_store.ts";
import { openKeyLookup } from "../../src/accounts/key_lookup.ts";
import { findUsableKey } from "../../src/accounts/key_snapshots_store.ts";
import { openKeyUses } from "../../src/accounts/key_uses.ts";
import {
  createKey,
  disableKey,
  enableKey,
  findKey,
  listKeys,
  listShownKeys,
  listUsableKeys,
  type NewKey,
  revokeKey,
  rotateKey,
  updateKey,
} from "../../src/accounts/keys_store.ts";
import { KEY_BUDGETS } from "../../src/limits.ts";
import { digestOfKey } from "../../src/platform/crypto.ts";
import { createLog } from "../../src/platform/log.ts";
import type { Person } from "../world.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
  await world.addModels({ id: "chat-1" }, { id: "chat-2" });
});
afterAll(() => world.close());

const create = ({ accountId }: Person, wanted: Partial<NewKey> = {}) =>
  createKey(world.deps, {
    accountId,
    name: "ci",
    mode: "package",
    modelIds: null,
    hosts: null,
    expiresAt: null,
    ...wanted,
  });
const openLookup = () => openKeyLookup({ ...world.deps, nowMs: () => performance.now() });
const inSeconds = async (seconds: number): Promise<string> => {
  const [row] = await world.sql`select clock_timestamp() + make_interval(secs => ${seconds}) as at`;
  return row?.at.toISOString();
};

test("the secret is shown once: the database has its digest, a list its first and last characters", async () => {
  const person = await world.addCustomer();
  const { secret, key } = await create(person);
  expect(digestOfKey(secret)).toBeDefined();
  expect(key).toMatchObject({
    name: "ci",
    mode: "package",
    status: "enabled",
    modelIds: null,
    hosts: null,
    expiresAt: null,
  });
  expect(key.masked).toBe(`${secret.slice(0, 9)}…${secret.slice(-4)}`);
  const { rows } = await listKeys(world.deps, { accountId: person.accountId });
  expect(JSON.stringify(rows)).not.toContain(secret);
  const stored = await world.sql`select to_jsonb(keys)::text as row from keys`;
  expect(stored.every(({ row }) => !row.includes(secret.slice(12, -6)))).toBe(true);
});

test("a name has 1 to 100 characters as people count them", async () => {
  const person = await world.addCustomer();
  await create(person, { name: "🔑".repeat(100) });
  for (const name of ["", "   ", "x".repeat(101), "a\0b", "two\nlines"])
    await expect(create(person, { name })).rejects.toThrow("name");
});

test("a key needs an account, models and hosts that exist", async () => {
  const reseller = await world.addReseller();
  const stranger = await world.addReseller();
  const person = await world.addCustomer(reseller.accountId);
  await addHost(world.deps, { host: "ai.keys.example", resellerId: reseller.accountId });
  await addHost(world.deps, { host: "ai.stranger.example", resellerId: stranger.accountId });
  await expect(create({ accountId: 999_999 })).rejects.toThrow("no such account");
  await expect(create(person, { modelIds: ["chat-1", "chat-9"] })).rejects.toThrow("no model chat-9");
  await expect(create(person, { modelIds: [] })).rejects.toThrow("Leave it out");
  await expect(create(person, { hosts: ["ai.stranger.example"] })).rejects.toThrow("belongs neither to the service");
  const { key } = await create(person, {
    modelIds: ["chat-1", "chat-1"],
    hosts: ["api.tollgate.example", "ai.keys.example", "localhost"],
  });
  expect(key).toMatchObject({ modelIds: ["chat-1"], hosts: ["api.tollgate.example", "ai.keys.example", "localhost"] });
  expect((await create(reseller, { hosts: ["ai.keys.example"] })).key.hosts).toEqual(["ai.keys.example"]);
});

test("an expiry must be in the future, by the database's clock", async () => {
  const person = await world.addCustomer();
  for (const expiresAt of ["soon", await inSeconds(-1), "9999-01-01T00:00:00Z", "+275760-09-13T00:00:00Z"]) {
    await expect(create(person, { expiresAt })).rejects.toThrow(/expiry|expiresAt/);
  }
  for (const expiresAt of ["01/02/2030", "2030", "2030-01-31T12:00:00", "2030-02-31", "2031-02-29T00:00:00Z"])
    await expect(create(person, { expiresAt })).rejects.toThrow(
      "The field expiresAt must be a date, as in 2030-01-31, or a time",
    );
  for (const expiresAt of ["0000-01-01", "0000-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
    await expect(create(person, { expiresAt })).rejects.toThrow("expiresAt");
  const expiresAt = await inSeconds(3600);
  expect((await create(person, { expiresAt })).key.expiresAt).toBe(expiresAt);
});

test("a disabled key can be enabled again, a revoked one cannot", async () => {
  const person = await world.addCustomer();
  const { keyId } = (await create(person)).key;
  const of = { ...person, keyId };
  expect((await disableKey(world.deps, of)).status).toBe("disabled");
  expect((await enableKey(world.deps, of)).status).toBe("enabled");
  expect((await revokeKey(world.deps, of)).status).toBe("revoked");
  expect((await revokeKey(world.deps, of)).status).toBe("revoked");
  await expect(enableKey(world.deps, of)).rejects.toThrow("cannot be undone");
  await expect(disableKey(world.deps, of)).rejects.toThrow("cannot be undone");
});

test("another account's key reads the same as an absent one", async () => {
  const [mine, other] = [await world.addCustomer(), await world.addCustomer()];
  const { keyId } = (await create(other)).key;
  const of = { ...mine, keyId };
  expect(await findKey(world.deps, of)).toBeUndefined();
  for (const change of [disableKey, enableKey, revokeKey])
    await expect(change(world.deps, of)).rejects.toThrow("no such key");
  await expect(rotateKey(world.deps, { ...of, overlapSeconds: 0 })).rejects.toThrow("no such key");
  expect((await findKey(world.deps, { keyId }))?.status).toBe("enabled");
});

test("rotation makes a new key with the same settings; the old one works until the overlap ends", async () => {
  const person = await world.addCustomer();
  const first = await create(person, { name: "server", mode: "payg", modelIds: ["chat-2"], hosts: ["localhost"] });
  const rotated = await rotateKey(world.deps, { ...person, keyId: first.key.keyId, overlapSeconds: 3600 });
  expect(rotated.secret).not.toBe(first.secret);
  expect(rotated.key).toMatchObject({
    name: "server",
    mode: "payg",
    modelIds: ["chat-2"],
    hosts: ["localhost"],
    expiresAt: null,
    status: "enabled",
  });
  expect(rotated.old.status).toBe("enabled");
  const left = Date.parse(rotated.old.expiresAt ?? "") - Date.parse(await inSeconds(0));
  expect(left).toBeGreaterThan(3_590_000);
  expect(left).toBeLessThanOrEqual(3_600_000);
});

test("rotation without overlap ends the old key immediately, and never extends one", async () => {
  const person = await world.addCustomer();
  const first = await create(person);
  const second = await rotateKey(world.deps, { ...person, keyId: first.key.keyId, overlapSeconds: 0 });
  expect(second.old.status).toBe("expired");
  await expect(rotateKey(world.deps, { ...person, keyId: first.key.keyId, overlapSeconds: 0 })).rejects.toThrow(
    "is ended",
  );
  const expiresAt = await inSeconds(60);
  const short = await create(person, { expiresAt });
  expect(
    (await rotateKey(world.deps, { ...person, keyId: short.key.keyId, overlapSeconds: 86_400 })).old.expiresAt,
  ).toBe(expiresAt);
  await expect(rotateKey(world.deps, { ...person, keyId: second.key.keyId, overlapSeconds: -1 })).rejects.toThrow(
    "overlap",
  );
});

test("its own limits are set with a key or later, within their range; rotation keeps them", async () => {
  const person = await world.addCustomer();
  const bare = (await create(person)).key;
  expect(bare).toMatchObject({ dailyUnitsMax: null, dailySpendMaxNanoUsd: null, timeZone: "UTC" });
  const deps = { ...world.deps, config: { ...world.deps.config, billingTimeZone: "Europe/Berlin" } };
  const wanted = { name: "ci", mode: "payg" as const, modelIds: null, hosts: null, expiresAt: null };
  const ceilings = {
    dailyUnitsMax: 500,
    dailySpendMaxNanoUsd: 2_500_000_000n,
    weeklySpendMaxNanoUsd: 3n,
    monthlySpendMaxNanoUsd: 4n,
    totalSpendMaxNanoUsd: 5n,
  };
  const { key } = await createKey(deps, { ...person, ...wanted, ...ceilings });
  expect(key).toMatchObject({ ...ceilings, timeZone: "Europe/Berlin" });
  const rotated = await rotateKey(world.deps, { ...person, keyId: key.keyId, overlapSeconds: 0 });
  expect(rotated.key).toMatchObject({ ...ceilings, timeZone: "Europe/Berlin" });

  for (const dailyUnitsMax of [0, -1, 1.5, 30_000_001]) {
    await expect(create(person, { dailyUnitsMax })).rejects.toThrow("The field dailyUnitsMax must be a whole number");
    await expect(updateKey(world.deps, { ...person, keyId: bare.keyId }, { dailyUnitsMax })).rejects.toThrow(
      "The field dailyUnitsMax must be a whole number",
    );
  }
  for (const { field } of KEY_BUDGETS)
    for (const nanoUsd of [0n, -1n, 9_000_000_000_000_001n])
      await expect(create(person, { [field]: nanoUsd })).rejects.toThrow(`The field ${field} must be above $0`);
});

test("a key's name and daily limits change; a field that is left out stays, null removes a limit", async () => {
  const person = await world.addCustomer();
  const { key } = await create(person, { dailyUnitsMax: 5, dailySpendMaxNanoUsd: 7n });
  const of = { ...person, keyId: key.keyId };
  expect(await updateKey(world.deps, of, { name: " web " })).toEqual({ ...key, name: "web" });
  expect(await updateKey(world.deps, of, { dailyUnitsMax: 6 })).toMatchObject({ name: "web", dailyUnitsMax: 6 });
  expect(await updateKey(world.deps, of, { dailyUnitsMax: null })).toMatchObject({
    name: "web",
    dailyUnitsMax: null,
    dailySpendMaxNanoUsd: 7n,
  });
  expect(await updateKey(world.deps, of, {})).toMatchObject({ name: "web", dailySpendMaxNanoUsd: 7n });
  await expect(updateKey(world.deps, of, { name: "two\nlines" })).rejects.toThrow("name");
  await expect(updateKey(world.deps, { ...(await world.addCustomer()), keyId: key.keyId }, {})).rejects.toThrow(
    "no such key",
  );
  await revokeKey(world.deps, of);
  await expect(updateKey(world.deps, of, { name: "x" })).rejects.toThrow("revoked");
});

test("a new daily limit waits for the ledger batch that has the account's lock; a new name does not", async () => {
  const person = await world.addCustomer();
  const lock = `select lock_accounts(array[${person.accountId}]::bigint[])`;
  const of = { ...person, keyId: (await create(person)).key.keyId };
  await world.whileLocked(lock, () => updateKey(world.deps, of, { dailyUnitsMax: 1 }));
  await world.whileLocked(lock, () => updateKey(world.deps, of, { dailySpendMaxNanoUsd: null }));
  await world.sql.begin(async (tx) => {
    await tx.unsafe(lock);
    expect((await updateKey(world.deps, of, { name: "at once" })).name).toBe("at once");
  });
});

test("the page's list: keys that are not revoked, and the fifty revoked last", async () => {
  const person = await world.addCustomer();
  const kept = (await create(person)).key.keyId;
  const revoked: number[] = [];
  for (let i = 0; i < 55; i++) revoked.push((await world.addKey(person)).keyId);
  await world.sql`update keys set status = 'revoked' where id = any(${revoked}::bigint[])`;
  await create(await world.addCustomer());
  const rows = await listShownKeys(world.deps, person.accountId);
  expect(rows.map(({ keyId }) => keyId)).toEqual([...revoked.slice(5).reverse(), kept]);
});

test("the page's list: what is used of a key's own limits, in its time zone; null without limits", async () => {
  const person = await world.addCustomer();
  const [counted, idle, free] = [
    (await create(person, { dailyUnitsMax: 9, totalSpendMaxNanoUsd: 9n })).key.keyId,
    (await create(person, { dailySpendMaxNanoUsd: 9n })).key.keyId,
    (await create(person)).key.keyId,
  ];
  // The date in these keys' zone always differs from the other zone's.
  await world.sql`update keys set time_zone = 'Pacific/Kiritimati' where id = ${counted}`;
  await world.sql`insert into key_days (key_id, day, units_taken, taken_nano_usd) values
    (${counted}, (clock_timestamp() at time zone 'Pacific/Kiritimati')::date, 4, 570),
    (${counted}, (clock_timestamp() at time zone 'Pacific/Pago_Pago')::date, 200, 200)`;
  const rows = await listShownKeys(world.deps, person.accountId);
  const used = rows.map(({ keyId, used: of }) => [keyId, of && [of.units, of.spentNanoUsd.dailySpendMaxNanoUsd]]);
  expect(used).toEqual([
    [free, null],
    [idle, [0, 0n]],
    [counted, [4, 570n]],
  ]);
});

test("the page's list: what is spent of the day, the week, the month, and in total", async () => {
  const person = await world.addCustomer();
  await world.setClock("2026-09-30 12:00:00+00");
  const { key } = await create(person, { totalSpendMaxNanoUsd: 9n });
  expect(key.totalSpendFrom).toBe("2026-09-30");
  await world.setClock("2026-10-21 12:00:00+00");
  await world.sql`insert into key_days (key_id, day, taken_nano_usd, nano_usd_before) values
    (${key.keyId}, '2026-10-21', 4, 1), (${key.keyId}, '2026-10-19', 7, 0), (${key.keyId}, '2026-10-01', 11, 0),
    (${key.keyId}, '2026-09-30', 0, 13), (${key.keyId}, '2026-09-29', 1000, 0)`;
  const [row] = await listShownKeys(world.deps, person.accountId);
  expect(row?.used?.spentNanoUsd).toEqual({
    dailySpendMaxNanoUsd: 5n,
    weeklySpendMaxNanoUsd: 12n,
    monthlySpendMaxNanoUsd: 23n,
    totalSpendMaxNanoUsd: 36n,
  });
  await world.setClock(null);
});

test("last used: many keys in one statement, the latest of two replicas wins, by the database's clock", async () => {
  const person = await world.addCustomer();
  let nowMs = 1_000_000;
  const open = () => openKeyUses({ db: world.deps.db, log: createLog("silent"), nowMs: () => nowMs });
  const [a, b] = [open(), open()];
  const { keyId } = (await create(person)).key;
  expect((await listShownKeys(world.deps, person.accountId))[0]).toMatchObject({ lastUsedAt: null, lastHost: null });
  for (let other = 0; other < 5000; other++) a.note(10_000_000 + other, "many.example");
  a.note(keyId, "older.example");
  nowMs += 60_000;
  b.note(keyId, "newer.example");
  nowMs += 2_000;
  const before = Date.parse(await inSeconds(0));
  await b.flush();
  await a.stop();
  const [shown] = await listShownKeys(world.deps, person.accountId);
  expect(shown?.lastHost).toBe("newer.example");
  // Two seconds before it was written, which was between these two moments of the database.
  const writtenAt = Date.parse(shown?.lastUsedAt ?? "") + 2_000;
  expect(writtenAt).toBeGreaterThanOrEqual(before - 1);
  expect(writtenAt).toBeLessThanOrEqual(Date.parse(await inSeconds(0)));
  const [row] = await world.sql`select count(*)::int as n from key_uses where host = 'many.example'`;
  expect(row?.n).toBe(5000);
  await b.stop();
});

test("a change that ends a key waits for the ledger batch that has the account's lock", async () => {
  const person = await world.addCustomer();
  const lock = `select lock_accounts(array[${person.accountId}]::bigint[])`;
  const keyId = async () => (await create(person)).key.keyId;
  const [a, b, c] = [await keyId(), await keyId(), await keyId()];
  await world.whileLocked(lock, () => disableKey(world.deps, { ...person, keyId: a }));
  await world.whileLocked(lock, () => revokeKey(world.deps, { ...person, keyId: b }));
  await world.whileLocked(lock, () => rotateKey(world.deps, { ...person, keyId: c, overlapSeconds: 0 }));
});

test("an account has at most 200 keys that are not revoked, also with concurrent requests", async () => {
  const person = await world.addCustomer();
  for (let i = 0; i < 198; i++) await world.addKey(person);
  const results = await Promise.allSettled(Array.from({ length: 8 }, () => create(person)));
  expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(2);
  const [{ keyId } = { keyId: 0 }] = (await listKeys(world.deps, { accountId: person.accountId, limit: 1 })).rows;
  await revokeKey(world.deps, { ...person, keyId });
  await create(person);
});

test("look-up: a malformed key causes no query; an unknown key is cached until an account changes", async () => {
  const person = await world.addCustomer();
  const lookup = openLookup();
  expect(await lookup.find("sk-garbage")).toBeUndefined();
  const { secret, key } = await create(person);
  const digestHex = digestOfKey(secret) ?? "";
  expect(lookup.peek(digestHex)).toBeUndefined();
  expect(await lookup.get(digestHex)).toMatchObject({
    keyId: key.keyId,
    accountId: person.accountId,
    tenantId: 0,
    role: "customer",
    modelIds: null,
    hosts: null,
    expiresAtMs: null,
  });
  expect(lookup.peek(digestHex)).toMatchObject({ keyId: key.keyId });
  const unknown = "ab".repeat(32);
  expect(await lookup.get(unknown)).toBeUndefined();
  expect(lookup.peek(unknown)).toBeNull();
  await create(person);
  expect(lookup.peek(unknown)).toBeUndefined();
});

test("look-up: a change of the key is seen immediately; scopes are sets; a reseller is its own tenant", async () => {
  const reseller = await world.addReseller();
  const lookup = openLookup();
  const { secret, key } = await create(reseller, {
    modelIds: ["chat-1"],
    hosts: ["localhost"],
    expiresAt: await inSeconds(3600),
  });
  const found = await lookup.find(secret);
  expect(found).toMatchObject({
    tenantId: reseller.accountId,
    role: "reseller",
    status: "enabled",
    accountStatus: "active",
    tenantStatus: "active",
  });
  expect(found?.modelIds).toEqual(new Set(["chat-1"]));
  expect(found?.hosts).toEqual(new Set(["localhost"]));
  expect(found?.expiresAtMs).toBe(Date.parse(key.expiresAt ?? ""));
  await disableKey(world.deps, { ...reseller, keyId: key.keyId });
  expect((await lookup.find(secret))?.status).toBe("disabled");
});

test("a panel call uses the latest key that is allowed on that host", async () => {
  const person = await world.addCustomer();
  const use = async (host: string, keyId?: number) =>
    (await findUsableKey(world.deps, { ...person, host, ...(keyId !== undefined && { keyId }) }))?.keyId;
  expect(await use("localhost")).toBeUndefined();
  const anywhere = (await create(person)).key.keyId;
  const local = (await create(person, { hosts: ["localhost"] })).key.keyId;
  const off = (await create(person)).key.keyId;
  await disableKey(world.deps, { ...person, keyId: off });
  const brief = (await create(person, { expiresAt: await inSeconds(3600) })).key.keyId;
  await world.sql`update keys set expires_at = clock_timestamp() where id = ${brief}`;
  expect(await use("localhost")).toBe(local);
  expect(await use("api.tollgate.example")).toBe(anywhere);
  expect(await use("localhost", anywhere)).toBe(anywhere);
  for (const keyId of [off, brief, 999_999, 2 ** 60]) expect(await use("localhost", keyId)).toBeUndefined();
  const usable = async (host: string) =>
    (await listUsableKeys(world.deps, { ...person, host })).map((key) => key.keyId);
  expect(await usable("localhost")).toEqual([local, anywhere]);
  expect(await usable("api.tollgate.example")).toEqual([anywhere]);
});
