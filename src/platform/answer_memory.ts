import type { ShedReason } from "./metrics.ts";
import type { Fractions, Owner } from "./share_limit.ts";

/**
 * The memory of this replica for what providers have sent and cannot be passed on yet: events whose end has not arrived, events before
 * the one that begins an answer, and whole answers, until their client has read them. Providers and clients decide how much that is, so no
 * request can be refused for it in advance. When the memory, or the share of an account or a tenant, is full, an answer of the account that
 * holds most is ended, and no other: the whole one of which nothing was read for longest, or if there is none the largest. A single answer may
 * be larger than a share.
 * Source: ADM-12.
 */

/** Why an answer was ended: for the log. */
export const ANSWER_MEMORY_FULL = "what the provider sent is too large for the memory that is left";

type Options = {
  /** Bytes of all answers. */
  max: number;
  fractions: Fractions;
  /** An account and a tenant may always hold this many bytes. */
  min: number;
  onShed: (reason: ShedReason) => void;
};

/** What the answers of one account hold. */
type Holding = { tenantId: number; bytes: number; answers: Set<HeldAnswer> };

export class AnswerMemory {
  readonly #options: Options;
  readonly #accountMax: number;
  readonly #tenantMax: number;
  readonly #accounts = new Map<number, Holding>();
  readonly #tenants = new Map<number, number>();
  #bytes = 0;
  /** How often a client has read something. */
  #reads = 0;

  constructor(options: Options) {
    const { max, fractions, min } = options;
    const partOf = (fraction: number) => Math.min(max, Math.max(min, Math.floor(max * fraction)));
    this.#options = options;
    this.#accountMax = partOf(fractions.account);
    this.#tenantMax = partOf(fractions.tenant);
  }

  /** Bytes that are held. */
  get held(): number {
    return this.#bytes;
  }

  /** An answer that holds nothing yet. `onFull`: it must end, because it holds the most. */
  open(owner: Owner, onFull: () => void): HeldAnswer {
    return new HeldAnswer(this, owner, onFull);
  }

  /** The number of the next time when a client reads something. */
  nextRead(): number {
    return ++this.#reads;
  }

  /** Called by a HeldAnswer: it holds so many bytes more, or fewer. */
  change(answer: HeldAnswer, bytes: number): void {
    const { accountId, tenantId } = answer.owner;
    const holding = this.#accounts.get(accountId) ?? { tenantId, bytes: 0, answers: new Set() };
    holding.bytes += bytes;
    if (answer.bytes === 0) holding.answers.delete(answer);
    else holding.answers.add(answer);
    if (holding.answers.size === 0) this.#accounts.delete(accountId);
    else this.#accounts.set(accountId, holding);
    const ofTenant = (this.#tenants.get(tenantId) ?? 0) + bytes;
    if (ofTenant === 0) this.#tenants.delete(tenantId);
    else this.#tenants.set(tenantId, ofTenant);
    this.#bytes += bytes;
    if (bytes > 0) this.#endLargest(holding);
  }

  /** Ends answers until what is held is within the limits again. */
  #endLargest(grown: Holding): void {
    const { max, onShed } = this.#options;
    const { tenantId } = grown;
    const ofTenant = () => (tenantId === 0 ? 0 : (this.#tenants.get(tenantId) ?? 0));
    const end = (holding: Holding, reason: ShedReason) => {
      onShed(reason);
      (leastRead(holding.answers) ?? largest(holding.answers)).end();
    };
    while (grown.bytes > this.#accountMax && grown.answers.size > 1) end(grown, "answer_bytes_per_account");
    while (ofTenant() > this.#tenantMax) {
      const own = [...this.#accounts.values()].filter((holding) => holding.tenantId === tenantId);
      if (own.length === 1 && own[0]?.answers.size === 1) break;
      end(largest(own), "answer_bytes_per_tenant");
    }
    while (this.#bytes > max) end(largest(this.#accounts.values()), "answer_bytes_full");
  }
}

/** What one answer holds. */
export class HeldAnswer {
  readonly owner: Owner;
  bytes = 0;
  /** When its client has last read something, or could have begun; undefined: it is not whole yet. */
  lastRead: number | undefined;
  /** It was ended because it held the most. */
  isFull = false;
  /** Told when that happens, inside `hold` of this answer or of another. */
  onFull: () => void;
  readonly #memory: AnswerMemory;
  #isClosed = false;

  constructor(memory: AnswerMemory, owner: Owner, onFull: () => void) {
    this.#memory = memory;
    this.owner = owner;
    this.onFull = onFull;
  }

  /** It holds so many bytes now. May end this answer or another one. */
  hold(bytes: number): void {
    const change = bytes - this.bytes;
    if (change === 0 || this.#isClosed) return;
    this.bytes = bytes;
    this.#memory.change(this, change);
  }

  /** It is whole, and its client reads it: some of it now, or it can begin. */
  wasRead(): void {
    this.lastRead = this.#memory.nextRead();
  }

  /** It holds nothing any more; idempotent. */
  close(): void {
    this.hold(0);
    this.#isClosed = true;
  }

  /** Called by the memory. */
  end(): void {
    this.close();
    this.isFull = true;
    this.onFull();
  }
}

/** The whole one of which nothing was read for longest. */
function leastRead(answers: Iterable<HeldAnswer>): HeldAnswer | undefined {
  let found: HeldAnswer | undefined;
  for (const one of answers)
    if (one.lastRead !== undefined && one.lastRead < (found?.lastRead ?? Number.POSITIVE_INFINITY)) found = one;
  return found;
}

/** The one with the most bytes, of at least one. */
function largest<T extends { bytes: number }>(all: Iterable<T>): T {
  let found: T | undefined;
  for (const one of all) if (found === undefined || one.bytes > found.bytes) found = one;
  if (found === undefined) throw new Error("nothing is held");
  return found;
}
