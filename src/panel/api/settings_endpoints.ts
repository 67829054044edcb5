import { Elysia, t } from "elysia";
import { noticesOf, renameAccount, setNotices } from "../../accounts/accounts_store.ts";
import { hashPassword, verifyPassword } from "../../accounts/passwords.ts";
import { beginSecondFactor, confirmSecondFactor, renewRecoveryCodes } from "../../accounts/second_factor.ts";
import { removeTotp, secondFactorOf } from "../../accounts/second_factor_store.ts";
import { sessionIdOf } from "../../accounts/sessions_store.ts";
import { passwordHashOf, setPassword } from "../../accounts/sign_in_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { NanoUsd } from "./fields.ts";
import { toJson } from "./formats.ts";
import { type Person, signedIn } from "./panel_session.ts";
import { checkCode, codeLimitId, limited, WRONG_CODE } from "./sign_in.ts";

/** The person's own settings: name, password, second factor, devices, notice thresholds. */

const Password = t.String({ minLength: 1, maxLength: 1000 });
const Code = t.String({ minLength: 1, maxLength: 40 });

export function settingsEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(ownEndpoints(deps)).use(secondFactorEndpoints(deps));
}

function ownEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/settings", async ({ person }) => {
      const [secondFactor, notices] = await Promise.all([
        secondFactorOf(deps, person.accountId),
        noticesOf(deps, person.accountId),
      ]);
      if (!notices) throw new Refusal("not_found");
      return toJson({ name: person.name, email: person.email, ...secondFactor, notices });
    })
    .patch(
      "/settings/profile",
      async ({ person, body }) => {
        await renameAccount({ ...deps, by: person.by }, person.accountId, body.name);
        return { saved: true };
      },
      { body: t.Object({ name: t.String({ maxLength: 400 }) }) },
    )
    .patch(
      "/settings/notices",
      async ({ person, body: { balanceNanoUsd, ...rest } }) => {
        const wanted = { ...rest, ...(balanceNanoUsd !== undefined && { balanceNanoUsd: BigInt(balanceNanoUsd) }) };
        await setNotices({ ...deps, by: person.by }, person.accountId, wanted);
        return { saved: true };
      },
      {
        body: t.Object({
          unitsPercent: t.Optional(t.Integer()),
          balanceNanoUsd: t.Optional(NanoUsd),
          days: t.Optional(t.Integer()),
        }),
      },
    )
    .post(
      "/settings/password",
      async ({ person, body }) => {
        await changePassword(deps, person, body);
        return { saved: true };
      },
      { body: t.Object({ current: Password, next: Password, code: t.Optional(Code) }) },
    )
    .get("/settings/devices", async ({ person }) => {
      const current = sessionIdOf(person.session.digestHex);
      const listed = await deps.sessions.list(person.accountId);
      return { devices: listed.map(({ sessionId: id, ...rest }) => ({ id, ...rest, current: id === current })) };
    })
    .delete(
      "/settings/devices/:id",
      async ({ person, params }) => {
        if (!(await deps.sessions.endListed(person.accountId, params.id))) throw new Refusal("not_found");
        return { signedOut: true };
      },
      { params: t.Object({ id: t.String({ maxLength: 100 }) }) },
    );
}

function secondFactorEndpoints(deps: Deps) {
  return signedIn(deps)
    .post(
      "/settings/totp",
      async ({ person, body }) => {
        await provePassword(deps, person, body.password);
        // Named after the host: customers of a reseller know no other name of the service.
        const names = { issuer: person.host.name, label: person.email };
        return beginSecondFactor({ ...deps, by: person.by }, { accountId: person.accountId, ...names });
      },
      { body: t.Object({ password: Password }) },
    )
    .post(
      "/settings/totp/confirm",
      async ({ person, body }) => {
        const { accountId } = person;
        const recoveryCodes = await limited(deps, { shared: [], own: [codeLimitId(accountId)] }, async () => {
          const confirmed = { accountId, code: body.code, keepSession: digestOf(person) };
          return (await confirmSecondFactor({ ...deps, by: person.by }, confirmed)) ?? wrongCode();
        });
        return { recoveryCodes };
      },
      { body: t.Object({ code: Code }) },
    )
    .post(
      "/settings/recovery-codes",
      async ({ person, body }) => {
        // Requires a code too: a new recovery code would let the password alone remove the second factor.
        await provePassword(deps, person, body.password);
        await proveCode(deps, person, body.code);
        return { recoveryCodes: await renewRecoveryCodes({ ...deps, by: person.by }, person.accountId) };
      },
      { body: t.Object({ password: Password, code: Code }) },
    )
    .post(
      "/settings/totp/remove",
      async ({ person, body }) => {
        await provePassword(deps, person, body.password);
        await proveCode(deps, person, body.code);
        await removeTotp({ ...deps, by: person.by }, person.accountId, digestOf(person));
        return { removed: true };
      },
      { body: t.Object({ password: Password, code: Code }) },
    );
}

type NewPassword = { current: string; next: string; code?: string };

/** Throws InputError for `current`, `next` or `code`, too_many_requests. Every other session of the account ends. */
async function changePassword(deps: Deps, person: Person, { current, next, code }: NewPassword): Promise<void> {
  const { accountId, by } = person;
  const oldHash = await provePassword(deps, person, current, "current");
  const passwordHash = await hashPassword(next, "next");
  // The code last: it works once, and an invalid new password must not use it up.
  const { totpEnabled } = await secondFactorOf(deps, accountId);
  if (totpEnabled) await proveCode(deps, person, code);
  const set = await setPassword(
    { ...deps, by },
    { accountId, passwordHash, was: oldHash, keepSession: digestOf(person) },
  );
  if (!set) throw new InputError("The password has just been changed elsewhere.", "current");
}

/** Confirms the person's password. Returns its hash. Throws InputError for `param`, too_many_requests. */
async function provePassword(deps: Deps, person: Person, password: string, param = "password"): Promise<string> {
  const limits = { shared: [], own: [`account:${person.accountId}`] };
  return limited(deps, limits, async () => {
    const passwordHash = await passwordHashOf(deps, person.accountId);
    const matches = await verifyPassword(passwordHash, password);
    if (!matches || passwordHash === null) return new InputError("This is not your password.", param);
    return passwordHash;
  });
}

/** Confirms a code of the authenticator app, or a recovery code. Throws InputError for `code`, too_many_requests. */
async function proveCode(deps: Deps, { accountId }: Person, code: string | undefined): Promise<void> {
  if (code === undefined) throw new InputError("Enter a code from your authenticator app, or a recovery code.", "code");
  await checkCode(deps, { accountId, code, wrong: wrongCode() });
}

function wrongCode(): InputError {
  return new InputError(WRONG_CODE, "code");
}

function digestOf(person: Person): Buffer {
  return Buffer.from(person.session.digestHex, "hex");
}
