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
 * The second factor: codes of an authenticator app (RFC 6238), and recovery codes for when the app is lost. The secret is
 * stored encrypted, recovery codes as digests; each code works once. Time is the database's.
 */

/** What every authenticator app understands. */
const TOTP_FORM = { algorithm: "SHA1", digits: 6, period: 30 } as const;
/** Steps before and after the current one whose codes are taken too: clocks differ. */
const WINDOW_STEPS = 1;
const SECRET_BYTES = 20;
const CODE_FORM = /^\d{6}$/;
const RECOVERY_CODES = 10;
/** 80 bits: a digest of it can be searched by nobody. */
const RECOVERY_CHARS = 16;
const RECOVERY_GROUP_CHARS = 4;
/** 32 letters and digits; I, O, 0 and 1 look like others. */
const RECOVERY_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const RECOVERY_FORM = new RegExp(`^[${RECOVERY_ALPHABET}]{${RECOVERY_CHARS}}$`);
/** Said to people, who know nothing of keys. */
const UNREADABLE =
  "Codes of your app cannot be checked any more. Use a recovery code, or have your second factor removed.";

type Deps = ChangeDeps & { config: Pick<Config, "secretKey"> };

/**
 * A new secret for an app, which counts once `confirmSecondFactor` has seen a code of it. `issuer` and `label` are what the
 * app shows. Throws InputError if the second factor is on, service_unavailable where the database has another SECRET_KEY.
 */
export async function beginSecondFactor(
  deps: Deps,
  { accountId, issuer, label }: { accountId: number; issuer: string; label: string },
): Promise<{ secret: string; uri: string }> {
  const secret = new TotpSecret({ size: SECRET_BYTES });
  const { secretKey } = deps.config;
  if (!(await putPendingTotp(deps, { accountId, secret: secret.base32, secretKey })))
    throw new InputError("The second factor is on already: remove it first.");
  return { secret: secret.base32, uri: new TOTP({ ...TOTP_FORM, issuer, label, secret }).toString() };
}

/**
 * Switches the second factor on, if `code` is one of the pending secret's, and ends the account's sessions but `keepSession`
 * (a digest). Returns the recovery codes, which cannot be shown again; null: a wrong code. Throws InputError if none is pending.
 */
export async function confirmSecondFactor(
  deps: Deps,
  { accountId, code, keepSession }: { accountId: number; code: string; keepSession: Buffer },
): Promise<string[] | null> {
  const stored = await loadTotp(deps, accountId);
  if (!stored?.ciphertext || stored.enabled)
    throw new InputError("There is no second factor to confirm: begin anew.", "code");
  const secret = readSecret(deps.config.secretKey, stored.ciphertext);
  if (secret === undefined) throw new InputError("This secret cannot be read any more: begin anew.", "code");
  const step = stepOf(secret, code, stored.nowUnixMs);
  if (step === null) return null;
  const { codes, digests } = newRecoveryCodes();
  const enabled = { accountId, ciphertext: stored.ciphertext, step, digests, keepSession };
  if (!(await enableTotp(deps, enabled)))
    throw new InputError("There is no second factor to confirm: begin anew.", "code");
  return codes;
}

/**
 * Takes a code of the app, or a recovery code: each works once, however many try at once. False: a wrong one. Throws InputError
 * when the app's secret cannot be read, since it was encrypted with a SECRET_KEY that was lost: recovery codes still work then.
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

/** New recovery codes in place of the old ones; shown once. Throws InputError if the second factor is off. */
export async function renewRecoveryCodes(deps: ChangeDeps, accountId: number): Promise<string[]> {
  const { codes, digests } = newRecoveryCodes();
  if (!(await replaceRecoveryCodes(deps, accountId, digests))) throw new InputError("The second factor is off.");
  return codes;
}

/** Undefined when it was encrypted with another key, or is damaged. */
function readSecret(secretKey: Uint8Array, ciphertext: Uint8Array): string | undefined {
  try {
    return decrypt(secretKey, ciphertext);
  } catch {
    return undefined; // The person is told what to do; `secret-key rotate` has told the operator how many it concerns.
  }
}

/** The 30-second step, counted from 1970, whose code this is; null: none near `unixMs`. Compared in constant time. */
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
