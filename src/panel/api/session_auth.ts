import type { Session } from "../../accounts/sessions.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { type Host, panelHostOf } from "../../http/host.ts";
import { constantTimeEqual } from "../../platform/crypto.ts";
import { inTime } from "../../platform/time_limit.ts";

/** Authenticates a panel request: its host, its session cookie, and its CSRF token and Origin. Source: ACC-2. */

const COOKIE = "tollgate_session";
/** While the browser is at an identity provider. */
const IDENTITY_COOKIE = "tollgate_identity";
export const CSRF_HEADER = "x-csrf-token";

export type Visitor = { session: Session; host: Host };

/** Host → session → CSRF. Throws host_not_allowed, session_required, csrf_failed. */
export async function visitorOf(deps: Deps, request: Request, token: unknown): Promise<Visitor> {
  const host = await panelHostOf(deps, request);
  const session = typeof token === "string" ? await inTime(deps.sessions.find(token, host.name)) : undefined;
  if (session === undefined) throw new Refusal("session_required");
  if (request.method !== "GET") {
    checkOrigin(request);
    const csrf = request.headers.get(CSRF_HEADER);
    if (csrf === null || !constantTimeEqual(csrf, session.csrfToken)) throw new Refusal("csrf_failed");
  }
  return { session, host };
}

/** Requires an Origin equal to the request's host. Browsers send Origin with every POST. Throws csrf_failed. */
export function checkOrigin(request: Request): void {
  const origin = request.headers.get("origin");
  if (origin === null || !URL.canParse(origin) || new URL(origin).host !== request.headers.get("host")?.toLowerCase()) {
    throw new Refusal("csrf_failed");
  }
}

/** The session cookie's name. The `__Host-` prefix binds it to one host; browsers accept that over TLS only. */
export function cookieName(deps: Deps): string {
  return usesTls(deps) ? `__Host-${COOKIE}` : COOKIE;
}

/** The name of the cookie that binds a sign-in by an identity provider to the browser in which it began. Source: OIDC-2. */
export function identityCookieName(deps: Deps): string {
  return usesTls(deps) ? `__Host-${IDENTITY_COOKIE}` : IDENTITY_COOKIE;
}

/** Attributes of both cookies. `maxAge` in seconds; 0 deletes it. */
export function cookieOptions(deps: Deps, maxAge: number) {
  return { path: "/", httpOnly: true, sameSite: "lax", secure: usesTls(deps), maxAge } as const;
}

function usesTls(deps: Deps): boolean {
  return deps.config.panelUrl.startsWith("https:");
}
