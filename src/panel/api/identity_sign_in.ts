import { Type } from "@sinclair/typebox";
import { type BegunSignIn, linkIdentity, noteSignIn, takeSignIn } from "../../accounts/identities_store.ts";
import { isOfDomains, verifiedEmailOf } from "../../accounts/identity_claims.ts";
import { type UsableProvider, usableProvider } from "../../accounts/identity_providers_store.ts";
import type { BegunSession } from "../../accounts/sessions.ts";
import { type Entered, enterWithIdentity, type NotEntered } from "../../commerce/identity_people_store.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import { giveTrial } from "../../commerce/trials_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal, type Sentence, sentence } from "../../errors.ts";
import { checker } from "../../http/checks.ts";
import { type Host, originOf } from "../../http/host.ts";
import { factsOf } from "../../http/request_facts.ts";
import { canMail } from "../../messages/senders.ts";
import { IdentityRefusedError, secretsOf } from "../../operations/identity_client.ts";
import { CALLBACK_PATH, SIGNED_OUT_PATH } from "../../operations/identity_providers.ts";
import { digestOfToken, newToken } from "../../platform/crypto.ts";
import { inTime } from "../../platform/time_limit.ts";
import { actorOf } from "./panel_session.ts";
import { type Arrival, limited, placeOf } from "./sign_in.ts";

/**
 * Signing in by an identity provider, and linking an identity. The browser leaves with a token in a cookie, of which `state`, `nonce` and the
 * PKCE verifier are made; the database has its digest, so that any replica takes the person back, once. Source: OIDC-2.
 */

/** As long as the database remembers the sign-in. */
export const IDENTITY_COOKIE_SECONDS = 600;
/** A code and a state; some providers add more. */
const QUERY_CHARS_MAX = 4_096;

export const checkBegin = checker(
  Type.Object(
    { identityProviderId: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }) },
    { additionalProperties: false },
  ),
);
export const checkFinish = checker(
  Type.Object({ query: Type.String({ maxLength: QUERY_CHARS_MAX }) }, { additionalProperties: false }),
);

const AGAIN = "This sign-in has ended, or was used before. Begin again.";
const OFF = "This identity provider is switched off here. Sign in another way.";
/** What somebody reads who does not come in. `name`: of the provider. */
const WHY: Readonly<Record<NotEntered, (name: string) => string | Sentence>> = {
  off: () => OFF,
  unverified: (name) =>
    sentence("{name} has not verified your e-mail address. Verify it there, or sign in another way.", { name }),
  domain: (name) => sentence("Your e-mail address at {name} may not sign in here.", { name }),
  no_role: (name) => sentence("{name} gives you no role here. Ask who manages it.", { name }),
  several_roles: (name) => sentence("{name} gives you more than one role here. Ask who manages it.", { name }),
  known: (name) =>
    sentence(
      "Your e-mail address has an account here already. Sign in to it in another way, and link {name} in its settings.",
      { name },
    ),
  no_sign_up: (name) =>
    sentence("No account here is linked to this sign-in at {name}, and no one can sign up at the moment.", { name }),
  suspended: () => "This account is suspended.",
};

type Leaving = { host: Host; network: string; request: Request };

/** Where the browser goes, and the token for its cookie. `sessionDigest`: of who links an identity. Throws not_found, too_many_requests, service_unavailable. */
export async function leaveForProvider(
  deps: Deps,
  { host, network, request }: Leaving,
  { identityProviderId, sessionDigest }: { identityProviderId: number; sessionDigest: Buffer | null },
): Promise<{ url: string; token: string }> {
  await deps.limiter.take(`identity:${network}`);
  const provider = await inTime(usableProvider(deps, { sellerId: sellerOf(host), identityProviderId }));
  if (provider === undefined) throw new Refusal("not_found", { message: OFF });
  const { token, digest } = newToken();
  const flow = { redirectUri: redirectUriOf(deps, request), secrets: secretsOf(token) };
  const url = await deps.identityClient.begin(provider, flow);
  await inTime(noteSignIn(deps, { digest, identityProviderId, host: host.name, sessionDigest }));
  return { url, token };
}

/** Who came back: signed in, or `null` for an identity that is linked now. */
type CameBack = BegunSession | null;

/**
 * Ends a sign-in that `leaveForProvider` began, with the query that the provider sent back. Throws session_required, service_unavailable,
 * too_many_requests, InputError.
 */
export async function comeBack(
  deps: Deps,
  arrival: Arrival & { request: Request },
  { token, query, sessionToken }: { token: unknown; query: string; sessionToken: unknown },
): Promise<CameBack> {
  const { host, network } = arrival;
  const limits = { shared: [`address:${network}`], own: [] };
  return await limited(deps, limits, async () => {
    const digest = typeof token === "string" ? digestOfToken(token) : undefined;
    const begun = digest && (await inTime(takeSignIn(deps, { digest, host: host.name })));
    if (typeof token !== "string" || begun === undefined) return refused(AGAIN);
    const { identityProviderId } = begun;
    const provider = await inTime(usableProvider(deps, { sellerId: sellerOf(host), identityProviderId }));
    if (provider === undefined) return refused(OFF);
    const proved = await provenBy(deps, arrival, { provider, token, query });
    if (proved instanceof Error) return proved;
    return begun.sessionDigest === null
      ? await signInAs(deps, arrival, { provider, begun, claims: proved })
      : await linkTo(deps, arrival, { provider, sessionDigest: begun.sessionDigest, sessionToken, claims: proved });
  });
}

