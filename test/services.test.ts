import { afterAll, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { startPostgres, startRedis } from "../scripts/services.ts";
import { freePort } from "../src/demo/free_port.ts";
import { linkLibraries } from "../src/demo/postgres/binaries.ts";
import { startEmbeddedPostgres } from "../src/demo/postgres/embedded_postgres.ts";
import { processExists } from "../src/demo/postgres/owned_process.ts";

const waitMs = 20_000;
const folder = mkdtempSync(join(tmpdir(), "tollgate-services-test-"));
// Under root, PostgreSQL may have to run as another user, who must be able to enter the folder.
chmodSync(folder, 0o755);
const dataDir = join(folder, "kept");

afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function query(url: string, text: string): Promise<string> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  try {
    const [row] = await sql.unsafe(text);
    return row ? String(Object.values(row)[0]) : "";
  } finally {
    await sql.end();
  }
}

async function until(condition: () => boolean): Promise<void> {
  const startedAt = performance.now();
  while (!condition()) {
    if (performance.now() - startedAt > waitMs) throw new Error("The condition was not met in time.");
    await Bun.sleep(20);
  }
}

test("embedded Postgres starts in an empty folder: version 18, UTF8, C locale, fsync on, listens on 127.0.0.1 only", async () => {
  const server = await startEmbeddedPostgres({ dataDir, settings: { fsync: "off", log_lock_waits: "on" } });
  const show = (name: string) => query(server.url, `select current_setting('${name}')`);
  expect(await show("server_version")).toStartWith("18.");
  expect(await show("server_encoding")).toBe("UTF8");
  expect(await query(server.url, "select datcollate from pg_database where datname = current_database()")).toBe("C");
  expect(await show("fsync")).toBe("on");
  expect(await show("log_lock_waits")).toBe("on");
  expect(await show("max_connections")).toBe("200");
  expect(await show("listen_addresses")).toBe("127.0.0.1");
  await query(server.url, "create table kept as select 42 as answer");
  await server.stop();
  expect(processExists(server.pid)).toBe(false);
  await server.stop();
});

test("embedded Postgres rejects a wrong password", async () => {
  const server = await startEmbeddedPostgres({ dataDir });
  const url = server.url.replace(/:[0-9a-f]+@/, ":guess@");
  await expect(query(url, "select 1")).rejects.toThrow("password authentication failed");
  await server.stop();
});

test("embedded Postgres: a second start keeps the data and does not create the database again", async () => {
  // Every new database has its own system identifier, in this file.
  const controlFile = join(dataDir, "pgdata", "global", "pg_control");
  const identifier = () => readFileSync(controlFile).subarray(0, 8).toString("hex");
  const before = identifier();
  const server = await startEmbeddedPostgres({ dataDir });
  expect(identifier()).toBe(before);
  expect(await query(server.url, "select answer from kept")).toBe("42");
  await server.stop();
});

test("embedded Postgres: after SIGKILL it starts again on the same port and keeps what was committed", async () => {
  const port = await freePort();
  const first = await startEmbeddedPostgres({ dataDir, port });
  await query(first.url, "create table committed as select 7 as answer");
  process.kill(first.pid, "SIGKILL");
  await until(() => !processExists(first.pid));
  expect(existsSync(join(dataDir, "pgdata", "postmaster.pid"))).toBe(true);
  const second = await startEmbeddedPostgres({ dataDir, port });
  expect(second.url).toBe(first.url);
  expect(await query(second.url, "select answer from committed")).toBe("7");
  await second.stop();
});

test("embedded Postgres starts despite a stale lock file whose process id now belongs to another program", async () => {
  const otherProgram = Bun.spawn(["sleep", "60"]);
  const lockFile = join(dataDir, "pgdata", "postmaster.pid");
  writeFileSync(
    lockFile,
    `${otherProgram.pid}\n${join(dataDir, "pgdata")}\n1\n1\n\n127.0.0.1\n        1         1\nready   \n`,
  );
  const server = await startEmbeddedPostgres({ dataDir });
  expect(await query(server.url, "select answer from kept")).toBe("42");
  await server.stop();
  expect(otherProgram.exitCode).toBe(null);
  otherProgram.kill();
});

test("embedded Postgres: a second server on the same folder is refused, and the first keeps running", async () => {
  const first = await startEmbeddedPostgres({ dataDir });
  await expect(startEmbeddedPostgres({ dataDir })).rejects.toThrow(
    `in use by another PostgreSQL (process ${first.pid})`,
  );
  expect(await query(first.url, "select answer from kept")).toBe("42");
  await first.stop();
});

