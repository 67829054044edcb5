import { encrypt } from "../../src/platform/crypto.ts";
import { startFakeProvider } from "../fake_provider.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { openShop } from "./shop.ts";

/** A shop with replicas and one provider that has several keys, which it tells apart. */
export type KeyShop = Awaited<ReturnType<typeof openKeyShop>>;

export const MODEL = "chat-keys";
const SECRET = "sk-pool-0123456789abcdef-";

export async function openKeyShop({ keys, replicas, redisUrl }: { keys: number; replicas: number; redisUrl?: string }) {
  const secrets = Array.from({ length: keys }, (_, i) => `${SECRET}${i + 1}`);
  const [apiKey = "", ...moreKeys] = secrets;
  const provider = await startFakeProvider({ apiKey, moreKeys });
  const env = { PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${provider.port}` };
  const shop = await openShop({ replicas, env, ...(redisUrl !== undefined && { redisUrl }) });
  const { sql } = shop.world;
  const encrypted = (secret: string) => encrypt(Buffer.from(TEST_SECRET_KEY, "base64"), secret);
  const providerId = await shop.world.addProvider("pool", provider.baseUrl, encrypted(apiKey));
  for (const [i, secret] of moreKeys.entries())
    await sql`insert into provider_keys (provider_id, name, key_ciphertext) values (${providerId}, ${`key ${i + 2}`}, ${encrypted(secret)})`;
  await shop.addModels({ id: MODEL, contextLength: 8192, routes: [{ provider: "pool", upstreamModel: MODEL }] });
  const origins = shop.replicas.map(({ origin }) => origin);

  return {
    shop,
    provider,
    providerId,
    origins,
    customer: () => shop.customer({ dailyLimit: 1_000_000 }),
    /** The Authorization header of the n-th key, from 1. */
    bearer: (n: number) => `Bearer ${SECRET}${n}`,
    /** The number of the key that a call of the provider was made with. */
    keyOf: (call: { headers: { authorization?: string | undefined } }) =>
      Number(call.headers.authorization?.slice(`Bearer ${SECRET}`.length)),
    /** The states of the keys, in their order. */
    async states(): Promise<string[]> {
      const rows = await sql`select state from provider_keys where provider_id = ${providerId} order by id`;
      return rows.map(({ state }) => String(state));
    },
    close: () => provider.stop(),
  };
}
