import { fstatSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { parseArgs } from "node:util";
import { type Api, jsonReply, MODELS, replyTo } from "./api.ts";
import { type Controlled, reset, serveControl } from "./control.ts";
import { changeReply, type Later, later, ReplyWriter, type Waits, writeReply, writeWhole } from "./delivery.ts";
import { playedBy } from "./dialects.ts";
import { type Behaviour, Behaviours, type CallPredicate, isFaulty } from "./faults.ts";
import { ImageStore } from "./images.ts";
import { type Call, type Counters, Journal } from "./journal.ts";
import { ProviderError } from "./request.ts";

const BODY_BYTES_MAX = 64 * 1024 * 1024;
/** Longer than any client's, so that the client closes an idle connection and no call meets a closing socket. */
const KEEP_ALIVE_MS = 10 * 60_000;

export interface SimulatedProviderOptions {
  /** Default 0: any free port. */
  port?: number;
  /** Time per token: waited before each chunk of a stream, and for all tokens together before a JSON answer. Default 0. */
  paceMs?: number;
  /** Wait before an image answer. Default 0. */
  imageDelayMs?: number;
  /** The required Bearer key. Without it, every caller is served. */
  apiKey?: string;
  /** Further keys that are accepted. */
  moreKeys?: readonly string[];
  /** The model ids that exist; `any`: all. Ids that contain `image` produce images; those that contain `reason` send reasoning. */
  models?: readonly string[] | "any";
  /** The provider that it plays: it refuses what that one refuses, in its words. A name of dialects.ts. Default: it takes everything. */
  dialect?: string;
  /** The behaviours of the first calls, as if passed to `next` one by one. */
  script?: readonly Behaviour[];
  /** Serves `/__journal`, `/__reset` and `/__behave` to every process of this machine. Default false. */
  control?: boolean;
  journalCallsMax?: number;
  /** Clock in Unix milliseconds. Default: this machine's clock, because a provider has its own. */
  now?: () => number;
  /** Timers of its delays. Default: this machine's. */
  later?: Later;
}

export interface SimulatedProvider {
  /** `http://127.0.0.1:port` */
  readonly url: string;
  /** `url` with `/v1`: the base URL for clients. */
  readonly baseUrl: string;
  readonly port: number;
  /** Stops listening and closes every connection, including open calls. */
  stop(): Promise<void>;
  /** Calls with an id above `after`, oldest first. The entries are live objects. */
  calls(after?: number): Readonly<Call>[];
  call(id: number): Readonly<Call> | undefined;
  counters(): Readonly<Counters>;
  next(behaviour: Behaviour): void;
  always(behaviour: Behaviour | undefined): void;
  when(predicate: CallPredicate, behaviour: Behaviour): void;
  /** Lets every answer pass whose behaviour waits at this gate, or will. */
  open(gate: string): void;
  /** Forgets calls, counts, behaviours and open gates. */
  reset(): void;
}

/**
 * Starts a simulated provider of AI models: it serves the OpenAI API on 127.0.0.1 and answers with made-up stories and drawn
 * images. It records every call, and fails in configured ways (faults.ts). Rejects if the port is taken.
 */
export async function startSimulatedProvider(options: SimulatedProviderOptions = {}): Promise<SimulatedProvider> {
  const now = options.now ?? Date.now;
  const behaviours = new Behaviours(options.script);
  const state: State = {
    paceMs: options.paceMs ?? 0,
    imageDelayMs: options.imageDelayMs ?? 0,
    apiKeys: options.apiKey === undefined ? undefined : [options.apiKey, ...(options.moreKeys ?? [])],
    models: options.models ?? MODELS,
    played: options.dialect === undefined ? undefined : playedBy(options.dialect),
    control: options.control ?? false,
    waits: { later: options.later ?? later, isOpen: (gate) => behaviours.isOpen(gate) },
    journal: new Journal(now, options.journalCallsMax),
    behaviours,
    images: new ImageStore(),
    cache: new Map(),
    url: "",
  };
  const server = createServer((request, response) => void serve(state, request, response));
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.requestTimeout = 0; // The caller must end a slow or hanging call: tests check that.
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, "127.0.0.1", 4_096, resolve);
  });
  const { port } = server.address() as AddressInfo;
  state.url = `http://127.0.0.1:${port}`;

  return {
    url: state.url,
    baseUrl: `${state.url}/v1`,
    port,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
    calls: (after) => state.journal.list(after),
    call: (id) => state.journal.get(id),
    counters: () => state.journal.counters(),
    next: (behaviour) => behaviours.next(behaviour),
    always: (behaviour) => behaviours.always(behaviour),
    when: (predicate, behaviour) => behaviours.when(predicate, behaviour),
    open: (gate) => behaviours.open(gate),
    reset: () => reset(state),
  };
}

