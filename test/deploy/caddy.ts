import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import * as http2 from "node:http2";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import * as tls from "node:tls";
import { freePort } from "../../src/demo/free_port.ts";
import { startOwnedProcess } from "../../src/demo/postgres/owned_process.ts";
import { REPOSITORY } from "./image.ts";

/** A real Caddy with the repository's own Caddyfile, and clients that reach it by TLS as a browser would. */

const PROGRAM = "/usr/bin/caddy";
const START_MS_MAX = 20_000;
const PORT_TRIES_MAX = 5;
const POLL_MS = 20;
/** Of one call, from its first byte to its last. */
const CALL_MS_MAX = 60_000;

export type Caddy = Awaited<ReturnType<typeof startCaddy>>;
type Upstreams = { replicas: readonly number[]; ask: string };

/** One try at a replica, as Caddy logs it. `error` is "" where the replica answered. */
export type Try = { attempt: string; port: number; error: string };

/** Starts Caddy in front of these ports, with certificates of its own authority. Throws one sentence when it is not installed. */
export async function startCaddy(upstreams: Upstreams) {
  if (!existsSync(PROGRAM))
    throw new Error(`The test of the topology needs a real Caddy, and there is none here: apt-get install caddy`);
  for (let triesLeft = PORT_TRIES_MAX; ; triesLeft--) {
    try {
      return await startOn(await freePort(), await freePort(), upstreams);
    } catch (error) {
      // Somebody else may have taken a port in between.
      if (triesLeft === 1) throw error;
    }
  }
}

async function startOn(httpPort: number, httpsPort: number, { replicas, ask }: Upstreams) {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-caddy-"));
  const outputFile = join(folder, "output");
  const options = [
    ...["local_certs", "skip_install_trust", "admin off", "debug"],
    ...[`http_port ${httpPort}`, `https_port ${httpsPort}`],
  ];
  const server = startOwnedProcess({
    command: PROGRAM,
    args: ["run", "--config", join(REPOSITORY, "deploy/Caddyfile"), "--adapter", "caddyfile"],
    env: {
      HOME: folder,
      XDG_DATA_HOME: join(folder, "data"),
      XDG_CONFIG_HOME: join(folder, "config"),
      TOLLGATE_REPLICAS: replicas.map((port) => `127.0.0.1:${port}`).join(" "),
      TOLLGATE_ASK: ask,
      CADDY_OPTIONS: options.join("\n"),
    },
    outputFile,
    stopSignal: "SIGTERM",
  });
  const logged = () => readFileSync(outputFile, "utf8");
  const stop = () => server.stop().finally(() => rmSync(folder, { recursive: true, force: true }));
  const rootFile = join(folder, "data/caddy/pki/authorities/local/root.crt");
  const endsAt = performance.now() + START_MS_MAX;
  while (!(logged().includes("serving initial configuration") && existsSync(rootFile) && (await listens(httpsPort)))) {
    if (server.hasExited() || performance.now() > endsAt) {
      const output = logged().trim().split("\n").slice(-3).join(" ");
      await stop();
      throw new Error(`Caddy did not start on ports ${httpPort} and ${httpsPort}: ${output}`);
    }
    await sleep(POLL_MS);
  }
  const root = readFileSync(rootFile, "utf8");
  return {
    httpPort,
    httpsPort,
    logged,
    stop,
    /** Every try at a replica of requests with an `x-attempt`, in the order in which they ended. */
    tries: () => triesIn(logged()),
    /** A handshake with this name (none: no SNI). Resolves with the certificate's facts; rejects where it is refused. */
    handshake: (name: string | undefined) => shakeHands({ port: httpsPort, ca: root, name }),
    /** A connection for many requests, by HTTP/2. The caller destroys it. */
    openHttp2(name: string) {
      const socket = () =>
        tls.connect({ host: "127.0.0.1", port: httpsPort, ca: root, servername: name, ALPNProtocols: ["h2"] });
      return http2.connect(`https://${name}`, { createConnection: socket });
    },
    /** One request over a connection of its own. */
    open: (name: string, request: TlsRequest) => openTlsCall({ port: httpsPort, ca: root, name }, request),
    /** Bytes over a connection of their own, as they are. */
    openRaw: (name: string, parts: readonly string[]) => openRawCall({ port: httpsPort, ca: root, name }, parts),
    /** The same, read until the connection is closed: the first answer, and all that came. */
    raw: (name: string, parts: readonly string[]) => openRawCall({ port: httpsPort, ca: root, name }, parts).ended,
  };
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true));
    socket.once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}

function triesIn(log: string): Try[] {
  const tries: Try[] = [];
  for (const line of log.split("\n")) {
    if (!line.includes('"msg":"upstream roundtrip"')) continue;
    const entry: { upstream?: string; error?: string; request?: { headers?: Record<string, string[]> } } =
      JSON.parse(line);
    const attempt = entry.request?.headers?.["X-Attempt"]?.[0];
    if (attempt === undefined) continue;
    tries.push({ attempt, port: Number(entry.upstream?.split(":")[1]), error: entry.error ?? "" });
  }
  return tries;
}

type TlsTarget = { port: number; ca: string; name: string | undefined };

