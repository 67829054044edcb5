import { createServer, type Socket } from "node:net";
import type { ProviderAnswer } from "./form.ts";

/** A provider that answers with bytes as an entry has them: by sockets, so that no HTTP server repairs them. */

export type RawCall = { path: string; text: string; body: Record<string, unknown> };
export type RawProvider = Awaited<ReturnType<typeof startRawProvider>>;

/** `answerOf`: the answer to a call; undefined: it is not expected, and gets a 500. */
export async function startRawProvider(answerOf: (call: RawCall) => ProviderAnswer | undefined) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => {}); // The caller may leave at any moment.
    let received = Buffer.alloc(0);
    socket.on("data", (bytes) => {
      received = Buffer.concat([received, Buffer.from(bytes)]);
      const call = callIn(received);
      if (call === undefined) return;
      received = Buffer.alloc(0);
      play(socket, answerOf(call) ?? { status: 500, json: { error: { message: "an unexpected call" } } });
    });
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", resolve);
  await promise;
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the provider has no port");
  return {
    port: address.port,
    async stop(): Promise<void> {
      for (const socket of sockets) socket.destroy();
      await new Promise((closed) => server.close(closed));
    },
  };
}

/** The call in the bytes of a connection; undefined if they are not complete. */
function callIn(received: Buffer): RawCall | undefined {
  const end = received.indexOf("\r\n\r\n");
  if (end < 0) return undefined;
  const head = received.subarray(0, end).toString("latin1");
  const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
  const body = received.subarray(end + 4);
  if (body.length < length) return undefined;
  const text = body.toString();
  return { path: head.split(" ", 2)[1] ?? "", text, body: length === 0 ? {} : JSON.parse(text) };
}

function play(socket: Socket, answer: ProviderAnswer): void {
  const { status = 200, headers = {}, end = "whole" } = answer;
  const [type, bytes] = bodyOf(answer);
  const sent = { ...(type && { "content-type": type }), ...headers };
  const lines = Object.entries(sent).flatMap(([name, value]) => (value === null ? [] : [`${name}: ${value}\r\n`]));
  if (end !== "closed") lines.push(`content-length: ${end === "cut" ? bytes.length + 1 : bytes.length}\r\n`);
  socket.write(`HTTP/1.1 ${status} Whatever\r\n${lines.join("")}connection: close\r\n\r\n`);
  socket.end(bytes);
}

/** The content type of the form, and the bytes. */
function bodyOf(answer: ProviderAnswer): [type: string | undefined, bytes: Uint8Array] {
  if ("json" in answer) return ["application/json", Buffer.from(JSON.stringify(answer.json))];
  if ("events" in answer) return ["text/event-stream", Buffer.from(answer.events.map(wireOf).join(""))];
  return [undefined, "text" in answer ? Buffer.from(answer.text) : answer.bytes];
}

function wireOf(event: string | object): string {
  return typeof event === "string" ? event : `data: ${JSON.stringify(event)}\n\n`;
}
