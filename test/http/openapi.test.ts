import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { Elysia } from "elysia";
import fc from "fast-check";
import { unixMsOf } from "../../src/books/usage_records_store.ts";
import type { Deps } from "../../src/deps.ts";
import { METERED_ENDPOINTS } from "../../src/gateway/metered_endpoints.ts";
import { readChat, readEmbedding, readImage } from "../../src/gateway/request_shapes.ts";
import { readResponses } from "../../src/gateway/responses/request.ts";
import { LIST_MODELS } from "../../src/gateway/v1_operations.ts";
import { v1Routes } from "../../src/gateway/v1_routes.ts";
import { type Body, NO_ROOM } from "../../src/http/body.ts";
import { INSTANT } from "../../src/http/checks.ts";
import { described, openapiOf } from "../../src/http/openapi.ts";
import {
  CODES_ELSEWHERE,
  ENDPOINTS,
  type Fields,
  LOOSER,
  MORE,
  PANEL_STATUSES,
  SENT,
  SHAPES,
} from "../gateway/api_tables.ts";
import { closeBalanced, ERRORS } from "../gateway/checks.ts";
import {
  type Answer,
  chatBody,
  completionBody,
  embeddingBody,
  eventsOf,
  imageBody,
  openShop,
  rerankBody,
  responsesBody,
  type Shop,
} from "../gateway/shop.ts";
import { PANEL, type PanelSession, signInTo } from "../panel/panel_client.ts";
import { OTHER_ROUTES } from "../panel/route_table.ts";
import { holds } from "../property.ts";
import type { ReplicaProcess } from "../replica.ts";
import { BAD_CHAT, BAD_EMBEDDING, BAD_IMAGE, GOOD_CHAT, GOOD_EMBEDDING, GOOD_IMAGE } from "./body_cases.ts";
import { type DocumentOperation, operationsOf, problemsOf, resolve } from "./openapi_rules.ts";
import { BAD_RESPONSES, GOOD_RESPONSES } from "./responses_cases.ts";

/**
 * The published OpenAPI document is valid, has exactly the shapes and endpoints of api_tables.ts, and describes what a running
 * replica accepts, answers and refuses. Source: API-2, API-3, API-8, ERR-2, MOD-1, spec.openapis.org/oas/v3.1.0.
 */

// biome-ignore lint/suspicious/noExplicitAny: a document of schemas; the tests check its parts.
type Schema = any;

const ACME = "ai.acme.test";
const BODY_BYTES_MAX = 20_000;
const DOCUMENT = "/docs/openapi.json";

let shop: Shop;
/** One request a minute. */
let narrow: ReplicaProcess;
let document: Schema;
let schemas: Record<string, Schema>;
let operations: Map<string, DocumentOperation>;
let validate: (schema: Schema) => (value: unknown) => string;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { BODY_BYTES_MAX: String(BODY_BYTES_MAX), BRAND_NAME: "Operator Ltd" } });
  narrow = await shop.start({ RATE_PER_MINUTE: "1", PANEL_DIR: "/nowhere" });
  const acme = await shop.world.addReseller(ACME);
  const { sql } = shop.world;
  await sql`update accounts set name = 'Acme' where id = ${acme.accountId}`;
  document = (await shop.call(DOCUMENT, { host: PANEL })).json;
  schemas = document.components.schemas;
  operations = new Map(operationsOf(document).map((one) => [`${one.method} ${one.path}`, one]));
  const ajv = new Ajv({ strict: false, allErrors: true });
  addFormats(ajv);
  ajv.addFormat("double", true);
  ajv.addSchema({ $id: "tollgate:", ...document });
  const absolute = (schema: Schema) => JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"tollgate:#/'));
  validate = (schema) => {
    const check = ajv.compile(absolute(schema));
    return (value) => (check(value) ? "" : ajv.errorsText(check.errors));
  };
});
afterAll(() => closeBalanced(shop, narrow.kill));

const operationOf = (name: string): Schema => {
  const found = operations.get(name);
  if (found === undefined) throw new Error(`the document has no ${name}`);
  return found.operation;
};
const callerOf = ({ security }: Schema) =>
  security === undefined ? "key" : security.length === 0 ? "anyone" : "session";
const endpoints = Object.entries(ENDPOINTS);
const refName = (schema: Schema): string => String(schema.$ref).split("/").at(-1) ?? "";
const json = "application/json";

