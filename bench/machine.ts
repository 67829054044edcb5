import { readFileSync } from "node:fs";
import { availableParallelism, cpus, loadavg, release, totalmem } from "node:os";
import { nginxProgram } from "./contenders.ts";
import type { ContenderName, Workload } from "./workloads.ts";

/** The machine that figures were measured on, and what it lacks for some of them. */

/** A gateway has two sockets per stream, and some further files. */
const SOCKETS_A_STREAM = 2;
const FILES_BESIDE = 200;
/** Above this share of its cores, other work disturbs the figures. */
const LOAD_SHARE_MAX = 0.5;

export type Machine = { cpu: string; cores: number; memoryGb: number; system: string; bun: string; load: number };

export function machine(): Machine {
  return {
    cpu: cpus()[0]?.model.trim() || "unknown",
    cores: availableParallelism(),
    memoryGb: Math.round(totalmem() / 1024 ** 3),
    system: `${process.platform} ${release()} ${process.arch}${scheduling()}`,
    bun: Bun.version,
    load: loadavg()[0] ?? 0,
  };
}

/** Whether Linux shares the processors between sessions, of which each contender has its own, or between all processes alike. */
function scheduling(): string {
  const isOn = read("/proc/sys/kernel/sched_autogroup_enabled").trim();
  return isOn === "" ? "" : `, sched_autogroup ${isOn === "1" ? "on" : "off"}`;
}

/** A sentence for whatever disturbs the figures of all workloads. */
export function disturbances({ cores, load }: Machine): string[] {
  return load <= cores * LOAD_SHARE_MAX
    ? []
    : [
        `other work runs on this machine (load ${load.toFixed(1)} on ${cores} cores before the start): only the ratios mean anything`,
      ];
}

/** Removes the workloads that this machine cannot run, with a sentence for each. */
export function possible(
  workloads: readonly Workload[],
  contenders: readonly ContenderName[],
): { workloads: Workload[]; contenders: ContenderName[]; missing: string[] } {
  const missing: string[] = [];
  const hasNginx = nginxProgram() !== undefined;
  if (!hasNginx && contenders.includes("nginx")) missing.push("nginx is not installed: left out");
  if (process.platform !== "linux") missing.push("this is not Linux: no figures of CPU and memory");
  const [files, ports] = [openFilesMax(), portsMax()];
  const fits = ({ name, held, inFlight }: Workload): boolean => {
    if (!held) return true;
    const wanted = inFlight * SOCKETS_A_STREAM + FILES_BESIDE;
    if (process.platform !== "linux") missing.push(`${name}: left out, for it is about memory`);
    else if (files < wanted)
      missing.push(`${name}: left out, a process may open ${files} files and it needs ${wanted}`);
    else if (ports < inFlight + FILES_BESIDE)
      missing.push(`${name}: left out, there are ${ports} ports for connections and it needs ${inFlight}`);
    else return true;
    return false;
  };
  return {
    workloads: workloads.filter(fits),
    contenders: contenders.filter((name) => name !== "nginx" || hasNginx),
    missing,
  };
}

/** The runtime raises its own limit to the hard one, and its children inherit it. */
function openFilesMax(): number {
  const limit = /^Max open files\s+\S+\s+(\S+)/m.exec(read("/proc/self/limits"))?.[1];
  return limit === undefined || limit === "unlimited" ? Number.POSITIVE_INFINITY : Number(limit);
}

function portsMax(): number {
  const [from, to] = read("/proc/sys/net/ipv4/ip_local_port_range").trim().split(/\s+/).map(Number);
  return from === undefined || to === undefined ? Number.POSITIVE_INFINITY : to - from + 1;
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return ""; // Not Linux: the limit is unknown, and nothing is left out because of it.
  }
}
