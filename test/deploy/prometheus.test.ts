import { describe, expect, test } from "bun:test";
import { YAML } from "bun";
import { METRICS, type MetricFacts } from "../../src/platform/metrics.ts";
import { anchorsOf, sectionOf } from "../doc_text.ts";
import { REPOSITORY, repositoryText } from "./image.ts";

/** Alerts and dashboard query metrics and labels that exist. promtool.test.ts checks the alerts with Prometheus's own tool. */

const ALERTS = "deploy/prometheus/alerts.yaml";
const DASHBOARD = "deploy/grafana/tollgate.json";
/** Rows in the order of an operator's questions. */
const QUESTIONS = ["Are customers served?", "Is money exact?", "Where is the time?", "Are the parts well?"];
/** Labels that the scrape adds, and the one series that it creates. */
const SCRAPED = { labels: ["job", "instance"], series: "up" };
/** Words of PromQL that look like metrics. */
const WORDS =
  "sum avg min max count by without on ignoring and or unless absent rate increase topk time vector histogram_quantile label_values group_left offset".split(
    " ",
  );

// biome-ignore lint/suspicious/noExplicitAny: what a file says is for the tests to say.
type Parsed = any;

const alerts: Parsed = YAML.parse(repositoryText(ALERTS));
const rules: Parsed[] = alerts.groups.flatMap(({ rules }: Parsed) => rules);
const dashboard: Parsed = JSON.parse(repositoryText(DASHBOARD));
const panels: Parsed[] = dashboard.panels.filter(({ type }: Parsed) => type !== "row");
const queries = [
  ...panels.flatMap(({ targets }) => targets.map(({ expr }: Parsed) => expr)),
  ...dashboard.templating.list.flatMap(({ definition }: Parsed) => definition ?? []),
] as string[];

/** What an expression queries that no replica exports. */
function unknownIn(expression: string): string[] {
  const unknown: string[] = [];
  // Durations, and Grafana's ranges.
  const text = expression.replace(/\[[^\]]*\]/g, "");
  const bare = text.replace(/\b(?:by|without|ignoring|on) \(([^)]*)\)/g, (_, names: string) => {
    for (const name of names.split(",").map((part) => part.trim()))
      if (!isLabel(name)) unknown.push(`label ${name} of ${expression}`);
    return "";
  });
  for (const [, name = "", matchers] of bare.matchAll(/\b([a-z_]\w*)(?:\{([^}]*)\})?/g)) {
    if (matchers === undefined && (WORDS.includes(name) || SCRAPED.labels.includes(name))) continue;
    const facts = factsOf(name);
    if (facts === undefined && name !== SCRAPED.series) {
      if (!isInString(bare, name)) unknown.push(`metric ${name} of ${expression}`);
      continue;
    }
    for (const [, label = "", sign = "", value = ""] of (matchers ?? "").matchAll(/(\w+)(=~|!=|=)"([^"]*)"/g))
      if (!fits(facts, label, { sign, value })) unknown.push(`${label}${sign}"${value}" of ${name}`);
  }
  return unknown;
}

function factsOf(name: string): MetricFacts | undefined {
  const found = METRICS.find((facts) => facts.name === name);
  if (found) return found.type === "histogram" ? undefined : found;
  const histogram = METRICS.find((facts) => facts.name === name.replace(/_(?:bucket|sum|count)$/, ""));
  return histogram?.type === "histogram" ? { ...histogram, labels: { ...histogram.labels, le: null } } : undefined;
}

function isLabel(name: string): boolean {
  return name === "le" || SCRAPED.labels.includes(name) || METRICS.some(({ labels }) => name in labels);
}

function isInString(text: string, name: string): boolean {
  return !text.replace(/\{[^}]*\}/g, "").includes(name);
}

/** Whether a metric has the label with such a value: at least one of a pattern's alternatives, and all that are words. */
function fits(
  facts: MetricFacts | undefined,
  label: string,
  { sign, value }: { sign: string; value: string },
): boolean {
  if (SCRAPED.labels.includes(label)) return true;
  const values = facts?.labels[label];
  if (values === undefined) return false;
  if (values === null || value === "") return true;
  if (sign !== "=~") return values.includes(value);
  return value.split("|").every((one) => values.some((known) => new RegExp(`^(?:${one})$`).test(known)));
}

