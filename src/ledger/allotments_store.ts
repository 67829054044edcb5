import { and, desc, eq, lt, type SQL, sql } from "drizzle-orm";
import { checkInteger, isRowId } from "../accounts/input_checks.ts";
import { lockAccounts } from "../accounts/locks_store.ts";
import { requireOnSale } from "../accounts/offerings_store.ts";
import { InputError, Refusal } from "../errors.ts";
import { ALLOTMENT_PIECES } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { allotments, offerings } from "../platform/schema_offerings.ts";
import { checkReason } from "./balances_store.ts";

/**
 * Allotments: pieces of an offering that an admin grants a reseller to assign without paying. `assign_package` uses the oldest
 * grant first, under the reseller's lock. Withdrawing takes the same lock. Source: RES-1.
 */

const PAGE_MAX = 100;
/** Offerings that one reseller has allotments of. */
const OFFERINGS_MAX = 1000;

export type Allotment = {
  allotmentId: number;
  resellerId: number;
  resellerName: string;
  offeringId: number;
  offeringName: string;
  granted: number;
  used: number;
  left: number;
  reason: string | null;
  createdAt: string;
};

export type Grant = {
  resellerId: number;
  offeringId: number;
  pieces: number;
  reason: string | null;
  actorId: number | null;
};

/** Grants a reseller pieces of an offering that is for sale. Throws InputError. */
export async function grantAllotment(
  deps: ChangeDeps,
  { resellerId, offeringId, pieces, reason, actorId }: Grant,
): Promise<Allotment> {
  checkInteger(pieces, { param: "pieces", ...ALLOTMENT_PIECES });
  checkReason(reason);
  return changing(deps, async (tx) => {
    const reseller = isRowId(resellerId)
      ? await tx
          .select({ id: accounts.id })
          .from(accounts)
          .where(and(eq(accounts.id, resellerId), eq(accounts.role, "reseller")))
      : [];
    if (reseller.length === 0) throw new InputError("There is no such reseller.", "resellerId");
    await requireOnSale(tx, offeringId);
    const [added] = await tx
      .insert(allotments)
      .values({ resellerId, offeringId, granted: pieces, reason, actorId })
      .returning({ id: allotments.id });
    const [granted] = await select(tx, eq(allotments.id, Number(added?.id)), 1);
    if (!granted) throw new Error("an allotment vanished");
    return granted;
  });
}

/** Withdraws the unused pieces and returns how many. Throws not_found, and InputError if there are none. */
export async function withdrawAllotment(
  deps: ChangeDeps,
  allotmentId: number,
): Promise<{ allotment: Allotment; withdrawn: number }> {
  return changing(deps, async (tx) => {
    const [before] = isRowId(allotmentId) ? await select(tx, eq(allotments.id, allotmentId), 1) : [];
    if (!before) throw new Refusal("not_found", { message: "There is no such allotment." });
    // A concurrent assignment either has taken its piece, or finds none.
    await lockAccounts(tx, [before.resellerId]);
    const [taken] = await tx.execute<{ withdrawn: number }>(sql`
      with held as (select id, granted - used as unused from allotments where id = ${allotmentId}::bigint and granted > used)
      update allotments a set granted = a.used from held where a.id = held.id returning held.unused as withdrawn`);
    if (!taken) throw new InputError("All its pieces are used, or were withdrawn before.", "allotmentId");
    const [after] = await select(tx, eq(allotments.id, allotmentId), 1);
    if (!after) throw new Error("an allotment vanished");
    return { allotment: after, withdrawn: Number(taken.withdrawn) };
  });
}

/** Grants of one reseller or of all, newest first. `before`: the last id of the previous page. */
export async function listAllotments(
  { db }: { db: Db },
  { resellerId, before, limit = PAGE_MAX }: { resellerId?: number; before?: number; limit?: number } = {},
): Promise<Page<Allotment>> {
  const size = pageSize(limit, PAGE_MAX);
  const rows = await select(
    db.orm,
    and(
      resellerId === undefined ? undefined : eq(allotments.resellerId, resellerId),
      before === undefined ? undefined : lt(allotments.id, before),
    ),
    size + 1,
  );
  return pageOf(rows, size);
}

export type AllotmentSum = { offeringId: number; offeringName: string; granted: number; used: number; left: number };

/** A reseller's pieces, by offering. */
export async function allotmentsOf({ db }: { db: Db }, resellerId: number): Promise<AllotmentSum[]> {
  return db.orm
    .select({
      offeringId: offerings.id,
      offeringName: offerings.name,
      granted: sql<number>`sum(${allotments.granted})::float8`,
      used: sql<number>`sum(${allotments.used})::float8`,
      left: sql<number>`sum(${allotments.granted} - ${allotments.used})::float8`,
    })
    .from(allotments)
    .innerJoin(offerings, eq(offerings.id, allotments.offeringId))
    .where(eq(allotments.resellerId, resellerId))
    .groupBy(offerings.id)
    .orderBy(desc(offerings.id))
    .limit(OFFERINGS_MAX);
}

async function select(tx: Tx, where: SQL | undefined, limit: number): Promise<Allotment[]> {
  const rows = await tx
    .select({
      allotmentId: allotments.id,
      resellerId: allotments.resellerId,
      resellerName: accounts.name,
      offeringId: allotments.offeringId,
      offeringName: offerings.name,
      granted: allotments.granted,
      used: allotments.used,
      reason: allotments.reason,
      createdAt: allotments.createdAt,
    })
    .from(allotments)
    .innerJoin(offerings, eq(offerings.id, allotments.offeringId))
    .innerJoin(accounts, eq(accounts.id, allotments.resellerId))
    .where(where)
    .orderBy(desc(allotments.id))
    .limit(limit);
  return rows.map((row) => ({ ...row, left: row.granted - row.used, createdAt: toIso(row.createdAt) }));
}
