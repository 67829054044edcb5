import { createHmac } from "node:crypto";
import { LRUCache } from "lru-cache";
import type * as Client from "openid-client";
import type { Claims } from "../accounts/identity_claims.ts";
import { IDENTITY_PRESETS } from "../accounts/identity_presets.ts";
import type { UsableProvider } from "../accounts/identity_providers_store.ts";
import { mayBePrivate } from "../catalog/guard.ts";
import type { Config } from "../config.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { IDENTITY_ISSUER_CHARS_MAX } from "../limits.ts";
import type { Log } from "../platform/log.ts";
import { sha256Hex } from "../platform/runtime.ts";
import { createSemaphore } from "../platform/semaphore.ts";
import { IdentityAwayError, identityFetch } from "./identity_fetch.ts";
import { githubClaims, githubServer } from "./identity_github.ts";

/**
 * Speaks to identity providers: OpenID Connect with the authorization code, PKCE, `state` and `nonce`, and OAuth 2.0 with GitHub. The library
 * checks issuer, audience, nonce, times and signature of every ID token. Source: OIDC-2, OIDC-10.
 */

/** What a provider says of itself is asked for again after this time. */
const KNOWN_FOR_MS = 10 * 60_000;
const KNOWN_MAX = 500;
/** Clocks of providers may differ by so many seconds. */
const CLOCK_TOLERANCE_SECONDS = 30;
const SUBJECT_CHARS_MAX = 255;
/** Sign-ins that wait for a provider in one replica: whose server is silent on purpose must not take the places of others. */
const AT_ONCE = 64;
const SELLER_AT_ONCE = 16;
const SELLER_WAITING_MAX = 32;
const WAIT_MS_MAX = 2_000;
const RETRY_AFTER_SECONDS = 5;

/** Loaded with the first sign-in: most replicas meet none. */
const library = () => import("openid-client");

type Provider = Pick<
  UsableProvider,
  | "identityProviderId"
  | "sellerId"
  | "kind"
  | "name"
  | "issuer"
  | "clientId"
  | "clientSecret"
  | "scopes"
  | "mailDomains"
>;

/** The secrets of one sign-in, all made of the token that the browser keeps in a cookie. */
export type SignInSecrets = { state: string; nonce: string; verifier: string };

export function secretsOf(token: string): SignInSecrets {
  const secret = (name: string) => createHmac("sha256", token).update(`identity-${name}`).digest("base64url");
  return { state: secret("state"), nonce: secret("nonce"), verifier: secret("verifier") };
}

/** The provider's answer is not one of this sign-in, or cannot be trusted. `isRefused`: the person or the provider has stopped it. */
export class IdentityRefusedError extends Error {
  override readonly name = "IdentityRefusedError";
  readonly isRefused: boolean;

  constructor(message: string, { isRefused = false, cause }: { isRefused?: boolean; cause?: unknown } = {}) {
    super(message, { cause });
    this.isRefused = isRefused;
  }
}

export type IdentityClient = {
  /** Where the browser goes. Throws service_unavailable. */
  begin(provider: Provider, flow: Flow): Promise<string>;
  /** Who came back with this query. Throws IdentityRefusedError, service_unavailable. */
  finish(provider: Provider, flow: Flow & { query: string }): Promise<Claims>;
  /** Where the browser goes to sign out there too; null: nowhere, or the provider does not answer. */
  signOut(provider: Provider, returnTo: string): Promise<string | null>;
};

type ClientOptions = {
  config: Pick<Config, "identityAllowPrivate">;
  log: Log;
  nowMs: () => number;
};

