import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { readConfig, VARIABLES } from "../src/config.ts";
import { freePort } from "../src/demo/free_port.ts";
import { loadSite } from "../src/panel/built_site.ts";
import { decrypt, encrypt } from "../src/platform/crypto.ts";
import { openDb } from "../src/platform/db.ts";
import { checkSecretKey } from "../src/platform/secret_key_store.ts";
import { createTestDatabase, type TestDatabase } from "./database.ts";
import { until } from "./platform/own_redis.ts";
import { quietLog } from "./platform/quiet_log.ts";
import { FROM_SOURCE, type ReplicaProcess, startReplicaProcess } from "./replica.ts";
import { startTcpProxy } from "./tcp_proxy.ts";

/**
 * Errors at the start are reported all at once, in sentences, with exit code 1 and before anything else happens. A dependency that
 * may come back is waited for, up to a limit.
 */
const SOURCES = join(import.meta.dirname, "../src");
const KEY = "5e".repeat(32);
const OTHER_KEY = "6f".repeat(32);
const ANOTHER = "SECRET_KEY is not the key that this database's secrets are encrypted with";

let folder: string;
let database: TestDatabase;
let sql: postgres.Sql;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-start-`));
  database = await createTestDatabase();
  sql = postgres(database.url, { max: 2, onnotice: () => {} });
});
afterAll(async () => {
  await sql.end({ timeout: 5 });
  await database.drop();
  rmSync(folder, { recursive: true, force: true });
});

type Started = { process: ChildProcess; output(): string; exited: Promise<number | null> };

/** Starts a program of src with only this environment, and `stdin` as its input. */
function start(program: string, env: Record<string, string>, stdin = ""): Started {
  const [file = "", ...args] = program.split(" ");
  const child = spawn(process.execPath, [join(SOURCES, file), ...args], {
    env: {
      PATH: process.env.PATH ?? "",
      HOME: process.env.HOME ?? "/tmp",
      PORT: "0",
      LISTEN_HOST: "127.0.0.1",
      ...env,
    },
    stdio: ["pipe", "pipe", "pipe"],
    cwd: folder,
  });
  child.stdin?.end(stdin);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (bytes) => (output += bytes));
  const exited = new Promise<number | null>((resolve) => child.once("close", resolve));
  return { process: child, output: () => output, exited };
}

/** Runs it to its end. */
async function run(
  program: string,
  env: Record<string, string>,
  stdin = "",
): Promise<{ code: number | null; output: string }> {
  const started = start(program, env, stdin);
  try {
    const code = await started.exited;
    return { code, output: started.output() };
  } finally {
    started.process.kill("SIGKILL");
  }
}

const right = () => ({ DATABASE_URL: database.url, SECRET_KEY: KEY, SPOOL_DIR: join(folder, "spool") });

describe("the configuration", () => {
  /** A wrong value of each variable that can have one. */
  const WRONG: Partial<Record<keyof typeof VARIABLES, string>> = {
    NODE_ENV: "prod",
    PORT: "80a",
    INTERNAL_PORT: "65536",
    PROCESSES: "65",
    DATABASE_URL: "mysql://root:pw-canary@db/x",
    DB_WAIT_SECONDS: "-1",
    DB_PREPARE: "yes",
    DB_POOL_MAX: "0",
    LEDGER_LANES: "33",
    LEDGER_QUEUE_MAX: "1.5",
    LEDGER_TIMEOUT_MS: "49",
    LEASE_SECONDS: "1",
    ESCROW_UNITS_MAX: "10001",
    ESCROW_SHARE: "0",
    SPOOL_BYTES_MAX: "1 MiB",
    LOG_REQUESTS: "1.5",
    OTEL_EXPORTER_OTLP_ENDPOINT: "grpc://pw-canary@otel:4317",
    OTEL_EXPORTER_OTLP_HEADERS: "pw-canary",
    OTEL_TRACES_SAMPLER_ARG: "10%",
    RECEIPT_EXPORT_URL: "ftp://pw-canary@warehouse",
    RECEIPT_EXPORT_FORM: "csv",
    RECEIPT_EXPORT_SECRET: "whsec_canary",
    RECEIPT_EXPORT_HEADERS: "pw-canary",
    RECEIPT_EXPORT_ROWS: "5001",
    REDIS_URL: "pw-canary@redis:6379",
    SECRET_KEY: "pw-canary",
    BASE_URL: "https://api.example.com",
    ALIAS_URL: "ftp://example.com/v1",
    PANEL_URL: "https://example.com/panel",
    BRAND_SUPPORT: "ask Bob",
    BRAND_LANGUAGE: "Deutsch",
    SERVER_ADDRESSES: "192.0.2.1,example.com",
    DNS_RESOLVERS: "1.1.1.1",
    NAME_SERVERS: "dns.example",
    TRUSTED_PROXIES: "10.0.0.0/33",
    ALLOW_LOCAL_HOSTS: "1",
    BILLING_TIMEZONE: "Berlin",
    BODY_BYTES_MAX: "1023",
    BODY_READ_MS: "0",
    BODY_READS_MAX: "0",
    BODY_MEMORY_MAX: "2047",
    ANSWER_MEMORY_MAX: "2047",
    IN_FLIGHT_MAX: "many",
    ACCOUNT_SHARE: "1.1",
    TENANT_SHARE: "a half",
    EVENT_LOOP_LAG_MAX_MS: "9",
    RATE_PER_MINUTE: "0",
    RATE_ACCOUNT_PER_MINUTE: "0",
    RATE_TENANT_PER_MINUTE: "0",
    RATE_IN_FLIGHT: "0",
    RATE_REDIS_MS: "1001",
    PROVIDER_CONNECT_MS: "0",
    PROVIDER_FIRST_BYTE_MS: "5s",
    PROVIDER_HEADERS_MS: "0",
    STREAM_HEADERS_MS: "-1",
    JSON_HEADERS_MS: "-1",
    PROVIDER_IDLE_MS: "0",
    PROVIDER_TOTAL_MS: "0",
    CLIENT_IDLE_MS: "0",
    PROVIDER_ALLOW_PRIVATE: "http://10.0.0.7:8000/v1",
    MESSAGES_ALLOW_PRIVATE: "mail.example.com",
    IDENTITY_ALLOW_PRIVATE: "login.example.com",
    SMTP_URL: "pw-canary@mail:587",
    MAIL_FROM: "nobody",
    STRIPE_API_BASE: "api.stripe.example",
    TEST_SHOP: "maybe",
    UNPAID_ACCOUNT_MINUTES: "0",
    UNPAID_TENANT_MINUTES: "0",
    UNPAID_ACCOUNT_USD: "0",
    UNPAID_TENANT_USD: "0",
    UNPAID_ACCOUNT_TOKENS: "0",
    UNPAID_TENANT_TOKENS: "0",
    IMAGE_URL_SECONDS: "599",
    RESPONSES_KEEP_HOURS: "721",
    SESSION_IDLE_SECONDS: "59",
    SESSION_MAX_SECONDS: "59",
    CACHE_TTL_MS: "99",
    HISTORY_DAYS: "-1",
    RECEIPTS_KEEP_MONTHS: "1.5",
    DRAIN_NOTICE_SECONDS: "601",
    DRAIN_SECONDS: "0",
    LOG_LEVEL: "verbose",
    FAILPOINTS: "explode",
  };
  /** Variables that accept any text. */
  const FREE = [
    "LISTEN_HOST",
    "INTERNAL_HOST",
    "SPOOL_DIR",
    "PANEL_DIR",
    "BRAND_NAME",
    "OTEL_SERVICE_NAME",
    "PROCESS_SOCKET",
  ];

  test("each wrong variable is named once, with what it must be and what it is", () => {
    expect([...Object.keys(WRONG), ...FREE].sort()).toEqual(Object.keys(VARIABLES).sort());
    const ok = { DATABASE_URL: "postgres://x/x", SECRET_KEY: KEY };
    for (const [name, value] of Object.entries(WRONG)) {
      const said = problemsOf({ ...ok, [name]: value });
      expect(said).toEqual([expect.stringMatching(new RegExp(`^${name} must .*, not .+: `))]);
      if (!value.includes("canary")) expect(said[0]).toContain(JSON.stringify(value));
    }
    expect(problemsOf({ ...ok, PORT: "8080", INTERNAL_PORT: "8080" })).toEqual([
      expect.stringMatching(/^INTERNAL_PORT must differ from PORT/),
    ]);
    expect(problemsOf({ ...ok, BODY_BYTES_MAX: "100000", BODY_MEMORY_MAX: "199999" })).toEqual([
      expect.stringMatching(/^BODY_MEMORY_MAX must be at least twice BODY_BYTES_MAX, not "199999"/),
    ]);
    for (const [account, tenant, least] of [
      ["UNPAID_ACCOUNT_MINUTES", "UNPAID_TENANT_MINUTES", 240],
      ["UNPAID_ACCOUNT_USD", "UNPAID_TENANT_USD", 2],
      ["UNPAID_ACCOUNT_TOKENS", "UNPAID_TENANT_TOKENS", 400_000],
    ] as const) {
      const low = String(least - 1);
      expect(problemsOf({ ...ok, [tenant]: low })).toEqual([
        expect.stringMatching(new RegExp(`^${tenant} must be at least twice ${account}, .*, not "${low}"`)),
      ]);
      expect(problemsOf({ ...ok, [account]: String(least * 50) })).toEqual([
        expect.stringMatching(new RegExp(`^${tenant} must be at least twice ${account}`)),
      ]);
      expect(() => readConfig({ ...ok, [tenant]: String(least) })).not.toThrow();
    }
    expect(problemsOf({ ...ok, BRAND_SUPPORT: "x ".repeat(5000) })[0]?.length).toBeLessThan(300);
  });

  test("one message lists every missing and wrong variable: exit code 1, no secret, no folder, no connection", async () => {
    const port = await freePort();
    let connections = 0;
    const server: Server = createServer((socket) => {
      connections++;
      socket.destroy();
    });
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    try {
      const DATABASE_URL = `postgres://user:pw-canary@127.0.0.1:${port}/x`;
      const REDIS_URL = `redis://:pw-canary@127.0.0.1:${port}`;
      const one = await run("main.ts", { DATABASE_URL, REDIS_URL, PORT: "http", LOG_LEVEL: "loud", SPOOL_DIR: "made" });
      expect(one.code).toBe(1);
      expect(one.output.trimEnd().split("\n")).toEqual([
        "The configuration is wrong:",
        '  - PORT must be a whole number, not "http": public port; 0 picks a free one',
        "  - SECRET_KEY is not set: 32 bytes in base64 or hex; encrypts provider keys",
        expect.stringMatching(/^ {2}- LOG_LEVEL must be one of trace, debug, info, warn, error, silent, not "loud": /),
      ]);
    } finally {
      server.close();
    }
    expect(connections).toBe(0);
    expect(existsSync(join(folder, "made"))).toBe(false);
    const all = await run("main.ts", { ...WRONG, SPOOL_DIR: "made" });
    expect(all.code).toBe(1);
    for (const name of Object.keys(WRONG)) expect(all.output.match(new RegExp(`^  - ${name} `, "gm"))).toHaveLength(1);
    expect(all.output).not.toContain("canary");
    expect(existsSync(join(folder, "made"))).toBe(false);
  });

  test("a spool folder that cannot be written and a taken port: one sentence, exit code 1", async () => {
    writeFileSync(join(folder, "file"), "");
    const spool = await run("main.ts", { ...right(), SPOOL_DIR: join(folder, "file") });
    expect(spool).toEqual({ code: 1, output: expect.stringMatching(/^SPOOL_DIR names a folder .* \(EEXIST\): .*\n$/) });
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
    const { port } = taken.address() as { port: number };
    try {
      for (const variable of ["PORT", "INTERNAL_PORT"]) {
        const { code, output } = await run("main.ts", { ...right(), LOG_LEVEL: "silent", [variable]: String(port) });
        expect({ code, output }).toEqual({
          code: 1,
          output: expect.stringMatching(new RegExp(`^${variable}: cannot listen on 127.0.0.1:${port} .*\\n$`)),
        });
      }
    } finally {
      taken.close();
    }
  });

  function problemsOf(env: Record<string, string>): string[] {
    try {
      readConfig(env);
    } catch (error) {
      const [title, ...lines] = (error as Error).message.split("\n");
      expect(title).toBe("The configuration is wrong:");
      return lines.map((line) => line.replace(/^ {2}- /, ""));
    }
    return [];
  }
});

