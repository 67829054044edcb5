import { randomBytes } from "node:crypto";
import { and, eq, sql } from "drizzle-orm";
import { lockAccountRow } from "../accounts/locks_store.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { WEBHOOK_OVERLAP_HOURS, WEBHOOKS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { decrypt, encrypt } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { webhookEndpoints } from "../platform/schema_outbox.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { WEBHOOK_KINDS } from "./kinds.ts";

/** Webhook endpoints of accounts. A secret is shown once, when it is made. Source: MSG-9. */

const SECRET_BYTES = 32;
/** An endpoint that has failed for this long without a success is switched off. Source: MSG-9. */
const PAUSE_AFTER_DAYS = 3;
const PAUSED = "The endpoint is switched off.";
/** Why an endpoint without a secret is not called. */
export const UNREADABLE_SECRET = "The endpoint's secret cannot be decrypted. Make a new one.";

/** As pages show it. `oldSecretUntil`: until then the secret before the last rotation also signs. */
export type Endpoint = {
  endpointId: number;
  url: string;
  kinds: string[];
  enabled: boolean;
  pausedWhy: string | null;
  failingSince: string | null;
  oldSecretUntil: string | null;
  createdAt: string;
};
type Secrets = ChangeDeps & { config: { secretKey: Uint8Array } };
type Ref = { accountId: number; endpointId: number };

const columns = {
  endpointId: webhookEndpoints.id,
  url: webhookEndpoints.url,
  kinds: webhookEndpoints.kinds,
  enabled: webhookEndpoints.enabled,
  pausedWhy: webhookEndpoints.pausedWhy,
  failingSince: webhookEndpoints.failingSince,
  oldSecretUntil: webhookEndpoints.oldSecretUntil,
  createdAt: webhookEndpoints.createdAt,
};

export async function listEndpoints({ db }: { db: Db }, accountId: number): Promise<Endpoint[]> {
  const rows = await db.orm
    .select(columns)
    .from(webhookEndpoints)
    .where(eq(webhookEndpoints.accountId, accountId))
    .orderBy(webhookEndpoints.id);
  return rows.map(toEndpoint);
}

/** Throws not_found, also for another account's. */
export async function findEndpoint({ db }: { db: Db }, { accountId, endpointId }: Ref): Promise<Endpoint> {
  const [row] = await db.orm
    .select(columns)
    .from(webhookEndpoints)
    .where(and(eq(webhookEndpoints.id, endpointId), eq(webhookEndpoints.accountId, accountId)));
  if (!row) throw new Refusal("not_found");
  return toEndpoint(row);
}

/** Adds an endpoint whose `url` was checked. Returns its secret, which is not shown again. Throws InputError. */
export async function addEndpoint(
  deps: Secrets,
  { accountId, url, kinds }: { accountId: number; url: string; kinds: readonly string[] },
): Promise<{ endpoint: Endpoint; secret: string }> {
  const { secretKey } = deps.config;
  const wanted = checkKinds(kinds);
  return changing(deps, async (tx) => {
    await lockAccountRow(tx, accountId);
    const others = await tx
      .select({ url: webhookEndpoints.url })
      .from(webhookEndpoints)
      .where(eq(webhookEndpoints.accountId, accountId));
    if (others.length >= WEBHOOKS_MAX)
      throw new InputError(sentence("There can be at most {webhooksMax} endpoints.", { webhooksMax: WEBHOOKS_MAX }));
    if (others.some((other) => other.url === url)) throw new InputError("This URL was added before.", "url");
    await holdSecretKey(tx, secretKey);
    const secret = newSecret();
    const [row] = await tx
      .insert(webhookEndpoints)
      .values({ accountId, url, kinds: wanted, secretCiphertext: encrypt(secretKey, secret) })
      .returning(columns);
    if (!row) throw new Error("an insert returned nothing");
    return { endpoint: toEndpoint(row), secret };
  });
}

/**
 * Changes kinds, or switches the endpoint on or off. Deliveries that wait when it is switched off are not sent. Throws
 * not_found, InputError.
 */
export async function changeEndpoint(
  deps: ChangeDeps,
  { accountId, endpointId }: Ref,
  { kinds, enabled }: { kinds?: readonly string[]; enabled?: boolean },
): Promise<void> {
  const set = {
    ...(kinds !== undefined && { kinds: checkKinds(kinds) }),
    ...(enabled !== undefined && { enabled, pausedWhy: null, failingSince: null }),
  };
  await changing(deps, async (tx) => {
    if (enabled === false) await endWaiting(tx, endpointId, accountId);
    if (Object.keys(set).length === 0) return;
    const changed = await tx
      .update(webhookEndpoints)
      .set(set)
      .where(and(eq(webhookEndpoints.id, endpointId), eq(webhookEndpoints.accountId, accountId)))
      .returning({ id: webhookEndpoints.id });
    if (changed.length === 0) throw new Refusal("not_found");
  });
}

/** Makes a new secret. The old one also signs for `overlapHours`. Throws not_found, InputError. */
export async function rotateSecret(
  deps: Secrets,
  { accountId, endpointId }: Ref,
  overlapHours: number,
): Promise<{ secret: string }> {
  const { secretKey } = deps.config;
  const { min, max } = WEBHOOK_OVERLAP_HOURS;
  if (!Number.isInteger(overlapHours) || overlapHours < min || overlapHours > max)
    throw new InputError(sentence("The overlap must be {min} to {max} hours.", { min, max }), "overlapHours");
  return changing(deps, async (tx) => {
    await holdSecretKey(tx, secretKey);
    const secret = newSecret();
    const changed = await tx
      .update(webhookEndpoints)
      .set({
        secretCiphertext: encrypt(secretKey, secret),
        oldSecretCiphertext: overlapHours === 0 ? null : sql`${webhookEndpoints.secretCiphertext}`,
        oldSecretUntil: overlapHours === 0 ? null : sql`ledger_now() + make_interval(hours => ${overlapHours})`,
      })
      .where(and(eq(webhookEndpoints.id, endpointId), eq(webhookEndpoints.accountId, accountId)))
      .returning({ id: webhookEndpoints.id });
    if (changed.length === 0) throw new Refusal("not_found");
    return { secret };
  });
}

