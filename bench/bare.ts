/**
 * The minimum of any gateway on this runtime: a server and a fetch that relay bytes as they arrive, without reading
 * them. With BENCH_THROUGH_JS each piece of the answer passes through JavaScript, unchanged: the minimum of a gateway that
 * reads what it relays.
 */

const upstream = process.env.BENCH_UPSTREAM ?? "";
const isThroughJs = process.env.BENCH_THROUGH_JS === "1";

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  idleTimeout: 0,
  maxRequestBodySize: Number.MAX_SAFE_INTEGER,
  async fetch(request) {
    const { pathname } = new URL(request.url);
    const answer = await fetch(upstream + pathname, {
      method: request.method,
      headers: {
        "content-type": request.headers.get("content-type") ?? "",
        authorization: request.headers.get("authorization") ?? "",
      },
      body: await request.bytes(),
      signal: request.signal,
      decompress: false,
    });
    const body = isThroughJs && answer.body !== null ? throughJs(answer.body) : answer.body;
    return new Response(body, {
      status: answer.status,
      headers: { "content-type": answer.headers.get("content-type") ?? "" },
    });
  },
});

/** The same bytes, read and written piece by piece by JavaScript. */
function throughJs(body: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream({
    start(controller) {
      const onRead = ({ done, value }: Awaited<ReturnType<typeof reader.read>>) => {
        if (done) return controller.close();
        controller.enqueue(value);
        reader.read().then(onRead, onError);
      };
      const onError = (error: unknown) => controller.error(error);
      reader.read().then(onRead, onError);
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

console.log(JSON.stringify({ port: server.port, message: "listening" }));
