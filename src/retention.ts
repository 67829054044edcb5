import { pruneAudit } from "./accounts/audit_store.ts";
import { pruneEmailChanges } from "./accounts/email_changes_store.ts";
import { pruneForms } from "./accounts/forms_store.ts";
import { pruneIdentitySignIns } from "./accounts/identities_store.ts";
import { pruneKeys } from "./accounts/keys_store.ts";
import { pruneInvitations } from "./accounts/member_invitations_store.ts";
import { pruneChallenges } from "./accounts/passkeys_store.ts";
import { pruneRefusals } from "./accounts/refusal_counts_store.ts";
import { pruneSessions } from "./accounts/sessions_store.ts";
import { pruneAnswerSums } from "./catalog/answer_sums_store.ts";
import { pruneBoundUses } from "./catalog/bound_uses_store.ts";
import { prunePauses } from "./catalog/key_states_store.ts";
import { pruneRouteStats } from "./catalog/route_stats_store.ts";
import { pruneIncidents } from "./commerce/incidents_store.ts";
import { pruneOrders } from "./commerce/orders_store.ts";
import { pruneSignUps } from "./commerce/sign_ups_store.ts";
import { pruneGuesses } from "./commerce/voucher_guesses_store.ts";
import { pruneVouchers } from "./commerce/vouchers_store.ts";
import type { Deps } from "./deps.ts";
import { turnResponseDays } from "./gateway/responses/stored_responses_store.ts";
import { pruneOutbox } from "./messages/deliveries_store.ts";
import { pruneWrites } from "./operations/writes_store.ts";
import { pruneChanges } from "./platform/changes_store.ts";
import { within } from "./platform/time_limit.ts";

/**
 * What is kept, and how long: the upkeep deletes by this list, and the table in docs/retention.md is made from it
 * (`bun scripts/retention_table.ts --write`).
 */

/** How long pruning one kind may take. */
const PRUNE_MS_MAX = 120_000;

type PruneDeps = Pick<Deps, "db" | "bus" | "config" | "log">;

export type Kept = {
  /** What it is, and how long it is kept, for operators. */
  what: string;
  howLong: string;
  /** Deletes what is older, in slices; undefined: nothing here does. */
  prune?: (deps: PruneDeps) => Promise<unknown>;
  /** Kept for HISTORY_DAYS, or forever. */
  isHistory?: true;
};