/** Removes an endpoint with the list of its deliveries. Throws not_found. */
export async function removeEndpoint(deps: ChangeDeps, { accountId, endpointId }: Ref): Promise<void> {
  await changing(deps, async (tx) => {
    await endWaiting(tx, endpointId, accountId);
    const gone = await tx
      .delete(webhookEndpoints)
      .where(and(eq(webhookEndpoints.id, endpointId), eq(webhookEndpoints.accountId, accountId)))
      .returning({ id: webhookEndpoints.id });
    if (gone.length === 0) throw new Refusal("not_found");
  });
}

/**
 * The data for a call that is made now; undefined: the endpoint is switched off or removed. An empty list of secrets:
 * none can be decrypted. `unixMs`: the database's time.
 */
export async function endpointToCall(
  { db, secretKey }: { db: Db; secretKey: Uint8Array },
  endpointId: number,
): Promise<{ url: string; secrets: string[]; unixMs: number } | undefined> {
  const [row] = await db.orm
    .select({
      url: webhookEndpoints.url,
      secret: webhookEndpoints.secretCiphertext,
      oldSecret: webhookEndpoints.oldSecretCiphertext,
      isOldValid: sql<boolean>`coalesce(${webhookEndpoints.oldSecretUntil} > ledger_now(), false)`,
      unixMs: sql`floor(extract(epoch from ledger_now()) * 1000)::float8`.mapWith(Number),
    })
    .from(webhookEndpoints)
    .where(and(eq(webhookEndpoints.id, endpointId), eq(webhookEndpoints.enabled, true)));
  if (!row) return undefined;
  const { url, secret, oldSecret, isOldValid, unixMs } = row;
  const ciphertexts = [secret, ...(isOldValid && oldSecret ? [oldSecret] : [])];
  return { url, secrets: ciphertexts.flatMap((ciphertext) => readable(secretKey, ciphertext)), unixMs };
}

/** Empty: they were encrypted with a SECRET_KEY that is lost. */
function readable(secretKey: Uint8Array, ciphertext: Uint8Array): string[] {
  try {
    return [decrypt(secretKey, ciphertext)];
  } catch {
    return []; // The attempt and the page report it.
  }
}

/**
 * Switches an endpoint off if it has failed for days, or immediately if `isGone`; cancels its waiting deliveries, and
 * tells its owner. Returns whether it did. Source: MSG-9.
 */
export async function pauseFailing(
  deps: ChangeDeps,
  endpointId: number,
  { isGone, why }: { isGone: boolean; why: string },
): Promise<boolean> {
  return changing(deps, async (tx) => {
    const [paused] = await tx
      .update(webhookEndpoints)
      .set({ enabled: false, pausedWhy: why })
      .where(
        and(
          eq(webhookEndpoints.id, endpointId),
          eq(webhookEndpoints.enabled, true),
          isGone ? undefined : sql`failing_since <= ledger_now() - make_interval(days => ${PAUSE_AFTER_DAYS})`,
        ),
      )
      .returning({ accountId: webhookEndpoints.accountId, url: webhookEndpoints.url });
    if (!paused) return false;
    const { accountId, url } = paused;
    await endWaiting(tx, endpointId, accountId);
    const data = { endpointId, url, why, ...(!isGone && { days: PAUSE_AFTER_DAYS }) };
    await tell(tx, { kind: "webhook_paused", accountId, data });
    return true;
  });
}

/** Cancels the waiting deliveries of an account's endpoint. The recipient's row first, as everywhere. */
async function endWaiting(tx: Tx, endpointId: number, accountId: number): Promise<void> {
  await tx.execute(sql`
    update outbox_recipients set next_at = null, failures = 0
    where channel = 'webhook' and address = ${String(endpointId)}
      and exists (select from webhook_endpoints e where e.id = ${endpointId} and e.account_id = ${accountId})`);
  await tx.execute(sql`
    update outbox_deliveries set status = 'failed', ended_at = clock_timestamp(), error = ${PAUSED}
    where endpoint_id = ${endpointId} and status = 'waiting'
      and exists (select from webhook_endpoints e where e.id = ${endpointId} and e.account_id = ${accountId})`);
}

/** A secret of the Standard Webhooks scheme. */
function newSecret(): string {
  return `whsec_${randomBytes(SECRET_BYTES).toString("base64")}`;
}

function checkKinds(kinds: readonly string[]): string[] {
  const wanted = WEBHOOK_KINDS.filter((kind) => kinds.includes(kind));
  if (wanted.length === 0) throw new InputError("Choose at least one kind of event.", "kinds");
  if (wanted.length !== new Set(kinds).size)
    throw new InputError(
      sentence("The kinds of events are: {webhookKinds}.", { webhookKinds: WEBHOOK_KINDS.join(", ") }),
      "kinds",
    );
  return wanted;
}

function toEndpoint(row: Endpoint): Endpoint {
  return {
    ...row,
    failingSince: toIso(row.failingSince),
    oldSecretUntil: toIso(row.oldSecretUntil),
    createdAt: toIso(row.createdAt),
  };
}
