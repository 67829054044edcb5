import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { type CallOptions, openShop, type Shop } from "../gateway/shop.ts";
import { PANEL } from "./panel_client.ts";

/** The pages before any script runs: who gets one, under which policy, in whose name. Source: PAN-7, PAN-9. */

const ACME = "ai.acme.test";
const PLAIN = "ai.plain.test";
const NAME = `Acme <b>"AI"</b> & 'Co'`;

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { BRAND_NAME: "Operator Ltd" } });
  const { sql } = shop.world;
  const acme = await shop.world.addReseller();
  const plain = await shop.world.addReseller();
  await sql`update accounts set name = 'Plain Reseller' where id = ${plain.accountId}`;
  await sql`
    insert into hosts (host, reseller_id, status) values (${ACME}, ${acme.accountId}, 'active'), (${PLAIN}, ${plain.accountId}, 'active')`;
  await sql`
    insert into brands (reseller_id, name, css, icon, version) values (${acme.accountId}, ${NAME}, ':root{--accent:red}', ${Buffer.from("icon")}, 'v1')`;
}, 60_000);
afterAll(() => shop.close());

const page = (path: string, host = PANEL, options: CallOptions = {}) =>
  shop.call(path, { host, ...options, headers: { accept: "text/html,*/*;q=0.8", ...options.headers } });

describe("who gets a page", () => {
  test("a browser on a host of the panel, at any address that is not the API's", async () => {
    for (const [path, host] of [
      ["/", PANEL],
      ["/keys", PANEL],
      ["/usage?receipt=1", PANEL],
      ["/invite/abc", ACME],
      ["/admin/people/7", PANEL],
    ] as const) {
      const { status, headers, text } = await page(path, host);
      expect({ path, status, type: headers.get("content-type") }).toEqual({
        path,
        status: 200,
        type: "text/html; charset=utf-8",
      });
      expect(text).toContain('<div id="root">');
      expect(text).not.toMatch(/%[A-Z]+%/);
      expect(headers.get("cache-control")).toBe("no-store");
      expect(headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
    }
  });

  test("whoever does not prefer JSON gets the page: any type will do, no type is named, or HTML comes first", async () => {
    for (const accept of [
      "*/*",
      "",
      "text/*",
      "text/html",
      "text/html, application/json;q=0.9",
      "application/json; q=0, */*",
      "application/xhtml+xml, TEXT/HTML;q=0.9, application/json;q=0.8",
      "image/avif,image/webp,*/*;q=0.8",
    ]) {
      for (const host of [PANEL, ACME]) {
        const { status, headers } = await shop.call("/keys", { host, headers: { accept } });
        expect([accept, host, status, headers.get("content-type")]).toEqual([
          accept,
          host,
          200,
          "text/html; charset=utf-8",
        ]);
      }
      // Paths of the API answer in the envelope, whoever asks.
      for (const path of ["/v1", "/v1/nothing", "/api", "/api/nothing", "/api/panel/nothing"])
        expectRefusal(await shop.call(path, { host: PANEL, headers: { accept } }), "not_found");
      expectRefusal(await shop.call("/v1/models", { host: ACME, headers: { accept } }), "invalid_api_key");
    }
  });

  test("404 in the envelope for clients that prefer JSON or take no page, for the API's paths, and for other methods", async () => {
    for (const accept of [
      "application/json",
      "application/json, text/plain, */*",
      "application/json, text/html;q=0.9",
      "application/json, */*;q=0.5",
      "application/json;q=0.5, */*;q=0.5",
      "text/event-stream",
      "*/*, text/html;q=0",
      "image/png",
    ])
      expectRefusal(await shop.call("/keys", { host: PANEL, headers: { accept } }), "not_found");
    expectRefusal(await page("/v1/nothing"), "not_found");
    expectRefusal(await page("/api/panel/nothing"), "not_found");
    expectRefusal(await page("/keys", PANEL, { method: "POST", body: {} }), "not_found");
    expectRefusal(await page("/assets/none.js"), "not_found");
    expectRefusal(await page("/assets/..%2findex.html"), "not_found");
  });

  test("a host of the API alone has no pages, and one that is not served has nothing", async () => {
    expectRefusal(await page("/", "api.tollgate.test"), "not_found");
    expectRefusal(await page("/assets/none.js", "api.tollgate.test"), "host_not_allowed");
    for (const path of ["/", "/brand.css", "/assets/none.js"])
      expectRefusal(await page(path, "elsewhere.test"), "host_not_allowed");
  });
});

describe("the policy", () => {
  test("own scripts and styles alone, a nonce that is new each time, no frame around it", async () => {
    const nonces = new Set<string>();
    for (let i = 0; i < 3; i++) {
      const { headers, text } = await page("/");
      const policy = headers.get("content-security-policy") ?? "";
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("script-src 'self';");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).toContain("require-trusted-types-for 'script'");
      expect(policy).not.toMatch(/unsafe|\*|https?:/);
      const nonce = /'nonce-([^']+)'/.exec(policy)?.[1] ?? "";
      expect(text).toContain(`content="${nonce}"`);
      nonces.add(nonce);
    }
    expect(nonces.size).toBe(3);
    const { text } = await page("/");
    expect(text).not.toMatch(/<script(?![^>]*\bsrc=)/);
    expect(text).not.toMatch(/<style|\son\w+=|style=/);
  });
});

