import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { ENDPOINTS, SHAPES } from "../gateway/contract_tables.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import type { ReplicaProcess } from "../replica.ts";
import { PANEL } from "./panel_client.ts";

/** The page about the API and the document behind it: who gets them, in whose name, and nothing foreign in them. */

const ACME = "ai.acme.test";
const API = "api.tollgate.test";
const PAGE = "/docs/api";
const DOCUMENT = "/docs/openapi.json";

let shop: Shop;
/** Serves the API alone: its panel was not built. */
let bare: ReplicaProcess;
let secret: string;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { BRAND_NAME: 'Operator <b>"Ltd"</b>' } });
  bare = await shop.start({ PANEL_DIR: "/nowhere" });
  const acme = await shop.world.addReseller();
  const { sql } = shop.world;
  await sql`insert into hosts (host, reseller_id, status) values (${ACME}, ${acme.accountId}, 'active')`;
  await sql`
    insert into brands (reseller_id, name, css, icon, version) values (${acme.accountId}, 'Acme', ':root{--accent:red}', ${Buffer.from("icon")}, 'v1')`;
  ({ secret } = await shop.customer());
}, 60_000);
afterAll(async () => {
  await bare.kill();
  await shop.close();
});

const get = (path: string, host = PANEL, origin = shop.origin): Promise<Answer> => shop.call(path, { host, origin });
const textOf = (html: string) =>
  html.replace(/<[^>]+>/g, " ").replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code));

describe("the page", () => {
  test("needs no script, and takes nothing from elsewhere: by its policy, and by what stands in it", async () => {
    const { status, headers, text } = await get(PAGE);
    expect({ status, type: headers.get("content-type") }).toEqual({ status: 200, type: "text/html; charset=utf-8" });
    const policy = headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self';");
    expect(policy).toContain("style-src 'self';");
    expect(policy).not.toMatch(/unsafe|nonce|\*|https?:/);
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(text).not.toMatch(/<style|\son\w+=|style=/);
    // At most the panel's own, which sets the theme.
    for (const [script = ""] of text.matchAll(/<script[^>]*>/g))
      expect(script).toMatch(/^<script src="\/assets\/theme-\w+\.js">$/);
    for (const [, address = ""] of text.matchAll(/\s(?:href|src)="([^"]*)"/g))
      expect(address).toMatch(/^(?:\/(?!\/)|#|data:,$)/);
  });

  test("has every endpoint, shape and field of the contract; links lead somewhere, ids are there once", async () => {
    const { text } = await get(PAGE);
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

  test("the calls it shows for pasting are served", async () => {
    const { text } = await get(PAGE);
    const examples = [...text.matchAll(/<pre>(curl [^<]*)<\/pre>/g)].map(([, example = ""]) => textOf(example));
    expect(examples.length).toBe(6);
    for (const example of examples) {
      const [, url = ""] = /^curl "http:\/\/api\.tollgate\.test([^"]+)"/.exec(example) ?? [];
      const [, body] = /-d '(.*)'$/s.exec(example) ?? [];
      expect(example).toContain('-H "Authorization: Bearer $API_KEY"');
      const answer = await shop.call(url.replace("<model>", "chat-a"), {
        host: API,
        secret,
        ...(body !== undefined && { body: body.replace("gpt-mini", "chat-a").replace("painter", "image-a") }),
      });
      expect({ example, status: answer.status }).toEqual({ example, status: 200 });
    }
  });

  test("its style is a file of ours, for ever at its address", async () => {
    const { text } = await get(PAGE);
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

  test("is there without the built panel too", async () => {
    const { status, text } = await get(PAGE, PANEL, bare.origin);
    expect(status).toBe(200);
    expect(text).not.toContain("/assets/");
    expect(text).toContain("/docs/api.css");
  });
});

describe("in whose name", () => {
  test("the service's own on its host: its name as text, its addresses", async () => {
    const { text } = await get(PAGE);
    expect(text).toContain("<title>Operator &#60;b&#62;&#34;Ltd&#34;&#60;/b&#62; API</title>");
    expect(text).not.toContain("<b>");
    expect(text).toContain("<code>http://api.tollgate.test/v1</code>");
    const { json } = await get(DOCUMENT);
    expect(json.info.title).toBe('Operator <b>"Ltd"</b> API');
    expect(json.servers).toEqual([{ url: "http://api.tollgate.test/v1" }, { url: "http://tollgate.test/v1" }]);
    expect(json.paths["/api/panel/ai/chat"].servers).toEqual([{ url: "http://panel.tollgate.test" }]);
  });

  test("the reseller's on the reseller's: nothing of the operator in it", async () => {
    const page = await get(PAGE, ACME);
    expect(page.text).toContain("<title>Acme API</title>");
    expect(page.text).toContain("<code>http://ai.acme.test/v1</code>");
    expect(page.text).toContain('href="/brand.css?v=v1"');
    const document = await get(DOCUMENT, ACME);
    expect(document.json.servers).toEqual([{ url: "http://ai.acme.test/v1" }]);
    expect(document.json.paths["/api/panel/ai/chat"].servers).toEqual([{ url: "http://ai.acme.test" }]);
    for (const { text } of [page, document]) expect(text).not.toMatch(/operator|tollgate\.test/i);
  });

  test("a host of the API alone has none of it, and one that is not served has nothing", async () => {
    for (const host of [API, "elsewhere.test"]) {
      for (const path of [PAGE, "/docs/api.css", DOCUMENT]) expectRefusal(await get(path, host), "host_not_allowed");
    }
  });

  test("not under /v1: there every path is the contract's", async () => {
    expectRefusal(await shop.call("/v1/openapi.json", { secret, host: API }), "not_found");
  });
});
