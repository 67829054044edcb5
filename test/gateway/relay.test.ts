import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { createProviderClient, type ProviderClient } from "../../src/catalog/provider_client.ts";
import { ProviderFailure } from "../../src/catalog/provider_errors.ts";
import { serve } from "../../src/platform/runtime.ts";
import { type RawServer, rejectionOf, route, startRawServer } from "../catalog/sockets.ts";
import { sleep } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { SEED } from "../property.ts";
import { randomOf } from "../random.ts";
import {
  BROKE_OFF,
  bytesOf,
  CHUNK,
  CLIENT_MODEL,
  type Ended,
  facts,
  noteEnds,
  type Outcome,
  open,
  openOne,
  piecesFrom,
  relayed,
  relays,
} from "./relay_streams.ts";
import {
  payloadsIn,
  relayedChunks,
  richTranscript,
  shortTranscript,
  type Transcript,
  type UsageIn,
} from "./transcripts.ts";

/**
 * One stream from a provider to a client: the same output however the bytes are split, and never a clean end of a broken
 * stream. Source: END-3, END-5, STR-2, STR-5.
 */
const USAGE_PLACES: UsageIn[] = ["own", "finish", "every", "none"];
const AT_ONCE = 16;

beforeAll(() => console.log(`seed ${SEED}`));

/** The expected output, as the chunk sent for each payload. */
function expectedOf({ chunks }: Transcript, wantsUsage: boolean) {
  const out = relayedChunks(chunks, { modelId: CLIENT_MODEL, wantsUsage });
  const reported = chunks.find(({ usage }) => usage !== undefined);
  const last = chunks.find(({ usage, choices }) => usage !== undefined && choices.length === 0);
  const usageChunk = reported && { ...(last ?? { ...reported, choices: [] }), model: CLIENT_MODEL };
  return { out, usageChunk: wantsUsage ? usageChunk : undefined };
}

const eventsIn = (text: string) =>
  text
    .split("\n\n")
    .slice(0, -1)
    .map((event) => {
      expect(event.startsWith("data: ") && !event.includes("\n")).toBe(true);
      return event.slice(6);
    });

/** The text of a complete stream has the values of its transcript. From here on it is compared as text. */
async function wholeText(transcript: Transcript, wantsUsage: boolean): Promise<string> {
  const { text, ended } = await relayed(piecesFrom([transcript.bytes]), { wantsUsage });
  const { out, usageChunk } = expectedOf(transcript, wantsUsage);
  const events = eventsIn(text);
  expect(events.at(-1)).toBe("[DONE]");
  expect(events.slice(0, -1).map((event) => JSON.parse(event))).toEqual([
    ...out.filter((chunk) => chunk !== undefined),
    ...(usageChunk ? [usageChunk] : []),
  ]);
  expect(ended.map(({ how }) => how)).toEqual(["complete"]);
  return text;
}

function splitAt(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const ends = [...[...cuts].sort((a, b) => a - b), bytes.length];
  return ends.map((end, i) => bytes.subarray(i === 0 ? 0 : ends[i - 1], end));
}

/** Runs `work` for every number from 0 to `last`, several at a time. */
async function forEach(last: number, work: (at: number) => Promise<void>): Promise<void> {
  let next = 0;
  const run = async () => {
    while (next <= last) await work(next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, run));
}

