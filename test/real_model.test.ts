import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import OpenAI from "openai";
import { addModel } from "../src/catalog/models_store.ts";
import { addProvider } from "../src/catalog/providers_store.ts";
import { addRoute } from "../src/catalog/routes_store.ts";
import { inProcessBus } from "../src/platform/bus.ts";
import { createLog } from "../src/platform/log.ts";
import { INSTALL_MS_MAX, installOnDemand } from "./on_demand.ts";
import { type ReplicaProcess, startReplicaProcess, TEST_SECRET_KEY } from "./replica.ts";
import { createWorld, type World } from "./world.ts";

/**
 * A real language model at the other end: a small one, its file named by TOLLGATE_TEST_MODEL or kept beside the repository.
 * What runs it is installed on demand into a cache folder, since nobody needs it to run or change the product.
 */

const repository = dirname(import.meta.dirname);
const MODEL_FILE = resolve(repository, process.env.TOLLGATE_TEST_MODEL || "../shared/data/stories260K.gguf");
const LLAMA_VERSION = "3.22.1";
const START_MS_MAX = 60_000;
/** Micro-USD per million tokens: 3,000 and 15,000 nano-USD a token. */
const PRICES = { inputMicroUsd: 3_000_000, outputMicroUsd: 15_000_000 };
const STORY = { model: "stories", messages: [{ role: "user" as const, content: "Once upon a time" }], max_tokens: 80 };

if (existsSync(MODEL_FILE)) withModel();
else withoutModel();

/** Said aloud and reported as a test of its own: what was not run should be seen. */
function withoutModel(): void {
  const message = `real model: no model file at ${MODEL_FILE}, not run`;
  console.log(message);
  test(message, () => {
    expect(message).toContain(MODEL_FILE);
  });
}

function withModel(): void {
  let world: World;
  let server: { process: ChildProcess; baseUrl: string };
  let replica: ReplicaProcess;

  beforeAll(async () => {
    server = await startModelServer(await installLlama());
    world = await createWorld();
    await sell(world, server.baseUrl);
    replica = await startReplicaProcess({
      DATABASE_URL: world.url,
      SPOOL_DIR: world.spoolDir,
      PROVIDER_ALLOW_PRIVATE: new URL(server.baseUrl).host,
    });
  }, INSTALL_MS_MAX + START_MS_MAX);
  afterAll(async () => {
    await replica?.kill();
    server?.process.stdin?.end();
    await world?.close();
  });

  const clientOf = (secret: string) => new OpenAI({ apiKey: secret, baseURL: `${replica.origin}/v1`, maxRetries: 0 });
  const usageOf = async (secret: string) => {
    const response = await fetch(`${replica.origin}/v1/usage`, { headers: { authorization: `Bearer ${secret}` } });
    return (await response.json()) as { data: Record<string, unknown>[] };
  };

  test("a real model's story streams through by package, and the usage record says what the model reported", async () => {
    const person = await world.addCustomer();
    await world.givePackage(person);
    const { secret } = await world.addKey(person);
    const stream = await clientOf(secret).chat.completions.create({
      ...STORY,
      stream: true,
      stream_options: { include_usage: true },
    });
    let story = "";
    let chunks = 0;
    let usage: OpenAI.CompletionUsage | null | undefined;
    for await (const chunk of stream) {
      story += chunk.choices[0]?.delta.content ?? "";
      chunks += 1;
      usage = chunk.usage ?? usage;
    }
    console.log(`real model: Once upon a time${story}`);
    expect(story).toMatch(/[a-z]{2,} [a-z]{2,} /i);
    expect(chunks).toBeGreaterThan(20);
    expect(usage?.prompt_tokens).toBeGreaterThan(0);
    expect(usage?.completion_tokens).toBeGreaterThan(20);
    const { data } = await usageOf(secret);
    expect(data).toHaveLength(1);
    expect(data[0]).toMatchObject({
      model: "stories",
      mode: "package",
      promptTokens: usage?.prompt_tokens,
      completionTokens: usage?.completion_tokens,
      totalTokens: usage?.total_tokens,
      estimated: false,
      status: "complete",
    });
  });

  test("a real model's answer by balance is charged its tokens at their prices, and no hold is left", async () => {
    const person = await world.addCustomer();
    await world.setBalance(person, 1_000_000_000n);
    const { secret } = await world.addKey(person, { mode: "payg" });
    const { usage } = await clientOf(secret).chat.completions.create(STORY);
    const charged = (usage?.prompt_tokens ?? 0) * 3_000 + (usage?.completion_tokens ?? 0) * 15_000;
    expect(charged).toBeGreaterThan(0);
    const [row] = await world.sql`
      select balance_nano_usd, held_nano_usd from balances where account_id = ${person.accountId}`;
    expect(row).toMatchObject({ balance_nano_usd: String(1_000_000_000 - charged), held_nano_usd: "0" });
    expect(await world.unbalanced()).toEqual([]);
  });

  test("leaving a real model in the middle of a story settles the text so far and stops the model", async () => {
    const person = await world.addCustomer();
    await world.givePackage(person);
    const { secret } = await world.addKey(person);
    const stream = await clientOf(secret).chat.completions.create({ ...STORY, max_tokens: 400, stream: true });
    let chunks = 0;
    for await (const _ of stream) if (++chunks === 5) break;
    const deadline = performance.now() + 60_000;
    let { data } = await usageOf(secret);
    while (data.length === 0 && performance.now() < deadline) {
      await new Promise((done) => setTimeout(done, 50));
      ({ data } = await usageOf(secret));
    }
    expect(data).toHaveLength(1);
    expect(data[0]?.completionTokens).toBeGreaterThan(0);
    // One at a time is what the model can do: an answer to somebody else shows that it is free again.
    expect((await clientOf(secret).chat.completions.create(STORY)).choices[0]?.finish_reason).toBe("length");
  });
}

