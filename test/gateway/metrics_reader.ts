import type { ReplicaProcess } from "../replica.ts";

/** The origin of the internal listener of a replica that was started with INTERNAL_PORT=0. */
export function internalOrigin(replica: ReplicaProcess): string {
  const port = /"internalPort":(\d+)/.exec(replica.logged())?.[1];
  if (port === undefined) throw new Error("the replica has no internal port");
  return `http://127.0.0.1:${port}`;
}

/** A replica's current metrics, by name and labels, as in `tollgate_shed_requests_total{reason="full"}`. */
export async function metricsOf(replica: ReplicaProcess): Promise<Map<string, number>> {
  const text = await (await fetch(`${internalOrigin(replica)}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ") + 1))]),
  );
}

/** The number of requests that a replica refused for this reason. */
export async function shedBy(replica: ReplicaProcess, reason: string): Promise<number | undefined> {
  return (await metricsOf(replica)).get(`tollgate_shed_requests_total{reason="${reason}"}`);
}

/** The number of waits that this time limit ended. */
export async function timeOutsOf(replica: ReplicaProcess, limit: string): Promise<number | undefined> {
  return (await metricsOf(replica)).get(`tollgate_time_outs_total{limit="${limit}"}`);
}

/** The value of a gauge. */
export async function gaugeOf(replica: ReplicaProcess, name: string): Promise<number | undefined> {
  return (await metricsOf(replica)).get(`tollgate_${name}`);
}