describe("the document is valid OpenAPI 3.1", () => {
  test("by OpenAPI's rules, including references, ids and parameters", () => {
    expect(problemsOf(document)).toEqual([]);
  });

  test("the rules detect invalid documents", () => {
    const broken: [string, (doc: Schema) => void][] = [
      ["openapi", (doc) => (doc.openapi = "3.0.3")],
      ["title", (doc) => delete doc.info.title],
      ["summery", (doc) => (doc.paths["/models"].get.summery = "x")],
      ["responses", (doc) => delete doc.paths["/models"].get.responses],
      ["description", (doc) => delete doc.paths["/balance"].get.responses["200"].description],
      ["type", (doc) => (doc.components.schemas.Model.properties.id.type = "text")],
      ["minimum", (doc) => (doc.components.schemas.Usage.properties.prompt_tokens.minimum = "0")],
      ["leads nowhere", (doc) => delete doc.components.schemas.ChatMessage],
      ["not used", (doc) => (doc.components.schemas.Stray = { type: "object" })],
      ["not unique", (doc) => (doc.paths["/usage"].get.operationId = "getBalance")],
      ["path's parameters", (doc) => (doc.paths["/models/{model}"].get.parameters[0].name = "id")],
      ["required", (doc) => (doc.paths["/models/{model}"].get.parameters[0].required = false)],
      ["security scheme", (doc) => delete doc.components.securitySchemes.csrf],
      ["tag", (doc) => doc.tags.pop()],
      ["twice", (doc) => doc.paths["/usage"].get.parameters.push(doc.paths["/usage"].get.parameters[0])],
      ["NOT", (doc) => (doc.paths["/usage"].get.parameters[0] = { name: "Authorization", in: "header", schema: {} })],
    ];
    for (const [word, breakIt] of broken) {
      const copy = structuredClone(document);
      breakIt(copy);
      expect(problemsOf(copy).join("\n"), word).toContain(word);
    }
  });

  test("every request schema compiles and accepts its example", () => {
    for (const [name, { operation }] of operations) {
      const content = (operation as Schema).requestBody?.content[json];
      if (content) expect(validate(content.schema)(content.example), name).toBe("");
    }
  });
});

describe("every endpoint has a description", () => {
  test("an endpoint under /v1 without one is an error that names it", () => {
    const bare = new Elysia({ prefix: "/v1" }).get("/nothing", () => "");
    expect(() => openapiOf(bare.routes)).toThrow("GET /v1/nothing has no description");
    expect(() => openapiOf(new Elysia().get("/api/panel/me", () => "").routes)).not.toThrow();
  });

  test("the document has exactly the app's endpoints under /v1", () => {
    const ours = Object.keys(OTHER_ROUTES).filter((route) => route.includes(" /v1/"));
    const published = [...operations.keys()].filter((name) => !name.includes("/api/panel/"));
    expect(published.sort()).toEqual(
      ours
        .map((route) =>
          route
            .replace("/v1", "")
            .replace("*", "{model}")
            .replace(/:(\w+)/, "{$1}"),
        )
        .sort(),
    );
  });

  test("a description costs requests nothing: the compiled handler is the same, and nothing checks the body", () => {
    const handler = ({ request }: { request: Request }) => new Response(request.url);
    const compiled = (hook: object) => String(new Elysia().post("/x", handler, hook).routes[0]?.compile());
    expect(compiled({ parse: "none", detail: described(LIST_MODELS) })).toBe(compiled({ parse: "none" }));
    // The routes are only created, so the deps are not used.
    const routes = v1Routes({} as Deps).routes.filter(({ method }) => method === "POST");
    expect(routes.length).toBe(METERED_ENDPOINTS.length);
    for (const { hooks } of routes)
      expect([hooks.parse, hooks.body, hooks.response, hooks.query]).toEqual([
        [{ fn: "none" }],
        undefined,
        undefined,
        undefined,
      ]);
  });
});

/** A schema as words, in the form of api_tables.ts. */
function wordsOf(schema: Schema): string {
  const bounds = [
    "format",
    "enum",
    "const",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "default",
  ];
  const said = bounds.flatMap((bound) => {
    const value = schema[bound];
    if (value === undefined) return [];
    return [bound, Array.isArray(value) ? value.filter((one) => one !== null).join() : String(value)];
  });
  return [typeOf(schema), ...said, ...(schema.pattern ? ["pattern"] : [])].join(" ");
}

function typeOf(schema: Schema): string {
  if (schema.$ref) return refName(schema);
  if (schema.anyOf) return schema.anyOf.map(typeOf).join("|");
  return [schema.type]
    .flat()
    .map((type: string) => (type === "array" ? `array of ${typeOf(schema.items)}` : type))
    .join("|");
}

