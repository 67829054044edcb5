import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { until } from "../platform/own_redis.ts";
import { closeBalanced, withoutEffect } from "./checks.ts";
import { chatBody, openShop, type Shop } from "./shop.ts";

/** Requests as HTTP allows them and no SDK of ours sends them, on bare sockets. Source: API-9, ERR-7. */

const JSON_TYPE = "Content-Type: application/json";

let shop: Shop;
let secret: string;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  ({ secret } = await shop.customer());
});
afterAll(() => closeBalanced(shop));

/** One connection: what was received, and whether the server has closed it. Its own side stays open until `leave`. */
function open() {
  let got = "";
  let ended = false;
  const socket: Socket = connect({ port: shop.replicas[0]?.port ?? 0, host: "127.0.0.1", allowHalfOpen: true });
  socket.on("data", (bytes) => {
    got += bytes;
  });
  socket.on("error", () => {}); // "close" follows.
  for (const event of ["end", "close"])
    socket.on(event, () => {
      ended = true;
    });
  return {
    send: (text: string) => socket.write(text),
    endSending: (text: string) => socket.end(text),
    got: () => got,
    ended: () => ended,
    leave: () => socket.destroy(),
    /** The final status, once its head has arrived. */
    status: async () => {
      const final = () => /HTTP\/1\.1 ([2-5]\d\d)[^\r\n]*\r\n(?:.+\r\n)*\r\n/.exec(got)?.[1];
      await until(() => final() !== undefined || ended);
      return Number(final());
    },
  };
}

type Head = { version?: string; key?: string; headers?: readonly string[] };
const head = (body: string, { version = "1.1", key = secret, headers = [JSON_TYPE] }: Head = {}) =>
  [
    `POST /v1/chat/completions HTTP/${version}`,
    "Host: api.tollgate.test",
    `Authorization: Bearer ${key}`,
    ...headers,
    `Content-Length: ${body.length}`,
    "\r\n",
  ].join("\r\n");

describe("Content-Type twice", () => {
  const body = JSON.stringify(chatBody());
  const statusOf = async (headers: readonly string[]) => {
    const client = open();
    client.send(head(body, { headers }) + body);
    const status = await client.status();
    client.leave();
    return status;
  };

  for (const headers of [
    [JSON_TYPE, JSON_TYPE],
    [JSON_TYPE, "content-type: Application/JSON", JSON_TYPE],
    [`${JSON_TYPE}; charset=utf-8`, `${JSON_TYPE}; charset=utf-8`],
    [`${JSON_TYPE}, application/json`],
    [`${JSON_TYPE}; x="a,b"`],
    [JSON_TYPE, "Content-Encoding: identity", "Content-Encoding: identity"],
  ])
    test(`equal values are served: ${headers.join(" · ")}`, async () => {
      expect(await statusOf(headers)).toBe(200);
    });

  for (const headers of [
    [JSON_TYPE, "Content-Type: text/plain"],
    ["Content-Type: text/plain", JSON_TYPE],
    [`${JSON_TYPE}; charset=utf-8`, "Content-Type: text/plain"],
    [JSON_TYPE, `${JSON_TYPE}; charset=utf-8`],
    ["Content-Type: text/plain", "Content-Type: text/plain"],
    [JSON_TYPE, "Content-Encoding: identity", "Content-Encoding: gzip"],
  ])
    test(`different values, and wrong ones, are refused with 415: ${headers.join(" · ")}`, async () => {
      await withoutEffect(shop, async () => expect(await statusOf(headers)).toBe(415));
    });
});

describe("Expect: 100-continue, with the body held back", () => {
  const expecting = [JSON_TYPE, "Expect: 100-continue"];

  test("the client is told to go on, or gets its answer, before it sends the body; then it is served", async () => {
    const body = JSON.stringify(chatBody());
    const client = open();
    client.send(head(body, { headers: expecting }));
    await until(() => client.got().includes("\r\n\r\n"));
    expect(client.got()).toMatch(/^HTTP\/1\.1 100 /);
    client.send(body);
    expect(await client.status()).toBe(200);
    client.leave();
  });

  test("a refused key gets its final status without the body", async () => {
    const body = JSON.stringify(chatBody());
    await withoutEffect(shop, async () => {
      const client = open();
      client.send(head(body, { headers: expecting, key: "sk-nobody" }));
      expect(await client.status()).toBe(401);
      client.leave();
    });
  });
});

describe("HTTP/1.0, and a client that has closed its sending side", () => {
  const whole = JSON.stringify(chatBody());
  const streamed = JSON.stringify(chatBody({ stream: true }));

  test("HTTP/1.0: a whole answer has its length or ends with the connection", async () => {
    const client = open();
    client.send(head(whole, { version: "1.0" }) + whole);
    await until(() => client.got().includes('"finish_reason"') && client.got().endsWith("}"));
    expect(client.got()).toMatch(/^HTTP\/1\.[01] 200 /);
    expect(client.got()).not.toMatch(/transfer-encoding/i);
    client.leave();
  });

  test("HTTP/1.0: a stream arrives to its end, without chunked coding, and the connection closes", async () => {
    const client = open();
    client.send(head(streamed, { version: "1.0" }) + streamed);
    await until(() => client.got().includes("data: [DONE]"));
    await until(client.ended);
    expect(client.got()).not.toMatch(/transfer-encoding/i);
    client.leave();
  });

  // Both runtimes close such a connection at once, as the Go and nginx of a proxy do: a half-closed socket looks like a client that left.
  for (const [what, body] of [
    ["a whole answer", whole],
    ["a stream", streamed],
  ] as const)
    test(`half-closed after the request: the connection is closed, and ${what} is settled once, as one whose client left`, async () => {
      const person = await shop.customer();
      const calls = shop.provider.callCount();
      // Longer than the test takes: the server's end comes first.
      shop.provider.next({ tokens: 100, chunkDelayMs: 50, delayMs: 500 });
      const client = open();
      client.send(head(body, { key: person.secret }) + body);
      await until(() => shop.provider.callCount() === calls + 1);
      client.endSending("");
      await until(client.ended);
      await until(async () => (await shop.counters(person.accountId)).usage === 1);
      const rows = await shop.world.sql`select reason from receipts where account_id = ${person.accountId}`;
      expect(rows.map((row) => row.reason)).toEqual(["client_left"]);
      client.leave();
    });
});
