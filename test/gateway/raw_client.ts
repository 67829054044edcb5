import { connect } from "node:net";
import { chatBody } from "./shop.ts";

/** Maximum length of received data that is kept as text. */
const TEXT_BYTES_MAX = 64 * 1024 * 1024;

/** A chat request on a bare socket, whose client can stop reading, half-close or leave at any time. */
export type RawClient = ReturnType<typeof openRawClient>;

export function openRawClient(port: number, secret: string, over: Record<string, unknown> = {}) {
  const body = JSON.stringify({ ...chatBody(), stream: true, ...over });
  const head = [
    "POST /v1/chat/completions HTTP/1.1",
    "Host: localhost",
    `Authorization: Bearer ${secret}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
  ];
  let got = "";
  let bytes = 0;
  let closed = false;
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true }, () => {
    socket.write(`${head.join("\r\n")}\r\n\r\n${body}`);
  });
  socket.on("data", (part) => {
    bytes += part.length;
    if (bytes < TEXT_BYTES_MAX) got += part;
  });
  socket.on("error", () => {}); // "close" follows.
  socket.on("close", () => {
    closed = true;
  });
  socket.on("end", () => socket.end());
  return {
    socket,
    /** The received data, including headers and chunk sizes; the first 64 MB of it. */
    got: () => got,
    bytes: () => bytes,
    events: () => got.split("data: ").length - 1,
    closed: () => closed,
    leave: () => socket.destroy(),
  };
}
