import { existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../src/demo/free_port.ts";
import { startOwnedProcess } from "../src/demo/postgres/owned_process.ts";
import { type Contender, type Provider, until } from "./contenders.ts";
import { isPeer, MODEL, type PeerName } from "./workloads.ts";

/**
 * Other open-source gateways, for comparison: `bun run bench --peers`. Each is installed on first use into a folder of its own,
 * which git ignores; none is a dependency of the project. WORK in `bench/workloads.ts` says what each does for a request.
 */

const FOLDER = join(import.meta.dirname, "../.cache/bench-peers");
/** Written last, so a folder without it is an installation that was interrupted. */
const INSTALLED_MARK = ".installed";
const INSTALL_MS_MAX = 10 * 60_000;
const PROGRESS_MS = 20_000;
const REASON_CHARACTERS_MAX = 300;
/** LiteLLM imports its libraries for half a minute on a busy machine. */
const START_MS_MAX = 120_000;
const READY_CALL_MS_MAX = 2_000;
const LITELLM_WORKERS = "2";
const WORKER_CHECK_SECONDS = "60";

type Program = { command: string; args: string[]; env: Record<string, string> };

type Peer = {
  /** Its name at npm or PyPI, and its exact version. */
  packageName: string;
  version: string;
  /** The commands that install it into `folder`. Throws one sentence when this machine lacks a program for it. */
  install(folder: string, peer: Peer): string[][];
  /** How it is run. `folder` has the installation, `runFolder` its configuration and log. */
  program(place: { folder: string; runFolder: string; port: number; providerUrl: string }): Program;
  /** Answers 200 once it accepts requests; does not call the provider. */
  readyPath: string;
  /** Headers that a client must send besides the usual ones. */
  headers(providerUrl: string): Record<string, string>;
};

const PEERS: Readonly<Record<PeerName, Peer>> = {
  portkey: {
    packageName: "@portkey-ai/gateway",
    version: "1.15.2",
    install: installPortkey,
    program: portkeyProgram,
    readyPath: "/",
    headers: (providerUrl) => ({ "x-portkey-provider": "openai", "x-portkey-custom-host": providerUrl }),
  },
  litellm: {
    packageName: "litellm[proxy]",
    version: "1.93.0",
    install: installLiteLlm,
    program: liteLlmProgram,
    readyPath: "/health/liveliness",
    headers: () => ({}),
  },
};

/** Installs the peers among `names` that are not installed yet. Returns a sentence for each that this machine cannot install. */
export async function installPeers(
  names: readonly string[],
  say: (line: string) => void,
): Promise<Map<PeerName, string>> {
  const missing = new Map<PeerName, string>();
  for (const name of names.filter(isPeer)) {
    try {
      await installPeer(name, say);
    } catch (error) {
      missing.set(name, `${name} is left out: ${messageOf(error)}`);
    }
  }
  return missing;
}

/** Starts an installed peer on a free port of 127.0.0.1. Throws one sentence when it does not answer in time. */
export async function startPeer(name: PeerName, provider: Provider): Promise<Contender> {
  const peer = PEERS[name];
  const runFolder = mkdtempSync(join(tmpdir(), `tollgate-bench-${name}-`));
  const outputFile = join(runFolder, "output.log");
  const port = await freePort();
  const providerUrl = `http://127.0.0.1:${provider.port}/v1`;
  const { command, args, env } = peer.program({ folder: folderOf(name), runFolder, port, providerUrl });
  const server = startOwnedProcess({
    command,
    args,
    env: { PATH: process.env.PATH ?? "", HOME: runFolder, ...env },
    cwd: runFolder,
    outputFile,
    stopSignal: "SIGTERM",
  });
  const stop = async () => {
    await server.stop();
    killGroup(server.pid);
    rmSync(runFolder, { recursive: true, force: true });
  };
  try {
    await until(
      () => answers(`http://127.0.0.1:${port}${peer.readyPath}`),
      () => (server.hasExited() ? `${name} did not start: ${lastLine(outputFile)}` : undefined),
      START_MS_MAX,
    );
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    name,
    port,
    host: `127.0.0.1:${port}`,
    headers: peer.headers(providerUrl),
    pid: server.pid,
    shop: null,
    stop,
  };
}

async function installPeer(name: PeerName, say: (line: string) => void): Promise<void> {
  const peer = PEERS[name];
  const release = `${peer.packageName} ${peer.version}`;
  const folder = folderOf(name);
  if (existsSync(join(folder, INSTALLED_MARK))) return;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  say(`${name}: installing ${release} into ${folder}`);
  const beganMs = performance.now();
  const seconds = () => `${Math.round((performance.now() - beganMs) / 1000)} s`;
  const progress = setInterval(() => say(`${name}: still installing, ${seconds()}`), PROGRESS_MS);
  try {
    for (const command of peer.install(folder, peer)) await run(command, folder);
    writeFileSync(join(folder, INSTALLED_MARK), `${release}\n`);
  } finally {
    clearInterval(progress);
  }
  say(`${name}: installed in ${seconds()}`);
}

/** Runs one command of an installation. Throws its last line of output when it fails. */
async function run(command: string[], cwd: string): Promise<void> {
  const logFile = join(cwd, "install.log");
  const log = openSync(logFile, "a");
  const child = Bun.spawn(command, { cwd, stdio: ["ignore", log, log], timeout: INSTALL_MS_MAX });
  if ((await child.exited) === 0) return;
  const why = child.signalCode === null ? lastLine(logFile) : `stopped by ${child.signalCode}`;
  throw new Error(`its installation failed: ${why}`);
}

/** Its package allows any 1.x of @hono/node-server, but its streams fail with versions after 1.13.8. */
function installPortkey(folder: string, { packageName, version }: Peer): string[][] {
  programOf("node");
  const manifest = {
    private: true,
    dependencies: { [packageName]: version },
    overrides: { "@hono/node-server": "1.13.8" },
  };
  writeFileSync(join(folder, "package.json"), JSON.stringify(manifest));
  return [[process.execPath, "install", "--production", "--ignore-scripts"]];
}

function portkeyProgram({ folder, runFolder, port }: { folder: string; runFolder: string; port: number }): Program {
  const loopback = join(runFolder, "loopback.mjs");
  writeFileSync(loopback, LOOPBACK_ONLY);
  const entry = join(folder, "node_modules/@portkey-ai/gateway/build/start-server.js");
  return {
    command: programOf("node"),
    args: ["--import", loopback, entry, `--port=${port}`, "--headless"],
    env: { NODE_ENV: "production", TRUSTED_CUSTOM_HOSTS: "127.0.0.1" },
  };
}

/** Portkey has no setting for the address that it listens on. */
const LOOPBACK_ONLY = `import { Server } from "node:net";
const { listen } = Server.prototype;
Server.prototype.listen = function (port, host, ...rest) {
  return listen.call(this, port, host ?? "127.0.0.1", ...rest);
};
`;

function installLiteLlm(folder: string, { packageName, version }: Peer): string[][] {
  const pip = [join(folder, "venv/bin/python"), "-m", "pip", "install", "--no-input", "--quiet"];
  return [
    [programOf("python3"), "-m", "venv", join(folder, "venv")],
    [...pip, `${packageName}==${version}`],
  ];
}

type LiteLlmPlace = { folder: string; runFolder: string; port: number; providerUrl: string };

/** Stateless: no database, no key of its own, no retries, nothing read from the internet. */
function liteLlmProgram({ folder, runFolder, port, providerUrl }: LiteLlmPlace): Program {
  const config = join(runFolder, "config.yaml");
  // JSON is YAML.
  const route = { model: `openai/${MODEL}`, api_base: providerUrl, api_key: "sk-bench", max_retries: 0 };
  const settings = {
    model_list: [{ model_name: MODEL, litellm_params: route }],
    litellm_settings: { telemetry: false, num_retries: 0 },
    router_settings: { num_retries: 0, disable_cooldowns: true },
  };
  writeFileSync(config, JSON.stringify(settings));
  const listen = ["--host", "127.0.0.1", "--port", String(port), "--num_workers", LITELLM_WORKERS];
  return {
    command: join(folder, "venv/bin/litellm"),
    args: ["--config", config, ...listen, "--timeout_worker_healthcheck", WORKER_CHECK_SECONDS],
    env: { LITELLM_LOCAL_MODEL_COST_MAP: "True", LITELLM_LOG: "ERROR" },
  };
}

function folderOf(name: PeerName): string {
  return join(FOLDER, `${name}-${PEERS[name].version}`);
}

/** Throws one sentence when it is not on the PATH. */
function programOf(name: string): string {
  const path = Bun.which(name);
  if (path === null) throw new Error(`there is no ${name} on this machine.`);
  return path;
}

async function answers(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(READY_CALL_MS_MAX) });
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false; // It does not listen yet.
  }
}

/** Kills the workers that outlived their parent: they are in the process group that it led. */
function killGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // None did.
  }
}

function lastLine(file: string): string {
  const text = existsSync(file) ? readFileSync(file, "utf8").trim() : "";
  return text.slice(text.lastIndexOf("\n") + 1).slice(0, REASON_CHARACTERS_MAX);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
