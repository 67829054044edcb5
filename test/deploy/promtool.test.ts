import { expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { YAML } from "bun";
import { createMetrics, METRICS, type MetricSources } from "../../src/platform/metrics.ts";
import { REPOSITORY, repositoryText } from "./image.ts";

/** Prometheus's own tool checks the alerts, runs them on made-up series, and checks a replica's metrics. */
const PROMTOOL = "/usr/bin/promtool";
const ALERTS = "deploy/prometheus/alerts.yaml";
const ALERT_TESTS = "deploy/prometheus/alerts.test.yaml";

// biome-ignore lint/suspicious/noExplicitAny: what a file says is for the tests to say.
type Parsed = any;
const rules: Parsed[] = (YAML.parse(repositoryText(ALERTS)) as Parsed).groups.flatMap(({ rules }: Parsed) => rules);

function run(args: string[], input = ""): { status: number | null; said: string } {
  const { status, stdout, stderr, error } = spawnSync(PROMTOOL, args, { cwd: REPOSITORY, encoding: "utf8", input });
  if (error) throw new Error(`This needs ${PROMTOOL}: apt-get install prometheus`, { cause: error });
  return { status, said: `${stdout}${stderr}` };
}

test("it reads every rule", () => {
  const { status, said } = run(["check", "rules", ALERTS]);
  expect({ status, said }).toEqual({ status: 0, said: expect.stringContaining(`${rules.length} rules found`) });
});

test("alerts fire when they should and not before, with their summaries; every alert is tested", () => {
  const { status, said } = run(["test", "rules", ALERT_TESTS]);
  expect({ status, said }).toEqual({ status: 0, said: expect.stringContaining("SUCCESS") });
  const { tests }: Parsed = YAML.parse(repositoryText(ALERT_TESTS));
  const fired = new Set(
    tests.flatMap(({ alert_rule_test: tries }: Parsed) =>
      tries.filter(({ exp_alerts: seen = [] }: Parsed) => seen.length > 0).map(({ alertname }: Parsed) => alertname),
    ),
  );
  expect(rules.map(({ alert }) => alert).filter((alert) => !fired.has(alert))).toEqual([]);
});

test("it refuses invalid rules", () => {
  expect(run(["check", "rules", "package.json"]).status).not.toBe(0);
});

test("it accepts a replica's metrics, their names and help texts", async () => {
  const metrics = createMetrics();
  metrics.ended("POST /v1/chat/completions", 200, "");
  metrics.ended("POST /v1/chat/completions", 402, "package_required");
  metrics.firstByte("json", 12);
  metrics.held(0.3);
  metrics.watch(sources());
  expect(run(["check", "metrics"], await metrics.text())).toEqual({ status: 0, said: "" });
  expect(run(["check", "metrics"], '# TYPE a counter\na{b="c} 1\n').status).not.toBe(0);
});

/** A value for every metric that is read at scrape time, by metric name. */
function sources(): MetricSources {
  const read = METRICS.map(({ name, labels }) => {
    const [values = null] = Object.values(labels);
    return [name.slice("tollgate_".length), () => (values ? Object.fromEntries(values.map((value) => [value, 1])) : 1)];
  });
  return Object.fromEntries(read) as MetricSources;
}
