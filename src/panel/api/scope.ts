import { type Account, findAccount } from "../../accounts/accounts_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import type { Person } from "./panel_session.ts";

/** An account that a person looks after: a reseller its own customers, an admin anybody. Throws not_found, for others' too. */
export async function accountInScope(deps: Deps, person: Person, accountId: number): Promise<Account> {
  const account =
    person.role === "admin" ? await findAccount(deps, accountId) : await findAccount(deps, accountId, person.accountId);
  if (!account) throw new Refusal("not_found");
  return account;
}
