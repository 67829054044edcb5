import { Elysia, t } from "elysia";
import { addPasskey, confirmOptions, creationOptions } from "../../accounts/passkeys.ts";
import { listPasskeys, removePasskey, renamePasskey } from "../../accounts/passkeys_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { readBody } from "../../http/body.ts";
import { PASSKEYS_MAX } from "../../limits.ts";
import { IdParam } from "./fields.ts";
import { digestOf, Proof, provePerson } from "./own_proof.ts";
import { type Person, signedIn, signedOut } from "./panel_session.ts";
import {
  CredentialId,
  checkPasskeyBody,
  passkeyOptions,
  passkeySiteOf,
  Signed,
  signInByPasskey,
  UNREAD,
} from "./passkey_sign_in.ts";
import { checkOrigin, cookieName, cookieOptions } from "./session_auth.ts";
import { arrivalOf, SIGN_IN_BODY } from "./sign_in.ts";

/**
 * Passkeys: signing in with one, and a person's own. Only their owner can change them; an admin who views the account
 * can read the list.
 */

/** An attestation object with an RSA key takes a few hundred bytes. */
const ATTESTATION_CHARS_MAX = 8_192;
const TRANSPORTS_MAX = 10;

/** A new passkey, as browsers report it. Fields that browsers derive from the attestation object are not read. */
const Attestation = t.Object(
  {
    id: CredentialId,
    rawId: CredentialId,
    response: t.Object(
      {
        clientDataJSON: Signed,
        attestationObject: t.String({
          minLength: 1,
          maxLength: ATTESTATION_CHARS_MAX,
          pattern: "^[A-Za-z0-9_-]+$",
          says: "base64url",
        }),
        transports: t.Optional(t.Array(t.String({ maxLength: 20 }), { maxItems: TRANSPORTS_MAX })),
      },
      { additionalProperties: false },
    ),
    ...UNREAD,
  },
  { additionalProperties: false },
);

export function passkeyEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(openEndpoints(deps)).use(ownEndpoints(deps));
}

function openEndpoints(deps: Deps) {
  const name = cookieName(deps);
  return signedOut()
    .get("/sign-in/passkey", async ({ request }) => passkeyOptions(deps, await arrivalOf(deps, request)))
    .post(
      "/sign-in/passkey",
      async ({ request, cookie }) => {
        const arrival = await arrivalOf(deps, request);
        checkOrigin(request);
        const { response } = checkPasskeyBody((await readBody(deps, request, SIGN_IN_BODY)).value);
        const { token, ...begun } = await signInByPasskey(deps, { ...arrival, request }, response);
        cookie[name]?.set({ ...cookieOptions(deps, deps.config.sessionMaxSeconds), value: token });
        return begun;
      },
      { parse: "none" },
    );
}

function ownEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/settings/passkeys", async ({ person }) => {
      const listed = await listPasskeys(deps, person.self.accountId);
      return { passkeys: listed, host: person.host.name, max: PASSKEYS_MAX };
    })
    .post("/settings/passkeys/challenge", ({ person }) => confirmOptions(deps, person.host.name, ownerOf(person)))
    .post(
      "/settings/passkeys/begin",
      async ({ person, request, body }) => {
        await provePerson(deps, { person, request }, body.proof);
        const { name: brand } = await deps.brands.get(person.host.resellerId);
        const { email, name } = person.self;
        return creationOptions(deps, person.host.name, { ...ownerOf(person), email, name, brand });
      },
      { body: t.Object({ proof: Proof }) },
    )
    .post(
      "/settings/passkeys",
      async ({ person, request, body }) => {
        const site = passkeySiteOf(deps, { host: person.host, request });
        await addPasskey({ ...deps, by: person.by }, site, { ...ownerOf(person), ...body });
        return { added: true };
      },
      { body: t.Object({ name: t.String({ maxLength: 400 }), response: Attestation }) },
    )
    .patch(
      "/settings/passkeys/:id",
      async ({ person, params, body: { name } }) => {
        const renamed = { accountId: person.self.accountId, passkeyId: params.id, name };
        if (!(await renamePasskey({ ...deps, by: person.by }, renamed))) throw new Refusal("not_found");
        return { saved: true };
      },
      { params: IdParam, body: t.Object({ name: t.String({ maxLength: 400 }) }) },
    )
    .post(
      "/settings/passkeys/:id/remove",
      async ({ person, request, params, body }) => {
        await provePerson(deps, { person, request }, body.proof);
        const which = { accountId: person.self.accountId, passkeyId: params.id, keepSession: digestOf(person) };
        const removed = await removePasskey({ ...deps, by: person.by }, which);
        if (!removed) throw new Refusal("not_found");
        return { host: removed.host, credentialId: removed.credentialId.toString("base64url") };
      },
      { params: IdParam, body: t.Object({ proof: Proof }) },
    );
}

function ownerOf({ self: { accountId }, session }: Person) {
  return { accountId, session: session.digestHex };
}
