import { usageJson } from "./chat.ts";
import type { Behaviour } from "./faults.ts";
import { ProviderError, readCount, readModel } from "./request.ts";
import { isRecord, seedOf } from "./text.ts";

const DIMENSIONS_DEFAULT = 256;
const DIMENSIONS_MAX = 4_096;
const INPUTS_MAX = 2_048;
/** Words of a text that its embedding is made of. */
const WORDS_MAX = 64;
/** The generator of Numerical Recipes: the next state is state × FACTOR + STEP, modulo 2 ** 32. */
const FACTOR = 1_664_525;
const STEP = 1_013_904_223;

export interface EmbeddingRequest {
  readonly model: string;
  /** The words of each input; token ids count as words. */
  readonly inputs: readonly (readonly string[])[];
  readonly tokens: number;
  readonly dimensions: number;
  readonly form: "float" | "base64";
}

/** Reads an embedding request. Throws ProviderError 400 with the invalid field. */
export function readEmbeddingRequest(body: unknown): EmbeddingRequest {
  if (!isRecord(body)) throw new ProviderError(400, "The body must be a JSON object.");
  const model = readModel(body);
  const { input, encoding_format: form = "float" } = body;
  const isOne = typeof input === "string" || (Array.isArray(input) && typeof input[0] === "number");
  const inputs: readonly unknown[] = isOne ? [input] : Array.isArray(input) ? input : [];
  if (inputs.length === 0 || inputs.length > INPUTS_MAX || !inputs.every(isInput))
    throw new ProviderError(400, "'$.input' is invalid.", { param: "input" });
  if (form !== "float" && form !== "base64")
    throw new ProviderError(400, "'encoding_format' must be float or base64.", { param: "encoding_format" });
  const tokens = inputs.reduce((sum: number, one) => sum + tokensIn(one), 0);
  const dimensions = Math.min(readCount(body, "dimensions") ?? DIMENSIONS_DEFAULT, DIMENSIONS_MAX);
  return { model, inputs: inputs.map(wordsOf), tokens, dimensions, form };
}

/** The list of embeddings, as changed by the behaviour. The same words always get the same numbers. */
export function embeddingsJson(request: EmbeddingRequest, behaviour: Behaviour = {}): string {
  const form = behaviour.embeddingReturn ?? request.form;
  const data = request.inputs.map((words, index) => {
    const numbers = embeddingOf(words, request.dimensions);
    const embedding = form === "float" ? [...numbers] : Buffer.from(numbers.buffer).toString("base64");
    return { object: "embedding", index, embedding };
  });
  if (behaviour.embeddingsReversed) data.reverse();
  const usage = usageJson({ prompt_tokens: request.tokens, total_tokens: request.tokens }, behaviour);
  const head = `{"object":"list","data":${JSON.stringify(data)},"model":${JSON.stringify(behaviour.modelName ?? request.model)}`;
  return usage === null ? `${head}}` : `${head},"usage":${usage}}`;
}

function isInput(input: unknown): input is string | readonly number[] {
  return typeof input === "string"
    ? input !== ""
    : Array.isArray(input) && input.length > 0 && input.every(Number.isInteger);
}

export function tokensIn(input: string | readonly number[]): number {
  return typeof input === "string" ? Math.ceil(input.length / 4) : input.length;
}

export function wordsOf(input: string | readonly number[]): string[] {
  const words =
    typeof input === "string" ? (input.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [input]) : input.map(String);
  return words.slice(0, WORDS_MAX);
}

/** The sum of a made-up vector for each word, of length 1: texts with the same words are near to each other. */
export function embeddingOf(words: readonly string[], dimensions: number): Float32Array<ArrayBuffer> {
  const numbers = new Float32Array(dimensions);
  for (const word of words) {
    let state = seedOf(word) >>> 0;
    for (let i = 0; i < dimensions; i++) {
      state = (Math.imul(state, FACTOR) + STEP) >>> 0;
      numbers[i] = (numbers[i] ?? 0) + state / 2 ** 31 - 1;
    }
  }
  const length = Math.hypot(...numbers) || 1;
  return numbers.map((number) => number / length);
}
