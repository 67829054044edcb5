import { Refusal } from "../errors.ts";
import { EMBEDDING_INPUT_TOKENS_MAX, EMBEDDING_INPUTS_MAX, EMBEDDING_TOKENS_MAX } from "../limits.ts";

/** Reads the `input` of an embedding request: a text, texts, an array of token ids, or arrays of token ids. Source: EMB-2. */

/** No vocabulary is larger. */
export const TOKEN_ID_MAX = 2 ** 31 - 1;
/**
 * The longest token of a common vocabulary has 128 bytes (spaces). A longer text than this has too many tokens for sure; of a shorter
 * one, only the model knows.
 */
const TEXT_BYTES_MAX = EMBEDDING_INPUT_TOKENS_MAX * 128;

/** What is to be embedded. Either texts or token ids; the other is empty or 0. */
export type EmbeddingInput = {
  /** The number of embeddings to make. */
  readonly count: number;
  readonly texts: readonly string[];
  /** The number of token ids of all inputs. */
  readonly ids: number;
};

/** Checks an input and counts it. Throws invalid_request that names the first invalid element, as in `input.3`. */
export function readInput(input: unknown): EmbeddingInput {
  if (typeof input === "string") return { count: 1, texts: [checkInput(input, "input")], ids: 0 };
  if (!Array.isArray(input)) throw wrong("input", "must be a string, an array of strings, or arrays of token ids");
  const [first] = input;
  if (typeof first === "number") return { count: 1, texts: [], ids: checkIds(input, "input") };
  if (input.length < 1 || input.length > EMBEDDING_INPUTS_MAX)
    throw wrong("input", `must have 1 to ${EMBEDDING_INPUTS_MAX} elements; it has ${input.length}`);
  return Array.isArray(first) ? readArraysOfIds(input) : readTexts(input);
}

function readTexts(input: readonly unknown[]): EmbeddingInput {
  const texts = input.map((text, i) => checkInput(text, `input.${i}`));
  return { count: texts.length, texts, ids: 0 };
}

function readArraysOfIds(input: readonly unknown[]): EmbeddingInput {
  let ids = 0;
  for (const [i, one] of input.entries()) {
    if (!Array.isArray(one)) throw wrong(`input.${i}`, "must be an array of token ids, as the elements before it");
    ids += checkIds(one, `input.${i}`);
  }
  if (ids > EMBEDDING_TOKENS_MAX)
    throw wrong("input", `must have at most ${EMBEDDING_TOKENS_MAX} token ids in all; it has ${ids}`);
  return { count: input.length, texts: [], ids };
}

function checkInput(text: unknown, path: string): string {
  if (typeof text !== "string" || text === "") throw wrong(path, "must be a string of at least 1 character");
  // Most texts are short enough at 3 bytes for each UTF-16 code unit, without counting.
  if (text.length * 3 > TEXT_BYTES_MAX && Buffer.byteLength(text) > TEXT_BYTES_MAX)
    throw wrong(
      path,
      `must have at most ${EMBEDDING_INPUT_TOKENS_MAX} tokens; it has more than ${TEXT_BYTES_MAX} bytes`,
    );
  return text;
}

/** Checks an array of token ids, and returns how many it has. */
function checkIds(ids: readonly unknown[], path: string): number {
  if (ids.length < 1 || ids.length > EMBEDDING_INPUT_TOKENS_MAX)
    throw wrong(path, `must have 1 to ${EMBEDDING_INPUT_TOKENS_MAX} token ids; it has ${ids.length}`);
  for (let i = 0; i < ids.length; i++) {
    const id = ids[i];
    if (!(typeof id === "number" && Number.isInteger(id) && id >= 0 && id <= TOKEN_ID_MAX))
      throw wrong(`${path}.${i}`, `must be a token id, a whole number from 0 to ${TOKEN_ID_MAX}`);
  }
  return ids.length;
}

function wrong(param: string, rule: string): Refusal {
  return new Refusal("invalid_request", { message: `The field ${param} ${rule}.`, param });
}
