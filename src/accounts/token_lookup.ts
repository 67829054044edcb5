import type { Config } from "../config.ts";
import { createBatchLoader } from "../platform/batch_loader.ts";
import type { Bus } from "../platform/bus.ts";
import type { CacheCounters } from "../platform/cache.ts";
import { openCachedLookup } from "../platform/cached_lookup.ts";
import { digestOfApiToken } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import { type Scope, scopesNow } from "./scopes.ts";
import { loadTokens, type TokenSnapshot, touchToken } from "./tokens_store.ts";

/**
 * Tokens of the management API by their SHA-256 digest, from memory. A change of the token's account or its tokens, or of its maker or their
 * membership, drops the entry: a scope that the maker has lost no longer counts. What else does: cached_lookup.ts.
 */

const TOKENS_MAX = 10_000;
const MISSES_MAX = 10_000;
/** A use is recorded at most so often. */
const TOUCH_EVERY_MS = 60_000;

export type FoundToken = Omit<TokenSnapshot, "scopes" | "endsInMs" | "unusedMs"> & { scopes: ReadonlySet<Scope> };

export type TokenLookup = {
  /** The token with this secret, if it and its owner are active. Records its use. */
  find(secret: string): Promise<FoundToken | undefined>;
  readonly counters: Readonly<CacheCounters>;
  close(): void;
};

type Options = { db: Db; bus: Bus; config: Pick<Config, "cacheTtlMs">; nowMs: () => number };
/** Times on the monotonic clock; `usedMs` moves as the token is used. */
type Cached = { token: FoundToken; endsMs: number; usedMs: number };

/** Opens the lookup. */
export function openTokenLookup({ db, bus, config, nowMs }: Options): TokenLookup {
  const load = createBatchLoader((digests) => loadTokens({ db }, digests));
  const { get, counters, close } = openCachedLookup<Cached>({
    bus,
    nowMs,
    max: TOKENS_MAX,
    missesMax: MISSES_MAX,
    ttlMs: config.cacheTtlMs,
    load: async (digestHex) => {
      const askedMs = nowMs();
      const stored = await load(digestHex);
      if (stored === undefined) return undefined;
      const { scopes, endsInMs, unusedMs, ...rest } = stored;
      return {
        token: { ...rest, scopes: scopesNow(scopes, rest.role, rest.member) },
        endsMs: endsInMs === null ? Infinity : askedMs + endsInMs,
        usedMs: unusedMs === null ? -Infinity : askedMs - unusedMs,
      };
    },
    kinds: ["session", "account"],
    tagsOf: ({ token: { accountId, madeBy } }) =>
      [...new Set([accountId, madeBy])].flatMap((id) => [`session:${id}`, `account:${id}`]),
  });

  return {
    async find(secret) {
      const digest = digestOfApiToken(secret);
      const found = digest === undefined ? undefined : await get(digest);
      const now = nowMs();
      if (found === undefined || now >= found.endsMs) return undefined;
      if (now - found.usedMs >= TOUCH_EVERY_MS) {
        found.usedMs = now; // Before the await, so that concurrent requests do not write too.
        await touchToken({ db }, found.token.tokenId);
      }
      return found.token;
    },
    counters,
    close,
  };
}
