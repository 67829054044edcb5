import { createServer, connect as dial, type Socket } from "node:net";

/** A TCP proxy in front of a server of the tests, which can be told to misbehave. */
export type TcpProxy = {
  /** The server's URL, by way of the proxy. */
  url: string;
  port: number;
  /** Resets what is open, refuses what comes. */
  cut(): void;
  /** Lets requests through and drops every reply: a COMMIT whose answer is lost, a server gone silent. */
  dropReplies(): void;
  /** As a plain proxy again, for connections that come from now on; the silent ones stay silent. */
  mend(): void;
  close(): Promise<void>;
};

/** Listens on a free port before the server of `targetUrl`. */
export async function startTcpProxy(targetUrl: string): Promise<TcpProxy> {
  const target = new URL(targetUrl);
  const open = new Set<Socket>();
  let mode: "pass" | "cut" | "drop" = "pass";
  const server = createServer((client) => {
    if (mode === "cut") return client.destroy();
    const upstream = dial(Number(target.port), target.hostname);
    let silent = false;
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => {
        open.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.on("data", (bytes) => upstream.write(bytes));
    upstream.on("data", (bytes) => {
      if (mode === "drop") silent = true;
      if (!silent) client.write(bytes);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");
  const url = new URL(targetUrl);
  url.hostname = "127.0.0.1";
  url.port = String(address.port);
  const cutAll = () => {
    for (const socket of open) socket.destroy();
  };
  return {
    url: url.href,
    port: address.port,
    cut() {
      mode = "cut";
      cutAll();
    },
    dropReplies() {
      mode = "drop";
    },
    mend() {
      mode = "pass";
    },
    async close() {
      cutAll();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
