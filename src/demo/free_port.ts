import { connect, createServer } from "node:net";
import process from "node:process";

/** Below the range that the system assigns to outgoing connections: hundreds may open between finding a free port and using it. */
const PORT_FIRST = 20_000;
const PORT_LAST = 32_000;

/** A server that accepts no connection within this time is still there. */
const CONNECT_MS_MAX = 500;

const COUNT = PORT_LAST - PORT_FIRST + 1;
/** Depends on the process, so that processes that search at the same time start far apart. */
let next = (process.pid * 41) % COUNT;

/** A port of 127.0.0.1 that is free now. Another process may take it before the caller does. Throws an Error if there is none. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < COUNT; tries++) {
    const port = PORT_FIRST + next;
    next = (next + 1) % COUNT;
    if (await canListen(port)) return port;
  }
  throw new Error(`No port between ${PORT_FIRST} and ${PORT_LAST} is free.`);
}

/** Whether a server can listen on the port. An open connection with this local port prevents it too. */
export function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

/** Whether a server listens on the address: it accepts a connection, or leaves it unanswered. */
export function isListening(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: CONNECT_MS_MAX });
    const finish = (isOpen: boolean) => {
      socket.destroy();
      resolve(isOpen);
    };
    socket.once("connect", () => finish(true));
    socket.once("timeout", () => finish(true));
    socket.on("error", () => finish(false));
  });
}
