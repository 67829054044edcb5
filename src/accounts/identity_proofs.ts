import type { Config } from "../config.ts";
import type { Bus } from "../platform/bus.ts";
import type { Db } from "../platform/db.ts";
import { type DnsAnswer, QUESTIONS_MAX, queryDns } from "../platform/dns_query.ts";
import { every } from "../platform/every.ts";
import type { Log } from "../platform/log.ts";
import { proofNameOf } from "./domain_records.ts";
import { type DueProofs, finishProofs, type Proof, startDueProofs } from "./identity_providers_store.ts";

/** Looks for the TXT records by which resellers prove mail domains: when one asks, and regularly, each in any one replica. Source: OIDC-3, OIDC-11. */

/** How often each replica looks for due checks. */
const TICK_MS = 600_000;
/** Providers that one replica checks at once: resolvers limit their clients. */
const DUE_AT_ONCE = 4;
/** Time limit for QUESTIONS_MAX domains. */
const DNS_MS_MAX = 3_000;
/** A replica that shuts down waits this long. What was not finished is checked again when it is next due. */
const CLOSE_MS_MAX = DNS_MS_MAX + 1_000;

type DnsConfig = Pick<Config, "dnsResolvers">;

export type IdentityProofs = { close(): Promise<void> };

/** Starts looking for due checks. `tickMs` 0: `checkDue` alone does. */
export function startIdentityProofs({
  tickMs = TICK_MS,
  ...deps
}: {
  db: Db;
  bus: Bus;
  config: DnsConfig;
  log: Log;
  tickMs?: number;
}): IdentityProofs & { checkDue(): Promise<void> } {
  let isClosed = false;

  async function check({ domains, proofToken, ...ref }: DueProofs): Promise<void> {
    const { sellerId, identityProviderId } = ref;
    const proofs = await lookForProofs(deps.config, { domains, proofToken });
    const ended = await finishProofs(deps, { ...ref, proofs });
    for (const domain of ended)
      deps.log.info({ sellerId, identityProviderId, domain }, "the proof of a mail domain has ended");
  }

  /** Runs checks until none is due. Throws the first failure, after the others have ended. */
  async function checkDue(): Promise<void> {
    while (!isClosed) {
      const due = await startDueProofs(deps, DUE_AT_ONCE);
      const results = await Promise.allSettled(due.map(check));
      const failed = results.find((result) => result.status === "rejected");
      if (failed) throw failed.reason;
      if (due.length < DUE_AT_ONCE) break;
    }
  }

  const failure = "the proofs of mail domains could not be checked";
  const job =
    tickMs > 0
      ? every({ name: "identity_proofs", ms: tickMs, run: checkDue, log: deps.log, failure, closeMs: CLOSE_MS_MAX })
      : undefined;
  return {
    checkDue,
    async close() {
      isClosed = true;
      await job?.close();
    },
  };
}

/** What every resolver has of each domain's TXT record. Source: DOM-2. */
export async function lookForProofs(
  { dnsResolvers }: DnsConfig,
  { domains, proofToken }: { domains: readonly string[]; proofToken: string },
): Promise<Map<string, Proof>> {
  const proofs = new Map<string, Proof>();
  for (let at = 0; at < domains.length; at += QUESTIONS_MAX) {
    const some = domains.slice(at, at + QUESTIONS_MAX);
    const questions = some.map((domain) => ({ name: proofNameOf(domain), type: "TXT" as const }));
    const answers = await Promise.all(dnsResolvers.map((resolver) => queryDns(resolver, questions, DNS_MS_MAX)));
    for (const [i, domain] of some.entries())
      proofs.set(
        domain,
        proofOf(
          answers.map((ofResolver) => ofResolver[i]),
          proofToken,
        ),
      );
  }
  return proofs;
}

function proofOf(answers: readonly (DnsAnswer | undefined)[], token: string): Proof {
  const answered = answers.filter((answer) => answer?.failure === null);
  const hasToken = (answer: DnsAnswer | undefined) =>
    answer?.records.some(({ type, value }) => type === "TXT" && value === token) === true;
  if (!answered.every(hasToken)) return "gone";
  return answered.length === answers.length ? "found" : "unknown";
}
