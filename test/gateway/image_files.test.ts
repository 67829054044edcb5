import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { type ImageToken, imageUrl, openImageToken } from "../../src/gateway/image_addresses.ts";
import { IMAGE_BYTES_MAX, imageTypeOf } from "../../src/gateway/image_files.ts";
import { createImagePlaces } from "../../src/gateway/image_places.ts";
import { originOf } from "../../src/http/host.ts";
import { encrypt } from "../../src/platform/crypto.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { type ReplicaProcess, TEST_SECRET_KEY } from "../replica.ts";
import { closeBalanced, expectRefusal, withoutEffect } from "./checks.ts";
import { type Answer, imageBody, openShop, type Shop } from "./shop.ts";

/**
 * Images by URL: the URL is on the request's own host, and the image is fetched when it is asked for. Source: IMG-2, IMG-4, IMG-5,
 * IMG-6, IMG-7, IMG-8, IMG-9, IMG-10.
 */
const HOST = "api.tollgate.test";
const ACME = "ai.acme.test";
const MIB = 1024 * 1024;
const KEY = Buffer.from(TEST_SECRET_KEY, "base64");
const PNG = Buffer.concat([Buffer.from("89504e470d0a1a0a0000000d49484452", "hex"), Buffer.alloc(2000, 7)]);

let shop: Shop;
let store: Awaited<ReturnType<typeof startStore>>;
/** A replica that may call the store too. */
let replica: ReplicaProcess;

beforeAll(async () => {
  shop = await openShop();
  store = await startStore();
  replica = await shop.start({
    PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${shop.provider.port},127.0.0.1:${store.port}`,
    ACCOUNT_SHARE: "0.25",
  });
});
afterEach(() => {
  shop.provider.reset();
  store.reset();
});
afterAll(() => closeBalanced(shop, replica.kill, store.close));

/** Where a provider keeps its images: answers as the test says, and counts. */
async function startStore() {
  const ok: RequestListener = (_, response) => response.writeHead(200, { "content-type": "image/png" }).end(PNG);
  let answer = ok;
  const state = { calls: [] as IncomingMessage["headers"][], open: 0, openMax: 0 };
  const server = createServer((request, response) => {
    state.calls.push(request.headers);
    state.openMax = Math.max(state.openMax, ++state.open);
    response.on("close", () => state.open--);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://127.0.0.1:${port}/a/b.png?sig=1`,
    state,
    answers: (next: RequestListener) => {
      answer = next;
    },
    reset() {
      answer = ok;
      Object.assign(state, { calls: [], openMax: 0 });
    },
    close: () =>
      new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections();
      }),
  };
}

/** Orders an image whose provider keeps it at `address`; the URL that is handed out. */
async function order(address: string, { host = HOST, secret }: { host?: string; secret?: string } = {}) {
  const by = secret ?? (await shop.customer()).secret;
  shop.provider.next({ imageReturn: "url", imageUrl: address });
  const { status, json } = await shop.call("/v1/images/generations", {
    secret: by,
    host,
    body: imageBody(),
    origin: replica.origin,
  });
  expect(status, JSON.stringify(json)).toBe(200);
  return json.data[0].url as string;
}

const pathOf = (url: string) => new URL(url).pathname;
/** Gets a URL from a replica, on the URL's own host unless another is given. */
const get = (url: string, { host = new URL(url).host, method = "GET", origin = replica.origin } = {}) =>
  shop.call(pathOf(url), { host, method, origin });
const refused = (answer: Answer, code = "not_found") =>
  expectRefusal(answer, code, { param: code === "not_found" ? "token" : null });
/** A token that no provider's answer made. */
const forged = (
  over: Partial<ImageToken> = {},
  { host = HOST, key = KEY }: { host?: string; key?: Uint8Array } = {},
) => {
  const token = {
    url: store.url,
    providerId: 1,
    keyId: 1,
    accountId: 1,
    tenantId: 0,
    expiresUnixMs: Date.now() + 60_000,
    ...over,
  };
  return imageUrl(key, `http://${host}`, token);
};

