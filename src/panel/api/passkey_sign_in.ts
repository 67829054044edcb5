import { type Static, Type } from "@sinclair/typebox";
import { checkPasskey, type Purpose, signInOptions } from "../../accounts/passkeys.ts";
import type { BegunSession } from "../../accounts/sessions.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { checker } from "../../http/checks.ts";
import { type Host, originOf } from "../../http/host.ts";
import { factsOf } from "../../http/request_facts.ts";
import { inTime } from "../../platform/time_limit.ts";
import { type Arrival, limited, placeOf } from "./sign_in.ts";

/** Signing in with a passkey alone. Source: SGN-10. */

/** A credential id has at most 1,023 bytes. */
const CREDENTIAL_CHARS_MAX = 1_364;
/** Signed data has some hundred bytes; a signature has at most 512. */
const SIGNED_CHARS_MAX = 4_096;
const BASE64URL = { pattern: "^[A-Za-z0-9_-]+$", says: "base64url" };

export const NOT_ACCEPTED = "This passkey was not accepted.";
export const CLONED =
  "There seems to be a copy of this passkey, so it no longer signs in. Use your password, and remove the passkey in the settings.";

export const CredentialId = Type.String({ minLength: 1, maxLength: CREDENTIAL_CHARS_MAX, ...BASE64URL });
export const Signed = Type.String({ minLength: 1, maxLength: SIGNED_CHARS_MAX, ...BASE64URL });
/** Fields that browsers add and no check here reads. */
export const UNREAD = {
  type: Type.Literal("public-key"),
  clientExtensionResults: Type.Object({}, { additionalProperties: true, maxProperties: 20 }),
  authenticatorAttachment: Type.Optional(Type.Union([Type.Literal("platform"), Type.Literal("cross-platform")])),
};

/** A passkey's signature, as browsers report it. */
export const Assertion = Type.Object(
  {
    id: CredentialId,
    rawId: CredentialId,
    response: Type.Object(
      {
        authenticatorData: Signed,
        clientDataJSON: Signed,
        signature: Signed,
        userHandle: Type.Optional(Type.String({ maxLength: SIGNED_CHARS_MAX })),
      },
      { additionalProperties: false },
    ),
    ...UNREAD,
  },
  { additionalProperties: false },
);
export const checkPasskeyBody = checker(Type.Object({ response: Assertion }, { additionalProperties: false }));

/** The request that the browser passes to a passkey. Limited by address. Throws too_many_requests. */
export async function passkeyOptions(deps: Deps, { host, network }: Arrival) {
  await deps.limiter.take(`passkey:${network}`);
  return inTime(signInOptions(deps, host.name));
}

/** Begins a session. Throws session_required, too_many_requests. */
export async function signInByPasskey(
  deps: Deps,
  { host, device, network, request }: Arrival & { request: Request },
  response: Static<typeof Assertion>,
): Promise<BegunSession> {
  const limits = { shared: [`address:${network}`], own: [] };
  const { accountId, passkeyId } = await limited(deps, limits, async () => {
    const purpose = { kind: "sign in", host: host.name } as const;
    const checked = await checkPasskeyOf(deps, { host, request }, { purpose, response });
    if (checked === null) return refused(NOT_ACCEPTED);
    if (checked === "cloned") return refused(CLONED);
    return checked === "expired" ? refused("The passkey took too long, or was sent twice. Try again.") : checked;
  });
  const begun = await inTime(deps.sessions.begin({ accountId, ...placeOf(host), device, proof: { passkeyId } }));
  if (begun === undefined) throw refused(NOT_ACCEPTED);
  return begun;
}

function refused(message: string): Refusal {
  return new Refusal("session_required", { message });
}

/** As `checkPasskey`, for an answer that a browser has sent to this host. */
export function checkPasskeyOf(
  deps: Deps,
  { host, request }: { host: Host; request: Request },
  signed: { purpose: Purpose; response: Static<typeof Assertion> },
): ReturnType<typeof checkPasskey> {
  return inTime(checkPasskey(deps, passkeySiteOf(deps, { host, request }), signed));
}

/** The host and tenant of the passkeys in a request. */
export function passkeySiteOf(deps: Deps, { host, request }: { host: Host; request: Request }) {
  return { host: host.name, origin: originOf(deps, factsOf(request).url), resellerId: host.resellerId };
}
