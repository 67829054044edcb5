import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A fake trace collector: it keeps what it receives by OTLP over HTTP. */
export type Collector = Awaited<ReturnType<typeof startCollector>>;

/** Times are Unix nanoseconds. */
export type SentSpan = {
  name: string;
  traceId: string;
  spanId: string;
  /** "" if there is none. */
  parentSpanId: string;
  kind: number;
  startNs: bigint;
  endNs: bigint;
  /** Its status says error. */
  isFailure: boolean;
  attributes: Record<string, unknown>;
};

/** Port 0 picks a free port. `isHanging`: it reads requests and never responds. */
export async function startCollector({ port = 0, isHanging = false } = {}) {
  const calls: { path: string; headers: IncomingMessage["headers"]; text: string }[] = [];
  const server: Server = createServer((request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      calls.push({ path: request.url ?? "", headers: request.headers, text: Buffer.concat(chunks).toString("utf8") });
      if (!isHanging) response.writeHead(200, { "content-type": "application/json" }).end("{}");
    });
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const { port: listens } = server.address() as AddressInfo;
  return {
    port: listens,
    endpoint: `http://127.0.0.1:${listens}`,
    calls,
    /** Everything that was ever received, unchanged. */
    text: () => calls.map(({ text }) => text).join("\n"),
    /** In order of their start times. */
    spans: (): SentSpan[] =>
      calls.flatMap(({ text }) => spansIn(JSON.parse(text))).sort((a, b) => Number(a.startNs - b.startNs)),
    stop: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

// biome-ignore lint/suspicious/noExplicitAny: the shape is the protocol's; what is not there fails the test.
function spansIn(sent: any): SentSpan[] {
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  const all: any[] = sent.resourceSpans.flatMap((of: any) => of.scopeSpans.flatMap((scope: any) => scope.spans));
  return all.map((span) => ({
    name: span.name,
    traceId: span.traceId,
    spanId: span.spanId,
    parentSpanId: span.parentSpanId ?? "",
    kind: span.kind,
    startNs: BigInt(span.startTimeUnixNano),
    endNs: BigInt(span.endTimeUnixNano),
    isFailure: span.status?.code === 2,
    attributes: Object.fromEntries(
      span.attributes.map(({ key, value }: { key: string; value: Record<string, unknown> }) => [
        key,
        "intValue" in value ? Number(value.intValue) : Object.values(value)[0],
      ]),
    ),
  }));
}
