import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { gzipSync } from "node:zlib";
import type { ReplicaProcess } from "../replica.ts";
import {
  BAD_CHAT,
  BAD_IMAGE,
  type BodyCase,
  GOOD_CHAT,
  GOOD_IMAGE,
  type GoodBody,
  NO_JSON,
  nested,
  TWICE,
} from "./body_cases.ts";
import { type Expected, expectRefusal, rawCall, withoutEffect } from "./checks.ts";
import { type Answer, chatBody, imageBody, openShop, type Shop } from "./shop.ts";

/** Source: contract › Limits, rulings › Errors, Streams (null tolerance), Images (code points), Usage. */

const CHAT = "/v1/chat/completions";
const IMAGES = "/v1/images/generations";
const BYTES_MAX = 20_000;

let shop: Shop;
/** Takes bodies of BYTES_MAX at most. */
let small: ReplicaProcess;
let secret: string;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  small = await shop.start({ BODY_BYTES_MAX: String(BYTES_MAX) });
  ({ secret } = await shop.customer());
}, 60_000);
afterAll(async () => {
  await small.kill();
  await shop.close();
});

/** Sends a body byte for byte, with just these headers. */
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

/** One test a case: refused as the case says, and nothing written, charged or sent. */
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

describe("a body that is no JSON object", () => {
  refuses(CHAT, NO_JSON);

  test("nested within reason: accepted", async () => {
    expect((await post(CHAT, JSON.stringify(nested(50)), JSON_TYPE)).status).toBe(200);
  });
});

