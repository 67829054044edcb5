import { LRUCache } from "lru-cache";
import { Refusal } from "../errors.ts";
import type { Bus } from "../platform/bus.ts";
import type { DatabaseClock } from "../platform/database_clock_store.ts";
import type { Metrics } from "../platform/metrics.ts";
import type { Hold, Ledger } from "./ledger.ts";
import type { ReserveRequest } from "./ledger_store.ts";

/**
 * Refuses from memory what the database refused a moment ago, so that a flood on an exhausted key costs the database four
 * rows a second and not one per request. A refusal is valid for `VALID_MS` after the ledger was asked, also while its answer
 * is on the way. The first request after that asks again, and the requests behind it share its answer if it is a refusal.
 * A refusal that running requests may end at any moment (`isPassing`) is not kept: only requests that wait for it get it.
 * The cache only refuses: every grant is the database's.
 *
 * Invalidated immediately by: a change of the account or its reseller on the bus (package, top-up, pay-as-you-go, keys, hosts), the end of a hold of
 * the account in this replica, and the quota's reset. Other changes, such as the end of another replica's hold, are noticed
 * within `VALID_MS`.
 */

/** A cached refusal applies to requests that arrive within this time after the ledger was asked. */
const VALID_MS = 250;
const ACCOUNTS_MAX = 5_000;
/** Per account: the newest ones stay. */
const REFUSALS_MAX = 32;
/** These refusals apply to the same amount and to larger ones. All others apply to any amount. */
const BY_AMOUNT = ["insufficient_balance", "key_spend_limit_exceeded"];

type Options = {
  bus: Pick<Bus, "subscribe" | "onGap">;
  clock: Pick<DatabaseClock, "earliestMs">;
  /** The monotonic clock, in ms. */
  nowMs: () => number;
  metrics?: Pick<Metrics, "refusalRemembered" | "shed"> | undefined;
};

type Account = {
  tenantId: number;
  /** Incremented by every event that may invalidate a refusal. */
  version: number;
  /** The newest inquiry for each `questionOf`. */
  inquiries: Map<string, Inquiry>;
};

/** A request that asks the database, for itself and for later requests with the same question. */
type Inquiry = {
  atMs: number;
  /** The account's version when it was made. */
  version: number;
  least: Least;
  /** undefined: no answer yet; null: no answer that applies to other requests. */
  answer: Answer | undefined | null;
  /** The same for requests that wait. It also tells them that the database is away. */
  answered: Promise<Answer | null>;
};
type Answer = { refusal: Refusal; resetsAtMs: number };
/** The smallest amounts that must be left: in pico-USD, and of a token allowance. For the prompt and the lowest acceptable output cap. */
type Least = { pico: bigint; tokens: number };
/** A request, and when it arrived. */
type Arrival = { request: ReserveRequest; atMs: number };

/** The same ledger with a cache of refusals in front. */
export function cacheRefusals(ledger: Ledger, options: Options): Ledger {
  const cache = new RefusalCache(ledger, options);
  ledger.onEnd((accountId) => cache.invalidate(accountId));
  return {
    ...ledger,
    reserve: (request) => cache.reserve(request),
    replaySpool: () => ledger.replaySpool().finally(() => cache.clear()),
  };
}

class RefusalCache {
  readonly #ledger: Ledger;
  readonly #options: Options;
  readonly #accounts = new LRUCache<number, Account>({ max: ACCOUNTS_MAX });

