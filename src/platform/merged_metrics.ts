/** Metrics of several processes, each in Prometheus's text format, as one text: every series gets the label of its process. */
export function merged(texts: readonly { label: string; text: string }[]): string {
  /** By name: its help and type once, and the series of all processes. */
  const families = new Map<string, { head: string[]; series: string[] }>();
  for (const { label, text } of texts) {
    let current = { head: [] as string[], series: [] as string[] };
    for (const line of text.split("\n")) {
      const [, kind, name = ""] = /^# (HELP|TYPE) (\S+)/.exec(line) ?? [];
      if (kind !== undefined) {
        current = families.get(name) ?? { head: [], series: [] };
        families.set(name, current);
        if (!current.head.includes(line)) current.head.push(line);
      } else if (line !== "" && !line.startsWith("#")) current.series.push(labelled(line, label));
    }
  }
  return [...families.values()].flatMap(({ head, series }) => [...head, ...series, ""]).join("\n");
}

function labelled(series: string, label: string): string {
  const [, name = "", brace = "", rest = ""] = /^([\w:]+)(\{?)(.*)$/.exec(series) ?? [];
  return brace === "" ? `${name}{${label}}${rest}` : `${name}{${label},${rest}`;
}
