import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, connect as dial, type Server as SocketServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { type Config, ConfigError } from "./config.ts";
import type { Log } from "./platform/log.ts";
import { merged } from "./platform/merged_metrics.ts";
import { ownCommand, runtimeName, type Server } from "./platform/runtime.ts";
import { listen } from "./server/listen.ts";

/**
 * Several replicas on one machine, each a process of its own (PROCESSES): they share the public port, and the kernel spreads connections over
 * them. The first process serves no requests. It starts the others, starts one again that has died, replaces them one by one on SIGHUP, drains
 * all of them on SIGTERM, and serves one internal port for all. Source: PRC-1, PRC-2, PRC-3.
 */

/** A process that died is started again after this; twice as long each time it dies soon after its start. */
const RESTART_MS = 1_000;
const RESTART_MS_MAX = 30_000;
/** A process that ran for this long has started well. */
const WELL_MS = 60_000;
/** Longest wait for the answer of one process on its internal port. */
const ASK_MS_MAX = 5_000;

type Child = {
  number: number;
  process: ChildProcess;
  startedMs: number;
  /** Of its internal listener; undefined: it does not serve yet. */
  internalPort: number | undefined;
  /** Whether it serves; false: it has exited before. */
  ready: Promise<boolean>;
  /** Its exit code. */
  exited: Promise<number>;
  /** Replaces it: its exit is no failure. */
  successor: Child | undefined;
};

/** Runs the processes until a signal; returns the exit code: 0 if each of them exited with 0. Throws ConfigError. */
export async function runProcesses(config: Config, log: Log): Promise<number> {
  await checkPort(config, log);
  const processes = new Processes(config, log);
  // From the beginning: PID 1 of a container ignores signals that it does not handle.
  process.on("SIGHUP", () => void processes.replaceAll());
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => processes.stop(signal));
  const internal = serveInternal({ config, log, processes });
  const codes = await processes.run();
  await internal?.closeNow();
  processes.close();
  return codes.every((code) => code === 0) ? 0 : 1;
}

class Processes {
  readonly #config: Config;
  readonly #log: Log;
  readonly #folder: string;
  readonly #door: SocketServer;
  /** By number: the one that counts. A process that is being replaced is in `#alive` only. */
  readonly #children = new Map<number, Child>();
  readonly #alive = new Map<number, Child>();
  #stopping = false;
  readonly #stopped = Promise.withResolvers<void>();
  #replacing = false;
  /** Whether all have served once. Before, one that exits ends all: its configuration is wrong. */
  #started = false;

