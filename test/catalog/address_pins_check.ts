/**
 * Calls `https://NAME:PORT/v1/models` for each given name in order. Every name resolves to 127.0.0.1. Prints each answer or
 * error. A separate process, because a runtime reads its extra authority when it starts. Run by address_pins.test.ts, on Bun
 * and on Deno.
 */
import process from "node:process";
import { createProviderClient } from "../../src/catalog/provider_client.ts";
import { Secret } from "../../src/platform/crypto.ts";
import { createLog } from "../../src/platform/log.ts";

const [port = "", names = ""] = process.argv.slice(2);
const config = {
  providerConnectMs: 5_000,
  providerFirstByteMs: 5_000,
  providerAllowPrivate: names.split(",").map((name) => `${name}:${port}`),
};
const resolve = async () => [{ address: "127.0.0.1", family: 4 as const }];
const client = createProviderClient({ config, log: createLog("silent"), resolve });
for (const name of names.split(",")) {
  const upstream = { providerName: name, baseUrl: `https://${name}:${port}/v1`, apiKey: new Secret("sk-test") };
  const { ok, problem } = await client.ping(upstream);
  const models = ok ? (await client.listModels(upstream)).ids : [problem];
  console.log(`${name} ${ok ? "ok" : "failed"} ${models.join(" ")}`);
}
process.exit(0);
