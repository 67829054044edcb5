import { answerQuestions } from "./helper.ts";

/**
 * The minimum of any gateway on this runtime: a server and a fetch that relay bytes as they arrive, without reading
 * them.
 */

export type BareReady = { port: number };

const upstream = process.env.BENCH_UPSTREAM ?? "";

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
    return new Response(answer.body, {
      status: answer.status,
      headers: { "content-type": answer.headers.get("content-type") ?? "" },
    });
  },
});

answerQuestions<string, string>({ port: server.port ?? 0 } satisfies BareReady, async () => "here");