test("a replica without the built panel says so, and what to run", async () => {
  const { log, lines } = quietLog();
  expect(await loadSite(join(folder, "absent"), log)).toBeUndefined();
  expect(lines).toMatchObject([{ folder: join(folder, "absent"), message: expect.stringContaining("bun run build") }]);
});

describe("Postgres at the start", () => {
  test("connection refused: a log line for each attempt, waits that double, then one sentence and exit code 1", async () => {
    const DATABASE_URL = `postgres://user:pw-canary@127.0.0.1:${await freePort()}/x`;
    const { code, output } = await run("main.ts", { ...right(), DATABASE_URL, DB_WAIT_SECONDS: "4" });
    expect(code).toBe(1);
    const lines = output.trimEnd().split("\n");
    expect(lines.pop()).toBe("Postgres does not answer: start it, or correct DATABASE_URL.");
    const tries = lines.map((line) => JSON.parse(line));
    // 0.5 + 1 + 2 s; a fourth wait would exceed the limit of 4 s.
    expect(tries.map(({ againInMs }) => againInMs)).toEqual([500, 1000, 2000]);
    for (const line of tries)
      expect(line).toMatchObject({ level: "warn", message: "Postgres is not reachable yet", why: expect.any(String) });
    expect(output).not.toContain("pw-canary");
  });

  test("no answer: one sentence and exit code 1, in time", async () => {
    const proxy = await startTcpProxy(database.url);
    proxy.hang();
    try {
      const env = { ...right(), DATABASE_URL: proxy.url, DB_WAIT_SECONDS: "0" };
      const { code, output } = await run("main.ts", env);
      expect(code).toBe(1);
      expect(output).toMatch(/^Postgres does not answer in time: .*\n$/m);
    } finally {
      await proxy.close();
    }
  });

  test("what an operator can correct is one sentence: a missing right, no connection left, no TLS", async () => {
    const role = `poor_${process.pid}`;
    const url = new URL(database.url);
    await sql.unsafe(`create role ${role} login password 'pw-canary' connection limit 1`);
    try {
      url.username = role;
      url.password = "pw-canary";
      const start = (DATABASE_URL: string) => run("main.ts", { ...right(), DATABASE_URL, DB_WAIT_SECONDS: "0" });
      const said = (pattern: RegExp) => ({ code: 1, output: expect.stringMatching(pattern) });
      expect(await start(url.href)).toEqual(said(/^The user in DATABASE_URL has no right to do this: .*\n$/));
      const only = postgres(url.href, { max: 1, onnotice: () => {} });
      await only`select 1`;
      expect(await start(url.href)).toEqual(said(/^Postgres allows no more connections: .*\n$/));
      await only.end({ timeout: 5 });
      expect(await start(`${database.url}?sslmode=require`)).toEqual(said(/^Postgres closed the connection: .*\n$/));
    } finally {
      await sql.unsafe(`drop role ${role}`);
    }
  });

  test("reachable within DB_WAIT_SECONDS: the replica starts", async () => {
    const proxy = await startTcpProxy(database.url);
    proxy.cut();
    const env = { ...right(), DATABASE_URL: proxy.url, DB_WAIT_SECONDS: "60" };
    const started = start("main.ts", env);
    try {
      await until(() => started.output().includes("Postgres is not reachable yet"));
      proxy.mend();
      await until(() => started.output().includes('"message":"listening"'));
      started.process.kill("SIGTERM");
      expect(await started.exited).toBe(0);
    } finally {
      started.process.kill("SIGKILL");
      await proxy.close();
    }
  });

  const HELD = [
    ["the schema", "lock table drizzle.__drizzle_migrations", "has not answered yet"],
    // A transaction gives up a lock by itself, and is tried again.
    ["the check of SECRET_KEY", "lock table secret_key_check", "is not reachable yet"],
    [
      "the days of stored responses",
      "select pg_advisory_xact_lock(hashtextextended('tollgate.response_days', 0))",
      "has not answered yet",
    ],
    ["the catalog", "lock table models", "is not reachable yet"],
    ["the states of provider keys", "lock table provider_key_pauses", "has not answered yet"],
  ] as const;
  test.each(HELD)(
    "a lock that holds %s up is waited for, and the log says so; then the replica starts",
    async (what, lock, says) => {
      const held = Promise.withResolvers<void>();
      const locked = Promise.withResolvers<void>();
      const holding = sql.begin(async (tx) => {
        await tx.unsafe(lock);
        locked.resolve();
        await held.promise;
      });
      await locked.promise;
      const started = start("main.ts", right());
      try {
        const line = () =>
          started
            .output()
            .split("\n")
            .find((text) => text.includes(says) && text.includes(what));
        await until(() => line() !== undefined);
        expect(JSON.parse(line() ?? "")).toMatchObject({ level: "warn", what });
        held.resolve();
        await until(() => started.output().includes('"message":"listening"'));
        started.process.kill("SIGTERM");
        expect(await started.exited).toBe(0);
      } finally {
        held.resolve();
        await holding;
        started.process.kill("SIGKILL");
      }
    },
  );

  test("a lock that is not released: one sentence and exit code 1", async () => {
    await sql.begin(async (tx) => {
      await tx`lock table provider_key_pauses`;
      const { code, output } = await run("main.ts", { ...right(), DB_WAIT_SECONDS: "0" });
      expect(code).toBe(1);
      expect(output).toContain("the start waits");
      expect(output.trimEnd().split("\n").at(-1)).toStartWith("Postgres does not answer in time: ");
    });
  });

  test.each(["SIGTERM", "SIGINT"] as const)(
    "%s while it waits ends it immediately with exit code 0",
    async (signal) => {
      const DATABASE_URL = `postgres://127.0.0.1:${await freePort()}/x`;
      const started = start("main.ts", { ...right(), DATABASE_URL, DB_WAIT_SECONDS: "3600" });
      try {
        await until(() => started.output().includes("Postgres is not reachable yet"));
        started.process.kill(signal);
        expect(await started.exited).toBe(0);
        expect(started.output()).toContain("stopped before it was listening");
      } finally {
        started.process.kill("SIGKILL");
      }
    },
  );

  test("a database without its schema is not waited for: one sentence, exit code 1", async () => {
    const url = new URL(database.url);
    url.pathname = "/postgres";
    const { code, output } = await run("main.ts", { ...right(), DATABASE_URL: url.href });
    expect({ code, output }).toEqual({
      code: 1,
      output: expect.stringMatching(/^The database has 0 of \d+ migrations\. Run: bun run cli migrate\n$/),
    });
  });
});

