import { spawnSync } from "node:child_process";
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import postgres from "postgres";
import { type OwnedProcess, startOwnedProcess } from "../src/demo/postgres/owned_process.ts";
import { sleep } from "./platform/own_redis.ts";

/** The PostgreSQL of Debian's package, which has the client and replication programs that the embedded one lacks. */

/** Where Debian installs it, by version. */
const DEBIAN = "/usr/lib/postgresql";
const SERVER_MS_MAX = 60_000;

export type DebianPostgres = {
  /** The folder of its programs. */
  bin: string;
  /** Runs one of them to its end, as the user who owns the data. Throws an Error with its output if it fails. */
  run(program: string, args: readonly string[]): void;
  /** An empty server, in this folder of `place`. */
  init(data: string): void;
  /** Starts the server of this folder, and waits until it answers. */
  start(data: string, at: { port: number; host?: string }): Promise<DebianServer>;
};
export type DebianServer = { url: string; server: OwnedProcess };

/** Prepares `place` for servers. Throws an Error if the package is not installed. */
export function debianPostgres(place: string): DebianPostgres {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN).sort((a, b) => Number(b) - Number(a)) : [];
  const bin = versions
    .map((version) => join(DEBIAN, version, "bin"))
    .find((path) => existsSync(join(path, "pg_basebackup")) && existsSync(join(path, "initdb")));
  if (bin === undefined) throw new Error("This test needs Debian's package postgresql.");
  mkdirSync(place, { recursive: true, mode: 0o755 });
  // PostgreSQL does not run as root. Debian's package creates this user.
  const [uid, gid] = process.getuid?.() === 0 ? userOf("postgres") : [undefined, undefined];
  if (uid !== undefined && gid !== undefined) {
    chownSync(place, uid, gid);
    for (let above = dirname(place); above !== tmpdir() && above !== "/"; above = dirname(above))
      spawnSync("chmod", ["o+x", above]);
  }
  const who = uid === undefined ? {} : { uid, gid };

  function run(program: string, args: readonly string[]): void {
    const { status, stderr } = spawnSync(join(bin ?? "", program), args, { cwd: "/", encoding: "utf8", ...who });
    if (status !== 0) throw new Error(`${program} failed: ${stderr}`);
  }
  return {
    bin,
    run,
    init: (data) =>
      run("initdb", ["-D", join(place, data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]),
    async start(data, { port, host = "127.0.0.1" }) {
      const settings = { listen_addresses: host, unix_socket_directories: "", max_connections: "200" };
      const outputFile = join(place, `${data}.log`);
      const server = startOwnedProcess({
        command: join(bin, "postgres"),
        args: [
          "-D",
          join(place, data),
          "-p",
          String(port),
          ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
        ],
        env: { PATH: process.env.PATH ?? "", LC_ALL: "C" },
        outputFile,
        cwd: "/",
        stopSignal: "SIGINT",
        ...who,
      });
      const url = `postgres://postgres@${host}:${port}/postgres`;
      await answering(url, outputFile);
      return { url, server };
    },
  };
}

async function answering(url: string, outputFile: string): Promise<void> {
  for (const deadline = performance.now() + SERVER_MS_MAX; ; await sleep(100)) {
    const sql = postgres(url, { max: 1, onnotice: () => {}, connect_timeout: 2 });
    const isUp = await sql`select 1`.then(
      () => true,
      () => false,
    );
    await sql.end({ timeout: 1 });
    if (isUp) return;
    if (performance.now() > deadline) throw new Error(`Postgres did not start:\n${readFileSync(outputFile, "utf8")}`);
  }
}

function userOf(name: string): [uid: number, gid: number] {
  const [, uid, gid] = new RegExp(`^${name}:[^:]*:(\\d+):(\\d+):`, "m").exec(readFileSync("/etc/passwd", "utf8")) ?? [];
  if (uid === undefined) throw new Error(`There is no user ${name}.`);
  return [Number(uid), Number(gid)];
}