describe("an image by URL", () => {
  test("is on the request's own host, does not show the provider's address, and is fetched when it is asked for", async () => {
    const url = await order(store.url);
    expect(url).toStartWith(`http://${HOST}/v1/images/files/`);
    expect(url.length).toBeLessThan(350);
    const decoded = Buffer.from(pathOf(url).split("/").at(-1) ?? "", "base64url").toString("latin1");
    for (const secret of ["127.0.0.1", String(store.port), "b.png", "sig"]) expect(url + decoded).not.toContain(secret);
    expect(store.state.calls.length).toBe(0);
    for (const times of [1, 2]) {
      const response = await fetch(`${replica.origin}${pathOf(url)}`, { headers: { host: HOST } });
      expect(response.status).toBe(200);
      expect(Buffer.from(await response.arrayBuffer())).toEqual(PNG);
      expect(store.state.calls.length).toBe(times);
      const { headers } = response;
      expect(headers.get("content-type")).toBe("image/png");
      expect(headers.get("content-disposition")).toBe('inline; filename="image.png"');
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("content-security-policy")).toBe("default-src 'none'; sandbox");
      expect(headers.get("x-request-id")).toBeString();
      const [, age] = /^private, max-age=(\d+)$/.exec(headers.get("cache-control") ?? "") ?? [];
      expect(Number(age)).toBeWithin(3500, 3601);
    }
  });

  test("works for the longest address that a provider may have", async () => {
    const url = await order(`http://127.0.0.1:${store.port}/`.padEnd(2048, "x"));
    expect(pathOf(url).length).toBeLessThan(3100);
    expect((await get(url)).status).toBe(200);
  });

  test("can be fetched without a key or a charge, and the provider gets no header of the client's", async () => {
    const url = await order(store.url);
    await withoutEffect(shop, async () => {
      const answer = await shop.call(pathOf(url), {
        host: HOST,
        origin: replica.origin,
        headers: { cookie: "a=b", referer: "http://me.test/", "x-forwarded-for": "1.2.3.4" },
      });
      expect(answer.status).toBe(200);
    });
    const [headers] = store.state.calls;
    expect(Object.keys(headers ?? {}).sort()).toEqual([
      "accept",
      "accept-encoding",
      "connection",
      "host",
      "user-agent",
    ]);
  });

  test("is described by HEAD, with type and length", async () => {
    const url = await order(store.url);
    const { status, headers, text } = await get(url, { method: "HEAD" });
    expect([status, headers.get("content-type"), headers.get("content-length"), text]).toEqual([
      200,
      "image/png",
      String(PNG.length),
      "",
    ]);
    await until(() => store.state.open === 0);
  });

  test("refuses other methods with 405", async () => {
    const url = await order(store.url);
    for (const method of ["POST", "DELETE"]) expectRefusal(await get(url, { method }), "method_not_allowed");
  });

  test("is on the reseller's domain that was called, and works only there", async () => {
    const reseller = await shop.world.addReseller(ACME);
    const customer = await shop.world.addCustomer(reseller.accountId);
    await shop.world.givePackage(customer);
    const { secret } = await shop.world.addKey(customer);
    const url = await order(store.url, { host: ACME, secret });
    expect(url).toStartWith(`http://${ACME}/v1/images/files/`);
    expect((await get(url)).status).toBe(200);
    for (const host of [HOST, "tollgate.test", "panel.tollgate.test"]) refused(await get(url, { host }));
    expect(store.state.calls.length).toBe(1);
    expectRefusal(await get(url, { host: "other.acme.test" }), "host_not_allowed");
  });

  test("has the scheme and port that clients use, not those behind the proxy", () => {
    const config = {
      baseUrl: "https://api.a.test/v1",
      aliasUrl: "https://a.test:444/v1",
      panelUrl: "https://panel.a.test",
    };
    const deps = { config, ownHosts: new Set(["api.a.test", "a.test", "panel.a.test", "localhost"]) };
    const originFor = (host: string) => originOf(deps, new URL(`http://${host}/v1/x`));
    expect(originFor("api.a.test")).toBe("https://api.a.test");
    expect(originFor("a.test:8080")).toBe("https://a.test:444");
    expect(originFor("panel.a.test")).toBe("https://panel.a.test");
    expect(originFor("ai.acme.test")).toBe("https://ai.acme.test");
    expect(originFor("localhost:8080")).toBe("http://localhost:8080");
  });

  test("is served by any replica; the provider's key is sent only to the provider's own origin", async () => {
    const { secret } = await shop.customer();
    const { json } = await shop.call("/v1/images/generations", { secret, host: HOST, body: imageBody() });
    expect((await get(json.data[0].url)).status).toBe(200);
    const image = shop.provider.calls().find(({ path }) => path.startsWith("/images/"));
    expect(image?.headers.authorization).toBe(`Bearer ${shop.provider.apiKey}`);
    await get(await order(store.url));
    expect(store.state.calls[0]).not.toHaveProperty("authorization");
  });

  test("is fetched with the key that it was ordered with; if that was removed, with another of its provider", async () => {
    const { secret } = await shop.customer();
    const { json } = await shop.call("/v1/images/generations", { secret, host: HOST, body: imageBody() });
    await get(json.data[0].url);
    const { path } = shop.provider.calls().findLast((call) => call.path.startsWith("/images/")) ?? { path: "" };
    const url = `http://127.0.0.1:${shop.provider.port}${path}`;
    const [second] = await shop.world.sql`
      insert into provider_keys (provider_id, name, key_ciphertext) values (1, 'second', ${encrypt(KEY, "sk-the-second-key")})
      returning id::int`;
    const keyFor = async (keyId: number) => {
      expect((await get(forged({ url, keyId }))).status).toBe(200);
      return shop.provider.calls().at(-1)?.headers.authorization;
    };
    try {
      // A replica learns of the key within a moment.
      await until(async () => (await keyFor(second?.id)) === "Bearer sk-the-second-key");
      expect(await keyFor(1)).toBe(`Bearer ${shop.provider.apiKey}`);
      expect(await keyFor(99_999)).toStartWith("Bearer sk-");
    } finally {
      await shop.world.sql`delete from provider_keys where id = ${second?.id}`;
      // Used by a later test, it would be refused, and its probe would take the answer that is meant for that test.
      await until(async () => (await keyFor(second?.id)) === `Bearer ${shop.provider.apiKey}`);
    }
  });

  test("members of the provider's answer that are not listed do not reach the client", async () => {
    const { secret } = await shop.customer();
    const data = [{ url: store.url, file: store.url, revised_prompt: "A gate" }];
    shop.provider.next({
      body: JSON.stringify({ created: 1, source: store.url, cost: 0.01, size: "1024x1024", data }),
    });
    const call = { secret, host: HOST, body: imageBody(), origin: replica.origin };
    const { json, text } = await shop.call("/v1/images/generations", call);
    expect(text).not.toContain(String(store.port));
    expect(Object.keys(json).sort()).toEqual(["created", "data", "model", "size"]);
    expect(Object.keys(json.data[0]).sort()).toEqual(["revised_prompt", "url"]);
  });
});

