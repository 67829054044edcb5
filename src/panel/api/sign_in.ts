import { createHmac } from "node:crypto";
import { type Static, Type } from "@sinclair/typebox";
import { findLink, type OpenedLink, takeLink } from "../../accounts/password_links_store.ts";
import { hashPassword, verifyPassword } from "../../accounts/passwords.ts";
import { takeCode } from "../../accounts/second_factor.ts";
import type { BegunSession, Device } from "../../accounts/sessions.ts";
import { findSignIn } from "../../accounts/sign_in_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { checker } from "../../http/checks.ts";
import type { Host } from "../../http/host.ts";
import { EMAIL_CHARS_MAX, TYPED_CODE_CHARS_MAX, TYPED_PASSWORD_CHARS_MAX } from "../../limits.ts";
import { inTime } from "../../platform/time_limit.ts";

/** Signing in: with a password and, if enabled, a second factor; or with a link that sets the password. */

export const WRONG_CODE = "Wrong code. Each code works once.";

export const SignInBody = Type.Object({
  email: Type.String({ minLength: 3, maxLength: EMAIL_CHARS_MAX }),
  password: Type.String({ minLength: 1, maxLength: TYPED_PASSWORD_CHARS_MAX }),
  code: Type.Optional(Type.String({ minLength: 1, maxLength: TYPED_CODE_CHARS_MAX })),
});
export const checkSignIn = checker(SignInBody);

export const LinkBody = Type.Object({ password: Type.String({ minLength: 1, maxLength: TYPED_PASSWORD_CHARS_MAX }) });
export const checkLinkBody = checker(LinkBody);

/** Where a sign-in comes from. */
export type Arrival = { host: Host; device: Device; requestId: string };

/**
 * Begins a session on this host. Every failure has the same message and takes the same time, whether or not the account exists.
 * Throws too_many_requests, session_required, second_factor_required (the password was right; not counted as a failure).
 * Source: DOM-5, ACC-4.
 */
export async function signIn(
  deps: Deps,
  { host, device }: Arrival,
  { email, password, code }: Static<typeof SignInBody>,
): Promise<BegunSession> {
  // Unknown addresses are limited like known ones, so that the limit does not reveal which exist.
  // A digest, because people type passwords into the wrong field, and the limiter's ids are stored in Redis.
  const typed = createHmac("sha256", deps.config.secretKey).update(email.trim().toLowerCase()).digest("base64url");
  const accountLimitId = `email:${host.resellerId ?? 0}:${typed}`;
  const shared = [`address:${device.address}`];
  const person = await limited(deps, { shared, own: [accountLimitId] }, async () => {
    const found = await inTime(findSignIn(deps, { email, resellerId: host.resellerId }));
    const matches = await verifyPassword(found?.passwordHash, password);
    return matches && found && !found.suspended ? found : wrongPassword();
  });
  const { accountId, passwordHash, totpEnabled } = person;
  if (totpEnabled) {
    if (code === undefined) throw new Refusal("second_factor_required");
    const wrong = new Refusal("session_required", { message: WRONG_CODE });
    await checkCode(deps, { accountId, code, shared, wrong });
  }
  const proof = { passwordHash, totpEnabled };
  const begun = await inTime(deps.sessions.begin({ accountId, host: host.name, device, proof }));
  if (begun === undefined) throw wrongPassword();
  return begun;
}

function wrongPassword(): Refusal {
  return new Refusal("session_required", { message: "Wrong e-mail or password." });
}

/** What a link is for. Throws not_found if it is unknown, used, expired or of another tenant; too_many_requests. */
export async function openLink(deps: Deps, { host, device }: Arrival, token: string): Promise<OpenedLink> {
  return limited(
    deps,
    { shared: [`link:${device.address}`], own: [] },
    async () =>
      (await inTime(findLink(deps, { token, resellerId: host.resellerId }))) ??
      new Refusal("not_found", { message: "This link no longer works. It was used, has expired, or was replaced." }),
  );
}

/**
 * Sets the password with a link, and signs in. Returns null if the second factor is on: a link never replaces it. Throws as
 * `openLink`, and InputError.
 */
export async function signInByLink(
  deps: Deps,
  arrival: Arrival,
  { token, password }: { token: string; password: string },
): Promise<BegunSession | null> {
  const { accountId } = await openLink(deps, arrival, token);
  const passwordHash = await hashPassword(password);
  const by = { accountId, requestId: arrival.requestId };
  const taken = await inTime(takeLink({ ...deps, by }, { token, accountId, passwordHash }));
  if (!taken) throw new Refusal("not_found", { message: "This link has just been used." });
  if (taken.totpEnabled) return null;
  const { host, device } = arrival;
  const proof = { passwordHash, totpEnabled: false };
  return (await inTime(deps.sessions.begin({ accountId, host: host.name, device, proof }))) ?? null;
}

/**
 * Takes a code of the second factor, once. Wrong codes are counted per account, for sign-in and settings together, and apart from
 * wrong passwords, so that entering the right password does not reset the count. Throws `wrong`, too_many_requests, and as
 * `takeCode`.
 */
export async function checkCode(
  deps: Deps,
  { accountId, code, shared = [], wrong }: { accountId: number; code: string; shared?: string[]; wrong: Error },
): Promise<void> {
  const limits = { shared, own: [codeLimitId(accountId)] };
  await limited(deps, limits, async () => ((await inTime(takeCode(deps, accountId, code))) ? true : wrong));
}

/** The limiter's id for wrong codes of an account. */
export function codeLimitId(accountId: number): string {
  return `code:${accountId}`;
}

/**
 * Runs an attempt under the limits on failures. `attempt` returns an Error for a failed attempt, which counts against every id and
 * is thrown; errors that it throws do not count. A successful attempt clears the failures of `own` ids and keeps those of `shared`
 * ids. Throws too_many_requests.
 */
export async function limited<T>(
  { signInLimiter: limiter }: Deps,
  { shared, own }: { shared: readonly string[]; own: readonly string[] },
  attempt: () => Promise<T>,
): Promise<Exclude<T, Error>> {
  const begun: string[] = [];
  let result: T;
  try {
    for (const id of [...shared, ...own]) {
      await limiter.check(id);
      begun.push(id);
    }
    result = await attempt();
  } catch (error) {
    for (const id of begun) limiter.pass(id);
    throw error;
  }
  if (result instanceof Error) {
    await Promise.all(begun.map((id) => limiter.fail(id)));
    throw result;
  }
  for (const id of shared) limiter.pass(id);
  await Promise.all(own.map((id) => limiter.clear(id)));
  return result as Exclude<T, Error>;
}
