import { LRUCache } from "lru-cache";
import { Refusal } from "../errors.ts";
import type { Bus } from "../platform/bus.ts";
import type { DatabaseClock } from "./clock_store.ts";
import type { Hold, Ledger } from "./ledger.ts";
import type { Ask } from "./ledger_store.ts";

/**
 * Refused traffic is cheap: what the ledger has just refused is refused from memory, so that a flood on an exhausted key
 * costs the database four rows a second, and not one a request. An answer counts from the moment the ledger was asked for
 * it, and is given to those who come within `REMEMBERED_MS` of that, also while it is still on its way. Who comes later asks
 * the ledger, and those behind him hear what he hears, if it is a refusal. Memory only refuses: every grant is the ledger's.
 *
 * Turned at once: by whatever the bus tells of the account (package, top-up, balance on or off, keys), by the end of a hold
 * of the account in this replica, and by the quota's reset. What happens elsewhere and is not told, as the end of another
 * replica's hold, is known within `REMEMBERED_MS`.
 */

/** Nobody is refused by an answer that was asked for longer than this before he came. */
const REMEMBERED_MS = 250;
/** Accounts known at once, and of each the questions that were refused last. */
const ACCOUNTS_MAX = 5_000;
const QUESTIONS_MAX = 32;
/** Refusals that are true of the amount asked for and of larger ones. The others are, whatever the amount. */
const BY_AMOUNT = ["insufficient_balance", "key_spend_limit_exceeded"];

type Options = {
  bus: Pick<Bus, "subscribe" | "onGap">;
  clock: DatabaseClock;
  /** The monotonic clock, in ms. */
  nowMs: () => number;
  /** Told of each request that was refused without asking the ledger. */
  onRemembered?: () => void;
  /** Told of each that waited for an answer which the time limit ended. */
  onShed?: (reason: "ledger_timeout") => void;
};

type Account = {
  tenantId: number;
  /** How often something happened that may turn a refusal. */
  turns: number;
  /** What was refused, by `questionOf`. */
  asked: Map<string, Asked>;
};

/** A request that asked the ledger, for itself and for others with the same question. */
type Asked = {
  atMs: number;
  turns: number;
  leastPico: bigint;
  /** undefined: it has none yet; null: none that others can be told. */
  answer: Answer | undefined | null;
  /** The same, for those who wait; and that the ledger is out of reach. */
  answered: Promise<Answer | null>;
};
type Answer = { refusal: Refusal; resetsAtMs: number };