test("embedded Postgres: a folder whose creation was interrupted is created again", async () => {
  const cut = join(folder, "cut");
  const ended = Bun.spawnSync(["true"]).pid;
  for (const name of [`pgdata.new-${ended}-abc`, "pgdata"]) {
    mkdirSync(join(cut, name), { recursive: true });
    writeFileSync(join(cut, name, "PG_VERSION"), "18\n");
  }
  const server = await startEmbeddedPostgres({ dataDir: cut });
  expect(await query(server.url, "select 1")).toBe("1");
  await server.stop();
  const kept = readdirSync(cut).map((name) => name.replace(/new-.*/, "new"));
  expect(kept.sort()).toEqual(["pgdata", "pgdata.broken-new", "postgres.log"]);
});

test("embedded Postgres stops when its parent is killed, and the next start waits for that", async () => {
  const parent = Bun.spawn([process.execPath, join(import.meta.dirname, "postgres_parent.ts"), dataDir], {
    stdout: "pipe",
  });
  const { value } = await parent.stdout.getReader().read();
  const pid = Number(new TextDecoder().decode(value));
  expect(processExists(pid)).toBe(true);
  parent.kill("SIGKILL");
  const server = await startEmbeddedPostgres({ dataDir });
  expect(await query(server.url, "select answer from kept")).toBe("42");
  await until(() => !processExists(pid));
  await server.stop();
});

test("library links are created once, replaced if missing, and safe to create from several processes", async () => {
  const native = join(folder, "native");
  const lib = join(native, "lib");
  mkdirSync(lib, { recursive: true });
  writeFileSync(join(lib, "libpq.so.5.18"), "library");
  const links = ["libpq.so", "libpq.so.5"].map((name) => join(lib, name));
  const listed = links.map((path) => ({
    source: "native/lib/libpq.so.5.18",
    target: `native/lib/${path.split("/").at(-1)}`,
  }));
  writeFileSync(join(native, "pg-symlinks.json"), JSON.stringify(listed));

  linkLibraries(native);
  const before = links.map((path) => lstatSync(path).ino);
  linkLibraries(native);
  expect(links.map((path) => lstatSync(path).ino)).toEqual(before);
  for (const path of links) expect(readlinkSync(path)).toBe("libpq.so.5.18");

  rmSync(links[0] ?? "");
  const code = `(await import(${JSON.stringify(join(import.meta.dirname, "../src/demo/postgres/binaries.ts"))})).linkLibraries(${JSON.stringify(native)})`;
  const workers = Array.from({ length: 6 }, () => Bun.spawn([process.execPath, "-e", code]));
  expect(await Promise.all(workers.map((worker) => worker.exited))).toEqual([0, 0, 0, 0, 0, 0]);
  for (const path of links) expect(readFileSync(path, "utf8")).toBe("library");
  expect(readdirSync(lib).sort()).toEqual(["libpq.so", "libpq.so.5", "libpq.so.5.18"]);
});

test("startPostgres and startRedis start servers; stop ends them and deletes their temporary folders", async () => {
  const port = await freePort();
  const before = temporaryFolders();
  const redis = await startRedis({ port });
  expect(redis.url).toBe(`redis://127.0.0.1:${port}`);
  const database = await startPostgres();
  expect(await query(database.url, "select 1")).toBe("1");
  expect(temporaryFolders().length).toBe(before.length + 2);
  await Promise.all([redis.stop(), database.stop()]);
  expect([redis.pid, database.pid].map(processExists)).toEqual([false, false]);
  expect(temporaryFolders()).toEqual(before);
});

test("stop ends a frozen server too", async () => {
  const redis = await startRedis();
  process.kill(redis.pid, "SIGSTOP");
  await redis.stop();
  expect(processExists(redis.pid)).toBe(false);
});

test("startRedis fails on a port in use: it does not mistake another server for its own", async () => {
  const first = await startRedis();
  await expect(startRedis({ port: first.port })).rejects.toThrow(`did not start on port ${first.port}`);
  await first.stop();
});

function temporaryFolders(): string[] {
  const own = `tollgate-${process.pid}-`;
  return readdirSync(realpathSync(tmpdir())).filter((name) => name.startsWith(own));
}
