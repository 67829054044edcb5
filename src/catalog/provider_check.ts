import type { Config } from "../config.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { decrypt, Secret } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { messageOf } from "../platform/thrown.ts";
import type { Upstream } from "./catalog.ts";
import type { Facts } from "./dialects.ts";
import { GuardError } from "./guard.ts";
import { findModel, listModels } from "./models_store.ts";
import { createProviderClient, type ProviderClient } from "./provider_client.ts";
import { type FailureKind, ProviderFailure, ProviderRejection } from "./provider_errors.ts";
import { findStoredKey } from "./provider_keys_store.ts";
import { hasList, PROBE_CALL_MS_MAX, type ProbeResult, probeFacts, type ToProbe } from "./provider_probe.ts";
import { findProvider } from "./providers_store.ts";
import { listRoutes, listRoutesTo } from "./routes_store.ts";

/** Tests a provider with a real but cheap call: how long it takes, or what exactly fails, in words for an operator. */

/** Time limit for everything: look-up, connect, list of models, and the chat. */
const TEST_MS_MAX = 20_000;
const CHAT_BODY_BYTES_MAX = 256 * 1024;
/** Time limit for everything, if facts are probed too. */
const PROBE_MS_MAX = 90_000;
/** Routes of a provider that are compared with its list of models. */
const ROUTES_MAX = 1_000;

/**
 * The step that failed. `key`: the key cannot be decrypted here. `dns`: the name has no address. `rejected`: the
 * provider refused the call itself.
 */
export type TestFailureKind = FailureKind | "key" | "dns" | "tls" | "rejected";

export type ProviderTest = {
  ok: boolean;
  /** How long the list of models took, look-up and connection included. */
  tookMs: number;
  models: number;
  /** Upstream models of its routes that its list does not contain: requests for them will most likely fail. */
  unlisted: string[];
  /** How long the chat took; null: none was requested, or it was not reached. */
  chatTookMs: number | null;
  /** What the probe found; null: none was requested, or it was not reached. */
  probe: ProbeResult | null;
  kind: TestFailureKind | null;
  problem: string | null;
};

/** A provider, with the key that is tested. */
export type TestedProvider = { name: string; baseUrl: string; keyCiphertext: Uint8Array };

/** A chat of one token, as a route would send it; of an embedding model, the embedding of one word. */
export type TestChat = {
  upstreamModel: string;
  takes: Pick<Facts, "capField">;
  isEmbedding?: boolean;
};
type TestOptions = {
  /** The upstream models of its routes, to compare with its list. */
  upstreamModels: readonly string[];
  chat?: TestChat | undefined;
  /** With it, its facts are probed. */
  probe?: Pick<ToProbe, "chatModel" | "embeddingModel" | "facts"> | undefined;
};
type TestDeps = {
  config: Pick<Config, "secretKey" | "providerConnectMs" | "providerFirstByteMs" | "providerAllowPrivate">;
  log: Log;
};

/** Lists a provider's models, and asks for one token if `chat` is given. Never throws. */
export async function testProvider(
  deps: TestDeps,
  { name, baseUrl, keyCiphertext }: TestedProvider,
  { upstreamModels, chat, probe }: TestOptions,
): Promise<ProviderTest> {
  const nothing = { models: 0, unlisted: [], chatTookMs: null, probe: null, kind: null, problem: null };
  const test: ProviderTest = { ok: false, tookMs: 0, ...nothing };
  let apiKey: Secret;
  try {
    apiKey = new Secret(decrypt(deps.config.secretKey, keyCiphertext));
  } catch {
    const problem = "Its key cannot be decrypted: it was stored under another SECRET_KEY. Store it again.";
    return { ...test, kind: "key", problem };
  }
  // A new client has no pinned addresses: the name is looked up and the connection made every time.
  const client = createProviderClient(deps);
  const upstream = { providerName: name, baseUrl, apiKey };
  const deadline = new AbortController();
  const limitMs = probe ? PROBE_MS_MAX : TEST_MS_MAX;
  const late = new ProviderFailure("timeout", `No answer within ${limitMs} ms.`);
  const timer = setTimeout(() => deadline.abort(late), limitMs);
  const startedMs = performance.now();
  let owners: ReadonlySet<string> = new Set();
  const msSince = (since: number) => Math.round(performance.now() - since);
  try {
    try {
      const models = await client.listModels(upstream, deadline.signal);
      const listed = new Set(models.ids);
      owners = models.owners;
      test.models = listed.size;
      test.unlisted = [...new Set(upstreamModels)].filter((model) => !isListed(listed, model));
    } finally {
      test.tookMs = msSince(startedMs);
    }
    if (chat) {
      const askedMs = performance.now();
      await askForOneToken(client, upstream, { chat, signal: deadline.signal });
      test.chatTookMs = msSince(askedMs);
    }
    if (probe) {
      const callMs = Math.min(PROBE_CALL_MS_MAX, deps.config.providerFirstByteMs);
      test.probe = await probeFacts({ ...probe, client, upstream, owners, callMs, signal: deadline.signal });
    }
    return { ...test, ok: true };
  } catch (thrown) {
    deps.log.debug({ provider: name, err: thrown }, "a provider failed its test");
    return { ...test, kind: kindOf(thrown), problem: sentenceOf(thrown) };
  } finally {
    clearTimeout(timer);
  }
}

