import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { badInputPage } from "../../scripts/bad_input_table.ts";
import {
  BAD_CHAT,
  BAD_EMBEDDING,
  BAD_ENCODINGS,
  BAD_IMAGE,
  BAD_METHODS,
  BAD_MODEL_IDS,
  BAD_QUERIES,
  BAD_TYPES,
  type BodyCase,
  BY_THE_RUNTIME,
  BYTES_MAX,
  GOOD_CHAT,
  GOOD_EMBEDDING,
  GOOD_IMAGE,
  type GoodBody,
  NO_HTTP,
  NO_JSON,
  nested,
  TOO_LARGE,
  TWICE,
  UNKNOWN_PATHS,
} from "../http/body_cases.ts";
import { BAD_RESPONSES, GOOD_RESPONSES } from "../http/responses_cases.ts";
import { until } from "../platform/own_redis.ts";
import { type ReplicaProcess, RUNTIME } from "../replica.ts";
import { closeBalanced, type Expected, expectRefusal, rawCall, withoutEffect } from "./checks.ts";
import { openRawClient } from "./raw_client.ts";
import { type Answer, chatBody, imageBody, openShop, type Shop } from "./shop.ts";

/** Source: API-5, API-6, API-7, API-9, API-13, ERR-6, ERR-7, IMG-3, USE-2. */

const CHAT = "/v1/chat/completions";
const IMAGES = "/v1/images/generations";
const EMBEDDINGS = "/v1/embeddings";
const RESPONSES = "/v1/responses";

let shop: Shop;
/** A replica whose maximum body size is BYTES_MAX. */
let small: ReplicaProcess;
let secret: string;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  small = await shop.start({ BODY_BYTES_MAX: String(BYTES_MAX) });
  ({ secret } = await shop.customer());
});
afterAll(() => closeBalanced(shop, small.kill));

/** Sends a body unchanged, with only these headers. */
function post(
  path: string,
  body: string | Uint8Array,
  headers: Record<string, string> = {},
  port = shop.replicas[0]?.port ?? 0,
): Promise<Answer> {
  const bytes = Buffer.from(body);
  const given = {
    host: "api.tollgate.test",
    authorization: `Bearer ${secret}`,
    "content-length": String(bytes.length),
    ...headers,
  };
  const lines = Object.entries(given).map(([name, value]) => `${name}: ${value}\r\n`);
  return rawCall(port, `POST ${path} HTTP/1.1\r\n${lines.join("")}\r\n`, bytes);
}

const JSON_TYPE = { "content-type": "application/json" };

/** One test for each case: it is refused as described, and nothing is written, charged or sent. */
function refuses(path: string, cases: readonly BodyCase[]): void {
  for (const [what, body, param = null, code = "invalid_request"] of cases) {
    test(`${what}: ${code}${param === null ? "" : `, param ${param}`}`, async () => {
      const sent = typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body);
      await withoutEffect(shop, async () => expectRefusal(await post(path, sent, JSON_TYPE), code, { param }));
    });
  }
}

function accepts(path: string, cases: readonly GoodBody[]): void {
  for (const [what, body] of cases) {
    test(`${what}: accepted`, async () => {
      const calls = shop.provider.callCount();
      const answer = await post(path, typeof body === "string" ? body : JSON.stringify(body), JSON_TYPE);
      expect({ status: answer.status, error: answer.json?.error?.message }).toEqual({ status: 200, error: undefined });
      expect(shop.provider.callCount()).toBe(calls + 1);
    });
  }
}

describe("a body that is not a JSON object", () => {
  refuses(CHAT, NO_JSON);

  test("a body nested within the limit is accepted", async () => {
    expect((await post(CHAT, JSON.stringify(nested(50)), JSON_TYPE)).status).toBe(200);
  });
});

describe("a duplicate field, which providers may read differently", () => {
  refuses(CHAT, TWICE);
});

describe("chat", () => {
  refuses(CHAT, BAD_CHAT);

  accepts(CHAT, GOOD_CHAT);
});

describe("images", () => {
  refuses(IMAGES, BAD_IMAGE);
  accepts(IMAGES, GOOD_IMAGE);
});

describe("embeddings", () => {
  refuses(EMBEDDINGS, BAD_EMBEDDING);
  accepts(EMBEDDINGS, GOOD_EMBEDDING);
});

describe("responses", () => {
  refuses(RESPONSES, BAD_RESPONSES);
  accepts(RESPONSES, GOOD_RESPONSES);
});

