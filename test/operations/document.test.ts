import { afterAll, beforeAll, expect, test } from "bun:test";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { SELLER_WEBHOOK_KINDS } from "../../src/messages/kinds.ts";
import { SERVED } from "../../src/operations/management_api.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { operationsOf, problemsOf } from "../http/openapi_rules.ts";
import { PANEL } from "../panel/panel_client.ts";

/** The OpenAPI document of the management API and its page. Source: MGT-7, spec.openapis.org/oas/v3.1.0. */

// biome-ignore lint/suspicious/noExplicitAny: a document of schemas; the tests check its parts.
type Schema = any;

let shop: Shop;
let document: Schema;
let validate: (schema: Schema) => (value: unknown) => string;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  document = (await shop.call("/api/v1/openapi.json", { host: PANEL })).json;
  const ajv = new Ajv({ strict: false, allErrors: true });
  addFormats(ajv);
  ajv.addSchema({ $id: "tollgate:", ...document });
  const absolute = (schema: Schema) => JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"tollgate:#/'));
  validate = (schema) => {
    const check = ajv.compile(absolute(schema));
    return (value) => (check(value) ? "" : ajv.errorsText(check.errors));
  };
});
afterAll(() => shop.close());

test("the document is valid OpenAPI 3.1, and has exactly the operations that are served", () => {
  expect(problemsOf(document)).toEqual([]);
  const published = operationsOf(document).map(({ method, path }) => `${method} ${path}`);
  expect(published.sort()).toEqual(SERVED.map(({ route }): string => route).sort());
});

test("every body has an example that its schema accepts, and refuses a field that it does not know", () => {
  for (const { method, path, operation } of operationsOf(document)) {
    const content = (operation as Schema).requestBody?.content["application/json"];
    if (content === undefined) continue;
    const check = validate(content.schema);
    expect(check(content.example), `${method} ${path}`).toBe("");
    expect(check({ ...content.example, reson: "x" }), `${method} ${path}`).not.toBe("");
  }
});

test("the kinds of a seller's webhooks are beside the operations", () => {
  expect(Object.keys(document.webhooks).sort()).toEqual([...SELLER_WEBHOOK_KINDS].sort());
});

test("the page lists every operation, names only its host's brand, and has no script", async () => {
  const { sql } = shop.world;
  const { accountId } = await shop.world.addReseller("ai.acme.test");
  await sql`update accounts set name = 'Acme' where id = ${accountId}`;
  for (const [host, base] of [
    [PANEL, PANEL],
    ["ai.acme.test", "ai.acme.test"],
  ] as const) {
    const { status, text } = await shop.call("/docs/management", { host, headers: { accept: "text/html" } });
    expect(status).toBe(200);
    for (const { route } of SERVED) expect(text).toContain(route.split(" ")[1] ?? "");
    expect(text).toContain(`${base}`);
    if (host !== PANEL) expect(text).not.toContain("tollgate");
    expect(text.replace(/<script src="\/assets\/theme-[^>]+><\/script>/, "")).not.toContain("<script");
  }
});