/** Who the provider says it is; a Refusal: the answer cannot be trusted. */
async function provenBy(
  deps: Deps,
  { request }: { request: Request },
  { provider, token, query }: { provider: UsableProvider; token: string; query: string },
) {
  try {
    const flow = {
      redirectUri: redirectUriOf(deps, request),
      secrets: secretsOf(token),
      query: query.replace(/^\?/, ""),
    };
    return await deps.identityClient.finish(provider, flow);
  } catch (error) {
    if (!(error instanceof IdentityRefusedError)) throw error;
    return refused(
      error.isRefused
        ? `You were not signed in at ${provider.name}. Begin again, or sign in another way.`
        : `The answer of ${provider.name} cannot be trusted, so you were not signed in. Begin again, or sign in another way.`,
    );
  }
}

type Claims = Exclude<Awaited<ReturnType<typeof provenBy>>, Error>;

async function signInAs(
  deps: Deps,
  { host, device, requestId }: Arrival,
  { provider, begun, claims }: { provider: UsableProvider; begun: BegunSignIn; claims: Claims },
): Promise<BegunSession | Refusal> {
  const { sellerId, identityProviderId, name } = provider;
  const mayNewSignUp = await canMail(deps, sellerId);
  const asked = { sellerId, identityProviderId, claims, mayNewSignUp, acceptedAt: begun.at, requestId };
  const entered = await inTime(enterWithIdentity(deps, asked));
  if (typeof entered === "string") return refused(WHY[entered](name));
  if (entered.isNew && entered.workIn === undefined) await giveTrialTo(deps, entered);
  const { personId: accountId, identityId, workIn } = entered;
  const proof = { identityId, identityProviderId };
  const session = { accountId, ...placeOf(host), device, proof, ...(workIn !== undefined && { workIn }) };
  return (await inTime(deps.sessions.begin(session))) ?? refused(AGAIN);
}

/** The account is there. A trial that is not given now is given soon. */
async function giveTrialTo(deps: Deps, { personId }: Entered): Promise<void> {
  await giveTrial(deps, personId).catch((err: unknown) =>
    deps.log.warn({ err, accountId: personId }, "a trial was not given; it is tried again"),
  );
}

type Linking = { provider: UsableProvider; sessionDigest: Buffer; sessionToken: unknown; claims: Claims };

/** Throws InputError. Source: OIDC-6. */
async function linkTo(
  deps: Deps,
  { host, requestId }: Arrival,
  { provider, sessionDigest, sessionToken, claims }: Linking,
): Promise<null | Refusal> {
  const session =
    typeof sessionToken === "string" ? await inTime(deps.sessions.find(sessionToken, host.name)) : undefined;
  // The one that confirmed who they are, and no other: otherwise somebody could be made to link a stranger's identity.
  if (session === undefined || session.viewing || session.digestHex !== sessionDigest.toString("hex"))
    return refused(AGAIN);
  const { identityProviderId, kind, name, mailDomains } = provider;
  const email = verifiedEmailOf(kind, claims);
  if (email === undefined) throw new InputError(WHY.unverified(name));
  if (!isOfDomains(email, mailDomains)) throw new InputError(WHY.domain(name));
  const identity = { identityProviderId, subject: claims.subject, accountId: session.person.accountId, email };
  await linkIdentity({ ...deps, by: actorOf(session, requestId) }, { ...identity, provider: name });
  return null;
}

/**
 * Where the browser goes after signing out, if the session began at a provider that has a page for it; null: nowhere. It never fails: the
 * session has ended in any case. Source: OIDC-8.
 */
export async function signOutPageOf(
  deps: Deps,
  { host, request, identityProviderId }: { host: Host; request: Request; identityProviderId: number },
): Promise<string | null> {
  try {
    const provider = await inTime(usableProvider(deps, { sellerId: sellerOf(host), identityProviderId }));
    const returnTo = originOf(deps, factsOf(request).url) + SIGNED_OUT_PATH;
    return provider === undefined ? null : await deps.identityClient.signOut(provider, returnTo);
  } catch (err) {
    deps.log.warn({ err, identityProviderId }, "the sign-out page of an identity provider is not known");
    return null;
  }
}

export function sellerOf({ resellerId }: Host): number {
  return resellerId ?? OPERATOR;
}

function redirectUriOf(deps: Deps, request: Request): string {
  return originOf(deps, factsOf(request).url) + CALLBACK_PATH;
}

function refused(message: string | Sentence): Refusal {
  return new Refusal("session_required", { message });
}