  constructor(ledger: Ledger, options: Options) {
    this.#ledger = ledger;
    this.#options = options;
    subscribe(options.bus, this.#accounts);
  }

  /** Units or money became available. The database knew before this is called. */
  invalidate(accountId: number): void {
    const account = this.#accounts.get(accountId);
    if (account) account.version++;
  }

  clear(): void {
    this.#accounts.clear();
  }

  reserve(request: ReserveRequest): Promise<Hold> {
    const account = accountOf(this.#accounts, request);
    const atMs = this.#options.nowMs();
    // Most accounts have no refusals.
    const known = account.inquiries.size === 0 ? undefined : account.inquiries.get(questionOf(request));
    if (known === undefined) return this.#askAlone(account, request, atMs);
    return appliesTo(known, account, { request, atMs })
      ? this.#share(known, account, { request, atMs })
      : this.#askForOthers(account, request, atMs);
  }

  /** No such refusal is known: no request waits for this one, but its refusal is cached. */
  async #askAlone(account: Account, request: ReserveRequest, atMs: number): Promise<Hold> {
    const { version } = account;
    try {
      return await this.#ledger.reserve(request);
    } catch (error) {
      const answer = toAnswer(error, this.#options.clock);
      const answered = Promise.resolve(answer);
      if (isDecision(answer))
        remember(account, request, { atMs, version, least: leastOf(request), answer: lasting(answer), answered });
      throw error;
    }
  }

  /** Such a refusal is known, but no longer valid: requests that arrive meanwhile wait for the answer to this one. */
  async #askForOthers(account: Account, request: ReserveRequest, atMs: number): Promise<Hold> {
    const { promise: answered, resolve } = Promise.withResolvers<Answer | null>();
    const { version } = account;
    const inquiry: Inquiry = { atMs, version, least: leastOf(request), answer: undefined, answered };
    remember(account, request, inquiry);
    let answer: Answer | null = null;
    try {
      const hold = await this.#ledger.reserve(request);
      account.inquiries.delete(questionOf(request));
      return hold;
    } catch (error) {
      answer = toAnswer(error, this.#options.clock);
      throw error;
    } finally {
      inquiry.answer = isDecision(answer) ? lasting(answer) : null;
      resolve(answer);
    }
  }

  /** Throws the refusal of another request. If that was granted, or refused before the quota's reset, asks by itself. */
  async #share(inquiry: Inquiry, account: Account, { request, atMs }: Arrival): Promise<Hold> {
    const answer = inquiry.answer ?? (await inquiry.answered);
    if (answer === null || atMs >= answer.resetsAtMs) return this.#askAlone(account, request, atMs);
    if (isDecision(answer)) this.#options.metrics?.refusalRemembered();
    else this.#options.metrics?.shed("ledger_timeout");
    throw refusalFor(answer.refusal, request);
  }
}

function subscribe(bus: Options["bus"], accounts: LRUCache<number, Account>): void {
  bus.subscribe((changes) => {
    // A change of a model may concern any account.
    if (changes.some(({ kind }) => kind === "catalog")) accounts.clear();
    const refs = new Set(changes.filter(({ kind }) => kind === "account").map(({ ref }) => Number(ref)));
    if (refs.size === 0) return;
    for (const [id, account] of accounts) if (refs.has(id) || refs.has(account.tenantId)) account.version++;
  });
  bus.onGap(() => accounts.clear());
}

function accountOf(accounts: LRUCache<number, Account>, { accountId, tenantId }: ReserveRequest): Account {
  const known = accounts.get(accountId);
  if (known) return known;
  const account: Account = { tenantId, version: 0, inquiries: new Map() };
  accounts.set(accountId, account);
  return account;
}

function toAnswer(error: unknown, clock: Options["clock"]): Answer | null {
  // An error about one row says nothing about the others.
  if (!(error instanceof Refusal) || error.code === "internal_error") return null;
  const { resetsAt } = error.facts;
  return { refusal: error, resetsAtMs: resetsAt ? clock.earliestMs(resetsAt) : Number.POSITIVE_INFINITY };
}

/** Whether the present or coming answer to an inquiry is also true for another request with the same question. */
function appliesTo(inquiry: Inquiry, account: Account, { request, atMs }: Arrival): boolean {
  const { answer } = inquiry;
  if (answer === null || inquiry.version !== account.version || atMs - inquiry.atMs >= VALID_MS) return false;
  if (answer !== undefined && atMs >= answer.resetsAtMs) return false;
  const anyAmount = answer !== undefined && !BY_AMOUNT.includes(answer.refusal.code);
  const least = leastOf(request);
  return anyAmount || (least.pico >= inquiry.least.pico && least.tokens >= inquiry.least.tokens);
}

/** null: the answer is only for those who wait for it. What running requests hold comes back at any moment, in any replica. */
function lasting(answer: Answer): Answer | null {
  return answer.refusal.facts.isPassing === true ? null : answer;
}

/** Whether the database decided, and was not away. */
function isDecision(answer: Answer | null): answer is Answer {
  return answer !== null && answer.refusal.code !== "service_unavailable";
}

function remember({ inquiries }: Account, request: ReserveRequest, latest: Inquiry): void {
  const question = questionOf(request);
  const known = inquiries.get(question);
  if (known !== undefined && known.atMs > latest.atMs) return;
  inquiries.delete(question); // A Map keeps insertion order: the first key is the oldest.
  const [oldest] = inquiries.keys();
  if (oldest !== undefined && inquiries.size >= REFUSALS_MAX) inquiries.delete(oldest);
  inquiries.set(question, latest);
}

/** What the decision depends on, beside the account and the amounts. */
function questionOf({ keyId, modelId, host, outputPico }: ReserveRequest): string {
  return `${keyId} ${outputPico < 0n ? "unpriced" : "priced"} ${host} ${modelId}`;
}

function leastOf({ promptPico, outputPico, capMin, capMax, promptTokens, choices }: ReserveRequest): Least {
  const cap = Math.min(capMin, capMax);
  return {
    pico: outputPico < 0n ? 0n : promptPico + BigInt(cap) * outputPico,
    tokens: promptTokens + cap * choices,
  };
}

/** Another request's refusal with this request's own amount. */
function refusalFor(refusal: Refusal, request: ReserveRequest): Refusal {
  if (refusal.code !== "insufficient_balance") return refusal;
  return new Refusal(refusal.code, { ...refusal.facts, limit: Number((leastOf(request).pico + 999n) / 1000n) });
}
