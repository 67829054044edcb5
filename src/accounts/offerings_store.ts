import { and, desc, eq, not, type SQL, sql } from "drizzle-orm";
import { isTimeZone } from "../config_values.ts";
import { ExistsError, InputError, sentence } from "../errors.ts";
import {
  MONEY_NANO_USD_MAX,
  OFFERING_DAILY_REQUESTS,
  OFFERING_DAYS,
  OFFERING_NAME_CHARS_MAX,
  OFFERING_TOKENS,
  OFFERING_TOTAL_REQUESTS,
  type RequestBounds,
  SCOPE_MODELS_MAX,
} from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import type { RateLimits } from "../platform/rate_tallies.ts";
import { offerings } from "../platform/schema_offerings.ts";
import { checkInteger, checkList, checkName, isRowId } from "./input_checks.ts";
import { checkModelIds } from "./model_scope_store.ts";
import { checkRateLimits, type RateLimitsInput } from "./rate_limits.ts";
import { checkLimitedModels } from "./rate_limits_store.ts";
import { checkRequestBounds, type RequestBoundsInput } from "./request_bounds.ts";

/**
 * What can be sold as a package. A daily offering has one day and 100 to 2000 requests; a custom one has 1 to 30 days and any daily
 * quota. Source: PAY-8. An offering never changes, except for whether it is on sale: packages are copies of it.
 */

const LIST_MAX = 1000;

export type Offering = {
  offeringId: number;
  name: string;
  kind: "daily" | "custom";
  days: number;
  /** Requests per day, and over the package's life. */
  dailyLimit: number;
  totalLimit: number;
  /** Unused requests of a day are added to the next. */
  carryover: boolean;
  tokenLimit: number | null;
  /** Limits of an account while it has a package of this offering; null: none. */
  limits: RateLimits | null;
  /** What one request may ask for. */
  requestBounds: RequestBounds;
  /** null: all models. */
  modelIds: string[] | null;
  timeZone: string;
  /** The price for a reseller. */
  wholesaleNanoUsd: bigint;
  enabled: boolean;
  createdAt: string;
};

export type NewOffering = Pick<Offering, "name" | "kind" | "dailyLimit" | "timeZone" | "wholesaleNanoUsd"> &
  /** `days`: 1 for daily. `totalLimit`: dailyLimit × days unless given. */
  Partial<Pick<Offering, "days" | "totalLimit" | "carryover" | "tokenLimit" | "modelIds">> & {
    limits?: RateLimitsInput | null | undefined;
    requestBounds?: RequestBoundsInput | undefined;
  };

/** Adds an offering. Throws InputError. */
export async function addOffering(deps: ChangeDeps, wanted: NewOffering): Promise<Offering> {
  return changing(deps, (tx) => insertOffering(tx, wanted));
}

/** As `addOffering`, in the caller's transaction. */
export async function insertOffering(tx: Tx, wanted: NewOffering): Promise<Offering> {
  const row = checkOffering(wanted);
  await checkModelIds(tx, row.modelIds);
  await checkLimitedModels(tx, row.limits);
  await checkPostgresKnows(tx, row.timeZone);
  const [added] = await tx.insert(offerings).values(row).onConflictDoNothing().returning({ id: offerings.id });
  if (!added) throw new ExistsError(sentence("There is already an offering named {name}.", { name: row.name }), "name");
  const [offering] = await select(tx, eq(offerings.id, added.id));
  if (!offering) throw new Error(`offering ${added.id} vanished`);
  return offering;
}

