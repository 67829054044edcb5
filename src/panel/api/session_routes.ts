import { Elysia } from "elysia";
import type { Deps } from "../../deps.ts";
import { readBody } from "../../gateway/body.ts";
import { inTime } from "../../gateway/door.ts";
import { factsOf } from "../../platform/request_facts.ts";
import { signedIn } from "./frame.ts";
import { checkOrigin, cookieName, cookieOptions, panelHostOf, visitorOf } from "./session_door.ts";
import { checkSignIn, signIn } from "./sign_in.ts";

/** Signing in and out, and who one is. */

/** A sign-in body is an address and a password. */
const SIGN_IN_BYTES_MAX = 16 * 1024;

export function sessionRoutes(deps: Deps) {
  const name = cookieName(deps);
  return new Elysia({ normalize: false })
    .post(
      "/sign-in",
      async ({ request, cookie, set }) => {
        const { requestId, peerAddress } = factsOf(request);
        const host = await panelHostOf(deps, request);
        checkOrigin(request);
        const body = checkSignIn((await readBody(request, SIGN_IN_BYTES_MAX)).value);
        const begun = await signIn(deps, host, peerAddress, body);
        cookie[name]?.set({ ...cookieOptions(deps, deps.config.sessionMaxSeconds), value: begun.token });
        set.headers["x-request-id"] = requestId;
        set.headers["cache-control"] = "no-store";
        return { csrfToken: begun.csrfToken, expiresAt: begun.expiresAt };
      },
      { parse: "none" },
    )
    .post(
      "/sign-out",
      async ({ request, cookie, set }) => {
        const { session } = await visitorOf(deps, request, cookie[name]?.value);
        await inTime(deps.sessions.end(session));
        cookie[name]?.set({ ...cookieOptions(deps, 0), value: "" });
        set.headers["x-request-id"] = factsOf(request).requestId;
        return { signedOut: true };
      },
      { parse: "none" },
    )
    .use(
      signedIn(deps).get("/me", ({ person }) => ({
        person: pick(person.session),
        viewing: person.viewing && pick(person.viewing),
        host: person.host.name,
        csrfToken: person.session.csrfToken,
        serverTime: new Date(deps.clock.unixMs()).toISOString(),
      })),
    );
}

function pick({ accountId, role, name, email }: { accountId: number; role: string; name: string; email: string }) {
  return { accountId, role, name, email };
}
