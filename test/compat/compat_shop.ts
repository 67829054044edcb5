import { encrypt } from "../../src/platform/crypto.ts";
import { type Answer, openShop, PRICES } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { startRawProvider } from "./raw_provider.ts";
import { type Run, routesOf, URLS } from "./runs.ts";

const BALANCE_NANO_USD = 1_000_000_000_000n;
const LEARNED_MS_MAX = 20_000;
const MODALITIES = { chat: "text", responses: "text", embeddings: "embedding", images: "image" } as const;

/** A call that a provider got. */
type Asked = { route: number; body: Record<string, unknown> };
type Receipt = { units: number; tokens?: number[] };

/** A shop with a model for each run, whose routes have providers and keys of their own: no run changes what another meets. */
export async function openCompatShop(runs: readonly Run[]) {
  const asked = new Map<string, Asked[]>();
  const byId = new Map(runs.map((run) => [run.id, run]));
  // The path of a call says which route of which run it is: /compat-7/0/v1/chat/completions.
  const provider = await startRawProvider(({ path, body }) => {
    const [, id = "", route = ""] = path.split("/");
    const run = byId.get(id);
    if (run === undefined) return undefined;
    asked.set(id, [...(asked.get(id) ?? []), { route: Number(route), body }]);
    return routesOf(run.entry)[Number(route)];
  });
  const shop = await openShop({ redisUrl: "", env: { PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${provider.port}` } });
  const { sql } = shop.world;
  const apiKey = encrypt(Buffer.from(TEST_SECRET_KEY, "base64"), "sk-compat-0123456789abcdef");

  async function addModel({ id, entry, path }: Run): Promise<void> {
    const output = path === "embeddings" ? 0 : PRICES.outputMicroUsd;
    await sql`
      insert into models (id, name, owned_by, modality, input_micro_usd, output_micro_usd, default_cap_tokens)
      values (${id}, ${id}, 'tollgate', ${MODALITIES[path]}, ${PRICES.inputMicroUsd}, ${output}, 1000)`;
    if (path === "images")
      await sql`insert into image_prices (model_id, size, micro_usd) values (${id}, '1024x1024', ${PRICES.imageMicroUsd})`;
    for (const [route] of routesOf(entry).entries()) {
      const url = `http://127.0.0.1:${provider.port}/${id}/${route}/v1`;
      const providerId = await shop.world.addProvider(`${id}-${route}`, url, apiKey);
      await sql`
        insert into routes (model_id, provider_id, upstream_model, priority)
        values (${id}, ${providerId}, 'up', ${route})`;
    }
  }
  for (const run of runs) await addModel(run);
  const last = runs.at(-1)?.id;
  const { secret } = await shop.customer();
  await until(async () => (await shop.call(`/v1/models/${last}`, { secret })).status === 200, LEARNED_MS_MAX);

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