describe("404 with param token, and nothing is fetched", () => {
  afterEach(() => expect(store.state.calls.length).toBe(0));

  test("for a token with any character changed, added or removed, or another spelling of the same bytes", async () => {
    const url = await order(store.url);
    const token = pathOf(url).split("/").at(-1) ?? "";
    const wrong = [
      `${token}A`,
      token.slice(0, -1),
      token.slice(4),
      `${token}=`,
      `${token.slice(0, 8)}.${token.slice(8)}`,
      "x",
    ];
    for (let i = 0; i < token.length; i++)
      wrong.push(`${token.slice(0, i)}${token[i] === "A" ? "B" : "A"}${token.slice(i + 1)}`);
    for (const text of wrong) expect(openImageToken(KEY, HOST, text)).toBeUndefined();
    expect(openImageToken(KEY, HOST, token)?.url).toBe(store.url);
    for (const text of [...wrong.slice(0, 5), wrong.at(-1)])
      refused(await get(`http://${HOST}/v1/images/files/${text}`));
    refused(await get(`http://${HOST}/v1/images/files/${"A".repeat(6000)}`));
  });

  test("for a token that has expired", async () => {
    const answer = await get(forged({ expiresUnixMs: Date.now() - 60_000 }));
    refused(answer);
    expect(answer.json.error.message).toContain("expired");
  });

  test("for a token of another host of the service", async () => {
    const url = await order(store.url);
    for (const host of ["tollgate.test", "panel.tollgate.test", "localhost"]) refused(await get(url, { host }));
  });

  test("for a token made with another SECRET_KEY", async () => {
    refused(await get(forged({}, { key: new Uint8Array(32) })));
  });

  test("for a private address that is not allowed, or no longer", async () => {
    const url = await order(store.url);
    refused(await get(url, { origin: shop.origin }));
    for (const address of [`http://localhost:${store.port}/`, "http://169.254.169.254/", "file:///etc/passwd"])
      refused(await get(forged({ url: address })));
    // Its provider was removed.
    refused(await get(forged({ providerId: 99 })));
  });
});

