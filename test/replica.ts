import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** A replica as it runs in production: a process of its own, spoken to over a socket. */
export type ReplicaProcess = {
  /** http://localhost:port */
  origin: string;
  port: number;
  process: ChildProcess;
  /** Its log so far. */
  logged(): string;
  /** Sends SIGTERM and waits; the exit code. */
  stop(): Promise<number>;
  /** SIGKILL. */
  kill(): Promise<void>;
};

export const TEST_SECRET_KEY = randomBytes(32).toString("base64");
const READY_MS_MAX = 30_000;
const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));

/** Starts src/main.ts and waits until it listens. Rejects with its output if it does not. */
export async function startReplicaProcess(
  env: Record<string, string>,
  command: string[] = [process.execPath, MAIN],
): Promise<ReplicaProcess> {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    env: {
      PATH: process.env.PATH ?? "",
      HOME: process.env.HOME ?? "/tmp",
      PORT: "0",
      LISTEN_HOST: "127.0.0.1",
      SECRET_KEY: TEST_SECRET_KEY,
      BASE_URL: "http://api.tollgate.test/v1",
      ALIAS_URL: "http://tollgate.test/v1",
      PANEL_URL: "http://panel.tollgate.test",
      DB_POOL_MAX: "5",
      LEDGER_LANES: "2",
      ...env,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const exited = new Promise<number>((resolve) =>
    child.once("exit", (code, signal) => resolve(code ?? (signal ? 128 : 0))),
  );
  child.stderr.on("data", (bytes) => {
    output += bytes;
  });
  const port = await new Promise<number>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`the replica does not listen:\n${output}`)), READY_MS_MAX);
    exited.then((code) => reject(new Error(`the replica exited with ${code}:\n${output}`)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      output += `${line}\n`;
      const match = /"port":(\d+).*"message":"listening"/.exec(line);
      if (!match) return;
      clearTimeout(timer);
      resolve(Number(match[1]));
    });
  });
  return {
    origin: `http://localhost:${port}`,
    port,
    process: child,
    logged: () => output,
    stop() {
      child.kill("SIGTERM");
      return exited;
    },
    async kill() {
      child.kill("SIGKILL");
      await exited;
    },
  };
}
