import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { deadline } from "../platform/deadline.ts";
import { DuplicateField, type Span, TooDeep, topLevelSpans } from "./json_spans.ts";

/** A request body, read once: its text goes on as it came, or patched; its value is checked. Its bytes are the text's UTF-8. */
export type Body = { text: string; value: unknown; spans: ReadonlyMap<string, Span> };

type BodyDeps = { config: Pick<Deps["config"], "bodyReadMs">; metrics: Pick<Deps["metrics"], "timedOut"> };

/** Deeper JSON has no use in this API and costs every parser behind us. */
const DEPTH_MAX = 64;
const UTF_8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
/** What a lenient decoder puts in the place of bytes that are no UTF-8. */
const REPLACEMENT = "\uFFFD";

/**
 * Reads, decodes and parses a JSON object. Throws unsupported_media_type, request_too_large, invalid_request (also when
 * it trickles in for longer than BODY_READ_MS). Source: rulings › Errors.
 */
export async function readBody(deps: BodyDeps, request: Request, bytesMax: number): Promise<Body> {
  const { headers } = request;
  if (!/^application\/json\s*(;|$)/i.test(headers.get("content-type") ?? ""))
    throw new Refusal("unsupported_media_type");
  const encoding = headers.get("content-encoding");
  if (encoding !== null && encoding.toLowerCase() !== "identity") throw new Refusal("unsupported_media_type");
  const text = await textOf(await readBlob(deps, request, bytesMax));
  const value = parse(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Refusal("invalid_request", { message: "The body must be a JSON object." });
  }
  return bodyOf(text, value);
}

/** A body of its text and that text's value. Throws invalid_request for a field that stands twice, and for too many levels. */
export function bodyOf(text: string, value: unknown): Body {
  return { text, value, spans: spansOf(text) };
}

/** A blob: its text is made of the very bytes that came, where other ways copy them, and then the copy. */
function readBlob({ config, metrics }: BodyDeps, request: Request, bytesMax: number): Promise<Blob> | Blob {
  const declared = request.headers.get("content-length");
  if (declared !== null && Number(declared) > bytesMax) throw tooLarge(bytesMax);
  // Not asked for where a length says enough: it would make a stream of what comes in one piece.
  if (declared === null && request.body === null) return new Blob();
  return new Promise((resolve, reject) => {
    const stopClock = deadline(config.bodyReadMs, () => {
      metrics.timedOut("body");
      reject(new Refusal("invalid_request", { message: "The body did not arrive in time." }));
    });
    // A declared length is kept to by the HTTP parser; only a chunked body has to be counted while it comes.
    const reading = declared === null ? readChunks(request, bytesMax) : request.blob();
    reading.then(
      (blob) => {
        stopClock();
        resolve(blob);
      },
      (error) => {
        stopClock();
        const message = "The body could not be read to its end.";
        reject(error instanceof Refusal ? error : new Refusal("invalid_request", { message }));
      },
    );
  });
}

async function readChunks(request: Request, bytesMax: number): Promise<Blob> {
  const reader = (request.body as ReadableStream<Uint8Array<ArrayBuffer>>).getReader();
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Blob(chunks);
    size += value.byteLength;
    if (size > bytesMax) {
      reader.cancel().catch(() => {}); // The client may be gone; it is refused either way.
      throw tooLarge(bytesMax);
    }
    chunks.push(value);
  }
}

function tooLarge(bytesMax: number): Refusal {
  return new Refusal("request_too_large", { message: `The body is larger than ${bytesMax} bytes.`, limit: bytesMax });
}

/** The text whose UTF-8 a blob is. Throws invalid_request where it is none. */
async function textOf(blob: Blob): Promise<string> {
  const text = await blob.text();
  // Of bytes that were no UTF-8 a replacement is left, and of a byte order mark nothing. ASCII is as long as its bytes.
  if (!text.includes(REPLACEMENT) && (text.length === blob.size || Buffer.byteLength(text) === blob.size)) return text;
  try {
    return UTF_8.decode(await blob.arrayBuffer());
  } catch {
    throw new Refusal("invalid_request", { message: "The body is not valid UTF-8." });
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // A nesting that the parser itself gives up on ends here too.
    throw new Refusal("invalid_request", { message: "The body is not valid JSON." });
  }
}

function spansOf(text: string): ReadonlyMap<string, Span> {
  try {
    const spans = topLevelSpans(text, DEPTH_MAX);
    if (spans) return spans;
  } catch (error) {
    if (error instanceof TooDeep)
      throw new Refusal("invalid_request", { message: `The body is nested deeper than ${DEPTH_MAX} levels.` });
    if (!(error instanceof DuplicateField)) throw error;
    throw new Refusal("invalid_request", {
      message: `The field ${error.field.slice(0, 100)} stands twice.`,
      param: error.field.slice(0, 100),
    });
  }
  throw new Refusal("invalid_request", { message: "The body is not valid JSON." });
}
