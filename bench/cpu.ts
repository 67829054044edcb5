import { readdirSync, readFileSync } from "node:fs";

/** What processes have used so far, from /proc: Linux alone. */

/** The kernel counts in hundredths of a second here, whatever its own tick. */
const TICK_MS = 10;
/** Fields of /proc/PID/stat behind the name, which may hold anything: parent, and four times. */
const PARENT = 1;
const TIMES = [11, 12, 13, 14] as const;

type Process = { pid: number; parent: number; ticks: number };

/** CPU so far, ms, of each named process with all its children, those that have ended too; null where it is gone. */
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

/** Resident memory of a process and all its descendants, bytes; null where there is no /proc. */
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
