import { fstatSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { parseArgs } from "node:util";
import { type Api, answer, jsonReply, MODELS } from "./api.ts";
import { answerControl, type Controlled, reset } from "./control.ts";
import { type Behaviour, Behaviours, type CallPredicate, spoils } from "./faults.ts";
import { ImageStore } from "./images.ts";
import { type Call, type Counters, Journal } from "./journal.ts";
import { ProviderError } from "./request.ts";
import { deliver, deliverAtOnce, Line, spoilReply } from "./wire.ts";

const BODY_BYTES_MAX = 64 * 1024 * 1024;
/** Longer than any client's, so that a kept connection is closed by the client and no call meets a closing socket. */
const KEEP_ALIVE_MS = 10 * 60_000;

export interface SimulatedProviderOptions {
  /** 0, the default: any free one. */
  port?: number;
  /** A token takes this long: waited before each chunk of a stream, and for all its tokens before a JSON answer. Default 0. */
  paceMs?: number;
  /** What a picture takes. Default 0. */
  imageDelayMs?: number;
  /** The Bearer key that is asked for; without it any caller is served. */
  apiKey?: string;
  /** The model ids that exist, `any` for all. With `image` in it an id makes pictures, with `reason` it thinks aloud. */
  models?: readonly string[] | "any";
  /** The behaviours of the first calls, as if given to `next` one by one. */
  script?: readonly Behaviour[];
  /** Opens `/__journal`, `/__reset` and `/__behave` to anybody on this machine. Default false. */
  control?: boolean;
  journalCallsMax?: number;
  /** Unix milliseconds. This is somebody else's server, with a clock of its own. */
  now?: () => number;
}

export interface SimulatedProvider {
  /** `http://127.0.0.1:port` */
  readonly url: string;
  /** `url` with `/v1`: what a client takes as its base URL. */
  readonly baseUrl: string;
  readonly port: number;
  /** Stops listening and closes every connection, answered or not. */
  stop(): Promise<void>;
  /** Calls with an id above `after`, oldest first. The entries are live. */
  calls(after?: number): Readonly<Call>[];
  call(id: number): Readonly<Call> | undefined;
  counters(): Readonly<Counters>;
  next(behaviour: Behaviour): void;
  always(behaviour: Behaviour | undefined): void;
  when(predicate: CallPredicate, behaviour: Behaviour): void;
  /** Forgets calls, counts and behaviours. */
  reset(): void;
}

/**
 * Starts a provider of AI models that has no model: it speaks the OpenAI API on 127.0.0.1 and answers with made-up stories and drawn pictures.
 * It records what it receives, and misbehaves when asked to. Rejects when the port is taken.
 */
export async function startSimulatedProvider(options: SimulatedProviderOptions = {}): Promise<SimulatedProvider> {
  const now = options.now ?? Date.now;
  const room: Room = {
    paceMs: options.paceMs ?? 0,
    imageDelayMs: options.imageDelayMs ?? 0,
    apiKey: options.apiKey,
    models: options.models ?? MODELS,
    control: options.control ?? false,
    journal: new Journal(now, options.journalCallsMax),
    behaviours: new Behaviours(options.script),
    images: new ImageStore(),
    prepared: new Map(),
    url: "",
  };
  const server = createServer((request, response) => void serve(room, request, response));
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.requestTimeout = 0; // A slow or hanging call is the caller's to end: that is what is being tested.
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, "127.0.0.1", 4_096, resolve);
  });
  const { port } = server.address() as AddressInfo;
  room.url = `http://127.0.0.1:${port}`;

  return {
    url: room.url,
    baseUrl: `${room.url}/v1`,
    port,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
    calls: (after) => room.journal.list(after),
    call: (id) => room.journal.get(id),
    counters: () => room.journal.counters(),
    next: (behaviour) => room.behaviours.next(behaviour),
    always: (behaviour) => room.behaviours.always(behaviour),
    when: (predicate, behaviour) => room.behaviours.when(predicate, behaviour),
    reset: () => reset(room),
  };
}

/** What one running provider consists of. */
interface Room extends Api, Controlled {
  readonly control: boolean;
}

/** The way of one call: journal → body → answer → behaviour → delivery. Never rejects. */
async function serve(room: Room, request: IncomingMessage, response: ServerResponse): Promise<void> {
  request.on("error", () => {}); // A caller that leaves while it sends: "close" tells.
  const path = (request.url ?? "/").split("?", 1)[0] ?? "/";
  if (room.control && path.startsWith("/__")) {
    const body = await readBody(request).catch(() => null);
    return body === null ? void response.destroy() : answerControl(room, request, response, body);
  }

  const { call, close } = room.journal.open(request.method ?? "GET", path, request.headers);
  let spoiled = false;
  const line = new Line(response, ({ broken }) => {
    if (broken) close("faulted");
    else if (!response.writableFinished) close("aborted");
    else close(spoiled ? "faulted" : "complete");
  });
  if (room.behaviours.takeUnreadHang(call)) return line.hang();
  try {
    const body = await readBody(request);
    if (body === null) return; // The caller left before it had sent everything.
    room.journal.setBody(call, body);
    const behaviour = room.behaviours.take(call);
    const reply = answer(room, call, behaviour);
    if (!behaviour && reply.paceMs === 0 && !reply.stream) return deliverAtOnce(line, reply, call);
    spoiled = behaviour !== undefined && spoils(behaviour);
    await deliver(line, behaviour ? spoilReply(reply, behaviour) : reply, call, behaviour ?? {});
  } catch (error) {
    const failure =
      error instanceof ProviderError ? error : new ProviderError(500, `The simulated provider crashed: ${error}`);
    if (response.headersSent) response.destroy();
    else deliverAtOnce(line, jsonReply(call, failure.body(), failure.status), call);
  }
}

/** The body as text; null when the caller left before its end. Throws ProviderError 413. */
function readBody(request: IncomingMessage): Promise<string | null> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    let bytes = 0;
    request.on("data", (part: Buffer) => {
      bytes += part.length;
      if (bytes > BODY_BYTES_MAX) reject(new ProviderError(413, "The request is too large."));
      else parts.push(part);
    });
    request.once("end", () => resolve(parts.length === 1 ? String(parts[0]) : Buffer.concat(parts).toString()));
    request.once("close", () => resolve(null));
  });
}

/** Runs as a process of its own until it is told to stop, or until whoever started it is gone and its end of stdin with it. */
async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      port: { type: "string", default: "0" },
      "pace-ms": { type: "string", default: "0" },
      "image-delay-ms": { type: "string", default: "0" },
      "api-key": { type: "string" },
      models: { type: "string" },
      control: { type: "boolean", default: false },
    },
  });
  const provider = await startSimulatedProvider({
    port: Number(values.port),
    paceMs: Number(values["pace-ms"]),
    imageDelayMs: Number(values["image-delay-ms"]),
    apiKey: values["api-key"],
    models: values.models === "any" ? "any" : values.models?.split(","),
    control: values.control,
  });
  const end = () => void provider.stop().then(() => process.exit(0));
  process.once("SIGTERM", end);
  process.once("SIGINT", end);
  // Only a pipe can tell that a parent has died; a terminal or /dev/null says "end" or nothing for reasons of its own.
  const stdin = fstatSync(0);
  if (stdin.isFIFO() || stdin.isSocket()) process.stdin.once("end", end).once("close", end).resume();
  const { url, baseUrl, port } = provider;
  console.log(JSON.stringify({ url, baseUrl, port, pid: process.pid }));
}

if (import.meta.main) await main();
