import { readdirSync, readFileSync } from "node:fs";

/** CPU and memory of processes, from /proc: only on Linux. */

/** The kernel counts in hundredths of a second here, whatever its own tick. */
const TICK_MS = 10;
/** Fields of /proc/PID/stat after the name, which may contain any character: the parent, and four times. */
const PARENT = 1;
const TIMES = [11, 12, 13, 14] as const;

type Process = { pid: number; parent: number; ticks: number };

/** CPU so far, in ms, of each named process with all its children, ended ones included; null if it has ended. */
export function cpuMs(roots: Readonly<Record<string, number>>): Record<string, number | null> {
  const all = processes();
  const children = Map.groupBy(all.values(), (process) => process.parent);
  const ticksOf = (process: Process): number =>
    (children.get(process.pid) ?? []).reduce((sum, child) => sum + ticksOf(child), process.ticks);
  return Object.fromEntries(
    Object.entries(roots).map(([name, pid]) => {
      const root = all.get(pid);
      return [name, root === undefined ? null : ticksOf(root) * TICK_MS];
    }),
  );
}

/** Resident memory of a process and all its descendants, bytes; null without /proc. */
export function residentBytes(pid: number): number | null {
  if (process.platform !== "linux") return null;
  const children = Map.groupBy(processes().values(), (process) => process.parent);
  const treeOf = (root: number): number[] => [
    root,
    ...(children.get(root) ?? []).flatMap((child) => treeOf(child.pid)),
  ];
  return treeOf(pid).reduce(
    (sum, one) => sum + Number(/VmRSS:\s+(\d+) kB/.exec(read(one, "status"))?.[1] ?? 0) * 1024,
    0,
  );
}

/** The parent of a process that is a Postgres backend on this machine; undefined for one that is not. */
export function postmasterOf(backendPid: number): number | undefined {
  if (process.platform !== "linux" || !/postgres/.test(read(backendPid, "cmdline"))) return undefined;
  return processes().get(backendPid)?.parent;
}

function processes(): Map<number, Process> {
  const found = new Map<number, Process>();
  if (process.platform !== "linux") return found;
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const stat = read(Number(name), "stat");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    if (fields.length <= TIMES[3]) continue; // It has ended in this moment.
    const ticks = TIMES.reduce((sum, field) => sum + Number(fields[field]), 0);
    found.set(Number(name), { pid: Number(name), parent: Number(fields[PARENT]), ticks });
  }
  return found;
}

function read(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    return ""; // It has ended, or is not ours to see.
  }
}
