import { Refusal } from "../errors.ts";
import type { DatabaseClock } from "../platform/database_clock_store.ts";
import type { Metrics } from "../platform/metrics.ts";
import type { Hold } from "./ledger.ts";
import type { ReserveRequest } from "./ledger_store.ts";

/**
 * Refuses from memory what the database refused a moment ago, so that a flood on an exhausted key costs the database four
 * rows a second and not one per request. A refusal is valid for `VALID_MS` after the ledger was asked, also while its answer
 * is on the way. The first request after that asks again, and the requests behind it share its answer if it is a refusal.
 * A refusal that running requests may end at any moment (`isPassing`) is not kept: only requests that wait for it get it.
 * The memory only refuses: every grant is the database's, or of what was drawn ahead.
 *
 * It is a field of an account in the escrow, which tells it of changes: of the account or its reseller on the bus (package, top-up,
 * pay-as-you-go, keys, hosts), of the catalog, and the end of a hold of the account in this replica. The quota's reset ends a refusal, too.
 * Other changes, such as the end of another replica's hold, are noticed within `VALID_MS`.
 */

/** A refusal applies to requests that arrive within this time after the ledger was asked. */
const VALID_MS = 250;
/** Per account: the newest ones stay. */
const REFUSALS_MAX = 32;
/** These refusals apply to the same amount and to larger ones. All others apply to any amount. */
const BY_AMOUNT = ["insufficient_balance", "key_spend_limit_exceeded"];

/** How the ledger is asked. */
export type Asking = {
  ask: (request: ReserveRequest) => Promise<Hold>;
  clock: Pick<DatabaseClock, "earliestMs">;
  /** The monotonic clock, in ms. */
  nowMs: () => number;
  metrics?: Pick<Metrics, "refusalRemembered" | "shed"> | undefined;
};

/** A request that asks the database, for itself and for later requests with the same question. */
type Inquiry = {
  atMs: number;
  /** The memory's version when it was made. */
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

/** The recent refusals of one account. */
export class RefusalMemory {
  /** Incremented by every event that may invalidate a refusal. */
  #version = 0;
  /** The newest inquiry for each `questionOf`. Most accounts have none. */
  #inquiries: Map<string, Inquiry> | undefined;

  /** Units or money may have become available, or the rights are others. The database knew before this is called. */
  invalidate(): void {
    this.#version++;
  }

  /** Reserves, or throws a recent refusal. Throws what `ask` throws. */
  reserve(request: ReserveRequest, asking: Asking): Promise<Hold> {
    const atMs = asking.nowMs();
    const known = this.#inquiries?.get(questionOf(request));
    if (known === undefined) return this.#askAlone(request, atMs, asking);
    return this.#applies(known, request, atMs)
      ? this.#share(known, { request, atMs, asking })
      : this.#askForOthers(request, atMs, asking);
  }

  /** No such refusal is known: no request waits for this one, but its refusal is remembered. */
  async #askAlone(request: ReserveRequest, atMs: number, { ask, clock }: Asking): Promise<Hold> {
    const version = this.#version;
    try {
      return await ask(request);
    } catch (error) {
      const answer = toAnswer(error, clock);
      const answered = Promise.resolve(answer);
      if (isDecision(answer))
        this.#remember(request, { atMs, version, least: leastOf(request), answer: lasting(answer), answered });
      throw error;
    }
  }

  /** Such a refusal is known, but no longer valid: requests that arrive meanwhile wait for the answer to this one. */
  async #askForOthers(request: ReserveRequest, atMs: number, { ask, clock }: Asking): Promise<Hold> {
    const { promise: answered, resolve } = Promise.withResolvers<Answer | null>();
    const inquiry: Inquiry = { atMs, version: this.#version, least: leastOf(request), answer: undefined, answered };
    this.#remember(request, inquiry);
    let answer: Answer | null = null;
    try {
      const hold = await ask(request);
      this.#inquiries?.delete(questionOf(request));
      return hold;
    } catch (error) {
      answer = toAnswer(error, clock);
      throw error;
    } finally {
      inquiry.answer = isDecision(answer) ? lasting(answer) : null;
      resolve(answer);
    }
  }

  /** Throws the refusal of another request. If that was granted, or refused before the quota's reset, asks by itself. */
  async #share(
    inquiry: Inquiry,
    { request, atMs, asking }: { request: ReserveRequest; atMs: number; asking: Asking },
  ): Promise<Hold> {
    const answer = inquiry.answer ?? (await inquiry.answered);
    if (answer === null || atMs >= answer.resetsAtMs) return this.#askAlone(request, atMs, asking);
    if (isDecision(answer)) asking.metrics?.refusalRemembered();
    else asking.metrics?.shed("ledger_timeout");
    throw refusalFor(answer.refusal, request);
  }

  /** Whether the present or coming answer to an inquiry is also true for another request with the same question. */
  #applies(inquiry: Inquiry, request: ReserveRequest, atMs: number): boolean {
    const { answer } = inquiry;
    if (answer === null || inquiry.version !== this.#version || atMs - inquiry.atMs >= VALID_MS) return false;
    if (answer !== undefined && atMs >= answer.resetsAtMs) return false;
    const anyAmount = answer !== undefined && !BY_AMOUNT.includes(answer.refusal.code);
    const least = leastOf(request);
    return anyAmount || (least.pico >= inquiry.least.pico && least.tokens >= inquiry.least.tokens);
  }

  #remember(request: ReserveRequest, latest: Inquiry): void {
    this.#inquiries ??= new Map();
    const question = questionOf(request);
    const known = this.#inquiries.get(question);
    if (known !== undefined && known.atMs > latest.atMs) return;
    this.#inquiries.delete(question); // A Map keeps insertion order: the first key is the oldest.
    const [oldest] = this.#inquiries.keys();
    if (oldest !== undefined && this.#inquiries.size >= REFUSALS_MAX) this.#inquiries.delete(oldest);
    this.#inquiries.set(question, latest);
  }
}

function toAnswer(error: unknown, clock: Asking["clock"]): Answer | null {
  // An error about one row says nothing about the others.
  if (!(error instanceof Refusal) || error.code === "internal_error") return null;
  const { resetsAt } = error.facts;
  return { refusal: error, resetsAtMs: resetsAt ? clock.earliestMs(resetsAt) : Number.POSITIVE_INFINITY };
}

/** null: the answer is only for those who wait for it. What running requests hold comes back at any moment, in any replica. */
function lasting(answer: Answer): Answer | null {
  return answer.refusal.facts.isPassing === true ? null : answer;
}

/** Whether the database decided, and was not away. */
function isDecision(answer: Answer | null): answer is Answer {
  return answer !== null && answer.refusal.code !== "service_unavailable";
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
