import { Readable } from "node:stream";
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
} from "node:zlib";

/**
 * Decodes answers that are compressed although that was not asked for. What is decoded is read in small pieces, on demand, and counts
 * towards the limits of an answer: a compressed bomb ends there. The first bytes decide how a body is compressed, and whether it is:
 * proxies decompress bodies and leave their header. Source: PRV-8.
 */

/** How much is decoded at once. */
const PIECE_BYTES = 16 * 1024;
/** Encodings of one body, one in the other. */
const ENCODINGS_MAX = 2;
/** How many of the first bytes are looked at. */
const HEAD_BYTES = 32;
/** The memory of a zstd decoder is 2 to this power: 8 MiB, which RFC 8878 asks for. */
const ZSTD_WINDOW_LOG_MAX = 23;
const [TAB, LF, CR, SPACE, DELETE] = [9, 10, 13, 32, 127] as const;
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

const gunzip = () => createGunzip({ chunkSize: PIECE_BYTES });
const unzstd = () =>
  createZstdDecompress({
    chunkSize: PIECE_BYTES,
    params: { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG_MAX },
  });
/** By the name of an encoding: what decodes a body whose first bytes do not say more. */
const DECODERS = {
  gzip: gunzip,
  "x-gzip": gunzip,
  zstd: unzstd,
  deflate: () => createInflateRaw({ chunkSize: PIECE_BYTES }),
  br: () => createBrotliDecompress({ chunkSize: PIECE_BYTES }),
} as const;
type Encoding = keyof typeof DECODERS;
type Decoder = ReturnType<(typeof DECODERS)[Encoding]>;

/** The response with its body decoded. One that is not encoded, or in an unknown way, is returned as it is. */
export function decoded(response: Response): Response {
  const encodings = encodingsOf(response.headers.get("content-encoding"));
  if (encodings.length === 0 || encodings.length > ENCODINGS_MAX || response.body === null) return response;
  if (!encodings.every(isKnown)) return response;
  const { status, statusText } = response;
  const headers = new Headers(response.headers);
  for (const of of ["content-encoding", "content-length", "transfer-encoding"]) headers.delete(of);
  return new Response(decodedBody(response.body, encodings), { status, statusText, headers });
}

/** The encodings of a header, in the order in which they were applied. */
export function encodingsOf(header: string | null): string[] {
  const names = header?.split(",").map((name) => name.trim().toLowerCase()) ?? [];
  return names.filter((name) => name !== "" && name !== "identity");
}

function isKnown(name: string): name is Encoding {
  return Object.hasOwn(DECODERS, name);
}

function decodedBody(body: ReadableStream<Uint8Array>, encodings: readonly Encoding[]): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  let pieces = piecesOf(reader);
  for (const encoding of encodings.toReversed()) pieces = decodedPieces(pieces, encoding);
  return new ReadableStream<Uint8Array>(
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

type Pieces = AsyncGenerator<Uint8Array, undefined>;

async function* piecesOf(reader: ReadableStreamDefaultReader<Uint8Array>): Pieces {
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

async function* decodedPieces(encoded: Pieces, encoding: Encoding): Pieces {
  const head: Uint8Array[] = [];
  for (let size = 0; size < HEAD_BYTES; ) {
    const { done, value } = await encoded.next();
    if (done) break;
    head.push(value);
    size += value.length;
  }
  const first = Buffer.concat(head);
  const decoder = decoderOf(first.subarray(0, HEAD_BYTES), encoding);
  if (decoder === undefined) {
    if (first.length > 0) yield first;
    yield* encoded;
    return;
  }
  const source = Readable.from(joined(first, encoded), { objectMode: false });
  // An error of the connection must not look like the end of the answer.
  source.on("error", (error) => decoder.destroy(error));
  try {
    for await (const piece of source.pipe(decoder) as AsyncIterable<Buffer>) yield new Uint8Array(piece);
  } finally {
    source.destroy();
    decoder.destroy();
  }
}

async function* joined(first: Uint8Array, rest: Pieces): Pieces {
  yield first;
  yield* rest;
}

/** What decodes a body with these first bytes; undefined if it is not encoded. */
function decoderOf(first: Uint8Array, encoding: Encoding): Decoder | undefined {
  const [a = 0, b = 0, c = 0, d = 0] = first;
  if (a === 0x1f && b === 0x8b) return gunzip();
  if (a === 0x28 && b === 0xb5 && c === 0x2f && d === 0xfd) return unzstd();
  if (isText(first)) return undefined;
  const isZlib = (a & 0x0f) === 8 && (a * 256 + b) % 31 === 0;
  return encoding === "deflate" && isZlib ? createInflate({ chunkSize: PIECE_BYTES }) : DECODERS[encoding]();
}

/** Whether all of the bytes are ASCII, behind a byte order mark or without one. No encoding begins so. */
function isText(bytes: Uint8Array): boolean {
  const hasMark = BYTE_ORDER_MARK.every((byte, i) => bytes[i] === byte);
  return bytes.subarray(hasMark ? BYTE_ORDER_MARK.length : 0).every(isAscii);
}

function isAscii(byte: number): boolean {
  return (byte >= SPACE && byte < DELETE) || byte === LF || byte === CR || byte === TAB;
}
