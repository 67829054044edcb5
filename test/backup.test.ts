import { afterAll, beforeAll, expect, test } from "bun:test";
import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import postgres from "postgres";
import { type Service, startPostgres } from "../scripts/services.ts";
import { freePort } from "../src/demo/free_port.ts";
import { debianPostgres } from "./debian_postgres.ts";
import { openShop, type Shop } from "./gateway/shop.ts";
import { until } from "./platform/own_redis.ts";
import { TEST_SECRET_KEY } from "./replica.ts";

/** A backup of a service that is in use, and a service that continues from it on another server. */

const repository = dirname(import.meta.dirname);
/** In the restored copy, holds of requests that were in progress last this long. */
const LEASE_SECONDS = 10;
const CUSTOMERS = 4;

type Server = { url: string; stop(): Promise<void> };

let folder: string;
let server: Server;
/** A server with another system identifier, whose transaction ids are behind those of `server`. */
let other: Service;
let shop: Shop;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-backup-`));
  server = await serverOfTools(join(folder, "postgres"));
  process.env.DATABASE_URL = server.url;
  other = await startPostgres();
  shop = await openShop({ env: { LEASE_SECONDS: String(LEASE_SECONDS) } });
});
afterAll(async () => {
  await shop.close();
  await other.stop();
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

type Run = { code: number | null; out: string; err: string };

/** Runs bun as a child process, so that the shop continues meanwhile. */
async function bun(args: string[], env: Record<string, string>): Promise<Run> {
  const child = spawn(process.execPath, args, {
    cwd: repository,
    env: { PATH: process.env.PATH ?? "", HOME: process.env.HOME ?? "/tmp", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const run: Run = { code: null, out: "", err: "" };
  child.stdout.on("data", (bytes) => (run.out += bytes));
  child.stderr.on("data", (bytes) => (run.err += bytes));
  run.code = await new Promise((resolve) => child.once("close", resolve));
  return run;
}

const backup = (args: string[], databaseUrl: string, env: Record<string, string> = {}) =>
  bun(["scripts/backup.ts", ...args], { DATABASE_URL: databaseUrl, ...env });

async function newDatabase(serverUrl: string): Promise<string> {
  const name = `tollgate_test_${randomBytes(6).toString("hex")}`;
  const sql = postgres(serverUrl, { max: 1, onnotice: () => {} });
  await sql.unsafe(`create database ${name}`);
  await sql.end({ timeout: 5 });
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.href;
}

test("a backup made under load restores on another server: the books balance, and the same keys are served and charged", async () => {
  const people = await Promise.all(Array.from({ length: CUSTOMERS }, () => shop.customer({ dailyLimit: 1000 })));
  const payer = await shop.payer(5_000_000_000n);
  let working = true;
  let answered = 0;
  const workers = [...people, payer].map(async ({ secret }) => {
    while (working) {
      expect((await shop.chat(secret)).status).toBe(200);
      answered++;
    }
  });
  await until(() => answered > 20);
  const before = answered;
  const saved = await backup(["save", join(folder, "saved")], shop.world.url);
  const after = answered;
  working = false;
  await Promise.all(workers);
  expect(saved).toMatchObject({ code: 0, err: "" });
  expect(after).toBeGreaterThan(before);

  const [name = "", ...more] = readdirSync(join(folder, "saved"));
  const file = join(folder, "saved", name);
  expect(more).toEqual([]);
  expect(saved.out).toStartWith(file);
  expect(statSync(file).mode & 0o777).toBe(0o600);

  const copy = await newDatabase(other.url);
  expect(await backup(["restore", file], copy)).toMatchObject({ code: 0, err: "" });
  const sql = postgres(copy, { max: 2, onnotice: () => {} });
  try {
    const [{ settled } = { settled: 0 }] =
      await sql`select count(*)::int as settled from receipts where outcome = 'settled'`;
    expect(settled).toBeGreaterThanOrEqual(before);
    expect(settled).toBeLessThanOrEqual(answered);
    // The history that is lost may have given the next million ids.
    const [account] =
      await sql`insert into accounts (role, email, name) values ('customer', 'later@example.com', 'Later') returning id::int`;
    expect(account?.id).toBeGreaterThan(1_000_000);
    await sql`insert into balances (account_id) values (${account?.id})`;
    const env = { DATABASE_URL: copy, REDIS_URL: "" };
    const replica = await shop.start(env);
    // Holds of requests that were in progress during the backup are released when their leases end.
    const holds = async () =>
      Number((await sql`select count(*)::int as n from escrows where units > 0 or nano_usd > 0`)[0]?.n);
    await until(async () => (await holds()) === 0);
    const usageOf = async (accountId: number) =>
      Number(
        (await sql`select count(*)::int as n from receipts where account_id = ${accountId} and outcome = 'settled'`)[0]
          ?.n,
      );
    for (const { secret, accountId } of [...people, payer]) {
      const had = await usageOf(accountId);
      expect((await shop.chat(secret, {}, { origin: replica.origin })).status).toBe(200);
      expect(await usageOf(accountId)).toBe(had + 1);
    }
    const doctor = await bun(["src/cli.ts", "doctor", "--full", "--json"], {
      ...env,
      SECRET_KEY: TEST_SECRET_KEY,
      SPOOL_DIR: join(folder, "none"),
      PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${shop.provider.port},127.0.0.1:${shop.second.port}`,
    });
    const { ok, findings } = JSON.parse(doctor.out) as { ok: boolean; findings: { what: string; state: string }[] };
    expect({ ok, books: findings.find(({ what }) => what === "books") }).toMatchObject({
      ok: true,
      books: { state: "ok" },
    });
    const views = await sql`select table_name as name from information_schema.views where table_name like 'inv\\_%'`;
    expect(views.length).toBeGreaterThanOrEqual(8);
    for (const { name: view } of views) expect(await sql.unsafe(`select * from ${view}`)).toHaveLength(0);
    expect(await replica.stop()).toBe(0);
  } finally {
    await sql.end({ timeout: 5 });
  }
  expect(await shop.world.unbalanced()).toEqual([]);
});

