import { hash, verify } from "@node-rs/argon2";
import { InputError, Refusal } from "../errors.ts";
import { NEW_PASSWORD_CHARS } from "../limits.ts";

/** Passwords, hashed with argon2id (the library's default) and OWASP's parameters: 19 MiB, two passes, one lane. */

const PARAMETERS = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };
/** Each hash takes a core and 19 MiB; requests to models have priority. */
const RUNNING_MAX = 2;
const WAITING_MAX = 64;
const RETRY_AFTER_SECONDS = 2;

/** Hashes a new password. Throws as `checkNewPassword`, and service_unavailable if too many hashes wait. */
export async function hashPassword(password: string): Promise<string> {
  const clean = checkNewPassword(password);
  return inTurn(() => hash(clean, PARAMETERS));
}

/** A new password as it is hashed. Throws InputError (for field `param`) if it is too short or too long. */
export function checkNewPassword(password: string, param = "password"): string {
  const clean = normalize(password);
  const chars = [...clean].length;
  const { min, max } = NEW_PASSWORD_CHARS;
  if (chars < min || chars > max) throw new InputError(`The password must have ${min} to ${max} characters.`, param);
  return clean;
}

/**
 * Whether `password` matches the hash. undefined or null (no such account, no password) takes as long and is false, so that the
 * time does not reveal who has an account. Throws service_unavailable if too many hashes wait.
 */
export async function verifyPassword(passwordHash: string | null | undefined, password: string): Promise<boolean> {
  const clean = normalize(password);
  // No longer password can have been set: do not spend time on hashing it.
  const known = clean.length <= NEW_PASSWORD_CHARS.max * 2 ? passwordHash : null;
  return inTurn(async () => {
    const fallback = await nobodysHash();
    const matches = await verify(known ?? fallback, known === null ? "" : clean);
    return matches && typeof known === "string";
  });
}

let nobody: Promise<string> | undefined;

/** A hash with the same parameters that belongs to no account. */
function nobodysHash(): Promise<string> {
  nobody ??= hash("nobody's password", PARAMETERS);
  return nobody;
}

/** Keyboards compose the same characters in different ways. */
function normalize(password: string): string {
  return password.normalize("NFKC");
}

let running = 0;
const waiting: (() => void)[] = [];

/** Runs `work` as soon as fewer than RUNNING_MAX run. */
async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (running >= RUNNING_MAX) {
    if (waiting.length >= WAITING_MAX)
      throw new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS });
    // The one that ends passes its place on, so `running` does not change.
    await new Promise<void>((resolve) => waiting.push(resolve));
  } else {
    running++;
  }
  try {
    return await work();
  } finally {
    const next = waiting.shift();
    if (next) next();
    else running--;
  }
}
