import { type Base, close } from "../platform/base.ts";
import { createFailedAttemptLimiter } from "../platform/failed_attempt_limit.ts";
import { openBrandLookup } from "./brand_lookup.ts";
import { startDomainChecks } from "./domain_checks.ts";
import { openHostLookup } from "./host_lookup.ts";
import { ownHosts } from "./host_names.ts";
import { startIdentityProofs } from "./identity_proofs.ts";
import { openKeyLookup } from "./key_lookup.ts";
import { openKeyUses } from "./key_uses.ts";
import { lossBoundsOf, openLosses } from "./losses.ts";
import { openSessions } from "./sessions.ts";
import { openTokenLookup } from "./token_lookup.ts";

/** Ten wrong passwords in a quarter of an hour, counted by account and by address. */
const SIGN_IN_POINTS = 10;
const SIGN_IN_WINDOW_SECONDS = 900;

export type AccountParts = ReturnType<typeof openAccounts>;

export function openAccounts({ closing, ...base }: Base) {
  const { config, log, db, bus, metrics, nowMs } = base;
  return {
    keys: closing.adopt(openKeyLookup(base), close),
    keyUses: openKeyUses({ db, log, nowMs }),
    hosts: closing.adopt(openHostLookup(base), close),
    brands: closing.adopt(openBrandLookup(base), close),
    sessions: closing.adopt(openSessions(base), close),
    /** Tokens of the management API. */
    apiTokens: closing.adopt(openTokenLookup(base), close),
    /** The service's own hosts. */
    ownHosts: ownHosts(config),
    /** Those own hosts that serve the API. */
    apiHosts: ownHosts({ ...config, panelUrl: config.baseUrl }),
    /** Those own hosts that serve the panel. */
    panelHosts: ownHosts({ ...config, baseUrl: config.panelUrl, aliasUrl: "" }),
    /** What the operator bears of requests that nobody pays, and who is stopped for it. */
    losses: openLosses({ db, log, nowMs, metrics, bounds: lossBoundsOf(config) }),
    domainChecks: startDomainChecks({ db, bus, config, log }),
    identityProofs: startIdentityProofs({ db, bus, config, log }),
    signInLimiter: closing.adopt(
      createFailedAttemptLimiter({
        redisUrl: config.redisUrl,
        points: SIGN_IN_POINTS,
        windowSeconds: SIGN_IN_WINDOW_SECONDS,
        name: "sign-in",
        log,
      }),
      close,
    ),
  };
}
