import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { gunzipSync } from "node:zlib";
import type { LanguageTag } from "../../src/languages/languages.ts";
import { rendered } from "../../src/panel/api_docs.ts";
import { ENDPOINTS, SHAPES } from "../gateway/api_tables.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, type CallOptions, openShop, type Shop } from "../gateway/shop.ts";
import type { ReplicaProcess } from "../replica.ts";
import { PANEL } from "./panel_client.ts";

/** Pages and files as the server sends them: the panel's page, the API reference and its OpenAPI document. Source: PAN-7, PAN-9. */

const ACME = "ai.acme.test";
const PLAIN = "ai.plain.test";
const API = "api.tollgate.test";
const NAME = `Acme <b>"AI"</b> & 'Co'`;
const REFERENCE = "/docs/api";
const OPENAPI = "/docs/openapi.json";

let shop: Shop;
let secret: string;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { BRAND_NAME: 'Operator <b>"Ltd"</b>' } });
  const { sql } = shop.world;
  const acme = await shop.world.addReseller(ACME);
  const plain = await shop.world.addReseller(PLAIN);
  await sql`update accounts set name = 'Plain Reseller' where id = ${plain.accountId}`;
  await sql`
    insert into brands (reseller_id, name, css, icon, version, language)
    values (${acme.accountId}, ${NAME}, ':root{--accent:red}', ${Buffer.from("icon")}, 'v1', 'ar')`;
  ({ secret } = await shop.customer());
});
afterAll(() => shop.close());

const page = (path: string, host = PANEL, options: CallOptions = {}) =>
  shop.call(path, { host, ...options, headers: { accept: "text/html,*/*;q=0.8", ...options.headers } });
/** The title of a page in the operator's name, which contains HTML. */
const OPERATOR_TITLE = "Operator &#60;b&#62;&#34;Ltd&#34;&#60;/b&#62;";
const ACME_TITLE = "Acme &#60;b&#62;&#34;AI&#34;&#60;/b&#62; &#38; &#39;Co&#39;";
const textOf = (html: string) =>
  html.replace(/<[^>]+>/g, " ").replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code));

