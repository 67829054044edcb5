import { createHmac } from "node:crypto";
import { type Static, Type } from "@sinclair/typebox";
import { emailForm } from "../../accounts/input_checks.ts";
import { findLink, type OpenedLink, takeLink } from "../../accounts/password_links_store.ts";
import { type Asker, hashPassword, type StoredHash, verifyPassword } from "../../accounts/passwords.ts";
import { takeCode } from "../../accounts/second_factor.ts";
import type { BegunSession, Device } from "../../accounts/sessions.ts";
import { findSignIn } from "../../accounts/sign_in_store.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import { confirmSignUp, findSignUp, type OpenedSignUp, requireOpenToSignUp } from "../../commerce/sign_ups_store.ts";
import { giveTrial } from "../../commerce/trials_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { checker } from "../../http/checks.ts";
import { networkOf } from "../../http/client_address.ts";
import type { Host } from "../../http/host.ts";
import { panelHostOf } from "../../http/host.ts";
import { factsOf } from "../../http/request_facts.ts";
import { EMAIL_CHARS_MAX, TYPED_CODE_CHARS_MAX, TYPED_PASSWORD_CHARS_MAX } from "../../limits.ts";
import { inTime } from "../../platform/time_limit.ts";

/** Signing in: with a password and, if enabled, a second factor; or with a link that sets the password, or confirms a sign-up. */

export const WRONG_CODE = "Wrong code. Each code works once.";

export const SignInBody = Type.Object({
  email: Type.String({ minLength: 3, maxLength: EMAIL_CHARS_MAX }),
  password: Type.String({ minLength: 1, maxLength: TYPED_PASSWORD_CHARS_MAX }),
  code: Type.Optional(Type.String({ minLength: 1, maxLength: TYPED_CODE_CHARS_MAX })),
});
export const checkSignIn = checker(SignInBody);

export const LinkBody = Type.Object({ password: Type.String({ minLength: 1, maxLength: TYPED_PASSWORD_CHARS_MAX }) });
export const checkLinkBody = checker(LinkBody);

/** Right passwords of one account in a window of the limiter. A person signs in a few times a day; a script needs an API key. */
const RIGHT_OF_ACCOUNT_MAX = 60;
/** The same of one network, in which many people may be. */
const RIGHT_OF_NETWORK_MAX = 600;

/** Bodies of people who are not signed in: an address, a password and a code, or what a passkey has signed. */
export const SIGN_IN_BODY = { bytesMax: 16 * 1024, owner: undefined };

/** The origin of a sign-in. `network`: the address by which limits count. */
export type Arrival = { host: Host; device: Device; network: string; requestId: string };

/** Where a session begins. */
export function placeOf({ name, resellerId }: Host) {
  return { host: name, resellerId };
}

/** Throws host_not_allowed. */
export async function arrivalOf(deps: Deps, request: Request): Promise<Arrival> {
  const { requestId, peerAddress } = factsOf(request);
  const device = { userAgent: request.headers.get("user-agent") ?? "", address: peerAddress() };
  return { host: await panelHostOf(deps, request), device, network: networkOf(device.address), requestId };
}

/**
 * Begins a session on this host. Every failure has the same message and takes the same time, whether or not the account exists.
 * Throws too_many_requests, session_required, second_factor_required (the password was right; not counted as a failure).
 * Source: DOM-5, ACC-4.
 */
export async function signIn(deps: Deps, arrival: Arrival, typed: Static<typeof SignInBody>): Promise<BegunSession> {
  const { accountId, proof } = await proveSignIn(deps, arrival, typed);
  const { host, device } = arrival;
  const begun = await inTime(deps.sessions.begin({ accountId, ...placeOf(host), device, proof }));
  if (begun === undefined) throw wrongPassword();
  return begun;
}

/** Who has this address, password and code on this host. Throws as `signIn`. */
export async function proveSignIn(
  deps: Deps,
  { host, network }: Arrival,
  { email, password, code }: Static<typeof SignInBody>,
): Promise<{ accountId: number; proof: { passwordHash: string | null; totpEnabled: boolean } }> {
  // Unknown addresses are limited like known ones, so that the limit does not reveal which exist.
  const accountLimitId = emailLimitId(deps, host, email);
  const shared = [`address:${network}`];
  const person = await limited(deps, { shared, own: [accountLimitId] }, async () => {
    let found: Awaited<ReturnType<typeof findSignIn>>;
    const asker = { network, account: accountLimitId };
    const matches = await checkPassword(deps, asker, password, async () => {
      found = await inTime(findSignIn(deps, { email, resellerId: host.resellerId }));
      return found?.passwordHash;
    });
    return matches && found && !found.suspended ? found : wrongPassword();
  });
  const { accountId, passwordHash, totpEnabled } = person;
  if (totpEnabled) {
    if (code === undefined) throw new Refusal("second_factor_required");
    const wrong = new Refusal("session_required", { message: WRONG_CODE });
    await checkCode(deps, { accountId, code, shared, wrong });
  }
  return { accountId, proof: { passwordHash, totpEnabled } };
}

