import { ChunkRewriter } from "../src/gateway/chunks.ts";
import { type EventSink, SseReader } from "../src/gateway/sse.ts";
import { PROVIDER_STREAMS } from "../test/gateway/provider_streams.ts";

/**
 * `bun run bench:streams`: what one event of a stream costs, by the shapes of real providers: parsed out of the bytes, rewritten for
 * the client, encoded again. µs an event, the lower quartile of several rounds, each on a new stream. No sockets, no provider.
 */

const EVENTS = 2_000;
const ROUNDS = 31;
const WARM_UP_ROUNDS = 20;
/** As many events as arrive together. */
const AT_ONCE = 4;
const WORDS = [" the", " quick", " brown", " fox", " jumps", ",", " über", " 中文", " over", "."];
const FACTS = { requestId: "bench", createdUnix: 1, modelId: "sold-name" };
const encoder = new TextEncoder();

console.log(`${EVENTS} events a stream, lower quartile of ${ROUNDS} rounds, Bun ${Bun.version}\n`);
console.log("| shape | usage not asked for, µs | usage asked for, µs |\n| --- | --- | --- |");
for (const stream of PROVIDER_STREAMS) {
  const payloads = Array.from({ length: EVENTS }, (_, n) => stream.event(WORDS[n % WORDS.length] ?? "", n));
  const reads: Uint8Array[] = [encoder.encode(stream.opening)];
  for (let n = 0; n < EVENTS; n += AT_ONCE)
    reads.push(
      encoder.encode(
        payloads
          .slice(n, n + AT_ONCE)
          .map((payload) => `data: ${payload}\n\n`)
          .join(""),
      ),
    );
  const cells = [false, true].map((wantsUsage) => {
    for (let round = 0; round < WARM_UP_ROUNDS; round++) microsOf(reads, wantsUsage);
    const taken = Array.from({ length: ROUNDS }, () => microsOf(reads, wantsUsage)).sort((a, b) => a - b);
    return (taken[ROUNDS >> 2] ?? Number.NaN).toFixed(2);
  });
  console.log(`| ${stream.name} | ${cells.join(" | ")} |`);
}

/** µs an event of one whole stream. */
function microsOf(reads: readonly Uint8Array[], wantsUsage: boolean): number {
  const reader = new SseReader();
  const rewriter = new ChunkRewriter({ ...FACTS, wantsUsage });
  let out = "";
  const sink: EventSink = {
    takeEvent(text, at) {
      const end = rewriter.rewriteEvent(text, at);
      if (end > 0) out += rewriter.rewritten;
      return end;
    },
    takePayload(payload) {
      out += rewriter.rewrite(payload) ?? "";
    },
  };
  const startedAt = performance.now();
  for (const bytes of reads) {
    out = "";
    reader.read(bytes, sink);
    encoder.encode(out);
  }
  return ((performance.now() - startedAt) * 1000) / EVENTS;
}