export function createIdentityClient({ config, log, nowMs }: ClientOptions): IdentityClient {
  const known = new LRUCache<string, Promise<Client.Configuration>>({
    ...{ max: KNOWN_MAX, ttl: KNOWN_FOR_MS, ttlResolution: 0 },
    perf: { now: nowMs },
  });
  const places = createSemaphore({
    max: AT_ONCE,
    waitingMax: AT_ONCE,
    shareFull: () => new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS }),
    allFull: () => new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS }),
  });

  function configured(provider: Provider): Promise<Client.Configuration> {
    const { identityProviderId, issuer, clientId, clientSecret } = provider;
    const key = sha256Hex(JSON.stringify([identityProviderId, issuer, clientId, clientSecret.reveal()]));
    let found = known.get(key);
    if (found === undefined) {
      found = configure(config, provider);
      known.set(key, found);
      found.catch(() => known.delete(key)); // The caller gets the error. The next call asks again.
    }
    return found;
  }

  /** Throws IdentityRefusedError, service_unavailable. */
  async function asking<T>(provider: Provider, ask: (library: typeof Client) => Promise<T>): Promise<T> {
    const { identityProviderId, name, sellerId } = provider;
    const client = await library();
    const seller = { id: `seller:${sellerId}`, atOnceMax: SELLER_AT_ONCE, waitingMax: SELLER_WAITING_MAX };
    const leave = await places.enter([seller], { waitMsMax: WAIT_MS_MAX });
    try {
      return await ask(client);
    } catch (error) {
      const why = explain(error);
      log.warn({ identityProviderId, sellerId, why }, "a sign-in by an identity provider failed");
      if (isAway(error)) throw away(name);
      if (error instanceof IdentityRefusedError) throw error;
      throw new IdentityRefusedError(why, {
        isRefused: error instanceof client.AuthorizationResponseError,
        cause: error,
      });
    } finally {
      leave();
    }
  }

  return {
    begin: (provider, flow) =>
      asking(provider, async (client) => startOf(client, await configured(provider), provider, flow)).catch(
        (error: unknown) => {
          // Before anybody has signed in, every failure is the provider's.
          throw error instanceof IdentityRefusedError ? away(provider.name) : error;
        },
      ),
    finish: (provider, flow) =>
      asking(provider, async (client) => whoOf(client, await configured(provider), provider, flow)),
    async signOut(provider, returnTo) {
      if (IDENTITY_PRESETS[provider.kind].protocol !== "oidc") return null;
      return asking(provider, async (client) => {
        const config = await configured(provider);
        if (config.serverMetadata().end_session_endpoint === undefined) return null;
        return pageAt(client.buildEndSessionUrl(config, { post_logout_redirect_uri: returnTo }));
      }).catch(() => null); // It is logged. The person is signed out here in any case.
    },
  };
}

type Flow = { redirectUri: string; secrets: SignInSecrets };

/** The URL at which the person signs in. */
async function startOf(
  client: typeof Client,
  config: Client.Configuration,
  { kind, scopes, mailDomains }: Provider,
  { redirectUri, secrets }: Flow,
): Promise<string> {
  const { protocol, parameters } = IDENTITY_PRESETS[kind];
  const [domain, ...more] = mailDomains ?? [];
  const url = client.buildAuthorizationUrl(config, {
    ...{ redirect_uri: redirectUri, scope: scopes, state: secrets.state },
    code_challenge: await client.calculatePKCECodeChallenge(secrets.verifier),
    code_challenge_method: "S256",
    ...(protocol === "oidc" && { nonce: secrets.nonce }),
    ...parameters,
    // Google then offers accounts of the domain alone; the token is checked in any case.
    ...(kind === "google" && domain !== undefined && more.length === 0 && { hd: domain }),
  });
  return pageAt(url);
}

/** The address of a page, to which the browser goes: the provider names it, and could name a script. Throws IdentityAwayError. */
function pageAt({ protocol, href }: URL): string {
  if (protocol !== "https:" && protocol !== "http:") throw new IdentityAwayError("its page is no web page");
  return href;
}

/** Who came back. Throws IdentityRefusedError, and what the library throws for an answer that is wrong. */
async function whoOf(
  client: typeof Client,
  config: Client.Configuration,
  { kind, issuer }: Provider,
  { redirectUri, secrets, query }: Flow & { query: string },
): Promise<Claims> {
  const isOidc = IDENTITY_PRESETS[kind].protocol === "oidc";
  const tokens = await client.authorizationCodeGrant(config, new URL(`${redirectUri}?${query}`), {
    ...{ pkceCodeVerifier: secrets.verifier, expectedState: secrets.state, idTokenExpected: isOidc },
    ...(isOidc && { expectedNonce: secrets.nonce }),
  });
  const claims = isOidc
    ? await claimsOf(client, config, tokens)
    : await githubClaims(client, config, { accessToken: tokens.access_token, issuer });
  if (claims.subject === "" || claims.subject.length > SUBJECT_CHARS_MAX)
    throw new IdentityRefusedError("the subject is empty or too long");
  return claims;
}

/**
 * The issuer as it is stored: an https URL at which discovery works. `checked`: it was asked. Throws InputError for `issuer` or `clientId`.
 */