describe("the same output however the bytes are split", () => {
  test.each(USAGE_PLACES)("split in two at every byte (usage: %s)", async (usageIn) => {
    const transcript = richTranscript(usageIn);
    for (const wantsUsage of [true, false]) {
      const whole = await wholeText(transcript, wantsUsage);
      await forEach(transcript.bytes.length, async (at) => {
        const { text, ended } = await relayed(piecesFrom(splitAt(transcript.bytes, [at])), { wantsUsage });
        if (text !== whole) expect({ at, text }).toEqual({ at, text: whole });
        expect(ended.map(({ how }) => how)).toEqual(["complete"]);
      });
    }
  });

  test("byte by byte with empty pieces between, and 500 random splits", async () => {
    const random = randomOf(SEED).next;
    const transcript = richTranscript("own");
    const whole = await wholeText(transcript, true);
    const single = [...transcript.bytes].flatMap((byte) => [new Uint8Array(0), Uint8Array.of(byte)]);
    expect((await relayed(piecesFrom(single))).text).toBe(whole);
    for (let round = 0; round < 500; round++) {
      const cuts = Array.from({ length: Math.floor(random() * 30) }, () =>
        Math.floor(random() * transcript.bytes.length),
      );
      const { text } = await relayed(piecesFrom(splitAt(transcript.bytes, cuts)));
      if (text !== whole) expect({ SEED, round, cuts, text }).toEqual({ SEED, round, cuts, text: whole });
    }
  });

  test("an error event gives everything before it, then our error event, for every split", async () => {
    const { bytes, chunks } = shortTranscript();
    const before = bytes.subarray(0, find(bytes, ": ping"));
    const wire = Buffer.concat([
      before,
      Buffer.from('data: {"error":{"message":"org-secret é"}}\r\n\r\ndata: [DONE]\n\n'),
    ]);
    const [first] = relayedChunks(chunks, { modelId: CLIENT_MODEL, wantsUsage: true });
    await forEach(wire.length, async (at) => {
      const { text, ended } = await relayed(piecesFrom(splitAt(wire, [at])));
      const events = eventsIn(text);
      expect(events.map((event) => JSON.parse(event))).toEqual([first, JSON.parse(BROKE_OFF)]);
      expect(ended).toEqual([{ how: "broke_off" }]);
    });
  });
});

test("text that arrives with the end is sent immediately: only [DONE] waits for the settlement", async () => {
  const { bytes } = shortTranscript();
  const { promise: settled, resolve: settle } = Promise.withResolvers<void>();
  const { owner } = noteEnds({ complete: () => settled });
  const opened = await open(piecesFrom([bytes]));
  const reader = relays.start(opened, facts(false), owner).getReader();
  const whole = eventsIn(await wholeText(shortTranscript(), false));
  const { value } = await reader.read();
  expect(eventsIn(Buffer.from(value ?? []).toString())).toEqual(whole.slice(0, -1));
  const rest = reader.read();
  expect(await Promise.race([rest, sleep(100)])).toBeUndefined();
  settle();
  expect(eventsIn(Buffer.from((await rest).value ?? []).toString())).toEqual(["[DONE]"]);
});

/** The expected result of the first `at` bytes followed by a cut or a clean end, by another parser and the rules. */
function expectedCut(transcript: Transcript, whole: string, { at, end }: { at: number; end: "end" | "cut" }) {
  const bytes = transcript.bytes.subarray(0, at);
  // A clean end completes the event that was being read.
  const payloads = payloadsIn(end === "end" ? Buffer.concat([bytes, Buffer.from("\n\n")]) : bytes);
  const isGood = payloads.map((payload) => payload === "[DONE]" || isJson(payload));
  const good = isGood.includes(false) ? isGood.indexOf(false) : payloads.length;
  const came = transcript.chunks.slice(0, good);
  if (!came.some(hasContent)) return { refused: true, text: "" };
  if (payloads.includes("[DONE]")) return { refused: false, text: whole };
  const { out, usageChunk } = expectedOf(transcript, true);
  const isFinished = came.some(({ choices }) => choices.some(({ finish_reason }) => finish_reason !== null));
  const shown = out.slice(0, good).filter((chunk) => chunk !== undefined);
  const wholeEvents = eventsIn(whole);
  const events = wholeEvents.slice(0, shown.length);
  if (end === "end" && isFinished && good === payloads.length) {
    const hasUsage = usageChunk !== undefined && came.some(({ usage }) => usage !== undefined);
    events.push(...(hasUsage ? [wholeEvents.at(-2) ?? ""] : []), "[DONE]");
  } else events.push(BROKE_OFF);
  return { refused: false, text: events.map((event) => `data: ${event}\n\n`).join("") };
}