/** By the name of the kind, in the order in which the kinds are pruned. */
export const KEPT: Readonly<Record<string, Kept>> = {
  receipts: {
    what: "receipts: one for each request, with its account, key, model, host, tokens and charge; no prompt, no answer",
    howLong: "`RECEIPTS_KEEP_MONTHS` (0: forever), or until `retention drop`; before that they are sealed",
  },
  totals: {
    what: "seals and totals of months, usage by quarter of an hour, day and month",
    howLong: "forever: the books count them",
  },
  money: {
    what: "transactions of balances, packages with their days, payments and refunds",
    howLong: "forever: the books count them",
  },
  invoices: {
    what: "invoices and credit notes, with the buyer's name and address",
    howLong: "forever: nothing can delete them, and the law of most countries asks for 6 to 10 years",
  },
  accounts: {
    what: "accounts and persons: name, e-mail address, password (hashed), settings, linked identities; domains, brands, identity providers",
    howLong: "forever",
  },
  changes: {
    what: "changes, by which replicas invalidate their caches",
    howLong: "an hour",
    prune: ({ db }) => pruneChanges(db),
  },
  sessions: {
    what: "sessions: browser, IP address, times",
    howLong: "`SESSION_IDLE_SECONDS` after the last use, at most `SESSION_MAX_SECONDS`",
    prune: (deps) => pruneSessions(deps, deps.config.sessionIdleSeconds),
  },
  challenges: { what: "challenges of passkeys", howLong: "minutes", prune: pruneChallenges },
  emailChanges: { what: "links that change an e-mail address", howLong: "2 days", prune: pruneEmailChanges },
  invitations: { what: "invitations of members", howLong: "30 days", prune: pruneInvitations },
  identitySignIns: {
    what: "sign-ins begun at an identity provider",
    howLong: "10 minutes",
    prune: pruneIdentitySignIns,
  },
  forms: { what: "sent forms, so that a second click does nothing", howLong: "a day", prune: pruneForms },
  signUps: { what: "sign-ups whose address was not confirmed", howLong: "2 days", prune: pruneSignUps },
  apiWrites: { what: "answers of the management API for an `Idempotency-Key`", howLong: "a day", prune: pruneWrites },
  guesses: { what: "counts of wrong voucher codes", howLong: "90 days", prune: pruneGuesses },
  refusals: { what: "refusals, counted by minute", howLong: "7 days", prune: pruneRefusals },
  routeStats: { what: "figures of routes", howLong: "25 hours, and by day 31 days", prune: pruneRouteStats },
  answerSums: { what: "sums of answered requests, for status pages", howLong: "92 days", prune: pruneAnswerSums },
  incidents: {
    ...ofHistory("incidents and maintenance that are over, at most 500 of a seller", pruneIncidents),
    howLong: "`HISTORY_DAYS` (400) after their end; 0: until they are removed",
  },
  boundUses: { what: "how much answers used of what was reserved for them", howLong: "30 days", prune: pruneBoundUses },
  pauses: { what: "pauses of providers' keys", howLong: "an hour after their end", prune: prunePauses },
  outbox: {
    what: "mails and webhook calls, with what they say",
    howLong:
      "30 days after delivery; that one was sent about a package or a renewal, 400 days; that a person was erased, 10 minutes",
    prune: pruneOutbox,
  },
  responses: {
    what: "stored responses, encrypted for each account; not in backups",
    howLong: "`RESPONSES_KEEP_HOURS` (24), and at most two days more until their day is dropped",
    prune: (deps) => turnResponseDays(deps, deps.config.responsesKeepHours),
  },
  idempotency: {
    what: "answers of an `Idempotency-Key` of the API, and the record that it was used (Redis)",
    howLong: "10 minutes, and a day",
  },
  checks: { what: "results of checks of the books", howLong: "the last 200" },
  audit: { ...ofHistory("audit log: who changed what, with the values before and after", pruneAudit) },
  keys: { ...ofHistory("revoked API keys: name, first and last characters", pruneKeys) },
  orders: {
    ...ofHistory("orders that were declined, withdrawn or fulfilled, unless they have a payment", pruneOrders),
  },
  vouchers: {
    ...ofHistory("vouchers, their codes and who redeemed them", pruneVouchers),
    howLong: "`HISTORY_DAYS` (400) after their end; 0: forever",
  },
};

function ofHistory(what: string, prune: (deps: PruneDeps, days: number) => Promise<unknown>): Kept {
  return {
    what,
    howLong: "`HISTORY_DAYS` (400); 0: forever",
    prune: (deps) => prune(deps, deps.config.historyDays),
    isHistory: true,
  };
}

/**
 * Deletes what is past its retention, one kind after the other and in slices, so that it uses one connection of the pool. A kind that
 * fails, or takes longer than `msMax`, is logged, and the others are deleted all the same. `late`: kinds that have not ended; they are left
 * out until they have. Throws if a kind failed.
 */
export async function pruneAll(
  deps: PruneDeps,
  { late = new Set(), msMax = PRUNE_MS_MAX }: { late?: Set<string>; msMax?: number } = {},
): Promise<void> {
  const { config, log } = deps;
  const failed: string[] = [];
  for (const [kind, { prune, isHistory }] of Object.entries(KEPT)) {
    if (!prune || late.has(kind) || (isHistory && config.historyDays === 0)) continue;
    late.add(kind);
    const pruning = prune(deps).finally(() => late.delete(kind));
    await within(msMax, pruning).catch((err: unknown) => {
      log.warn({ err, kind }, "pruning failed; it is tried again later");
      failed.push(kind);
    });
  }
  if (failed.length > 0) throw new Error(`not pruned: ${failed.join(", ")}`);
}
