import { expect, test } from "bun:test";
import { openShop } from "../gateway/shop.ts";
import { a, startNameServer } from "../name_server.ts";
import { signInTo } from "./panel_client.ts";

/** Names whose name server is silent hold up only the customer who gave them. Source: SEC-3, ADM-3. */
const PROVIDER = "provider.test";
const LOOK_UPS_AT_ONCE = 8;

test("100 names of one customer whose server is silent: neighbours sign in and call a provider by its name", async () => {
  const dns = await startNameServer((name, type) => {
    if (name.startsWith("silent")) return "silent";
    return name === PROVIDER && type === "A" ? [a(name, "127.0.0.1", 1)] : "none";
  });
  const shop = await openShop({ env: { NAME_SERVERS: dns.address, TRUSTED_PROXIES: "127.0.0.1" } });
  const { origin } = await shop.start({ PROVIDER_ALLOW_PRIVATE: `${PROVIDER}:${shop.provider.port}` });
  await shop.world
    .sql`update providers set base_url = replace(base_url, ${`127.0.0.1:${shop.provider.port}`}, ${`${PROVIDER}:${shop.provider.port}`})`;
  const attacker = await signInTo(shop, await shop.world.addCustomer(), { origin, address: "192.0.2.1" });
  const neighbour = await shop.customer();
  const hanging = Array.from({ length: 100 }, (_, i) =>
    attacker.post(
      "/webhooks",
      { url: `https://silent${i}.example/`, kinds: ["balance_low"] },
      { "idempotency-key": `hook-${i}` },
    ),
  );
  for (let i = 2; i < 8; i++) await signInTo(shop, await shop.world.addCustomer(), { origin, address: `192.0.2.${i}` });
  expect((await shop.chat(neighbour.secret, {}, { origin })).status).toBe(200);
  const statuses = (await Promise.all(hanging)).map(({ status }) => status);
  expect(statuses.filter((status) => status !== 422 && status !== 429)).toEqual([]);
  expect(statuses).toContain(429);
  const silent = new Set(dns.asked.filter((one) => one.startsWith("A silent")));
  expect(silent.size).toBeGreaterThan(0);
  expect(silent.size).toBeLessThanOrEqual(LOOK_UPS_AT_ONCE);
  expect(dns.asked).toContain(`A ${PROVIDER}`);
  await shop.close();
  dns.close();
});
