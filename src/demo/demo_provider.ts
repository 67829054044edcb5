import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { ModelInput } from "../catalog/catalog_input.ts";
import { type DialectName, dialectOfUrl } from "../catalog/dialects.ts";
import { createProviderClient } from "../catalog/provider_client.ts";
import type { Config } from "../config.ts";
import { randomToken, Secret } from "../platform/crypto.ts";
import type { Log } from "../platform/log.ts";
import { freePort } from "./free_port.ts";
import { startOwnedProcess } from "./postgres/owned_process.ts";

/** The demo's provider: the simulated one, in its own process, or a real one that the environment names. */

/** Delays of the simulated provider: per token, so that a stream visibly arrives in parts, and per image. */
const PACE_MS = 25;
const IMAGE_DELAY_MS = 600;
const START_WAIT_MS = 10_000;
const PORT_TRIES_MAX = 5;
const POLL_MS = 25;
/** A large provider lists hundreds of models, and adding one takes a transaction. */
const MODELS_MAX = 200;

/** Prices of a real provider's models in the demo: micro-USD per million tokens, and per image. */
const MADE_UP_PRICES = { inputMicroUsd: 1_000_000, outputMicroUsd: 2_000_000 };
const MADE_UP_IMAGE_MICRO_USD = 40_000;
const IMAGE_SIZES = ["512x512", "1024x1024", "1024x1536", "1536x1024"];
const MODEL_ID_CHARS_MAX = 128;
const NOT_OFFERED =
  /whisper|\btts\b|audio|speech|transcri|realtime|moderation|rerank|\bocr\b|turbo-instruct|babbage|davinci|\bsora\b|\bveo\b|video/i;
const EMBEDDING_MODEL = /embed/i;
const IMAGE_MODEL = /image|dall-e|flux|stable-diffusion|sdxl|imagen/i;
/** Matches the names of cheap models. The printed commands use one, if there is one. */
const CHEAP = /mini|nano|small|flash|haiku|lite|\b[1-9]b\b/i;

/** `upstreamModel`: the provider's name for the model, if it differs from `id`. */
export type DemoModel = ModelInput & { upstreamModel?: string };

export type DemoProvider = {
  /** Its name in the catalog. */
  name: "simulated" | "provider";
  baseUrl: string;
  apiKey: string;
  models: DemoModel[];
  dialect: DialectName;
  /** Models that the printed commands use. `imageModel` is null if the provider has none. */
  chatModel: string;
  imageModel: string | null;
  /** null if the provider has none. */
  embeddingModel: string | null;
  /** Sentences to print for the operator. */
  notes: string[];
  stop(): Promise<void>;
};

/** The default model of OpenAI's Agents SDKs, in npm and PyPI: their examples run against the demo as they are. */
export const AGENTS_SDK_MODEL = "gpt-5.6-luna";

const usd = (amount: number) => Math.round(amount * 1e6);
const SIMULATED_MODELS: DemoModel[] = [
  {
    id: "sim-small",
    name: "Simulated Small",
    modality: "text",
    contextLength: 32_768,
    prices: { inputMicroUsd: usd(0.5), cachedInputMicroUsd: usd(0.05), outputMicroUsd: usd(1.5) },
  },
  {
    id: "sim-large",
    name: "Simulated Large",
    modality: "text",
    contextLength: 131_072,
    prices: { inputMicroUsd: usd(3), cachedInputMicroUsd: usd(0.3), outputMicroUsd: usd(15) },
  },
  // Without a price: sold in packages only.
  { id: "sim-reason", name: "Simulated Reasoning", modality: "text", contextLength: 131_072, status: "preview" },
  {
    id: "sim-vision",
    name: "Simulated Vision",
    modality: "multimodal",
    contextLength: 65_536,
    prices: { inputMicroUsd: usd(2), outputMicroUsd: usd(8) },
  },
  {
    id: "sim-image",
    name: "Simulated Image",
    modality: "image",
    imagePrices: {
      "512x512": usd(0.02),
      "1024x1024": usd(0.04),
      "1024x1536": usd(0.06),
      "1536x1024": usd(0.06),
    },
  },
  {
    id: "sim-embed",
    name: "Simulated Embeddings",
    modality: "embedding",
    contextLength: 8_192,
    prices: { inputMicroUsd: usd(0.02), outputMicroUsd: 0 },
  },
  {
    id: "sim-rerank",
    name: "Simulated Reranking",
    modality: "rerank",
    contextLength: 8_192,
    prices: { inputMicroUsd: usd(0.05), outputMicroUsd: 0 },
  },
  {
    id: AGENTS_SDK_MODEL,
    upstreamModel: "sim-small",
    name: "Simulated Small, by the name that OpenAI's Agents SDKs ask for",
    modality: "text",
    contextLength: 32_768,
    prices: { inputMicroUsd: usd(0.5), cachedInputMicroUsd: usd(0.05), outputMicroUsd: usd(1.5) },
  },
];

/**
 * Starts the simulated provider as a process and waits until it is ready. With a dialect it plays a provider that has it. Throws an Error
 * if it does not start.
 */
