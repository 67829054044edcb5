/**
 * A Prometheus histogram: cumulative counts per bucket, and the sum. An array of fixed size, so that a value costs some nanoseconds and
 * no memory.
 */
export type Histogram = {
  observe(value: number): void;
  /** Its series in Prometheus's text format. `labels`: as in `kind="json"`, or "". */
  text(name: string, labels: string): string;
};

/** `bounds`: the upper bounds of the buckets, ascending. A last bucket (+Inf) is added. */
export function createHistogram(bounds: readonly number[]): Histogram {
  const counts = new Float64Array(bounds.length + 1);
  let sum = 0;
  return {
    observe(value) {
      let bucket = 0;
      while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket++;
      counts[bucket] = (counts[bucket] ?? 0) + 1;
      sum += value;
    },
    text(name, labels) {
      let below = 0;
      let out = "";
      for (const [bucket, count] of counts.entries()) {
        below += count;
        const bound = bounds[bucket] ?? "+Inf";
        out += `${name}_bucket{${labels}${labels === "" ? "" : ","}le="${bound}"} ${below}\n`;
      }
      const braces = labels === "" ? "" : `{${labels}}`;
      return `${out}${name}_sum${braces} ${sum}\n${name}_count${braces} ${below}\n`;
    },
  };
}