function checkOffering(wanted: NewOffering) {
  const { kind, carryover = false, tokenLimit = null, wholesaleNanoUsd, timeZone } = wanted;
  const days = wanted.days ?? 1;
  if (kind === "daily" && days !== 1)
    throw new InputError("A daily offering has one day. Use a custom offering for more.", "days");
  checkInteger(days, { param: "days", ...OFFERING_DAYS });
  const dailyLimit = checkInteger(wanted.dailyLimit, {
    param: "dailyLimit",
    ...OFFERING_DAILY_REQUESTS[kind],
  });
  const totalLimit = checkInteger(wanted.totalLimit ?? dailyLimit * days, {
    param: "totalLimit",
    ...OFFERING_TOTAL_REQUESTS,
  });
  if (tokenLimit !== null) checkInteger(tokenLimit, { param: "tokenLimit", ...OFFERING_TOKENS });
  if (wholesaleNanoUsd < 0n || wholesaleNanoUsd > MONEY_NANO_USD_MAX) {
    throw new InputError("The wholesale price must be from $0 to $9,000,000.", "wholesaleNanoUsd");
  }
  if (!isTimeZone(timeZone)) throw noSuchZone(timeZone);
  return {
    name: checkName(wanted.name, { param: "name", charsMax: OFFERING_NAME_CHARS_MAX }),
    kind,
    days,
    dailyLimit,
    totalLimit,
    carryover,
    tokenLimit,
    limits: checkRateLimits(wanted.limits ?? null),
    requestBounds: checkRequestBounds(wanted.requestBounds ?? {}),
    modelIds: checkList(wanted.modelIds ?? null, { param: "modelIds", max: SCOPE_MODELS_MAX }),
    timeZone,
    wholesaleNanoUsd,
  };
}

/** Postgres computes the days, so it must know the zone. An offset such as "+01:00", valid in Intl, has the opposite sign there. */
async function checkPostgresKnows(tx: Tx, timeZone: string): Promise<void> {
  const rows = await tx.execute(sql`select 1 from pg_timezone_names where lower(name) = lower(${timeZone})`);
  if (rows.length === 0) throw noSuchZone(timeZone);
}

function noSuchZone(timeZone: string): InputError {
  return new InputError(
    sentence("There is no time zone {timeZone}. Use an IANA name, as in Europe/Berlin.", { timeZone }),
    "timeZone",
  );
}

/** Offerings, newest first, without those that were made to measure. */
export async function listOfferings({ db }: { db: Db }, { enabled }: { enabled?: boolean } = {}): Promise<Offering[]> {
  return select(
    db.orm,
    and(not(offerings.measured), enabled === undefined ? undefined : eq(offerings.enabled, enabled)),
  );
}

/** One offering, by its id or its name. */
export async function findOffering(
  { db }: { db: Db },
  by: { offeringId: number } | { name: string },
): Promise<Offering | undefined> {
  if ("name" in by)
    return by.name.includes("\0")
      ? undefined
      : (await select(db.orm, and(eq(offerings.name, by.name), not(offerings.measured))))[0];
  return isRowId(by.offeringId) ? (await select(db.orm, eq(offerings.id, by.offeringId)))[0] : undefined;
}

/** Puts an offering on sale or takes it off sale; sold packages stay. False: no such offering. */
export async function setOfferingEnabled(
  deps: ChangeDeps,
  { offeringId, enabled }: { offeringId: number; enabled: boolean },
): Promise<boolean> {
  if (!isRowId(offeringId)) return false;
  return changing(deps, async (tx) => {
    const set = await tx
      .update(offerings)
      .set({ enabled })
      .where(and(eq(offerings.id, offeringId), not(offerings.measured)))
      .returning({ id: offerings.id });
    return set.length > 0;
  });
}

async function select(tx: Tx, where: SQL | undefined): Promise<Offering[]> {
  const rows = await tx.select().from(offerings).where(where).orderBy(desc(offerings.id)).limit(LIST_MAX);
  return rows.map(({ id, measured: _, ...row }) => ({ offeringId: id, ...row, createdAt: toIso(row.createdAt) }));
}

/** Throws InputError for `offeringId` unless it is an offering on sale. */
export async function requireOnSale(tx: Tx, offeringId: number): Promise<void> {
  const found = isRowId(offeringId)
    ? await tx
        .select({ id: offerings.id })
        .from(offerings)
        .where(and(eq(offerings.id, offeringId), offerings.enabled, not(offerings.measured)))
    : [];
  if (found.length === 0) throw notForSale();
}

export function notForSale(): InputError {
  return new InputError("There is no such offering for sale.", "offeringId");
}
