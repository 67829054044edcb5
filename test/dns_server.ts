import { spawnSync } from "node:child_process";
import { createSocket } from "node:dgram";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "../src/demo/free_port.ts";
import { startOwnedProcess } from "../src/demo/postgres/owned_process.ts";

/** Servers' folders, which are often not on a person's PATH. */
const serverFolders = ["/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin"];
const startWaitMs = 15_000;
const commandWaitMs = 10_000;
const pollMs = 20;
const portTriesMax = 5;
/** A server that root starts continues as the user nobody. */
const nobody = 65_534;

/** Zone name → its records, one a line as in a zone file: `ai A 203.0.113.7`, `@ TXT "a b"`. */
export type Zones = Record<string, readonly string[]>;

/** An authoritative DNS server on loopback, UDP and TCP. */
export type DnsServer = {
  /** As checkDns takes it: "127.0.0.1:53053". */
  resolver: string;
  pid: number;
  /** Puts other records into a zone; they are served when this returns. */
  setRecords(zone: string, records: readonly string[]): void;
  /** Ends it by its pid and deletes its folder. May be called again. */
  stop(): Promise<void>;
};

/**
 * Starts a real DNS server (knot) with these zones. It refuses names outside of them, and answers SERVFAIL below a name
 * in `broken`. Throws one sentence when knot is not installed.
 */
export async function startDnsServer(zones: Zones, { broken = [] }: { broken?: string[] } = {}): Promise<DnsServer> {
  // Thrown immediately, because no other port would help.
  program("knotd");
  for (let triesLeft = portTriesMax; ; triesLeft--) {
    const port = await freeForBoth();
    try {
      return await startOn(port, zones, broken);
    } catch (error) {
      // Somebody else may have taken the port in between.
      if (triesLeft === 1) throw error;
    }
  }
}

/** The address of a resolver that is not there. */
export async function deadResolver(): Promise<string> {
  return `127.0.0.1:${await freeForBoth()}`;
}

async function startOn(port: number, zones: Zones, broken: string[]): Promise<DnsServer> {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-dns-"));
  // Another user may have to write here.
  chmodSync(folder, 0o777);
  const configuration = join(folder, "knot.conf");
  writeFileSync(configuration, configurationOf({ folder, port, zones: [...Object.keys(zones), ...broken] }));
  let serial = 0;
  const write = (zone: string, records: readonly string[]) => {
    serial++;
    writeFileSync(join(folder, `${zone}.zone`), zoneFile(zone, records, serial));
  };
  for (const [zone, records] of Object.entries(zones)) write(zone, records);
  const outputFile = join(folder, "output");
  const isRoot = process.getuid?.() === 0;
  const server = startOwnedProcess({
    command: program("knotd"),
    args: ["-c", configuration],
    env: { LC_ALL: "C" },
    outputFile,
    stopSignal: "SIGTERM",
    ...(isRoot ? { uid: nobody, gid: nobody } : {}),
  });
  const stop = () => server.stop().finally(() => rmSync(folder, { recursive: true, force: true }));
  const fail = async (what: string) => {
    const output = readFileSync(outputFile, "utf8").trim().split("\n").slice(-3).join(" ");
    await stop();
    throw new Error(`${what}: ${output}`);
  };
  const endsAt = performance.now() + startWaitMs;
  while (!readFileSync(outputFile, "utf8").includes("server started")) {
    if (server.hasExited() || performance.now() > endsAt) await fail(`knotd did not start on port ${port}`);
    await sleep(pollMs);
  }
  // Only a zone that is meant to be broken may be: knot itself starts with whatever it can read.
  const complaints = readFileSync(outputFile, "utf8").matchAll(/ error: \[(.+)\.\]/g);
  if ([...complaints].some(([, zone = ""]) => zone in zones)) await fail("knotd cannot read a zone");
  const setRecords = (zone: string, records: readonly string[]) => {
    write(zone, records);
    const args = ["-c", configuration, "-b", "zone-reload", zone];
    const { status, stderr, stdout } = spawnSync(program("knotc"), args, { encoding: "utf8", timeout: commandWaitMs });
    if (status !== 0) throw new Error(`knotc does not reload ${zone}: ${stderr}${stdout}`);
  };
  return { resolver: `127.0.0.1:${port}`, pid: server.pid, setRecords, stop };
}

function program(name: "knotd" | "knotc"): string {
  const folders = [...(process.env.PATH ?? "").split(":").filter((folder) => folder !== ""), ...serverFolders];
  const found = folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
  if (!found)
    throw new Error(`The DNS tests need a real DNS server, and there is no ${name} here: apt-get install knot`);
  return found;
}

function configurationOf({ folder, port, zones }: { folder: string; port: number; zones: string[] }): string {
  return `
server:
    listen: 127.0.0.1@${port}
    rundir: ${folder}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
control:
    listen: ${folder}/control
database:
    storage: ${folder}/database
log:
  - target: stderr
    any: info
template:
  - id: default
    storage: ${folder}
    semantic-checks: off
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: none
zone:
${zones.map((zone) => `  - domain: ${zone}\n    file: ${zone}.zone`).join("\n")}
`;
}

function zoneFile(zone: string, records: readonly string[], serial: number): string {
  const fixed = [
    `$ORIGIN ${zone}.`,
    "$TTL 60",
    `@ SOA ns.${zone}. admin.${zone}. ${serial} 3600 600 86400 60`,
    "@ NS ns",
  ];
  return `${[...fixed, "ns A 127.0.0.1", ...records].join("\n")}\n`;
}

/** A port of loopback that is free for UDP and TCP. */
async function freeForBoth(): Promise<number> {
  for (let triesLeft = portTriesMax; triesLeft > 0; triesLeft--) {
    const port = await freePort();
    const udp = createSocket("udp4");
    const isFree = await new Promise<boolean>((resolve) => {
      udp.once("error", () => resolve(false));
      udp.bind(port, "127.0.0.1", () => resolve(true));
    });
    await new Promise<void>((resolve) => void udp.close(() => resolve()));
    if (isFree) return port;
  }
  throw new Error("No port of loopback is free for both UDP and TCP.");
}