/** The fields of a shape; those of unnamed objects in it by their paths. */
function fieldsOf(schema: Schema, path = ""): Record<string, string> {
  if (schema.allOf) {
    const [base, own] = schema.allOf;
    return { "...": refName(base), ...fieldsOf(own) };
  }
  const fields: Record<string, string> = {};
  for (const [name, field] of Object.entries<Schema>(schema.properties ?? {})) {
    fields[path + name] = wordsOf(field) + (schema.required?.includes(name) ? " required" : "");
    for (const one of [field, ...(field.anyOf ?? [])]) Object.assign(fields, fieldsOf(one, `${path}${name}.`));
    if (field.items) Object.assign(fields, fieldsOf(field.items, `${path}${name}[].`));
  }
  return fields;
}

/** The fields of a shape that clients send: optional fields may be null. Source: API-5. */
function sent(shape: string, fields: Fields): Fields {
  if (!SENT.includes(shape)) return fields;
  return Object.fromEntries(
    Object.entries(fields).map(([name, words]) => {
      const [type = "", ...rest] = words.split(" ");
      const isBare = name === "..." || words.endsWith(" required") || type.endsWith("|null") || type === "array";
      return [name, isBare ? words : [`${type}|null`, ...rest].join(" ")];
    }),
  );
}

describe("the document has exactly the specified API", () => {
  test("every shape, field, type, bound, default and requirement", () => {
    const expected = Object.fromEntries(
      [...new Set([...Object.keys(SHAPES), ...Object.keys(MORE)])].map((shape) => [
        shape,
        { ...sent(shape, SHAPES[shape] ?? {}), ...MORE[shape] },
      ]),
    );
    const published = Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, fieldsOf(schema)]));
    expect(published).toEqual(expected);
  });

  test("MORE contradicts no field of SHAPES", () => {
    for (const [shape, fields] of Object.entries(MORE)) {
      for (const [name, words] of Object.entries(fields)) {
        const basic = SHAPES[shape]?.[name];
        if (basic === undefined || LOOSER.includes(`${shape}.${name}`)) continue;
        const [kept, more] = [partsOf(basic), partsOf(words)];
        for (const [bound, value] of kept) {
          const has = more.get(bound) ?? "";
          const isIn =
            bound === "enum" || bound === "type"
              ? value.split(/[,|]/).every((one) => has.split(/[,|]/).includes(one))
              : has === value;
          expect({ shape, name, bound, has, isIn }).toEqual({ shape, name, bound, has, isIn: true });
        }
      }
    }
  });

  test("no shape forbids further fields", () => {
    expect(JSON.stringify(document)).not.toMatch(/"(?:additional|unevaluated)Properties":(?!true)/);
  });

  test("every path and method", () => {
    expect([...operations.keys()].sort()).toEqual(Object.keys(ENDPOINTS).sort());
  });

  for (const [name, endpoint] of endpoints) {
    test(`${name}: caller, body, answer, parameters, statuses`, () => {
      const operation = operationOf(name);
      const ok = operation.responses["200"].content;
      expect({
        caller: callerOf(operation),
        sends: operation.requestBody ? refName(operation.requestBody.content[json].schema) : null,
        answers: json in ok ? refName(ok[json].schema) : Object.keys(ok).join(" "),
        streams: "text/event-stream" in ok,
        types: json in ok ? Object.keys(ok).length : 1,
        parameters: Object.fromEntries(
          (operation.parameters ?? []).map((one: Schema) => [
            `${one.in} ${one.name}`,
            wordsOf(one.schema) + (one.required ? " required" : ""),
          ]),
        ),
        statuses: Object.keys(operation.responses).map(Number).sort(),
      }).toEqual({
        caller: endpoint.caller,
        sends: endpoint.sends,
        answers: endpoint.answers,
        streams: endpoint.streams,
        types: endpoint.streams ? 2 : 1,
        parameters: { ...endpoint.parameters },
        statuses: [...endpoint.statuses, ...endpoint.more].sort(),
      });
    });

    test(`${name}: each error code is at its status, with its type`, () => {
      for (const [status, response] of Object.entries<Schema>(operationOf(name).responses)) {
        if (status === "200") continue;
        const [envelope, { properties }] = response.content[json].schema.allOf;
        expect(refName(envelope)).toBe("ErrorEnvelope");
        const { code, type } = properties.error.properties;
        expect(code.enum.length).toBeGreaterThan(0);
        for (const one of code.enum) {
          const expected = PANEL_STATUSES[name]?.[one] ?? ERRORS[one]?.[0];
          expect({ one, status: expected }).toEqual({ one, status: Number(status) });
          expect(response.description).toContain(`${one}: `);
        }
        expect([...type.enum].sort()).toEqual(
          [...new Set<string>(code.enum.map((one: string) => ERRORS[one]?.[1]))].sort(),
        );
      }
    });

    test(`${name}: every response has X-Request-Id and the headers of its status`, () => {
      for (const [status, { headers, description }] of Object.entries<Schema>(operationOf(name).responses)) {
        const names = Object.keys(headers);
        expect(names).toContain("X-Request-Id");
        expect({ status, has: names.includes("X-Should-Retry") }).toEqual({
          status,
          has: ["402", "409"].includes(status) || description.includes("provider_unavailable: "),
        });
        expect({ status, has: names.includes("Retry-After") }).toEqual({
          status,
          has: ["409", "429", "503"].includes(status),
        });
        expect(names.includes("X-Accel-Buffering")).toBe(status === "200" && endpoint.streams);
      }
    });
  }

  test("every error code is in the document or in CODES_ELSEWHERE", () => {
    const codes = [...operations.keys()].flatMap((name) =>
      Object.values<Schema>(operationOf(name).responses).flatMap(
        (response) => response.content[json]?.schema.allOf?.[1].properties.error.properties.code.enum ?? [],
      ),
    );
    expect([...new Set(codes), ...Object.keys(CODES_ELSEWHERE)].sort()).toEqual(Object.keys(ERRORS).sort());
  });

  test("version 1.0.0; a bearer key for the API, session and CSRF header for the panel", () => {
    expect(document.info.version).toBe("1.0.0");
    expect(document.security).toEqual([{ apiKey: [] }]);
    expect(document.components.securitySchemes).toMatchObject({
      apiKey: { type: "http", scheme: "bearer" },
      session: { type: "apiKey", in: "cookie", name: expect.stringMatching(/_session$/) },
      csrf: { type: "apiKey", in: "header", name: "x-csrf-token" },
    });
    for (const [name, { item }] of operations) {
      const isPanel = name.includes("/api/panel/");
      expect(item.servers).toEqual(isPanel ? [{ url: "http://panel.tollgate.test" }] : undefined);
      const isOpen = ENDPOINTS[name]?.caller === "anyone";
      expect(operationOf(name).security).toEqual(isPanel ? [{ session: [], csrf: [] }] : isOpen ? [] : undefined);
    }
  });
});

