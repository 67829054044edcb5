import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { behave, booksAtRest } from "../faults/fault_shop.ts";
import { chatBody, eventsOf, openShop, type Shop } from "../gateway/shop.ts";
import type { ReplicaProcess } from "../replica.ts";
import { type ProxyKind, startShortProxy } from "./short_proxy.ts";

/**
 * Behind proxies that end a silent connection: a client that waits longer than that for a provider gets its answer.
 * Source: STR-10, STR-11.
 */
/** As 15 to 60 seconds in production. A replica on a busy machine may be seconds late. */
const HEADERS_MS = "1000";
const PROXY_SECONDS = 6;
/** Of the provider, longer than the proxy waits. */
const SILENT_MS = 9_000;

let shop: Shop;
/** A replica that sends nothing before a provider has begun. */
let silent: ReplicaProcess;

beforeAll(async () => {
  shop = await openShop({ env: { STREAM_HEADERS_MS: HEADERS_MS, JSON_HEADERS_MS: HEADERS_MS } });
  silent = await shop.start({ STREAM_HEADERS_MS: "0", JSON_HEADERS_MS: "0" });
});
afterAll(async () => {
  try {
    await booksAtRest(shop);
  } finally {
    await silent?.kill();
    await shop?.close();
  }
});

const chat = (origin: string, secret: string, isStream: boolean) =>
  shop.call("/v1/chat/completions", {
    ...{ secret, origin },
    body: chatBody({ stream: isStream, ...behave(shop, { delayMs: SILENT_MS }) }),
  });

describe.each<ProxyKind>(["caddy", "nginx"])("behind %s", (kind) => {
  test("a silent provider's stream and JSON answer arrive whole, and do not without the wait", async () => {
    const waiting = await startShortProxy(kind, (shop.replicas[0] as ReplicaProcess).port, PROXY_SECONDS);
    const cut = await startShortProxy(kind, silent.port, PROXY_SECONDS);
    try {
      const { secret } = await shop.customer();
      const [stream, json, ...without] = await Promise.all([
        chat(waiting.origin, secret, true),
        chat(waiting.origin, secret, false),
        chat(cut.origin, secret, true),
        chat(cut.origin, secret, false),
      ]);
      expect(stream.status).toBe(200);
      expect(stream.text.split(": keep-alive\n\n").length).toBeGreaterThan(2);
      expect(eventsOf(stream.text).at(-1)).toBe("[DONE]");
      expect(json.status).toBe(200);
      expect(json.json.object).toBe("chat.completion");
      for (const { status } of without) expect([502, 504]).toContain(status);
    } finally {
      await waiting.stop();
      await cut.stop();
    }
  });
});