describe("a field that stands twice, which providers would read otherwise than we", () => {
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

  test("413 above the limit, by its declared length, before a byte of it is read", async () => {
    await refused(
      post(CHAT, "{", { ...JSON_TYPE, "content-length": String(BYTES_MAX + 1) }, small.port),
      "request_too_large",
    );
    await refused(
      post(IMAGES, "{", { ...JSON_TYPE, "content-length": "99999999999" }, small.port),
      "request_too_large",
    );
    expect((await post(CHAT, padded(BYTES_MAX), JSON_TYPE, small.port)).status).toBe(200);
  });

  test("413 above the limit in chunks, whose length nobody declared", async () => {
    await refused(chunked(padded(BYTES_MAX + 1)), "request_too_large");
    await refused(chunked(padded(BYTES_MAX * 20)), "request_too_large");
    await refused(chunked(padded(BYTES_MAX * 20), IMAGES), "request_too_large");
    expect((await chunked(padded(BYTES_MAX))).status).toBe(200);
  });

  test("the connection of a refused body does not poison the next request", async () => {
    for (let i = 0; i < 5; i++) {
      expectRefusal(
        await shop.call(CHAT, { secret, body: padded(BYTES_MAX * 10), origin: small.origin }),
        "request_too_large",
      );
      expect((await shop.chat(secret, {}, { origin: small.origin })).status).toBe(200);
    }
  });

  test("415 for any type but application/json, and for none", async () => {
    const body = JSON.stringify(chatBody());
    for (const type of [
      "text/plain",
      "text/json",
      "application/jsonx",
      "application/x-www-form-urlencoded",
      "multipart/form-data; boundary=x",
      "application/json-patch+json",
      "json",
      "*/*",
    ]) {
      await refused(post(CHAT, body, { "content-type": type }), "unsupported_media_type");
    }
    await refused(post(CHAT, body), "unsupported_media_type");
    await refused(post(IMAGES, JSON.stringify(imageBody())), "unsupported_media_type");
    for (const type of ["application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"]) {
      expect((await post(CHAT, body, { "content-type": type })).status).toBe(200);
    }
  });

  test("415 for an encoded body, which could be a bomb", async () => {
    const packed = gzipSync(JSON.stringify(chatBody()));
    for (const encoding of ["gzip", "br", "deflate", "zstd", "gzip, identity", "x"]) {
      await refused(post(CHAT, packed, { ...JSON_TYPE, "content-encoding": encoding }), "unsupported_media_type");
    }
    expect(
      (await post(CHAT, JSON.stringify(chatBody()), { ...JSON_TYPE, "content-encoding": "identity" })).status,
    ).toBe(200);
  });

  test("what is no HTTP ends at once, and says nothing", async () => {
    const head = `POST ${CHAT} HTTP/1.1\r\nHost: api.tollgate.test\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\n`;
    const broken = [
      "\0\x01\x02garbage\r\n\r\n",
      "HELLO\r\n\r\n",
      `${head}Content-Length: abc\r\n\r\n{}`,
      `${head}Content-Length: -5\r\n\r\n{}`,
      `${head}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}`,
      `${head}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
      `${head}Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n`,
    ];
    await withoutEffect(shop, async () => {
      for (const bytes of broken) {
        const answer = await rawCall(shop.replicas[0]?.port ?? 0, bytes);
        expect([0, 400]).toContain(answer.status);
        expect(answer.text).not.toMatch(/<|\bat \S+ \(|bun/i);
      }
    });
  });
});

describe("paths, ids and queries", () => {
  const get = (path: string, method = "GET") => shop.call(path, { secret, method });

  test("a model's id may hold a slash, as such or as %2F; HEAD, // and a slash at the end work", async () => {
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

  test("404 model_not_found for ids that are none", async () => {
    for (const id of [
      "vendor",
      "chat-b",
      "vendor%252Fchat-b",
      "%zz",
      "%00",
      "%ff",
      "..%2Fbalance",
      "x".repeat(5_000),
      "<script>",
      "__proto__",
      "constructor",
    ]) {
      const answer = await get(`/v1/models/${id}`);
      expectRefusal(answer, "model_not_found", { param: "model" });
      expect(answer.text).not.toContain("<script>");
    }
  });

  test("404 and 405 come in the envelope for whatever path and method", async () => {
    await withoutEffect(shop, async () => {
      for (const path of [
        "/v1/chat/completions/x",
        "/v1/images",
        "/v1/completions",
        "/v1/usage/1",
        "/favicon.ico",
        "/.env",
        "/v1/%2e%2e%2f",
        `/${"x/".repeat(500)}`,
      ])
        expectRefusal(await get(path), "not_found");
      for (const method of ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"]) {
        expectRefusal(await get(CHAT, method), "method_not_allowed");
        expectRefusal(await get(IMAGES, method), "method_not_allowed");
      }
      for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
        expectRefusal(await get("/v1/usage", method), "method_not_allowed");
    });
  });

  const BAD_QUERIES: [query: string, param: string][] = [
    ["limit=0", "limit"],
    ["limit=1001", "limit"],
    ["limit=-1", "limit"],
    ["limit=1.5", "limit"],
    ["limit=", "limit"],
    ["limit=ten", "limit"],
    ["limit=1e2", "limit"],
    ["limit=99999999999999999999", "limit"],
    ["after=1", "after"],
    ["after=", "after"],
    ["after=';drop table receipts;--", "after"],
    ["after=00000000-0000-4000-8000-000000000000", "after"],
    ["start=yesterday", "start"],
    ["start=2026-13-01", "start"],
    ["start=2026-02-30", "start"],
    ["start=2026-01-01T00:00:00", "start"],
    ["start=2026-01-01T25:00:00Z", "start"],
    ["start=2026-01-01T24:00:01Z", "start"],
    ["start=2026-01-01T00:00:00%2B99:00", "start"],
    ["end=1767225600", "end"],
    ["end=2026-06-31T00:00:00Z", "end"],
    ["end=2026-01-01T00:60:00Z", "end"],
    [`model=${"m".repeat(201)}`, "model"],
    ["model=", "model"],
    ["model=%00", "model"],
  ];
  for (const [query, param] of BAD_QUERIES) {
    test(`/usage?${query.slice(0, 60)}: invalid_request, param ${param}`, async () => {
      expectRefusal(await get(`/v1/usage?${query}`), "invalid_request", { param });
    });
  }

  test("/usage takes dates, moments with a zone, and parameters it does not know", async () => {
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
