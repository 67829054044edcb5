import { METRICS } from "../src/platform/metrics.ts";

/** The operator's guide's table of metrics, from the code. `bun scripts/metrics_table.ts` prints it. */
export function metricsTable(): string {
  const rows = METRICS.map(({ name, type, labels, help }) => {
    const said = Object.entries(labels).map(([label, values]) =>
      values === null ? `\`${label}\`` : `\`${label}\`: ${values.map((value) => `\`${value}\``).join(", ")}`,
    );
    return `| \`${name}\` | ${type} | ${said.join("; ")} | ${help} |`;
  });
  return ["| metric | type | labels | what it says |", "| --- | --- | --- | --- |", ...rows].join("\n");
}

if (import.meta.main) console.log(metricsTable());
