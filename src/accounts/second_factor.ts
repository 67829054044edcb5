import { randomBytes } from "node:crypto";
import { TOTP, Secret as TotpSecret } from "otpauth";
import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";
import type { ChangeDeps } from "../platform/changes_store.ts";
import { decrypt } from "../platform/crypto.ts";
import { sha256 } from "../platform/runtime.ts";
import {
  enableTotp,
  loadTotp,
  putPendingTotp,
  replaceRecoveryCodes,
  takeRecoveryCode,
  takeTotpStep,
} from "./second_factor_store.ts";

/**
 * The second factor: codes of an authenticator app (RFC 6238), and recovery codes in case the app is lost. The secret is stored
 * encrypted, recovery codes as digests. Each code works once. Uses the database's clock.
 */

/** Parameters that every authenticator app supports. */
const TOTP_FORM = { algorithm: "SHA1", digits: 6, period: 30 } as const;
/** Steps before and after the current one whose codes are accepted too: clocks differ. */
const WINDOW_STEPS = 1;
const SECRET_BYTES = 20;
const CODE_FORM = /^\d{6}$/;
const RECOVERY_CODES = 10;
/** 80 bits: too many to search for a digest. */
const RECOVERY_CHARS = 16;
const RECOVERY_GROUP_CHARS = 4;
/** 32 letters and digits, without I, O, 0 and 1, which look alike. */
const RECOVERY_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const RECOVERY_FORM = new RegExp(`^[${RECOVERY_ALPHABET}]{${RECOVERY_CHARS}}$`);
const UNREADABLE =
  "Codes of your app can no longer be checked. Use a recovery code, or have your second factor removed.";

type Deps = ChangeDeps & { config: Pick<Config, "secretKey"> };

/**
 * Creates a secret for an app. It takes effect once `confirmSecondFactor` has checked a code. The app shows `issuer` and `label`.
 * Throws InputError if the second factor is on, and service_unavailable if the database has another SECRET_KEY.
 */
export async function beginSecondFactor(
  deps: Deps,
  { accountId, issuer, label }: { accountId: number; issuer: string; label: string },
): Promise<{ secret: string; uri: string }> {
  const secret = new TotpSecret({ size: SECRET_BYTES });
  const { secretKey } = deps.config;
  if (!(await putPendingTotp(deps, { accountId, secret: secret.base32, secretKey })))
    throw new InputError("The second factor is already on. Remove it first.");
  return { secret: secret.base32, uri: new TOTP({ ...TOTP_FORM, issuer, label, secret }).toString() };
}

/**
 * Enables the second factor if `code` is valid for the pending secret. Ends the account's sessions except `keepSession` (a digest).
 * Returns the recovery codes, which cannot be shown again; null: wrong code. Throws InputError if no secret is pending.
 */
export async function confirmSecondFactor(
  deps: Deps,
  { accountId, code, keepSession }: { accountId: number; code: string; keepSession: Buffer },
): Promise<string[] | null> {
  const stored = await loadTotp(deps, accountId);
  if (!stored?.ciphertext || stored.enabled)
    throw new InputError("There is no second factor to confirm. Start again.", "code");
  const secret = readSecret(deps.config.secretKey, stored.ciphertext);
  if (secret === undefined) throw new InputError("This secret can no longer be read. Start again.", "code");
  const step = stepOf(secret, code, stored.nowUnixMs);
  if (step === null) return null;
  const { codes, digests } = newRecoveryCodes();
  const enabled = { accountId, ciphertext: stored.ciphertext, step, digests, keepSession };
  if (!(await enableTotp(deps, enabled)))
    throw new InputError("There is no second factor to confirm. Start again.", "code");
  return codes;
}

/**
 * Checks and uses up a code of the app, or a recovery code; each works once, also under concurrency. False: wrong code. Throws
 * InputError if the app's secret was encrypted with a SECRET_KEY that was lost; recovery codes still work.
 */
export async function takeCode(deps: Deps, accountId: number, code: string): Promise<boolean> {
  const typed = code.toUpperCase().replace(/[\s-]/g, "");
  if (RECOVERY_FORM.test(typed)) return takeRecoveryCode(deps, accountId, recoveryDigest(typed));
  if (!CODE_FORM.test(typed)) return false;
  const stored = await loadTotp(deps, accountId);
  if (!stored?.ciphertext || !stored.enabled) return false;
  const secret = readSecret(deps.config.secretKey, stored.ciphertext);
  if (secret === undefined) throw new InputError(UNREADABLE, "code");
  const step = stepOf(secret, typed, stored.nowUnixMs);
  return step !== null && takeTotpStep(deps, { accountId, ciphertext: stored.ciphertext, step });
}

/** Replaces the recovery codes; shown once. Throws InputError if the second factor is off. */
export async function renewRecoveryCodes(deps: ChangeDeps, accountId: number): Promise<string[]> {
  const { codes, digests } = newRecoveryCodes();
  if (!(await replaceRecoveryCodes(deps, accountId, digests))) throw new InputError("The second factor is off.");
  return codes;
}

/** undefined: encrypted with another key, or damaged. */
function readSecret(secretKey: Uint8Array, ciphertext: Uint8Array): string | undefined {
  try {
    return decrypt(secretKey, ciphertext);
  } catch {
    return undefined; // The caller tells the person what to do; `secret-key rotate` has told the operator how many are affected.
  }
}

/** The 30-second step since 1970 that has this code; null: none near `unixMs`. Compares in constant time. */
function stepOf(secret: string, code: string, unixMs: number): number | null {
  const typed = code.replace(/\s/g, "");
  if (!CODE_FORM.test(typed)) return null;
  const at = { period: TOTP_FORM.period, timestamp: unixMs };
  const delta = TOTP.validate({
    ...TOTP_FORM,
    ...at,
    token: typed,
    secret: TotpSecret.fromBase32(secret),
    window: WINDOW_STEPS,
  });
  return delta === null ? null : TOTP.counter(at) + delta;
}

function newRecoveryCodes(): { codes: string[]; digests: Buffer[] } {
  const plain = Array.from({ length: RECOVERY_CODES }, () =>
    // 256 is 8 × 32, so that every character is equally likely.
    [...randomBytes(RECOVERY_CHARS)].map((byte) => RECOVERY_ALPHABET[byte % RECOVERY_ALPHABET.length]).join(""),
  );
  const inGroups = new RegExp(`.{${RECOVERY_GROUP_CHARS}}(?=.)`, "g");
  return { codes: plain.map((code) => code.replace(inGroups, "$&-")), digests: plain.map(recoveryDigest) };
}

function recoveryDigest(code: string): Buffer {
  return Buffer.from(sha256(code));
}
