import { afterAll, beforeAll, expect, test } from "bun:test";
import { listAudit, pruneAudit } from "../../src/accounts/audit_store.ts";
import { addHost } from "../../src/accounts/hosts_store.ts";
import { createKey, listKeys, pruneKeys, revokeKey } from "../../src/accounts/keys_store.ts";
import { findReceipt } from "../../src/books/receipts_store.ts";
import { listUsageRecords } from "../../src/books/usage_records_store.ts";
import { placeOrder, pruneOrders, withdrawOrder } from "../../src/commerce/orders_store.ts";
import { VARIABLES } from "../../src/config.ts";
import { KEPT } from "../../src/retention.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

/** What grows with every change is kept for HISTORY_DAYS and then deleted in slices. The ledger's records stay. */

const KEPT_DAYS = 400;

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await world.close();
});

const count = async (table: string) =>
  Number((await world.sql.unsafe(`select count(*)::int as n from ${table}`))[0]?.n);

test("the help of HISTORY_DAYS names each kind that it deletes", () => {
  const kinds = Object.keys(KEPT).filter((kind) => KEPT[kind]?.isHistory);
  expect(kinds).toContain("incidents");
  for (const kind of kinds) expect(VARIABLES.HISTORY_DAYS.what).toContain(kind);
});

test("older entries of the audit log are deleted in slices, the oldest first", async () => {
  await world.sql`
    insert into audit_entries (action, subject, subject_id, created_at)
    select 'changed', 'accounts', '1', clock_timestamp() - make_interval(days => ${KEPT_DAYS}::int + 1) from generate_series(1, 12000)`;
  await world.sql`
    insert into audit_entries (action, subject, subject_id, created_at)
    values ('changed', 'accounts', '1', clock_timestamp() - make_interval(days => ${KEPT_DAYS}::int - 1))`;
  expect(await pruneAudit(world.deps, KEPT_DAYS)).toBe(12_000);
  expect(await pruneAudit(world.deps, KEPT_DAYS)).toBe(0);
  expect((await listAudit(world.deps)).entries.filter(({ subjectId }) => subjectId === "1")).toHaveLength(1);
});

test("a key revoked longer ago is deleted; its receipts stay, with its id, and the books balance", async () => {
  const person = await world.addCustomer();
  const wanted = { ...person, name: "ci", mode: "package", modelIds: null, hosts: null, expiresAt: null } as const;
  const create = async () => (await createKey(world.deps, { ...wanted, dailyUnitsMax: 10 })).key;
  const [old, recent, living] = [await create(), await create(), await create()];
  for (const key of [old, recent]) await revokeKey(world.deps, key);
  await world.sql`update keys set revoked_at = revoked_at - make_interval(days => ${KEPT_DAYS}::int + 1) where id = ${old.keyId}`;
  await world.sql`update keys set revoked_at = revoked_at - make_interval(days => ${KEPT_DAYS}::int - 1) where id = ${recent.keyId}`;
  await world.sql`insert into key_uses (key_id, last_used_at, host) values (${old.keyId}, now(), 'h'), (${living.keyId}, now(), 'h')`;
  const [receipt] = await world.sql`
    insert into receipts (request_id, account_id, key_id, model_id, host, mode, key_day, outcome, reason, units, held_nano_usd, charged_nano_usd,
      shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
    select request_id_floor(at), ${person.accountId}, ${old.keyId}, 'm', 'h', 'payg', at::date, 'settled', 'complete', 0, 0, 0, 0, 1, 0, 1, 0, false, at, at
    from (select clock_timestamp() as at) at returning request_id, key_day`;
  const requestId = String(receipt?.request_id);
  await world.sql`insert into key_days (key_id, day, units_taken) select key_id, key_day, 1 from receipts where request_id = ${requestId}`;
  expect(await world.unbalanced()).toEqual([]);
  expect(await pruneKeys(world.deps, KEPT_DAYS)).toBe(1);
  expect(await pruneKeys(world.deps, KEPT_DAYS)).toBe(0);
  const { rows } = await listKeys(world.deps, person);
  expect(rows.map(({ keyId }) => keyId)).toEqual([living.keyId, recent.keyId]);
  expect((await world.sql`select key_id::int as id from key_uses`).map(({ id }) => id)).toEqual([living.keyId]);
  expect((await listUsageRecords(world.deps, person)).rows).toMatchObject([
    { requestId, keyId: old.keyId, keyName: null },
  ]);
  expect(await findReceipt(world.deps, { ...person, requestId })).toMatchObject({ keyId: old.keyId, keyName: null });
  expect(await world.unbalanced()).toEqual([]);
});

test("an order decided longer ago is deleted; an open one never is", async () => {
  const person = await world.addCustomer();
  const place = () => placeOrder(world.deps, person.accountId, { kind: "top_up", amountNanoUsd: 10_000_000n });
  const [old, recent, open] = [await place(), await place(), await place()];
  for (const order of [old, recent]) await withdrawOrder(world.deps, { ...person, ...order });
  await world.sql`update orders set created_at = created_at - interval '3 years'`;
  await world.sql`update orders set decided_at = decided_at - make_interval(days => ${KEPT_DAYS}::int + 1) where id = ${old.orderId}`;
  expect(await pruneOrders(world.deps, KEPT_DAYS)).toBe(1);
  const left = await world.sql`select id::int as id from orders order by id`;
  expect(left.map(({ id }) => id)).toEqual([recent.orderId, open.orderId]);
});

test("two replicas that prune concurrently delete each row once", async () => {
  const reseller = await world.addReseller();
  await addHost(world.deps, { host: "ai.prune.example", resellerId: reseller.accountId });
  await world.sql`
    insert into keys (account_id, name, digest, prefix, suffix, mode, status, revoked_at)
    select ${reseller.accountId}, 'old', sha256(n::text::bytea), 'p', 's', 'package', 'revoked', clock_timestamp() - make_interval(days => 500)
    from generate_series(1, 1200) n`;
  const before = await count("keys");
  const pruned = await Promise.all([pruneKeys(world.deps, KEPT_DAYS), pruneKeys(world.deps, KEPT_DAYS)]);
  pruned.push(await pruneKeys(world.deps, KEPT_DAYS));
  expect(pruned.reduce((sum, one) => sum + one, 0)).toBe(1_200);
  expect(await count("keys")).toBe(before - 1_200);
});