export async function startSimulated(outputFile: string, dialect: DialectName = "generic"): Promise<DemoProvider> {
  const apiKey = `sim-${randomToken(18)}`;
  const script = fileURLToPath(new URL("provider/simulated_provider.ts", import.meta.url));
  for (let tryNumber = 1; tryNumber <= PORT_TRIES_MAX; tryNumber++) {
    const port = await freePort();
    const played = dialect !== "generic" && { dialect };
    const options = { port, "pace-ms": PACE_MS, "image-delay-ms": IMAGE_DELAY_MS, "api-key": apiKey, ...played };
    const child = startOwnedProcess({
      command: process.execPath,
      args: [script, ...Object.entries(options).map(([name, value]) => `--${name}=${value}`)],
      env: { PATH: process.env.PATH ?? "" },
      outputFile,
      stopSignal: "SIGTERM",
    });
    const baseUrl = `http://127.0.0.1:${port}/v1`;
    const deadline = performance.now() + START_WAIT_MS;
    while (!child.hasExited() && performance.now() < deadline) {
      if (await isReady(`${baseUrl}/models`, apiKey)) {
        return {
          name: "simulated",
          baseUrl,
          apiKey,
          models: SIMULATED_MODELS,
          dialect,
          chatModel: "sim-small",
          imageModel: "sim-image",
          embeddingModel: "sim-embed",
          notes: [],
          stop: () => child.stop(),
        };
      }
      await sleep(POLL_MS);
    }
    await child.stop();
  }
  throw new Error(`The simulated provider did not start: see ${outputFile}.`);
}

/**
 * Lists the models of a real provider, and gives them made-up prices, because providers do not list theirs. Throws an Error
 * with one sentence if the provider does not answer, rejects the key or has no chat model.
 */
export async function connectProvider(
  { baseUrl, apiKey, config }: { baseUrl: string; apiKey: string; config: Config },
  log: Log,
): Promise<DemoProvider> {
  const client = createProviderClient({ config, log });
  const upstream = { providerName: "provider", baseUrl, apiKey: new Secret(apiKey) };
  const { ids } = await client.listModels(upstream).catch((error: unknown) => {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(
      `The provider at ${baseUrl} does not list its models (${why.replace(/[.\s]+$/, "")}): check PROVIDER_BASE_URL, which often ends in /v1, and PROVIDER_API_KEY.`,
    );
  });
  const suitable = new Map(ids.filter((id) => !NOT_OFFERED.test(id)).map((id) => [modelIdOf(id), id]));
  suitable.delete("");
  const models = [...suitable].slice(0, MODELS_MAX).map(([id, upstreamModel]) => modelOf(id, upstreamModel));
  const chat = models.filter(({ modality }) => modality === "text").map(({ id }) => id);
  const chatModel = chat.find((id) => CHEAP.test(id)) ?? chat[0];
  if (chatModel === undefined) throw new Error(`The provider at ${baseUrl} lists no chat model.`);
  const omitted = ids.length - models.length;
  return {
    name: "provider",
    baseUrl,
    apiKey,
    models,
    dialect: dialectOfUrl(baseUrl),
    chatModel,
    imageModel: models.find(({ modality }) => modality === "image")?.id ?? null,
    embeddingModel: models.find(({ modality }) => modality === "embedding")?.id ?? null,
    notes: [
      "Prices are made up: $1 and $2 per million input and output tokens, $0.04 per image. The provider bills you at its own prices.",
      ...(omitted > 0
        ? [
            `${omitted} of its ${ids.length} models are omitted: they are not for chat, images or embeddings, or there are more than ${MODELS_MAX}.`,
          ]
        : []),
    ],
    stop: async () => {},
  };
}

/** `host:port` of a base URL: an entry of PROVIDER_ALLOW_PRIVATE. */
export function hostAndPort(baseUrl: string): string {
  const { protocol, hostname, port } = new URL(baseUrl);
  return `${hostname.replace(/\.$/, "")}:${port || (protocol === "https:" ? 443 : 80)}`;
}

function modelOf(id: string, upstreamModel: string): DemoModel {
  if (EMBEDDING_MODEL.test(id))
    return { id, upstreamModel, modality: "embedding", prices: { ...MADE_UP_PRICES, outputMicroUsd: 0 } };
  if (!IMAGE_MODEL.test(id)) return { id, upstreamModel, modality: "text", prices: MADE_UP_PRICES };
  const prices = IMAGE_SIZES.map((size) => [size, MADE_UP_IMAGE_MICRO_USD]);
  return { id, upstreamModel, modality: "image", imagePrices: Object.fromEntries(prices) };
}

/** A valid model id for a provider's model name: local servers use the path of the model's file. */
function modelIdOf(upstreamModel: string): string {
  return upstreamModel
    .replace(/^[^A-Za-z0-9]+/, "")
    .replace(/[^\w.:@+/-]/g, "-")
    .slice(0, MODEL_ID_CHARS_MAX);
}

async function isReady(url: string, apiKey: string): Promise<boolean> {
  try {
    const response = await fetch(url, { headers: { authorization: `Bearer ${apiKey}` } });
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false; // Not listening yet.
  }
}
