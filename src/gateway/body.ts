import { Refusal } from "../errors.ts";
import { DuplicateField, type Span, topLevelSpans } from "./json_spans.ts";

/** A request body, read once: its bytes go on as they came, its text is patched, its value is checked. */
export type Body = { bytes: Uint8Array<ArrayBuffer>; text: string; value: unknown; spans: ReadonlyMap<string, Span> };

/** Deeper JSON has no use in this API and costs every parser behind us. */
const DEPTH_MAX = 64;
/** A body that trickles in is cut. */
const READ_MS_MAX = 60_000;

/**
 * Reads, decodes and parses a JSON object. Throws unsupported_media_type, request_too_large, invalid_request.
 * Source: rulings › Errors.
 */
export async function readBody(request: Request, bytesMax: number): Promise<Body> {
  const type = request.headers.get("content-type") ?? "";
  if (!/^application\/json\s*(;|$)/i.test(type)) throw new Refusal("unsupported_media_type");
  const encoding = request.headers.get("content-encoding");
  if (encoding !== null && encoding.toLowerCase() !== "identity") throw new Refusal("unsupported_media_type");
  const bytes = await readBytes(request, bytesMax);
  const text = decode(bytes);
  const value = parse(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Refusal("invalid_request", { message: "The body must be a JSON object." });
  }
  if (deeperThan(value, DEPTH_MAX))
    throw new Refusal("invalid_request", { message: `The body is nested deeper than ${DEPTH_MAX} levels.` });
  return { bytes, text, value, spans: spansOf(text) };
}

/** A body of which only the text and its value are at hand: what is left of one after a field was taken out. */
export function bodyOf(text: string, value: unknown): Body {
  return { bytes: new TextEncoder().encode(text), text, value, spans: spansOf(text) };
}

async function readBytes(request: Request, bytesMax: number): Promise<Uint8Array<ArrayBuffer>> {
  const tooLarge = () =>
    new Refusal("request_too_large", { message: `The body is larger than ${bytesMax} bytes.`, limit: bytesMax });
  const declared = request.headers.get("content-length");
  if (declared !== null && Number(declared) > bytesMax) throw tooLarge();
  if (request.body === null) return new Uint8Array(0);
  const deadline = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => deadline.reject(new Refusal("invalid_request", { message: "The body did not arrive in time." })),
    READ_MS_MAX,
  );
  try {
    // A declared length is kept to by the HTTP parser; only a chunked body has to be counted while it comes.
    if (declared !== null) return new Uint8Array(await Promise.race([request.arrayBuffer(), deadline.promise]));
    const reader = request.body.getReader();
    const chunks: Uint8Array[] = [];
    let size = 0;
    for (;;) {
      const { done, value } = await Promise.race([reader.read(), deadline.promise]);
      if (done) break;
      size += value.byteLength;
      if (size > bytesMax) {
        reader.cancel().catch(() => {}); // The client may be gone; it is refused either way.
        throw tooLarge();
      }
      chunks.push(value);
    }
    const bytes = new Uint8Array(size);
    let at = 0;
    for (const chunk of chunks) {
      bytes.set(chunk, at);
      at += chunk.byteLength;
    }
    return bytes;
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal("invalid_request", { message: "The body could not be read to its end." });
  } finally {
    clearTimeout(timer);
  }
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
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
    const spans = topLevelSpans(text);
    if (spans) return spans;
  } catch (error) {
    if (!(error instanceof DuplicateField)) throw error;
    throw new Refusal("invalid_request", {
      message: `The field ${error.field.slice(0, 100)} stands twice.`,
      param: error.field.slice(0, 100),
    });
  }
  throw new Refusal("invalid_request", { message: "The body is not valid JSON." });
}

function deeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  for (const inner of Array.isArray(value) ? value : Object.values(value))
    if (deeperThan(inner, levels - 1)) return true;
  return false;
}
