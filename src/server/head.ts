/** A body is read up to this size to learn its length. A longer one is a download, which GET also streams without a length. */
const BODY_BYTES_MAX = 4 * 1024 * 1024;

/**
 * The answer to HEAD, made from the answer to GET: the same status and headers, and the length of the body that GET would send.
 * Without a length, the runtimes send `content-length: 0`. Source: RFC 9110 §8.6.
 */
export async function headOf(answer: Response): Promise<Response> {
  const head = new Response(null, answer);
  if (answer.headers.has("content-length")) {
    await answer.body?.cancel();
    return head;
  }
  const bytes = answer.body === null ? 0 : await lengthOf(answer.body);
  if (bytes !== undefined) head.headers.set("content-length", String(bytes));
  return head;
}

/** The length of a body in bytes; undefined if it is longer than BODY_BYTES_MAX, and then the rest is not read. */
async function lengthOf(body: ReadableStream<Uint8Array>): Promise<number | undefined> {
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.byteLength;
    if (bytes > BODY_BYTES_MAX) return undefined;
  }
  return bytes;
}
