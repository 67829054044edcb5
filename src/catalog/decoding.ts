import { Readable } from "node:stream";
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
} from "node:zlib";
import { messageOf } from "../platform/thrown.ts";
import { ProviderFailure } from "./provider_errors.ts";

/**
 * Decodes answers that are compressed although that was not asked for. What is decoded is read in small pieces, on demand, and counts
 * towards the limits of an answer: a compressed bomb ends there. The first bytes decide how a body is compressed, and whether it is:
 * proxies decompress bodies and leave their header, or take the header away and leave the body. Source: STR-8, PRV-8.
 */

/** How much is decoded at once. */
const PIECE_BYTES = 16 * 1024;
/** Encodings of one body, one in the other. */
const ENCODINGS_MAX = 2;
/** How many of the first bytes are looked at. */
const HEAD_BYTES = 32;
/** The memory of a zstd decoder is 2 to this power: 8 MiB, which RFC 8878 asks for. */
const ZSTD_WINDOW_LOG_MAX = 23;
const [TAB, LF, CR, SPACE, PARENTHESIS, LETTER_X, DELETE, ASCII_END, MARK] = [9, 10, 13, 32, 40, 120, 127, 128, 0xef];
/** What a decoder says of a body that ends too early. Whatever else it says, the body is not what its first bytes promise. */
const ENDS_EARLY = /unexpected end|Z_BUF_ERROR/i;

type Body = ReadableStreamDefaultReader<Uint8Array>;

const DECODERS = {
  gzip: () => createGunzip({ chunkSize: PIECE_BYTES }),
  zlib: () => createInflate({ chunkSize: PIECE_BYTES }),
  deflate: () => createInflateRaw({ chunkSize: PIECE_BYTES }),
  br: () => createBrotliDecompress({ chunkSize: PIECE_BYTES }),
  zstd: () =>
    createZstdDecompress({
      chunkSize: PIECE_BYTES,
      params: { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG_MAX },
    }),
} as const;
type Encoding = keyof typeof DECODERS;

/** The response with its body decoded. One without the header of an encoding is returned as it is: see `decodedReader`. */
export function decoded(response: Response): Response {
  const encodings = encodingsOf(response.headers.get("content-encoding"));
  if (encodings.length === 0 || encodings.length > ENCODINGS_MAX || response.body === null) return response;
  const { status, statusText } = response;
  const headers = new Headers(response.headers);
  for (const of of ["content-encoding", "content-length", "transfer-encoding"]) headers.delete(of);
  return new Response(decodedBody(response.body.getReader(), encodings), { status, statusText, headers });
}

/** The encodings of a header, in the order in which they were applied. */
function encodingsOf(header: string | null): string[] {
  const names = header?.split(",").map((name) => name.trim().toLowerCase()) ?? [];
  return names.filter((name) => name !== "" && name !== "identity");
}

/** Whether a body that begins so may be encoded, although no header says so. No JSON, no event and no page begins so. */
export function mayBeEncoded([first = SPACE]: Uint8Array): boolean {
  if (first < SPACE) return first !== TAB && first !== LF && first !== CR;
  return first === PARENTHESIS || first === LETTER_X || (first >= DELETE && first !== MARK);
}

/** Reads a body, whose beginning was read already, decoded: of one that is not encoded the same bytes. */
export function decodedReader(begun: Uint8Array, reader: Body): Body {
  return decodedBody(reader, [""], begun).getReader();
}

/** `encodings`: their names by the header; empty: only the bytes say what it is. */
function decodedBody(
  reader: Body,
  encodings: readonly string[],
  begun?: Uint8Array,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  let pieces = piecesOf(reader, begun);
  for (const encoding of encodings.toReversed()) pieces = decodedPieces(pieces, encoding);
  return new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        // A read that waits for the provider ends with this, and so do the pieces.
        await reader.cancel();
        await pieces.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
}

type Pieces = AsyncGenerator<Uint8Array<ArrayBuffer>, undefined>;

async function* piecesOf(reader: Body, begun: Uint8Array | undefined): Pieces {
  if (begun !== undefined) yield new Uint8Array(begun);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value as Uint8Array<ArrayBuffer>;
  }
}

async function* decodedPieces(encoded: Pieces, name: string): Pieces {
  const head: Uint8Array[] = [];
  for (let size = 0; size < HEAD_BYTES; ) {
    const { done, value } = await encoded.next();
    if (done) break;
    head.push(value);
    size += value.length;
  }
  const first = new Uint8Array(Buffer.concat(head));
  const encoding = encodingOf(first.subarray(0, HEAD_BYTES), name);
  if (encoding === undefined) {
    if (first.length > 0) yield first;
    yield* encoded;
    return;
  }
  const decoder = DECODERS[encoding]();
  let ofProvider: unknown;
  const source = Readable.from(joined(first, encoded), { objectMode: false });
  // An error of the connection must not look like the end of the answer.
  source.on("error", (error) => {
    ofProvider = error;
    decoder.destroy(error);
  });
  try {
    for await (const piece of source.pipe(decoder) as AsyncIterable<Buffer>) yield new Uint8Array(piece);
  } catch (error) {
    if (ofProvider !== undefined || ENDS_EARLY.test(messageOf(error))) throw error;
    throw new ProviderFailure("encoded", "It answered in an encoding that cannot be read.");
  } finally {
    source.destroy();
    decoder.destroy();
  }
}

async function* joined(first: Uint8Array, rest: Pieces): AsyncGenerator<Uint8Array, undefined> {
  yield first;
  yield* rest;
}

/**
 * How a body with these first bytes is encoded; undefined if it is not. gzip, zstd and zlib say so themselves. Brotli and bare deflate do
 * not: they are believed by their name, and what is no text in any way is tried as Brotli, which nothing but the right bytes survive.
 */
function encodingOf(first: Uint8Array, name: string): Encoding | undefined {
  const [a = SPACE, b = 0, c = 0, d = 0] = first;
  if (a === 0x1f && b === 0x8b) return "gzip";
  if (a === 0x28 && b === 0xb5 && c === 0x2f && d === 0xfd) return "zstd";
  if (isText(first)) return undefined;
  if (name === "br") return "br";
  if ((a & 0x0f) === 8 && (a * 256 + b) % 31 === 0) return "zlib";
  if (name === "deflate") return "deflate";
  // Text in another character set than UTF-8 begins so too, in ASCII.
  return a < SPACE || a >= DELETE ? "br" : undefined;
}

/** Whether the bytes are UTF-8 without control characters, behind a byte order mark or without one. No encoding begins so. */
function isText(bytes: Uint8Array): boolean {
  if (!bytes.every((byte) => byte >= SPACE || byte === LF || byte === CR || byte === TAB)) return false;
  if (bytes.every((byte) => byte < ASCII_END)) return true;
  try {
    // The last character may be cut.
    new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    return true;
  } catch {
    return false;
  }
}