/** Google lists its models as `models/NAME`, and accepts NAME alone too. */
function isListed(listed: ReadonlySet<string>, model: string): boolean {
  return listed.has(model) || listed.has(`models/${model}`);
}

async function askForOneToken(
  client: ProviderClient,
  upstream: Upstream,
  { chat: { upstreamModel, takes, isEmbedding }, signal }: { chat: TestChat; signal: AbortSignal },
): Promise<void> {
  const limits = { signal, totalMs: TEST_MS_MAX, bytesMax: CHAT_BODY_BYTES_MAX };
  if (isEmbedding) {
    const asked = JSON.stringify({ model: upstreamModel, input: "Hi" });
    if (!hasList(await client.postWhole(upstream, "/embeddings", asked, limits), "data"))
      throw new ProviderFailure("not_json", "Its answer is no list of embeddings.");
    return;
  }
  const body = { model: upstreamModel, messages: [{ role: "user", content: "Hi" }], [takes.capField]: 1 };
  const text = await client.postWhole(upstream, "/chat/completions", JSON.stringify(body), limits);
  if (!hasList(text, "choices")) throw new ProviderFailure("not_json", "Its answer to a chat is no chat completion.");
}

/** Which test of a provider. */
export type TestChoice = {
  /** Also its first route of this model. */
  modelId?: string | undefined;
  /** Default: its first key. */
  keyId?: number | undefined;
  /** Whether its facts are probed, with the models of its first routes. */
  probe?: boolean | undefined;
};

type ChosenDeps = TestDeps & { db: Db };
/** The tests that run now, by provider. */
const runningOf = new WeakMap<Db, Map<number, { what: string; test: Promise<ProviderTest> }>>();

/**
 * Tests a provider of the catalog with one of its keys, as people ask for it: one at a time per provider and replica; a repeated request for
 * the same test shares its result. Throws not_found, InputError, too_many_requests.
 */
export async function testStoredProvider(
  deps: ChosenDeps,
  providerId: number,
  choice: TestChoice,
): Promise<ProviderTest> {
  const running = runningOf.get(deps.db) ?? new Map<number, { what: string; test: Promise<ProviderTest> }>();
  runningOf.set(deps.db, running);
  const what = JSON.stringify([choice.modelId, choice.keyId, choice.probe]);
  const under = running.get(providerId);
  if (under) {
    if (under.what === what) return await under.test;
    throw new Refusal("too_many_requests", { message: "Another test of this provider is under way." });
  }
  const test = testChosen(deps, providerId, choice).finally(() => running.delete(providerId));
  running.set(providerId, { what, test });
  return await test;
}

