import { spawn } from "node:child_process";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { KeyedRoute, ModelRoute } from "../../src/catalog/catalog.ts";
import { USUAL_FACTS } from "../../src/catalog/dialects.ts";
import { Secret } from "../../src/platform/crypto.ts";

/** Raw peers that behave as no HTTP server does, and a route to them. */

/** More than any listen queue on the machines we test on (net.core.somaxconn is 4096). */
const QUEUE_MAX = 5_000;
const CONNECT_WAIT_MS = 300;

/** A route with one key, as an attempt is given it, and as a model has it. */
export function route(baseUrl: string, fields: Partial<KeyedRoute> = {}): KeyedRoute & ModelRoute {
  const only: KeyedRoute = {
    id: 1,
    providerId: 1,
    providerName: "acme",
    baseUrl,
    key: { id: fields.id ?? 1, name: "default", weight: 1 },
    apiKey: new Secret("sk-acme-0123456789abcdef"),
    upstreamModel: "up-1",
    priority: 0,
    weight: 1,
    cost: null,
    costPrices: null,
    costImageMicroUsd: null,
    facts: USUAL_FACTS,
    ownResponses: false,
    allowedParams: new Set(),
    droppedParams: new Set(),
    ...fields,
  };
  return { ...only, keyed: [only] };
}

export type RawServer = {
  port: number;
  baseUrl: string;
  hostPort: string;
  requests: string[];
  connections(): number;
  close(): void;
};

/** Passes every request's head and first bytes to `answer`, which writes anything. */
export async function startRawServer(answer: (socket: Socket, request: string) => void): Promise<RawServer> {
  const sockets = new Set<Socket>();
  const requests: string[] = [];
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("data", (data) => {
      requests.push(data.toString());
      answer(socket, data.toString());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    baseUrl: `http://127.0.0.1:${port}/v1`,
    hostPort: `127.0.0.1:${port}`,
    requests,
    connections: () => connections,
    close() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

/** One HTTP/1.1 answer as bytes; the connection closes after it. */
export function answerOf(status: number, headers: Record<string, string>, body: string | Uint8Array = ""): Buffer {
  const bytes = Buffer.from(body);
  const lines = Object.entries({ "content-length": String(bytes.length), connection: "close", ...headers });
  return Buffer.concat([
    Buffer.from(`HTTP/1.1 ${status} X\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`),
    bytes,
  ]);
}

/** A port where connections are never accepted: its process sleeps, and its queue is full. */
export async function startHungPort(): Promise<{ port: number; close(): void }> {
  const { hang, ...hung } = await startHangingPort();
  await hang();
  return hung;
}

/** A port that sends `answer` to each request and closes the connection, until the test makes it hang. */
export async function startHangingPort(answer = ""): Promise<{ port: number; hang(): Promise<void>; close(): void }> {
  const program = `
    const server = require("node:net").createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => socket.end(${JSON.stringify(answer)}));
    });
    server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => {
      require("node:fs").writeSync(1, server.address().port + "\\n");
    });
    process.stdin.once("data", () => {
      require("node:fs").writeSync(1, "hangs\\n");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    });`;
  const child = spawn(process.execPath, ["-e", program], { stdio: ["pipe", "pipe", "inherit"] });
  const nextWord = () => new Promise<string>((resolve) => child.stdout.once("data", (data) => resolve(String(data))));
  const port = Number(await nextWord());
  const sockets: Socket[] = [];
  return {
    port,
    async hang() {
      const hangs = nextWord();
      child.stdin.write("hang\n");
      await hangs;
      for (let i = 0; i < QUEUE_MAX; i++) {
        const socket = connect(port, "127.0.0.1");
        socket.on("error", () => {});
        sockets.push(socket);
        const isConnected = await new Promise<boolean>((resolve) => {
          socket.once("connect", () => resolve(true));
          setTimeout(() => resolve(false), CONNECT_WAIT_MS);
        });
        if (!isConnected) break;
      }
    },
    close() {
      for (const socket of sockets) socket.destroy();
      child.kill("SIGKILL");
    },
  };
}

/** What `promise` rejects with. */
export async function rejectionOf(promise: Promise<unknown>): Promise<unknown> {
  return await promise.then(
    () => {
      throw new Error("it did not reject");
    },
    (reason: unknown) => reason,
  );
}
