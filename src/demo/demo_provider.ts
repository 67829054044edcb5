import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { ModelInput, RoutePatch } from "../catalog/catalog_input.ts";
import { createProviderClient } from "../catalog/provider_client.ts";
import type { Config } from "../config.ts";
import { randomToken, Secret } from "../platform/crypto.ts";
import type { Log } from "../platform/log.ts";
import { freePort } from "./free_port.ts";
import { startOwnedProcess } from "./postgres/owned_process.ts";

/** The provider of the demo: the simulated one, in its own process, or a real one that the operator names. */

/** Delays of the simulated provider: per token, so that people see a stream arrive, and per image. */
const PACE_MS = 25;
const IMAGE_DELAY_MS = 600;
const START_WAIT_MS = 10_000;
const PORT_TRIES_MAX = 5;
const POLL_MS = 25;
/** A large provider lists hundreds of models, and each one added costs a transaction. */
const MODELS_MAX = 200;

/** Prices of a real provider's models in the demo: micro-USD per million tokens, and per image. */
const MADE_UP_PRICES = { inputMicroUsd: 1_000_000, outputMicroUsd: 2_000_000 };
const MADE_UP_IMAGE_MICRO_USD = 40_000;
const IMAGE_SIZES = ["512x512", "1024x1024", "1024x1536", "1536x1024"];
const MODEL_ID_CHARS_MAX = 128;
const NOT_FOR_CHAT =
  /embed|whisper|\btts\b|audio|speech|transcri|realtime|moderation|rerank|\bocr\b|turbo-instruct|babbage|davinci|\bsora\b|\bveo\b|video/i;
const FOR_IMAGES = /image|dall-e|flux|stable-diffusion|sdxl|imagen/i;
/** Names of cheap models: the printed commands use one of them. */
const LIGHT = /mini|nano|small|flash|haiku|lite|\b[1-9]b\b/i;

/** `upstreamModel`: the provider's own name, if it is not valid as an id here. */
export type DemoModel = ModelInput & { upstreamModel?: string };

export type DemoProvider = {
  /** Its name in the catalog. */
  name: "simulated" | "provider";
  baseUrl: string;
  apiKey: string;
  models: DemoModel[];
  route: RoutePatch;
  /** Models of the printed commands; null if the provider has none. */
  chatModel: string;
  imageModel: string | null;
  /** Sentences that the operator should know. */
  remarks: string[];
  stop(): Promise<void>;
};

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
];

/** Starts the simulated provider as a process and waits until it answers. Throws an Error if it does not. */
export async function startSimulated(outputFile: string): Promise<DemoProvider> {
  const apiKey = `sim-${randomToken(18)}`;
  const script = fileURLToPath(new URL("provider/simulated_provider.ts", import.meta.url));
  for (let tryNumber = 1; tryNumber <= PORT_TRIES_MAX; tryNumber++) {
    const port = await freePort();
    const options = { port, "pace-ms": PACE_MS, "image-delay-ms": IMAGE_DELAY_MS, "api-key": apiKey };
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
      if (await answers(`${baseUrl}/models`, apiKey)) {
        return {
          name: "simulated",
          baseUrl,
          apiKey,
          models: SIMULATED_MODELS,
          route: {},
          chatModel: "sim-small",
          imageModel: "sim-image",
          remarks: [],
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
 * Asks a real provider for its models, and gives them made-up prices, because providers do not list theirs. Throws an Error with
 * one sentence if the provider does not answer, rejects the key or has no chat model.
 */
export async function askProvider(
  { baseUrl, apiKey, config }: { baseUrl: string; apiKey: string; config: Config },
  log: Log,
): Promise<DemoProvider> {
  const client = createProviderClient({ config, log });
  const upstream = { providerName: "provider", baseUrl, apiKey: new Secret(apiKey) };
  const ids = await client.listModels(upstream).catch((error: unknown) => {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(
      `The provider at ${baseUrl} does not list its models (${why.replace(/[.\s]+$/, "")}): check PROVIDER_BASE_URL, which often ends in /v1, and PROVIDER_API_KEY.`,
    );
  });
  const fitting = new Map(ids.filter((id) => !NOT_FOR_CHAT.test(id)).map((id) => [ourIdOf(id), id]));
  fitting.delete("");
  const models = [...fitting].slice(0, MODELS_MAX).map(([id, upstreamModel]) => modelOf(id, upstreamModel));
  const chat = models.filter(({ modality }) => modality !== "image").map(({ id }) => id);
  const chatModel = chat.find((id) => LIGHT.test(id)) ?? chat[0];
  if (chatModel === undefined) throw new Error(`The provider at ${baseUrl} lists no chat model.`);
  const left = ids.length - models.length;
  return {
    name: "provider",
    baseUrl,
    apiKey,
    models,
    // OpenAI's newer models reject the older field, and most other providers do not know the newer one.
    route: { capField: new URL(baseUrl).hostname === "api.openai.com" ? "max_completion_tokens" : "max_tokens" },
    chatModel,
    imageModel: models.find(({ modality }) => modality === "image")?.id ?? null,
    remarks: [
      "Prices are made up: $1 and $2 per million input and output tokens, $0.04 per image. The provider bills you at its own prices.",
      ...(left > 0
        ? [
            `${left} of its ${ids.length} models are left out: they are not for chat or images, or there are more than ${MODELS_MAX}.`,
          ]
        : []),
    ],
    stop: async () => {},
  };
}

/** `host:port` of a base URL, as PROVIDER_ALLOW_PRIVATE takes it. */
export function hostAndPort(baseUrl: string): string {
  const { protocol, hostname, port } = new URL(baseUrl);
  return `${hostname.replace(/\.$/, "")}:${port || (protocol === "https:" ? 443 : 80)}`;
}

function modelOf(id: string, upstreamModel: string): DemoModel {
  if (!FOR_IMAGES.test(id)) return { id, upstreamModel, modality: "text", prices: MADE_UP_PRICES };
  const prices = IMAGE_SIZES.map((size) => [size, MADE_UP_IMAGE_MICRO_USD]);
  return { id, upstreamModel, modality: "image", imagePrices: Object.fromEntries(prices) };
}

/** Local servers name a model by the path of its file, which is not a valid id here. */
function ourIdOf(upstreamModel: string): string {
  return upstreamModel
    .replace(/^[^A-Za-z0-9]+/, "")
    .replace(/[^\w.:@+/-]/g, "-")
    .slice(0, MODEL_ID_CHARS_MAX);
}

async function answers(url: string, apiKey: string): Promise<boolean> {
  try {
    const response = await fetch(url, { headers: { authorization: `Bearer ${apiKey}` } });
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false; // Not listening yet.
  }
}
