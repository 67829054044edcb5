import { InputError, sentence } from "../errors.ts";
import { type MemberRole, mayWrite } from "./member_roles.ts";
import type { Role } from "./roles.ts";
import { SUBJECT_NAMES, SUBJECTS, type Subject } from "./subjects.ts";

/** What a token of the management API may do: a subject, and whether it may change it. */

export type Access = "read" | "write";
export type Scope = `${Subject}:${Access}`;

/** The scopes that a member of an account of this role can give a token. Customers have none. */
export function scopesFor(role: Role, member: MemberRole = "owner"): Scope[] {
  const accesses = ["read", "write"] as const;
  return SUBJECT_NAMES.flatMap((subject) =>
    accesses
      .filter((access) => SUBJECTS[subject][access].some((one) => one === role))
      .filter((access) => access === "read" || mayWrite(member, subject))
      .map((access): Scope => `${subject}:${access}`),
  );
}

/** The scopes that a token has: those that it was given and its maker still has. To write includes to read. */
export function scopesNow(given: readonly string[], role: Role, member: MemberRole): ReadonlySet<Scope> {
  const own = scopesFor(role, member);
  const has = own.filter((scope) => given.includes(scope));
  return new Set([...has, ...own.filter((scope) => has.some((one) => one === scope.replace(/read$/, "write")))]);
}

/** Checks the scopes of a new token. Throws InputError. */
export function checkScopes(wanted: readonly string[], role: Role, member: MemberRole): Scope[] {
  const own = scopesFor(role, member);
  const unknown = wanted.find((scope) => !own.some((one) => one === scope));
  if (unknown !== undefined)
    throw new InputError(
      sentence("You cannot give a token the scope {unknown}.", { unknown: JSON.stringify(unknown.slice(0, 60)) }),
      "scopes",
    );
  if (wanted.length === 0) throw new InputError("Give the token at least one scope.", "scopes");
  return own.filter((scope) => wanted.includes(scope));
}
