import { eq, type SQLWrapper, sql } from "drizzle-orm";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { PROVIDER_FAILURES } from "../platform/metrics.ts";
import { providerKeyPauses, providerKeys } from "../platform/schema_catalog.ts";
import { type KeyRest, NOBODY } from "./key_pool.ts";
import type { FailureKind } from "./provider_errors.ts";
import { ACTIVE } from "./provider_keys_store.ts";

/** The states of providers' keys, shared by all replicas. The database's clock decides when they end. Source: PRV-14, PRV-15. */

/** The first wait before a probe; doubled by each further failure, up to the maximum. */
const PROBE_FIRST_SECONDS = 5;
const PROBE_MAX_SECONDS = 300;
/** A key that was active for this long begins with the first wait again. */
const FORGOTTEN_AFTER = sql`interval '1 minute'`;
/** Keeps the power within the range of Postgres's numbers. */
const DOUBLINGS_MAX = 20;

/** A rest as the database has it. `leftMs`: until a pause ends, or until the next probe. */
type StoredRest = Omit<KeyRest, "untilMs"> & { keyId: number; leftMs: number };

/** The quarantines and pauses of all keys that are not over. */
export async function loadKeyRests({ db }: { db: Db }): Promise<StoredRest[]> {
  const leftMs = (until: SQLWrapper) =>
    sql`greatest(0, extract(epoch from ${until} - clock_timestamp()) * 1000)`.mapWith(Number);
  const quarantined = await db.orm
    .select({
      keyId: providerKeys.id,
      why: providerKeys.why,
      leftMs: leftMs(providerKeys.until),
      accountId: providerKeys.metAccountId,
      payerId: providerKeys.metPayerId,
    })
    .from(providerKeys)
    .where(eq(providerKeys.state, "quarantined"));
  const paused = await db.orm
    .select({
      keyId: providerKeyPauses.keyId,
      model: providerKeyPauses.model,
      leftMs: leftMs(providerKeyPauses.until),
      accountId: providerKeyPauses.metAccountId,
      payerId: providerKeyPauses.metPayerId,
    })
    .from(providerKeyPauses)
    .where(sql`${providerKeyPauses.until} > clock_timestamp()`);
  return [
    ...quarantined.map(({ why, ...rest }) => ({
      ...rest,
      state: "quarantined" as const,
      why: kindOf(why),
      model: null,
    })),
    ...paused.map((rest) => ({ ...rest, state: "cooling" as const, why: "rate_limited" as const })),
  ];
}

/** Another release may have written a kind that this one does not know. */
function kindOf(why: string | null): FailureKind {
  return PROVIDER_FAILURES.find((kind) => kind === why) ?? "status";
}

export type RestToStore = Omit<KeyRest, "untilMs"> & {
  keyId: number;
  /** How long a pause is. When a quarantined key is probed follows from its failures. */
  seconds: number;
  /** The failure was that of a probe: the next one comes later. */
  isProbe: boolean;
  /** The probe proves that the failure is the key's own, so it applies to everybody. */
  isProven?: boolean;
};

/** Writes a rest, merged with the stored one as in key_pool.ts: account and payer become null where the two differ. */
export async function storeRest(deps: ChangeDeps, rest: RestToStore): Promise<void> {
  const write = rest.model === null ? storeQuarantine : storePause;
  await changing(deps, (tx) => write(tx, rest));
}

async function storePause(tx: Tx, { keyId, model, seconds, accountId, payerId }: RestToStore): Promise<void> {
  await tx.execute(sql`
    insert into provider_key_pauses as p (key_id, model, since, until, met_account_id, met_payer_id)
    select id, ${model}::text, clock_timestamp(), clock_timestamp() + make_interval(secs => ${seconds}), ${accountId}::bigint, ${payerId}::bigint
    from provider_keys where id = ${keyId}::bigint
    on conflict (key_id, model) do update set
      since = case when p.until > clock_timestamp() then p.since else excluded.since end,
      until = case when p.until > clock_timestamp() and p.met_payer_id is not distinct from excluded.met_payer_id
        then greatest(p.until, excluded.until) else excluded.until end,
      met_account_id = case when p.until <= clock_timestamp() or p.met_account_id = excluded.met_account_id then excluded.met_account_id end,
      met_payer_id = case when p.until <= clock_timestamp() or p.met_payer_id = excluded.met_payer_id then excluded.met_payer_id end`);
}

