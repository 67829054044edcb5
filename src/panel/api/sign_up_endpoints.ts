import { Elysia, t } from "elysia";
import type { Deps } from "../../deps.ts";
import { readBody } from "../../http/body.ts";
import { MAIL_DOMAIN_CHARS_MAX, MAIL_DOMAINS_MAX, TERMS_URL_CHARS_MAX } from "../../limits.ts";
import { perform } from "../../operations/operation.ts";
import { getSignUp, listSignedUp, setSignUp } from "../../operations/sign_up.ts";
import { Id, IdInBody, NO_NUL, orNull, PositiveNanoUsd } from "./fields.ts";
import { toJson } from "./formats.ts";
import { callBy, signedIn, signedOut } from "./panel_session.ts";
import { checkOrigin } from "./session_auth.ts";
import { arrivalOf, SIGN_IN_BODY } from "./sign_in.ts";
import { checkSignUpBody, requestSignUp, signUpChallenge, signUpForm } from "./sign_up.ts";

/** Sign-up: the form for strangers, and a seller's settings of it. Source: SUP-1, SUP-2. */

const url = orNull(t.String({ maxLength: TERMS_URL_CHARS_MAX, pattern: NO_NUL, says: "an address" }));
const domains = t.Array(t.String({ maxLength: MAIL_DOMAIN_CHARS_MAX, pattern: NO_NUL, says: "a domain" }), {
  maxItems: MAIL_DOMAINS_MAX,
});
const Settings = t.Object(
  {
    isOpen: t.Optional(t.Boolean()),
    termsUrl: t.Optional(url),
    privacyUrl: t.Optional(url),
    trialOfferingId: t.Optional(orNull(IdInBody)),
    trialAmountNanoUsd: t.Optional(orNull(PositiveNanoUsd)),
    trialPayWith: t.Optional(t.Union([t.Literal("balance"), t.Literal("allotment")])),
    allowedDomains: t.Optional(domains),
    forbiddenDomains: t.Optional(domains),
    disposableAllowed: t.Optional(t.Boolean()),
  },
  { additionalProperties: false },
);

const ACCOUNTS_SHOWN = 50;

export function signUpEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(formEndpoints(deps)).use(settingsEndpoints(deps));
}

/** For people who are not signed in. */
function formEndpoints(deps: Deps) {
  return signedOut()
    .get("/sign-up", async ({ request }) => signUpForm(deps, await arrivalOf(deps, request)))
    .get("/sign-up/challenge", async ({ request }) => {
      const { parameters, signature = "" } = await signUpChallenge(deps, await arrivalOf(deps, request));
      return { parameters, signature };
    })
    .post(
      "/sign-up",
      async ({ request }) => {
        const arrival = await arrivalOf(deps, request);
        checkOrigin(request);
        const body = checkSignUpBody((await readBody(deps, request, SIGN_IN_BODY)).value);
        await requestSignUp(deps, arrival, body);
        return { accepted: true };
      },
      { parse: "none" },
    );
}

function settingsEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get("/sign-up/settings", async ({ person, request }) =>
      toJson(await perform(deps, getSignUp, callBy(deps, { person, request }), {})),
    )
    .patch(
      "/sign-up/settings",
      async ({ person, body: { trialAmountNanoUsd: amount, ...rest }, request }) => {
        const trialAmountNanoUsd = amount === undefined || amount === null ? amount : BigInt(amount);
        const wanted = { ...rest, ...(trialAmountNanoUsd !== undefined && { trialAmountNanoUsd }) };
        return toJson(await perform(deps, setSignUp, callBy(deps, { person, request }), wanted));
      },
      { body: Settings },
    )
    .get(
      "/sign-up/accounts",
      async ({ person, query, request }) =>
        toJson(
          await perform(deps, listSignedUp, callBy(deps, { person, request }), { ...query, limit: ACCOUNTS_SHOWN }),
        ),
      { query: t.Object({ before: t.Optional(Id) }) },
    );
}