test("Ctrl-C under `bun run start`, which reaches the replica twice, drains it", async () => {
  const child = spawn(process.execPath, ["run", "start"], {
    env: {
      PATH: process.env.PATH,
      HOME: folder,
      PORT: "0",
      LISTEN_HOST: "127.0.0.1",
      DRAIN_NOTICE_SECONDS: "0",
      ...right(),
    },
    stdio: ["ignore", "pipe", "pipe"],
    cwd: join(SOURCES, ".."),
    detached: true,
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (output += bytes));
  const closed = new Promise((resolve) => child.once("close", resolve));
  const interrupt = (signal: NodeJS.Signals) => process.kill(-(child.pid ?? 0), signal);
  try {
    await until(() => output.includes('"message":"listening"'));
    interrupt("SIGINT"); // As a terminal: to the whole process group.
    await closed;
    expect(output).toContain('"message":"drained"');
    expect(output).not.toContain("exits at once");
  } finally {
    if (child.exitCode === null && child.signalCode === null) interrupt("SIGKILL");
  }
});

test("without Redis, refused or silent, the replica starts, is ready and logs a warning", async () => {
  const proxy = await startTcpProxy(process.env.REDIS_URL ?? "");
  proxy.hang();
  try {
    for (const REDIS_URL of [`redis://:pw-canary@127.0.0.1:${await freePort()}`, proxy.url]) {
      const replica = await startReplicaProcess({ ...right(), REDIS_URL }, FROM_SOURCE);
      try {
        expect((await fetch(`${replica.origin}/readyz`)).status).toBe(200);
        await until(() => /"level":"warn".*Redis/.test(replica.logged()));
        expect(await replica.stop()).toBe(0);
        expect(replica.logged()).not.toContain("pw-canary");
      } finally {
        await replica.kill();
      }
    }
  } finally {
    await proxy.close();
  }
});

describe("SECRET_KEY", () => {
  const cli = (args: string, key: string, stdin = "") =>
    run(`cli.ts ${args}`, { ...right(), SECRET_KEY: key, PROVIDER_ALLOW_PRIVATE: "127.0.0.1:9" }, stdin);
  const secrets = async () => {
    const [providers, people, [check]] = await Promise.all([
      sql`select p.name, key_ciphertext from providers p join provider_keys k on k.provider_id = p.id order by p.name`,
      sql`select id, totp_ciphertext from accounts where totp_ciphertext is not null order by id`,
      sql`select ciphertext from secret_key_check`,
    ]);
    return { providers, people, check: check?.ciphertext as Buffer | undefined };
  };
  const bytesOf = (hex: string) => Buffer.from(hex, "hex");

  test("of eight first starts with different keys at once, one key becomes the database's", async () => {
    const other = await createTestDatabase();
    const keys = Array.from({ length: 8 }, (_, i) => Buffer.alloc(32, i));
    const dbs = keys.map(() => openDb({ databaseUrl: other.url, dbPrepare: true, dbPoolMax: 1 }));
    try {
      const results = await Promise.allSettled(keys.map((key, i) => checkSecretKey(at(dbs, i), key)));
      const taken = results.flatMap(({ status }, i) => (status === "fulfilled" ? [i] : []));
      expect(taken).toHaveLength(1);
      for (const result of results) if (result.status === "rejected") expect(String(result.reason)).toContain(ANOTHER);
      for (const [i, key] of keys.entries()) {
        const again = checkSecretKey(at(dbs, 0), key);
        if (i === taken[0]) await again;
        else await expect(again).rejects.toThrow(ANOTHER);
      }
    } finally {
      await Promise.all(dbs.map((db) => db.close()));
      await other.drop();
    }
  });

  test("the first start stores its key; with another key nothing starts and nothing is encrypted", async () => {
    const first = await startReplicaProcess({ ...right() }, FROM_SOURCE);
    expect(await first.stop()).toBe(0);
    expect((await cli("provider add --name one --url http://127.0.0.1:9/v1 --key sk-one", KEY)).code).toBe(0);
    const before = await secrets();

    const wrong = await run("main.ts", { ...right(), SECRET_KEY: OTHER_KEY, LOG_LEVEL: "warn" });
    expect(wrong).toEqual({ code: 1, output: expect.stringMatching(new RegExp(`^${ANOTHER}.*\\n$`)) });
    for (const command of [
      "provider add --name two --url http://127.0.0.1:9/v1 --key sk-two",
      "provider set one --key sk-new",
    ]) {
      const { code, output } = await cli(command, OTHER_KEY);
      expect({ command, code, output }).toEqual({ command, code: 1, output: expect.stringContaining(ANOTHER) });
    }
    expect(await secrets()).toEqual(before);
    // A change that encrypts nothing needs no key.
    expect((await cli("provider set one --disable", OTHER_KEY)).code).toBe(0);
  });

  test("rotate encrypts all secrets with the new key; with a wrong old key or a running replica nothing changes", async () => {
    const [{ id } = { id: "" }] = await sql`
      insert into accounts (role, email, name, totp_ciphertext, totp_enabled_at)
      values ('customer', 'ann@example.com', 'Ann', ${encrypt(bytesOf(KEY), "TOTPSECRET")}, now()) returning id`;
    const [{ id: damaged } = { id: "" }] = await sql`
      insert into accounts (role, email, name, totp_ciphertext, totp_enabled_at)
      values ('customer', 'bob@example.com', 'Bob', ${Buffer.from("damaged")}, now()) returning id`;
    await sql`
      insert into identity_providers (seller_id, kind, name, issuer, client_id, secret_ciphertext, scopes, proof_token)
      values (0, 'github', 'GitHub', 'https://github.com', 'id', ${encrypt(bytesOf(KEY), "CLIENTSECRET")}, 'user', 'x')`;
    const before = await secrets();

    let replica: ReplicaProcess | undefined = await startReplicaProcess({ ...right() }, FROM_SOURCE);
    try {
      await until(async () => (await sql`select from replicas`).length > 0);
      const running = await cli("secret-key rotate --old-stdin", OTHER_KEY, KEY);
      expect(running).toEqual({ code: 1, output: expect.stringContaining("Replicas are running (1)") });
    } finally {
      await replica.stop();
      replica = undefined;
    }
    for (const [stdin, says] of [
      ["7a".repeat(32), "not the database's key. Nothing was changed"],
      ["short", "must be 32 bytes"],
      ["", "empty"],
    ] as const) {
      const { code, output } = await cli("secret-key rotate --old-stdin", OTHER_KEY, stdin);
      expect({ stdin, code, output }).toEqual({ stdin, code: 1, output: expect.stringContaining(says) });
    }
    expect((await cli("secret-key rotate", OTHER_KEY)).output).toContain("Give the old key");
    expect(await secrets()).toEqual(before);

    const done = await cli("secret-key rotate --old-stdin", OTHER_KEY, KEY);
    expect(done.code).toBe(0);
    expect(done.output).toContain(
      "Encrypted again: 1 provider keys, 1 second factors, 0 payment secrets, 1 secrets of identity providers, 0 secrets of mail and webhooks.",
    );
    expect(done.output).toContain(`remove-second-factor: ${damaged}.`);
    const { providers, people } = await secrets();
    expect(decrypt(bytesOf(OTHER_KEY), providers[0]?.key_ciphertext)).toBe("sk-one");
    const ann = people.find((row) => row.id === id);
    expect(decrypt(bytesOf(OTHER_KEY), ann?.totp_ciphertext)).toBe("TOTPSECRET");
    const [identityProvider] = await sql`select secret_ciphertext from identity_providers`;
    expect(decrypt(bytesOf(OTHER_KEY), identityProvider?.secret_ciphertext)).toBe("CLIENTSECRET");

    expect((await run("main.ts", right())).output).toContain(ANOTHER);
    const next = await startReplicaProcess({ ...right(), SECRET_KEY: OTHER_KEY }, FROM_SOURCE);
    expect(await next.stop()).toBe(0);
  });

  test("rotate with a lost old key names what cannot be read, and new secrets can be set", async () => {
    const lost = await cli("secret-key rotate --old-lost --json", KEY);
    expect(lost.code).toBe(0);
    expect(JSON.parse(lost.output)).toMatchObject({
      providerKeys: 0,
      secondFactors: 0,
      messageSecrets: 0,
      unreadable: { providers: ["one"] },
    });
    expect((await cli("provider set one --key sk-again", KEY)).code).toBe(0);
    const { providers } = await secrets();
    expect(decrypt(bytesOf(KEY), providers[0]?.key_ciphertext)).toBe("sk-again");
  });

  function at<T>(list: T[], i: number): T {
    const item = list[i];
    if (item === undefined) throw new Error("there is no such item");
    return item;
  }
});
