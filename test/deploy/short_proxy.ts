import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../../src/demo/free_port.ts";
import { startOwnedProcess } from "../../src/demo/postgres/owned_process.ts";

/** Real proxies that end a connection to a replica when it has sent nothing for some seconds, as most do after a minute. */

const START_MS_MAX = 20_000;
const POLL_MS = 20;

type Ports = { port: number; replica: number };
type Kind = {
  program: string;
  package: string;
  /** The configuration file, and the arguments for it. */
  config: (ports: Ports, seconds: number, folder: string) => string;
  args: (file: string) => string[];
};

const KINDS = {
  caddy: {
    program: "/usr/bin/caddy",
    package: "caddy",
    config: ({ port, replica }, seconds) => `
      {
        admin off
      }
      http://127.0.0.1:${port} {
        reverse_proxy 127.0.0.1:${replica} {
          transport http {
            response_header_timeout ${seconds}s
            read_timeout ${seconds}s
          }
        }
      }`,
    args: (file) => ["run", "--config", file, "--adapter", "caddyfile"],
  },
  nginx: {
    program: "/usr/sbin/nginx",
    package: "nginx-light",
    config: ({ port, replica }, seconds, folder) => `
      daemon off;
      pid ${folder}/pid;
      error_log stderr;
      events {}
      http {
        access_log off;
        client_body_temp_path ${folder}/body;
        proxy_temp_path ${folder}/proxy;
        fastcgi_temp_path ${folder}/fastcgi;
        uwsgi_temp_path ${folder}/uwsgi;
        scgi_temp_path ${folder}/scgi;
        server {
          listen 127.0.0.1:${port};
          location / {
            proxy_pass http://127.0.0.1:${replica};
            proxy_http_version 1.1;
            proxy_read_timeout ${seconds}s;
          }
        }
      }`,
    args: (file) => ["-c", file],
  },
} satisfies Record<string, Kind>;

export type ProxyKind = keyof typeof KINDS;

/** Starts a proxy in front of a replica, which may be silent for `seconds`. */
export async function startShortProxy(kind: ProxyKind, replica: number, seconds: number) {
  const { program, package: name, config, args }: Kind = KINDS[kind];
  if (!existsSync(program)) throw new Error(`This test needs a real ${kind}: apt-get install ${name}`);
  const folder = mkdtempSync(join(tmpdir(), `tollgate-${kind}-`));
  const port = await freePort();
  const file = join(folder, "config");
  writeFileSync(file, config({ port, replica }, seconds, folder));
  mkdirSync(join(folder, "home"));
  const outputFile = join(folder, "output");
  const env = { HOME: join(folder, "home") };
  const server = startOwnedProcess({ command: program, args: args(file), env, outputFile, stopSignal: "SIGTERM" });
  const stop = () => server.stop().finally(() => rmSync(folder, { recursive: true, force: true }));
  const endsAt = performance.now() + START_MS_MAX;
  while (!(await listens(port))) {
    if (server.hasExited() || performance.now() > endsAt) {
      const output = readFileSync(outputFile, "utf8").trim().split("\n").slice(-3).join(" ");
      await stop();
      throw new Error(`${kind} did not start on port ${port}: ${output}`);
    }
    await sleep(POLL_MS);
  }
  return { origin: `http://127.0.0.1:${port}`, stop };
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true));
    socket.once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}
