import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "../platform/own_redis.ts";
import { RUNTIME } from "../replica.ts";
import { closeBalanced, expectRefusal, rawCall, withoutEffect } from "./checks.ts";
import { openShop, type Shop } from "./shop.ts";

/** Which hosts are served, and to whom. Source: API-4, API-11, KEY-5. */

const BASE = "api.tollgate.test";
const ALIAS = "tollgate.test";

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { CACHE_TTL_MS: "100" } });
});
afterAll(() => closeBalanced(shop));

describe("hosts", () => {
  const raw = (lines: string, target = "/v1/models") =>
    rawCall(shop.replicas[0]?.port ?? 0, `GET ${target} HTTP/1.1\r\n${lines}Connection: close\r\n\r\n`);

  test("base, alias and local hosts are served, in any case, with any port", async () => {
    const { secret } = await shop.customer();
    for (const host of [BASE, ALIAS, "API.Tollgate.Test", `${BASE}:443`, "localhost", "127.0.0.1:8080"]) {
      expect({ host, status: (await shop.call("/v1/models", { secret, host })).status }).toEqual({ host, status: 200 });
    }
  });

  test("local hosts are refused in production", async () => {
    const { secret } = await shop.customer();
    const production = await shop.start({ NODE_ENV: "production" });
    try {
      expectRefusal(await shop.call("/v1/models", { secret, origin: production.origin }), "host_not_allowed");
      expect((await shop.call("/v1/models", { secret, origin: production.origin, host: BASE })).status).toBe(200);
    } finally {
      await production.kill();
    }
  });

  test("a reseller's active domain serves only its own tenant", async () => {
    const reseller = await shop.world.addReseller("ai.acme.test");
    const customer = await shop.world.addCustomer(reseller.accountId);
    await shop.world.givePackage(customer);
    const { secret } = await shop.world.addKey(customer);
    const own = await shop.world.addKey(reseller);
    const stranger = await shop.customer();
    const answer = await shop.chat(secret, {}, { host: "ai.acme.test" });
    expect(answer.status).toBe(200);
    const [record] = await shop.world.sql`select host from receipts where account_id = ${customer.accountId}`;
    expect(record?.host).toBe("ai.acme.test");
    expect((await shop.call("/v1/models", { secret: own.secret, host: "ai.acme.test" })).status).toBe(200);
    expect((await shop.call("/v1/models", { secret, host: BASE })).status).toBe(200);
    await withoutEffect(shop, async () =>
      expectRefusal(await shop.chat(stranger.secret, {}, { host: "ai.acme.test" }), "host_not_allowed"),
    );
  });

  test("a domain that is not active, or whose reseller is suspended, is refused", async () => {
    for (const status of ["pending", "verifying", "failed", "suspended"]) {
      const reseller = await shop.world.addReseller();
      await shop.world
        .sql`insert into hosts (host, reseller_id, status) values (${`${status}.acme.test`}, ${reseller.accountId}, ${status})`;
      const { secret } = await shop.world.addKey(reseller);
      expectRefusal(await shop.call("/v1/models", { secret, host: `${status}.acme.test` }), "host_not_allowed");
    }
    const reseller = await shop.world.addReseller("shut.acme.test");
    await shop.world.sql`update accounts set status = 'suspended' where id = ${reseller.accountId}`;
    const { secret } = await shop.customer();
    expectRefusal(await shop.call("/v1/models", { secret, host: "shut.acme.test" }), "host_not_allowed");
  });

  test("a domain that is suspended while in use is refused soon", async () => {
    const reseller = await shop.world.addReseller("late.acme.test");
    const { secret } = await shop.world.addKey(reseller);
    expect((await shop.call("/v1/models", { secret, host: "late.acme.test" })).status).toBe(200);
    await shop.world.sql`update hosts set status = 'suspended' where host = 'late.acme.test'`;
    const ask = () => shop.call("/v1/models", { secret, host: "late.acme.test" });
    await until(async () => (await ask()).status !== 200);
    expectRefusal(await ask(), "host_not_allowed");
  });

  test("what was drawn ahead after a domain was suspended serves no request on it, though the replica never hears of the change", async () => {
    // On a busy machine Redis may be silent for a second: then the replica reads the domain again, and the try shows nothing.
    let tries = 1;
    while (!(await isUnheard(tries))) expect(++tries).toBeLessThan(10);
  });

  /** Returns whether the replica had not heard of the change until the end. */
  async function isUnheard(tried: number): Promise<boolean> {
    const [first, host] = [`heard${tried}.acme.test`, `unheard${tried}.acme.test`];
    const reseller = await shop.world.addReseller(first, host);
    const customer = await shop.world.addCustomer(reseller.accountId);
    await shop.world.givePackage(customer, { dailyLimit: 100_000 });
    const [early, late] = [await shop.world.addKey(customer), await shop.world.addKey(customer)];
    const replica = await shop.start({ CACHE_TTL_MS: "60000" });
    const { origin } = replica;
    const statusOn = async (on: string) =>
      (await shop.call("/v1/models", { secret: early.secret, host: on, origin })).status;
    try {
      // The replica has read the changes once: from then on it flushes its caches no more.
      expect(await statusOn(first)).toBe(200);
      await shop.world.sql`update hosts set status = 'suspended' where host = ${first}`;
      await until(async () => (await statusOn(first)) === 403);
      expect(await statusOn(host)).toBe(200);
      await shop.world.sql.begin(async (tx) => {
        await tx`update hosts set status = 'suspended' where host = ${host}`;
        await tx`delete from changes where xid = pg_current_xact_id()`;
      });
      // The other key is read only now. With it, the account draws ahead.
      let served = 0;
      await until(async () => {
        expect((await shop.chat(late.secret, {}, { origin })).status).toBe(200);
        served++;
        const [drawn] = await shop.world
          .sql`select sum(idle_units)::int as idle from escrows where account_id = ${customer.accountId}`;
        return drawn?.idle > 0;
      });
      expectRefusal(await shop.chat(late.secret, {}, { host, origin }), "host_not_allowed");
      expect((await shop.counters(customer.accountId)).usage).toBe(served);
      return (await statusOn(host)) === 200;
    } finally {
      await replica.kill();
    }
  }

  test("a missing, duplicate, malformed or unknown Host is refused, with the error envelope wherever HTTP allows a body", async () => {
    const { secret } = await shop.customer();
    const auth = `Authorization: Bearer ${secret}\r\n`;
    expect((await raw(`Host: ${BASE}\r\n${auth}`)).status).toBe(200);
    for (const host of [
      "",
      "a b",
      "/",
      `x@${BASE}`,
      `${BASE}.`,
      `.${BASE}`,
      `${BASE}:x`,
      `${BASE},${ALIAS}`,
      `${BASE}#`,
      "[::1]",
      `evil-${BASE}`,
      "tollgate.test.evil.test",
    ]) {
      const answer = await raw(`Host: ${host}\r\n${auth}`);
      expect({ host, code: answer.json?.error.code }).toEqual({ host, code: "host_not_allowed" });
      expectRefusal(answer, "host_not_allowed");
    }
    for (const pair of [
      [BASE, BASE],
      ["foreign.test", BASE],
      [BASE, "foreign.test"],
    ]) {
      const answer = await raw(`${pair.map((host) => `Host: ${host}\r\n`).join("")}${auth}`);
      // On Deno two Hosts never get past the parser.
      if (RUNTIME === "deno") expect([answer.status, answer.text]).toEqual([400, ""]);
      else expectRefusal(answer, "host_not_allowed");
    }
    expectRefusal(
      await rawCall(shop.replicas[0]?.port ?? 0, `GET /v1/models HTTP/1.0\r\n${auth}\r\n`),
      "host_not_allowed",
    );
    // HTTP/1.1 without a Host never gets past Bun's parser.
    if (RUNTIME === "deno") expectRefusal(await raw(auth), "host_not_allowed");
    else expect((await raw(auth)).status).toBe(400);
  });

  test("the refusal of a host says why: the header is malformed, the name ends in a dot, or the host is not served", async () => {
    const { secret } = await shop.customer();
    const reasonOf = async (host: string, path?: string) => {
      const answer = await raw(`Host: ${host}\r\nAuthorization: Bearer ${secret}\r\n`, path);
      expectRefusal(answer, "host_not_allowed");
      return answer.json.error.message;
    };
    for (const host of ["", `x@${BASE}`, `${BASE}:x`, `${BASE}:65536`, `${BASE}:99999`, `${BASE}:999999`])
      expect([host, await reasonOf(host)]).toEqual([
        host,
        expect.stringMatching(/one Host header.*port from 0 to 65535/),
      ]);
    for (const host of [`${BASE}.`, `${BASE}.:443`])
      expect([host, await reasonOf(host)]).toEqual([host, expect.stringMatching(/not served here.*dot at the end/)]);
    expect(await reasonOf("foreign.test")).toBe("This host is not served here.");
    expect(await reasonOf(BASE, "/api/panel/brand/public")).toBe("The panel is not served on this host.");
    for (const port of ["", ":", ":0", ":443", ":65535"])
      expect((await raw(`Host: ${BASE}${port}\r\nAuthorization: Bearer ${secret}\r\n`)).status).toBe(200);
  });

  test("the host of an absolute target takes precedence over the Host header; Bun drops it, so a proxy in front must handle that", async () => {
    const { secret } = await shop.customer();
    const auth = `Authorization: Bearer ${secret}\r\n`;
    expect((await raw(`Host: ${BASE}\r\n${auth}`, `http://${BASE}/v1/models`)).status).toBe(200);
    const foreign = await raw(`Host: ${BASE}\r\n${auth}`, "http://foreign.test/v1/models");
    const served = await raw(`Host: foreign.test\r\n${auth}`, `http://${BASE}/v1/models`);
    expectRefusal(RUNTIME === "deno" ? foreign : served, "host_not_allowed");
    expect((RUNTIME === "deno" ? served : foreign).status).toBe(200);
    // A malformed Host is refused whatever the request target is.
    expectRefusal(await raw(`Host: a b\r\n${auth}`, `http://${BASE}/v1/models`), "host_not_allowed");
  });

  test("forwarded host headers are ignored", async () => {
    const { secret } = await shop.customer();
    const headers = { "x-forwarded-host": BASE, forwarded: `host=${BASE}` };
    expectRefusal(await shop.call("/v1/models", { secret, host: "foreign.test", headers }), "host_not_allowed");
  });

  test("403 for a key on a host that is not on its list; 200 on a listed host", async () => {
    const { secret } = await shop.customer({}, { hosts: [ALIAS] });
    expect((await shop.chat(secret, {}, { host: ALIAS })).status).toBe(200);
    await withoutEffect(shop, async () => {
      for (const path of ["/v1/models", "/v1/balance", "/v1/usage"])
        expectRefusal(await shop.call(path, { secret, host: BASE }), "host_not_allowed");
      expectRefusal(await shop.chat(secret, {}, { host: BASE }), "host_not_allowed");
    });
  });

  test("an unknown path on an unknown host gets host_not_allowed", async () => {
    expectRefusal(await shop.call("/nothing", { host: "foreign.test" }), "host_not_allowed");
  });
});
