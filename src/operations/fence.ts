import { Type } from "@sinclair/typebox";
import { type Account, findAccount } from "../accounts/accounts_store.ts";
import { OPERATOR } from "../commerce/sellers_store.ts";
import { InputError, Refusal } from "../errors.ts";
import type { Db } from "../platform/db.ts";
import type { Caller } from "./operation.ts";

/** Whose data a caller may see and change: a reseller's own and its customers', an admin's everyone's. Source: ACC-3. */

type Who = Pick<Caller, "accountId" | "role">;

/**
 * An account that a caller manages: a reseller its own customers, an admin any account. Throws not_found, also for accounts that exist
 * elsewhere.
 */
export async function accountInScope(deps: { db: Db }, caller: Who, accountId: number): Promise<Account> {
  const account = await findAccount(deps, accountId, resellerOf(caller));
  if (!account) throw noAccount();
  return account;
}

/** An account that a caller manages, or its own. Throws not_found. */
export async function holderInScope(deps: { db: Db }, caller: Who, accountId: number): Promise<Account> {
  if (accountId !== caller.accountId) return accountInScope(deps, caller, accountId);
  const own = await findAccount(deps, accountId);
  if (!own) throw noAccount();
  return own;
}

/** The reseller whose customers a caller manages; undefined: all accounts. */
export function resellerOf({ role, accountId }: Who): number | undefined {
  return role === "admin" ? undefined : accountId;
}

/**
 * The reseller that an operation is about: a reseller itself, or the one that an admin names. Throws not_found for another reseller, and
 * InputError.
 */
export async function resellerInScope(deps: { db: Db }, caller: Who, resellerId: number | undefined): Promise<number> {
  if (caller.role !== "admin") {
    if (resellerId !== undefined && resellerId !== caller.accountId) throw noAccount();
    return caller.accountId;
  }
  if (resellerId === undefined) throw new InputError("Name the reseller.", "resellerId");
  const found = await findAccount(deps, resellerId);
  if (found?.role !== "reseller") throw new InputError("There is no such reseller.", "resellerId");
  return resellerId;
}

function noAccount(): Refusal {
  return new Refusal("not_found");
}

/** The input that names a seller. */
export const Seller = {
  sellerId: Type.Optional(Type.Integer({ minimum: 0, description: "A reseller. Only an admin names one." })),
};

/**
 * The seller that an operation is about: a reseller itself; for an admin the operator (0), or the reseller that is named. Throws not_found for
 * another reseller, and InputError.
 */
export async function sellerInScope(deps: { db: Db }, caller: Who, sellerId: number | undefined): Promise<number> {
  if (caller.role === "admin" && (sellerId ?? OPERATOR) === OPERATOR) return OPERATOR;
  return resellerInScope(deps, caller, sellerId);
}
