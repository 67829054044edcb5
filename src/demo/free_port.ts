import { createServer } from "node:net";

/** Below what the system takes for outgoing connections, of which hundreds begin before a port that was free is used. */
const PORT_FIRST = 20_000;
const PORT_LAST = 32_000;

/** A port of 127.0.0.1 that nobody listens on now. Somebody may take it before we do, though the system itself does not. */
export async function freePort(): Promise<number> {
  const count = PORT_LAST - PORT_FIRST + 1;
  const from = Math.floor(Math.random() * count);
  for (let i = 0; i < count; i++) {
    const port = PORT_FIRST + ((from + i) % count);
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
