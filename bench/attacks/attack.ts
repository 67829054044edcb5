import type { Shop } from "../../test/gateway/shop.ts";

/** One attempt of a customer to pay less or to harm others, and its result, as text for the table. */
export type Attack = {
  name: string;
  /** The number of replicas; default 1. */
  replicas?: number;
  /** Variables of the replicas, beside the defaults. */
  env?: Record<string, string>;
  run(shop: Shop): Promise<{
    /** What the attacker got and paid. */
    attacker: string;
    /** What a neighbour, the provider or the replica saw. */
    others: string;
    isStopped: boolean;
  }>;
};
