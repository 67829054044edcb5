import { freePort } from "../../src/demo/free_port.ts";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { encrypt } from "../../src/platform/crypto.ts";
import { closing } from "../closing.ts";
import { type FakeProvider, startFakeProvider } from "../fake_provider.ts";
import { until } from "../platform/own_redis.ts";
import { type ReplicaProcess, startReplicaProcess, TEST_SECRET_KEY } from "../replica.ts";
import { createWorld, type ModelSpec, type OfferingSpec, type World } from "../world.ts";

/** A complete service for tests: a provider that counts its calls, a catalog, and one or more replicas, each a process. */
export type Shop = Awaited<ReturnType<typeof openShop>>;

/** `json` is undefined if the text is not JSON. */
// biome-ignore lint/suspicious/noExplicitAny: each test decides what it expects in an answer.
export type Answer = { status: number; headers: Headers; text: string; json: any };

type Counters = { usage: number; released: number; holds: number; units: number; balance: number };

export type ShopOptions = {
  replicas?: number;
  /** PROVIDER_ALLOW_PRIVATE is added to the providers of the shop. */
  env?: Record<string, string>;
  redisUrl?: string;
  /** The URL by which the replicas reach the database of this URL. */
  throughUrl?: (databaseUrl: string) => Promise<string>;
  /** Kept free, so that a stopped replica can use its port again. */
  keepsPorts?: boolean;
  /** Beside those of `fillCatalog`. */
  models?: readonly ModelSpec[];
  /** Adds what else the replicas are to find when they start. */
  fill?: (world: World) => Promise<void>;
};

/** 3 and 15 USD per million tokens; 40,000 micro-USD an image. */
export const PRICES = { inputMicroUsd: 3_000_000, outputMicroUsd: 15_000_000, imageMicroUsd: 40_000 };

export async function openShop({
  replicas = 1,
  env: { PROVIDER_ALLOW_PRIVATE: alsoPrivate, ...env } = {},
  redisUrl = process.env.REDIS_URL ?? "",
  throughUrl = async (databaseUrl) => databaseUrl,
  keepsPorts = false,
  models = [],
  fill,
}: ShopOptions = {}) {
  const world = await createWorld();
  const databaseUrl = await throughUrl(world.url);
  const provider = await startFakeProvider();
  const second = await startFakeProvider();
  await fillCatalog(world, provider, second, models);
  await fill?.(world);
  let spools = 0;
  const start = async (more: Record<string, string> = {}, command?: string[]): Promise<ReplicaProcess> => {
    const own = {
      ...(keepsPorts && { PORT: String(await freePort()) }),
      DATABASE_URL: databaseUrl,
      REDIS_URL: redisUrl,
      SPOOL_DIR: `${world.spoolDir}/replica${++spools}`,
      PROVIDER_ALLOW_PRIVATE: [`127.0.0.1:${provider.port}`, `127.0.0.1:${second.port}`, alsoPrivate]
        .filter(Boolean)
        .join(),
      RATE_PER_MINUTE: "100000",
      RATE_IN_FLIGHT: "10000",
      RATE_ACCOUNT_PER_MINUTE: "1000000",
      RATE_TENANT_PER_MINUTE: "1000000",
      ACCOUNT_SHARE: "1",
      TENANT_SHARE: "1",
      LOG_LEVEL: "info", // It says when it listens.
      ...env,
      ...more,
    };
    return startReplicaProcess(own, command);
  };
  const running = await Promise.all(Array.from({ length: replicas }, () => start()));
  const firstOrigin = running[0]?.origin ?? "";

  return {
    world,
    provider,
    second,
    replicas: running,
    origin: firstOrigin,
    /** Starts another replica, with a command instead of `src/main.ts` if one is given; the caller stops it. */
    start,

    /** Adds models, and waits until every replica knows them: with the last one, all. */
    async addModels(...specs: readonly [...ModelSpec[], ModelSpec]): Promise<void> {
      await world.addModels(...specs);
      const { secret } = await this.customer();
      const path = `/v1/models/${encodeURIComponent(specs.at(-1)?.id ?? "")}`;
      for (const { origin } of running)
        await until(async () => (await this.call(path, { secret, origin })).status === 200);
    },

    /** A customer with a package key, and with a package unless it is null. */
    async customer(spec: OfferingSpec | null = {}, keySpec: Parameters<World["addKey"]>[1] = {}) {
      const person = await world.addCustomer();
      if (spec !== null) await world.givePackage(person, spec);
      const key = await world.addKey(person, keySpec);
      return { ...person, ...key };
    },

    /** A pay-as-you-go customer. */
    async payer(nanoUsd: bigint) {
      const person = await world.addCustomer();
      await world.setBalance(person, nanoUsd);
      return { ...person, ...(await world.addKey(person, { mode: "payg" })) };
    },

    /** One call of the API. Bodies that are not strings are sent as JSON. */
    async call(
      path: string,
      { secret, body, host, headers, method, origin, onText }: CallOptions = {},
    ): Promise<Answer> {
      const response = await fetch(`${origin ?? firstOrigin}${path}`, {
        method: method ?? (body === undefined ? "GET" : "POST"),
        redirect: "manual",
        headers: {
          ...(secret !== undefined && { authorization: `Bearer ${secret}` }),
          ...(body !== undefined && { "content-type": "application/json" }),
          ...(host !== undefined && { host }),
          ...headers,
        },
        ...(body !== undefined && {
          body: isSentAsIs(body) ? (body as BodyInit) : JSON.stringify(body),
        }),
      });
      const text = await textOf(response, onText);
      let json: unknown;
      try {
        json = JSON.parse(text);
      } catch {
        json = undefined; // A stream, or a defect that the test will name.
      }
      return { status: response.status, headers: response.headers, text, json };
    },

    /** A small chat request. */
    chat(secret: string, over: Record<string, unknown> = {}, options: CallOptions = {}): Promise<Answer> {
      return this.call("/v1/chat/completions", { secret, body: { ...chatBody(), ...over }, ...options });
    },

    /**
     * What `send` resolves with when the provider breaks off as `behaviour` says, but not before the client has read something, or text
     * of which `hasRead` is true. `send` gives `onText` to its call. `script`: how the provider gets the behaviour.
     */
    async brokenOff<T>(
      behaviour: Behaviour,
      send: (onText: OnText) => Promise<T>,
      {
        hasRead = () => true,
        script = provider.next,
      }: { hasRead?: (text: string) => boolean; script?: (held: Behaviour) => void } = {},
    ): Promise<T> {
      const { held, open } = provider.gateCut(behaviour);
      script(held);
      try {
        return await send((text) => hasRead(text) && open());
      } finally {
        open(); // An answer without such text.
      }
    },

    /** What the ledger says about the account. */
    async counters(accountId: number) {
      const [row] = await world.sql<Counters[]>`
        select (select count(*)::int from receipts where account_id = ${accountId} and outcome = 'settled') as usage,
          (select count(*)::int from receipts where account_id = ${accountId} and outcome = 'released') as released,
          (select coalesce(sum(units - least(idle_units, units)) filter (where package_id > 0), 0)::int
            + (count(*) filter (where package_id = 0 and key_id = 0 and nano_usd > idle_nano_usd))::int
            from escrows where account_id = ${accountId}) as holds,
          (select coalesce(sum(units_taken - package_drawn(packages)), 0)::int from packages where account_id = ${accountId}) as units,
          (select balance_nano_usd from balances where account_id = ${accountId})::float8 as balance`;
      if (row === undefined) throw new Error("a select returned nothing");
      return row;
    },

    /** The same once nothing of the account is held: what a dead replica held is given back when its lease has ended. */
    async countersAtRest(accountId: number) {
      await until(async () => (await this.counters(accountId)).holds === 0);
      return await this.counters(accountId);
    },

    async close(): Promise<void> {
      await closing("the replicas", Promise.all(running.map((replica) => replica.kill())));
      await closing("the providers", Promise.all([provider.stop(), second.stop()]));
      await world.close();
    },
  };
}