describe("the panel's page", () => {
  test("is served to browsers on every host of the panel, at every path outside the API", async () => {
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

  test("is in the language of the cookie, else of the brand, else of the browser, with the texts of that language alone", async () => {
    const of = async (host: string, headers: Record<string, string>) => {
      const { text } = await page("/", host, { headers });
      const [, language = "", direction = ""] = /<html lang="([^"]*)" dir="([^"]*)">/.exec(text) ?? [];
      const texts = [...text.matchAll(/<script src="(\/assets\/texts-[^"]+)"/g)].map(([, path = ""]) => path);
      return { language, direction, texts };
    };
    expect(await of(PANEL, {})).toEqual({ language: "en", direction: "ltr", texts: [] });
    expect(await of(PANEL, { "accept-language": "fr" })).toMatchObject({ language: "en", texts: [] });
    for (const [headers, language, direction] of [
      [{ "accept-language": "de-CH,de;q=0.9" }, "de", "ltr"],
      [{ "accept-language": "de", cookie: "panel_language=es" }, "es", "ltr"],
      [{ "accept-language": "de", cookie: 'panel_language="><script>' }, "de", "ltr"],
    ] as const) {
      const { texts, ...rest } = await of(PANEL, headers);
      expect(rest).toEqual({ language, direction });
      expect(texts).toEqual([expect.stringContaining(`/assets/texts-${language}-`)]);
      const script = await page(texts[0] ?? "", PANEL);
      expect(script.status).toBe(200);
      expect(script.headers.get("content-type")).toBe("text/javascript; charset=utf-8");
      expect(script.text).toStartWith("globalThis.panelTexts={");
    }
    expect(await of(ACME, { "accept-language": "de" })).toMatchObject({ language: "ar", direction: "rtl" });
  });

  test("is served to every client whose Accept header does not prefer JSON; paths of the API return the error envelope", async () => {
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
      for (const path of ["/v1", "/v1/nothing", "/api", "/api/nothing", "/api/panel/nothing"])
        expectRefusal(await shop.call(path, { host: PANEL, headers: { accept } }), "not_found");
      expectRefusal(await shop.call("/v1/models", { host: ACME, headers: { accept } }), "invalid_api_key");
    }
  });

  test("404 in the envelope for clients that prefer JSON or accept no page, for paths of the API, and for other methods", async () => {
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

  test("is on no host of the API and on no unknown host", async () => {
    expectRefusal(await page("/", "api.tollgate.test"), "not_found");
    expectRefusal(await page("/assets/none.js", "api.tollgate.test"), "host_not_allowed");
    for (const path of ["/", "/brand.css", "/assets/none.js"])
      expectRefusal(await page(path, "elsewhere.test"), "host_not_allowed");
  });

  test("its CSP allows only own scripts and styles, with a new nonce each time, and no frames", async () => {
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

  test("over TLS, browsers are told to come by TLS only, on every host of the panel", async () => {
    expect((await page("/")).headers.get("strict-transport-security")).toBeNull();
    const { origin, kill } = await shop.start({ PANEL_URL: `https://${PANEL}` });
    try {
      for (const [path, host] of [
        ["/", PANEL],
        ["/sign-in", ACME],
        [REFERENCE, PANEL],
        ["/api/panel/brand/public", ACME],
      ] as const)
        expect((await page(path, host, { origin })).headers.get("strict-transport-security")).toBe("max-age=2592000");
    } finally {
      await kill();
    }
  });
});

describe("brands and files", () => {
  test("the operator's brand on the panel's host, the reseller's on its domain: title, colours and icon", async () => {
    const own = await page("/sign-in");
    expect(own.text).toContain(`<title>${OPERATOR_TITLE}</title>`);
    expect(own.text).not.toContain("brand.css");

    const acme = await page("/sign-in", ACME);
    expect(acme.text).toContain(`<title>${ACME_TITLE}</title>`);
    expect(acme.text).toContain('href="/brand.css?v=v1"');
    expect(acme.text).toContain('href="/brand/icon?v=v1"');
    expect((await page("/brand.css?v=v1", ACME)).text).toBe(":root{--accent:red}");
    expect((await page("/brand/icon?v=v1", ACME)).text).toBe("icon");
    expectRefusal(await page("/brand/logo-light", ACME), "not_found");

    const plain = await page("/sign-in", PLAIN);
    expect(plain.text).toContain("<title>Plain Reseller</title>");
    expect(plain.text).not.toContain("brand.css");
  });

  test("no file that a reseller's customers load names the operator", async () => {
    for (const host of [ACME, PLAIN]) {
      const { text, headers } = await page("/sign-in", host);
      const files = [...text.matchAll(/(?:src|href)="(\/[^"]+)"/g)].map(([, path]) => path ?? "");
      const loaded = [text, JSON.stringify([...headers]), (await page("/api/panel/brand/public", host)).text];
      // The texts of all pages speak of "the operator"; none has its name.
      for (const path of files)
        loaded.push(
          (await page(path, host)).text.replaceAll(path.includes("/texts-") ? /\boperators?\b(?! <)/gi : "", ""),
        );
      for (const one of loaded) expect(one.toLowerCase()).not.toMatch(/tollgate(?!\.test)|operator/);
    }
  });

  test("scripts and styles are sent gzipped to clients that accept it, fonts as they are", async () => {
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

  test("files with a hash or version in their URL are immutable, and 304 when asked for again", async () => {
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

describe("the API reference", () => {
  const get = (path: string, host = PANEL, origin = shop.origin): Promise<Answer> => shop.call(path, { host, origin });

  test("needs no script and loads nothing from other hosts, by its CSP and by its content", async () => {
    const { status, headers, text } = await get(REFERENCE);
    expect({ status, type: headers.get("content-type") }).toEqual({ status: 200, type: "text/html; charset=utf-8" });
    const policy = headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self';");
    expect(policy).toContain("style-src 'self';");
    expect(policy).not.toMatch(/unsafe|nonce|\*|https?:/);
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(text).not.toMatch(/<style|\son\w+=|style=/);
    // At most the panel's script that sets the theme.
    for (const [script = ""] of text.matchAll(/<script[^>]*>/g))
      expect(script).toMatch(/^<script src="\/assets\/theme-\w+\.js">$/);
    for (const [, address = ""] of text.matchAll(/\s(?:href|src)="([^"]*)"/g))
      expect(address).toMatch(/^(?:\/(?!\/)|#|data:,$)/);
  });

  test("has every endpoint, shape and field of the contract; its links resolve and its ids are unique", async () => {
    const { text } = await get(REFERENCE);
    const words = textOf(text);
    for (const name of Object.keys(ENDPOINTS)) {
      const [method = "", path = ""] = name.split(" ");
      expect(words).toMatch(new RegExp(`${method}\\s+${path.replace(/[{}]/g, "\\$&")}`));
    }
    for (const [shape, fields] of Object.entries(SHAPES)) {
      const section = text.split(`<h3 id="${shape}">`)[1]?.split("</section>")[0] ?? "";
      for (const field of Object.keys(fields).filter((one) => one !== "..."))
        expect(section, `${shape}.${field}`).toContain(`<code>${field}</code>`);
    }
    const ids = [...text.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const [, id] of text.matchAll(/href="#([^"]+)"/g)) expect(ids).toContain(id);
    expect(text).not.toMatch(/%[A-Z]+%|undefined|\[object/);
  });

  test("its example calls work", async () => {
    const { text } = await get(REFERENCE);
    const examples = [...text.matchAll(/<pre>(curl [^<]*)<\/pre>/g)].map(([, example = ""]) => textOf(example));
    expect(examples).toHaveLength(Object.keys(ENDPOINTS).filter((name) => !name.includes("/api/panel/")).length);
    // The URL of an image needs no key, and its token is not one that can be made up.
    const isImage = (example: string) => example.includes("/v1/images/files/");
    expect(examples.filter(isImage).map((example) => example.includes("Authorization"))).toEqual([false]);
    // Ids of responses and requests are the reader's own.
    const hasOwnId = (example: string) => /<(?!model>)/.test(example);
    expect(examples.filter(hasOwnId)).toHaveLength(5);
    expect(examples.filter((example) => example.includes("-X DELETE"))).toHaveLength(1);
    for (const example of examples.filter((one) => !hasOwnId(one))) {
      const [, url = ""] = /^curl "http:\/\/api\.tollgate\.test([^"]+)"/.exec(example) ?? [];
      const [, body] = /-d '(.*)'$/s.exec(example) ?? [];
      expect(example).toContain('-H "Authorization: Bearer $API_KEY"');
      const answer = await shop.call(url.replace("<model>", "chat-a"), {
        host: API,
        secret,
        ...(body !== undefined && { body }),
      });
      expect({ example, status: answer.status }).toEqual({ example, status: 200 });
    }
  });

  test("its style sheet is an own file with an immutable URL", async () => {
    const { text } = await get(REFERENCE);
    const [, address = ""] = /href="(\/docs\/api\.css\?v=[^"]+)"/.exec(text) ?? [];
    const style = await get(address);
    expect(style.headers.get("content-type")).toBe("text/css; charset=utf-8");
    expect(style.headers.get("cache-control")).toContain("immutable");
    expect(style.text).not.toMatch(/@import|url\(/);
    const again = await shop.call(address, {
      host: PANEL,
      headers: { "if-none-match": style.headers.get("etag") ?? "" },
    });
    expect(again.status).toBe(304);
  });

  test("page and document are rendered once for each host, version of its brand and language", () => {
    const texts: string[] = [];
    const text = rendered(({ place, brand, language }) => {
      texts.push(`${place.panelUrl} ${brand.name} ${language}`);
      return place.title;
    });
    const view = (panelUrl: string, name: string, version = "v1", language: LanguageTag = "en") => ({
      language,
      place: { title: name, panelUrl, apiUrls: [], cookie: "", csrfHeader: "" },
      models: { text: "t", image: "i", embedding: "e", rerank: "r" },
      brand: {
        ...{ name, version, support: null, language: null, css: "", logoType: "" },
        logoLight: null,
        logoDark: null,
        icon: null,
      },
    });
    const first = text(view("https://a.test", "A"));
    for (let i = 0; i < 100; i++) expect(text(view("https://a.test", "A"))).toBe(first);
    text(view("https://b.test", "A"));
    text(view("https://a.test", "A", "v2"));
    for (let i = 0; i < 2; i++) text(view("https://a.test", "A", "v1", "de"));
    expect(texts).toEqual(["https://a.test A en", "https://b.test A en", "https://a.test A en", "https://a.test A de"]);
    expect(gunzipSync(first.gzipped).toString()).toBe("A");
  });

  test("page and document have an ETag, and 304 answers who has them already; a new name of the brand has a new one", async () => {
    for (const path of [REFERENCE, OPENAPI]) {
      const first = await get(path, PLAIN);
      expect(first.headers.get("cache-control")).toBe("no-cache");
      expect(first.headers.get("vary")).toBe(
        path === REFERENCE ? "accept-encoding, accept-language, cookie" : "accept-encoding",
      );
      const etag = first.headers.get("etag") ?? "";
      const again = await shop.call(path, { host: PLAIN, headers: { "if-none-match": etag } });
      expect([again.status, again.text]).toEqual([304, ""]);
      expect((await get(path, ACME)).headers.get("etag")).not.toBe(etag);
    }
  });

  test("the page is in the language of its reader, its content and the document in English", async () => {
    const of = async (path: string, host: string, headers: Record<string, string>) => {
      const { text, headers: answered } = await page(path, host, { headers });
      const [, language = "", , direction = ""] = /<html lang="([^"]*)"( dir="([^"]*)")?>/.exec(text) ?? [];
      return { language, direction, text, vary: answered.get("vary"), etag: answered.get("etag") };
    };
    for (const path of [REFERENCE, "/docs/management"]) {
      const english = await of(path, PANEL, {});
      expect(english).toMatchObject({
        language: "en",
        direction: "",
        vary: "accept-encoding, accept-language, cookie",
      });
      expect(english.text).not.toContain(' lang="en" dir');
      for (const [host, headers, language, direction, errors] of [
        [PANEL, { "accept-language": "de-CH,de;q=0.9" }, "de", "ltr", "Fehler"],
        [PANEL, { "accept-language": "de", cookie: "panel_language=es" }, "es", "ltr", "Errores"],
        [PANEL, { "accept-language": "zh" }, "zh", "ltr", "错误"],
        [ACME, { "accept-language": "de" }, "ar", "rtl", "الأخطاء"],
      ] as const) {
        const { text, etag, ...rest } = await of(path, host, headers);
        expect(rest).toEqual({ language, direction, vary: "accept-encoding, accept-language, cookie" });
        expect(text).toContain(`<h3>${errors}</h3>`);
        expect(text).toMatch(/<pre dir="ltr" lang="en">curl /);
        expect(text).not.toMatch(/%[A-Z]+%|undefined|\[object|[٠-٩]/);
        expect(etag).not.toBe(english.etag);
        const again = await page(path, host, { headers: { ...headers, "if-none-match": etag ?? "" } });
        expect(again.status).toBe(304);
      }
    }
    const [english, german] = [
      await get(OPENAPI),
      await page(OPENAPI, PANEL, { headers: { "accept-language": "de" } }),
    ];
    expect(german.text).toBe(english.text);
  });

  test("page and document are limited by address", async () => {
    const few = await shop.start({ RATE_PER_MINUTE: "5", TRUSTED_PROXIES: "127.0.0.1" });
    try {
      const ask = (path: string, address: string) =>
        shop.call(path, { host: PANEL, origin: few.origin, headers: { "x-forwarded-for": address } });
      const statuses: number[] = [];
      for (let i = 0; i < 4; i++)
        for (const path of [REFERENCE, OPENAPI]) statuses.push((await ask(path, "192.0.2.1")).status);
      expect(statuses).toEqual([200, 200, 200, 200, 200, 429, 429, 429]);
      expectRefusal(await ask(OPENAPI, "192.0.2.1"), "too_many_requests");
      expect((await ask(OPENAPI, "192.0.2.2")).status).toBe(200);
    } finally {
      await few.kill();
    }
  });

  test("is also served if the panel is not built", async () => {
    /** Serves the API only: its panel was not built. */
    const bare: ReplicaProcess = await shop.start({ PANEL_DIR: "/nowhere" });
    const { status, text } = await get(REFERENCE, PANEL, bare.origin).finally(() => bare.kill());
    expect(status).toBe(200);
    expect(text).not.toContain("/assets/");
    expect(text).toContain("/docs/api.css");
  });

  test("on the panel's host it has the operator's name, as text, and URLs", async () => {
    const { text } = await get(REFERENCE);
    expect(text).toContain(`<title>${OPERATOR_TITLE} API</title>`);
    expect(text).not.toContain("<b>");
    expect(text).toContain("<code>http://api.tollgate.test/v1</code>");
    const { json } = await get(OPENAPI);
    expect(json.info.title).toBe('Operator <b>"Ltd"</b> API');
    expect(json.servers).toEqual([{ url: "http://api.tollgate.test/v1" }, { url: "http://tollgate.test/v1" }]);
    expect(json.paths["/api/panel/ai/chat"].servers).toEqual([{ url: "http://panel.tollgate.test" }]);
  });

  test("on a reseller's domain it has the reseller's name and URLs, and nothing of the operator", async () => {
    const reference = await shop.call(REFERENCE, { host: ACME, headers: { cookie: "panel_language=en" } });
    expect(reference.text).toContain(`<title>${ACME_TITLE} API</title>`);
    expect(reference.text).toContain("<code>http://ai.acme.test/v1</code>");
    expect(reference.text).toContain('href="/brand.css?v=v1"');
    const document = await get(OPENAPI, ACME);
    expect(document.json.servers).toEqual([{ url: "http://ai.acme.test/v1" }]);
    expect(document.json.paths["/api/panel/ai/chat"].servers).toEqual([{ url: "http://ai.acme.test" }]);
    for (const { text } of [reference, document]) expect(text).not.toMatch(/operator|tollgate\.test/i);
  });

  test("403 host_not_allowed on a host of the API and on an unknown one", async () => {
    for (const host of [API, "elsewhere.test"]) {
      for (const path of [REFERENCE, "/docs/api.css", OPENAPI])
        expectRefusal(await get(path, host), "host_not_allowed");
    }
  });

  test("404 below /v1, where every path is the contract's", async () => {
    expectRefusal(await shop.call("/v1/openapi.json", { secret, host: API }), "not_found");
  });
});
