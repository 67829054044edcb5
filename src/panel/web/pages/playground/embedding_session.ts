import { t } from "@lingui/core/macro";
import { useSyncExternalStore } from "react";
import { ApiError, send, toApiError } from "../../api.ts";
import { announce } from "../../ui/announce.ts";
import { type Cost, costOf } from "../usage/receipts.ts";
import { at } from "./exchanges.ts";
import { similarityOf } from "./similarity.ts";

/** The last embeddings of this tab. A request continues while another page is open, since it is charged in any case. */

export type EmbeddedText = {
  text: string;
  /** The first numbers of its embedding. */
  first: readonly number[];
  /** Cosine similarity to the first text, from -1 to 1. */
  similarity: number;
};

export type Embedded = {
  texts: readonly EmbeddedText[];
  dimensions: number;
  model: string;
  requestId: string | null;
  cost: Cost | null;
};

type EmbeddingState = { last: Embedded | null; sendingSince: number | null; error: unknown };

const SHOWN_NUMBERS = 4;
let state: EmbeddingState = { last: null, sendingSince: null, error: null };
const listeners = new Set<() => void>();

export function useEmbeddings(): EmbeddingState {
  return useSyncExternalStore(subscribe, () => state);
}

export function clearEmbeddingError(): void {
  if (state.error !== null) set({ error: null });
}

export type EmbeddingRequest = { model: string; input: readonly string[]; api_key_id: string };

/** Requests an embedding of each text. `onEnd` is called when it is charged. */
export async function makeEmbeddings(request: EmbeddingRequest, onEnd: () => void): Promise<void> {
  if (state.sendingSince !== null) return;
  set({ sendingSince: performance.now(), error: null });
  try {
    const response = await send("/api/panel/ai/embeddings", { method: "POST", body: request });
    if (!response.ok) throw await toApiError(response);
    const requestId = response.headers.get("x-request-id");
    set({ sendingSince: null, last: embeddedOf(request, requestId, await response.json()) });
    announce(t`The embeddings are ready.`);
    onEnd();
    if (requestId !== null) void loadCost(requestId);
  } catch (error) {
    set({ sendingSince: null, error });
  }
}

/** Throws ApiError if the answer has no embedding for a text. */
function embeddedOf({ model, input }: EmbeddingRequest, requestId: string | null, answer: unknown): Embedded {
  const vectors = input.map((_, i) => {
    const numbers = at(answer, "data", i, "embedding");
    if (Array.isArray(numbers) && numbers.length > 0) return numbers.map(Number);
    throw new ApiError(t`The answer has no embedding. Its receipt shows what it cost.`, {
      status: 200,
      code: "no_embedding",
      requestId,
    });
  });
  const [base = []] = vectors;
  const texts = input.map((text, i) => {
    const vector = vectors[i] ?? [];
    return { text, first: vector.slice(0, SHOWN_NUMBERS), similarity: similarityOf(base, vector) };
  });
  return { texts, dimensions: base.length, model, requestId, cost: null };
}

async function loadCost(requestId: string): Promise<void> {
  const cost = await costOf(requestId);
  if (state.last?.requestId === requestId) set({ last: { ...state.last, cost } });
}

function set(change: Partial<EmbeddingState>): void {
  state = { ...state, ...change };
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