async function sell(world: World, baseUrl: string): Promise<void> {
  const log = createLog("silent");
  const db = world.openDb();
  const config = { secretKey: Buffer.from(TEST_SECRET_KEY, "base64"), providerAllowPrivate: [new URL(baseUrl).host] };
  const deps = { db, bus: inProcessBus(log), config };
  try {
    const providerId = await addProvider(deps, { name: "local", baseUrl, apiKey: "none-needed" });
    await addModel(deps, { id: "stories", modality: "text", contextLength: 512, prices: PRICES });
    await addRoute(deps, { modelId: "stories", providerId, upstreamModel: "stories260k" });
  } finally {
    await db.close();
  }
}

/** Starts the model's server as a process that ends with us. Rejects with its output when it does not start. */
function startModelServer(folder: string): Promise<{ process: ChildProcess; baseUrl: string }> {
  const script = join(import.meta.dirname, "real_model/server.mjs");
  const child = spawn(process.execPath, [script, folder, MODEL_FILE], { stdio: ["pipe", "pipe", "pipe"] });
  return new Promise((done, fail) => {
    let output = "";
    const giveUp = (why: string) => fail(new Error(`the real model's server ${why}:\n${output}`));
    const timer = setTimeout(() => giveUp("does not start"), START_MS_MAX);
    child.stderr.on("data", (bytes) => {
      output += bytes;
    });
    child.once("exit", (code) => giveUp(`ended with ${code}`));
    createInterface({ input: child.stdout }).on("line", (line) => {
      output += `${line}\n`;
      const baseUrl = /"baseUrl":"([^"]+)"/.exec(line)?.[1];
      if (baseUrl === undefined) return;
      clearTimeout(timer);
      done({ process: child, baseUrl });
    });
  });
}

/** The folder with node-llama-cpp in it. */
function installLlama(): Promise<string> {
  return installOnDemand({
    name: `node-llama-cpp-${LLAMA_VERSION}`,
    dependencies: { "node-llama-cpp": LLAMA_VERSION, [binaryPackage()]: LLAMA_VERSION },
    // Without the optional ones, the binaries for every GPU: more than half a gigabyte.
    options: ["--omit=optional"],
  });
}

function binaryPackage(): string {
  const { platform, arch } = process;
  const names: Record<string, string> = {
    "linux-x64": "linux-x64",
    "linux-arm64": "linux-arm64",
    "darwin-arm64": "mac-arm64-metal",
    "darwin-x64": "mac-x64",
    "win32-x64": "win-x64",
    "win32-arm64": "win-arm64",
  };
  return `@node-llama-cpp/${names[`${platform}-${arch}`] ?? `${platform}-${arch}`}`;
}
