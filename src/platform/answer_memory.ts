import type { ShedReason } from "./metrics.ts";
import type { Fractions, Owner } from "./share_limit.ts";

/**
 * The memory of this replica for what providers have sent and cannot be passed on yet: events whose end has not arrived, and events before
 * the one that begins an answer. A provider decides how much that is, so no request can be refused for it in advance. When the memory, or
 * the share of an account or a tenant, is full, the largest answer of the account that holds most is ended, and no other.
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
      largest(holding.answers).end();
    };
    while (grown.bytes > this.#accountMax) end(grown, "answer_bytes_per_account");
    while (ofTenant() > this.#tenantMax) {
      const own = [...this.#accounts.values()].filter((holding) => holding.tenantId === tenantId);
      end(largest(own), "answer_bytes_per_tenant");
    }
    while (this.#bytes > max) end(largest(this.#accounts.values()), "answer_bytes_full");
  }
}

/** What one answer holds. */
export class HeldAnswer {
  readonly owner: Owner;
  bytes = 0;
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

/** The one with the most bytes, of at least one. */
function largest<T extends { bytes: number }>(all: Iterable<T>): T {
  let found: T | undefined;
  for (const one of all) if (found === undefined || one.bytes > found.bytes) found = one;
  if (found === undefined) throw new Error("nothing is held");
  return found;
}
