import type { Role } from "../../accounts/roles.ts";
import type { Sql } from "../../platform/db.ts";

/**
 * The first steps of each role on Home: what must be done before anything can be sold or used. Whether a step is done
 * follows from
 * what is stored, so a step that was done on the command line counts too. Nothing is stored about the list itself.
 */

/** The steps, in this order. The page has their texts and links. */
export const FIRST_STEPS = {
  admin: ["provider", "model", "offering", "ways_to_pay", "person"],
  reseller: ["funds", "domain", "brand", "prices", "payments", "customer"],
  customer: ["entitlement", "key", "request"],
} as const satisfies Record<Role, readonly string[]>;

export type FirstStep = { name: (typeof FIRST_STEPS)[Role][number]; isDone: boolean };

/**
 * The steps for an account of this role, in order. Each check reads only the first row of an index or of a small
 * table.
 */
export async function firstSteps(
  sql: Sql,
  { accountId, role }: { accountId: number; role: Role },
): Promise<FirstStep[]> {
  const done = await { admin: doneByAdmins, reseller: doneByReseller, customer: doneByCustomer }[role](sql, accountId);
  return FIRST_STEPS[role].map((name) => ({ name, isDone: done?.[name] === true }));
}

/**
 * Pay-as-you-go needs no offering: a service that sells only by balance has finished that step too. Ways to pay are needed once an
 * offering has a retail price: customers can buy it then.
 */
async function doneByAdmins(sql: Sql) {
  const [row] = await sql`
    select exists (select from providers where enabled) as provider,
      exists (select from models join routes on routes.model_id = models.id join providers on providers.id = routes.provider_id
        where models.enabled and routes.enabled and providers.enabled) as model,
      exists (select from offerings) or exists (select from balances where payg_enabled) as offering,
      exists (select from sellers where seller_id = 0
          and (instructions is not null or stripe_key_ciphertext is not null or shop_url is not null))
        or exists (select from offerings) and not exists (select from retail_prices where seller_id = 0) as ways_to_pay,
      exists (select from accounts where role <> 'admin' and not only_person) as person`;
  return row;
}

/**
 * A reseller that has fulfilled a customer's order has a way to be paid, even without a payment method in the panel.
 */
async function doneByReseller(sql: Sql, accountId: number) {
  const [row] = await sql`
    select exists (select from balance_entries where account_id = ${accountId})
        or exists (select from allotments where reseller_id = ${accountId}) as funds,
      exists (select from hosts where reseller_id = ${accountId} and status = 'active') as domain,
      exists (select from brands where reseller_id = ${accountId}) as brand,
      exists (select from retail_prices where seller_id = ${accountId}) as prices,
      exists (select from sellers where seller_id = ${accountId}
          and (instructions is not null or stripe_key_ciphertext is not null or shop_url is not null))
        or exists (select from accounts join orders on orders.account_id = accounts.id
          where accounts.reseller_id = ${accountId} and orders.status = 'fulfilled') as payments,
      exists (select from accounts where reseller_id = ${accountId} and not only_person) as customer`;
  return row;
}

/** A package that has ended counts: the first steps do not come back. */
async function doneByCustomer(sql: Sql, accountId: number) {
  const [row] = await sql`
    select exists (select from packages where account_id = ${accountId})
        or exists (select from balances join balance_entries using (account_id)
          where balances.account_id = ${accountId} and payg_enabled) as entitlement,
      exists (select from keys where account_id = ${accountId}) as key,
      exists (select from keys join key_uses on key_uses.key_id = keys.id where keys.account_id = ${accountId}) as request`;
  return row;
}
