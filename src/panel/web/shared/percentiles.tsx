import { formatTook } from "../format.ts";

/** The median of durations, and below it what 95 in a hundred did not exceed; null: there were none. */
export function Percentiles({ of }: { of: { p50Ms: number; p95Ms: number } | null }) {
  if (of === null) return "–";
  return (
    <span className="grid justify-items-end">
      <span className="whitespace-nowrap">{formatTook(of.p50Ms)}</span>
      <span className="text-12 whitespace-nowrap text-ink-3">p95 {formatTook(of.p95Ms)}</span>
    </span>
  );
}