/** Whether a chunk has more than a role and empty texts: the first such one begins the answer. */
function hasContent({ choices }: Transcript["chunks"][number]): boolean {
  return choices.some(({ delta }) =>
    Object.entries(Object(delta)).some(([name, value]) => name !== "role" && value !== ""),
  );
}

function howEnded(text: string): Ended["how"] {
  if (text.endsWith("data: [DONE]\n\n")) return "complete";
  return /"finish_reason":\s*"\w/.test(text) ? "broke_after_finish" : "broke_off";
}

function expectEnd({ text, ended, refused }: Outcome): void {
  if (refused !== undefined) expect(refused).toBeInstanceOf(ProviderFailure);
  // Settled exactly if the answer is complete, or has a finish_reason.
  else expect(ended.map(({ how }) => how)).toEqual([howEnded(text)]);
}

describe("a cut at every byte: the whole answer, or its beginning and an error event; never a clean end of a broken stream", () => {
  test.each(
    USAGE_PLACES.flatMap(
      (usageIn) =>
        [
          [usageIn, "cut"],
          [usageIn, "end"],
        ] as const,
    ),
  )("usage: %s, then a %s", async (usageIn, end) => {
    const transcript = richTranscript(usageIn);
    const whole = await wholeText(transcript, true);
    let complete = 0;
    await forEach(transcript.bytes.length, async (at) => {
      const outcome = await relayed(piecesFrom([transcript.bytes.subarray(0, at)], end));
      const expected = expectedCut(transcript, whole, { at, end });
      expectEnd(outcome);
      if (outcome.text !== expected.text || (outcome.refused !== undefined) !== expected.refused)
        expect({ at, ...outcome }).toMatchObject({ at, ...expected });
      if (outcome.text === whole) complete++;
    });
    expect(complete).toBeGreaterThan(0);
    expect(complete).toBeLessThan(transcript.bytes.length / 2);
  });
});

const FINISH_AND_DONE =
  'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n';

