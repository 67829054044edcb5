import { createServer, connect as dial, type Socket } from "node:net";

/** Asks for TLS, in place of a startup message. */
const SSL_REQUEST = 80_877_103;
/** As Postgres has it. What asks for more is no client of Postgres: another test's may call a port that this one has got. */
const STARTUP_BYTES_MAX = 10_000;
/** A message of which there is more is a mistake of this reader. */
const MESSAGE_BYTES_MAX = 64 * 1024 * 1024;

/** A proxy to a Postgres that counts the statements of its clients by their text. */
export type StatementCounter = {
  /** The database's URL, by way of the proxy. A client that prepares statements sends each text once: use it with DB_PREPARE=false. */
  url: string;
  /** How often each statement was sent so far. */
  counts(): Map<string, number>;
  close(): Promise<void>;
};

export async function startStatementCounter(databaseUrl: string): Promise<StatementCounter> {
  const target = new URL(databaseUrl);
  const counts = new Map<string, number>();
  const note = (text: string) => void counts.set(text, (counts.get(text) ?? 0) + 1);
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = dial(Number(target.port || "5432"), target.hostname);
    const read = statementReader(note, () => client.destroy());
    client.on("data", read);
    client.pipe(upstream).pipe(client);
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");
  const url = new URL(databaseUrl);
  url.hostname = "127.0.0.1";
  url.port = String(address.port);
  return {
    url: url.href,
    counts: () => new Map(counts),
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/**
 * Reads what one client sends: a startup message without a type, then messages of a type and a length. `refuse` closes the connection of a
 * client that does not speak Postgres's protocol, as Postgres does.
 */
function statementReader(note: (text: string) => void, refuse: () => void): (bytes: Buffer) => void {
  let kept = Buffer.alloc(0);
  let isStarted = false;
  return (bytes) => {
    kept = Buffer.concat([kept, bytes]);
    for (;;) {
      const at = isStarted ? 1 : 0;
      if (kept.length < at + 4) return;
      const length = kept.readUInt32BE(at);
      if (!isStarted && length > STARTUP_BYTES_MAX) return refuse();
      if (length > MESSAGE_BYTES_MAX) throw new Error(`a message that cannot be read: ${kept.subarray(0, 100)}`);
      if (kept.length < at + length) return;
      const body = kept.subarray(at + 4, at + length);
      if (isStarted) noteStatement(String.fromCharCode(kept[0] ?? 0), body, note);
      else isStarted = body.readUInt32BE(0) !== SSL_REQUEST;
      kept = kept.subarray(at + length);
    }
  };
}

function noteStatement(type: string, body: Buffer, note: (text: string) => void): void {
  const fields = body.toString("utf8").split("\0", 2);
  // Parse: the statement's name, and its text. Query: its text.
  if (type === "P") note(fields[1] ?? "");
  if (type === "Q") note(fields[0] ?? "");
}