/**
 * Whether a password is right. Right ones are counted too, by account and by network: each costs a hash, as a wrong one does. Throws
 * too_many_requests, and as `verifyPassword`. Source: SGN-15.
 */
export async function checkPassword(
  { signInLimiter: limiter }: Pick<Deps, "signInLimiter">,
  asker: Asker,
  password: string,
  stored: () => Promise<StoredHash>,
): Promise<boolean> {
  const counted = [{ id: `right:${asker.account}`, max: RIGHT_OF_ACCOUNT_MAX }];
  if (asker.network !== undefined) counted.push({ id: `right:network:${asker.network}`, max: RIGHT_OF_NETWORK_MAX });
  const begun: string[] = [];
  let matches = false;
  try {
    for (const { id, max } of counted) {
      await limiter.check(id, max);
      begun.push(id);
    }
    matches = await verifyPassword(stored, password, asker);
  } finally {
    for (const id of begun) if (!matches) limiter.pass(id);
  }
  if (matches) await Promise.all(begun.map((id) => limiter.fail(id)));
  return matches;
}

/** The limiter's id of a typed address. A digest: people type passwords into the wrong field, and Redis has the ids. */
export function emailLimitId({ config }: Deps, { resellerId }: Host, email: string): string {
  const typed = createHmac("sha256", config.secretKey).update(emailForm(email)).digest("base64url");
  return `email:${resellerId ?? 0}:${typed}`;
}

function wrongPassword(): Refusal {
  return new Refusal("session_required", { message: "Wrong e-mail or password." });
}

/** What a link is for: an account's, or of a sign-up. Throws not_found if it is unknown, used, expired or of another tenant; too_many_requests. */
export async function openLink(
  deps: Deps,
  { host, network }: Arrival,
  token: string,
): Promise<OpenedLink | OpenedSignUp> {
  const { resellerId } = host;
  const link = await limited(
    deps,
    { shared: [`link:${network}`], own: [] },
    async () =>
      (await inTime(findLink(deps, { token, resellerId }))) ??
      (await inTime(findSignUp(deps, { token, sellerId: resellerId ?? OPERATOR }))) ??
      new Refusal("not_found", { message: "The link was used, has expired, or was replaced by a newer one." }),
  );
  if (link.kind === "sign_up") await inTime(requireOpenToSignUp(deps, resellerId ?? OPERATOR));
  return link;
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
  const link = await openLink(deps, arrival, token);
  const { host, device, network, requestId } = arrival;
  const account = link.kind === "sign_up" ? emailLimitId(deps, host, link.email) : `account:${link.accountId}`;
  const passwordHash = await hashPassword(password, { network, account });
  let accountId: number;
  if (link.kind === "sign_up") {
    const sellerId = host.resellerId ?? OPERATOR;
    const made = await inTime(confirmSignUp(deps, { token, sellerId, passwordHash }));
    if (!made) throw new Refusal("not_found", { message: "This link has just been used." });
    ({ accountId } = made);
    // The account is there. A trial that is not given now is given soon.
    await giveTrial(deps, accountId).catch((err: unknown) =>
      deps.log.warn({ err, accountId }, "a trial was not given; it is tried again"),
    );
  } else {
    ({ accountId } = link);
    const taken = await inTime(takeLink({ ...deps, by: { accountId, requestId } }, { token, accountId, passwordHash }));
    if (!taken) throw new Refusal("not_found", { message: "This link has just been used." });
    if (taken.totpEnabled) return null;
  }
  const proof = { passwordHash, totpEnabled: false };
  return (await inTime(deps.sessions.begin({ accountId, ...placeOf(host), device, proof }))) ?? null;
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
  { signInLimiter: limiter }: Pick<Deps, "signInLimiter">,
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

/** Counts an attempt against every id, whatever its result; `max` in place of the limiter's. Throws too_many_requests. */
export async function countAttempt(
  { signInLimiter: limiter }: Pick<Deps, "signInLimiter">,
  ids: readonly (string | { id: string; max: number })[],
): Promise<void> {
  for (const counted of ids) {
    const { id, max } = typeof counted === "string" ? { id: counted, max: undefined } : counted;
    await limiter.check(id, max);
    await limiter.fail(id);
  }
}