/** The same ledger, which does not ask the database again for what it has just refused. */
export function rememberRefused(ledger: Ledger, options: Options): Ledger {
  const { bus, clock, nowMs, onRemembered, onShed } = options;
  const accounts = new LRUCache<number, Account>({ max: ACCOUNTS_MAX });

  bus.subscribe((changes) => {
    // A host, or a model: whoever uses it.
    if (changes.some(({ kind }) => kind === "host" || kind === "catalog")) accounts.clear();
    const refs = new Set(changes.filter(({ kind }) => kind === "account").map(({ ref }) => Number(ref)));
    if (refs.size === 0) return;
    for (const [id, account] of accounts) if (refs.has(id) || refs.has(account.tenantId)) account.turns++;
  });
  bus.onGap(() => accounts.clear());

  /** Units or money came free, in the database before it is told here. */
  function turn(accountId: number): void {
    const account = accounts.get(accountId);
    if (account) account.turns++;
  }

  function accountOf({ accountId, tenantId }: Ask): Account {
    const known = accounts.get(accountId);
    if (known) return known;
    const account: Account = { tenantId, turns: 0, asked: new Map() };
    accounts.set(accountId, account);
    return account;
  }

  function reserve(ask: Ask): Promise<Hold> {
    const account = accountOf(ask);
    const cameMs = nowMs();
    // Most accounts were refused nothing.
    const known = account.asked.size === 0 ? undefined : account.asked.get(questionOf(ask));
    if (known === undefined) return askFirst(account, ask, cameMs);
    return speaksFor(known, account, { ask, cameMs })
      ? hear(known, account, { ask, cameMs })
      : probe(account, ask, cameMs);
  }

  /** Nothing like it was refused: nobody waits for it, but its refusal is remembered. */
  async function askFirst(account: Account, ask: Ask, atMs: number): Promise<Hold> {
    const { turns } = account;
    try {
      return await ledger.reserve(ask);
    } catch (error) {
      const answer = answerOf(error);
      const answered = Promise.resolve(answer);
      if (isDecision(answer)) remember(account, ask, { atMs, turns, leastPico: leastPicoOf(ask), answer, answered });
      throw error;
    }
  }

  /** Something like it was refused: those behind it wait for what it hears. */
  async function probe(account: Account, ask: Ask, atMs: number): Promise<Hold> {
    const { promise: answered, resolve } = Promise.withResolvers<Answer | null>();
    const asked: Asked = { atMs, turns: account.turns, leastPico: leastPicoOf(ask), answer: undefined, answered };
    remember(account, ask, asked);
    let answer: Answer | null = null;
    try {
      const hold = await ledger.reserve(ask);
      // It is refused no more.
      account.asked.delete(questionOf(ask));
      return hold;
    } catch (error) {
      answer = answerOf(error);
      throw error;
    } finally {
      asked.answer = isDecision(answer) ? answer : null;
      resolve(answer);
    }
  }

  /** Throws what another request was told. If that was a grant, or of the day before, asks by itself. */
  async function hear(asked: Asked, account: Account, { ask, cameMs }: Coming): Promise<Hold> {
    const answer = asked.answer ?? (await asked.answered);
    if (answer === null || cameMs >= answer.resetsAtMs) return askFirst(account, ask, cameMs);
    if (isDecision(answer)) onRemembered?.();
    else onShed?.("ledger_timeout");
    throw refusalFor(answer.refusal, ask);
  }

  function answerOf(error: unknown): Answer | null {
    // What went wrong with one row says nothing of the others.
    if (!(error instanceof Refusal) || error.code === "internal_error") return null;
    const { resetsAt } = error.facts;
    return { refusal: error, resetsAtMs: resetsAt ? clock.earliestMs(resetsAt) : Number.POSITIVE_INFINITY };
  }

  return {
    ...ledger,
    reserve,
    async settle(hold, usage, end) {
      try {
        return await ledger.settle(hold, usage, end);
      } finally {
        turn(hold.accountId);
      }
    },
    async release(hold, reason) {
      try {
        return await ledger.release(hold, reason);
      } finally {
        turn(hold.accountId);
      }
    },
    reap: (requestId, accountId) => ledger.reap(requestId, accountId).finally(() => turn(accountId)),
    replaySpool: () => ledger.replaySpool().finally(() => accounts.clear()),
  };
}

/** A request, and when it came. */
type Coming = { ask: Ask; cameMs: number };

/** Whether what the ledger told, or is about to tell, one request is true of another with the same question. */
function speaksFor({ atMs, turns, leastPico, answer }: Asked, account: Account, { ask, cameMs }: Coming): boolean {
  if (answer === null || turns !== account.turns || cameMs - atMs >= REMEMBERED_MS) return false;
  if (answer !== undefined && cameMs >= answer.resetsAtMs) return false;
  const whateverAmount = answer !== undefined && !BY_AMOUNT.includes(answer.refusal.code);
  return whateverAmount || leastPicoOf(ask) >= leastPico;
}

/** The ledger has decided: it was not out of reach. */
function isDecision(answer: Answer | null): answer is Answer {
  return answer !== null && answer.refusal.code !== "service_unavailable";
}

function remember({ asked }: Account, ask: Ask, latest: Asked): void {
  const question = questionOf(ask);
  const known = asked.get(question);
  if (known !== undefined && known.atMs > latest.atMs) return;
  asked.delete(question); // A map is in the order of its keys' coming.
  const [oldest] = asked.keys();
  if (oldest !== undefined && asked.size >= QUESTIONS_MAX) asked.delete(oldest);
  asked.set(question, latest);
}

/** What the ledger's decision depends on, beside the account and the amounts. */
function questionOf({ keyId, modelId, host, outputPico }: Ask): string {
  return `${keyId} ${outputPico < 0n ? "unpriced" : "priced"} ${host} ${modelId}`;
}

/** The least that a balance has to cover, in pico-USD: the prompt, and the lowest cap that makes sense. */
function leastPicoOf({ promptPico, outputPico, capMin, capMax }: Ask): bigint {
  return outputPico < 0n ? 0n : promptPico + BigInt(Math.min(capMin, capMax)) * outputPico;
}

/** What another request was told, in this one's words: what it would take is its own amount. */
function refusalFor(refusal: Refusal, ask: Ask): Refusal {
  if (refusal.code !== "insufficient_balance") return refusal;
  return new Refusal(refusal.code, { ...refusal.facts, limit: Number((leastPicoOf(ask) + 999n) / 1000n) });
}
