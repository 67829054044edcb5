import { encrypt } from "../../src/platform/crypto.ts";
import { type Answer, openShop, PRICES } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import type { ModelSpec, World } from "../world.ts";
import type { Path } from "./form.ts";
import { startRawProvider } from "./raw_provider.ts";
import { type Run, routesOf, URLS } from "./runs.ts";

const BALANCE_NANO_USD = 1_000_000_000_000n;
const LEARNED_MS_MAX = 20_000;
const MODALITIES: Record<Path, ModelSpec["modality"]> = {
  ...{ chat: "text", responses: "text", completions: "text", embeddings: "embedding", images: "image" },
  rerank: "rerank",
};
/** Of the answers' prices: an input alone is paid. */
const HAS_NO_OUTPUT: ReadonlySet<Path> = new Set(["embeddings", "rerank"]);

/** A call that a provider got. */
type Asked = { route: number; text: string; body: Record<string, unknown> };
type Receipt = { units: number; tokens?: number[] };

/** A shop with a model for each run, whose routes have providers and keys of their own: no run changes what another meets. */
export async function openCompatShop(runs: readonly Run[], env: Record<string, string> = {}) {
  const asked = new Map<string, Asked[]>();
  const byId = new Map(runs.map((run) => [run.id, run]));
  // The path of a call says which route of which run it is: /compat-7/0/v1/chat/completions.
  const provider = await startRawProvider(({ path, text, body }) => {
    const [, id = "", route = ""] = path.split("/");
    const run = byId.get(id);
    if (run === undefined) return undefined;
    asked.set(id, [...(asked.get(id) ?? []), { route: Number(route), text, body }]);
    return routesOf(run.entry)[Number(route)];
  });
  const apiKey = encrypt(Buffer.from(TEST_SECRET_KEY, "base64"), "sk-compat-0123456789abcdef");
  const urlOf = (id: string, route: number) => `http://127.0.0.1:${provider.port}/${id}/${route}/v1`;
  const shop = await openShop({
    redisUrl: "",
    env: { PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${provider.port}`, ...env },
    fill: (world) => addModels(world, { runs, apiKey, urlOf }),
  });
  const { sql } = shop.world;

  return {
    ...shop,
    stopProvider: () => provider.stop(),

    /** Sends the request of an account of its own, and waits for its receipt. */
    async run({ id, entry, path, body }: Run): Promise<{ answer: Answer; asked: Asked[]; receipt: Receipt }> {
      const { payer, headers = {} } = entry.request;
      const customer = payer === "balance" ? await shop.payer(BALANCE_NANO_USD) : await shop.customer();
      const answer = await shop.call(URLS[path], { secret: customer.secret, body, headers: { ...headers } });
      const find = () => sql<{ outcome: string; units: number; tokens: number[] }[]>`
        select outcome, units, array[prompt_tokens, completion_tokens] as tokens from receipts
        where account_id = ${customer.accountId}`;
      let rows = await find();
      // What was released may be written a moment after the answer; what was settled was written before.
      if (answer.status !== 400 || (asked.get(id)?.length ?? 0) > 0)
        await until(async () => {
          rows = await find();
          return rows.length > 0;
        }, LEARNED_MS_MAX);
      const [row] = rows;
      const receipt = row?.outcome === "settled" ? { units: row.units, tokens: row.tokens } : { units: 0 };
      return { answer, asked: asked.get(id) ?? [], receipt };
    },
  };
}

/** Before the replica starts, and all at once: there may be thousands. */
async function addModels(
  { sql, addModels: add }: World,
  { runs, apiKey, urlOf }: { runs: readonly Run[]; apiKey: Uint8Array; urlOf: (id: string, route: number) => string },
): Promise<void> {
  const providers = runs.flatMap(({ id, entry }) =>
    routesOf(entry).map(({ dialect = "generic" }, route) => ({
      ...{ name: `${id}-${route}`, base_url: urlOf(id, route), dialect },
    })),
  );
  await sql`insert into providers ${sql(providers)}`;
  await sql`
    insert into provider_keys (provider_id, name, key_ciphertext)
    select id, 'default', ${Buffer.from(apiKey)} from providers where name = any(${providers.map(({ name }) => name)})`;
  await add(
    ...runs.map(
      ({ id, path, entry }): ModelSpec => ({
        id,
        modality: MODALITIES[path],
        ...{ defaultCapTokens: 1000, inputMicroUsd: PRICES.inputMicroUsd },
        outputMicroUsd: HAS_NO_OUTPUT.has(path) ? 0 : PRICES.outputMicroUsd,
        routes: routesOf(entry).map((_, route) => ({ provider: `${id}-${route}`, upstreamModel: "up" })),
        ...(path === "images" && { imagePrices: { "1024x1024": PRICES.imageMicroUsd } }),
      }),
    ),
  );
}