async function testChosen(
  deps: ChosenDeps,
  providerId: number,
  { modelId, keyId, probe }: TestChoice,
): Promise<ProviderTest> {
  const provider = await findProvider(deps, providerId);
  if (!provider) throw new Refusal("not_found", { message: "There is no such provider." });
  const stored = await findStoredKey(deps, { providerId, keyId });
  if (!stored) throw new InputError("The provider has no such key.", "keyId");
  const chat = modelId === undefined ? undefined : await chatOf(deps, provider, modelId);
  const routes = await listRoutesTo(deps, { providerId, limit: ROUTES_MAX });
  const sold = new Set((await listModels(deps)).flatMap(({ id, enabled }) => (enabled ? [id] : [])));
  const upstreamModels = routes
    .filter(({ enabled, modelId }) => enabled && sold.has(modelId))
    .map(({ upstreamModel }) => upstreamModel);
  const { keyCiphertext } = stored;
  const probed = probe ? await probedOf(deps, provider) : undefined;
  return await testProvider(deps, { ...provider, keyCiphertext }, { upstreamModels, chat, probe: probed });
}

async function chatOf(deps: { db: Db }, provider: { id: number; name: string }, modelId: string): Promise<TestChat> {
  const model = await findModel(deps, modelId);
  if (!model)
    throw new InputError(sentence("There is no model {modelId}.", { modelId: JSON.stringify(modelId) }), "model");
  // An image is not a cheap call.
  if (model.modality === "image") throw new InputError("An image model is not tested: a picture would cost.", "model");
  if (model.modality === "rerank") throw new InputError("A reranking model has no chat to test.", "model");
  const route = (await listRoutes(deps, modelId)).find(({ providerId }) => providerId === provider.id);
  if (!route)
    throw new InputError(
      sentence("The model {modelId} has no route to {name}.", { modelId, name: provider.name }),
      "model",
    );
  return { ...route, isEmbedding: model.modality === "embedding" };
}

/** The models and facts that a probe of a provider uses. Throws InputError if it has no enabled route to a text or embedding model. */
async function probedOf(
  deps: { db: Db },
  provider: { id: number; name: string; takes: Facts },
): Promise<Pick<ToProbe, "chatModel" | "embeddingModel" | "facts">> {
  const models = new Map((await listModels(deps)).map(({ id, modality }) => [id, modality]));
  const routes = (await listRoutesTo(deps, { providerId: provider.id, limit: ROUTES_MAX })).filter(
    (one) => one.enabled,
  );
  const first = (...modalities: readonly string[]) =>
    routes.find(({ modelId }) => modalities.includes(models.get(modelId) ?? ""))?.upstreamModel;
  const [chatModel, embeddingModel] = [first("text", "multimodal"), first("embedding")];
  if (chatModel === undefined && embeddingModel === undefined)
    throw new InputError(
      sentence("Give a model a route to {name} first: its facts are found with that model.", { name: provider.name }),
      "probe",
    );
  return { chatModel, embeddingModel, facts: provider.takes };
}

function kindOf(thrown: unknown): TestFailureKind {
  if (thrown instanceof ProviderRejection) return "rejected";
  if (!(thrown instanceof ProviderFailure)) return "connect";
  if (thrown.cause instanceof GuardError && thrown.cause.kind === "unresolved") return "dns";
  // The connection existed when `fetch` began: errors about certificates come from the TLS handshake.
  if (thrown.kind === "hung_up" && /certificate|\btls\b|\bssl\b|handshake/i.test(thrown.message)) return "tls";
  return thrown.kind;
}

/** The failure in a sentence: what we observed, then the provider's message. */
function sentenceOf(thrown: unknown): string {
  const words = messageOf(thrown);
  if (thrown instanceof ProviderRejection) return `It refused the call with status ${thrown.status}: ${words}`;
  switch (kindOf(thrown)) {
    case "connect":
      return `It cannot be reached: ${words}`;
    case "hung_up":
      return `It closed the connection: ${words}`;
    case "tls":
      return `No TLS connection: ${words}`;
    case "credentials":
      return `It refuses the key, with status ${statusOf(thrown)}: ${words}`;
    case "no_credit":
    case "too_large":
    case "rate_limited":
    case "unknown_model":
    case "unsupported":
    case "status":
      return `It answered with status ${statusOf(thrown)}: ${words}`;
    default:
      return words;
  }
}

function statusOf(thrown: unknown): number | null {
  return thrown instanceof ProviderFailure ? thrown.status : null;
}
