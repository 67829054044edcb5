import { t } from "@lingui/core/macro";
import {
  type AuthenticationResponseJSON,
  browserSupportsWebAuthn,
  browserSupportsWebAuthnAutofill,
  type PublicKeyCredentialCreationOptionsJSON,
  type PublicKeyCredentialRequestOptionsJSON,
  type RegistrationResponseJSON,
  sendSignal,
  startAuthentication,
  startRegistration,
  WebAuthnAbortService,
} from "@simplewebauthn/browser";
import { ApiError } from "../../api.ts";

/** Passkeys in the browser. A separate script: `const passkeys = await loadPasskeys()`. */

export const areSupported: () => boolean = browserSupportsWebAuthn;
export const canAutofill: () => Promise<boolean> = browserSupportsWebAuthnAutofill;

/** Cancels a request that still waits for the person. */
export function cancel(): void {
  WebAuthnAbortService.cancelCeremony();
}

/** Resolves when the request among the suggestions has begun. */
let beginning: Promise<unknown> = Promise.resolve();

/**
 * Asks for a signature. With `autofill`, among the suggestions of the e-mail field, until another request begins. Throws ApiError for
 * the field `passkey`.
 */
export async function sign(
  optionsJSON: PublicKeyCredentialRequestOptionsJSON,
  { autofill = false }: { autofill?: boolean } = {},
): Promise<AuthenticationResponseJSON> {
  if (!autofill) {
    // A later request cancels an earlier one, so the request among the suggestions must begin first.
    await beginning;
    return inWords(startAuthentication({ optionsJSON }));
  }
  const asked = startAuthentication({ optionsJSON, useBrowserAutofill: true });
  // The library asks the browser the same question before it begins, so this answer comes after its own.
  beginning = browserSupportsWebAuthnAutofill().then(() => new Promise((resolve) => setTimeout(resolve)));
  return inWords(asked);
}

/** Asks for a new passkey. Throws ApiError for the field `passkey`. */
export function create(optionsJSON: PublicKeyCredentialCreationOptionsJSON): Promise<RegistrationResponseJSON> {
  return inWords(startRegistration({ optionsJSON }));
}

/** Tells the browser that a passkey was removed, so that it is not offered any more. Does nothing where browsers cannot be told. */
export async function forget(removed: { host: string; credentialId: string }): Promise<void> {
  if (!("signalUnknownCredential" in PublicKeyCredential)) return;
  await inWords(
    sendSignal({ signalName: "unknownCredential", rpID: removed.host, credentialID: removed.credentialId }),
  );
}

const REASONS: Readonly<Record<string, string>> = {
  AbortError: t`The request for a passkey has ended.`,
  InvalidStateError: t`This device has a passkey for your account already.`,
  NotAllowedError: t`No passkey was used. It was cancelled, took too long, or there is none for this site.`,
  SecurityError: t`Passkeys do not work at this address. They need https and a host name.`,
};
/** The name that the library keeps of the browser's error. */
const OTHER = t`This browser or device could not use a passkey.`;

/** The browser's errors, in words. */
async function inWords<T>(asked: Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (error) {
    const message = (error instanceof Error && REASONS[error.name]) || OTHER;
    throw new ApiError(message, { status: 0, code: "validation_failed", param: "passkey" });
  }
}
