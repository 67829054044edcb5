import { freePort } from "../../src/demo/free_port.ts";
import { encrypt } from "../../src/platform/crypto.ts";
import { type FakeProvider, startFakeProvider } from "../fake_provider.ts";
import { type ReplicaProcess, startReplicaProcess, TEST_SECRET_KEY } from "../replica.ts";
import { createWorld, type OfferingSpec, type World } from "../world.ts";

/** A complete service for tests: a provider that counts its calls, a catalog, and one or more replicas, each a process. */
export type Shop = Awaited<ReturnType<typeof openShop>>;

/** `json` is undefined if the text is not JSON. */
// biome-ignore lint/suspicious/noExplicitAny: each test decides what it expects in an answer.
export type Answer = { status: number; headers: Headers; text: string; json: any };

type Counters = { usage: number; released: number; holds: number; units: number; balance: number };

type ShopOptions = {
  replicas?: number;
  /** PROVIDER_ALLOW_PRIVATE is added to the providers of the shop. */
  env?: Record<string, string>;
  redisUrl?: string;
  /** The URL by which the replicas reach the database of this URL. */
  throughUrl?: (databaseUrl: string) => Promise<string>;
  /** Kept free, so that a stopped replica can use its port again. */
  keepsPorts?: boolean;
  /** Adds to the catalog before the replicas start. */
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
  fill,
}: ShopOptions = {}) {
  const world = await createWorld();
  const databaseUrl = await throughUrl(world.url);
  const provider = await startFakeProvider();
  const second = await startFakeProvider();
  await fillCatalog(world, provider, second);
  await fill?.(world);
  let spools = 0;
  const start = async (more: Record<string, string> = {}): Promise<ReplicaProcess> =>
    startReplicaProcess({
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
    });
  const running = await Promise.all(Array.from({ length: replicas }, () => start()));
  const first = running[0] as ReplicaProcess;

  return {
    world,
    provider,
    second,
    replicas: running,
    origin: first.origin,
    /** Starts another replica; the caller stops it. */
    start,

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
    async call(path: string, { secret, body, host, headers, method, origin }: CallOptions = {}): Promise<Answer> {
      const response = await fetch(`${origin ?? first.origin}${path}`, {
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
      const text = await response.text();
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

    async close(): Promise<void> {
      await Promise.all(running.map((replica) => replica.kill()));
      await provider.stop();
      await second.stop();
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
};

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

async function fillCatalog(world: World, provider: FakeProvider, second: FakeProvider): Promise<void> {
  const { sql } = world;
  const key = Buffer.from(TEST_SECRET_KEY, "base64");
  const firstId = await world.addProvider("first", provider.baseUrl, encrypt(key, provider.apiKey));
  const secondId = await world.addProvider("second", second.baseUrl, encrypt(key, second.apiKey));
  const addModel = async (id: string, modality: string, priced: boolean) => {
    const output = !priced ? null : modality === "embedding" || modality === "rerank" ? 0 : PRICES.outputMicroUsd;
    await sql`
      insert into models (id, name, owned_by, modality, context_length, input_micro_usd, output_micro_usd, default_cap_tokens)
      values (${id}, ${id}, 'tollgate', ${modality}, 8192, ${priced ? PRICES.inputMicroUsd : null}, ${output}, 1000)`;
    await sql`insert into routes (model_id, provider_id, upstream_model) values (${id}, ${firstId}, ${`up-${id}`})`;
  };
  await addModel("chat-a", "text", true);
  await addModel("chat-unpriced", "text", false);
  await addModel("vendor/chat-b", "multimodal", true);
  await addModel("chat-two-routes", "text", true);
  await sql`insert into routes (model_id, provider_id, upstream_model, priority) values ('chat-two-routes', ${secondId}, 'backup', 1)`;
  await addModel("embed-a", "embedding", true);
  await addModel("rerank-a", "rerank", true);
  await addModel("image-a", "image", false);
  await sql`insert into image_prices (model_id, size, micro_usd) values ('image-a', '1024x1024', ${PRICES.imageMicroUsd})`;
}
