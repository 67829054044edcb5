import { Elysia, t } from "elysia";
import { workplacesOf } from "../../accounts/members_store.ts";
import { endViewing, identityProviderOf, workIn } from "../../accounts/sessions_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { readBody } from "../../http/body.ts";
import { siteUrl } from "../../http/host.ts";
import { factsOf } from "../../http/request_facts.ts";
import { languageTag } from "../../languages/languages.ts";
import { inTime } from "../../platform/time_limit.ts";
import { publicBrand } from "./brand_endpoints.ts";
import { signOutPageOf } from "./identity_sign_in.ts";
import { checkForgotten, forgotPassword } from "./own_reset.ts";
import { actorOf, signedIn, signedOut } from "./panel_session.ts";
import { checkOrigin, cookieName, cookieOptions, visitorOf } from "./session_auth.ts";
import { arrivalOf, checkLinkBody, checkSignIn, openLink, SIGN_IN_BODY, signIn, signInByLink } from "./sign_in.ts";

/** Signing in and out, by password or link; GET /me; and leaving the view of another account's panel. */

const TOKEN_CHARS_MAX = 100;

export function sessionEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(openEndpoints(deps)).use(forgottenEndpoint(deps)).use(ownEndpoints(deps));
}

/** Endpoints without `signedIn`: those for people who are not signed in, and those that must also work while viewing a panel. */
function openEndpoints(deps: Deps) {
  const name = cookieName(deps);
  const cookieFor = (token: string) => ({ ...cookieOptions(deps, deps.config.sessionMaxSeconds), value: token });
  const LinkParams = t.Object({ token: t.String({ maxLength: TOKEN_CHARS_MAX }) });
  return signedOut()
    .post(
      "/sign-in",
      async ({ request, cookie }) => {
        const arrival = await arrivalOf(deps, request);
        checkOrigin(request);
        const body = checkSignIn((await readBody(deps, request, SIGN_IN_BODY)).value);
        const begun = await signIn(deps, arrival, body);
        cookie[name]?.set(cookieFor(begun.token));
        return { csrfToken: begun.csrfToken, expiresAt: begun.expiresAt };
      },
      { parse: "none" },
    )
    .get(
      "/links/:token",
      async ({ request, params }) => {
        const { kind, name, email, expiresAt } = await openLink(deps, await arrivalOf(deps, request), params.token);
        return { kind, name, email, expiresAt };
      },
      { params: LinkParams },
    )
    .post(
      "/links/:token",
      async ({ request, params, cookie }) => {
        const arrival = await arrivalOf(deps, request);
        checkOrigin(request);
        const { password } = checkLinkBody((await readBody(deps, request, SIGN_IN_BODY)).value);
        const begun = await signInByLink(deps, arrival, { token: params.token, password });
        if (begun === null) return { signIn: true as const };
        cookie[name]?.set(cookieFor(begun.token));
        return { signIn: false as const, csrfToken: begun.csrfToken, expiresAt: begun.expiresAt };
      },
      { params: LinkParams, parse: "none" },
    )
    .post(
      "/sign-out",
      async ({ request, cookie }) => {
        const { session, host } = await visitorOf(deps, request, cookie[name]?.value);
        const identityProviderId = await inTime(identityProviderOf(deps, Buffer.from(session.digestHex, "hex")));
        await inTime(deps.sessions.end(session));
        cookie[name]?.set({ ...cookieOptions(deps, 0), value: "" });
        const goTo =
          identityProviderId === null ? null : await signOutPageOf(deps, { host, request, identityProviderId });
        return { signedOut: true, goTo };
      },
      { parse: "none" },
    )
    .post(
      "/view/leave",
      async ({ request, cookie }) => {
        // Not behind `signedIn`, which refuses every change while an admin views another panel.
        const { session } = await visitorOf(deps, request, cookie[name]?.value);
        if (session.viewing) {
          const by = actorOf(session, factsOf(request).requestId);
          const view = { digest: Buffer.from(session.digestHex, "hex"), accountId: session.viewing.accountId };
          await endViewing({ ...deps, by }, view);
        }
        return { left: true };
      },
      { parse: "none" },
    );
}

function forgottenEndpoint(deps: Deps) {
  return signedOut().post(
    "/sign-in/forgot",
    async ({ request }) => {
      const arrival = await arrivalOf(deps, request);
      checkOrigin(request);
      const { email } = checkForgotten((await readBody(deps, request, SIGN_IN_BODY)).value);
      await forgotPassword(deps, arrival, email);
      return { accepted: true };
    },
    { parse: "none" },
  );
}

function ownEndpoints(deps: Deps) {
  const name = cookieName(deps);
  return signedIn(deps)
    .get("/me", async ({ person }) => ({
      person: {
        ...person.session.person,
        language: languageTag(person.session.person.language) ?? null,
        role: person.session.role,
      },
      account: pick(person.session),
      member: person.member,
      accounts: await workplacesOf(deps, person.session.person.accountId, person.host.resellerId),
      viewing: person.viewing && pick(person.viewing),
      host: person.host.name,
      brand: publicBrand(await deps.brands.get(person.host.resellerId)),
      csrfToken: person.session.csrfToken,
      serverTime: new Date(deps.clock.unixMs()).toISOString(),
      billingTimeZone: deps.config.billingTimeZone,
      apiBaseUrl: person.host.resellerId === null ? deps.config.baseUrl : `${siteUrl(deps, person.host.name)}/v1`,
    }))
    .post(
      "/work-in",
      async ({ person: { session, host }, body: { accountId } }) => {
        const digest = Buffer.from(session.digestHex, "hex");
        const wanted = { personId: session.person.accountId, accountId, digest, resellerId: host.resellerId };
        if (!(await workIn(deps, wanted))) throw new Refusal("not_found");
        return { accountId };
      },
      { body: t.Object({ accountId: t.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }) }) },
    )
    .post(
      "/sign-out-everywhere",
      async ({ person: { session }, body: { thisToo = false }, cookie }) => {
        const ended = await deps.sessions.endAll(session.person.accountId, thisToo ? undefined : session);
        if (thisToo) cookie[name]?.set({ ...cookieOptions(deps, 0), value: "" });
        return { ended };
      },
      { body: t.Object({ thisToo: t.Optional(t.Boolean()) }) },
    );
}

function pick<Role extends string>({
  accountId,
  role,
  name,
  email,
}: {
  accountId: number;
  role: Role;
  name: string;
  email: string;
}) {
  return { accountId, role, name, email };
}
