import { afterEach, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders } from "node:http";
import { connect, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import {
  raiseFetchLimit,
  type ServeOptions,
  type Server,
  serve,
  sha256,
  upstreamFetch,
  upstreamTarget,
} from "../../src/platform/runtime.ts";
import { within } from "../../src/platform/time_limit.ts";
import { sleep, until } from "./own_redis.ts";

const BURST_SERVER = fileURLToPath(new URL("burst_server.ts", import.meta.url));
const open: Server[] = [];
afterEach(async () => {
  for (const server of open.splice(0)) await server.closeNow();
});

function serving(fetch: ServeOptions["fetch"], port = 0): Server & { url: string } {
  const server = serve({
    port,
    hostname: "127.0.0.1",
    fetch,
    onError: () => Response.json({ error: "ours" }, { status: 500 }),
  });
  open.push(server);
  return { ...server, url: `http://127.0.0.1:${server.port}` };
}

/** Sends `text` unchanged. Returns what is received until the connection closes or `enough` is seen. */
function raw(port: number, text: string, enough: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let got = "";
    const socket = connect(port, "127.0.0.1", () => socket.write(text));
    socket.on("error", reject);
    socket.on("close", () => resolve(got));
    socket.on("data", (bytes) => {
      got += bytes.toString();
      if (got.includes(enough)) socket.destroy();
    });
  });
}

test("the handler gets the request and its peer's address", async () => {
  const { url } = serving((request, peer) =>
    Response.json({ path: new URL(request.url).pathname, address: peer.address() }),
  );
  expect(await (await fetch(`${url}/a`)).json()).toEqual({ path: "/a", address: "127.0.0.1" });
});

test("a taken port is an Error with code EADDRINUSE", () => {
  const { port } = serving(() => new Response());
  let code: unknown;
  try {
    serving(() => new Response(), port);
  } catch (error) {
    code = error instanceof Error && "code" in error ? error.code : undefined;
  }
  expect(code).toBe("EADDRINUSE");
});

test.each([1_000, 2 << 20])(
  "6,000 requests are refused in one turn of the event loop with unread bodies: each is answered, and the server continues: %i bytes",
  async (bytes) => {
    const count = 6_000;
    const child = spawn(process.execPath, [BURST_SERVER, String(count)], { stdio: ["ignore", "pipe", "ignore"] });
    const sockets: Socket[] = [];
    try {
      const port = Number(String((await once(child.stdout, "data"))[0]));
      let answered = 0;
      for (let i = 0; i < count; i++) {
        const socket = connect(port, "127.0.0.1");
        socket.on("error", () => {}); // A broken one has no answer, and answers are counted.
        socket.once("data", (bytes) => {
          answered += String(bytes).startsWith("HTTP/1.1 429") ? 1 : 0;
        });
        socket.write(`POST / HTTP/1.1\r\nhost: a\r\ncontent-length: ${bytes}\r\n\r\n`);
        sockets.push(socket);
        if (i % 200 === 0) await sleep(5);
      }
      await until(() => answered === count);
      expect((await fetch(`http://127.0.0.1:${port}`)).status).toBe(200);
    } finally {
      for (const socket of sockets) socket.destroy();
      child.kill("SIGKILL");
    }
  },
);

test("an error of the handler is answered by onError, not by the runtime's page or a stack", async () => {
  for (const fail of [
    () => {
      throw new Error("boom");
    },
    () => Promise.reject(new Error("boom")),
  ]) {
    const { url } = serving(fail);
    const response = await fetch(url);
    expect(response.status).toBe(500);
    expect(await response.text()).toBe('{"error":"ours"}');
  }
});

test("a body of any declared size reaches the handler, which sends the 413", async () => {
  const { port } = serving(() => Response.json({ error: "ours" }, { status: 413 }));
  const answer = await raw(
    port,
    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000000000\r\n\r\nabc",
    "ours",
  );
  expect(answer).toContain("413");
  expect(answer).toContain("ours");
});

test("an unread body is not received: its client is held up by what the sockets hold", async () => {
  const gate = Promise.withResolvers<void>();
  const { port } = serving(async (request) => {
    await request.body?.getReader().read();
    await gate.promise;
    return new Response("early", { status: 413 });
  });
  const size = 300 << 20;
  const part = Buffer.alloc(1 << 20, 97);
  let got = "";
  let given = 0;
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {}); // The answer is what counts.
  socket.on("data", (bytes) => {
    got += bytes;
  });
  const send = () => {
    while (given < size && socket.write(part)) given += part.length;
    given += part.length; // It is taken too, and "drain" tells when there is room again.
  };
  socket.on("drain", send);
  socket.write(`POST / HTTP/1.1\r\nhost: a\r\ncontent-length: ${size}\r\n\r\n`);
  send();
  for (let before = -1; before !== given; await sleep(500)) before = given;
  expect(given).toBeLessThan(64 << 20);
  gate.resolve();
  await until(() => got.includes("413"));
  socket.destroy();
});