/** Settings, stores and journal of one running provider. */
interface State extends Api, Controlled {
  readonly control: boolean;
  readonly waits: Waits;
}

/** One call: journal → body → behaviour → reply → write. Never rejects. */
async function serve(state: State, request: IncomingMessage, response: ServerResponse): Promise<void> {
  request.on("error", () => {}); // The caller left while sending: "close" handles it.
  const path = (request.url ?? "/").split("?", 1)[0] ?? "/";
  if (state.control && path.startsWith("/__")) {
    const body = await readBody(request).catch(() => null);
    return body === null ? void response.destroy() : serveControl(state, request, response, body);
  }

  const { call, close } = state.journal.open(request.method ?? "GET", path, request.headers);
  let faulty = false;
  const writer = new ReplyWriter(response, state.waits, ({ isCut, bytesSent }) => {
    call.bytesSent = bytesSent;
    if (isCut) close("faulted");
    else if (!response.writableFinished) close("aborted");
    else close(faulty ? "faulted" : "complete");
  });
  if (state.behaviours.takeUnreadHang(call)) return writer.hang();
  try {
    const body = await readBody(request);
    if (body === null) return; // The caller left before the end of its body.
    state.journal.setBody(call, body);
    const behaviour = state.behaviours.take(call);
    const reply = replyTo(state, call, behaviour);
    if (!behaviour && reply.paceMs === 0 && !reply.stream) return writeWhole(writer, reply, call);
    faulty = behaviour !== undefined && isFaulty(behaviour);
    await writeReply(writer, behaviour ? changeReply(reply, behaviour) : reply, call, behaviour ?? {});
  } catch (error) {
    const failure =
      error instanceof ProviderError ? error : new ProviderError(500, `The simulated provider crashed: ${error}`);
    if (response.headersSent) response.destroy();
    else writeWhole(writer, jsonReply(call, failure.body(), failure.status), call);
  }
}

/** The body as text; null if the caller left before its end. Throws ProviderError 413. */
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

/** Runs as a process until a stop signal, or until its parent ends, which closes stdin. */
async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      port: { type: "string", default: "0" },
      "pace-ms": { type: "string", default: "0" },
      "image-delay-ms": { type: "string", default: "0" },
      "api-key": { type: "string" },
      models: { type: "string" },
      dialect: { type: "string" },
      control: { type: "boolean", default: false },
    },
  });
  const provider = await startSimulatedProvider({
    port: Number(values.port),
    paceMs: Number(values["pace-ms"]),
    imageDelayMs: Number(values["image-delay-ms"]),
    apiKey: values["api-key"],
    models: values.models === "any" ? "any" : values.models?.split(","),
    dialect: values.dialect,
    control: values.control,
  });
  const end = () => void provider.stop().then(() => process.exit(0));
  process.once("SIGTERM", end);
  process.once("SIGINT", end);
  // Only the end of a pipe means that the parent has ended: a terminal or /dev/null may end at any time or never.
  const stdin = fstatSync(0);
  if (stdin.isFIFO() || stdin.isSocket()) process.stdin.once("end", end).once("close", end).resume();
  const { url, baseUrl, port } = provider;
  console.log(JSON.stringify({ url, baseUrl, port, pid: process.pid }));
}

if (import.meta.main) await main();