async function storeQuarantine(tx: Tx, rest: RestToStore): Promise<void> {
  const { keyId, why, accountId, payerId, isProbe, isProven = false } = rest;
  // NOBODY is replaced by the account that met the failure; two different accounts make it everybody's.
  const merged = (column: "met_account_id" | "met_payer_id", met: number | null) => sql`case
    when ${isProven} then null
    when not quarantined or ${sql.raw(column)} = ${NOBODY} then ${met}::bigint
    when ${met}::bigint = ${NOBODY} or ${sql.raw(column)} = ${met}::bigint then ${sql.raw(column)} end`;
  await tx.execute(sql`
    update provider_keys set state = 'quarantined', why = ${why},
      since = case when quarantined then since else clock_timestamp() end,
      failures = failures_now,
      until = case when quarantined and not ${isProbe} then until
        -- A key that was refused for the first time is probed at once: that costs nothing.
        when ${why} = 'credentials' and failures_now = 1 then clock_timestamp()
        else clock_timestamp() + make_interval(secs => least(${PROBE_MAX_SECONDS}::float8, ${PROBE_FIRST_SECONDS} * 2 ^
          least(${DOUBLINGS_MAX}, failures_now - case ${why} when 'credentials' then 2 else 1 end))) end,
      met_account_id = ${merged("met_account_id", accountId)},
      met_payer_id = ${merged("met_payer_id", payerId)}
    from (select id as key_id, state = 'quarantined' as quarantined,
        case when state = 'quarantined' and not ${isProbe} then failures
          when state <> 'quarantined' and since < clock_timestamp() - ${FORGOTTEN_AFTER} then 1
          else failures + 1 end as failures_now
      from provider_keys where id = ${keyId}::bigint for update) as known
    -- A probe of the secret that was replaced meanwhile says nothing about the new one.
    where id = key_id and (quarantined or not ${isProbe})`);
}

/**
 * Ends a key's quarantine. A served request proves that the key works. A list of models may be public: after it the
 * failures still count, so that a key that fails again waits longer.
 */
export async function endQuarantine(
  deps: ChangeDeps,
  { keyId, isServed }: { keyId: number; isServed: boolean },
): Promise<void> {
  await changing(deps, (tx) =>
    tx
      .update(providerKeys)
      .set({ ...ACTIVE, ...(isServed && { failures: 0 }) })
      .where(sql`${eq(providerKeys.id, keyId)} and ${eq(providerKeys.state, "quarantined")}`),
  );
}

/**
 * Takes the due probe of a quarantined key for `leaseSeconds`: only one replica gets it. Returns false if another has
 * it, or if the key is no longer quarantined or enabled.
 */
export async function takeProbe(
  deps: ChangeDeps,
  { keyId, leaseSeconds }: { keyId: number; leaseSeconds: number },
): Promise<boolean> {
  return await changing(deps, async (tx) => {
    const taken = await tx
      .update(providerKeys)
      .set({
        until: sql`clock_timestamp() + make_interval(secs => ${leaseSeconds})`,
        probedAt: sql`clock_timestamp()`,
      })
      .where(
        sql`${providerKeys.id} = ${keyId} and ${providerKeys.state} = 'quarantined' and ${providerKeys.until} <= clock_timestamp()
          and ${providerKeys.enabled}`,
      )
      .returning({ id: providerKeys.id });
    return taken.length > 0;
  });
}

/** Pauses are kept for this time after they end, because the next one of the same model writes the same row. */
const PAUSES_KEPT = sql`interval '1 hour'`;

/** Deletes pauses that ended long ago. Called by a job. */
export async function prunePauses({ db }: { db: Db }): Promise<void> {
  await db.orm.delete(providerKeyPauses).where(sql`${providerKeyPauses.until} < clock_timestamp() - ${PAUSES_KEPT}`);
}
