import { afterAll, expect } from "bun:test";
import type { ProviderClient } from "../../src/catalog/provider_client.ts";
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
import { AnswerMemory } from "../../src/platform/answer_memory.ts";
import { route } from "../catalog/sockets.ts";
import { sleep } from "../platform/own_redis.ts";
/** Streams of one provider to one client, without a ledger: the pieces that a provider sends, and an owner that notes the ends. */

export const CLIENT_MODEL = "client/model";
export const BROKE_OFF = '{"error":"broke off"}';
const ERRORS: ReadonlySet<RelayEnd["how"]> = new Set([
  "broke_off",
  "fell_silent",
  "broke_after_finish",
  "broke_held_up",
]);

/** A clock that a test sets. */
const nowMs = 1_000_000;
export const relays = createRelays({
  providerIdleMs: 10_000,
  clientIdleMs: 5_000,
  readOnMs: 60_000,
  nowMs: () => nowMs,
});
afterAll(() => {
  expect(relays.count()).toBe(0);
  relays.close();
});

const NEVER_FULL = new AnswerMemory({
  ...{ max: Number.MAX_SAFE_INTEGER, min: 1, fractions: { account: 1, tenant: 1 }, onShed() {} },
});

export type Ended = { how: RelayEnd["how"]; relayed?: Relayed; isWhole?: boolean };
/** What a test does instead, for one kind of end. */
export type OnEnd = Partial<Record<RelayEnd["how"], () => Promise<void>>>;

/** An owner that notes the ends of its stream. More than one end is a failure of the relay. */
export function noteEnds(onEnd: OnEnd = {}) {
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
      return ERRORS.has(how) ? BROKE_OFF : undefined;
    },
  };
  return { ended, owner };
}

export const facts = (wantsUsage = true) => ({ requestId: "r1", createdUnix: 5, modelId: CLIENT_MODEL, wantsUsage });

/** A provider whose answer is these pieces, each read separately, followed by this end. */
export function piecesFrom(pieces: readonly Uint8Array[], end: "end" | "cut" = "end"): ProviderClient {
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

export function providerOf(post: ProviderClient["post"]): ProviderClient {
  const none = () => Promise.reject(new Error("not asked for here"));
  return { post, postWhole: none, listModels: none, ping: none, canConnect: none };
}

export function open(
  provider: ProviderClient,
  requestId = "r1",
  to = route("http://127.0.0.1:1"),
  { memory = NEVER_FULL, payer = { accountId: 1, tenantId: 0 } } = {},
): Promise<OpenedStream> {
  const text = "{}";
  return openChatStream(
    {
      provider,
      answerMemory: memory,
      payer,
      requestId,
      body: { model: CLIENT_MODEL, messages: [{ role: "user", content: "hello" }] },
      raw: { text, value: {}, spans: new Map(), room: NO_ROOM },
      namer: { secretKey: new Uint8Array(32), accountId: 1 },
      filtered: { changed: new Map(), dropped: undefined },
      model: to,
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
export type Outcome = { refused?: unknown; text: string; ended: Ended[] };

export async function relayed(
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

export const CHUNK = (delta: unknown, finish: string | null = null) =>
  `data: ${JSON.stringify({ id: "c", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
export const bytesOf = (text: string) => new TextEncoder().encode(text);

/** A provider that the test controls. `aborted`: the relay aborted the call. */
export function handProvider(first = CHUNK({ content: "one" })) {
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
export async function openOne(options: Partial<RelayOptions> = {}, onEnd: OnEnd = {}, readsOn = false) {
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
