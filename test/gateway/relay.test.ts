import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import type { Socket } from "node:net";
import { createProviderClient, type ProviderClient } from "../../src/catalog/provider_client.ts";
import { ProviderFailure } from "../../src/catalog/provider_errors.ts";
import type { Relayed } from "../../src/gateway/chunks.ts";
import {
  createRelays,
  type IdleLimit,
  type OpenedStream,
  type RelayEnd,
  type RelayOptions,
  type StreamOwner,
} from "../../src/gateway/relay.ts";
import { openChatStream } from "../../src/gateway/upstream_chat.ts";
import { NO_ROOM } from "../../src/http/body.ts";
import { type RawServer, rejectionOf, route, startRawServer } from "../catalog/sockets.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
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

setDefaultTimeout(120_000);
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const CLIENT_MODEL = "client/model";
const USAGE_PLACES: UsageIn[] = ["own", "finish", "every", "none"];
const BROKE_OFF = '{"error":"broke off"}';
const AT_ONCE = 16;

beforeAll(() => console.log(`seed ${SEED}`));

/** A clock that a test sets. */
const nowMs = 1_000_000;
const relays = createRelays({ providerIdleMs: 10_000, clientIdleMs: 5_000, readOnMs: 60_000, nowMs: () => nowMs });
afterAll(() => {
  expect(relays.count()).toBe(0);
  relays.close();
});

type Ended = { how: RelayEnd["how"]; relayed?: Relayed; isWhole?: boolean };
/** What a test does instead, for one kind of end. */
type OnEnd = Partial<Record<RelayEnd["how"], () => Promise<void>>>;

/** An owner that notes the ends of its stream. More than one end is a failure of the relay. */
function noteEnds(onEnd: OnEnd = {}) {
  const ended: Ended[] = [];
  const owner: StreamOwner = {
    async ended(end) {
      const { how } = end;
      if (onEnd[how]) return void (await onEnd[how]());
      ended.push({
        how,
        ...("relayed" in end && { relayed: end.relayed }),
        ...(how === "client_left" && { isWhole: end.isWhole }),
      });
      if (how === "ended_by_us") return '{"error":"ended by us"}';
      return how === "broke_off" || how === "broke_after_finish" ? BROKE_OFF : undefined;
    },
  };
  return { ended, owner };
}

const facts = (wantsUsage = true) => ({ requestId: "r1", createdUnix: 5, modelId: CLIENT_MODEL, wantsUsage });

/** A provider whose answer is these pieces, each read separately, followed by this end. */
function piecesFrom(pieces: readonly Uint8Array[], end: "end" | "cut" = "end"): ProviderClient {
  let next = 0;
  const body = () =>
    new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          const piece = pieces[next++];
          if (piece !== undefined) controller.enqueue(piece);
          else if (end === "end") controller.close();
          else controller.error(new Error("the connection was reset"));
        },
      },
      { highWaterMark: 0 },
    );
  return providerOf(async () => new Response(body(), { headers: { "content-type": "text/event-stream" } }));
}

function providerOf(post: ProviderClient["post"]): ProviderClient {
  const none = () => Promise.reject(new Error("not asked for here"));
  return { post, postWhole: none, listModels: none, ping: none, canConnect: none };
}

function open(provider: ProviderClient, requestId = "r1", to = route("http://127.0.0.1:1")): Promise<OpenedStream> {
  const text = "{}";
  return openChatStream(
    {
      provider,
      requestId,
      body: { model: CLIENT_MODEL, messages: [{ role: "user", content: "hello" }] },
      raw: { text, value: {}, spans: new Map(), room: NO_ROOM },
      filtered: { changed: new Map(), dropped: undefined },
      model: { allowedParams: new Set<string>() },
      capTokens: null,
      signal: new AbortController().signal,
      traceparent: undefined,
      beforeSend: () => {},
      onHeaders: () => {},
      firstByteMs: 20_000,
      totalMs: 20_000,
    },
    to,
  );
}

