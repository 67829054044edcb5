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

/** What a process's thread of this name does; any other does little. The thread that runs JavaScript has the process's id. */
const THREADS: Readonly<Record<string, string>> = {
  "HTTP Client": "fetch",
  HeapHelper: "garbage collector",
  JITWorker: "compiler",
  "mi-scavenger": "allocator",
};

/** CPU so far of a process's threads, in ms, by what they do. Without its children. */
export function threadMs(pid: number): Record<string, number> {
  const found: Record<string, number> = {};
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const work = Number(thread) === pid ? "JavaScript" : (THREADS[read(pid, `task/${thread}/comm`).trim()] ?? "others");
    const nanoseconds = Number(read(pid, `task/${thread}/schedstat`).split(" ", 1)[0]);
    found[work] = (found[work] ?? 0) + nanoseconds / 1e6;
  }
  return found;
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
