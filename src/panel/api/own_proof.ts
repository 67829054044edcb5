import { type Static, t } from "elysia";
import { expired } from "../../accounts/passkeys.ts";
import { secondFactorOf } from "../../accounts/second_factor_store.ts";
import { passwordHashOf } from "../../accounts/sign_in_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError } from "../../errors.ts";
import { TYPED_CODE_CHARS_MAX, TYPED_PASSWORD_CHARS_MAX } from "../../limits.ts";
import type { Person } from "./panel_session.ts";
import { Assertion, CLONED, checkPasskeyOf, NOT_ACCEPTED } from "./passkey_sign_in.ts";
import { checkCode, checkPassword, limited, WRONG_CODE } from "./sign_in.ts";

/**
 * Proofs that the person at the screen is the one who signed in. They are required before a change of how the person
 * signs in. Source: SGN-13.
 */

/** A password as typed, or a new one, whose length is checked later. */
export const Password = t.String({ minLength: 1, maxLength: TYPED_PASSWORD_CHARS_MAX });
export const Code = t.String({ minLength: 1, maxLength: TYPED_CODE_CHARS_MAX });

/** A password, with a code if the second factor is on; or the signature of a passkey. */
export const Proof = t.Object(
  { password: t.Optional(Password), code: t.Optional(Code), passkey: t.Optional(Assertion) },
  { additionalProperties: false },
);

type Asked = {
  person: Person;
  request: Request;
  /**
   * The same, but a password always needs a code, even if the second factor was just read as off: for changes that
   * only an account with a second factor can make.
   */
  needsCode?: boolean;
};

/** Confirms a proof. Throws InputError for `password`, `code` or `passkey`, too_many_requests. */
export async function provePerson(
  deps: Deps,
  { person, request, needsCode = false }: Asked,
  { password, code, passkey }: Static<typeof Proof>,
): Promise<void> {
  if (passkey !== undefined) return provePasskey(deps, { person, request }, passkey);
  if (password === undefined) throw new InputError("Enter your password.", "password");
  await provePassword(deps, person, password);
  // The code is checked last: it works once, and a wrong password must not use it up.
  if (needsCode || (await secondFactorOf(deps, person.self.accountId)).totpEnabled) await proveCode(deps, person, code);
}

/** Throws InputError for `passkey`, too_many_requests. */
async function provePasskey(deps: Deps, { person, request }: Asked, response: Static<typeof Assertion>): Promise<void> {
  const limits = { shared: [], own: [`passkey:${person.self.accountId}`] };
  await limited(deps, limits, async () => {
    const purpose = { kind: "confirm", host: person.host.name, session: person.session.digestHex } as const;
    const checked = await checkPasskeyOf(deps, { host: person.host, request }, { purpose, response });
    if (checked === "expired") return expired("passkey");
    if (checked === "cloned") return new InputError(CLONED, "passkey");
    return checked?.accountId === person.self.accountId ? true : new InputError(NOT_ACCEPTED, "passkey");
  });
}

/** Throws InputError for `password`, too_many_requests. */
async function provePassword(deps: Deps, person: Person, password: string): Promise<void> {
  const account = `account:${person.self.accountId}`;
  if ((await passwordHashOf(deps, person.self.accountId)) === null)
    throw new InputError(
      "You have no password yet. Set one first, with “Forgot your password?” on the page to sign in.",
      "password",
    );
  await limited(deps, { shared: [], own: [account] }, async () => {
    const matches = await checkPassword(deps, { account }, password, () => passwordHashOf(deps, person.self.accountId));
    return matches || new InputError("This is not your password.", "password");
  });
}

/** A code of the authenticator app, or a recovery code. Throws InputError for `code`, too_many_requests. */
async function proveCode(deps: Deps, { self: { accountId } }: Person, code: string | undefined): Promise<void> {
  if (code === undefined) throw new InputError("Enter a code from your authenticator app, or a recovery code.", "code");
  await checkCode(deps, { accountId, code, wrong: wrongCode() });
}

export function wrongCode(): InputError {
  return new InputError(WRONG_CODE, "code");
}

/** The digest of the session that stays when the account's other sessions end. */
export function digestOf(person: Person): Buffer {
  return Buffer.from(person.session.digestHex, "hex");
}