export async function checkIssuer(
  config: Pick<Config, "identityAllowPrivate">,
  {
    issuer: typed,
    ...provider
  }: Pick<Provider, "kind" | "clientId" | "clientSecret" | "sellerId"> & { issuer: string },
): Promise<string> {
  const url = URL.parse(typed.trim());
  const isPlain = url !== null && url.username === "" && url.password === "" && url.search === "" && url.hash === "";
  if (!isPlain || url.href.length > IDENTITY_ISSUER_CHARS_MAX)
    throw new InputError("The issuer is a URL, as in https://login.example.com.", "issuer");
  if (url.protocol !== "https:" && !mayBePrivate(url.href, config.identityAllowPrivate))
    throw new InputError("The issuer must begin with https://.", "issuer");
  // As it was typed: issuers are compared letter by letter.
  const issuer = IDENTITY_PRESETS[provider.kind].protocol === "oidc" ? typed.trim() : url.href.replace(/\/$/, "");
  try {
    await configure(config, { ...provider, issuer });
    return issuer;
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new InputError(
      `This issuer does not answer as an OpenID Connect provider does: ${explain(error)}. Its settings should be at ${issuer.replace(/\/$/, "")}/.well-known/openid-configuration.`,
      "issuer",
    );
  }
}

type Asked = Pick<Provider, "kind" | "issuer" | "clientId" | "clientSecret" | "sellerId">;

/** Asks the provider about itself. */
async function configure(
  { identityAllowPrivate: allowPrivate }: Pick<Config, "identityAllowPrivate">,
  { kind, issuer, clientId, clientSecret, sellerId }: Asked,
): Promise<Client.Configuration> {
  const client = await library();
  const owner = sellerId === 0 ? undefined : { accountId: sellerId, tenantId: sellerId };
  const guarded = identityFetch({ allowPrivate, ...(owner && { owner }) });
  const isOidc = IDENTITY_PRESETS[kind].protocol === "oidc";
  const isPrivate = mayBePrivate(issuer, allowPrivate);
  const server = isOidc
    ? (
        await client.discovery(new URL(issuer), clientId, undefined, client.None(), {
          [client.customFetch]: guarded,
          execute: isPrivate ? [client.allowInsecureRequests] : [],
        })
      ).serverMetadata()
    : githubServer(issuer);
  const methods = server.token_endpoint_auth_methods_supported ?? [
    isOidc ? "client_secret_basic" : "client_secret_post",
  ];
  const secret = clientSecret.reveal();
  const proof = methods.includes("client_secret_basic")
    ? client.ClientSecretBasic(secret)
    : client.ClientSecretPost(secret);
  const configuration = new client.Configuration(
    server,
    clientId,
    { [client.clockTolerance]: CLOCK_TOLERANCE_SECONDS },
    proof,
  );
  configuration[client.customFetch] = guarded;
  // Without it the library trusts TLS, and does not verify the signature.
  client.enableNonRepudiationChecks(configuration);
  if (isPrivate) client.allowInsecureRequests(configuration);
  return configuration;
}

type Tokens = Awaited<ReturnType<typeof Client.authorizationCodeGrant>>;

/** The claims of the ID token; those that it lacks are asked for. */
async function claimsOf(client: typeof Client, config: Client.Configuration, tokens: Tokens): Promise<Claims> {
  const claims = tokens.claims();
  if (claims === undefined) throw new IdentityRefusedError("there is no ID token");
  const { sub: subject } = claims;
  if (config.serverMetadata().userinfo_endpoint === undefined) return { subject, claims };
  const more = await client.fetchUserInfo(config, tokens.access_token, subject);
  // An address counts with what is said of it in the same place.
  const verified = more.email === undefined ? {} : { email_verified: more.email_verified };
  return { subject, claims: { ...claims, ...more, ...verified } };
}

function away(name: string): Refusal {
  return new Refusal("service_unavailable", {
    message: sentence("{name} does not answer. Try again in a minute, or sign in another way.", { name }),
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}

function isAway(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) if (at instanceof IdentityAwayError) return true;
  return false;
}

/** The message of the innermost error that has one: the library wraps what it met. Tokens are in no message. */
function explain(error: unknown): string {
  for (let at = error; at instanceof Error; at = at.cause) if (at instanceof IdentityAwayError) return at.message;
  if (!(error instanceof Error)) return "unknown";
  const { cause } = error;
  return cause instanceof Error && cause.message !== error.message
    ? `${error.message} (${cause.message})`
    : error.message;
}
