import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DIALECT_NAMES, type DialectName } from "../src/catalog/dialects.ts";
import { type DemoProvider, startSimulated } from "../src/demo/demo_provider.ts";
import { encrypt } from "../src/platform/crypto.ts";
import { closeBalanced } from "./gateway/checks.ts";
import { eventsOf, openShop, type Shop } from "./gateway/shop.ts";
import { TEST_SECRET_KEY } from "./replica.ts";

/** What `demo --dialect NAME` starts, for every name: the provider's own process, and a stream of a chat through the gateway. */

setDefaultTimeout(120_000);

const providers = new Map<DialectName, DemoProvider>();
let folder: string;
let shop: Shop;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-dialects-`));
  for (const name of DIALECT_NAMES) providers.set(name, await startSimulated(join(folder, `${name}.log`), name));
  shop = await openShop({
    redisUrl: "",
    env: { PROVIDER_ALLOW_PRIVATE: [...providers.values()].map(({ baseUrl }) => new URL(baseUrl).host).join() },
    fill: async ({ sql, addProvider, addModels }) => {
      const key = Buffer.from(TEST_SECRET_KEY, "base64");
      for (const [name, { baseUrl, apiKey, dialect }] of providers) {
        const id = await addProvider(name, baseUrl, encrypt(key, apiKey));
        await sql`update providers set dialect = ${dialect} where id = ${id}`;
        const routes = [{ provider: name, upstreamModel: "sim-small" }];
        await addModels({ id: `plays/${name}`, contextLength: 8192, defaultCapTokens: 8, routes });
      }
    },
  });
});
afterAll(async () => {
  await closeBalanced(shop);
  for (const provider of providers.values()) await provider.stop();
  rmSync(folder, { recursive: true, force: true });
});

describe.each([...DIALECT_NAMES])("%s", (name) => {
  test("its process answers a stream of a chat, with usage, once", async () => {
    const { secret, accountId } = await shop.customer();
    const { status, text } = await shop.chat(secret, {
      model: `plays/${name}`,
      messages: [
        { role: "developer", content: "Be brief." },
        { role: "user", content: [{ type: "text", text: "Tell me about toll gates." }] },
      ],
      ...{ stream: true, stream_options: { include_usage: true } },
    });
    expect({ status, text: status === 200 ? "" : text }).toEqual({ status: 200, text: "" });
    const events = eventsOf(text);
    expect(events.at(-1)).toBe("[DONE]");
    expect(JSON.parse(events.at(-2) ?? "").usage.total_tokens).toBeGreaterThan(0);
    expect((await shop.counters(accountId)).units).toBe(1);
  });
});
