import type { AnswerSums } from "../catalog/answer_sums.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { AnswerMemory } from "../platform/answer_memory.ts";
import { type Base, close } from "../platform/base.ts";
import { EMBEDDINGS_BYTES_MAX, IMAGE_ANSWER_BYTES_MAX } from "./answer_bytes.ts";
import { createBodies, createGate, type LagWatch, watchLag } from "./gate.ts";
import { createHiddenTokens } from "./hidden_tokens.ts";
import { createImagePlaces } from "./image_places.ts";
import { LargeEmbeddings } from "./large_embeddings.ts";
import { openRefusalCounts } from "./refusal_counts.ts";
import { createRelays } from "./relay.ts";
import { createStoredResponses } from "./responses/stored_responses.ts";
import { createTelemetry } from "./telemetry.ts";
import { createTokenCounter } from "./tokens.ts";

export type GatewayParts = ReturnType<typeof openGateway>;

export function openGateway({ closing, ...base }: Base, ledger: Ledger, answerSums: AnswerSums) {
  const { config, log, db, bus, metrics, nowMs } = base;
  const lag = closing.adopt(watchLag({ nowMs, maxMs: config.eventLoopLagMaxMs, log }), close);
  const limits = createLimits(base, ledger, lag);
  return {
    lag,
    ...limits,
    telemetry: createTelemetry({ ...base, answerSums, logged: config.logRequests, random: Math.random }),
    refusals: openRefusalCounts({ db, log }),
    tokens: closing.adopt(createTokenCounter({ log, waitingMax: 2 * config.inFlightMax }), close),
    hiddenTokens: createHiddenTokens({ db, bus, log }),
    largeEmbeddings: new LargeEmbeddings(EMBEDDINGS_BYTES_MAX),
    storedResponses: createStoredResponses({ ...base, bodies: limits.bodies }),
    relays: closing.adopt(
      createRelays({
        providerIdleMs: config.providerIdleMs,
        clientIdleMs: config.clientIdleMs,
        readOnMs: config.providerTotalMs,
        onShed: metrics.shed,
        nowMs,
        onTimeout: metrics.timedOut,
        onFailure: (err) => log.error({ err }, "the end of a stream could not be settled or released"),
      }),
      close,
    ),
  };
}

/** Limits of what is served at once. */
function createLimits({ config, metrics }: Pick<Base, "config" | "metrics">, ledger: Ledger, lag: LagWatch) {
  const onShed = metrics.shed;
  return {
    gate: createGate({
      max: config.inFlightMax,
      fractions: config.shares,
      isSpoolFull: () => !ledger.ready(),
      lag: lag.state,
      onShed,
    }),
    bodies: createBodies({
      readsMax: config.bodyReadsMax,
      bytesMax: config.bodyMemoryMax,
      bodyBytesMax: config.bodyBytesMax,
      fractions: config.shares,
      onShed,
    }),
    answerMemory: new AnswerMemory({
      max: config.answerMemoryMax,
      fractions: config.shares,
      min: IMAGE_ANSWER_BYTES_MAX,
      onShed,
    }),
    /** For images that were handed out by URL, and are being fetched. */
    imagePlaces: createImagePlaces(onShed),
  };
}