function partsOf(words: string): Map<string, string> {
  const tokens = words.replace("array of ", "array-of-").split(" ");
  const parts = new Map([["type", tokens.shift() ?? ""]]);
  while (tokens.length > 0) {
    const bound = tokens.shift() ?? "";
    parts.set(bound, bound === "required" || bound === "pattern" ? bound : (tokens.shift() ?? ""));
  }
  return parts;
}

/** Whether the gateway refuses the body for its shape. */
function isRefused(read: (body: Body) => unknown, value: unknown): boolean {
  try {
    read({ text: "{}", value, spans: new Map(), room: NO_ROOM });
    return false;
  } catch {
    return true;
  }
}

describe("the document and the gateway accept the same bodies", () => {
  const parsed = (body: unknown): unknown => (typeof body === "string" ? JSON.parse(body) : body);
  const kinds = [
    ["ChatCompletionRequest", readChat, BAD_CHAT, GOOD_CHAT],
    ["ImageGenerationRequest", readImage, BAD_IMAGE, GOOD_IMAGE],
    ["EmbeddingRequest", readEmbedding, BAD_EMBEDDING, GOOD_EMBEDDING],
  ] as const;

  for (const [shape, read, bad, good] of kinds) {
    test(`${shape}: all cases of bad and good input`, () => {
      const check = validate({ $ref: `#/components/schemas/${shape}` });
      let refused = 0;
      for (const [what, body] of [...bad, ...good]) {
        const value = parsed(body);
        // JSON.parse keeps the last of duplicate fields, so the schema cannot see them.
        if (what.includes("twice")) continue;
        const isWrong = isRefused(read, value);
        if (isWrong) refused++;
        expect({ what, refused: check(value) !== "" }).toEqual({ what, refused: isWrong });
      }
      expect(refused).toBeGreaterThan(bad.length / 2);
    });
  }

  // Items and tools are published as objects of any form: which form depends on their type, and only the gateway checks it.
  test("CreateResponse: the gateway refuses what the document refuses, and accepts only what the document accepts", () => {
    const check = validate({ $ref: "#/components/schemas/CreateResponse" });
    let refused = 0;
    for (const [what, body] of [...BAD_RESPONSES, ...GOOD_RESPONSES]) {
      const value = parsed(body);
      if (check(value) === "") continue;
      refused++;
      expect({ what, refused: isRefused(readResponses, value) }).toEqual({ what, refused: true });
    }
    expect(refused).toBeGreaterThan(BAD_RESPONSES.length / 3);
  });

  const any = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.constantFrom<unknown>(null, "", "x", "abc", 0, 1, 2, 2.5, -1, 128, 129, 3e9, true, [], {}),
    },
    { weight: 1, arbitrary: fc.string({ unit: "binary" }) },
  );
  const content = fc.constantFrom<unknown>("x", "", null, [], [{ type: "text", text: "x" }], ["x"]);
  const message = fc.oneof(
    { weight: 3, arbitrary: fc.record({ role: fc.constantFrom("user", "assistant"), content: fc.string() }) },
    {
      weight: 1,
      arbitrary: fc.record(
        {
          role: fc.oneof(fc.constantFrom("user", "assistant", "tool", "developer", "king"), any),
          content: fc.oneof(content, any),
        },
        { requiredKeys: [] },
      ),
    },
  );

  /** Mostly valid, so that usually one field is wrong. */
  const mostly = (right: fc.Arbitrary<unknown>) =>
    fc.oneof({ weight: 12, arbitrary: right }, { weight: 1, arbitrary: any });

  test("ChatCompletionRequest: random bodies", () => {
    const check = validate({ $ref: "#/components/schemas/ChatCompletionRequest" });
    const cap = mostly(fc.constantFrom(1, 2_000_000_000, null));
    const body = fc.record(
      {
        model: mostly(fc.constant("chat-a")),
        messages: mostly(fc.array(message, { minLength: 1, maxLength: 2 })),
        stream: mostly(fc.constantFrom(true, false, null)),
        stream_options: mostly(fc.constantFrom({ include_usage: true }, { include_usage: null, more: 1 }, null)),
        temperature: mostly(fc.double({ min: 0, max: 2, noNaN: true })),
        max_tokens: cap,
        max_completion_tokens: cap,
        n: mostly(fc.integer({ min: 1, max: 128 })),
        seed: any,
      },
      { requiredKeys: ["model", "messages"] },
    );
    let taken = 0;
    holds(
      fc.property(body, (value) => {
        const isWrong = isRefused(readChat, value);
        if (!isWrong) taken++;
        expect(check(value) !== "").toBe(isWrong);
      }),
      { numRuns: 1_000 },
    );
    expect(taken).toBeGreaterThan(100);
  });

  test("ImageGenerationRequest: random bodies", () => {
    const check = validate({ $ref: "#/components/schemas/ImageGenerationRequest" });
    const prompt = fc.oneof(
      fc.string({ minLength: 1, maxLength: 6, unit: "binary" }),
      fc.integer({ min: 3_998, max: 4_002 }).map((n) => "👍".repeat(n)),
    );
    const body = fc.record(
      {
        model: mostly(fc.constant("image-a")),
        prompt: mostly(prompt),
        size: mostly(fc.constantFrom("512x512", "1536x1024", null)),
        n: mostly(fc.constantFrom(1, null)),
        response_format: mostly(fc.constantFrom("url", "b64_json", null)),
      },
      { requiredKeys: ["model", "prompt"] },
    );
    let taken = 0;
    holds(
      fc.property(body, (value) => {
        const isWrong = isRefused(readImage, value);
        if (!isWrong) taken++;
        expect(check(value) !== "").toBe(isWrong);
      }),
      { numRuns: 1_000 },
    );
    expect(taken).toBeGreaterThan(100);
  });
});

