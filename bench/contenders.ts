import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort, isListening } from "../src/demo/free_port.ts";
import { startOwnedProcess } from "../src/demo/postgres/owned_process.ts";
import { encrypt } from "../src/platform/crypto.ts";
import { createWorld, type ModelSpec, type World } from "../test/world.ts";
import { type Helper, startHelper } from "./helper.ts";
import type { ProviderQuestion, ProviderReady, ProviderReply } from "./provider.ts";
import { type ContenderName, MODEL, OWN_MODEL, type PeerName } from "./workloads.ts";

/** Starts the contenders, each as in production and in its own process. */

/** Accounts with a key each, unless `--accounts` says otherwise. */
export const ACCOUNTS_DEFAULT = 32;
/** The most that an offering may have. */
const DAILY_LIMIT = 1_000_000;
/** More than any run uses, even on one account. */
const TOTAL_LIMIT = 30_000_000;
const HOST = "api.example.com";
const START_MS_MAX = 30_000;
const POLL_MS = 20;
const FETCHES_MAX = "65535";
/** The peer has a connection for each account of the default, so that no account of it waits for another's transaction. */
const PEER_LANES = "32";
const NGINX_PLACES = ["/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"];

export type Contender = {
  name: ContenderName;
  port: number;
  /** The Host header it is asked with. */
  host: string;
  /** Headers of every request to it, besides the usual ones. */
  headers?: Readonly<Record<string, string>>;
  /** Its CPU and memory are the gateway's; null: there is no gateway. */
  pid: number | null;
  /** The books, for contenders that keep any. */
  shop: Shop | null;
  stop(): Promise<void>;
};

/** A database with accounts, keys and models to sell. */
export type Shop = { world: World; secrets: string[]; exhausted: string[]; databaseUrl: string };

/** The gateway's settings other than its defaults, with reasons. */
export const GATEWAY_SETTINGS: Readonly<Record<string, string>> = {
  NODE_ENV: "production",
  LISTEN_HOST: "127.0.0.1",
  PORT: "0",
  // 32 keys carry the load of thousands.
  RATE_PER_MINUTE: "100000000",
  RATE_IN_FLIGHT: "10000",
  // One account carries it, in some runs.
  RATE_ACCOUNT_PER_MINUTE: "100000000",
  RATE_TENANT_PER_MINUTE: "100000000",
  ACCOUNT_SHARE: "1",
  TENANT_SHARE: "1",
  // Client, provider, gateway and Postgres share the machine, so a replica's event loop may be late without being
  // overloaded.
  EVENT_LOOP_LAG_MAX_MS: "10000",
  LEDGER_TIMEOUT_MS: "20000",
  // There is no proxy in front that must notice.
  DRAIN_NOTICE_SECONDS: "0",
};

export type Provider = { helper: Helper<ProviderQuestion, ProviderReply>; port: number };

export async function startProvider(env: Record<string, string>): Promise<Provider> {
  const { helper, ready } = await startHelper<ProviderQuestion, ProviderReply, ProviderReady>(beside("provider"), env);
  return { helper, port: ready.port };
}

export type StartOptions = {
  provider: Provider;
  redisUrl: string;
  /** How many accounts share the load; default: ACCOUNTS_DEFAULT. */
  accounts?: number;
  /** The folder for a profile of the gateway, written when it ends. */
  profileDir?: string | undefined;
  /** Parts of the gateway's work that are left out: `bench/without.ts`. */
  without?: readonly string[];
  /** Starts the lean gateway in place of the whole one: `bench/lean.ts`. */
  isLean?: boolean;
};

/** Starts one contender. Throws one sentence when it does not come up. */
export async function startContender(
  name: Exclude<ContenderName, PeerName>,
  options: StartOptions,
): Promise<Contender> {
  switch (name) {
    case "direct":
      return { name, port: options.provider.port, host: "provider", pid: null, shop: null, stop: async () => {} };
    case "bare":
    case "bare-js":
      return startBare(name, options.provider);
    case "nginx":
      return startNginx(options.provider);
    default:
      return startGateway(name, options);
  }
}

