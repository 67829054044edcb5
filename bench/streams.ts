import { ChunkRewriter, type StreamRewriter } from "../src/gateway/chunks.ts";
import { ResponseEvents } from "../src/gateway/responses/from_chat.ts";
import { OwnEvents } from "../src/gateway/responses/own_responses.ts";
import { ToolNames } from "../src/gateway/responses/tools.ts";
import { type EventSink, SseReader } from "../src/gateway/sse.ts";
import { PROVIDER_STREAMS } from "../test/gateway/provider_streams.ts";
import { RESPONSES_STREAMS } from "../test/gateway/responses_streams.ts";
import { measureInPlace } from "./streams_in_place.ts";

/**
 * `bun run bench:streams`: what one event of a stream costs, by the shapes of real providers: parsed out of the bytes, rewritten for
 * the client as a chunk of a chat or as an event of a response, encoded again. µs an event, the lower quartile of several rounds, each on a new stream. No sockets, no provider: with `--in-place
 * [SHAPE]`, a running replica (`streams_in_place.ts`).
 */

const EVENTS = 2_000;
const ROUNDS = 31;
const WARM_UP_ROUNDS = 20;
/** As many events as arrive together. */
const AT_ONCE = 4;
const WORDS = [" the", " quick", " brown", " fox", " jumps", ",", " über", " 中文", " over", "."];
const FACTS = { requestId: "bench", createdUnix: 1, modelId: "sold-name" };
const RESPONSE = {
  id: "resp_bench",
  createdUnix: 1,
  modelId: "sold-name",
  metadata: "{}",
  previousResponseId: null,
  store: false,
  echo: '"tools":[]',
};
const OUTPUT = { response: RESPONSE, names: new ToolNames(), seal: undefined };
const encoder = new TextEncoder();

const [place, only = ""] = process.argv.slice(2);
if (place === "--in-place") await measureInPlace(only);
else measureAlone();

function measureAlone(): void {
  console.log(`${EVENTS} events a stream, lower quartile of ${ROUNDS} rounds, Bun ${Bun.version}\n`);
  console.log(
    "| chat | usage not asked for, µs | usage asked for, µs | as a response, µs |\n| --- | --- | --- | --- |",
  );
  for (const { name, opening, event } of PROVIDER_STREAMS) {
    const reads = readsOf(opening, (text, n) => `data: ${event(text, n)}\n\n`);
    const chat = (wantsUsage: boolean) => () => new ChunkRewriter({ ...FACTS, wantsUsage });
    const cells = [chat(false), chat(true), () => new ResponseEvents(OUTPUT)].map((make) => quartileOf(reads, make));
    console.log(`| ${name} | ${cells.join(" | ")} |`);
  }
  console.log("\n| a provider's own response | passed through, µs |\n| --- | --- |");
  for (const { name, opening, event } of RESPONSES_STREAMS)
    console.log(`| ${name} | ${quartileOf(readsOf(opening, event), () => new OwnEvents(RESPONSE))} |`);
}

/** A stream as it is read, some events at once. */
function readsOf(opening: string, event: (text: string, n: number) => string): Uint8Array[] {
  const events = Array.from({ length: EVENTS }, (_, n) => event(WORDS[n % WORDS.length] ?? "", n));
  const reads: Uint8Array[] = [encoder.encode(opening)];
  for (let n = 0; n < EVENTS; n += AT_ONCE) reads.push(encoder.encode(events.slice(n, n + AT_ONCE).join("")));
  return reads;
}

function quartileOf(reads: readonly Uint8Array[], make: () => StreamRewriter): string {
  for (let round = 0; round < WARM_UP_ROUNDS; round++) microsOf(reads, make());
  const taken = Array.from({ length: ROUNDS }, () => microsOf(reads, make())).sort((a, b) => a - b);
  return (taken[ROUNDS >> 2] ?? Number.NaN).toFixed(2);
}

/** µs an event of one whole stream. */
function microsOf(reads: readonly Uint8Array[], rewriter: StreamRewriter): number {
  const reader = new SseReader();
  let out = "";
  const sink: EventSink = {
    takeEvent(text, at) {
      const end = rewriter.rewriteEvent?.(text, at) ?? -1;
      if (end > 0) out += rewriter.takeRewritten?.() ?? "";
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
