import type { Shop } from "../../test/gateway/shop.ts";

/** One attempt of a customer to pay less or to harm others, and what came of it, in words for the table. */
export type Attack = {
  name: string;
  /** How many replicas serve; 1 unless told otherwise. */
  replicas?: number;
  run(shop: Shop): Promise<{
    /** What the attacker got and paid. */
    attacker: string;
    /** What a neighbour, the provider or the replica saw. */
    others: string;
    isStopped: boolean;
  }>;
};
