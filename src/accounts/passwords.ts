import { hash, verify } from "@node-rs/argon2";
import { InputError, Refusal } from "../errors.ts";
import { NEW_PASSWORD_CHARS } from "../limits.ts";

/** Passwords, by argon2id (the library's default algorithm) with the parameters that OWASP gives: 19 MiB, two passes, one lane. */

const PARAMETERS = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };
/** Hashing takes a core and 19 MiB each: requests for models come first. */
const RUNNING_MAX = 2;
const WAITING_MAX = 64;
const RETRY_AFTER_SECONDS = 2;

/** Hashes a new password. Throws InputError (for field `param`) if it is too short or too long, service_unavailable when too many wait. */
export async function hashPassword(password: string, param = "password"): Promise<string> {
  const clean = normalize(password);
  const chars = [...clean].length;
  const { min, max } = NEW_PASSWORD_CHARS;
  if (chars < min || chars > max) {
    throw new InputError(`The password must have ${min} to ${max} characters.`, param);
  }
  return inTurn(() => hash(clean, PARAMETERS));
}

/**
 * Whether `password` is the one that was hashed. Undefined or null (no such account, no password set) costs as much and
 * is false, so that the time taken says nothing about who has an account. Throws service_unavailable when too many wait.
 */
export async function verifyPassword(passwordHash: string | null | undefined, password: string): Promise<boolean> {
  const clean = normalize(password);
  // Nothing longer was ever hashed; it is not worth its hashing time.
  const known = clean.length <= NEW_PASSWORD_CHARS.max * 2 ? passwordHash : null;
  return inTurn(async () => {
    const fallback = await nobodysHash();
    const matches = await verify(known ?? fallback, known === null ? "" : clean);
    return matches && typeof known === "string";
  });
}

let nobody: Promise<string> | undefined;

/** A hash by the same parameters that belongs to nobody. */
function nobodysHash(): Promise<string> {
  nobody ??= hash("nobody's password", PARAMETERS);
  return nobody;
}

/** One spelling for what keyboards compose differently. */
function normalize(password: string): string {
  return password.normalize("NFKC");
}

let running = 0;
const waiting: (() => void)[] = [];

/** Runs `work` when fewer than RUNNING_MAX are at it. */
async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (running >= RUNNING_MAX) {
    if (waiting.length >= WAITING_MAX)
      throw new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS });
    // Who leaves hands its place over, so `running` stays as it is.
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
