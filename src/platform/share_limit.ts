import { Refusal } from "../errors.ts";
import type { ShedReason } from "./metrics.ts";

/** `Retry-After` when a share is used up: nobody knows when it becomes free. */
const RETRY_AFTER_SECONDS = 1;

/** The owner of a request. An id of 0 means none, and is not counted. */
export type Owner = {
  readonly accountId: number;
  /** The account itself if it is a reseller, or its reseller. */
  readonly tenantId: number;
};

/** The shares: the fraction of a replica that one account, and one tenant, may use; 0 to 1. */
export type Fractions = { readonly account: number; readonly tenant: number };

type Holder = "replica" | "account" | "tenant";

export type ShareLimitOptions = {
  /** Amount of the whole replica. */
  max: number;
  fractions: Fractions;
  /** An account and a tenant may always use this much. */
  min?: number;
  /** Its name in a refusal, as in "requests in flight". */
  what: string;
  reasons: Readonly<Record<Holder, ShedReason>>;
  onShed: (reason: ShedReason) => void;
};

/**
 * Limits a resource of this replica, in total and per account and tenant, so that one account cannot use all of it. Counted in this
 * replica only. Source: ADM-3.
 */
export class ShareLimit {
  readonly #options: ShareLimitOptions;
  readonly #limits: Readonly<Record<Holder, number>>;
  readonly #accounts = new Map<number, number>();
  readonly #tenants = new Map<number, number>();
  #held = 0;
  #peak = 0;

  constructor(options: ShareLimitOptions) {
    const { max, fractions, min = 1 } = options;
    const partOf = (fraction: number) => Math.min(max, Math.max(min, Math.floor(max * fraction)));
    this.#options = options;
    this.#limits = { replica: max, account: partOf(fractions.account), tenant: partOf(fractions.tenant) };
  }

  /** The amount in use. */
  get held(): number {
    return this.#held;
  }

  /** The most that was in use at once since the last call. */
  takePeak(): number {
    const peak = this.#peak;
    this.#peak = this.#held;
    return peak;
  }

  /** Throws what `take` would throw. */
  check(owner: Owner, amount: number): void {
    const lacking = this.#lacking(owner, amount);
    if (lacking === undefined) return;
    const { reasons, what, onShed } = this.#options;
    onShed(reasons[lacking]);
    const retryAfterSeconds = RETRY_AFTER_SECONDS;
    if (lacking === "replica") throw new Refusal("service_unavailable", { retryAfterSeconds });
    // The message does not reveal the reseller to its customers.
    const whose = lacking === "account" ? "This account" : "This service";
    const message = `${whose} has too many ${what}. Try again.`;
    throw new Refusal("too_many_requests", { message, limit: this.#limits[lacking], retryAfterSeconds });
  }

  /** Takes it if there is room. For what is not refused, but done in another way. */
  tryTake(owner: Owner, amount: number): boolean {
    const lacking = this.#lacking(owner, amount);
    if (lacking === undefined) this.#add(owner, amount);
    else this.#options.onShed(this.#options.reasons[lacking]);
    return lacking === undefined;
  }

  /** Throws service_unavailable if the replica has no more, too_many_requests if the account or the tenant has used its share. */
  take(owner: Owner, amount: number): void {
    this.check(owner, amount);
    this.#add(owner, amount);
  }

  /** Releases what was taken. */
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
    if (this.#held > this.#peak) this.#peak = this.#held;
    if (accountId !== 0) add(this.#accounts, accountId, amount);
    if (tenantId !== 0) add(this.#tenants, tenantId, amount);
  }
}

/** An amount of 0 is not stored. */
function add(held: Map<number, number>, id: number, amount: number): void {
  const now = (held.get(id) ?? 0) + amount;
  if (now === 0) held.delete(id);
  else held.set(id, now);
}
