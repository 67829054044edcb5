import { PROVIDER_STREAMS } from "../test/gateway/provider_streams.ts";

/** The workloads: the number of concurrent requests or their rate, their size, and the provider's behaviour. */

/** Other gateways, which are measured when asked for: `bench/peers.ts`. */
export const PEER_NAMES = ["portkey", "litellm"] as const;
export type PeerName = (typeof PEER_NAMES)[number];

/** Contenders of a run in which none is named. */
export const OWN_CONTENDERS = ["direct", "bare", "bare-js", "nginx", "tollgate", "peer"] as const;
export const CONTENDERS = [...OWN_CONTENDERS, ...PEER_NAMES] as const;
export type ContenderName = (typeof CONTENDERS)[number];

/** The model of a provider that has only chat completions. */
export const MODEL = "chat-a";
/** The model of a provider with a /responses of its own. */
export const OWN_MODEL = "own-a";

/** What a request asks for: a chat, a response that is passed through from a provider's own, one that is made of a chat. */
export type Api = "chat" | "own" | "translated";
/** In this name's place, `--only` takes all the workloads that measure responses. */
export const RESPONSES = "responses";

/** The work that a contender does for a request, as it runs here. Its figures mean little without this. */
export type Work = {
  checksKey: boolean;
  keepsQuotaAndBalance: boolean;
  writesReceipt: boolean;
  limitsRate: boolean;
  /** Parses requests and answers, and rewrites them if necessary; otherwise bytes pass through. */
  parsesBodies: boolean;
  note: string;
};

const NOTHING = {
  checksKey: false,
  keepsQuotaAndBalance: false,
  writesReceipt: false,
  limitsRate: false,
  parsesBodies: false,
};
const EVERYTHING = {
  checksKey: true,
  keepsQuotaAndBalance: true,
  writesReceipt: true,
  limitsRate: true,
  parsesBodies: true,
};

export const WORK: Readonly<Record<ContenderName, Work>> = {
  direct: { ...NOTHING, note: "no gateway" },
  bare: { ...NOTHING, note: "" },
  "bare-js": { ...NOTHING, note: "each chunk passes through JavaScript" },
  nginx: { ...NOTHING, note: "" },
  tollgate: { ...EVERYTHING, note: "" },
  peer: { ...EVERYTHING, note: "a transaction for each ledger row" },
  portkey: { ...NOTHING, parsesBodies: true, note: "" },
  litellm: { ...NOTHING, parsesBodies: true, note: "computes costs; keys, budgets and spend need its database" },
};

export function isPeer(name: string): name is PeerName {
  return PEER_NAMES.some((peer) => peer === name);
}

/** How the provider answers. It is in each request, so that every contender relays the same. */
export type Plan = {
  /** Before the answer, ms. */
  delayMs: number;
  /** 0: a JSON answer of 1 KB. */
  chunks: number;
  /** Between two writes, ms. */
  everyMs: number;
  /** Chunks in each write; default: one. */
  perWrite?: number;
  /** Index of PROVIDER_STREAMS; default: OpenAI's. */
  shape?: number;
};

export type Workload = {
  name: string;
  what: string;
  /** Default: chat. */
  api?: Api;
  /** Measured in turns with the workload of this name, and compared with it. Only if asked for. */
  against?: string;
  /** At a fixed rate, the most that wait for an answer at once. */
  inFlight: number;
  /** Requests a second, whether or not earlier ones are answered. Default: a client sends its next one when it has its answer. */
  perSecond?: number;
  plan: Plan;
  /** Of a request, about. */
  bodyBytes: number;
  status: 200 | 401 | 402;
  /** Streams stay open until all are; the memory of the gateway is what counts. */
  held: boolean;
  contenders: readonly ContenderName[];
  quick: boolean;
};

/** The text of a chunk begins with this sign and the time at which it was written, in microseconds. No other string begins with it. */
export const STAMP_SIGN = "~";
export const STAMP_DIGITS = 16;
/** A request's mark, which the answer repeats. */
export const MARK_DIGITS = 12;

const PROXIES: readonly ContenderName[] = ["direct", "bare", "bare-js", "nginx", "tollgate", ...PEER_NAMES];
const ALL = CONTENDERS;
const KILOBYTE = 1024;
/** A request's size where nothing else is said. */
const SMALL = KILOBYTE;
/** Large bodies, and streams without a pause, are as many at once. */
const BUSY = 32;
/** Below this, the random part of a process's memory weighs too much. */
export const HELD_STREAMS = 5_000;

const QUICK_JSON = ["json1", "json32", "json256-20"];

/** A chunk every 10 ms, as a model writes. */
const PACED_STREAM = { delayMs: 0, chunks: 50, everyMs: 10 } as const satisfies Plan;
/** A shape for which nothing was made: what changes stands in front of the choices. */
const UNFORESEEN_SHAPE = PROVIDER_STREAMS.findIndex(({ name }) => name.startsWith("timings as an object in front"));

/** Chunks of the streams that are compared with others. */
const MANY_CHUNKS = 200;

/** The workloads in the order in which they run; with `isQuick` only those of a quick run. */
export function workloads(isQuick: boolean): Workload[] {
  const all = [
    ...[0, 20].flatMap((delayMs) => [1, 32, 256, 1000].map((inFlight) => json(inFlight, delayMs))),
    stream("stream1", 1, { delayMs: 0, chunks: 50, everyMs: 0 }, true),
    stream("stream50", BUSY, { delayMs: 0, chunks: 50, everyMs: 0 }, false),
    stream("stream200", BUSY, { delayMs: 0, chunks: MANY_CHUNKS, everyMs: 0 }, true),
    stream("stream50x10", 200, PACED_STREAM, true),
    burst("burst200", 0),
    burst("burst200-other", UNFORESEEN_SHAPE),
    body("body10k", 10 * KILOBYTE, false),
    body("body100k", 100 * KILOBYTE, true),
    body("body1m", KILOBYTE * KILOBYTE, false),
    refusal("refuse402", 402, "an exhausted package"),
    refusal("refuse401", 401, "keys that are none"),
    held(HELD_STREAMS),
  ];
  return isQuick ? all.filter((workload) => workload.quick) : all;
}

