import { Elysia, t } from "elysia";
import { listIdentities, unlinkIdentity } from "../../accounts/identities_store.ts";
import { offeredProviders } from "../../accounts/identity_providers_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { readBody } from "../../http/body.ts";
import { networkOf } from "../../http/client_address.ts";
import { factsOf } from "../../http/request_facts.ts";
import {
  createIdentityProvider,
  listIdentityProviders,
  proveIdentityDomains,
  removeIdentityProvider,
  updateIdentityProvider,
} from "../../operations/identity_providers.ts";
import { performJson } from "../../operations/operation.ts";
import { IdInBody, IdParam } from "./fields.ts";
import { once } from "./form_once.ts";
import {
  checkBegin,
  checkFinish,
  comeBack,
  IDENTITY_COOKIE_SECONDS,
  leaveForProvider,
  sellerOf,
} from "./identity_sign_in.ts";
import { bodyWith, operate } from "./operate.ts";
import { digestOf, Proof, provePerson } from "./own_proof.ts";
import { callBy, signedIn, signedOut } from "./panel_session.ts";
import { checkOrigin, cookieName, cookieOptions, identityCookieName } from "./session_auth.ts";
import { arrivalOf, SIGN_IN_BODY } from "./sign_in.ts";

/**
 * Identity providers: signing in by one, a person's linked identities, and a seller's providers. Whoever says who may sign in confirms who they
 * are. Source: OIDC-1, OIDC-2, OIDC-6.
 */

const MORE = { proof: Proof };

export function identityEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(openEndpoints(deps)).use(ownEndpoints(deps)).use(sellerEndpoints(deps));
}

function openEndpoints(deps: Deps) {
  const session = cookieName(deps);
  const leaving = identityCookieName(deps);
  return signedOut()
    .post(
      "/sign-in/identity",
      async ({ request, cookie }) => {
        const { host, network } = await arrivalOf(deps, request);
        checkOrigin(request);
        const { identityProviderId } = checkBegin((await readBody(deps, request, SIGN_IN_BODY)).value);
        const wanted = { identityProviderId, sessionDigest: null };
        const { url, token } = await leaveForProvider(deps, { host, network, request }, wanted);
        cookie[leaving]?.set({ ...cookieOptions(deps, IDENTITY_COOKIE_SECONDS), value: token });
        return { url };
      },
      { parse: "none" },
    )
    .post(
      "/sign-in/identity/finish",
      async ({ request, cookie }) => {
        const arrival = await arrivalOf(deps, request);
        checkOrigin(request);
        const { query } = checkFinish((await readBody(deps, request, SIGN_IN_BODY)).value);
        const tokens = { token: cookie[leaving]?.value, sessionToken: cookie[session]?.value };
        cookie[leaving]?.set({ ...cookieOptions(deps, 0), value: "" });
        const begun = await comeBack(deps, { ...arrival, request }, { ...tokens, query });
        if (begun === null) return { linked: true as const };
        cookie[session]?.set({ ...cookieOptions(deps, deps.config.sessionMaxSeconds), value: begun.token });
        return { linked: false as const, csrfToken: begun.csrfToken, expiresAt: begun.expiresAt };
      },
      { parse: "none" },
    );
}

function ownEndpoints(deps: Deps) {
  const leaving = identityCookieName(deps);
  return signedIn(deps)
    .get("/settings/identities", async ({ person }) => {
      const key = String(sellerOf(person.host));
      const [identities, offered] = await Promise.all([
        listIdentities(deps, person.self.accountId),
        offeredProviders(deps, [key]),
      ]);
      return { identities, offered: offered.get(key) ?? [] };
    })
    .post(
      "/settings/identities/begin",
      async ({ person, request, body: { identityProviderId, proof }, cookie }) => {
        await provePerson(deps, { person, request }, proof);
        const network = networkOf(factsOf(request).peerAddress());
        const wanted = { identityProviderId, sessionDigest: digestOf(person) };
        const { url, token } = await leaveForProvider(deps, { host: person.host, network, request }, wanted);
        cookie[leaving]?.set({ ...cookieOptions(deps, IDENTITY_COOKIE_SECONDS), value: token });
        return { url };
      },
      { body: t.Object({ identityProviderId: IdInBody, proof: Proof }) },
    )
    .post(
      "/settings/identities/:id/remove",
      async ({ person, request, params, body }) => {
        await provePerson(deps, { person, request }, body.proof);
        const which = { accountId: person.self.accountId, identityId: params.id, keepSession: digestOf(person) };
        if (!(await unlinkIdentity({ ...deps, by: person.by }, which))) throw new Refusal("not_found");
        return { removed: true };
      },
      { params: IdParam, body: t.Object({ proof: Proof }) },
    );
}

/** A seller's own; an admin's are the operator's. */
function sellerEndpoints(deps: Deps) {
  const ofProvider = { path: { id: "identityProviderId" } } as const;
  return signedIn(deps, "reseller", "admin")
    .get("/identity-providers", operate(deps, listIdentityProviders))
    .post(
      "/identity-providers",
      ({ person, request, body: { proof, ...wanted } }) =>
        once(deps, { person, request }, async () => {
          await provePerson(deps, { person, request }, proof);
          return await performJson(deps, createIdentityProvider, callBy(deps, { person, request }), wanted);
        }),
      { body: bodyWith(createIdentityProvider, MORE, "sellerId") },
    )
    .patch(
      "/identity-providers/:id",
      async ({ person, request, params: { id: identityProviderId }, body: { proof, ...wanted } }) => {
        await provePerson(deps, { person, request }, proof);
        const given = { ...wanted, identityProviderId };
        return await performJson(deps, updateIdentityProvider, callBy(deps, { person, request }), given);
      },
      { params: IdParam, body: bodyWith(updateIdentityProvider, MORE, "sellerId", "identityProviderId") },
    )
    .post("/identity-providers/:id/prove", operate(deps, proveIdentityDomains, ofProvider), {
      params: IdParam,
      body: t.Object({}),
    })
    .delete("/identity-providers/:id", operate(deps, removeIdentityProvider, ofProvider), { params: IdParam });
}