describe("in whose name", () => {
  test("the service's own on its host, the reseller's on the reseller's: with its title, colours and icon", async () => {
    const own = await page("/sign-in");
    expect(own.text).toContain("<title>Operator Ltd</title>");
    expect(own.text).not.toContain("brand.css");

    const acme = await page("/sign-in", ACME);
    expect(acme.text).toContain("<title>Acme &#60;b&#62;&#34;AI&#34;&#60;/b&#62; &#38; &#39;Co&#39;</title>");
    expect(acme.text).toContain('href="/brand.css?v=v1"');
    expect(acme.text).toContain('href="/brand/icon?v=v1"');
    expect((await page("/brand.css?v=v1", ACME)).text).toBe(":root{--accent:red}");
    expect((await page("/brand/icon?v=v1", ACME)).text).toBe("icon");
    expectRefusal(await page("/brand/logo-light", ACME), "not_found");

    const plain = await page("/sign-in", PLAIN);
    expect(plain.text).toContain("<title>Plain Reseller</title>");
    expect(plain.text).not.toContain("brand.css");
  });

  test("nothing of the operator in what a reseller's customers load", async () => {
    for (const host of [ACME, PLAIN]) {
      const { text, headers } = await page("/sign-in", host);
      const files = [...text.matchAll(/(?:src|href)="(\/[^"]+)"/g)].map(([, path]) => path ?? "");
      const loaded = [text, JSON.stringify([...headers]), (await page("/api/panel/brand/public", host)).text];
      for (const path of files) loaded.push((await page(path, host)).text);
      for (const one of loaded) expect(one.toLowerCase()).not.toMatch(/tollgate(?!\.test)|operator ltd/);
    }
  });

  test("scripts and styles travel gzipped to whoever takes it, fonts as they are", async () => {
    const { text } = await page("/");
    const files = [...text.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map(([, path]) => path ?? "");
    for (const path of files) {
      const { headers } = await page(path, PANEL, { headers: { "accept-encoding": "gzip, br" } });
      expect({ path, encoding: headers.get("content-encoding") }).toEqual({
        path,
        encoding: path.endsWith(".woff2") ? null : "gzip",
      });
    }
  });

  test("what has its hash or version in its address is kept for ever, and asked for again costs nothing", async () => {
    const { text } = await page("/");
    const path = /src="(\/assets\/[^"]+\.js)"/.exec(text)?.[1] ?? "";
    const file = await page(path);
    expect(file.headers.get("cache-control")).toContain("immutable");
    expect(file.headers.get("x-content-type-options")).toBe("nosniff");
    expect(file.headers.get("vary")).toBe("accept-encoding");
    const plain = await page(path, PANEL, { headers: { "accept-encoding": "gzip;q=0, identity" } });
    expect(plain.headers.get("content-encoding")).toBeNull();
    expect(plain.text).toBe(file.text);
    const again = await page(path, PANEL, { headers: { "if-none-match": file.headers.get("etag") ?? "" } });
    expect({ status: again.status, text: again.text }).toEqual({ status: 304, text: "" });
  });
});
