import { sql } from "drizzle-orm";
import { type Account, checkOtherAdmins, findPerson } from "../accounts/accounts_store.ts";
import { lockAccounts, lockTenant } from "../accounts/locks_store.ts";
import { stopAutomatic } from "../commerce/renewals_store.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { type ChangeDeps, changing, IdleMoneyError } from "../platform/changes_store.ts";
import type { Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { withPerson } from "./person_data_store.ts";
import { PERSONAL_TABLES } from "./personal_tables_store.ts";

/**
 * Erases a person: in one transaction, under the ledger's lock of the account, all that `PERSONAL_TABLES` says. What the books count stays,
 * under the account's number. Source: RET-8, RET-9, RET-10.
 */

/** Values of the audit log that say who somebody is. */
const PERSONAL_KEYS =
  "{address,email,from_address,from_name,invoice_address,invoice_name,last_four,name,new_email,note,old_email,tax_number,url,user_name,vat_number}";

export type Erasure = {
  personId: number;
  /** The e-mail address as typed, so that nobody erases the wrong person. */
  email: string;
  /** Writes off the balance, ends packages, and withdraws open orders. Otherwise a person who has any of these is not erased. */
  force: boolean;
};

/** Throws not_found; InputError that says what is in the way. */
export async function erasePerson(deps: ChangeDeps, { personId, email, force }: Erasure): Promise<void> {
  const person = await findPerson(deps, personId);
  if (!person) throw new Refusal("not_found");
  if (email.trim().toLowerCase() !== person.email.toLowerCase())
    throw new InputError("This is not the e-mail address of the account.", "email");
  let goesOn = false;
  const erase = async (tx: Tx) => {
    // A role never changes.
    if (person.role === "reseller") await lockTenant(tx, personId);
    else await lockAccounts(tx, [personId]);
    if (person.role === "admin") await checkOtherAdmins(tx, personId);
    goesOn = await requireNobodyElse(tx, person);
    if (!goesOn) {
      await settle(tx, { personId, force, actorId: deps.by?.accountId ?? null });
      await stopAutomatic(tx, personId);
    }
    await eraseTables(tx, person, goesOn);
    await eraseInAudit(tx, person, goesOn);
    // Behind the deletion of all that waits for this address: this one is still sent, and not kept then.
    const { email: address, language } = person;
    await tell(tx, { kind: "account_erased", accountId: person.resellerId ?? 0, data: { address, language } });
  };
  // Whoever erases their own account has no session at the end of it.
  const isOwn = deps.by?.accountId === personId;
  const by = isOwn && deps.by ? { by: { ...deps.by, beforeCommit: undefined } } : {};
  await changing({ ...deps, ...by }, erase, {
    protects: true,
    endsTenantRight: () => person.role === "reseller" && !goesOn,
  });
}

/** Whether the account goes on, because others own it: then only its person is erased. Throws InputError if others depend on either. */
async function requireNobodyElse(tx: Tx, { accountId }: Account): Promise<boolean> {
  const [found] = await tx.execute(sql`
    select (select erased_at is not null or email = 'erased-' || id || '@erased.invalid' from accounts where id = ${accountId}) as is_erased,
      exists(select from accounts where reseller_id = ${accountId} and erased_at is null) as has_customers,
      exists(select from members where account_id = ${accountId} and person_id <> ${accountId}) as has_members,
      exists(select from members where account_id = ${accountId} and person_id <> ${accountId} and role = 'owner') as goes_on,
      (select min(a.name) from members m join accounts a on a.id = m.account_id
        where m.person_id = ${accountId} and m.account_id <> ${accountId} and m.role = 'owner'
          and not exists (select from members o where o.account_id = m.account_id and o.role = 'owner' and o.person_id <> ${accountId})) as only_owner_of`);
  if (found?.is_erased) throw new InputError("This account is erased already.");
  const goesOn = found?.goes_on === true;
  if (found?.has_members && !goesOn)
    throw new InputError("Other people are members of this account. Make one of them an owner, or remove them first.");
  if (found?.has_customers && !goesOn) throw new InputError("This reseller has customers. Erase them first.");
  if (typeof found?.only_owner_of === "string")
    throw new InputError(
      sentence("This is the only owner of {only_owner_of}. Make another member an owner first.", {
        only_owner_of: found.only_owner_of,
      }),
    );
  return goesOn;
}

type Settled = { personId: number; force: boolean; actorId: number | null };

/** What the account still has. Without `force` it is in the way; with it, it is given up. Throws InputError, IdleMoneyError. */
async function settle(tx: Tx, { personId, force, actorId }: Settled): Promise<void> {
  const [has] = await tx.execute(sql`
    select coalesce((select balance_nano_usd from balances where account_id = ${personId}), 0)::text as balance,
      exists(select from escrows where account_id = ${personId} and (units > idle_units or nano_usd > idle_nano_usd)) as is_running,
      exists(select from escrows where account_id = ${personId} and nano_usd > 0) as is_drawn,
      (select count(*)::int from packages where account_id = ${personId} and ends_at > ledger_now()) as packages,
      (select count(*)::int from orders where account_id = ${personId} and status = 'open') as orders`);
  if (has?.is_running)
    throw new InputError("Requests of this account are running. Suspend it, and try again in a minute.");
  const balance = BigInt(String(has?.balance));
  const [packages, orders] = [Number(has?.packages), Number(has?.orders)];
  if ((balance > 0n || packages > 0 || orders > 0) && !force)
    throw new InputError(
      sentence(
        "This account still has something. Balance: {usd} USD. Packages that have not ended: {packages}. Open orders: {orders}. Refund it first, or force the erasure, which gives all of it up.",
        { usd: (Number(balance) / 1e9).toFixed(2), packages, orders },
      ),
      "force",
    );
  if (has?.is_drawn) throw new IdleMoneyError(personId);
  if (balance > 0n)
    await tx.execute(
      sql`select add_balance(${personId}::bigint, ${String(-balance)}::text::bigint, 'correction', 'the account was erased', ${actorId}::bigint)`,
    );
  // The queued ones first, so that none of them moves up.
  const unended = await tx.execute(sql`
    select id::text from packages where account_id = ${personId} and ends_at > ledger_now() order by starts_at desc`);
  for (const { id } of unended)
    await tx.execute(sql`select end_package(${personId}::bigint, ${String(id)}::text::bigint)`);
  await tx.execute(sql`
    update orders set status = 'withdrawn', decided_by = ${actorId}::bigint, decided_at = clock_timestamp()
    where account_id = ${personId} and status = 'open'`);
}

/** Of an account that goes on: its name and address, which were those of its person. */
const NAMELESS =
  "email = 'erased-' || id || '@erased.invalid', name = 'Account ' || id, password_hash = null, totp_ciphertext = null, totp_enabled_at = null";

async function eraseTables(tx: Tx, { accountId, email }: Account, goesOn: boolean): Promise<void> {
  const person = sql`with person as (select ${accountId}::bigint as id, ${email.toLowerCase()}::text as email)`;
  if (!goesOn)
    await tx.execute(sql`update sessions set viewing_account_id = null where viewing_account_id = ${accountId}`);
  // The account itself comes last: others find their rows by its address.
  const [account, ...others] = PERSONAL_TABLES;
  for (const { table, of, alone, erased } of account === undefined ? [] : [...others, account]) {
    const rows = goesOn ? alone : of;
    if (erased === "kept" || rows === undefined) continue;
    const where = sql.raw(withPerson(rows));
    await tx.execute(
      erased === "deleted"
        ? sql`${person} delete from ${sql.raw(table)} where ${where}`
        : sql`${person} update ${sql.raw(table)} set ${sql.raw(goesOn && table === "accounts" ? NAMELESS : erased.set)} where ${where}`,
    );
  }
}

/** Also in the entries that this erasure has written. */
async function eraseInAudit(tx: Tx, { accountId, email }: Account, goesOn: boolean): Promise<void> {
  const erased = (values: "before" | "after") => sql`(
    select jsonb_object_agg(key, case when key = any(${PERSONAL_KEYS}::text::text[]) and value <> 'null' then '"(erased)"' else value end)
    from jsonb_each(${sql.raw(values)}))`;
  const persons = `{${PERSONAL_TABLES.flatMap(({ table, alone }) => (alone === undefined || table === "api_tokens" ? [] : [table])).join(",")}}`;
  await tx.execute(sql`
    update audit_entries set before = ${erased("before")}, after = ${erased("after")}
    where (account_id = ${accountId} and (not ${goesOn} or subject = any(${persons}::text::text[])) or (subject = 'member_invitations'
        and lower(coalesce(after ->> 'email', before ->> 'email')) = ${email.toLowerCase()}))
      and (before ?| ${PERSONAL_KEYS}::text::text[] or after ?| ${PERSONAL_KEYS}::text::text[])`);
}