describe("an address that could not be fetched later is not sold: 503, released", () => {
  test.each([
    () => "http://169.254.169.254/latest/",
    () => `http://localhost:${store.port}/x.png`,
    () => "file:///etc/passwd",
    () => "javascript:alert(1)",
    () => "/relative.png",
    () => "http://user:word@example.com/x.png",
    () => "http://name.invalid/x.png",
    () => `https://example.com/${"x".repeat(3000)}`,
    () => `http://127.0.0.1:${store.port}/${"é".repeat(1000)}`,
    () => "data:text/html,<script>alert(1)</script>",
  ])("%#", async (address) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ imageReturn: "url", imageUrl: address() });
    const call = { secret, host: HOST, body: imageBody(), origin: replica.origin };
    expectRefusal(await shop.call("/v1/images/generations", call), "provider_unavailable");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, units: 0 });
    expect(store.state.calls.length).toBe(0);
    // A good answer closes the breaker that this provider's failure may have opened.
    await until(async () => (await shop.call("/v1/images/generations", call)).status === 200);
  });
});

describe("when the provider does not give the image", () => {
  const serve = (answer: (response: ServerResponse) => void) => store.answers((_, response) => answer(response));

  test.each([400, 401, 403, 404, 410])("%i: 404, it is gone", async (status) => {
    serve((response) => response.writeHead(status).end("no"));
    const answer = await get(forged());
    refused(answer);
    expect(answer.json.error.message).toContain("no longer");
  });

  test.each([408, 429, 500, 502, 503])("%i: 503, because the failure may be temporary", async (status) => {
    serve((response) => response.writeHead(status).end("no"));
    expectRefusal(await get(forged()), "provider_unavailable");
  });

  test("redirects are not followed", async () => {
    for (const status of [301, 302, 307, 308]) {
      serve((response) => response.writeHead(status, { location: `/there` }).end());
      refused(await get(forged()));
    }
    expect(store.state.calls.length).toBe(4);
  });

  test("HTML, SVG, PDF and empty files are refused, whatever their declared type", async () => {
    for (const body of [
      "<!doctype html><script>1</script>",
      "<svg xmlns='x'><script/></svg>",
      "%PDF-1.7 ........",
      "",
    ]) {
      serve((response) => response.writeHead(200, { "content-type": "image/png" }).end(body));
      refused(await get(forged()));
    }
  });

  test("an image is served with its real type, whatever its declared type", async () => {
    serve((response) => response.writeHead(200, { "content-type": "text/html" }).end(PNG));
    expect((await get(forged())).headers.get("content-type")).toBe("image/png");
    const head = (hex: string) => imageTypeOf(Buffer.from(hex, "hex"));
    expect(head("ffd8ffe000104a46494600")).toBe("image/jpeg");
    expect(head("524946460a0b0c0d57454250")).toBe("image/webp");
    expect(head("474946383961")).toBe("image/gif");
    expect(head("0000001c6674797061766966")).toBe("image/avif");
    expect(head("524946460a0b0c0d57415645")).toBeUndefined();
  });

  test("a file of 50 MB is refused before its first byte if its length is declared, and cut off otherwise", async () => {
    const piece = Buffer.concat([PNG, Buffer.alloc(MIB - PNG.length)]);
    const pour = (response: ServerResponse, pieces: number) => {
      if (pieces === 0) return response.end();
      response.write(piece, () => response.writable && pour(response, pieces - 1));
    };
    serve((response) => {
      response.writeHead(200, { "content-length": 50 * MIB });
      pour(response, 50);
    });
    refused(await get(forged()));
    serve((response) => pour(response, 50));
    const response = await fetch(`${replica.origin}${pathOf(forged())}`, { headers: { host: HOST } });
    expect(response.status).toBe(200);
    expect(await lengthUntilCut(response)).toBeWithin(1, 32 * MIB + 1);
    await until(() => store.state.open === 0);
  });

  test("an image that breaks off is never a complete answer", async () => {
    serve((response) => {
      response.writeHead(200, { "content-length": PNG.length + 100 });
      response.write(PNG, () => setTimeout(() => response.destroy(), 50));
    });
    const response = await fetch(`${replica.origin}${pathOf(forged())}`, { headers: { host: HOST } });
    expect(await lengthUntilCut(response)).toBeLessThanOrEqual(PNG.length);
  });

  test("compressed bytes, which were not requested, are refused", async () => {
    serve((response) => response.writeHead(200, { "content-encoding": "gzip" }).end(PNG));
    expectRefusal(await get(forged()), "provider_unavailable");
  });

  test("a slow image is passed on; one that hangs times out after 20 s: 503 before its first bytes, and a cut-off after them", async () => {
    serve((response) => {
      response.writeHead(200);
      for (let i = 0; i < 10; i++) setTimeout(() => response.write(PNG.subarray(i * 200, (i + 1) * 200)), i * 50);
      setTimeout(() => response.end(PNG.subarray(2000)), 600);
    });
    expect((await get(forged())).status).toBe(200);
    serve(() => {});
    const silent = get(forged());
    await until(() => store.state.calls.length === 2);
    serve((response) => response.writeHead(200).write(PNG));
    const begun = await fetch(`${replica.origin}${pathOf(forged())}`, { headers: { host: HOST } });
    expect(begun.status).toBe(200);
    await lengthUntilCut(begun);
    expectRefusal(await silent, "provider_unavailable");
    await until(() => store.state.open === 0);
  });

  /** The bytes of a body that is cut off. */
  async function lengthUntilCut(response: Response): Promise<number> {
    let bytes = 0;
    try {
      for await (const piece of response.body ?? []) bytes += piece.byteLength;
    } catch {
      return bytes;
    }
    throw new Error(`the answer ended cleanly after ${bytes} bytes`);
  }
});