/** The nginx of this machine; undefined: there is none. */
export function nginxProgram(): string | undefined {
  const folders = [...(process.env.PATH ?? "").split(":"), ...NGINX_PLACES];
  return folders.map((folder) => join(folder, "nginx")).find((path) => existsSync(path));
}

async function startBare(name: "bare" | "bare-js", { port }: Provider): Promise<Contender> {
  const server = await startListening(name, [beside("bare")], {
    BENCH_UPSTREAM: `http://127.0.0.1:${port}`,
    BENCH_THROUGH_JS: name === "bare-js" ? "1" : "0",
    BUN_CONFIG_MAX_HTTP_REQUESTS: FETCHES_MAX,
  });
  return { name, host: "bare", shop: null, ...server };
}

/**
 * Starts a contender that runs on Bun, and waits until its output says which port it listens on. All contenders have a session of
 * their own, as a service has: Linux shares the processors between sessions (`sched_autogroup`). In the session of client and provider, the
 * same proxy relays fast streams for much less CPU.
 */
async function startListening(
  name: ContenderName,
  args: string[],
  env: Record<string, string>,
  folder = mkdtempSync(join(tmpdir(), `tollgate-bench-${name}-`)),
): Promise<Pick<Contender, "port" | "stop"> & { pid: number }> {
  const outputFile = join(folder, "output.log");
  const server = startOwnedProcess({
    command: process.execPath,
    args,
    env: { PATH: process.env.PATH ?? "", ...env },
    outputFile,
    stopSignal: "SIGTERM",
  });
  const said = () => (existsSync(outputFile) ? readFileSync(outputFile, "utf8") : "");
  const portSaid = () => Number(/"port":(\d+).*"message":"listening"/.exec(said())?.[1] ?? 0);
  await until(
    async () => portSaid() !== 0,
    () => (server.hasExited() ? `${name} did not start: ${said()}` : undefined),
  );
  const stop = () => server.stop().finally(() => rmSync(folder, { recursive: true, force: true }));
  return { port: portSaid(), pid: server.pid, stop };
}

async function startNginx(provider: Provider): Promise<Contender> {
  const command = nginxProgram();
  if (command === undefined) throw new Error("There is no nginx on this machine.");
  const folder = mkdtempSync(join(tmpdir(), "tollgate-bench-nginx-"));
  const port = await freePort();
  const config = join(folder, "nginx.conf");
  writeFileSync(config, nginxConfig(folder, port, provider.port));
  const outputFile = join(folder, "output.log");
  const server = startOwnedProcess({
    command,
    args: ["-p", folder, "-c", config, "-e", "stderr"],
    env: { PATH: process.env.PATH ?? "" },
    outputFile,
    stopSignal: "SIGTERM",
  });
  const isUp = () => isListening("127.0.0.1", port);
  await until(isUp, () =>
    server.hasExited() ? `nginx did not start: ${readFileSync(outputFile, "utf8")}` : undefined,
  );
  const stop = () => server.stop().finally(() => rmSync(folder, { recursive: true, force: true }));
  return { name: "nginx", port, host: "nginx", pid: server.pid, shop: null, stop };
}

function nginxConfig(folder: string, port: number, providerPort: number): string {
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  return `${process.getuid?.() === 0 ? "user root;\n" : ""}daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid ${folder}/nginx.pid;
error_log stderr warn;
events { worker_connections 20000; }
http {
  access_log off;
  ${temporary.map((name) => `${name}_temp_path ${folder}/${name};`).join("\n  ")}
  client_max_body_size 32m;
  client_body_buffer_size 2m;
  keepalive_requests 1000000000;
  upstream provider {
    server 127.0.0.1:${providerPort};
    keepalive 1024;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / {
      proxy_pass http://provider;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }
  }
}
`;
}