describe("size, type and coding of the body", () => {
  const padded = (size: number) => {
    const body = JSON.stringify(chatBody({ pad: "" }));
    return body.replace('"pad":""', `"pad":"${"x".repeat(size - body.length)}"`);
  };
  const chunked = (text: string, path = CHAT) => {
    const chunks = text.match(/[\s\S]{1,3000}/g) ?? [];
    const coded = [...chunks.map((chunk) => `${Buffer.byteLength(chunk).toString(16)}\r\n${chunk}\r\n`), "0\r\n\r\n"];
    const head = `POST ${path} HTTP/1.1\r\nHost: api.tollgate.test\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;
    return rawCall(small.port, head, ...coded);
  };
  const refused = (answer: Promise<Answer>, code: string, expected?: Expected) =>
    withoutEffect(shop, async () => expectRefusal(await answer, code, expected));

  for (const [what, how, bytes] of TOO_LARGE) {
    test(`413 request_too_large: ${what}`, async () => {
      for (const path of [CHAT, IMAGES]) {
        const declared = { ...JSON_TYPE, "content-length": String(bytes) };
        const answer = how === "declared" ? post(path, "{", declared, small.port) : chunked(padded(bytes), path);
        await refused(answer, "request_too_large");
      }
    });
  }

  test("a body of exactly the maximum size is accepted, with Content-Length and chunked", async () => {
    expect((await post(CHAT, padded(BYTES_MAX), JSON_TYPE, small.port)).status).toBe(200);
    expect((await chunked(padded(BYTES_MAX))).status).toBe(200);
  });

  test("after a refused body the connection serves the next request correctly", async () => {
    for (let i = 0; i < 5; i++) {
      expectRefusal(
        await shop.call(CHAT, { secret, body: padded(BYTES_MAX * 10), origin: small.origin }),
        "request_too_large",
      );
      expect((await shop.chat(secret, {}, { origin: small.origin })).status).toBe(200);
    }
  });

  test("415 for any Content-Type except application/json, and for a missing one", async () => {
    const body = JSON.stringify(chatBody());
    for (const type of BAD_TYPES) {
      const headers: Record<string, string> = type === "" ? {} : { "content-type": type };
      await refused(post(CHAT, body, headers), "unsupported_media_type");
      await refused(post(IMAGES, JSON.stringify(imageBody()), headers), "unsupported_media_type");
    }
    for (const type of ["application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"]) {
      expect((await post(CHAT, body, { "content-type": type })).status).toBe(200);
    }
  });

  test("415 for a body with Content-Encoding, which could be a decompression bomb", async () => {
    const packed = gzipSync(JSON.stringify(chatBody()));
    for (const encoding of BAD_ENCODINGS) {
      await refused(post(CHAT, packed, { ...JSON_TYPE, "content-encoding": encoding }), "unsupported_media_type");
    }
    expect(
      (await post(CHAT, JSON.stringify(chatBody()), { ...JSON_TYPE, "content-encoding": "identity" })).status,
    ).toBe(200);
  });

  test("a connection that does not speak HTTP is closed immediately, without details", async () => {
    const head = `POST ${CHAT} HTTP/1.1\r\nHost: api.tollgate.test\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\n`;
    await withoutEffect(shop, async () => {
      for (const [what, bytes] of NO_HTTP) {
        const answer = await rawCall(shop.replicas[0]?.port ?? 0, bytes.replace("HEAD", head));
        expect([0, 400], what).toContain(answer.status);
        expect(answer.text).not.toMatch(/<|\bat \S+ \(|bun/i);
      }
    });
  });
});

describe("the runtime's own error responses are those in docs/bad-input.md", () => {
  const head = () =>
    `POST ${CHAT} HTTP/1.1\r\nHost: api.tollgate.test\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\n`;
  const whole = (body: string) => `${head()}Content-Length: ${body.length}\r\n\r\n${body}`;
  const filled = (bytes: string) =>
    bytes
      .replaceAll("POST", "\0")
      .replaceAll("HEAD", head())
      .replace("GETX", `${head().replace("POST /v1/chat/completions", "GET /v1/models")}X`)
      .replaceAll("\0", whole(JSON.stringify(chatBody())));
  const answerOf = ({ status, text, json }: Answer) =>
    status === 0
      ? "closed without an answer"
      : `${status}${status === 200 ? "" : json?.request_id ? " with the envelope" : text === "" ? ", no body" : ", text"}`;

  for (const { what, bytes, [RUNTIME]: expected } of BY_THE_RUNTIME) {
    test(`${what}: ${expected.join(", or ")}`, async () => {
      expect(expected).toContain(answerOf(await rawCall(shop.replicas[0]?.port ?? 0, filled(bytes))));
    });
  }

  test("bytes after a request that is being streamed make Bun cut the stream with a bare 400, which counts as leaving; Deno continues", async () => {
    const person = await shop.customer();
    shop.provider.next({ tokens: 6, chunkDelayMs: 60 });
    const client = openRawClient(shop.replicas[0]?.port ?? 0, person.secret);
    await until(() => client.events() >= 2);
    client.socket.write("\r\n");
    await until(() => client.closed() || client.got().includes("[DONE]"));
    expect([client.got().includes("[DONE]"), client.closed()]).toEqual(
      RUNTIME === "bun" ? [false, true] : [true, false],
    );
    client.leave();
    await until(async () => (await shop.counters(person.accountId)).usage === 1);
    const [receipt] = await shop.world.sql`select reason from receipts where account_id = ${person.accountId}`;
    expect(receipt?.reason).toBe(RUNTIME === "bun" ? "client_left" : "complete");
  });
});

describe("paths, ids and queries", () => {
  const get = (path: string, method = "GET") => shop.call(path, { secret, method });

  test("a model id may contain a slash, plain or as %2F; HEAD, // and a trailing slash work", async () => {
    for (const path of [
      "/v1/models/vendor/chat-b",
      "/v1/models/vendor%2Fchat-b",
      "/v1/models/vendor%2fchat-b",
      "/v1//models/vendor/chat-b/",
      "//v1/models/vendor%2Fchat-b/",
    ]) {
      const { status, json } = await get(path);
      expect({ path, status, id: json?.id }).toEqual({ path, status: 200, id: "vendor/chat-b" });
    }
    for (const path of ["/v1/models", "/v1/models/", "/v1/balance", "/v1/usage/", "/v1/models/chat-a"]) {
      const { status, text, headers } = await get(path, "HEAD");
      expect({ path, status, text }).toEqual({ path, status: 200, text: "" });
      expect(headers.get("x-request-id")).toBeTruthy();
    }
    expect((await shop.call("//v1//chat//completions/", { secret, body: chatBody() })).status).toBe(200);
  });

  test("HEAD has the Content-Length of GET, also for errors", async () => {
    const lengthOf = ({ headers }: Answer) => headers.get("content-length");
    for (const path of [
      "/v1/models",
      "/v1/models/chat-a",
      "/v1/balance",
      "/v1/usage",
      "/v1/nothing",
      "/healthz",
      "/readyz",
    ]) {
      const [whole, head] = [await get(path), await get(path, "HEAD")];
      const length = String(Buffer.byteLength(whole.text));
      expect([path, head.status, head.text, lengthOf(head)]).toEqual([path, whole.status, "", length]);
      expect([path, lengthOf(whole)]).toEqual([path, length]);
    }
    const [whole, head] = [await shop.call("/v1/balance"), await shop.call("/v1/balance", { method: "HEAD" })];
    expect([head.status, head.text, lengthOf(head)]).toEqual([401, "", lengthOf(whole)]);
  });

  test("404 model_not_found for invalid ids", async () => {
    for (const id of BAD_MODEL_IDS) {
      const answer = await get(`/v1/models/${id}`);
      expectRefusal(answer, "model_not_found", { param: "model" });
      expect(answer.text).not.toContain("<script>");
    }
  });

  test("404 and 405 have the error envelope, for any path and method", async () => {
    await withoutEffect(shop, async () => {
      // On a path outside the API, a client that does not prefer JSON gets the panel's page.
      const headers = { accept: "application/json" };
      for (const path of UNKNOWN_PATHS) expectRefusal(await shop.call(path, { secret, headers }), "not_found");
      for (const [path, methods] of BAD_METHODS) {
        for (const method of methods) expectRefusal(await get(path, method), "method_not_allowed");
      }
    });
  });

  test("405 for methods that no request object can have, also with two slashes in the path", async () => {
    // Bun closes the connection of a method that it does not know.
    for (const method of RUNTIME === "deno" ? ["TRACE", "TRACK"] : ["TRACE"]) {
      for (const path of ["/v1/models", "//v1/models"]) {
        const head = `${method} ${path} HTTP/1.1\r\nHost: api.tollgate.test\r\nConnection: close\r\n\r\n`;
        expectRefusal(await rawCall(shop.replicas[0]?.port ?? 0, head), "method_not_allowed");
      }
    }
  });

  for (const [query, param] of BAD_QUERIES) {
    test(`/usage?${query.slice(0, 60)}: invalid_request, param ${param}`, async () => {
      expectRefusal(await get(`/v1/usage?${query}`), "invalid_request", { param });
    });
  }

  test("/usage accepts dates, times with a zone, and unknown parameters", async () => {
    for (const query of [
      "start=2026-01-01",
      "start=2024-02-29&end=2030-12-31",
      "start=0001-01-01&end=9999-12-31",
      "start=2026-01-01T00:00Z",
      "end=2026-01-01T00:00:00.123456%2B05:30",
      "limit=1000",
      "limit=1",
      "model=nobody",
      "model=vendor%2Fchat-b",
      "page=7&frobnicate=1",
    ]) {
      const { status, json } = await get(`/v1/usage?${query}`);
      expect({ query, status, object: json?.object }).toEqual({ query, status: 200, object: "list" });
    }
  });
});

test("docs/bad-input.md lists exactly these cases", () => {
  const page = readFileSync(new URL("../../docs/bad-input.md", import.meta.url), "utf8");
  expect(page).toBe(badInputPage());
});
