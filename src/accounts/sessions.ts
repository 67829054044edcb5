import type { Config } from "../config.ts";
import { createBatchLoader } from "../platform/batch_loader.ts";
import type { Bus } from "../platform/bus.ts";
import type { CacheCounters } from "../platform/cache.ts";
import { openCachedLookup } from "../platform/cached_lookup.ts";
import { digestOfToken, newToken, randomToken } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import {
  deleteListedSession,
  deleteSession,
  deleteSessionsOf,
  insertSession,
  type ListedSession,
  listSessions,
  loadSessions,
  type NewSession,
  type StoredSession,
  touchSession,
} from "./sessions_store.ts";

/**
 * Panel sessions, from memory. The browser has a 32-byte token, the database its SHA-256 digest. A session is bound to the host
 * where the person signed in. It ends after its idle time, at its absolute end, or by signing out. A change of the person, of their
 * membership, of the account that they work in, of its reseller, or of an account that it views drops the entry, and so does the end of a session of its account. What else
 * does: cached_lookup.ts.
 */

const SESSION_ID_FORM = /^[0-9a-f]{24}$/;
const USER_AGENT_CHARS_MAX = 300;
const ADDRESS_CHARS_MAX = 60;
const SESSIONS_MAX = 20_000;
const MISSES_MAX = 10_000;
const TOUCH_EVERY_MS = 60_000;

export type Session = Omit<StoredSession, "endsInMs" | "unseenMs">;
/** `token` goes into the cookie, `csrfToken` into the page; `expiresAt` is ISO 8601. */
export type BegunSession = { token: string; csrfToken: string; expiresAt: string };
/** Where a person signs in from: the User-Agent header and the address. */
export type Device = { userAgent: string; address: string };

/** Who begins a session: the person, the host and its reseller (null: the service's own), and the account to work in. */
type NewOwner = Pick<NewSession, "accountId" | "workIn" | "host" | "resellerId" | "proof"> & { device: Device };

export type Sessions = {
  /** Begins a new session, at sign-in. undefined: what was checked has changed since. */
  begin(owner: NewOwner): Promise<BegunSession | undefined>;
  /** The session with this token on this host, if it has not ended. */
  find(token: string, host: string): Promise<Session | undefined>;
  /** Signs out. */
  end(session: Session): Promise<void>;
  /** Signs out one of a person's sessions, by its id in `list`. False: no such session. */
  endListed(accountId: number, sessionId: string): Promise<boolean>;
  /** Signs out all sessions but `keep`. Returns how many. */
  endAll(accountId: number, keep?: Session): Promise<number>;
  list(accountId: number): Promise<ListedSession[]>;
  readonly counters: Readonly<CacheCounters>;
  close(): void;
};

type SessionOptions = {
  db: Db;
  bus: Bus;
  config: Pick<Config, "cacheTtlMs" | "sessionIdleSeconds" | "sessionMaxSeconds">;
  /** The monotonic clock. */
  nowMs: () => number;
};

/** `endsMs` and `seenMs` are on the monotonic clock. `seenMs` moves as the session is used. */
type CachedSession = { session: Session; endsMs: number; seenMs: number };

/** Opens the sessions with their cache. */
export function openSessions({ db, bus, config, nowMs }: SessionOptions): Sessions {
  const idleSeconds = config.sessionIdleSeconds;
  const idleMs = idleSeconds * 1000;
  // Often enough that a session in use never reaches its idle time.
  const touchEveryMs = Math.min(TOUCH_EVERY_MS, idleMs / 4);
  // In batches: anybody can make up cookies, and each is looked up.
  const load = createBatchLoader((digests) => loadSessions({ db }, digests, idleSeconds));
  const { get, drop, counters, close } = openCachedLookup<CachedSession>({
    bus,
    nowMs,
    max: SESSIONS_MAX,
    missesMax: MISSES_MAX,
    ttlMs: config.cacheTtlMs,
    load: async (digestHex) => {
      const askedMs = nowMs();
      const stored = await load(digestHex);
      if (!stored) return undefined;
      const { endsInMs, unseenMs, ...session } = stored;
      return { session, endsMs: askedMs + endsInMs, seenMs: askedMs - unseenMs };
    },
    kinds: ["session", "account"],
    tagsOf,
  });

  /** Whether the session has not ended. Records its use in the database, at most once a minute. */
  async function use(found: CachedSession): Promise<boolean> {
    const now = nowMs();
    if (now >= found.endsMs) return false;
    if (now - found.seenMs < touchEveryMs) return true;
    found.seenMs = now; // Before the await, so that concurrent requests do not write too.
    return touchSession({ db }, Buffer.from(found.session.digestHex, "hex"), idleSeconds);
  }

  return {
    async begin({ device, ...owner }) {
      const { token, digest } = newToken();
      const csrfToken = randomToken();
      const ages = { idleSeconds, maxSeconds: config.sessionMaxSeconds };
      const session = { ...owner, ...storedDevice(device), digest, csrfToken };
      const expiresAt = await insertSession({ db, bus }, session, ages);
      return expiresAt === undefined ? undefined : { token, csrfToken, expiresAt };
    },

    async find(token, host) {
      const digest = digestOfToken(token);
      if (digest === undefined) return undefined;
      const found = await get(digest.toString("hex"));
      if (!found || found.session.host !== host) return undefined;
      if (await use(found)) return found.session;
      drop(digestTag(found.session.digestHex));
      return undefined;
    },

    async end({ person: { accountId }, digestHex }) {
      await deleteSession({ db, bus }, { accountId, digest: Buffer.from(digestHex, "hex") });
    },

    async endListed(accountId, sessionId) {
      if (!SESSION_ID_FORM.test(sessionId)) return false;
      return deleteListedSession({ db, bus }, { accountId, sessionId });
    },

    endAll: (accountId, keep) =>
      deleteSessionsOf({ db, bus }, { accountId, ...(keep && { keep: Buffer.from(keep.digestHex, "hex") }) }),
    list: (accountId) => listSessions({ db }, accountId, idleSeconds),
    counters,
    close,
  };
}

function storedDevice({ userAgent, address }: Device): Device {
  return {
    userAgent: plainText(userAgent, USER_AGENT_CHARS_MAX),
    address: plainText(address, ADDRESS_CHARS_MAX),
  };
}

/** A header can contain anything: only printable text of limited length is stored. */
function plainText(text: string, charsMax: number): string {
  return [...text.replace(/[\p{Cc}\p{Cs}]/gu, "")].slice(0, charsMax).join("");
}

/** A change of the session's person, of the account that they work in, of its reseller, and of the account it views. */
function tagsOf({ session }: CachedSession): string[] {
  const { digestHex, person, accountId, tenantId, viewing } = session;
  const tags = [digestTag(digestHex), `session:${person.accountId}`, `account:${person.accountId}`];
  if (accountId !== person.accountId) tags.push(`account:${accountId}`);
  if (tenantId !== 0) tags.push(`account:${tenantId}`);
  if (viewing) tags.push(`account:${viewing.accountId}`);
  return tags;
}

function digestTag(digestHex: string): string {
  return `digest:${digestHex}`;
}
