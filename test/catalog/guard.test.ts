import { afterEach, expect, test } from "bun:test";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import {
  type Address,
  assertCallable,
  fetchGuarded,
  GuardError,
  mayBePrivate,
  openGuarded,
} from "../../src/catalog/guard.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { answerOf, rejectionOf, startRawServer } from "./sockets.ts";

/** Source: SEC-3, IMG-2. */

const PURPOSE = "The address";
/** A limit that no call here reaches. */
const LONG_MS = 120_000;
const v4 = (address: string): Address => ({ address, family: 4 });
const leadsTo =
  (...addresses: Address[]) =>
  async () =>
    addresses;

async function verdict(
  url: string,
  addresses: Address[] = [v4("93.184.215.14")],
  allowPrivate: string[] = [],
): Promise<string> {
  return await assertCallable(url, { allowPrivate, purpose: PURPOSE, resolve: leadsTo(...addresses) }).then(
    () => "callable",
    (thrown: unknown) => (thrown instanceof GuardError ? thrown.kind : String(thrown)),
  );
}

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

async function serve(handler: RequestListener): Promise<{ port: number; calls: () => number }> {
  let calls = 0;
  const server = createServer((request, response) => {
    calls += 1;
    handler(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, calls: () => calls };
}

test("a public name or address may be called, by http and https", async () => {
  for (const url of [
    "https://api.example.com/v1",
    "http://api.example.com:8080",
    "https://93.184.215.14/x",
    "https://[2606:4700::1111]/",
  ]) {
    expect(await verdict(url)).toBe("callable");
  }
});

test("a customer's URL is refused in the same words whether its host is unknown or private; the operator is told the address", async () => {
  const said = (url: string, resolve: () => Promise<Address[]>, tellsAddresses?: boolean) =>
    rejectionOf(
      assertCallable(url, {
        allowPrivate: [],
        purpose: PURPOSE,
        resolve,
        ...(tellsAddresses !== undefined && { tellsAddresses }),
      }),
    ).then((thrown) => (thrown instanceof Error ? thrown.message : ""));
  const unknown = () => Promise.reject(new Error("getaddrinfo ENOTFOUND db.internal"));
  const terse = "The address: this host is unknown, or not a public address.";
  for (const resolve of [leadsTo(v4("10.0.0.5")), leadsTo(), unknown])
    expect(await said("https://db.internal/", resolve)).toBe(terse);
  expect(await said("https://10.0.0.5/", leadsTo())).toBe(terse);
  expect(await said("https://db.internal/", leadsTo(v4("10.0.0.5")), true)).toContain("10.0.0.5");
  expect(await said("https://db.internal/", unknown, true)).toContain("ENOTFOUND");
});

test("every special address is refused, as a number and behind a name", async () => {
  const special = [
    "127.0.0.1",
    "127.8.9.1",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
  ];
  const special6 = [
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:7f00:1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
  ];
  for (const address of special) {
    expect([address, await verdict(`http://${address}/`)]).toEqual([address, "refused"]);
    expect([address, await verdict("http://name.example/", [v4(address)])]).toEqual([address, "refused"]);
  }
  for (const address of special6) {
    expect([address, await verdict(`http://[${address}]/`)]).toEqual([address, "refused"]);
    expect([address, await verdict("http://name.example/", [{ address, family: 6 }])]).toEqual([address, "refused"]);
  }
  expect(await verdict("http://name.example/", [{ address: "fe80::1%eth0", family: 6 }])).toBe("refused");
});

test("one private address among public ones is enough to refuse", async () => {
  expect(await verdict("http://name.example/", [v4("93.184.215.14"), v4("10.0.0.1")])).toBe("refused");
  expect(await verdict("http://name.example/", [v4("93.184.215.14"), { address: "::1", family: 6 }])).toBe("refused");
});

test("localhost is refused by the system's resolver, also with a final dot", async () => {
  for (const url of ["http://localhost/", "http://LOCALHOST./"]) {
    expect(((await rejectionOf(assertCallable(url, { allowPrivate: [], purpose: PURPOSE }))) as GuardError).kind).toBe(
      "refused",
    );
  }
});

test("decimal, octal, hex and short forms of an address are refused, public ones included", async () => {
  for (const host of [
    "2130706433",
    "0x7f000001",
    "017700000001",
    "127.1",
    "0x7f.1",
    "0177.0.0.1",
    "134744072",
    "8.8.2056",
  ]) {
    expect([host, await verdict(`http://${host}/`)]).toEqual([host, "refused"]);
  }
  expect(await verdict("http://0x7f.1/?127.0.0.1", undefined, ["127.0.0.1:80"])).toBe("refused");
});

test("other schemes, credentials, invalid and very long URLs are refused", async () => {
  for (const url of [
    "ftp://a.example/",
    "file:///etc/passwd",
    "gopher://a.example",
    "data:,x",
    "https://user@a.example/",
    "https://u:p@a.example/",
    "a.example",
    "",
    "http://",
    `https://a.example/${"x".repeat(3000)}`,
  ]) {
    expect([url, await verdict(url)]).toEqual([url, "refused"]);
  }
});

test("a name without an address is unresolved, not callable", async () => {
  expect(await verdict("https://a.example/", [])).toBe("unresolved");
  const broken = assertCallable("https://a.example/", {
    allowPrivate: [],
    purpose: PURPOSE,
    resolve: () => Promise.reject(new Error("SERVFAIL")),
  });
  expect(((await rejectionOf(broken)) as GuardError).kind).toBe("unresolved");
});

test("a host and port in the allow list may be private; another port or host may not", async () => {
  const allow = ["127.0.0.1:9000", "Models.internal:443", "[::1]:9000"];
  expect(await verdict("http://127.0.0.1:9000/v1", [], allow)).toBe("callable");
  expect(await verdict("http://[::1]:9000/v1", [], allow)).toBe("callable");
  expect(await verdict("https://models.internal/v1", [v4("10.0.0.1")], allow)).toBe("callable");
  expect(await verdict("http://127.0.0.1:9001/v1", [], allow)).toBe("refused");
  expect(await verdict("http://127.0.0.2:9000/v1", [], allow)).toBe("refused");
  expect(await verdict("http://models.internal/v1", [v4("10.0.0.1")], allow)).toBe("refused");
  expect(await verdict("http://evil.example:9000/v1", [v4("127.0.0.1")], allow)).toBe("refused");
});

test("disguised addresses are recognized: percent signs, full-width and circled digits, other dots, a final dot", async () => {
  for (const host of [
    "%31%32%37.0.0.1",
    "127%2e0%2e0%2e1",
    "\uff11\uff12\uff17.0.0.1",
    "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",
    "127\u30020\u30020\u30021",
    "127.0.0.1.",
    "169.254.169.254.",
    "[0:0:0:0:0:ffff:7f00:1]",
    "[::ffff:a9fe:a9fe]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
  ]) {
    expect([host, await verdict(`http://${host}/`)]).toEqual([host, "refused"]);
  }
});

test("a host hidden behind another is the one that is checked", async () => {
  for (const url of [
    "http://good.example@127.0.0.1/",
    "http://good.example:80@127.0.0.1/",
    "http://good.example%40127.0.0.1/",
    "http://127.0.0.1\\@good.example/",
    "http://127.0.0.1#@good.example/",
    "http://127.0.0.1?@good.example/",
    "http:\\\\127.0.0.1\\",
    "http:///127.0.0.1/",
    "http:127.0.0.1/",
    " \thttp://127.0.0.1/",
    "ht\ntp://127.0.0.1/",
    "http://127.0.0.1:80.80/",
    "http://good.example:65536/",
    "http://good.example:-1/",
    "http://[::1",
    "http://a b.example/",
    "http://a\0.example/",
  ]) {
    expect([url, await verdict(url)]).toEqual([url, "refused"]);
  }
});

test("names of the metadata service, and names that resemble an allowed one, are judged by their addresses", async () => {
  const metadata = [v4("169.254.169.254")];
  for (const host of ["metadata.google.internal", "METADATA.google.internal.", "a.169.254.169.254.nip.example"]) {
    expect([host, await verdict(`http://${host}/`, metadata)]).toEqual([host, "refused"]);
  }
  const allow = ["models.internal:443"];
  const inside = [v4("10.0.0.1")];
  expect(await verdict("https://models.internal/v1", inside, allow)).toBe("callable");
  expect(await verdict("https://models.internal./v1", inside, allow)).toBe("callable");
  expect(await verdict("https://m\u043edels.internal/v1", inside, allow)).toBe("refused");
  expect(await verdict("https://models.internal.evil.example/v1", inside, allow)).toBe("refused");
  expect(await verdict("https://models.internal:8443/v1", inside, allow)).toBe("refused");
  expect(await verdict("https://models.internal@evil.example/v1", inside, allow)).toBe("refused");
});

test("fetchGuarded: a redirect to a private address is not followed, by any status", async () => {
  const inner = await serve((_, response) => response.end("secret"));
  for (const status of [301, 302, 303, 307, 308]) {
    const { port } = await serve((_, response) =>
      response.writeHead(status, { location: `http://127.0.0.1:${inner.port}/` }).end(),
    );
    const call = fetchGuarded(`http://127.0.0.1:${port}/`, {
      bytesMax: 100,
      timeoutMs: LONG_MS,
      allowPrivate: [`127.0.0.1:${port}`],
    });
    expect(((await rejectionOf(call)) as GuardError).kind).toBe("failed");
  }
  expect(inner.calls()).toBe(0);
});

test("fetchGuarded: returns the file and its type", async () => {
  const { port } = await serve((_, response) => response.setHeader("content-type", "image/png").end("pixels"));
  const file = await fetchGuarded(`http://127.0.0.1:${port}/a.png`, {
    bytesMax: 100,
    timeoutMs: LONG_MS,
    allowPrivate: [`127.0.0.1:${port}`],
  });
  expect([Buffer.from(file.bytes).toString(), file.contentType]).toEqual(["pixels", "image/png"]);
});

test("fetchGuarded: a private address is refused and no connection is made, by number, by name and by localhost", async () => {
  const { port, calls } = await serve((_, response) => response.end("secret"));
  const limits = { bytesMax: 100, timeoutMs: LONG_MS, allowPrivate: [] };
  for (const host of ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"]) {
    expect(((await rejectionOf(fetchGuarded(`http://${host}:${port}/`, limits))) as GuardError).kind).toBe("refused");
  }
  const byName = fetchGuarded(`http://a.example:${port}/`, { ...limits, resolve: leadsTo(v4("127.0.0.1")) });
  expect(((await rejectionOf(byName)) as GuardError).kind).toBe("refused");
  expect(calls()).toBe(0);
});

test("fetchGuarded: rebinding is impossible, since the name is looked up once and that address is connected to", async () => {
  const { port, calls } = await serve((_, response) => response.end("secret"));
  let lookups = 0;
  // The first answer is a public address without a server; a second look-up would find the server on this machine.
  const resolve = async () => (++lookups === 1 ? [v4("192.0.2.1")] : [v4("127.0.0.1")]);
  await rejectionOf(
    fetchGuarded(`http://rebind.example:${port}/`, {
      bytesMax: 100,
      timeoutMs: 300,
      allowPrivate: [`rebind.example:${port}`],
      resolve,
    }),
  );
  expect([lookups, calls()]).toEqual([1, 0]);
});

test("fetchGuarded: connects to the checked address, under the requested name", async () => {
  const { port } = await serve((request, response) => response.end(request.headers.host));
  const resolve = leadsTo(v4("127.0.0.1"));
  const { bytes } = await fetchGuarded(`http://files.example:${port}/`, {
    bytesMax: 100,
    timeoutMs: LONG_MS,
    allowPrivate: [`files.example:${port}`],
    resolve,
  });
  expect(Buffer.from(bytes).toString()).toBe(`files.example:${port}`);
});

test("fetchGuarded: redirects, errors, compression and cut answers are failures", async () => {
  const { port, calls } = await serve((request, response) => {
    if (request.url === "/redirect") response.writeHead(302, { location: "/file" }).end();
    else if (request.url === "/gzip") response.writeHead(200, { "content-encoding": "gzip" }).end("x");
    else if (request.url === "/cut")
      response.writeHead(200, { "content-length": "100" }).write("x", () => response.destroy());
    else response.writeHead(404).end();
  });
  for (const path of ["/redirect", "/gzip", "/cut", "/missing"]) {
    const failed = fetchGuarded(`http://127.0.0.1:${port}${path}`, {
      bytesMax: 1000,
      timeoutMs: LONG_MS,
      allowPrivate: [`127.0.0.1:${port}`],
    });
    expect([path, ((await rejectionOf(failed)) as GuardError).kind]).toEqual([path, "failed"]);
  }
  expect(calls()).toBe(4);
});

test("fetchGuarded: a file that is too large is refused, with or without a declared size", async () => {
  const { port } = await serve((request, response) => {
    if (request.url === "/announced") response.end(Buffer.alloc(2000));
    else {
      const pour = () => void (response.writable && response.write(Buffer.alloc(10_000), pour));
      pour();
    }
  });
  for (const path of ["/announced", "/endless"]) {
    const failed = fetchGuarded(`http://127.0.0.1:${port}${path}`, {
      bytesMax: 1000,
      timeoutMs: LONG_MS,
      allowPrivate: [`127.0.0.1:${port}`],
    });
    expect(((await rejectionOf(failed)) as GuardError).kind).toBe("oversized");
  }
});

test("fetchGuarded: one time limit for look-up, headers and body", async () => {
  const { port } = await serve((request, response) => {
    if (request.url === "/drip") {
      const drip = setInterval(() => response.write("x"), 20);
      response.on("close", () => clearInterval(drip));
    }
  });
  const limits = { bytesMax: 100_000, timeoutMs: 150, allowPrivate: [`127.0.0.1:${port}`] };
  // None of them would ever end.
  for (const path of ["/drip", "/silent"]) {
    expect(((await rejectionOf(fetchGuarded(`http://127.0.0.1:${port}${path}`, limits))) as GuardError).kind).toBe(
      "timeout",
    );
  }
  const lookup = fetchGuarded("http://slow.example/", { ...limits, resolve: () => new Promise(() => {}) });
  expect(((await rejectionOf(lookup)) as GuardError).kind).toBe("timeout");
});

test("fetchGuarded: an abort ends the call with its reason", async () => {
  const { port } = await serve(() => {});
  const control = new AbortController();
  const waiting = fetchGuarded(`http://127.0.0.1:${port}/`, {
    bytesMax: 100,
    timeoutMs: LONG_MS,
    allowPrivate: [`127.0.0.1:${port}`],
    signal: control.signal,
  });
  const reason = new Error("client left");
  setTimeout(() => control.abort(reason), 50);
  expect(await rejectionOf(waiting)).toBe(reason);
});

test("fetchGuarded: sends no more than five headers, and no cookie or referrer", async () => {
  const server = await startRawServer((socket) => socket.end(answerOf(200, {}, "x")));
  closers.push(server.close);
  await fetchGuarded(`${server.baseUrl}/x`, { bytesMax: 100, timeoutMs: LONG_MS, allowPrivate: [server.hostPort] });
  const names = (server.requests[0] ?? "")
    .split("\r\n")
    .slice(1)
    .filter(Boolean)
    .map((line) => line.split(":")[0]?.toLowerCase() ?? "")
    .sort();
  expect(names).toEqual(["accept", "accept-encoding", "connection", "host", "user-agent"]);
});

test("openGuarded: reads only what is asked for, to the end; close ends the connection", async () => {
  let sent = 0;
  let closed = 0;
  const piece = Buffer.alloc(64 * 1024, 1);
  const { port } = await serve((_, response) => {
    response.on("close", () => closed++);
    const more = () => {
      while (response.writable && sent < 40_000_000) {
        sent += piece.length;
        if (!response.write(piece)) return void response.once("drain", more);
      }
      response.end();
    };
    more();
  });
  const options = { bytesMax: 50_000_000, timeoutMs: LONG_MS, allowPrivate: [`127.0.0.1:${port}`] };
  const file = await openGuarded(`http://127.0.0.1:${port}/`, options);
  expect((await file.read())?.length).toBeGreaterThan(0);
  let before = -1;
  for (; before !== sent; await sleep(500)) before = sent;
  expect(sent).toBeLessThan(20_000_000);
  file.close();
  file.close();
  await until(() => closed === 1);
  expect(((await rejectionOf(file.read())) as GuardError).kind).toBe("failed");

  sent = 39_000_000;
  const short = await openGuarded(`http://127.0.0.1:${port}/`, options);
  let bytes = 0;
  for (let got = await short.read(); got !== undefined; got = await short.read()) bytes += got.length;
  expect(bytes).toBe(sent - 39_000_000);
  short.close();
});

test("openGuarded: the time between two pieces has a limit, besides the whole file", async () => {
  const { port } = await serve((request, response) => {
    if (request.url === "/stops") response.writeHead(200).write("x");
    if (request.url === "/drips") {
      const drip = setInterval(() => response.write("x"), 20);
      response.on("close", () => clearInterval(drip));
    }
  });
  const { bytesMax, allowPrivate } = { bytesMax: 1000, allowPrivate: [`127.0.0.1:${port}`] };
  // Of the two limits the other one is never reached, however slowly the bytes come here.
  for (const [path, limits, said] of [
    ["/silent", { timeoutMs: LONG_MS, idleMs: 200 }, "No bytes within 200 ms."],
    ["/stops", { timeoutMs: LONG_MS, idleMs: 200 }, "No bytes within 200 ms."],
    ["/drips", { timeoutMs: 600, idleMs: LONG_MS }, "No whole answer within 600 ms."],
  ] as const) {
    const readAll = async () => {
      const file = await openGuarded(`http://127.0.0.1:${port}${path}`, { ...limits, bytesMax, allowPrivate });
      while ((await file.read()) !== undefined);
    };
    expect([path, ((await rejectionOf(readAll())) as GuardError).message]).toEqual([path, said]);
  }
});

test("openGuarded: the status of an error is reported", async () => {
  const { port } = await serve((_, response) => response.writeHead(410).end());
  const failed = openGuarded(`http://127.0.0.1:${port}/`, {
    bytesMax: 1,
    timeoutMs: LONG_MS,
    allowPrivate: [`127.0.0.1:${port}`],
  });
  expect((await rejectionOf(failed)) as GuardError).toMatchObject({ kind: "failed", status: 410 });
});

test("mayBePrivate: true only for a listed host with its port", () => {
  const allow = ["models.internal:443", "10.0.0.7:8000"];
  for (const url of ["https://models.internal/v1", "https://MODELS.internal./v1", "http://10.0.0.7:8000/v1"])
    expect([url, mayBePrivate(url, allow)]).toEqual([url, true]);
  for (const url of ["http://models.internal/v1", "http://10.0.0.7/v1", "https://api.example.com/v1", "none"])
    expect([url, mayBePrivate(url, allow)]).toEqual([url, false]);
});
