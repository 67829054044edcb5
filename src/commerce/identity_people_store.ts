import { and, eq, sql } from "drizzle-orm";
import { emailIs, insertAccount } from "../accounts/accounts_store.ts";
import { findLinked, insertIdentity, lockSubject, noteUse } from "../accounts/identities_store.ts";
import { type Claims, isOfDomains, nameOf, roleOfClaims, verifiedEmailOf } from "../accounts/identity_claims.ts";
import { lockUsableProvider, type UsableProvider } from "../accounts/identity_providers_store.ts";
import { lockAccountRow } from "../accounts/locks_store.ts";
import { requireAllowedDomain } from "../accounts/mail_domains.ts";
import { checkMembers } from "../accounts/member_invitations_store.ts";
import type { MemberRole } from "../accounts/member_roles.ts";
import { giveRole } from "../accounts/members_store.ts";
import { signsInOn } from "../accounts/reseller_store.ts";
import { PERSON_NAME_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Tx } from "../platform/db.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { members } from "../platform/schema_members.ts";
import { settingsIn } from "./sign_up_settings_store.ts";
import { addSignedUp } from "./sign_ups_store.ts";

/** People who come in by an identity provider: who has linked the identity, or a new person. Source: OIDC-4, OIDC-5, OIDC-6, OIDC-7. */

/** Why somebody who has proved who they are at the provider does not come in. */
export type NotEntered =
  | "off"
  | "unverified"
  | "domain"
  | "no_role"
  | "several_roles"
  | "known"
  | "no_sign_up"
  | "suspended";

/** Who comes in. `workIn`: the account whose member the provider says they are. `isNew`: they were made just now. */
export type Entered = { personId: number; identityId: number; workIn?: number; isNew: boolean };

export type Entering = {
  sellerId: number;
  identityProviderId: number;
  claims: Claims;
  /** Whether strangers may sign up at all now, beside the seller's setting: whether it can send mail. */
  mayNewSignUp: boolean;
  /** When the person left for the provider, with the terms before their eyes. ISO 8601. */
  acceptedAt: string;
  requestId: string;
};

/** Who comes in with an identity; new people are made. Throws InputError if the address may not sign up, or the account is full. */
export async function enterWithIdentity(
  deps: ChangeDeps & { config: { secretKey: Uint8Array }; by?: never },
  entering: Entering,
): Promise<Entered | NotEntered> {
  const { sellerId, identityProviderId, claims } = entering;
  const { subject } = claims;
  const resellerId = sellerId === 0 ? null : sellerId;
  return changing(deps, async (tx) => {
    const provider = await lockUsableProvider(tx, deps, { sellerId, identityProviderId });
    if (provider === undefined) return "off";
    const email = verifiedEmailOf(provider.kind, claims);
    const wrong = whyNot(provider, email);
    if (wrong !== undefined) return wrong;
    const role = memberRoleOf(provider, claims);
    if (role === "none") return "no_role";
    if (role === "several") return "several_roles";
    await lockSubject(tx, { identityProviderId, subject });
    const linked = await findLinked(tx, { identityProviderId, subject, resellerId });
    if (linked === undefined) return addPerson(tx, { ...entering, provider, email, role, resellerId });
    const { identityId, personId, mayEnter } = linked;
    if (!mayEnter) return "suspended";
    await noteUse(tx, { identityId, email });
    if (role === null) return { personId, identityId, isNew: false };
    await nameActor(tx, { personId, requestId: entering.requestId });
    const isMember = await giveRole(tx, { accountId: role.accountId, personId, role: role.role });
    return { personId, identityId, isNew: false, ...(isMember && { workIn: role.accountId }) };
  });
}

/** The domains are asked of everyone, also of those who have linked their identity before they changed. */
function whyNot({ mailDomains }: UsableProvider, email: string | undefined): NotEntered | undefined {
  if (mailDomains === null) return undefined;
  if (email === undefined) return "unverified";
  return isOfDomains(email, mailDomains) ? undefined : "domain";
}

type GivenRole = { accountId: number; role: MemberRole };

/** null: the provider gives no roles. */
function memberRoleOf(
  { accountId, roleClaim, roles }: UsableProvider,
  claims: Claims,
): GivenRole | null | "none" | "several" {
  if (accountId === null || roleClaim === null) return null;
  const role = roleOfClaims(claims, { roleClaim, roles });
  return role === "none" || role === "several" ? role : { accountId, role };
}

type Stranger = Entering & {
  provider: UsableProvider;
  email: string | undefined;
  role: GivenRole | null;
  resellerId: number | null;
};

async function addPerson(tx: Tx, stranger: Stranger): Promise<Entered | NotEntered> {
  const { identityProviderId, claims, email, role, resellerId } = stranger;
  if (email === undefined) return "unverified";
  const known = await tx
    .select({ id: accounts.id })
    .from(accounts)
    .where(and(emailIs(email), signsInOn(resellerId)));
  // Whoever has the address here signs in their own way, and links the identity then: an address alone proves nothing.
  if (known.length > 0) return "known";
  const name = [...nameOf(claims, email)].slice(0, PERSON_NAME_CHARS_MAX).join("");
  const personId =
    role === null ? await signUp(tx, { ...stranger, email, name }) : await join(tx, { ...stranger, email, name, role });
  if (typeof personId === "string") return personId;
  const identity = { identityProviderId, subject: claims.subject, accountId: personId, email };
  const identityId = await insertIdentity(tx, identity);
  if (identityId === undefined) throw new Error("a new person has an identity already");
  await noteUse(tx, { identityId, email });
  return { personId, identityId, isNew: true, ...(role !== null && { workIn: role.accountId }) };
}

type Named = Stranger & { email: string; name: string };

/** A customer of the seller, as by its form. Source: OIDC-7, SUP-4. */
async function signUp(
  tx: Tx,
  { sellerId, email, name, mayNewSignUp, acceptedAt }: Named,
): Promise<number | "no_sign_up"> {
  const settings = await settingsIn(tx, sellerId, true);
  if (!settings.isOpen || !mayNewSignUp) return "no_sign_up";
  requireAllowedDomain(email, settings);
  const accepted = { termsUrl: settings.termsUrl ?? "", privacyUrl: settings.privacyUrl ?? "", acceptedAt };
  const { accountId } = await addSignedUp(tx, settings, { sellerId, email, name, passwordHash: null, ...accepted });
  return accountId;
}

/** A member of the customer's account, and a person without an account of their own. Source: OIDC-5. */
async function join(
  tx: Tx,
  { resellerId, email, name, role: { accountId, role }, requestId }: Named & { role: GivenRole },
): Promise<number | "suspended"> {
  await lockAccountRow(tx, accountId);
  const [account] = await tx.select({ status: accounts.status }).from(accounts).where(eq(accounts.id, accountId));
  if (account?.status !== "active") return "suspended";
  await checkMembers(tx, { accountId, email: null });
  const person = { role: "customer", resellerId, email, name, passwordHash: null, onlyPerson: true } as const;
  const { accountId: personId } = await insertAccount(tx, person);
  await nameActor(tx, { personId, requestId });
  await tx.insert(members).values({ accountId, personId, role });
  return personId;
}

/** For the audit log: the person, also one who was unknown when the transaction began. */
async function nameActor(tx: Tx, { personId, requestId }: { personId: number; requestId: string }): Promise<void> {
  await tx.execute(
    sql`select set_config('tollgate.actor_id', ${String(personId)}, true), set_config('tollgate.request_id', ${requestId}, true)`,
  );
}
