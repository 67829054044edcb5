/** Snapshots as cursors over rows that know which transaction wrote them: pure. */

/** Sees the transactions below `xmax` that are not `open`. */
export type Snapshot = { xmax: bigint; open: bigint[] };

/**
 * The cursor after `from`, for a reader that sees `seen` and has taken the rows of all transactions before `over`.
 * undefined: it has taken all that it sees.
 */
export function advanced(from: Snapshot, seen: Snapshot, over?: bigint): Snapshot {
  if (over === undefined) return seen;
  const stillOpen = new Set(seen.open);
  const xmax = over > from.xmax ? over : from.xmax;
  const left = from.open.filter((id) => !stillOpen.has(id) && id >= over);
  return { xmax, open: [...seen.open.filter((id) => id < xmax), ...left] };
}

/** Postgres writes a snapshot as xmin:xmax:open ids between them. */
export function toSnapshot(text: unknown): Snapshot {
  const [, xmax, open] = /^\d+:(\d+):([\d,]*)$/.exec(String(text)) ?? [];
  if (xmax === undefined || open === undefined) throw new Error(`not a snapshot: ${text}`);
  return { xmax: BigInt(xmax), open: open === "" ? [] : open.split(",").map(BigInt) };
}

export function toText({ xmax, open }: Snapshot): string {
  const ids = [...new Set(open)].sort((a, b) => (a < b ? -1 : 1));
  return `${ids[0] ?? xmax}:${xmax}:${ids.join(",")}`;
}
