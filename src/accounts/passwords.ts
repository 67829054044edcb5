import { hash, verify } from "@node-rs/argon2";
import { InputError, Refusal, sentence } from "../errors.ts";
import { NEW_PASSWORD_CHARS } from "../limits.ts";
import type { Log } from "../platform/log.ts";
import { createSemaphore, type Share } from "../platform/semaphore.ts";
import { createWorkerJobs } from "../platform/worker_jobs.ts";
import { PARAMETERS } from "./password_parameters.ts";

/** Passwords, hashed with argon2id. */

/**
 * A hash with these parameters that belongs to no account: of random bytes that nobody has kept. A constant, because a hash that is made
 * when it is first needed may fail, and then nobody could sign in.
 */
export const NOBODYS_HASH =
  "$argon2id$v=19$m=19456,t=2,p=1$nw4L/W4bccMx54MI+RXB2A$KmawtMRgcuikZwkeOjk3r3ZYJJ8SmbYZZx0Tfwje5n0";
/** Each hash takes a core for 30 ms, and 19 MiB. */
const RUNNING_MAX = 1;
const WAITING_MAX = 256;
/**
 * One network (an IPv4 address, or the /64 of an IPv6 address), and one account, have one hash running, and so many waiting: others take
 * turns with them.
 */
const SHARE_WAITING_MAX = 16;
/** Enough for all that wait, unless requests to models take all cores for as long: they have priority. */
const WAIT_MS_MAX = 30_000;
const RETRY_AFTER_SECONDS = 2;

/** Whose share of the hashes is used. Source: SGN-15. */
export type Asker = {
  /** The address by which limits count; undefined: a signed-in person. */
  network?: string | undefined;
  /** The account, as in `account:7`, or a digest of the typed address, whether or not there is such an account. */
  account: string;
};

/** A job of the worker: to check a password against a stored hash, or, without one, to hash it. */
export type PasswordJob = { password: string; stored?: string };
/** The new hash, or whether the password matches. Throws service_unavailable if the worker cannot be used. */
type Hasher = (job: PasswordJob) => Promise<string | boolean>;

/** For commands, where nobody waits for the processor. */
const HERE: Hasher = ({ password, stored }) =>
  stored === undefined ? hash(password, PARAMETERS) : verify(stored, password);

let hasher = HERE;

/**
 * From now on this process hashes in a worker whose priority is lower than that of requests; it starts with the first hash. Returns what
 * ends that.
 */
export function hashInWorker(log: Log, startWorker: () => Worker = newWorker): () => void {
  const jobs = createWorkerJobs<PasswordJob, string | boolean>({
    ...{ name: "passwords", log, startWorker, isLazy: true, waitsForNext: true },
    ...{ queueMax: WAITING_MAX, waitMs: WAIT_MS_MAX, stuckMs: WAIT_MS_MAX },
  });
  const inWorker: Hasher = async (job) => {
    const result = await jobs.run(job);
    if (result === undefined) throw new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS });
    return result;
  };
  hasher = inWorker;
  return () => {
    if (hasher === inWorker) hasher = HERE;
    jobs.close();
  };
}

function newWorker(): Worker {
  return new Worker(new URL("./password_worker.ts", import.meta.url), { type: "module" });
}

const places = createSemaphore({
  max: RUNNING_MAX,
  waitingMax: WAITING_MAX,
  shareFull: () => new Refusal("too_many_requests", { retryAfterSeconds: RETRY_AFTER_SECONDS }),
  allFull: () => new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS }),
});

/**
 * Hashes a new password. `asker`: undefined for commands, which take turns with nobody. Throws as `checkNewPassword`, and as
 * `verifyPassword`.
 */
export async function hashPassword(password: string, asker?: Asker): Promise<string> {
  const clean = checkNewPassword(password);
  return inTurn(
    asker,
    async () => clean,
    async (checked) => String(await hasher({ password: checked })),
  );
}

/** A new password as it is hashed. Throws InputError (for field `param`) if it is too short or too long. */
export function checkNewPassword(password: string, param = "password"): string {
  const clean = normalize(password);
  const chars = [...clean].length;
  const { min, max } = NEW_PASSWORD_CHARS;
  if (chars < min || chars > max)
    throw new InputError(sentence("The password must have {min} to {max} characters.", { min, max }), param);
  return clean;
}

/** An account's hash; undefined or null: there is no such account, or it has no password. */
export type StoredHash = string | null | undefined;

/**
 * Whether `password` matches the stored hash. A function reads the hash once the asker is let in, so that a flood of attempts does
 * not take the database's connections either. undefined or null (no such account, no password) takes as long and is false, so that the
 * time does not reveal who has an account. Throws too_many_requests if too many hashes of the asker wait, service_unavailable if too
 * many of all do.
 */
export async function verifyPassword(
  stored: StoredHash | (() => Promise<StoredHash>),
  password: string,
  asker?: Asker,
): Promise<boolean> {
  const clean = normalize(password);
  const read = async () => (typeof stored === "function" ? await stored() : stored);
  return inTurn(asker, read, async (passwordHash) => {
    // No longer password can have been set: do not spend time on hashing it.
    const known = clean.length <= NEW_PASSWORD_CHARS.max * 2 ? passwordHash : null;
    const matches = await hasher({ stored: known ?? NOBODYS_HASH, password: known === null ? "" : clean });
    return matches === true && typeof known === "string";
  });
}

/** Keyboards compose the same characters in different ways. */
function normalize(password: string): string {
  return password.normalize("NFKC");
}

/**
 * Runs `work` when the asker has a place, with what `read` has read meanwhile. Nothing is read for an asker who is refused, and the error
 * of a read does not wait for the place.
 */
async function inTurn<V, T>(
  asker: Asker | undefined,
  read: () => Promise<V>,
  work: (value: V) => Promise<T>,
): Promise<T> {
  const turn = places.enter(sharesOf(asker), { waitMsMax: WAIT_MS_MAX });
  // Throws now if it is refused now.
  await Promise.race([turn, undefined]);
  let value: V;
  try {
    value = await read();
  } catch (error) {
    turn.then(
      (leave) => leave(),
      () => {}, // It has waited in vain: no place was taken.
    );
    throw error;
  }
  const leave = await turn;
  try {
    return await work(value);
  } finally {
    leave();
  }
}

function sharesOf(asker: Asker | undefined): Share[] {
  if (asker === undefined) return [];
  const { network, account } = asker;
  const own: Share = { id: account, atOnceMax: 1, waitingMax: SHARE_WAITING_MAX };
  if (network === undefined) return [own];
  return [own, { id: `network:${network}`, atOnceMax: 1, waitingMax: SHARE_WAITING_MAX }];
}
