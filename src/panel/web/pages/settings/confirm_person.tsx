import { t } from "@lingui/core/macro";
import type { AuthenticationResponseJSON } from "@simplewebauthn/browser";
import { Fingerprint, KeyRound } from "lucide-react";
import { TYPED_CODE_CHARS_MAX, TYPED_PASSWORD_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { SegmentedField } from "../../ui/choices.tsx";
import { FieldError, PasswordField, TextField } from "../../ui/fields.tsx";
import { type FieldState, type Form, isBlank } from "../../ui/form.tsx";

/**
 * Fields that confirm who is at the screen, so that an unlocked one is not enough to change how somebody signs in: a password, with a
 * code if the second factor is on; or a passkey.
 *
 *   const form = useForm({
 *     first: { …, ...firstProof(hasPasskey) },
 *     wrong: ({ …, ...proof }) => ({ …, ...wrongProof(proof, asksForCode) }),
 *     send: async ({ …, ...proof }) => ask(api.….post({ proof: await takeProof(proof, asksForCode) })),
 *   });
 *   <ProofFields form={form} hasPasskey={hasPasskey} asksForCode={asksForCode} />
 */

type Way = "passkey" | "password";
export type TypedProof = { way: Way; password: string; code: string };
export type Proof = { password?: string; code?: string; passkey?: AuthenticationResponseJSON };
/** What the person can confirm with, besides their password. */
export type ProofWays = { hasPasskey: boolean; asksForCode: boolean };

const WAYS = [
  { value: "passkey", label: t`Passkey`, icon: Fingerprint },
  { value: "password", label: t`Password`, icon: KeyRound },
] as const;

export function firstProof(hasPasskey: boolean): TypedProof {
  return { way: hasPasskey ? "passkey" : "password", password: "", code: "" };
}

export function wrongProof({ way, password, code }: TypedProof, { asksForCode }: Pick<ProofWays, "asksForCode">) {
  const isTyped = way === "password";
  return {
    password: isTyped && password === "" ? t`Enter your current password.` : null,
    code: isTyped && asksForCode ? checkCode(code) : null,
    passkey: null,
  };
}

/** The proof to send. Asks the browser for a passkey if the person chose that. Throws ApiError for the field `passkey`. */
export async function takeProof(
  { way, password, code }: TypedProof,
  { asksForCode }: Pick<ProofWays, "asksForCode">,
): Promise<Proof> {
  if (way === "password") return { password, ...(asksForCode && { code: code.trim() }) };
  const passkeys = await loadPasskeys();
  return { passkey: await passkeys.sign(await ask(api.settings.passkeys.challenge.post())) };
}

export function loadPasskeys() {
  return import("./passkey_browser.ts");
}

export function ProofFields({
  form,
  hasPasskey,
  asksForCode,
}: ProofWays & {
  form: Pick<Form<TypedProof, keyof ReturnType<typeof wrongProof>>, "values" | "set" | "field" | "errorOf">;
}) {
  const { way } = form.values;
  const refused = form.errorOf("passkey");
  return (
    <>
      {hasPasskey && (
        <SegmentedField
          label={t`Confirm with`}
          value={way}
          onValue={(chosen) => form.set({ way: chosen })}
          options={WAYS}
        >
          {way === "passkey" && refused && <FieldError id="passkey-error">{refused}</FieldError>}
        </SegmentedField>
      )}
      {way === "password" && (
        <>
          <PasswordField
            label={t`Current password`}
            {...form.field("password")}
            autoComplete="current-password"
            maxLength={TYPED_PASSWORD_CHARS_MAX}
          />
          {asksForCode && <CodeField {...form.field("code")} />}
        </>
      )}
    </>
  );
}

/** A code of the authenticator app, or a recovery code. */
function CodeField(props: FieldState) {
  return (
    <TextField
      label={t({ message: "Code", context: "to sign in" })}
      hint={t`From your authenticator app, or a recovery code.`}
      mono
      autoComplete="one-time-code"
      maxLength={TYPED_CODE_CHARS_MAX}
      {...props}
    />
  );
}

function checkCode(code: string): string | null {
  return isBlank(code) ? t`Enter a code from your app, or a recovery code.` : null;
}