/** An answer of ten letters: the second and later ones wait until `more` is resolved. */
const slowly = (more: Promise<void>) => {
  let sent = 0;
  return new Response(
    new ReadableStream<Uint8Array>({
      async pull(controller) {
        if (sent > 0) await more;
        controller.enqueue(new TextEncoder().encode("x"));
        if (++sent === 10) controller.close();
      },
    }),
  );
};

test("stop accepts no new connection and waits for open streams", async () => {
  const more = Promise.withResolvers<void>();
  const server = serving(() => slowly(more.promise));
  const response = await fetch(server.url);
  let stopped = false;
  const stopping = server.stop().then(() => (stopped = true));
  await expect(fetch(server.url, { keepalive: false })).rejects.toThrow();
  expect(stopped).toBe(false);
  more.resolve();
  expect(await response.text()).toBe("xxxxxxxxxx");
  await stopping;
});

test("closeNow ends what stop waits for", async () => {
  const server = serving(
    () =>
      new Response(new ReadableStream({ start: (controller) => controller.enqueue(new TextEncoder().encode("x")) })),
  );
  const response = await fetch(server.url);
  const stopping = server.stop();
  await server.closeNow();
  await stopping;
  expect(response.text()).rejects.toThrow();
});

test("an idle keep-alive connection does not delay stop", async () => {
  const server = serving(() => new Response("a"));
  await (await fetch(server.url)).text();
  await within(2000, server.stop());
});

test("sha256 of bytes and of UTF-8 text", () => {
  for (const data of ["", "é😀", Uint8Array.of(0, 255)]) {
    expect(Buffer.from(sha256(data)).equals(createHash("sha256").update(data).digest())).toBe(true);
  }
});

test("upstreamFetch follows no redirect, requests an unencoded body and decodes none", async () => {
  let asked: IncomingHttpHeaders = {};
  const upstream = createServer((request, response) => {
    asked = request.headers;
    if (request.url === "/away") return response.writeHead(302, { location: "/" }).end();
    response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync("zipped"));
  });
  await new Promise<void>((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  const address = upstream.address();
  const url = `http://127.0.0.1:${address && typeof address === "object" ? address.port : 0}`;
  expect((await upstreamFetch(upstreamTarget(`${url}/away`), {})).status).toBe(302);
  const response = await upstreamFetch(upstreamTarget(url), { method: "POST", body: "x".repeat(100_000) });
  expect(asked["accept-encoding"]).toBe("identity");
  expect(response.headers.get("content-encoding")).toBe("gzip");
  expect(Buffer.from(await response.arrayBuffer()).equals(gzipSync("zipped"))).toBe(true);
  upstream.closeAllConnections();
  upstream.close();
});

test("400 fetches run concurrently after raiseFetchLimit, in the same process, with its arguments", async () => {
  let now = 0;
  let most = 0;
  const gate = Promise.withResolvers<void>();
  const { url } = serving(async () => {
    most = Math.max(most, ++now);
    if (most === 400) gate.resolve();
    await Promise.race([gate.promise, sleep(60_000)]);
    now--;
    return new Response("a");
  });
  const script = `
    import { raiseFetchLimit } from ${JSON.stringify(new URL("../../src/platform/runtime.ts", import.meta.url).href)};
    console.log("pid", process.pid, process.argv.slice(2).join(" "));
    console.log("limit", raiseFetchLimit(1000));
    await Promise.all(Array.from({ length: 400 }, () => fetch(${JSON.stringify(url)}).then((r) => r.text())));`;
  const file = `${process.env.TMPDIR ?? "/tmp"}/raise-${process.pid}.ts`;
  await Bun.write(file, script);
  const { BUN_CONFIG_MAX_HTTP_REQUESTS: _, ...env } = process.env;
  const child = Bun.spawn([process.execPath, file, "one", "two"], { stdout: "pipe", stderr: "inherit", env });
  const lines = (await new Response(child.stdout).text()).trim().split("\n");
  await Bun.file(file).delete();
  expect(most).toBe(400);
  expect(lines).toEqual([`pid ${child.pid} one two`, `pid ${child.pid} one two`, "limit 1000"]);
});

test("raiseFetchLimit does nothing if the limit is high enough", () => {
  expect(raiseFetchLimit(200, {})).toBe(256);
  expect(raiseFetchLimit(5000, { BUN_CONFIG_MAX_HTTP_REQUESTS: "6000" })).toBe(6000);
  expect(raiseFetchLimit(1_000_000, { BUN_CONFIG_MAX_HTTP_REQUESTS: "65535" })).toBe(65_535);
});

test("within rejects in time, and leaves no rejection unhandled", async () => {
  const late = Promise.withResolvers<void>();
  expect(await within(10, late.promise).catch((error) => error.message)).toBe("no answer within 10 ms");
  expect(await within(1000, Promise.resolve(1))).toBe(1);
  late.reject(new Error("late"));
  await sleep(0); // An unhandled rejection would fail the test in the next turn.
});
