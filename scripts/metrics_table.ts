import { METRICS } from "../src/platform/metrics.ts";

/** The table of metrics in docs/operations.md, generated from the code. `bun scripts/metrics_table.ts` prints it. */
export function metricsTable(): string {
  const rows = METRICS.map(({ name, type, labels, help }) => {
    const labelTexts = Object.entries(labels).map(([label, values]) =>
      values === null ? `\`${label}\`` : `\`${label}\`: ${values.map((value) => `\`${value}\``).join(", ")}`,
    );
    return `| \`${name}\` | ${type} | ${labelTexts.join("; ")} | ${help} |`;
  });
  return ["| metric | type | labels | what it says |", "| --- | --- | --- | --- |", ...rows].join("\n");
}

if (import.meta.main) console.log(metricsTable());
