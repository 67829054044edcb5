import type { Replica } from "./replicas_store.ts";

/** What is wrong with a replica, by its last heartbeat. Pure; the browser uses it too. Source: REL-8. */

/** Replicas report every second. */
const SILENT_MS = 5_000;

/** `silent` stands alone: what it reported before says nothing of now. */
export type ReplicaTrouble = "silent" | "database_down" | "cut_off" | "spool" | "draining";

/** Empty for a replica of another release, too, of which only the heartbeat is known. */
export function troublesOf({ status, ageMs }: Pick<Replica, "status" | "ageMs">): ReplicaTrouble[] {
  if (ageMs > SILENT_MS) return ["silent"];
  if (status === null) return [];
  const troubles: ReplicaTrouble[] = [];
  if (!status.databaseUp) troubles.push("database_down");
  if (!status.busHealthy) troubles.push("cut_off");
  if (!status.spoolEmpty) troubles.push("spool");
  if (status.draining) troubles.push("draining");
  return troubles;
}