describe("the document and GET /usage accept the same dates and times", () => {
  const pattern = new RegExp(INSTANT.pattern);
  const isTaken = (text: string) => {
    try {
      unixMsOf(text, "start");
      return true;
    } catch {
      return false;
    }
  };

  test("every calendar day, and days that do not exist", () => {
    for (const year of ["0000", "0004", "1900", "2000", "2023", "2024", "2100", "2400", "9999"]) {
      for (let month = 0; month <= 13; month++) {
        for (let day = 0; day <= 32; day++) {
          const text = `${year}-${String(month).padStart(2, "0")}-${String(day).padStart(2, "0")}`;
          expect({ text, says: pattern.test(text) }).toEqual({ text, says: isTaken(text) });
        }
      }
    }
  });

  test("random valid times, and almost valid ones", () => {
    const right = fc.stringMatching(pattern);
    holds(
      fc.property(right, (text) => isTaken(text)),
      { numRuns: 2_000 },
    );
    for (const text of [
      "0000000000",
      "2026-1-1",
      "2026-01-01T00",
      "2026-01-01T00:00",
      "2026-01-01t00:00:00z",
      " 2026-01-01",
    ])
      expect({ text, says: pattern.test(text), taken: isTaken(text) }).toEqual({ text, says: false, taken: false });
  });
});

