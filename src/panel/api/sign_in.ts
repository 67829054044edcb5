import { createHmac } from "node:crypto";
import { type Static, Type } from "@sinclair/typebox";
import { findLink, type OpenedLink, takeLink } from "../../accounts/links_store.ts";
import { hashPassword, verifyPassword } from "../../accounts/passwords.ts";
import { findSignIn } from "../../accounts/people_store.ts";
import { takeCode } from "../../accounts/second_factor.ts";
import type { BegunSession, Device } from "../../accounts/sessions.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { checker } from "../../http/checks.ts";
import type { Host } from "../../http/host.ts";
import { inTime } from "../../platform/in_time.ts";

/** The ways in: a password and, where it is on, a second factor; or a link that sets the password. */

/** Longer than any password that is taken, so that the sentence about its length is ours. */
const PASSWORD_CHARS_MAX = 1000;
/** A recovery code with its dashes, and room for blanks. */
const CODE_CHARS_MAX = 40;
export const WRONG_CODE = "Wrong code. Each code works once.";

export const SignInBody = Type.Object({
  email: Type.String({ minLength: 3, maxLength: 254 }),
  password: Type.String({ minLength: 1, maxLength: PASSWORD_CHARS_MAX }),
  code: Type.Optional(Type.String({ minLength: 1, maxLength: CODE_CHARS_MAX })),
});
export const checkSignIn = checker(SignInBody);

export const LinkBody = Type.Object({ password: Type.String({ minLength: 1, maxLength: PASSWORD_CHARS_MAX }) });
export const checkLinkBody = checker(LinkBody);

/** Who comes: on which host, from where. */
export type Arrival = { host: Host; device: Device; requestId: string };

/**
 * Begins a session for the person with this address and password, on this host. Every wrong password reads the same, and
 * costs the same. Throws too_many_requests, session_required, second_factor_required (the password was right; no failure).
 * Source: rulings › Domains; reliability › brute force.
 */
export async function signIn(
  deps: Deps,
  { host, device }: Arrival,
  { email, password, code }: Static<typeof SignInBody>,
): Promise<BegunSession> {
  // An address that has no account is limited like one that has: the limit must not tell them apart.
  // By a digest: people type their passwords into the wrong field, and what is limited stands in Redis.
  const typed = createHmac("sha256", deps.config.secretKey).update(email.trim().toLowerCase()).digest("base64url");
  const who = `email:${host.resellerId ?? 0}:${typed}`;
  const shared = [`address:${device.address}`];
  const person = await judged(deps, { shared, own: [who] }, async () => {
    const found = await inTime(findSignIn(deps, { email, resellerId: host.resellerId }));
    const matches = await verifyPassword(found?.passwordHash, password);
    return matches && found && !found.suspended ? found : wrongPassword();
  });
  const { accountId, passwordHash, totpEnabled } = person;
  if (totpEnabled) {
    if (code === undefined) throw new Refusal("second_factor_required");
    const wrong = new Refusal("session_required", { message: WRONG_CODE });
    await judgeCode(deps, { accountId, code, shared, wrong });
  }
  const proof = { passwordHash, totpEnabled };
  const begun = await inTime(deps.sessions.begin({ accountId, host: host.name, device, proof }));
  if (begun === undefined) throw wrongPassword();
  return begun;
}

function wrongPassword(): Refusal {
  return new Refusal("session_required", { message: "Wrong e-mail or password." });
}

/** What a link is for. Throws not_found for one that is unknown, used or expired or belongs elsewhere; too_many_requests. */
export async function openLink(deps: Deps, { host, device }: Arrival, token: string): Promise<OpenedLink> {
  return judged(
    deps,
    { shared: [`link:${device.address}`], own: [] },
    async () =>
      (await inTime(findLink(deps, { token, resellerId: host.resellerId }))) ??
      new Refusal("not_found", { message: "This link does not work: it was used, has expired, or was replaced." }),
  );
}

/**
 * Sets the password by a link, and signs in; null where the second factor is on, which no link replaces. Throws as `openLink`,
 * and InputError.
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
  if (!taken) throw new Refusal("not_found", { message: "This link was used a moment ago." });
  if (taken.totpEnabled) return null;
  const { host, device } = arrival;
  const proof = { passwordHash, totpEnabled: false };
  return (await inTime(deps.sessions.begin({ accountId, host: host.name, device, proof }))) ?? null;
}

/**
 * Takes a code of the second factor, once. Wrong ones are counted by account, at the sign-in and in the settings together, and
 * apart from wrong passwords: whoever knows the password gets no more guesses by typing it. Throws `wrong`, too_many_requests,
 * and as `takeCode`.
 */
export async function judgeCode(
  deps: Deps,
  { accountId, code, shared = [], wrong }: { accountId: number; code: string; shared?: string[]; wrong: Error },
): Promise<void> {
  const limits = { shared, own: [codesOf(accountId)] };
  await judged(deps, limits, async () => ((await inTime(takeCode(deps, accountId, code))) ? true : wrong));
}

/** What wrong codes of an account are counted under. */
export function codesOf(accountId: number): string {
  return `code:${accountId}`;
}

/**
 * Has an attempt judged, within the limits of wrong ones for each id. `judge` returns the error of a wrong attempt, which counts
 * and is thrown; what it throws does not count. A right one clears the failures of `own` ids; `shared` ones keep them.
 * Throws too_many_requests.
 */
export async function judged<T>(
  { signInLimiter: limiter }: Deps,
  { shared, own }: { shared: readonly string[]; own: readonly string[] },
  judge: () => Promise<T>,
): Promise<Exclude<T, Error>> {
  const begun: string[] = [];
  let result: T;
  try {
    for (const id of [...shared, ...own]) {
      await limiter.check(id);
      begun.push(id);
    }
    result = await judge();
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
