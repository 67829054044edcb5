import { Elysia, type Static, t } from "elysia";
import { noticesOf, renameAccount, setLanguage, setNotices } from "../../accounts/accounts_store.ts";
import { pendingEmailChangeOf } from "../../accounts/email_changes_store.ts";
import { checkNewPassword, hashPassword } from "../../accounts/passwords.ts";
import { beginSecondFactor, confirmSecondFactor, renewRecoveryCodes } from "../../accounts/second_factor.ts";
import { removeTotp, secondFactorOf } from "../../accounts/second_factor_store.ts";
import { sessionIdOf } from "../../accounts/sessions_store.ts";
import { passwordHashOf, setPassword } from "../../accounts/sign_in_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { canMail } from "../../messages/senders.ts";
import { LanguageField, NanoUsd } from "./fields.ts";
import { toJson } from "./formats.ts";
import { Code, digestOf, Password, Proof, provePerson, wrongCode } from "./own_proof.ts";
import { mailerOf, type Person, signedIn } from "./panel_session.ts";
import { codeLimitId, limited } from "./sign_in.ts";

/** The person's own settings: name, password, second factor, devices, notice thresholds. */

export function settingsEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(ownEndpoints(deps)).use(secondFactorEndpoints(deps));
}

function ownEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/settings", async ({ person }) => {
      const { accountId, name, email } = person.self;
      const [secondFactor, notices, emailChange, sendsMail] = await Promise.all([
        secondFactorOf(deps, accountId),
        noticesOf(deps, person.accountId),
        pendingEmailChangeOf(deps, accountId),
        canMail(deps, mailerOf(person)),
      ]);
      if (!notices) throw new Refusal("not_found");
      return toJson({ name, email, emailChange, sendsMail, ...secondFactor, notices });
    })
    .patch(
      "/settings/profile",
      async ({ person, body }) => {
        await renameAccount({ ...deps, by: person.by }, person.self.accountId, body.name);
        return { saved: true };
      },
      { body: t.Object({ name: t.String({ maxLength: 400 }) }) },
    )
    .patch(
      "/settings/language",
      async ({ person, body }) => {
        await setLanguage({ ...deps, by: person.by }, person.self.accountId, body.language);
        return { saved: true };
      },
      { body: t.Object({ language: t.Union([LanguageField, t.Null()]) }) },
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
      async ({ person, request, body }) => {
        await changePassword(deps, { person, request }, body);
        return { saved: true };
      },
      { body: t.Object({ next: Password, proof: Proof }) },
    )
    .get("/settings/devices", async ({ person }) => {
      const current = sessionIdOf(person.session.digestHex);
      const listed = await deps.sessions.list(person.self.accountId);
      return { devices: listed.map(({ sessionId: id, ...rest }) => ({ id, ...rest, current: id === current })) };
    })
    .delete(
      "/settings/devices/:id",
      async ({ person, params }) => {
        if (!(await deps.sessions.endListed(person.self.accountId, params.id))) throw new Refusal("not_found");
        return { signedOut: true };
      },
      { params: t.Object({ id: t.String({ maxLength: 100 }) }) },
    );
}

function secondFactorEndpoints(deps: Deps) {
  return signedIn(deps)
    .post(
      "/settings/totp",
      async ({ person, request, body }) => {
        await provePerson(deps, { person, request }, body.proof);
        // Named after the host: customers of a reseller know no other name of the service.
        const names = { issuer: person.host.name, label: person.self.email };
        return beginSecondFactor({ ...deps, by: person.by }, { accountId: person.self.accountId, ...names });
      },
      { body: t.Object({ proof: Proof }) },
    )
    .post(
      "/settings/totp/confirm",
      async ({ person, body }) => {
        const { accountId } = person.self;
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
      async ({ person, request, body }) => {
        await provePerson(deps, { person, request, needsCode: true }, body.proof);
        return { recoveryCodes: await renewRecoveryCodes({ ...deps, by: person.by }, person.self.accountId) };
      },
      { body: t.Object({ proof: Proof }) },
    )
    .post(
      "/settings/totp/remove",
      async ({ person, request, body }) => {
        await provePerson(deps, { person, request, needsCode: true }, body.proof);
        await removeTotp({ ...deps, by: person.by }, person.self.accountId, digestOf(person));
        return { removed: true };
      },
      { body: t.Object({ proof: Proof }) },
    );
}

/** Throws InputError for `next` or the proof, too_many_requests. Every other session of the account ends. */
async function changePassword(
  deps: Deps,
  { person, request }: { person: Person; request: Request },
  { next, proof }: { next: string; proof: Static<typeof Proof> },
): Promise<void> {
  const {
    self: { accountId },
    by,
  } = person;
  // First, because a code and a passkey's signature work once: an invalid new password must not use them up.
  checkNewPassword(next, "next");
  // Read before the proof, so that of several changes at once one succeeds, however they were confirmed.
  const was = await passwordHashOf(deps, accountId);
  await provePerson(deps, { person, request }, proof);
  const passwordHash = await hashPassword(next, { account: `account:${accountId}` });
  const set = await setPassword({ ...deps, by }, { accountId, passwordHash, was, keepSession: digestOf(person) });
  if (!set) throw new InputError("The password has just been changed elsewhere.");
}