  constructor(config: Config, log: Log) {
    this.#config = config;
    this.#log = log;
    // The only folder that can be written to in a container. The spool leaves other names alone.
    this.#folder = mkdtempSync(join(config.spoolDir, "processes-"));
    this.#door = createServer((socket) => {
      // Open for as long as the process runs. It notices by it that this process has died.
      socket.on("error", () => {});
      let text = "";
      socket.setEncoding("utf8").on("data", (chunk) => {
        text += chunk;
        if (!text.includes("\n")) return;
        const { pid, internalPort } = JSON.parse(text);
        const child = this.#alive.get(pid);
        if (child) child.internalPort = internalPort;
        child?.process.emit("serves");
      });
    });
  }

  /** Resolves with the exit codes when all have exited for good. */
  async run(): Promise<number[]> {
    const { processes, port, internalPort } = this.#config;
    await new Promise<void>((resolve, reject) => {
      this.#door.once("error", reject);
      this.#door.listen(this.#socketPath, resolve);
    });
    if (this.#stopping) return [];
    const numbers = Array.from({ length: processes }, (_, i) => i + 1);
    const kept = Promise.all(numbers.map((number) => this.#keep(number)));
    void Promise.all([...this.#children.values()].map(({ ready }) => ready)).then((all) => {
      this.#started = all.every(Boolean);
      if (this.#started) this.#log.info({ port, internalPort, processes, pid: process.pid }, "listening");
    });
    return await kept;
  }

  /** Drains all. Each exits at once if the signal comes again. */
  stop(signal: NodeJS.Signals): void {
    if (!this.#stopping) this.#log.info({ signal }, "draining all processes");
    this.#stopping = true;
    this.#stopped.resolve();
    for (const child of this.#alive.values()) child.process.kill(signal);
  }

  /** Starts a new process beside each one, and drains the old one when the new one serves. Ends with the first that does not serve. */
  async replaceAll(): Promise<void> {
    if (this.#replacing || this.#stopping || !this.#started) return;
    this.#replacing = true;
    this.#log.info("replacing the processes, one by one");
    try {
      for (const number of [...this.#children.keys()]) if (!(await this.#replace(number))) return;
      this.#log.info("all processes are replaced");
    } finally {
      this.#replacing = false;
    }
  }

  /** The processes that serve, by number. */
  serving(): { number: number; internalPort: number }[] {
    return [...this.#children.values()].flatMap(({ number, internalPort, process: { pid = 0 } }) =>
      internalPort === undefined || !this.#alive.has(pid) ? [] : [{ number, internalPort }],
    );
  }

  close(): void {
    this.#door.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #replace(number: number): Promise<boolean> {
    const old = this.#children.get(number);
    const next = this.#start(number);
    if (!(await next.ready) || this.#stopping) {
      if (!this.#stopping) this.#log.error({ process: number }, "a new process does not serve: the old ones run on");
      return false;
    }
    // The old one has died meanwhile, and was started again.
    if (old === undefined || this.#children.get(number) !== old) {
      next.process.kill("SIGTERM");
      return true;
    }
    old.successor = next;
    this.#children.set(number, next);
    old.process.kill("SIGTERM");
    await old.exited;
    return true;
  }

  /** Keeps one process running. Its exit code when it is not started again. */
  async #keep(number: number): Promise<number> {
    let pauseMs = RESTART_MS;
    let child = this.#start(number);
    this.#children.set(number, child);
    for (;;) {
      const code = await child.exited;
      if (this.#stopping) return code;
      if (child.successor !== undefined) {
        child = child.successor;
        continue;
      }
      if (!this.#started) {
        this.stop("SIGTERM");
        return code;
      }
      if (performance.now() - child.startedMs > WELL_MS) pauseMs = RESTART_MS;
      this.#log.error({ process: number, code, pauseMs }, "a process has exited; it is started again");
      await Promise.race([sleep(pauseMs), this.#stopped.promise]);
      if (this.#stopping) return code;
      pauseMs = Math.min(2 * pauseMs, RESTART_MS_MAX);
      child = this.#start(number);
      this.#children.set(number, child);
    }
  }

  #start(number: number): Child {
    const [program = "", ...args] = ownCommand();
    const running = spawn(program, args, {
      env: {
        ...process.env,
        ...{ PROCESS_SOCKET: this.#socketPath, INTERNAL_PORT: "0", INTERNAL_HOST: "127.0.0.1" },
      },
      stdio: ["ignore", "inherit", "inherit"],
    });
    const exited = new Promise<number>((resolve) => {
      running.once("exit", (code) => resolve(code ?? 1));
      running.once("error", (err) => {
        this.#log.error({ err }, "a process could not be started");
        resolve(1);
      });
    });
    const serves = new Promise<boolean>((resolve) => running.once("serves", () => resolve(true)));
    const child: Child = {
      ...{ number, process: running, startedMs: performance.now(), internalPort: undefined, exited },
      ready: Promise.race([serves, exited.then(() => false)]),
      successor: undefined,
    };
    const { pid } = running;
    if (pid !== undefined) {
      this.#alive.set(pid, child);
      void exited.then(() => this.#alive.delete(pid));
    }
    return child;
  }

  get #socketPath(): string {
    return join(this.#folder, "socket");
  }
}

/**
 * Tells the first process that this one serves, and calls `onGone` when the first process has died: nobody would restart or stop this one.
 */
export function joinProcesses(socketPath: string, internalPort: number | undefined, onGone: () => void): void {
  const socket = dial(socketPath, () => socket.write(`${JSON.stringify({ pid: process.pid, internalPort })}\n`));
  socket.unref();
  socket.on("error", () => {}); // "close" follows.
  socket.once("close", onGone);
}

/** Another program that listens on the port would get a share of the connections. Throws ConfigError. */
async function checkPort(config: Config, log: Log): Promise<void> {
  if (runtimeName !== "bun" || process.platform !== "linux")
    throw new ConfigError(
      "PROCESSES: several processes can share a port only with Bun on Linux. Start several replicas behind a proxy instead.",
    );
  const { port, listenHost: hostname } = config;
  await listen({ config, log }, { variable: "PORT", port, hostname, fetch: () => new Response() }).closeNow();
}

type InternalOptions = { config: Config; log: Log; processes: Processes };

/** The internal port of all: the metrics of each process with a label that names it; otherwise what any process answers. */
function serveInternal({ config, log, processes }: InternalOptions): Server | undefined {
  const { internalPort: port, internalHost: hostname } = config;
  if (port === null) return undefined;
  const ask = ({ internalPort }: { internalPort: number }, path: string, method = "GET") =>
    fetch(`http://127.0.0.1:${internalPort}${path}`, { method, signal: AbortSignal.timeout(ASK_MS_MAX) });
  const fetchAll = async (request: Request): Promise<Response> => {
    const { pathname, search } = new URL(request.url);
    const serving = processes.serving();
    if (pathname === "/healthz") return Response.json({ status: "ok" });
    if (pathname === "/metrics") {
      const answers = await Promise.allSettled(
        serving.map(async (one) => {
          const answer = await ask(one, pathname);
          return {
            label: `process="${one.number}"`,
            text: await answer.text(),
            type: answer.headers.get("content-type"),
          };
        }),
      );
      const texts = answers.flatMap((answer) => (answer.status === "fulfilled" ? [answer.value] : []));
      return new Response(merged(texts), { headers: { "content-type": texts[0]?.type ?? "text/plain" } });
    }
    // A process that drains is not ready, and another one is.
    let answer: Response | undefined;
    for (const one of serving) {
      answer = await ask(one, `${pathname}${search}`, request.method).catch(() => answer);
      if (answer?.ok) break;
    }
    return answer ?? Response.json({ status: "not_ready", reason: "starting" }, { status: 503 });
  };
  return listen({ config, log }, { variable: "INTERNAL_PORT", port, hostname, fetch: fetchAll });
}
