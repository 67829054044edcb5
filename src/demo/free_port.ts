import { createServer } from "node:net";
import process from "node:process";

/** Below what the system takes for outgoing connections, of which hundreds begin before a port that was free is used. */
const PORT_FIRST = 20_000;
const PORT_LAST = 32_000;

const COUNT = PORT_LAST - PORT_FIRST + 1;
/** Processes that look for ports at the same time begin far from each other. */
let next = (process.pid * 41) % COUNT;

/** A port of 127.0.0.1 that nobody listens on now. Somebody may take it before we do, though the system itself does not. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < COUNT; tries++) {
    const port = PORT_FIRST + next;
    next = (next + 1) % COUNT;
    if (await canListen(port)) return port;
  }
  throw new Error(`No port between ${PORT_FIRST} and ${PORT_LAST} is free.`);
}

/** Whether a server could listen there. A connection's own end may stand in its way too. */
export function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
