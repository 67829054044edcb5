import { Refusal } from "../errors.ts";
import type { ShedReason } from "./metrics.ts";

/** What a client is told to wait for a share to come free; nobody knows when it does. */
const RETRY_AFTER_SECONDS = 1;

/** Whose a request is. Ids of 0 stand for nobody, and are not counted. */
export type Owner = {
  readonly accountId: number;
  /** The reseller that the account is, or is a customer of. */
  readonly tenantId: number;
};

/** The largest part of a replica that one account, and one tenant, may hold: from 0 to 1. */
export type Fractions = { readonly account: number; readonly tenant: number };

type Holder = "replica" | "account" | "tenant";

export type ShareLimitOptions = {
  /** How much the replica has. */
  max: number;
  fractions: Fractions;
  /** An account and a tenant may always hold this much. */
  min?: number;
  /** Its name in a refusal, as in "requests in flight". */
  what: string;
  reasons: Readonly<Record<Holder, ShedReason>>;
  onShed: (reason: ShedReason) => void;
};

/**
 * Something that a replica has a limited amount of, and who holds how much of it. One account and one tenant may hold a
 * part, so that others are served. Counted in this replica alone. Source: rulings › What is sent on.
 */
export class ShareLimit {
  readonly #options: ShareLimitOptions;
  readonly #limits: Readonly<Record<Holder, number>>;
  readonly #accounts = new Map<number, number>();
  readonly #tenants = new Map<number, number>();
  #held = 0;

  constructor(options: ShareLimitOptions) {
    const { max, fractions, min = 1 } = options;
    const partOf = (fraction: number) => Math.min(max, Math.max(min, Math.floor(max * fraction)));
    this.#options = options;
    this.#limits = { replica: max, account: partOf(fractions.account), tenant: partOf(fractions.tenant) };
  }

  /** How much of it is held, by all. */
  get held(): number {
    return this.#held;
  }

  /** Throws what `take` would throw. */
  check(owner: Owner, amount: number): void {
    const lacking = this.#lacking(owner, amount);
    if (lacking === undefined) return;
    const { reasons, what, onShed } = this.#options;
    onShed(reasons[lacking]);
    const retryAfterSeconds = RETRY_AFTER_SECONDS;
    if (lacking === "replica") throw new Refusal("service_unavailable", { retryAfterSeconds });
    // A tenant's customers are not told of their reseller.
    const whose = lacking === "account" ? "This account" : "This service";
    const message = `${whose} has too many ${what}. Try again.`;
    throw new Refusal("too_many_requests", { message, limit: this.#limits[lacking], retryAfterSeconds });
  }

  /** Throws service_unavailable when the replica has no more, too_many_requests when the account or the tenant holds its part. */
  take(owner: Owner, amount: number): void {
    this.check(owner, amount);
    this.#add(owner, amount);
  }

  /** Gives back what was taken. */
  give(owner: Owner, amount: number): void {
    this.#add(owner, -amount);
  }

  #lacking({ accountId, tenantId }: Owner, amount: number): Holder | undefined {
    if (this.#held + amount > this.#limits.replica) return "replica";
    if (accountId !== 0 && (this.#accounts.get(accountId) ?? 0) + amount > this.#limits.account) return "account";
    if (tenantId !== 0 && (this.#tenants.get(tenantId) ?? 0) + amount > this.#limits.tenant) return "tenant";
    return undefined;
  }

  #add({ accountId, tenantId }: Owner, amount: number): void {
    this.#held += amount;
    if (accountId !== 0) add(this.#accounts, accountId, amount);
    if (tenantId !== 0) add(this.#tenants, tenantId, amount);
  }
}

/** Who holds nothing is not kept. */
function add(held: Map<number, number>, id: number, amount: number): void {
  const now = (held.get(id) ?? 0) + amount;
  if (now === 0) held.delete(id);
  else held.set(id, now);
}
