import type { Shop } from "../../test/gateway/shop.ts";

/** What an attack came to, as text for the table. */
export type Outcome = {
  /** What the attacker got and paid, and what the provider billed for it. */
  attacker: string;
  /** What others saw, beside the neighbour. */
  others?: string;
  isStopped: boolean;
  /** Ends what the attack has started and the neighbour needs. */
  close?: () => Promise<void>;
};

/**
 * Measures the neighbour alone, and then watches it until the attack's `run` has ended. Called once, when all is prepared. `origin`: where
 * the neighbour sends its requests, if not to the shop's replicas.
 */
export type Begin = (origin?: string) => Promise<void>;

/** One attempt of a customer to pay less or to harm others. */
export type Attack = {
  name: string;
  /** The number of replicas; default 1. */
  replicas?: number;
  /** Variables of the replicas, beside the defaults. */
  env?: Record<string, string>;
  run(shop: Shop, begin: Begin): Promise<Outcome>;
};