describe("a running replica responds as documented", () => {
  /** Statuses that were seen, by endpoint. */
  const seen = new Map<string, Set<number>>();

  /** Checks that the document has the answer's status, headers and shape. */
  function check(name: string, answer: Answer, status: number, code?: string): Answer {
    expect({ name, status: answer.status, code: answer.json?.error?.code }).toEqual({ name, status, code });
    const response = operationOf(name).responses[String(status)];
    expect(response, `${name} ${status}`).toBeDefined();
    const type = answer.headers.get("content-type")?.split(";")[0] ?? "";
    const content = response.content[type];
    expect(content, `${name} ${status} ${type}`).toBeDefined();
    if (type === json) expect(validate(content.schema)(answer.json)).toBe("");
    for (const header of [
      "x-request-id",
      "x-should-retry",
      "retry-after",
      "www-authenticate",
      "idempotent-replayed",
      "x-dropped-params",
    ]) {
      const value = answer.headers.get(header);
      const ref = Object.entries<Schema>(response.headers).find(([known]) => known.toLowerCase() === header)?.[1];
      if (value === null) continue;
      expect(ref, `${name} ${status} ${header}`).toBeDefined();
      const { schema } = resolve(document, ref.$ref) as Schema;
      expect(validate(schema)(schema.type === "integer" ? Number(value) : value)).toBe("");
    }
    expect(answer.headers.get("x-request-id")).not.toBeNull();
    seen.set(name, (seen.get(name) ?? new Set()).add(status));
    return answer;
  }

  const chat = "POST /chat/completions";
  const image = "POST /images/generations";
  const responses = "POST /responses";
  const embeddings = "POST /embeddings";
  const panelChat = "POST /api/panel/ai/chat";
  const panelResponse = "POST /api/panel/ai/responses";
  const panelImage = "POST /api/panel/ai/image";
  const panelEmbedding = "POST /api/panel/ai/embeddings";
  const post = (path: string, secret: string, body: unknown, headers: Record<string, string> = {}) =>
    shop.call(`/v1${path}`, { secret, body, headers });

  test("models, balance and usage", async () => {
    const { secret } = await shop.customer({ dailyLimit: 5, tokenLimit: 100_000 });
    const payer = await shop.payer(5_000_000_000n);
    const poor = await shop.customer(null);
    await shop.chat(secret);
    await shop.chat(payer.secret);
    for (const key of [secret, payer.secret, poor.secret]) {
      for (const path of ["/models", "/balance", "/usage"])
        check(`GET ${path}`, await shop.call(`/v1${path}`, { secret: key }), 200);
    }
    const page = await shop.call("/v1/usage?limit=1&start=2020-01-01", { secret });
    expect(page.json.data.length).toBe(1);
    check("GET /usage", page, 200);
    for (const model of ["chat-a", "vendor%2Fchat-b", "image-a", "embed-a"])
      check("GET /models/{model}", await shop.call(`/v1/models/${model}`, { secret }), 200);
    check("GET /models/{model}", await shop.call("/v1/models/nobody", { secret }), 404, "model_not_found");
    check("GET /usage", await shop.call("/v1/usage?limit=0", { secret }), 400, "invalid_request");
    const record = "GET /usage/{requestId}";
    const path = `/v1/usage/${page.json.data[0].requestId}`;
    check(record, await shop.call(path, { secret }), 200);
    check(record, await shop.call(`${path}0`, { secret }), 404, "not_found");
    check(record, await shop.call(path), 401, "invalid_api_key");
    for (const [name, path] of [
      ["GET /models", "/models"],
      ["GET /models/{model}", "/models/chat-a"],
      ["GET /balance", "/balance"],
      ["GET /usage", "/usage"],
    ] as const) {
      check(name, await shop.call(`/v1${path}`), 401, "invalid_api_key");
      check(name, await shop.call(`/v1${path}`, { secret, host: ACME }), 403, "host_not_allowed");
      const one = await shop.customer();
      await shop.call(`/v1${path}`, { secret: one.secret, origin: narrow.origin });
      check(
        name,
        await shop.call(`/v1${path}`, { secret: one.secret, origin: narrow.origin }),
        429,
        "too_many_requests",
      );
    }
  });

  test("chat: JSON, and every event of a stream", async () => {
    const { secret } = await shop.customer();
    check(chat, await shop.chat(secret), 200);
    check(chat, await shop.chat(secret, { n: 2, temperature: 0.5, max_tokens: 9 }), 200);
    const dropped = check(chat, await shop.chat(secret, { service_tier: "x" }), 200);
    expect(dropped.headers.get("x-dropped-params")).toBe("service_tier");
    const { "x-event": event } = operationOf(chat).responses["200"].content["text/event-stream"];
    const isEvent = validate(event);
    for (const include_usage of [true, false]) {
      const answer = check(chat, await shop.chat(secret, { stream: true, stream_options: { include_usage } }), 200);
      const events = eventsOf(answer.text);
      expect(events.pop()).toBe("[DONE]");
      expect(events.length).toBeGreaterThan(2);
      for (const one of events) expect(isEvent(JSON.parse(one))).toBe("");
      expect(answer.headers.get("x-accel-buffering")).toBe("no");
    }
    shop.provider.next({ errorEventAfterChunks: 2 });
    const broken = eventsOf((await shop.chat(secret, { stream: true })).text);
    expect(broken).not.toContain("[DONE]");
    expect(validate({ $ref: "#/components/schemas/ErrorEnvelope" })(JSON.parse(broken.at(-1) ?? ""))).toBe("");
  });

  test("images: both formats", async () => {
    const { secret } = await shop.customer();
    for (const response_format of ["url", "b64_json"])
      check(image, await post("/images/generations", secret, imageBody({ response_format })), 200);
  });

  test("an image by URL", async () => {
    const { secret } = await shop.customer();
    const { json: made } = await post("/images/generations", secret, imageBody());
    const { pathname } = new URL(made.data[0].url);
    const file = "GET /images/files/{token}";
    check(file, await shop.call(pathname), 200);
    check(file, await shop.call(`${pathname}A`), 404, "not_found");
    check(file, await shop.call(pathname, { host: "nowhere.test" }), 403, "host_not_allowed");
    shop.provider.when(({ path }) => path.startsWith("/images/"), { status: 500 });
    check(file, await shop.call(pathname), 503, "provider_unavailable");
    shop.provider.reset();
  });

  test("stored responses: fetched, listed, deleted", async () => {
    const { secret } = await shop.customer();
    const { id } = (await post("/responses", secret, responsesBody())).json;
    const path = `/v1/responses/${id}`;
    const [get, list, remove] = [
      "GET /responses/{id}",
      "GET /responses/{id}/input_items",
      "DELETE /responses/{id}",
    ] as const;
    check(get, await shop.call(path, { secret }), 200);
    check(list, await shop.call(`${path}/input_items`, { secret }), 200);
    check(list, await shop.call(`${path}/input_items?limit=0`, { secret }), 400, "invalid_request");
    const method = "DELETE";
    check(remove, await shop.call(path, { secret, method }), 200);
    for (const [name, more, options] of [
      [get, "", {}],
      [list, "/input_items", {}],
      [remove, "", { method }],
    ] as const) {
      check(name, await shop.call(path + more, { secret, ...options }), 404, "not_found");
      check(name, await shop.call(path + more, options), 401, "invalid_api_key");
    }
  });

  test("embeddings: both forms", async () => {
    const { secret } = await shop.customer();
    for (const encoding_format of ["float", "base64"])
      check(embeddings, await post("/embeddings", secret, embeddingBody({ encoding_format })), 200);
  });

  for (const [name, path, body] of [
    [chat, "/chat/completions", chatBody],
    [responses, "/responses", responsesBody],
    [image, "/images/generations", imageBody],
    [embeddings, "/embeddings", embeddingBody],
    ["POST /completions", "/completions", completionBody],
    ["POST /rerank", "/rerank", rerankBody],
  ] as const) {
    test(`${name}: refusals`, async () => {
      const { secret } = await shop.customer();
      const send = (key: string, over: Record<string, unknown> = {}, headers: Record<string, string> = {}) =>
        post(path, key, body(over), headers);
      const poor = await shop.customer(null);
      const used = await shop.customer({ dailyLimit: 1 });
      await send(used.secret);
      const scoped = await shop.customer({ modelIds: ["chat-two-routes"] });
      const payer = await shop.payer(1n);
      check(name, await send(secret, { model: 7 }), 400, "invalid_request");
      check(name, await send("sk-none"), 401, "invalid_api_key");
      check(name, await send(poor.secret), 402, "package_required");
      check(name, await send(used.secret), 402, "daily_quota_exceeded");
      check(name, await send(payer.secret), 402, "insufficient_balance");
      check(name, await send(scoped.secret), 403, "model_not_in_package");
      check(name, await shop.call(`/v1${path}`, { secret, body: body(), host: ACME }), 403, "host_not_allowed");
      check(name, await send(secret, { model: "nobody" }), 404, "model_not_found");
      check(name, await send(secret, { filler: "x".repeat(BODY_BYTES_MAX) }), 413, "request_too_large");
      check(name, await send(secret, {}, { "content-type": "text/plain" }), 415, "unsupported_media_type");
      const key = { "idempotency-key": "a-key" };
      check(name, await send(secret, {}, key), 200);
      expect(check(name, await send(secret, {}, key), 200).headers.get("idempotent-replayed")).toBe("true");
      check(name, await send(secret, { user: "another" }, key), 400, "idempotency_mismatch");
      if (name === chat) {
        const streamed = { "idempotency-key": "a-stream" };
        check(name, await send(secret, { stream: true }, streamed), 200);
        check(name, await send(secret, { stream: true }, streamed), 409, "idempotency_conflict");
      }
      shop.provider.next({ status: 500 });
      check(name, await send(secret), 503, "provider_unavailable");
      const one = await shop.customer();
      const at = { secret: one.secret, body: body(), origin: narrow.origin };
      await shop.call(`/v1${path}`, at);
      check(name, await shop.call(`/v1${path}`, at), 429, "too_many_requests");
    });
  }

  for (const [name, path, body] of [
    [panelChat, "/ai/chat", chatBody],
    [panelResponse, "/ai/responses", responsesBody],
    [panelImage, "/ai/image", imageBody],
    [panelEmbedding, "/ai/embeddings", embeddingBody],
  ] as const) {
    test(`${name}: served, and refusals`, async () => {
      const owner = await shop.customer();
      const session = await signInTo(shop, owner);
      const send = (one: PanelSession, over: Record<string, unknown> = {}, headers: Record<string, string> = {}) =>
        one.post(path, body(over), headers);
      check(name, await send(session, { api_key_id: String(owner.keyId) }), 200);
      const isText = name === panelChat || name === panelResponse;
      if (isText) check(name, await send(session, { stream: true }), 200);
      const status = isText ? 422 : 402;
      const poor = await signInTo(shop, await shop.customer(null));
      check(name, await send(poor), status, "package_required");
      const keyless = await shop.world.addCustomer();
      check(name, await send(await signInTo(shop, keyless)), 422, "no_active_key");
      const used = await shop.customer({ dailyLimit: 1 });
      const done = await signInTo(shop, used);
      await send(done);
      check(name, await send(done), 402, "daily_quota_exceeded");
      check(name, await send(session, {}, { cookie: "" }), 401, "session_required");
      check(name, await send(session, {}, { "x-csrf-token": "x" }), 403, "csrf_failed");
      check(name, await send(session, { model: 7 }), 422, "validation_failed");
      check(name, await send(session, { api_key_id: "x".repeat(41) }), 422, "validation_failed");
      const unknown = await send(session, { model: "nobody" });
      if (name !== panelImage) check(name, unknown, 404, "model_not_found");
      else check(name, unknown, 422, "validation_failed");
      check(name, await send(session, { filler: "x".repeat(BODY_BYTES_MAX) }), 413, "request_too_large");
      check(name, await send(session, {}, { "content-type": "text/plain" }), 415, "unsupported_media_type");
      shop.provider.next({ status: 500 });
      check(name, await send(session), 503, "provider_unavailable");
    });
  }

  test("every status of an endpoint's own rules was seen above", () => {
    for (const [name, { statuses }] of endpoints) {
      const missing = statuses.filter((status) => !seen.get(name)?.has(status));
      expect({ name, missing }).toEqual({ name, missing: [] });
    }
  });
});
