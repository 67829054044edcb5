import { LRUCache } from "lru-cache";
import type { EmbeddingRequest } from "./request_shapes.ts";

/**
 * Which routes answer requests for many embeddings with more than is read: their providers ignore `encoding_format`, and numbers as text
 * have four times the bytes of base64. The provider charges for such an answer, and nobody pays it, so it is not asked for again.
 * Source: EMB-4, END-16.
 */

const ROUTES_MAX = 1_000;
/** Then it is tried again: the provider may have learned base64. */
const KNOWN_MS = 3_600_000;
/** A number as text, with its comma. */
export const TEXT_BYTES_A_NUMBER = 22;
/** Of what was too large, so much is tried next: few steps lead to what fits. */
const NEXT_TRIED = 3 / 4;
/** More than most models have: with fewer numbers in all, an oversized answer is no answer to the request, but garbage. */
const DIMENSIONS_MAX = 4_096;

export class LargeEmbeddings {
  readonly #bytesMax: number;
  /** By route: the largest requests that are still sent. Those with `dimensions` count numbers, others inputs. */
  readonly #largest = new LRUCache<string, number>({ max: 2 * ROUTES_MAX, ttl: KNOWN_MS });

  /** `bytesMax`: what is read of an answer. */
  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** The answer of this route to the request was too large. */
  note(routeId: number, request: EmbeddingRequest): void {
    const { input, fields } = request;
    const numbersMax = input.count * (fields.dimensions ?? DIMENSIONS_MAX);
    if (numbersMax * TEXT_BYTES_A_NUMBER <= this.#bytesMax) return;
    const key = keyOf(routeId, request);
    this.#largest.set(key, Math.min(NEXT_TRIED * sizeOf(request), this.#largest.get(key) ?? Infinity));
  }

  /** Whether the answer of this route to the request would be about as large as one that was too large. */
  has(routeId: number, request: EmbeddingRequest): boolean {
    const largest = this.#largest.get(keyOf(routeId, request));
    return largest !== undefined && sizeOf(request) > largest;
  }
}

function keyOf(routeId: number, { fields }: EmbeddingRequest): string {
  return `${routeId} ${typeof fields.dimensions === "number"}`;
}

function sizeOf({ input, fields }: EmbeddingRequest): number {
  return input.count * (fields.dimensions ?? 1);
}