test("an error is one sentence with exit code 1, and leaves no file behind", async () => {
  const empty = await newDatabase(server.url);
  const noFile = join(folder, "none.dump");
  const torn = join(folder, "torn.dump");
  writeFileSync(torn, "PGDMP and then nothing");
  const [saved = ""] = readdirSync(join(folder, "saved"));
  const cases: { args: string[]; url?: string; env?: Record<string, string>; message: RegExp }[] = [
    { args: [], message: /^Usage: / },
    { args: ["save"], message: /^Usage: / },
    { args: ["erase", "x"], message: /^Usage: / },
    { args: ["save", "x"], url: "", message: /^DATABASE_URL is not set/ },
    { args: ["save", join(folder, "nobody")], url: "postgres://u@127.0.0.1:1/x", message: /^pg_dump failed: / },
    {
      args: ["save", join(folder, "foreign")],
      url: empty,
      message: /is not a backup of this service: it lacks accounts/,
    },
    {
      args: ["save", join(folder, "no_tools")],
      env: { PATH: folder },
      message: /^pg_dump is not on the PATH: install /,
    },
    { args: ["restore", noFile], url: empty, message: /^The file .* does not exist\.$/ },
    { args: ["restore", torn], url: empty, message: /^pg_restore failed: / },
    {
      args: ["restore", join(folder, "saved", saved)],
      message: /^The database already has \d+ tables\. Restore into an empty one\.$/,
    },
  ];
  for (const { args, url = shop.world.url, env, message } of cases) {
    const { code, out, err } = await backup(args, url, env);
    expect({ args, code, out, lines: err.trim().split("\n").length }).toEqual({ args, code: 1, out: "", lines: 1 });
    expect(err.trim()).toMatch(message);
  }
  for (const name of ["nobody", "foreign", "no_tools"]) expect(readdirSync(join(folder, name))).toEqual([]);
});

/** The server of DATABASE_URL if the client programs on the PATH are new enough; otherwise Debian's, which includes its own. */
async function serverOfTools(place: string): Promise<Server> {
  const given = process.env.DATABASE_URL ?? "";
  const sql = postgres(given, { max: 1, onnotice: () => {} });
  const [row] = await sql`show server_version_num`;
  await sql.end({ timeout: 5 });
  const tools = Number(
    /\b(\d+)(?:\.\d+)?/.exec(spawnSync("pg_dump", ["--version"], { encoding: "utf8" }).stdout ?? "")?.[1] ?? 0,
  );
  if (tools >= Math.floor(Number(row?.server_version_num) / 10_000)) return { url: given, stop: async () => {} };
  const debian = debianPostgres(place);
  process.env.PATH = `${debian.bin}:${process.env.PATH}`;
  debian.init("data");
  const { url, server } = await debian.start("data", { port: await freePort() });
  return { url, stop: server.stop };
}