/** What a client of the stream gets; `refused` if there was no first event. */
type Outcome = { refused?: unknown; text: string; ended: Ended[] };

async function relayed(
  provider: ProviderClient,
  { wantsUsage = true, requestId = "r1", to = route("http://127.0.0.1:1") } = {},
): Promise<Outcome> {
  let opened: OpenedStream;
  try {
    opened = await open(provider, requestId, to);
  } catch (refused) {
    return { refused, text: "", ended: [] };
  }
  const { ended, owner } = noteEnds();
  const text = await new Response(relays.start(opened, facts(wantsUsage), owner)).text();
  return { text, ended };
}

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
    const random = randomFrom(SEED);
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

  test("an error event: everything before it, then our error event, for every split", async () => {
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
  if (payloads.length === 0 || good === 0) return { refused: true, text: "" };
  if (payloads.includes("[DONE]")) return { refused: false, text: whole };
  const { out, usageChunk } = expectedOf(transcript, true);
  const came = transcript.chunks.slice(0, good);
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

  let calls = 0;
  async function ask(plan: Plan): Promise<Outcome> {
    const requestId = `call-${++calls}`;
    plans.set(requestId, plan);
    const outcome = await relayed(provider, { requestId, to: route(server.baseUrl) });
    plans.delete(requestId);
    return outcome;
  }

  test("split in two at every byte: the same output", async () => {
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

const CHUNK = (delta: unknown, finish: string | null = null) =>
  `data: ${JSON.stringify({ id: "c", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
const bytesOf = (text: string) => new TextEncoder().encode(text);

/** A provider that the test controls. `aborted`: the relay aborted the call. */
function handProvider(first = CHUNK({ content: "one" })) {
  let controller!: ReadableStreamDefaultController<Uint8Array>;
  const state = { aborted: false };
  const body = new ReadableStream<Uint8Array>({
    start(c) {
      controller = c;
      c.enqueue(bytesOf(first));
    },
  });
  const provider = providerOf(async (_route, _path, _body, { signal }) => {
    signal.addEventListener("abort", () => {
      state.aborted = true;
      controller.error(signal.reason);
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  });
  return {
    provider,
    state,
    send: (text: string) => controller.enqueue(bytesOf(text)),
    close: () => controller.close(),
  };
}

/** A stream with its own relay, so that it has its own clock, options and failures. */
async function openOne(options: Partial<RelayOptions> = {}, onEnd: OnEnd = {}, readsOn = false) {
  const timeouts: IdleLimit[] = [];
  const failures: unknown[] = [];
  const clock = { ms: 0 };
  const own = createRelays({
    providerIdleMs: 120_000,
    clientIdleMs: 60_000,
    readOnMs: 300_000,
    nowMs: () => clock.ms,
    onTimeout: (limit) => timeouts.push(limit),
    onFailure: (error) => failures.push(error),
    ...options,
  });
  const hand = handProvider();
  const noted = noteEnds(onEnd);
  const opened = await open(hand.provider);
  const reader = own.start(opened, { ...facts(), readsOn }, noted.owner).getReader();
  const next = async () => new TextDecoder().decode((await reader.read()).value);
  /** Moves the clock after all sent data has been read, and lets the relays' timer run. */
  const jump = async (ms: number) => {
    await sleep(20);
    clock.ms += ms;
    await sleep(1_300);
  };
  return { ...hand, own, reader, next, jump, ended: noted.ended, timeouts, failures };
}

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

  test("a provider that sends no complete line for PROVIDER_IDLE_MS has broken off, even if it sends bytes", async () => {
    const { own, next, jump, send, ended, timeouts, state } = await openOne();
    await next();
    send('data: {"choices":[{');
    await jump(70_000);
    await next();
    send('"index":0,');
    await jump(60_000);
    expect(await next()).toBe(`data: ${BROKE_OFF}\n\n`);
    expect([timeouts, ended, state.aborted]).toEqual([["provider_idle"], [{ how: "broke_off" }], true]);
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
    const startMs = performance.now();
    const { text } = await relayed(piecesFrom([bytesOf(CHUNK({})), ...good, bytesOf("data: [DONE]\n\n")]));
    const tookMs = performance.now() - startMs;
    expect(text.length).toBeGreaterThan(7_000_000);
    expect(text).toEndWith("data: [DONE]\n\n");
    // Linear time: each byte is read once. Searching the whole line for every piece would take minutes.
    console.log(`7 MB in ${good.length} pieces: ${Math.round(tookMs)} ms`);
    expect(tookMs).toBeLessThan(10_000);
    const endless = await relayed(piecesFrom([bytesOf(CHUNK({ content: "one" })), ...Array(20 * 1024).fill(piece)]));
    expect(eventsIn(endless.text).length).toBe(2);
    expect(endless.ended).toEqual([{ how: "broke_off" }]);
  });
});

describe("an end that the ledger fails to take", () => {
  const failing = async () => {
    throw new Error("the disk is full");
  };

  /** Nothing is left open, the failure was reported once, and the client got no clean end. */
  async function expectFailed(
    { own, failures, reader, state }: Awaited<ReturnType<typeof openOne>>,
    isCancelled = false,
  ): Promise<void> {
    await until(() => failures.length > 0);
    expect(failures).toEqual([new Error("the disk is full")]);
    let text = "";
    const broke = await (async () => {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return false;
        text += new TextDecoder().decode(value);
      }
    })().catch(() => true);
    expect({ broke, done: text.includes("[DONE]") }).toEqual({ broke: !isCancelled, done: false });
    expect([own.count(), state.aborted]).toEqual([0, true]);
    own.close();
  }

  test("complete: the stream is cut without [DONE]", async () => {
    const one = await openOne({}, { complete: failing });
    await one.next();
    one.send("data: [DONE]\n\n: more\n\n");
    one.send(": and more\n\n");
    await expectFailed(one);
  });
  test("the provider broke off", async () => {
    const one = await openOne({}, { broke_off: failing });
    await one.next();
    one.send("data: oops\n\n");
    await expectFailed(one);
  });
  test("the provider is silent: detected by the timer, which nothing awaits", async () => {
    const one = await openOne({}, { broke_off: failing });
    await one.next();
    one.send(": line\n");
    await one.jump(121_000);
    await expectFailed(one);
  });
  test("the client left", async () => {
    const one = await openOne({}, { client_left: failing });
    await one.next();
    await one.reader.cancel();
    await expectFailed(one, true);
  });
  test("the client reads too slowly: detected by the timer, which nothing awaits", async () => {
    const one = await openOne({}, { client_left: failing });
    await one.jump(61_000);
    await expectFailed(one);
  });
  test("the replica shuts down: the other streams are ended too", async () => {
    const one = await openOne({}, { ended_by_us: failing });
    const other = noteEnds();
    const stream = one.own.start(await open(handProvider().provider), facts(), other.owner);
    await one.own.endAll();
    expect(other.ended).toEqual([{ how: "ended_by_us" }]);
    expect(await new Response(stream).text()).toEndWith('data: {"error":"ended by us"}\n\n');
    await expectFailed(one);
  });
  test("a rejection in these tests would have ended the process", async () => {
    // The tests above rely on this: the runtime ends the process for an unhandled rejection.
    const child = Bun.spawn(
      [process.execPath, "-e", "void (async () => { throw new Error('x') })(); setTimeout(() => {}, 1000)"],
      { stderr: "ignore" },
    );
    expect(await child.exited).not.toBe(0);
  });
});

describe("exactly one end", () => {
  test("a stream that starts after the shutdown is ended too", async () => {
    const one = await openOne();
    await one.own.endAll();
    const late = noteEnds();
    const hand = handProvider();
    const text = await new Response(one.own.start(await open(hand.provider), facts(), late.owner)).text();
    expect(text).toBe('data: {"error":"ended by us"}\n\n');
    expect([late.ended, hand.state.aborted, one.own.count()]).toEqual([[{ how: "ended_by_us" }], true, 0]);
    one.own.close();
  });

  test("the client leaves while the end is being settled: there is no second end", async () => {
    const settled = Promise.withResolvers<void>();
    const ended: string[] = [];
    const one = await openOne(
      {},
      {
        complete: async () => {
          ended.push("complete");
          await settled.promise;
        },
        client_left: async () => void ended.push("client_left"),
      },
    );
    await one.next();
    one.send(CHUNK({}, "stop"));
    await one.next();
    one.close();
    await until(() => ended.length === 1);
    await one.reader.cancel();
    settled.resolve();
    await one.own.endAll();
    await sleep(10);
    expect([ended, one.failures, one.own.count()]).toEqual([["complete"], [], 0]);
    one.own.close();
  });

  test("everything at once, 300 times: one end each", async () => {
    const random = randomFrom(SEED);
    for (let round = 0; round < 300; round++) {
      const one = await openOne();
      const acts = [
        () => one.send(CHUNK({ content: "x" })),
        () => one.send("data: [DONE]\n\n"),
        () => one.send("data: oops\n\n"),
        () => void one.own.endAll(),
        () => void one.reader.cancel(),
        () => void one.reader.read().catch(() => {}), // It may break off: which end came first is not the question.
      ];
      for (let i = 0; i < 6; i++) {
        try {
          acts[Math.floor(random() * acts.length)]?.();
        } catch {
          // The provider's side is closed already.
        }
        if (random() < 0.5) await Promise.resolve();
        if (random() < 0.2) await sleep(0);
      }
      await one.own.endAll();
      await until(() => one.ended.length > 0);
      if (one.ended.length !== 1 || one.failures.length > 0)
        expect({ SEED, round, ended: one.ended, failures: one.failures }).toEqual({
          SEED,
          round,
          ended: [expect.anything()],
          failures: [],
        });
      expect(one.own.count()).toBe(0);
      one.own.close();
    }
  });
});

describe("reading on after the client has left", () => {
  const usage = (tokens: number) =>
    `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 1, completion_tokens: tokens } })}\n\n`;
  const openLeft = async (options: Partial<RelayOptions> = {}) => {
    const one = await openOne(options, {}, true);
    expect(await one.next()).toContain("one");
    await one.reader.cancel();
    expect([one.own.count(), one.own.readOn(), one.ended, one.state.aborted]).toEqual([0, 1, [], false]);
    return one;
  };

  test("to the provider's end: the usage is the provider's, the text is what was relayed", async () => {
    const one = await openLeft();
    one.send(CHUNK({ content: "not relayed" }));
    one.send(CHUNK({}, "stop"));
    one.send(usage(700));
    one.send("data: [DONE]\n\n");
    one.close();
    await until(() => one.ended.length > 0);
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: true, relayed: { text: "one", usage: { completionTokens: 700 } } },
    ]);
    expect(one.own.readOn()).toBe(0);
    one.own.close();
  });

  test("the provider breaks off: what it reported last", async () => {
    const one = await openLeft();
    one.send(usage(300));
    one.send("data: oops\n\n");
    await until(() => one.ended.length > 0);
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: false, relayed: { usage: { completionTokens: 300 } } },
    ]);
    expect([one.own.readOn(), one.state.aborted]).toEqual([0, true]);
    one.own.close();
  });

  test.each([
    ["the provider falls silent", 121_000, ["provider_idle"]],
    ["it takes too long", 301_000, []],
  ] as const)("%s: its call is ended, and what it reported last counts", async (_, ms, limits) => {
    const one = await openLeft(limits.length > 0 ? {} : { providerIdleMs: 400_000 });
    one.send(usage(300));
    await one.jump(ms);
    expect([one.timeouts, one.own.readOn(), one.state.aborted]).toEqual([[...limits], 0, true]);
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: false, relayed: { usage: { completionTokens: 300 } } },
    ]);
    one.own.close();
  });

  test("above the maximum: further calls are aborted when their clients leave", async () => {
    const one = await openOne({ readOnMax: 0 }, {}, true);
    await one.next();
    await one.reader.cancel();
    expect([one.own.readOn(), one.state.aborted]).toEqual([0, true]);
    expect(one.ended).toMatchObject([{ how: "client_left", isWhole: false }]);
    one.own.close();
  });

  test("not if the whole answer has arrived already", async () => {
    const one = await openOne({}, {}, true);
    await one.next();
    one.send(CHUNK({}, "stop") + usage(700));
    await one.next();
    await one.reader.cancel();
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: true, relayed: { usage: { completionTokens: 700 } } },
    ]);
    one.own.close();
  });

  test("the replica shuts down: settled once, by what is known", async () => {
    const one = await openLeft();
    one.send(usage(300));
    await sleep(20); // Read by now.
    await one.own.endAll();
    expect(one.ended).toMatchObject([
      { how: "client_left", isWhole: false, relayed: { usage: { completionTokens: 300 } } },
    ]);
    expect([one.own.readOn(), one.state.aborted]).toEqual([0, true]);
    await sleep(20);
    expect(one.ended).toHaveLength(1);
    one.own.close();
  });
});

describe("behind [DONE]", () => {
  let server: RawServer;
  let provider: ProviderClient;
  let behave: (socket: Socket) => void = () => {};
  let closed = 0;
  const seen = new WeakSet<Socket>();
  beforeAll(async () => {
    server = await startRawServer((socket) => {
      if (!seen.has(socket)) socket.once("close", () => closed++);
      seen.add(socket);
      behave(socket);
    });
    const config = { providerConnectMs: 5_000, providerFirstByteMs: 20_000, providerAllowPrivate: [server.hostPort] };
    provider = createProviderClient({ config, log: quietLog().log });
  });
  afterAll(() => server.close());

  const ask = () => relayed(provider, { to: route(server.baseUrl) });
  const wire = `${CHUNK({ content: "one" })}${CHUNK({}, "stop")}data: [DONE]\n\n`;
  const chunked = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
  const HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";

  test("the provider closes the stream: the connection is reused", async () => {
    behave = (socket) => socket.write(`${HEAD}transfer-encoding: chunked\r\n\r\n${chunked(wire)}0\r\n\r\n`);
    await ask();
    const before = server.connections();
    for (let i = 0; i < 10; i++) {
      expect((await ask()).ended).toMatchObject([{ how: "complete" }]);
      await sleep(5);
    }
    expect(server.connections() - before).toBeLessThanOrEqual(2);
  });

  test.each([
    ["chunks of an answer", CHUNK({ content: "late" })],
    ["another [DONE]", "data: [DONE]\n\n"],
    ["an error", 'data: {"error":{"message":"late"}}\n\n'],
    ["no event at all", "\u0000\u0001 oops"],
  ])("the provider goes on with %s, at once or later: not relayed, and its call is ended", async (_, more) => {
    const whole = (await relayed(piecesFrom([bytesOf(wire)]))).text;
    behave = (socket) => socket.write(`${HEAD}content-length: 100000\r\n\r\n${wire}${more}`);
    const atOnce = closed;
    expect(await ask()).toMatchObject({ text: whole, ended: [{ how: "complete" }] });
    await until(() => closed > atOnce);
    behave = (socket) => {
      socket.write(`${HEAD}content-length: 100000\r\n\r\n${wire}`);
      setTimeout(() => socket.write(more), 50);
    };
    const later = closed;
    expect(await ask()).toMatchObject({ text: whole, ended: [{ how: "complete" }] });
    await until(() => closed > later);
  });

  test("the provider neither closes nor sends: the call is aborted after a second", async () => {
    behave = (socket) => socket.write(`${HEAD}content-length: 100000\r\n\r\n${wire}`);
    const before = closed;
    const startMs = performance.now();
    expect(await ask()).toMatchObject({ ended: [{ how: "complete" }] });
    expect(performance.now() - startMs).toBeLessThan(900);
    await until(() => closed > before);
    expect(performance.now() - startMs).toBeGreaterThan(900);
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

/** Pseudo-random numbers from 0 to 1; the same seed gives the same numbers. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