async function startGateway(name: "tollgate" | "peer", options: StartOptions): Promise<Contender> {
  const { provider, redisUrl, accounts = ACCOUNTS_DEFAULT, profileDir, without = [], isLean = false } = options;
  const secretKey = Buffer.from(crypto.getRandomValues(new Uint8Array(32)));
  const shop = await openShop({ provider, secretKey, accounts });
  const whole = name === "peer" ? beside("peer") : join(import.meta.dirname, "../src/main.ts");
  const reduced = isLean ? "lean" : without.length > 0 ? "without" : undefined;
  const entry = reduced === undefined ? whole : beside(reduced);
  const profile = profileDir !== undefined && name === "tollgate" ? ["--cpu-prof", `--cpu-prof-dir=${profileDir}`] : [];
  const folder = mkdtempSync(join(tmpdir(), `tollgate-bench-${name}-`));
  mkdirSync(join(folder, "spool"));
  const env = {
    HOME: process.env.HOME ?? "/tmp",
    ...GATEWAY_SETTINGS,
    DATABASE_URL: shop.databaseUrl,
    REDIS_URL: redisUrl,
    SECRET_KEY: secretKey.toString("base64"),
    BASE_URL: `http://${HOST}/v1`,
    PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${provider.port}`,
    SPOOL_DIR: join(folder, "spool"),
    ...(name === "peer" && { LEDGER_LANES: PEER_LANES }),
    ...(without.length > 0 && { BENCH_WITHOUT: without.join(",") }),
  };
  const server = await startListening(name, [...profile, entry], env, folder);
  const stop = () => server.stop().finally(() => shop.world.close());
  return { name, host: HOST, shop, ...server, stop };
}

type ShopOptions = { provider: Provider; secretKey: Buffer; accounts: number };

async function openShop({ provider, secretKey, accounts }: ShopOptions): Promise<Shop> {
  const world = await createWorld();
  const { sql } = world;
  const baseUrl = `http://127.0.0.1:${provider.port}/v1`;
  await world.addProvider("bench", baseUrl, encrypt(secretKey, "sk-bench"));
  const model = (id: string, ownResponses: boolean): ModelSpec => ({
    ...{ id, contextLength: 1_000_000, inputMicroUsd: 3_000_000, outputMicroUsd: 15_000_000, defaultCapTokens: 1000 },
    routes: [{ provider: "bench", upstreamModel: id, ownResponses }],
  });
  await world.addModels(model(MODEL, false), model(OWN_MODEL, true));
  const secrets: string[] = [];
  const exhausted: string[] = [];
  const plenty = await world.addOffering({ dailyLimit: DAILY_LIMIT, totalLimit: TOTAL_LIMIT });
  const one = await world.addOffering({ dailyLimit: 1, totalLimit: 30 });
  for (let i = 0; i < accounts; i++) {
    const rich = await world.addCustomer();
    await world.assign(rich, plenty);
    secrets.push((await world.addKey(rich)).secret);
    const poor = await world.addCustomer();
    await world.assign(poor, one);
    exhausted.push((await world.addKey(poor)).secret);
  }
  // A single account must not use up its day.
  await sql`update packages set daily_limit = ${TOTAL_LIMIT} where daily_limit = ${DAILY_LIMIT}`;
  return { world, secrets, exhausted, databaseUrl: world.url };
}

/** The state of the books: units charged, usage records, open holds. */
export async function booksOf({ world }: Shop): Promise<{ units: number; records: number; holds: number }> {
  const [row] = await world.sql`
    select (select coalesce(sum(units_taken - package_drawn(packages)), 0)::bigint from packages) as units,
      (select count(*) from receipts where outcome = 'settled') as records, (select count(*) from escrows where units > idle_units or nano_usd > idle_nano_usd) as holds`;
  return { units: Number(row?.units), records: Number(row?.records), holds: Number(row?.holds) };
}

function beside(name: string): string {
  return join(import.meta.dirname, `${name}.ts`);
}

/** Waits until the condition holds. Throws the sentence of `whyNever`, or its own after `msMax`. */
export async function until(
  isSo: () => Promise<boolean>,
  whyNever: () => string | undefined,
  msMax = START_MS_MAX,
): Promise<void> {
  const lastMs = performance.now() + msMax;
  while (!(await isSo())) {
    const why = whyNever() ?? (performance.now() > lastMs ? "a contender does not listen" : undefined);
    if (why !== undefined) throw new Error(why);
    await Bun.sleep(POLL_MS);
  }
}