/** The answer to a GET as it is on the wire, read until the connection closes. */
function rawAnswer(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = "";
    const socket = connect({ port, host: "127.0.0.1" }, () => {
      socket.write("GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    });
    socket.on("data", (part) => {
      answer += part;
    });
    socket.on("error", reject);
    socket.on("close", () => resolve(answer));
  });
}

/** How a real provider may cut its answer: with a length, in chunks, or until the connection closes. */
type Framing = "length" | "chunked" | "close";
type Plan = { pieces: Uint8Array[]; framing: Framing; end: "whole" | "fin" | "rst"; lengthSaid: number };

describe("over sockets", () => {
  const plans = new Map<string, Plan>();
  const transcript = shortTranscript();
  let server: RawServer;
  let provider: ProviderClient;
  beforeAll(async () => {
    server = await startRawServer((socket, request) => {
      const plan = plans.get(/x-request-id: (\S+)/i.exec(request)?.[1] ?? "");
      if (plan) void answer(socket, plan);
    });
    const config = { providerConnectMs: 5_000, providerFirstByteMs: 20_000, providerAllowPrivate: [server.hostPort] };
    provider = createProviderClient({ config, log: quietLog().log });
  });
  afterAll(() => server.close());

  async function answer(socket: Socket, { pieces, framing, end, lengthSaid }: Plan): Promise<void> {
    const write = (bytes: Uint8Array | string) => new Promise((resolve) => socket.write(bytes, resolve));
    const said = {
      length: `content-length: ${lengthSaid}`,
      chunked: "transfer-encoding: chunked",
      close: "connection: close",
    };
    socket.setNoDelay(true);
    await write(`HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n${said[framing]}\r\n\r\n`);
    for (const piece of pieces) {
      if (piece.length === 0) continue;
      await write(
        framing === "chunked"
          ? Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n")])
          : piece,
      );
      await sleep(1); // Else the system may join two writes into one segment.
    }
    if (end === "whole" && framing === "chunked") await write("0\r\n\r\n");
    if (end === "whole" && framing !== "close") return;
    if (end === "rst") socket.resetAndDestroy();
    else socket.end();
  }

  test("events that arrive in one segment leave in one HTTP chunk", async () => {
    const event = (text: string) => `data: {"id":"c","choices":[{"index":0,"delta":{"content":"${text}"}}]}\n\n`;
    const texts = Array.from({ length: 20 }, (_, n) => `word ${n}`);
    const pieces = [event("first"), texts.map(event).join(""), FINISH_AND_DONE].map((piece) => Buffer.from(piece));
    plans.set("segment", { pieces, framing: "close", end: "whole", lengthSaid: 0 });
    const gateway = serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: async () =>
        new Response(relays.start(await open(provider, "segment", route(server.baseUrl)), facts(), noteEnds().owner)),
      onError: (error) => new Response(String(error), { status: 500 }),
    });
    try {
      const answer = await rawAnswer(gateway.port);
      const chunks = answer.split(/\r\n[0-9a-f]+\r\n/i);
      const together = chunks.filter((chunk) => chunk.includes('"word '));
      expect(together).toHaveLength(1);
      for (const text of texts) expect(together[0]).toContain(`"${text}"`);
    } finally {
      await gateway.closeNow();
    }
  });

  let calls = 0;
  async function ask(plan: Plan): Promise<Outcome> {
    const requestId = `call-${++calls}`;
    plans.set(requestId, plan);
    const outcome = await relayed(provider, { requestId, to: route(server.baseUrl) });
    plans.delete(requestId);
    return outcome;
  }

  test("a stream split in two at every byte gives the same output", async () => {
    const { bytes } = transcript;
    const whole = await wholeText(transcript, true);
    await forEach(bytes.length, async (at) => {
      const framing = (["length", "chunked", "close"] as const)[at % 3] ?? "length";
      const outcome = await ask({ pieces: splitAt(bytes, [at]), framing, end: "whole", lengthSaid: bytes.length });
      if (outcome.text !== whole) expect({ at, framing, ...outcome }).toMatchObject({ at, framing, text: whole });
      expectEnd(outcome);
    });
  });

  test.each([
    ["length", "fin"],
    ["chunked", "fin"],
    ["close", "fin"],
    ["chunked", "rst"],
  ] as const)("a cut at every byte: %s, %s", async (framing, end) => {
    const { bytes } = transcript;
    const whole = await wholeText(transcript, true);
    const wholeEvents = eventsIn(whole);
    let exact = 0;
    await forEach(bytes.length, async (at) => {
      const outcome = await ask({
        pieces: splitAt(bytes.subarray(0, at), [at >> 1]),
        framing,
        end,
        lengthSaid: bytes.length + 1,
      });
      const expected = expectedCut(transcript, whole, { at, end: framing === "close" ? "end" : "cut" });
      expectEnd(outcome);
      if (outcome.text === expected.text && (outcome.refused !== undefined) === expected.refused) exact++;
      else {
        // The system may discard received data when the connection breaks: then less arrives, but never a clean end.
        const events = eventsIn(outcome.text);
        expect({ at, last: events.at(-1) ?? "refused" }).toEqual({ at, last: outcome.refused ? "refused" : BROKE_OFF });
        expect(events.slice(0, -1)).toEqual(wholeEvents.slice(0, Math.max(0, events.length - 1)));
        expect(events.length).toBeLessThanOrEqual(eventsIn(expected.text).length);
      }
    });
    console.log(`${framing}, ${end}: ${bytes.length + 1} cuts, ${exact} with all that was sent`);
    expect(exact).toBeGreaterThan(bytes.length / 2);
  });
});
describe("silence", () => {
  test("a keep-alive after 15 s without output, whatever the provider sends; one at a time for a client that does not read", async () => {
    const { own, next, jump, send, ended, reader, timeouts, state } = await openOne();
    expect(await next()).toContain("one");
    send(": still thinking\n\n");
    await jump(14_000);
    send(": still thinking\n\n");
    await jump(2_000);
    expect(await next()).toBe(": keep-alive\n\n");
    // The client stops reading: one keep-alive waits for it, and no second one is added.
    for (let i = 0; i < 3; i++) {
      await jump(16_000);
      send(": still thinking\n\n");
    }
    expect(await next()).toBe(": keep-alive\n\n");
    send(CHUNK({ content: "two" }));
    expect(await next()).toContain("two");
    expect(ended).toEqual([]);
    // A busy provider does not keep the connection of a client that reads nothing.
    await jump(16_000);
    await jump(50_000);
    send(": still thinking\n\n");
    await jump(12_000);
    expect([timeouts, ended.map(({ how }) => how), state.aborted, own.count()]).toEqual([
      ["client_idle"],
      ["client_left"],
      true,
      0,
    ]);
    await rejectionOf(reader.read().then(() => reader.read()));
    own.close();
  });

  test("a provider that sends no complete line for PROVIDER_IDLE_MS has fallen silent, even if it sends bytes", async () => {
    const { own, next, jump, send, ended, timeouts, state } = await openOne();
    await next();
    send('data: {"choices":[{');
    await jump(70_000);
    await next();
    send('"index":0,');
    await jump(60_000);
    expect(await next()).toBe(`data: ${BROKE_OFF}\n\n`);
    expect([timeouts, ended, state.aborted]).toEqual([["provider_idle"], [{ how: "fell_silent" }], true]);
    own.close();
  });

  test.each([
    [1_900, "broke_off"],
    [2_100, "broke_held_up"],
  ] as const)("a provider that breaks off after its client took nothing for %d ms: %s", async (ms, how) => {
    const { own, next, jump, send, close, ended } = await openOne();
    await jump(ms);
    expect(await next()).toContain("one");
    send(CHUNK({ content: "two" }));
    expect(await next()).toContain("two");
    close();
    expect(await next()).toBe(`data: ${BROKE_OFF}\n\n`);
    expect(ended.map((end) => end.how)).toEqual([how]);
    if (how === "broke_held_up") expect(ended[0]?.relayed?.text).toBe("onetwo");
    own.close();
  });

  test("a client that takes nothing for CLIENT_IDLE_MS is disconnected and settled, whatever the provider does", async () => {
    const { own, jump, send, ended, timeouts, state, reader } = await openOne();
    send(CHUNK({ content: "two" }));
    await jump(61_000);
    expect([timeouts, ended.map(({ how }) => how), state.aborted]).toEqual([["client_idle"], ["client_left"], true]);
    expect(ended[0]?.relayed?.text).toContain("one");
    await rejectionOf(reader.read());
    own.close();
  });

  test("a line of 7 MB in pieces of 1 KB passes; an endless one ends the stream before it fills the memory", async () => {
    const piece = bytesOf("x".repeat(1024));
    const good = [
      bytesOf(CHUNK({ content: "@" }).split("@")[0] ?? ""),
      ...Array(7 * 1024).fill(piece),
      bytesOf(CHUNK({ content: "@" }).split("@")[1] ?? ""),
    ];
    // Linear time: each byte is read once. Searching the whole line for every piece would take minutes.
    const { text } = await relayed(piecesFrom([bytesOf(CHUNK({})), ...good, bytesOf("data: [DONE]\n\n")]));
    expect(text.length).toBeGreaterThan(7_000_000);
    expect(text).toEndWith("data: [DONE]\n\n");
    const endless = await relayed(piecesFrom([bytesOf(CHUNK({ content: "one" })), ...Array(20 * 1024).fill(piece)]));
    expect(eventsIn(endless.text).length).toBe(2);
    expect(endless.ended).toEqual([{ how: "oversized" }]);
  });
});

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function find(bytes: Uint8Array, text: string): number {
  return Buffer.from(bytes).indexOf(text);
}
