import type { ReplicaProcess } from "../replica.ts";

/** Where a replica that was started with INTERNAL_PORT=0 serves its metrics. */
export function internalOrigin(replica: ReplicaProcess): string {
  const port = /"internalPort":(\d+)/.exec(replica.logged())?.[1];
  if (port === undefined) throw new Error("the replica has no internal port");
  return `http://127.0.0.1:${port}`;
}

/** What a replica's metrics say now, by name and labels as they stand there: `tollgate_shed_requests_total{reason="full"}`. */
export async function metricsOf(replica: ReplicaProcess): Promise<Map<string, number>> {
  const text = await (await fetch(`${internalOrigin(replica)}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ") + 1))]),
  );
}

/** How many requests a replica has turned away for this reason. */
export async function shedBy(replica: ReplicaProcess, reason: string): Promise<number | undefined> {
  return (await metricsOf(replica)).get(`tollgate_shed_requests_total{reason="${reason}"}`);
}

/** How often this time limit was passed. */
export async function timeOutsOf(replica: ReplicaProcess, limit: string): Promise<number | undefined> {
  return (await metricsOf(replica)).get(`tollgate_time_outs_total{limit="${limit}"}`);
}

/** The value of a gauge. */
export async function gaugeOf(replica: ReplicaProcess, name: string): Promise<number | undefined> {
  return (await metricsOf(replica)).get(`tollgate_${name}`);
}
