import { eq, type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import type { RequestBounds } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import type { RateLimits } from "../platform/rate_tallies.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { checkModelIds } from "./model_scope_store.ts";
import { type AccountLimits, checkRateLimits, type RateLimitsInput } from "./rate_limits.ts";
import { isItsReseller, reseller } from "./reseller_store.ts";

/** The limits of accounts in the database. Those of offerings and keys are columns of their rows. */

/** The limits of an account's active package. */
export function packageLimits(accountId: SQLWrapper): SQL<RateLimits | null> {
  return ofActivePackage(accountId, sql`limits`);
}

/** What one request of an account's active package may ask for; null: it has none. */
export function packageRequestBounds(accountId: SQLWrapper): SQL<RequestBounds | null> {
  return ofActivePackage(accountId, sql`request_bounds`);
}

/** Milliseconds until a package of the account begins or ends; null: none will. */
export function packageGoodMs(accountId: SQLWrapper): SQL<number | null> {
  return sql<number | null>`(select floor(extract(epoch from min(edge.at) - min(clock.now)) * 1000)::float8
    from packages p, (select ledger_now() as now offset 0) clock, lateral (values (p.starts_at), (p.ends_at)) edge (at)
    where p.account_id = ${accountId} and p.ends_at > clock.now and edge.at > clock.now)`;
}

function ofActivePackage<T>(accountId: SQLWrapper, column: SQL): SQL<T | null> {
  return sql<T | null>`(select p.${column} from packages p, (select ledger_now() as now offset 0) clock
    where p.account_id = ${accountId} and p.starts_at <= clock.now and p.ends_at > clock.now
    order by p.starts_at desc limit 1)`;
}

/** The limits that apply to an account, by where they come from. Throws InputError if there is no such account. */
export async function accountLimits({ db }: { db: Db }, accountId: number): Promise<AccountLimits> {
  return selectLimits(db.orm, accountId);
}

/** As `accountLimits`, in the caller's transaction. */
export async function selectLimits(tx: Tx, accountId: number): Promise<AccountLimits> {
  const [row] = await tx
    .select({ own: accounts.limits, package: packageLimits(accounts.id), reseller: reseller.limits })
    .from(accounts)
    .leftJoin(reseller, isItsReseller)
    .where(eq(accounts.id, accountId));
  if (!row) throw new InputError("There is no such account.", "accountId");
  return row;
}

/**
 * Sets the limits of an account; null: none of its own. A reseller may give its customer no more than it has itself. Throws
 * InputError. Source: LIM-6.
 */
export async function setAccountLimits(
  deps: ChangeDeps,
  { accountId, limits }: { accountId: number; limits: RateLimitsInput | null },
): Promise<AccountLimits> {
  return changing(deps, async (tx) => {
    const { reseller } = await selectLimits(tx, accountId);
    const checked = checkRateLimits(limits, { limits: reseller, of: "reseller" });
    await checkLimitedModels(tx, checked);
    await tx.update(accounts).set({ limits: checked }).where(eq(accounts.id, accountId));
    return selectLimits(tx, accountId);
  });
}

/** Throws InputError if limits name a model that is not in the catalog. */
export async function checkLimitedModels(tx: Tx, limits: RateLimits | null): Promise<void> {
  const ids = Object.keys(limits?.models ?? {});
  if (ids.length > 0) await checkModelIds(tx, ids, "limits.models");
}
