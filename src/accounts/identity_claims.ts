import type { RoleOfClaim } from "../platform/schema_identities.ts";
import { IDENTITY_PRESETS, type IdentityKind } from "./identity_presets.ts";
import { emailForm } from "./input_checks.ts";
import { isBelow, mailDomainOf } from "./mail_domains.ts";
import type { MemberRole } from "./member_roles.ts";

/** What an identity provider says about a person, and what follows of it. Pure. Source: OIDC-4, OIDC-5. */

/** Values of one claim that are looked at: a person may be in hundreds of groups. */
const VALUES_MAX = 500;

/** Who signed in. `claims`: of the ID token and the user's data, as the provider sent them. */
export type Claims = { subject: string; claims: Readonly<Record<string, unknown>> };

/**
 * The address that the provider has verified, in the form in which addresses are stored; undefined: it has verified none, or knows it only
 * from a mail to a domain that others manage.
 */
export function verifiedEmailOf(kind: IdentityKind, { claims }: Claims): string | undefined {
  if (typeof claims.email !== "string" || claims.email_verified !== true) return undefined;
  const email = emailForm(claims.email);
  const { ownMailDomains } = IDENTITY_PRESETS[kind];
  const isManaged = typeof claims.hd === "string" && claims.hd !== "";
  if (ownMailDomains && !isManaged && !ownMailDomains.includes(mailDomainOf(email))) return undefined;
  return email;
}

/** Whether an address may sign in by a provider with these domains; null: all. Each includes the domains below it. */
export function isOfDomains(email: string, domains: readonly string[] | null): boolean {
  return domains === null || isBelow(mailDomainOf(email), domains);
}

/** The person's name there. */
export function nameOf({ claims }: Claims, email: string): string {
  const name = typeof claims.name === "string" ? claims.name.trim() : "";
  return name === "" ? email.slice(0, email.lastIndexOf("@")) : name;
}

/**
 * The role that a claim gives: a text, or a list of them. Values that are not mapped give nothing; `several`: they give more than one role.
 * Compared exactly: a group that differs in its capitals is another one.
 */
export function roleOfClaims(
  { claims }: Claims,
  { roleClaim, roles }: { roleClaim: string; roles: readonly RoleOfClaim[] },
): MemberRole | "none" | "several" {
  const found = valueAt(claims, roleClaim);
  const values = (Array.isArray(found) ? found : [found]).slice(0, VALUES_MAX);
  const given = new Set(roles.filter(({ value }) => values.includes(value)).map(({ role }) => role));
  const [role = "none"] = given;
  return given.size > 1 ? "several" : role;
}

/** A claim of this name, or else the one at this path, as in `realm_access.roles`. */
function valueAt(claims: Readonly<Record<string, unknown>>, name: string): unknown {
  if (Object.hasOwn(claims, name)) return claims[name];
  let value: unknown = claims;
  for (const part of name.split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, part)) return undefined;
    value = Reflect.get(value, part);
  }
  return value;
}
