import { Elysia, t } from "elysia";
import type { Deps } from "../../deps.ts";
import { readBody } from "../../http/body.ts";
import { getSignUp, listSignedUp, setSignUp } from "../../operations/sign_up.ts";
import { Id } from "./fields.ts";
import { bodyOf, operate } from "./operate.ts";
import { signedIn, signedOut } from "./panel_session.ts";
import { checkOrigin } from "./session_auth.ts";
import { arrivalOf, SIGN_IN_BODY } from "./sign_in.ts";
import { checkSignUpBody, requestSignUp, signUpChallenge, signUpForm } from "./sign_up.ts";

/** Sign-up: the form for strangers, and a seller's settings of it. Source: SUP-1, SUP-2. */

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
        await requestSignUp(deps, arrival, body, request);
        return { accepted: true };
      },
      { parse: "none" },
    );
}

function settingsEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get("/sign-up/settings", operate(deps, getSignUp))
    .patch("/sign-up/settings", operate(deps, setSignUp), { body: bodyOf(setSignUp, "sellerId") })
    .get("/sign-up/accounts", operate(deps, listSignedUp, { add: () => ({ limit: ACCOUNTS_SHOWN }) }), {
      query: t.Object({ before: t.Optional(Id) }),
    });
}
