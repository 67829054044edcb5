import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";

let started: Promise<string> | undefined;

/** The host and port of a server on this machine that accepts connections and says nothing. Started once; ends with the process. */
export function silentReceiver(): Promise<string> {
  started ??= start();
  return started;
}

async function start(): Promise<string> {
  const server = createServer((socket) => void socket.on("error", () => {}).resume());
  server.listen(0, "127.0.0.1").unref();
  await once(server, "listening");
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}