/** Requests a second of the JSON workloads at a fixed rate, unless others are asked for. */
export const RATES = [1_000, 3_000, 4_000, 5_000, 10_000] as const;
/** Streams a second: of half a second each, so half as many are open. */
const STREAM_RATES = [100, 200, 400];
/** In this name's place, `--only` takes all the workloads at a fixed rate. */
export const FIXED = "fixed";
/** A server that keeps up has a few answers open, or half a second's streams: more are a queue. */
const RATE_IN_FLIGHT = 512;

/** Requests at fixed rates, whose latencies count from their intended start. They run only if asked for. */
export function fixedWorkloads(rates: readonly number[] = RATES): Workload[] {
  const every = { bodyBytes: SMALL, status: 200, held: false, contenders: PROXIES, quick: false } as const;
  const json = rates.map((perSecond) => ({
    name: `fixed-json-${perSecond}`,
    what: `JSON 1 KB, ${perSecond.toLocaleString("en")} requests a second, provider 0 ms`,
    ...{ inFlight: RATE_IN_FLIGHT, perSecond, plan: { delayMs: 0, chunks: 0, everyMs: 0 }, ...every },
  }));
  const streams = STREAM_RATES.map((perSecond) => ({
    name: `fixed-stream-${perSecond}`,
    what: `${perSecond} streams a second of ${PACED_STREAM.chunks} chunks, ${PACED_STREAM.everyMs} ms between them`,
    ...{ inFlight: RATE_IN_FLIGHT, perSecond, plan: PACED_STREAM, ...every },
  }));
  return [...json, ...streams];
}

const APIS = ["chat", "own", "translated"] as const;
const ASKED: Readonly<Record<Api, string>> = {
  chat: "chat",
  own: "response, passed through",
  translated: "response, translated from chat",
};

/** Responses, beside chats of the same size on the same gateway. They run only if asked for. */
export function responsesWorkloads(): Workload[] {
  return [0, MANY_CHUNKS].flatMap((chunks) =>
    APIS.map((api) => {
      const kind = chunks === 0 ? "json" : "stream";
      const size = chunks === 0 ? "JSON 1 KB" : `stream of ${chunks} texts`;
      return {
        name: `${api}-${kind}`,
        what: `${ASKED[api]}: ${size}, ${BUSY} in flight`,
        ...{ api, against: `chat-${kind}`, inFlight: BUSY, bodyBytes: SMALL },
        plan: { delayMs: 0, chunks, everyMs: 0 },
        ...{ status: 200, held: false, contenders: ["tollgate"], quick: false },
      } satisfies Workload;
    }),
  );
}

function json(inFlight: number, delayMs: number): Workload {
  const name = `json${inFlight}${delayMs === 0 ? "" : `-${delayMs}`}`;
  return {
    name,
    what: `JSON 1 KB, ${inFlight} in flight, provider ${delayMs} ms`,
    inFlight,
    plan: { delayMs, chunks: 0, everyMs: 0 },
    bodyBytes: SMALL,
    status: 200,
    held: false,
    contenders: ALL,
    quick: QUICK_JSON.includes(name),
  };
}

function stream(name: string, inFlight: number, plan: Plan, quick: boolean): Workload {
  return {
    name,
    what: `stream of ${plan.chunks} chunks, ${plan.everyMs} ms between them, ${inFlight} open`,
    inFlight,
    plan,
    bodyBytes: SMALL,
    status: 200,
    held: false,
    contenders: inFlight === 1 ? PROXIES : ALL,
    quick,
  };
}

/** A stream whose chunks all come in one write: of a provider behind a buffer, or one that is faster than the network. */
function burst(name: string, shape: number): Workload {
  const plan = { delayMs: 0, chunks: MANY_CHUNKS, everyMs: 0, perWrite: MANY_CHUNKS, shape };
  const of = PROVIDER_STREAMS[shape]?.name ?? "";
  return { ...stream(name, BUSY, plan, true), what: `bursts of ${MANY_CHUNKS} chunks, ${BUSY} open, provider: ${of}` };
}

function body(name: string, bodyBytes: number, quick: boolean): Workload {
  return {
    name,
    what: `request bodies of ${bodyBytes / KILOBYTE} KB, ${BUSY} in flight, provider 0 ms`,
    inFlight: BUSY,
    plan: { delayMs: 0, chunks: 0, everyMs: 0 },
    bodyBytes,
    status: 200,
    held: false,
    contenders: PROXIES,
    quick,
  };
}

function refusal(name: string, status: 401 | 402, of: string): Workload {
  return {
    name,
    what: `refusals (${status}) of ${of}, ${BUSY} in flight`,
    inFlight: BUSY,
    plan: { delayMs: 0, chunks: 0, everyMs: 0 },
    bodyBytes: SMALL,
    status,
    held: false,
    contenders: ["tollgate"],
    quick: true,
  };
}

function held(streams: number): Workload {
  return {
    name: "open",
    what: `${streams.toLocaleString("en")} streams open at once, a chunk a second`,
    inFlight: streams,
    plan: { delayMs: 0, chunks: -1, everyMs: 1000 },
    bodyBytes: SMALL,
    status: 200,
    held: true,
    contenders: ["bare", "bare-js", "tollgate"],
    // Memory has to come to rest twice, which takes a minute.
    quick: false,
  };
}
