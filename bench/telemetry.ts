import { startRecord } from "../src/gateway/request_record.ts";
import { createTelemetry } from "../src/gateway/telemetry.ts";
import type { Host } from "../src/http/host.ts";
import { noteFacts, type RequestFacts } from "../src/http/request_facts.ts";
import { newRequestId } from "../src/platform/crypto.ts";
import { createLog } from "../src/platform/log.ts";
import { createMetrics, type Metrics } from "../src/platform/metrics.ts";

/**
 * `bun run bench:telemetry`: the cost of a request's telemetry: its id, facts and record, its metrics, and its log
 * line, which is not written anywhere. Tracing is off. CPU µs a request, the median of several rounds, and the smallest
 * and largest. The goal is 5 µs.
 */

const REQUESTS = 20_000;
const ROUNDS = 31;
const WARM_UP_ROUNDS = 10;
/** Requests that are open at once. */
const OPEN = 256;
const ENDPOINT = { name: "POST /v1/chat/completions", isApi: true };
const HOST: Host = { name: "api.example.com", resellerId: null };
const ROUTE = { id: 3, providerName: "example" };
const URL_SENT = new URL("https://api.example.com/v1/chat/completions");
const REQUESTS_SENT = Array.from({ length: OPEN }, () => new Request(URL_SENT));
const nowMs = () => performance.now();

type Kind = "json" | "stream" | "refused";
let written = 0;

for (const [what, logged] of [
  ["every request logged", 1],
  ["no request logged", 0],
] as const) {
  const metrics = createMetrics();
  const log = createLog("info", { write: (text) => (written += text.length) });
  const telemetry = createTelemetry({ metrics, log, answerSums: { note() {} }, logged, nowMs, random: Math.random });
  for (const kind of ["json", "stream", "refused"] as const) {
    const measure = () => microsOf(() => serve({ metrics, telemetry }, kind));
    for (let round = 0; round < WARM_UP_ROUNDS; round++) measure();
    const taken = Array.from({ length: ROUNDS }, measure).sort((a, b) => a - b);
    const [least, median, most] = [0, ROUNDS >> 1, ROUNDS - 1].map((at) => taken[at]?.toFixed(2));
    console.log(`${what}, ${kind}: ${median} µs of CPU (${least}–${most})`);
  }
}
if (written === 0) throw new Error("nothing was logged");

/** CPU µs a request, of all threads. */
function microsOf(serveAll: () => void): number {
  const before = process.cpuUsage();
  for (let served = 0; served < REQUESTS; served += OPEN) serveAll();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / REQUESTS;
}

type Parts = { metrics: Metrics; telemetry: ReturnType<typeof createTelemetry> };

/** OPEN requests: all begin before the first ends. */
function serve({ metrics, telemetry }: Parts, kind: Kind): void {
  const open = Array.from({ length: OPEN }, (_, i) => begin(i));
  for (const { facts, record } of open) {
    record.modelId = "chat-a";
    record.reserveStartedMs = nowMs();
    metrics.held(1);
    if (kind === "refused") {
      facts.refusal = "insufficient_balance";
      record.reserveRefusedMs = nowMs();
      telemetry.answered(ENDPOINT, facts, 402);
      continue;
    }
    record.kind = kind;
    record.reservedMs = nowMs();
    record.isReserved = true;
    record.route = ROUTE;
    record.dispatchedMs = nowMs();
    record.answeredMs = nowMs();
    if (kind === "stream") telemetry.answered(ENDPOINT, facts, 200);
    record.settleStartedMs = nowMs();
    metrics.holdEnded("settle", 1, false);
    record.settledMs = nowMs();
    record.end = "complete";
    if (kind === "stream") telemetry.streamOver(record, 12_345);
    else telemetry.answered(ENDPOINT, facts, 200);
  }
}

function begin(i: number) {
  const request = REQUESTS_SENT[i] ?? new Request(URL_SENT);
  const facts: RequestFacts = {
    ...{ requestId: newRequestId(), url: URL_SENT, peerAddress: () => "192.0.2.1", startedMs: nowMs(), accountId: 0 },
    ...{ refusal: "", record: undefined, leaveRead: undefined, closes: false, trace: undefined },
  };
  noteFacts(request, facts);
  const record = startRecord(request, HOST, { accountId: 1 + (i % 32), keyId: 1 + i });
  record.keyPrefix = "sk-abcdefgh";
  return { facts, record };
}
