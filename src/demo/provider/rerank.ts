import { usageJson } from "./chat.ts";
import { embeddingOf, tokensIn, wordsOf } from "./embeddings.ts";
import type { Behaviour } from "./faults.ts";
import { ProviderError, readCount, readModel } from "./request.ts";
import { isRecord } from "./text.ts";

const DIMENSIONS = 64;

export interface RerankRequest {
  readonly model: string;
  readonly query: string;
  readonly documents: readonly string[];
  readonly topN: number;
}

/** Reads a rerank request. Throws ProviderError 400 with the invalid field. */
export function readRerankRequest(body: unknown): RerankRequest {
  if (!isRecord(body)) throw new ProviderError(400, "The body must be a JSON object.");
  const model = readModel(body);
  const { query, documents } = body;
  if (typeof query !== "string" || query === "")
    throw new ProviderError(400, "'$.query' is invalid.", { param: "query" });
  if (!Array.isArray(documents) || documents.length === 0 || !documents.every((one) => typeof one === "string"))
    throw new ProviderError(400, "'$.documents' is invalid.", { param: "documents" });
  return { model, query, documents, topN: readCount(body, "top_n") ?? documents.length };
}

/** The scores of the documents, the most similar to the query first, as changed by the behaviour. */
export function rerankJson({ model, query, documents, topN }: RerankRequest, behaviour: Behaviour = {}): string {
  const asked = embeddingOf(wordsOf(query), DIMENSIONS);
  const results = documents
    .map((document, index) => {
      const numbers = embeddingOf(wordsOf(document), DIMENSIONS);
      return { index, relevance_score: numbers.reduce((sum, number, i) => sum + number * (asked[i] ?? 0), 0) };
    })
    .sort((a, b) => b.relevance_score - a.relevance_score)
    .slice(0, topN);
  const tokens = documents.reduce((sum, document) => sum + tokensIn(query) + tokensIn(document), 0);
  const usage = usageJson({ prompt_tokens: tokens, total_tokens: tokens }, behaviour);
  const head = JSON.stringify({ model: behaviour.modelName ?? model, results });
  return usage === null ? head : `${head.slice(0, -1)},"usage":${usage}}`;
}
