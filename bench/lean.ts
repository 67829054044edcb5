import { readConfig } from "../src/config.ts";
import { PROVIDER_FIELDS } from "../src/gateway/chunks.ts";
import { parseObject } from "../src/gateway/provider_json.ts";
import { CHAT_PATH } from "../src/gateway/upstream_chat.ts";
import { reportedUsageOf } from "../src/gateway/usage_counts.ts";
import { bodyOf, NO_ROOM } from "../src/http/body.ts";
import { patch } from "../src/http/json_spans.ts";
import { newRequestId } from "../src/platform/crypto.ts";
import { raiseFetchLimit } from "../src/platform/runtime.ts";
import { startReplica } from "../src/replica.ts";

/**
 * The least that a gateway with this ledger does for a JSON request: it looks up the key, parses the body, reserves, calls the provider,
 * takes the provider's own fields out of the answer, and settles before it answers. It has no limits, no failover, no time limits, no log and
 * no metrics: what these cost together is the difference to the whole gateway. With BENCH_WITHOUT=ledger it neither reserves nor settles.
 * Only `bun run bench:parts` starts it.
 */

const FETCHES_MAX = 11_000;
/** What is reserved, the same for all requests. A package pays, so the amounts do not matter. */
const OUTPUT_TOKENS_MAX = 1_000;
const PROMPT_PICO = 1_000_000n;
const OUTPUT_PICO = 15_000_000n;

raiseFetchLimit(FETCHES_MAX);
const clock = { nowMs: () => performance.now(), wallMs: () => Date.now() };
const config = readConfig(process.env);
const { deps, drain } = await startReplica(config, clock);
const host = new URL(config.baseUrl).hostname;
const hasLedger = process.env.BENCH_WITHOUT !== "ledger";

const server = Bun.serve({ hostname: "127.0.0.1", port: 0, idleTimeout: 0, fetch: answer });
process.on("SIGTERM", () => void drain().then(() => process.exit()));
console.log(JSON.stringify({ port: server.port, message: "listening" }));

async function answer(request: Request): Promise<Response> {
  const known = deps.keys.find(request.headers.get("authorization")?.slice("Bearer ".length) ?? "");
  const key = known instanceof Promise ? await known : known;
  const body = bodyOf(await request.text(), NO_ROOM);
  const modelId = String((body.value as { model?: unknown }).model);
  const model = deps.catalog.model(modelId);
  const route = model?.routes[0]?.keyed[0];
  if (key === undefined || model === undefined || route === undefined) return new Response(null, { status: 400 });

  const requestId = newRequestId();
  const { accountId, tenantId, keyId, mode, epoch, tenantEpoch } = key;
  const hold = hasLedger
    ? await deps.ledger.reserve({
        requestId,
        accountId,
        tenantId,
        keyId,
        host,
        ownHost: true,
        modelId,
        promptPico: PROMPT_PICO,
        outputPico: OUTPUT_PICO,
        capMax: OUTPUT_TOKENS_MAX,
        capMin: OUTPUT_TOKENS_MAX,
        promptTokens: OUTPUT_TOKENS_MAX,
        choices: 1,
        sendsCap: false,
        priceVersionId: model.priceVersionId,
        markupBasisPoints: 0,
        known: { mode, epoch, tenantEpoch },
      })
    : undefined;

  const response = await fetch(`${route.baseUrl}${CHAT_PATH}`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${route.apiKey.reveal()}`,
      accept: "application/json",
      "content-type": "application/json",
      "x-request-id": requestId,
    },
    body: body.text,
    decompress: false,
  });
  const text = await response.text();
  const answered = parseObject(text);
  const usage = reportedUsageOf(answered?.value.usage);
  if (answered === undefined || usage === undefined) return new Response(text, { status: 502 });
  if (hold !== undefined) {
    const rawUsage = answered.value.usage;
    await deps.ledger.settle(hold, { ...usage, rawUsage, chargeNanoUsd: 0n, estimated: false }, { strict: true });
  }
  const edits = new Map<string, string | null>(PROVIDER_FIELDS.map((name) => [name, null]));
  return new Response(patch(text, answered.spans, edits), {
    headers: { "content-type": "application/json", "cache-control": "no-store", "x-request-id": requestId },
  });
}
