import { Readable } from "node:stream";
import type { ReadableStream as NodeStream } from "node:stream/web";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";

/**
 * Decodes answers that are compressed although that was not asked for. What is decoded is read in small pieces, on demand, and counts
 * towards the limits of an answer: a compressed bomb ends there. Source: PRV-8.
 */

/** How much is decoded at once. */
const PIECE_BYTES = 16 * 1024;
const DECODERS = {
  gzip: createGunzip,
  "x-gzip": createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
} as const;

/** The response with its body decoded. One that is not encoded, or in an unknown way, is returned as it is. */
export function decoded(response: Response): Response {
  const name = response.headers.get("content-encoding")?.trim().toLowerCase();
  if (name === undefined || response.body === null || !isKnown(name)) return response;
  const { status, statusText } = response;
  const headers = new Headers(response.headers);
  for (const of of ["content-encoding", "content-length", "transfer-encoding"]) headers.delete(of);
  return new Response(decodedBody(response.body, name), { status, statusText, headers });
}

function isKnown(name: string): name is keyof typeof DECODERS {
  return Object.hasOwn(DECODERS, name);
}

function decodedBody(body: ReadableStream<Uint8Array>, name: keyof typeof DECODERS): ReadableStream<Uint8Array> {
  const source = Readable.fromWeb(body as unknown as NodeStream<Uint8Array>);
  const decoder = DECODERS[name]({ chunkSize: PIECE_BYTES });
  // An error of the connection must not look like the end of the answer.
  source.on("error", (error) => decoder.destroy(error));
  const pieces: AsyncIterator<Buffer> = source.pipe(decoder)[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(new Uint8Array(value));
      },
      cancel() {
        source.destroy();
        decoder.destroy();
      },
    },
    { highWaterMark: 0 },
  );
}