describe("limits", () => {
  test("the provider is read as fast as the client reads, and its call is aborted when the client leaves", async () => {
    let sent = 0;
    const piece = Buffer.concat([PNG, Buffer.alloc(64 * 1024)]);
    // Nearly the longest image: the buffers of four sockets, which grow by themselves, must not take it whole.
    const most = IMAGE_BYTES_MAX - 2 * piece.length;
    store.answers((_, response) => {
      const more = () => {
        while (sent < most && response.writable) {
          sent += piece.length;
          if (!response.write(piece)) return void response.once("drain", more);
        }
      };
      more();
    });
    const socket = connect(replica.port, "127.0.0.1", () => {
      socket.write(`GET ${pathOf(forged())} HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`);
      socket.pause();
    });
    try {
      await until(() => sent > MIB);
      for (let before = -1; before !== sent; await sleep(500)) before = sent;
      expect(sent).toBeLessThan(most);
    } finally {
      socket.destroy();
    }
    await until(() => store.state.open === 0);
  });

  test("50 concurrent fetches of one account: at most its share is at the provider, the others wait, and all are served", async () => {
    store.answers((_, response) => setTimeout(() => response.writeHead(200).end(PNG), 100));
    const url = forged({ accountId: 7 });
    const answers = await Promise.all(Array.from({ length: 50 }, () => get(url)));
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 50 }, () => 200));
    expect(store.state.openMax).toBeWithin(2, 17);
  });

  test("fetches beyond the queue get 429 with Retry-After, and other accounts are served", async () => {
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    store.answers((request, response) => {
      if (request.url?.includes("held")) void held.then(() => response.writeHead(200).end(PNG));
      else response.writeHead(200).end(PNG);
    });
    const url = forged({ accountId: 8, url: store.url.replace("b.png", "held.png") });
    const all = Array.from({ length: 100 }, () => get(url));
    const first = await Promise.race(all);
    expectRefusal(first, "too_many_requests");
    expect((await get(forged({ accountId: 9 }))).status).toBe(200);
    release();
    const statuses = (await Promise.all(all)).map(({ status }) => status).sort();
    expect(statuses.filter((status) => status === 200).length).toBe(80);
    expect(statuses.filter((status) => status === 429).length).toBe(20);
  });

  test("the rate per minute is counted by account, apart from that of its API keys", async () => {
    const narrow = await shop.start({
      PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${shop.provider.port},127.0.0.1:${store.port}`,
      RATE_PER_MINUTE: "5",
      REDIS_URL: "",
    });
    const { secret, accountId } = await shop.customer();
    const url = forged({ accountId });
    const statuses: number[] = [];
    for (let i = 0; i < 7; i++) statuses.push((await get(url, { origin: narrow.origin })).status);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429, 429]);
    const models = await shop.call("/v1/models", { secret, origin: narrow.origin });
    expect(models.status).toBe(200);
    await narrow.stop();
  });

  test("clients that leave free their place, before the provider answers, while they wait, and in the middle", async () => {
    const url = forged({ accountId: 10 });
    for (const answer of [
      () => {},
      (_: unknown, response: ServerResponse) => void response.writeHead(200).write(PNG),
    ] satisfies RequestListener[]) {
      store.answers(answer);
      const leave = new AbortController();
      const calls = Array.from({ length: 60 }, () =>
        fetch(`${replica.origin}${pathOf(url)}`, { headers: { host: HOST }, signal: leave.signal }).then(
          (response) => response.arrayBuffer(),
          () => {},
        ),
      );
      await until(() => store.state.open === 16);
      leave.abort();
      await Promise.allSettled(calls);
      await until(() => store.state.open === 0);
      store.reset();
      expect((await get(url)).status).toBe(200);
    }
  });

  test("a fetch that finds no place is counted as shed", async () => {
    const shed: string[] = [];
    const places = createImagePlaces((reason) => shed.push(reason));
    const share = [{ id: "account:1", atOnceMax: 1, waitingMax: 0 }];
    await places.enter(share, { waitMsMax: 10 });
    expect(await places.enter(share, { waitMsMax: 10 }).catch((error: Error) => error.message)).toContain(
      "Too many images",
    );
    expect(shed).toEqual(["image_files"]);
  });
});
