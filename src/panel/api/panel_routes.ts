import { Elysia } from "elysia";
import type { Deps } from "../../deps.ts";
import { asRefusal, Refusal } from "../../errors.ts";
import { readBody } from "../../gateway/body.ts";
import { inTime } from "../../gateway/door.ts";
import { factsOf } from "../../platform/request_facts.ts";
import { panelAi } from "./ai.ts";
import { checkOrigin, cookieName, cookieOptions, panelHostOf, visitorOf } from "./session_door.ts";
import { checkSignIn, signIn } from "./sign_in.ts";

/** A sign-in body is an address and a password. */
const SIGN_IN_BYTES_MAX = 16 * 1024;

/** The signed-in session's endpoints under /api/panel. */
export function panelRoutes(deps: Deps) {
  const name = cookieName(deps);
  return new Elysia({ prefix: "/api/panel", normalize: false })
    .post(
      "/sign-in",
      async ({ request, cookie, set }) => {
        const { requestId, peerAddress } = factsOf(request);
        const host = await panelHostOf(deps, request);
        checkOrigin(request);
        const body = await readSignIn(request);
        const begun = await signIn(deps, host, peerAddress, body);
        cookie[name]?.set({ ...cookieOptions(deps, deps.config.sessionMaxSeconds), value: begun.token });
        set.headers["x-request-id"] = requestId;
        set.headers["cache-control"] = "no-store";
        return { csrf_token: begun.csrfToken, expires_at: begun.expiresAt };
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
        return { signed_out: true };
      },
      { parse: "none" },
    )
    .get("/me", async ({ request, cookie, set }) => {
      const { session, host } = await visitorOf(deps, request, cookie[name]?.value);
      set.headers["x-request-id"] = factsOf(request).requestId;
      set.headers["cache-control"] = "no-store";
      return {
        account_id: String(session.accountId),
        role: session.role,
        email: session.email,
        name: session.name,
        host: host.name,
        csrf_token: session.csrfToken,
      };
    })
    .post("/ai/chat", ({ request, cookie }) => ai(deps, request, cookie[name]?.value, "chat"), { parse: "none" })
    .post("/ai/image", ({ request, cookie }) => ai(deps, request, cookie[name]?.value, "image"), { parse: "none" });
}

async function ai(deps: Deps, request: Request, token: unknown, kind: "chat" | "image"): Promise<Response> {
  const visitor = await visitorOf(deps, request, token);
  return await panelAi(deps, visitor, request, factsOf(request).requestId, kind);
}

async function readSignIn(request: Request): Promise<ReturnType<typeof checkSignIn>> {
  try {
    return checkSignIn((await readBody(request, SIGN_IN_BYTES_MAX)).value);
  } catch (error) {
    const refusal = asRefusal(error);
    if (refusal.code !== "invalid_request") throw error;
    throw new Refusal("validation_failed", { ...refusal.facts, message: refusal.message });
  }
}