const isSentAsIs = (body: unknown) =>
  typeof body === "string" || body instanceof Uint8Array || body instanceof ReadableStream;

export type CallOptions = {
  secret?: string;
  body?: unknown;
  host?: string;
  headers?: Record<string, string>;
  method?: string;
  origin?: string;
  /** Called with all text of the body that was read so far, each time that some was read. */
  onText?: OnText;
};
type OnText = (text: string) => void;

async function textOf(response: Response, onText?: OnText): Promise<string> {
  if (onText === undefined || response.body === null) return response.text();
  let text = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    onText(text);
  }
  return text;
}

export const chatBody = (over: Record<string, unknown> = {}) => ({
  model: "chat-a",
  messages: [{ role: "user", content: "Tell me about tolls." }],
  ...over,
});

export const imageBody = (over: Record<string, unknown> = {}) => ({
  model: "image-a",
  prompt: "A toll gate at dawn",
  ...over,
});

export const responsesBody = (over: Record<string, unknown> = {}) => ({
  model: "chat-a",
  input: "Tell me about tolls.",
  ...over,
});

export const completionBody = (over: Record<string, unknown> = {}) => ({
  model: "chat-a",
  prompt: "A toll gate is",
  ...over,
});

export const rerankBody = (over: Record<string, unknown> = {}) => ({
  model: "rerank-a",
  query: "A toll gate",
  documents: ["A toll gate at dawn", "A road"],
  ...over,
});

export const embeddingBody = (over: Record<string, unknown> = {}) => ({
  model: "embed-a",
  input: "A toll gate at dawn",
  ...over,
});

/** The payloads of an event stream. */
export function eventsOf(text: string): string[] {
  return text
    .split("\n\n")
    .filter((event) => event.startsWith("data: "))
    .map((event) => event.slice(6));
}

async function fillCatalog(
  world: World,
  provider: FakeProvider,
  second: FakeProvider,
  more: readonly ModelSpec[],
): Promise<void> {
  const key = Buffer.from(TEST_SECRET_KEY, "base64");
  await world.addProvider("first", provider.baseUrl, encrypt(key, provider.apiKey));
  await world.addProvider("second", second.baseUrl, encrypt(key, second.apiKey));
  const model = (id: string, modality: ModelSpec["modality"], outputMicroUsd: number | null): ModelSpec => ({
    ...{ id, modality, contextLength: 8192, defaultCapTokens: 1000, outputMicroUsd },
    inputMicroUsd: outputMicroUsd === null ? null : PRICES.inputMicroUsd,
    routes: [{ provider: "first" }],
  });
  await world.addModels(
    model("chat-a", "text", PRICES.outputMicroUsd),
    model("chat-unpriced", "text", null),
    model("vendor/chat-b", "multimodal", PRICES.outputMicroUsd),
    {
      ...model("chat-two-routes", "text", PRICES.outputMicroUsd),
      routes: [{ provider: "first" }, { provider: "second", upstreamModel: "backup" }],
    },
    model("embed-a", "embedding", 0),
    model("rerank-a", "rerank", 0),
    { ...model("image-a", "image", null), imagePrices: { "1024x1024": PRICES.imageMicroUsd } },
    ...more,
  );
}