describe("alerts", () => {
  test("each have a unique name, an expression, a wait, its group's severity, and a summary that says what to do", () => {
    expect(rules.length).toBeGreaterThan(20);
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
    for (const { name, rules: own } of alerts.groups) {
      for (const { alert, expr, for: wait, labels, annotations } of own) {
        expect(alert).toMatch(/^Tollgate[A-Z]\w+$/);
        expect([alert, typeof expr, labels.severity]).toEqual([alert, "string", name]);
        expect(wait).toMatch(/^\d+[mh]$/);
        expect({ alert, sentences: annotations.summary.split(/[.?:]\s/).length }).not.toEqual({ alert, sentences: 1 });
        expect(annotations.summary.length).toBeGreaterThan(80);
      }
    }
  });

  test("query only metrics that replicas export", () => {
    expect(rules.flatMap(({ expr }) => unknownIn(expr))).toEqual([]);
  });

  test("are exactly the alarms that the operator's guide lists", () => {
    const section = sectionOf(repositoryText("docs/operations.md"), "Alarms");
    const named = [...section.matchAll(/`(Tollgate\w+)`/g)].map(([, name = ""]) => name);
    expect([...new Set(named)].sort()).toEqual(rules.map(({ alert }) => alert).sort());
    expect(anchorsOf(repositoryText("docs/operations.md"))).toContain("alarms");
  });

  test("quote only log lines that exist", () => {
    const sources = [...new Bun.Glob("src/**/*.ts").scanSync({ cwd: REPOSITORY })].map(repositoryText).join("\n");
    for (const said of [
      "the books could not be checked",
      "the database rejected a row of the ledger",
      "the end of a stream could not be settled or released",
    ]) {
      expect(repositoryText(ALERTS).replace(/\n\s+/g, " ")).toContain(said);
      expect(sources).toContain(`"${said}"`);
    }
  });

  test("with an unknown metric, label or value are found", () => {
    expect(unknownIn("tollgate_nothing > 1")).toHaveLength(1);
    expect(unknownIn("tollgate_hold_seconds > 1")).toHaveLength(1); // A histogram has no series of its bare name.
    expect(unknownIn('tollgate_cap{of="nothing"}')).toHaveLength(1);
    expect(unknownIn('tollgate_ready{reason="full"}')).toHaveLength(1);
    expect(unknownIn('rate(tollgate_shed_requests_total{reason=~"full|nothing"}[5m])')).toHaveLength(1);
    expect(unknownIn("sum by (nothing) (tollgate_ready)")).toHaveLength(1);
    expect(unknownIn('sum by (reason) (rate(tollgate_shed_requests_total{reason=~"full|lag"}[5m])) > 0')).toEqual([]);
  });
});

describe("dashboard", () => {
  test("has its rows in the order of an operator's questions, and panels that do not overlap", () => {
    const rows = dashboard.panels.filter(({ type }: Parsed) => type === "row").map(({ title }: Parsed) => title);
    expect(rows).toEqual(QUESTIONS);
    expect(dashboard.schemaVersion).toBeGreaterThanOrEqual(39);
    const ids = dashboard.panels.map(({ id }: Parsed) => id);
    expect(new Set(ids).size).toBe(ids.length);
    const cells = new Set<string>();
    for (const { title, gridPos } of dashboard.panels) {
      expect([title, gridPos.x + gridPos.w <= 24]).toEqual([title, true]);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          expect([title, cells.has(`${x} ${y}`)]).toEqual([title, false]);
          cells.add(`${x} ${y}`);
        }
      }
    }
  });

  test("has a title, a unit, queries and the chosen data source in every panel", () => {
    expect(dashboard.templating.list.map(({ name, type }: Parsed) => `${name} ${type}`)).toEqual([
      "datasource datasource",
      "job query",
      "instance query",
    ]);
    // biome-ignore lint/suspicious/noTemplateCurlyInString: Grafana's own.
    const chosen = { type: "prometheus", uid: "${datasource}" };
    for (const { title, datasource, targets, fieldConfig } of panels) {
      expect({ title, datasource, unit: typeof fieldConfig.defaults.unit }).toEqual({
        title,
        datasource: chosen,
        unit: "string",
      });
      expect(targets.length).toBeGreaterThan(0);
      for (const target of targets)
        expect({ title, datasource: target.datasource }).toEqual({ title, datasource: chosen });
    }
    expect(new Set(panels.map(({ title }) => title)).size).toBe(panels.length);
  });

  test("queries only metrics that replicas export, for the chosen job and replicas", () => {
    expect(queries.length).toBeGreaterThan(40);
    expect(queries.flatMap(unknownIn)).toEqual([]);
    for (const query of queries.filter((query) => !query.startsWith("label_values")))
      for (const [selector] of query.matchAll(/(?:tollgate|process)_\w+(?:\{[^}]*\})?/g))
        expect(selector).toContain('{job="$job",instance=~"$instance"');
  });

  test("uses, together with the alerts, every metric", () => {
    const all = [...queries, ...rules.map(({ expr }) => expr)].join("\n");
    const unused = METRICS.map(({ name }) => name).filter(
      (name) => !new RegExp(`\\b${name}(?:_bucket|_sum|_count)?\\b`).test(all),
    );
    expect(unused).toEqual(["process_uptime_seconds"]);
  });
});
