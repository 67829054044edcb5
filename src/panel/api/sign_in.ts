import { type Static, Type } from "@sinclair/typebox";
import { verifyPassword } from "../../accounts/passwords.ts";
import { findSignIn } from "../../accounts/people_store.ts";
import type { BegunSession } from "../../accounts/sessions.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import type { Host } from "../../gateway/admit.ts";
import { inTime } from "../../gateway/door.ts";
import { checker } from "../../gateway/wire.ts";

export const SignInBody = Type.Object({
  email: Type.String({ minLength: 3, maxLength: 254 }),
  password: Type.String({ minLength: 1, maxLength: 1000 }),
});
export const checkSignIn = checker(SignInBody);

/**
 * Begins a session for the person with this address and password, on this host. Every failure reads the same, and costs
 * the same. Throws too_many_requests, session_required. Source: rulings › Domains; reliability › brute force.
 */
export async function signIn(
  deps: Deps,
  host: Host,
  peerAddress: string,
  { email, password }: Static<typeof SignInBody>,
): Promise<BegunSession> {
  const address = `address:${peerAddress}`;
  await deps.signInLimiter.check(address);
  const person = await inTime(findSignIn(deps, { email, resellerId: host.resellerId }));
  // An address that has no account is limited like one that has: the limit must not tell them apart.
  const who = `email:${host.resellerId ?? 0}:${email.trim().toLowerCase()}`;
  try {
    await deps.signInLimiter.check(who);
  } catch (error) {
    deps.signInLimiter.pass(address);
    throw error;
  }
  const matches = await verifyPassword(person?.passwordHash, password);
  // Admins sign in on the panel's own host only.
  if (!matches || person === undefined || person.suspended || (person.role === "admin" && host.resellerId !== null)) {
    await Promise.all([deps.signInLimiter.fail(address), deps.signInLimiter.fail(who)]);
    throw new Refusal("session_required", { message: "Wrong e-mail or password." });
  }
  deps.signInLimiter.pass(address);
  await deps.signInLimiter.clear(who);
  return await inTime(deps.sessions.begin({ accountId: person.accountId, host: host.name }));
}
