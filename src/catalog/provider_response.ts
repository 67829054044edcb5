import type { HeldAnswer } from "../platform/answer_memory.ts";
import type { Secret } from "../platform/crypto.ts";
import { deadline } from "../platform/deadline.ts";
import { controllerBy, orAborted, type StopSignal } from "../platform/stop.ts";
import { messageOf } from "../platform/thrown.ts";
import { decodedReader, mayBeEncoded } from "./decoding.ts";
import { redactPrompt } from "./prompt_redaction.ts";
import {
  type AskedWait,
  cleanWords,
  ProviderFailure,
  type ProviderRejection,
  toProviderError,
} from "./provider_errors.ts";

/** What a provider's HTTP response means: whether it is usable, its body within limits, and its error. */

const UTF_8 = new TextDecoder();
/** How much of an error's body is read, and for how long. */
const ERROR_BODY_BYTES_MAX = 64 * 1024;
const ERROR_BODY_MS_MAX = 5_000;

export type MediaType = "application/json" | "text/event-stream";

/** `held`: counts what has arrived. */
type ReadLimits = { bytesMax: number; signal: AbortSignal; held?: HeldAnswer | undefined };

/**
 * The body as text. Cancels the rest of a body that is too large. Throws ProviderFailure (oversized, cut) or the reason of
 * `signal`.
 */
export async function readUpTo(response: Response, { bytesMax, signal, held }: ReadLimits): Promise<string> {
  let body = response;
  try {
    // If the length is known and within the limit, the runtime reads the body at a fraction of a stream's cost.
    // Ending the call ends this too.
    // A length beside chunks says nothing: the chunks decide.
    const declared = response.headers.get("content-length");
    const isChunked = response.headers.has("transfer-encoding");
    if (declared !== null && !isChunked && Number(declared) <= bytesMax) {
      held?.hold(Number(declared));
      const bytes = new Uint8Array(await response.arrayBuffer());
      if (!mayBeEncoded(bytes)) return UTF_8.decode(bytes);
      body = new Response(bytes);
    }
    const { pieces, isWhole } = await readPieces(body, { bytesMax, signal, held });
    if (isWhole) return new TextDecoder().decode(Buffer.concat(pieces));
  } catch (thrown) {
    signal.throwIfAborted();
    if (thrown instanceof ProviderFailure) throw thrown;
    throw new ProviderFailure("cut", `The answer broke off. ${cleanWords(callMessageOf(thrown))}`);
  }
  throw new ProviderFailure("oversized", `The answer is larger than ${bytesMax} bytes.`, { work: "too_large" });
}

/** The facts about the call that its error depends on. */
type Called = { apiKey: Secret; sent: string | Uint8Array; signal: StopSignal };

/** The error that a response with a bad status stands for. Reads or cancels its body. Throws the reason of `signal`. */
export async function toError(
  response: Response,
  { apiKey, sent, signal }: Called,
): Promise<ProviderFailure | ProviderRejection> {
  const { status } = response;
  const secrets = [apiKey.reveal()];
  const wait = waitIn(response);
  const isRedirect = response.type === "opaqueredirect" || (status >= 300 && status < 400);
  if (isRedirect) {
    cancelBody(response);
    return new ProviderFailure("redirect", "It answered with a redirect.", { status });
  }
  const text = await readErrorBody(response, signal);
  // An error's message must not quote the request: it is logged, and prompts never are.
  const words = redactPrompt(text, typeof sent === "string" ? sent : new TextDecoder().decode(sent));
  return toProviderError({ status, text: words, wait, secrets });
}

function waitIn({ headers }: Response): AskedWait {
  const [retryAfter, retryAfterMs, date] = ["retry-after", "retry-after-ms", "date"].map((name) => headers.get(name));
  return { retryAfter: retryAfter ?? null, retryAfterMs: retryAfterMs ?? null, date: date ?? null };
}

/** The beginning of an error's body; the reason if it cannot be read. Throws the reason of `signal`. */
async function readErrorBody(response: Response, signal: StopSignal): Promise<string> {
  const limit = controllerBy(signal);
  const stopClock = deadline(ERROR_BODY_MS_MAX, () =>
    limit.abort(new ProviderFailure("timeout", `No error body within ${ERROR_BODY_MS_MAX} ms.`)),
  );
  try {
    const { pieces } = await readPieces(response, {
      bytesMax: ERROR_BODY_BYTES_MAX,
      signal: limit.signal,
    });
    return new TextDecoder().decode(Buffer.concat(pieces).subarray(0, ERROR_BODY_BYTES_MAX));
  } catch (thrown) {
    signal.throwIfAborted();
    // The status is enough, and what a provider has not said must not read as its words.
    return thrown instanceof ProviderFailure && thrown.kind === "encoded" ? "" : callMessageOf(thrown);
  } finally {
    stopClock();
  }
}

/**
 * The body, or its beginning if it exceeds `bytesMax`; cancels the rest. Throws the error of the body, or the reason
 * of `signal`.
 */
async function readPieces(
  response: Response,
  { bytesMax, signal, held }: ReadLimits,
): Promise<{ pieces: Uint8Array[]; isWhole: boolean }> {
  const pieces: Uint8Array[] = [];
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined = response.body?.getReader();
  if (!reader) return { pieces, isWhole: true };
  let size = 0;
  let isWhole = false;
  let isDecoded = false;
  try {
    while (size <= bytesMax) {
      const { done, value } = await orAborted(reader.read(), signal);
      if (done) {
        isWhole = true;
        break;
      }
      if (size === 0 && !isDecoded && mayBeEncoded(value)) {
        reader = decodedReader(value, reader);
        isDecoded = true;
        continue;
      }
      pieces.push(value);
      size += value.byteLength;
      held?.hold(size);
    }
  } finally {
    // Not awaited: a provider that hangs would make us hang too.
    if (!isWhole) reader.cancel().catch(() => {});
  }
  return { pieces, isWhole };
}

function cancelBody(response: Response): void {
  response.body?.cancel().catch(() => {}); // Cancelling fails only if the body is already broken.
}

/** The message of a failed call. */
export function callMessageOf(error: unknown): string {
  // Deno says only "fetch failed" and puts the rest in the cause.
  return error instanceof Error && error.cause instanceof Error
    ? `${error.message}: ${error.cause.message}`
    : messageOf(error);
}
