/** What is counted of answered and failed requests, and the shares that follow from it. Pure. Source: STA-1. */

/** What requests are counted for: the API, the panel, or a model. */
export type Component = "api" | "panel" | `model:${string}`;
/** Sums by UTC day; days without a request are omitted. */
export type AnswerDays = { day: string; answered: number; failed: number }[];
export type AnswerCount = { component: Component; answered: number; failed: number };

/** The component of a model. */
export function modelComponent(modelId: string): Component {
  return `model:${modelId}`;
}

/** A share is rounded down to this many parts: 1 means that nothing failed. */
const PARTS = 10_000;

/** The share of requests that were answered, from 0 to 1; null: there was none. */
export function answeredShare({ answered, failed }: { answered: number; failed: number }): number | null {
  const all = answered + failed;
  return all === 0 ? null : Math.floor((answered / all) * PARTS) / PARTS;
}
