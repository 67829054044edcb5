import { type Static, Type } from "@sinclair/typebox";
import { t } from "elysia";
import {
  acceptInvitation,
  findInvitation,
  type Joining,
  type OpenedInvitation,
} from "../../accounts/member_invitations_store.ts";
import { hashPassword } from "../../accounts/passwords.ts";
import type { BegunSession } from "../../accounts/sessions.ts";
import type { Proof } from "../../accounts/sessions_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { readBody } from "../../http/body.ts";
import { checker } from "../../http/checks.ts";
import { TYPED_CODE_CHARS_MAX, TYPED_PASSWORD_CHARS_MAX } from "../../limits.ts";
import { inTime } from "../../platform/time_limit.ts";
import { signedOut } from "./panel_session.ts";
import { checkOrigin, cookieName, cookieOptions } from "./session_auth.ts";
import { type Arrival, arrivalOf, emailLimitId, limited, placeOf, proveSignIn, SIGN_IN_BODY } from "./sign_in.ts";

/**
 * Accepting an invitation: a new person chooses a name and a password, a person who is known proves to be the one with the address. The
 * session begins in the account. Source: MEM-5.
 */

const NAME_LENGTH_MAX = 400;
const LinkParams = t.Object({ token: t.String({ maxLength: 100 }) });
const JoinBody = Type.Object(
  {
    name: Type.Optional(Type.String({ maxLength: NAME_LENGTH_MAX })),
    password: Type.String({ minLength: 1, maxLength: TYPED_PASSWORD_CHARS_MAX }),
    code: Type.Optional(Type.String({ minLength: 1, maxLength: TYPED_CODE_CHARS_MAX })),
  },
  { additionalProperties: false },
);
const checkJoin = checker(JoinBody);

/** Without a session: the link is opened where its mail is read. Opening it changes nothing, since mail scanners open links too. */
export function joinEndpoints(deps: Deps) {
  const cookieNamed = cookieName(deps);
  return signedOut()
    .get(
      "/join/:token",
      async ({ request, params }) => {
        const { accountId: _, ...shown } = await openInvitation(deps, await arrivalOf(deps, request), params.token);
        return shown;
      },
      { params: LinkParams },
    )
    .post(
      "/join/:token",
      async ({ request, params, cookie }) => {
        const arrival = await arrivalOf(deps, request);
        checkOrigin(request);
        const body = checkJoin((await readBody(deps, request, SIGN_IN_BODY)).value);
        const begun = await join(deps, arrival, { ...body, token: params.token });
        const value = begun.token;
        cookie[cookieNamed]?.set({ ...cookieOptions(deps, deps.config.sessionMaxSeconds), value });
        return { csrfToken: begun.csrfToken, expiresAt: begun.expiresAt };
      },
      { params: LinkParams, parse: "none" },
    );
}

/** Throws not_found if the link is unknown, used, ended, expired or of another tenant; too_many_requests. */
async function openInvitation(deps: Deps, { host, network }: Arrival, token: string): Promise<OpenedInvitation> {
  return limited(
    deps,
    { shared: [`link:${network}`], own: [] },
    async () => (await inTime(findInvitation(deps, { token, resellerId: host.resellerId }))) ?? ended(),
  );
}

/** Throws as `openInvitation` and `proveSignIn`, and InputError. */
async function join(
  deps: Deps,
  arrival: Arrival,
  { token, name, password, code }: Static<typeof JoinBody> & { token: string },
): Promise<BegunSession> {
  const { accountId, email, isNew } = await openInvitation(deps, arrival, token);
  const { host, device, network, requestId } = arrival;
  let joining: Joining;
  let proof: Proof;
  if (isNew) {
    if (name === undefined) throw new InputError("Enter your name.", "name");
    const passwordHash = await hashPassword(password, { network, account: emailLimitId(deps, host, email) });
    joining = { name, passwordHash };
    proof = { passwordHash, totpEnabled: false };
  } else {
    const proven = await proveSignIn(deps, arrival, { email, password, ...(code !== undefined && { code }) });
    joining = { personId: proven.accountId };
    proof = proven.proof;
  }
  const joined = await inTime(acceptInvitation(deps, { token, accountId, requestId, joining }));
  if (joined === undefined) throw ended();
  const owner = { accountId: joined.personId, workIn: accountId, ...placeOf(host), device, proof };
  const begun = await inTime(deps.sessions.begin(owner));
  if (begun === undefined) throw ended();
  return begun;
}

function ended(): Refusal {
  return new Refusal("not_found", {
    message: "This invitation no longer works: it was accepted, revoked or replaced, or it has expired.",
  });
}
