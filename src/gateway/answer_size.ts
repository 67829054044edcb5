import type { Model } from "../catalog/catalog.ts";
import { Refusal } from "../errors.ts";
import { MODEL_CAP_TOKENS } from "../limits.ts";
import type { Filtered } from "./filtering.ts";
import type { ChatBody } from "./request_shapes.ts";
import { EVENT_SIZE_MAX } from "./sse.ts";

/**
 * Whether an answer may become larger than what is read of one. A larger one is a provider's failure, which nobody pays, although the
 * provider charges the operator for it. So a request that may bring it about is refused before anything is reserved. Source: END-16.
 */

/** What the texts and log probabilities of an answer that is not streamed may take. */
const TEXT_BYTES_MAX = 32 * 1024 * 1024;
/** Maximum size of an answer that is not streamed. Beside the texts it has ids, roles and the usage. */
export const ANSWER_BYTES_MAX = TEXT_BYTES_MAX + 64 * 1024;
/** Bytes of a token in JSON, beside its log probabilities. Words have about 4; two characters that are written as in \u4e2d have 12. */
const TOKEN_BYTES = 16;
/**
 * The same of several choices. The longest tokens of OpenAI's vocabularies are 128 spaces, and a prompt can ask for nothing else. A
 * model that writes so many of them in one choice is rare; in many choices each may be short.
 */
const TOKEN_BYTES_OF_SEVERAL = 128;
/** Bytes of a token with its log probability. OpenAI indents its JSON, and gives each byte of the token a line. */
const LOGPROB_BYTES = 256;

type Fields = Readonly<Record<string, unknown>>;
type Limits = Pick<Model, "contextLength" | "defaultCapTokens">;

type Asked = {
  choices: number;
  /** The client's; null: none. */
  capTokens: number | null | undefined;
  /** Log probabilities for each token. */
  logprobs: number;
  bytesMax: number;
  /** The field that is to be changed. */
  param: string;
};

/** Checks what a chat asks for of what is sent on. A stream has no limit but that of an event. Throws invalid_request. */
export function checkChatAnswer(body: ChatBody, { changed }: Filtered, model: Limits): void {
  if (body.stream) return;
  const fields: Fields = body;
  const sent = (name: string) => countOf(changed.has(name) ? changed.get(name) : fields[name]);
  const top = sent("top_logprobs");
  const logprobs = top + sent("logprobs");
  check(
    {
      choices: body.n ?? 1,
      capTokens: body.max_completion_tokens ?? body.max_tokens,
      logprobs,
      bytesMax: TEXT_BYTES_MAX,
      param: top > 0 ? "top_logprobs" : logprobs > 0 ? "logprobs" : "n",
    },
    model,
  );
}

/** The same for a provider's own /responses, whose streams end with an event that has the whole answer. Throws invalid_request. */
export function checkOwnAnswer({ stream, max_output_tokens: cap, top_logprobs, include }: Fields, model: Limits): void {
  const top = countOf(top_logprobs);
  const isIncluded = Array.isArray(include) && include.includes("message.output_text.logprobs");
  check(
    {
      choices: 1,
      capTokens: typeof cap === "number" ? cap : null,
      logprobs: top > 0 || isIncluded ? 1 + top : 0,
      bytesMax: stream === true ? EVENT_SIZE_MAX : TEXT_BYTES_MAX,
      param: top > 0 ? "top_logprobs" : "include",
    },
    model,
  );
}

function check({ choices, capTokens, logprobs, bytesMax, param }: Asked, model: Limits): void {
  if (choices === 1 && logprobs === 0) return;
  const tokens = Math.min(
    capTokens ?? model.defaultCapTokens,
    model.contextLength ?? MODEL_CAP_TOKENS.max,
    MODEL_CAP_TOKENS.max,
  );
  const textBytes = choices === 1 ? TOKEN_BYTES : TOKEN_BYTES_OF_SEVERAL;
  const tokensMax = Math.floor(bytesMax / (choices * (textBytes + logprobs * LOGPROB_BYTES)));
  if (tokens <= tokensMax) return;
  throw new Refusal("invalid_request", {
    message: `The answer may become larger than ${bytesMax / 1024 / 1024} MiB. Ask for fewer choices or log probabilities, or for at most ${tokensMax} tokens.`,
    param,
  });
}

/** As `true`, as a number, or as a text that a provider may read as one: how many of them are asked for. */
function countOf(value: unknown): number {
  const isCount = typeof value === "number" || typeof value === "string" || typeof value === "boolean";
  return isCount ? Math.max(0, Number(value) || 0) : 0;
}