function shakeHands({ port, ca, name }: TlsTarget): Promise<{ names: string; issuer: string }> {
  return new Promise((resolve, reject) => {
    // Without a name there is none to check the certificate against: only whether one is shown counts.
    const options = name === undefined ? { rejectUnauthorized: false } : { servername: name };
    const socket = tls.connect({ host: "127.0.0.1", port, ca, ...options }, () => {
      const { subjectaltname = "", issuer } = socket.getPeerCertificate();
      socket.destroy();
      resolve({ names: subjectaltname, issuer: String(issuer?.CN) });
    });
    socket.once("error", reject);
  });
}

export type TlsRequest = {
  method?: string;
  path: string;
  headers?: Record<string, string>;
  body?: string;
  /** The client's own address, of loopback. */
  from?: string;
};
export type TlsCall = ReturnType<typeof openTlsCall>;
/** `whole`: the answer came to the end that its framing promised. */
export type TlsAnswer = { status: number; headers: Headers; text: string; whole: boolean };

function openTlsCall({ port, ca, name }: TlsTarget, { method, path, headers = {}, body, from }: TlsRequest) {
  const fields: Record<string, string> = { host: String(name), connection: "close", ...headers };
  if (body !== undefined && !("transfer-encoding" in fields))
    fields["content-length"] = String(Buffer.byteLength(body));
  const head = [
    `${method ?? (body === undefined ? "GET" : "POST")} ${path} HTTP/1.1`,
    ...Object.entries(fields).map(([field, value]) => `${field}: ${value}`),
  ].join("\r\n");
  let got = Buffer.alloc(0);
  let failure: Error | undefined;
  const { promise: ended, resolve } = Promise.withResolvers<TlsAnswer>();
  // Node takes what its types leave out: whence to connect.
  const options = { host: "127.0.0.1", port, ca, servername: String(name), ...(from && { localAddress: from }) };
  const socket = tls.connect(options, () => socket.write(`${head}\r\n\r\n${body ?? ""}`));
  const timer = setTimeout(() => socket.destroy(new Error(`no end after ${CALL_MS_MAX} ms`)), CALL_MS_MAX);
  socket.on("data", (bytes: Buffer) => {
    got = Buffer.concat([got, bytes]);
  });
  socket.on("error", (error) => {
    failure = error;
  });
  socket.on("close", () => {
    clearTimeout(timer);
    const answer = readAnswer(got);
    if (answer.status === 0 && failure) answer.text = String(failure);
    resolve(answer);
  });
  return {
    /** The answer so far. */
    sofar: () => readAnswer(got),
    /** Resolves when the connection is closed, by whomever. Never rejects: status 0 is no answer. */
    ended,
    leave: () => socket.destroy(),
  };
}

/** `raw` is all that came; the rest is the first answer in it. */
export type RawAnswer = TlsAnswer & { raw: string };

function openRawCall({ port, ca, name }: TlsTarget, parts: readonly string[]) {
  let got = Buffer.alloc(0);
  const { promise: ended, resolve } = Promise.withResolvers<RawAnswer>();
  const socket = tls.connect({ host: "127.0.0.1", port, ca, servername: String(name) }, () => {
    for (const part of parts) socket.write(part);
  });
  const timer = setTimeout(() => socket.destroy(), CALL_MS_MAX);
  socket.on("data", (bytes: Buffer) => {
    got = Buffer.concat([got, bytes]);
  });
  socket.on("error", () => {}); // "close" follows.
  socket.on("close", () => {
    clearTimeout(timer);
    resolve({ ...readAnswer(got), raw: got.toString() });
  });
  return { ended, sofar: () => got.toString(), send: (text: string) => socket.write(text) };
}

function readAnswer(bytes: Buffer): TlsAnswer {
  const end = bytes.indexOf("\r\n\r\n");
  const [line = "", ...fields] = bytes.subarray(0, Math.max(0, end)).toString().split("\r\n");
  const headers = new Headers(
    fields.map((field): [string, string] => [field.split(":", 1)[0] ?? "", field.slice(field.indexOf(":") + 1).trim()]),
  );
  const status = Number(line.split(" ")[1] ?? 0);
  const rest = bytes.subarray(end + 4);
  if (headers.get("transfer-encoding") === "chunked") return { status, headers, ...joinChunks(rest) };
  const length = headers.get("content-length");
  return {
    status,
    headers,
    text: rest.toString(),
    whole: end >= 0 && length !== null && rest.length === Number(length),
  };
}

function joinChunks(bytes: Buffer): { text: string; whole: boolean } {
  const parts: Buffer[] = [];
  const done = (whole: boolean) => ({ text: Buffer.concat(parts).toString(), whole });
  for (let at = 0; ; ) {
    const lineEnd = bytes.indexOf("\r\n", at);
    if (lineEnd < 0) return done(false);
    const size = Number.parseInt(bytes.subarray(at, lineEnd).toString(), 16);
    if (size === 0) return done(true);
    const part = bytes.subarray(lineEnd + 2, lineEnd + 2 + size);
    parts.push(part);
    if (part.length < size) return done(false);
    at = lineEnd + 2 + size + 2;
  }
}
