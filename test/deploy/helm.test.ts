import { expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import Ajv from "ajv";
import { YAML } from "bun";
import packageFacts from "../../package.json" with { type: "json" };
import { chartFiles, differences } from "../../scripts/helm_chart.ts";
import { VARIABLES } from "../../src/config.ts";
import { REPOSITORY, repositoryText } from "./image.ts";

/**
 * The Helm chart. Helm itself is not in Debian or npm: the workflow `release.yml` lints, renders and compares with it. Here
 * the few forms of templates that the chart uses are rendered by this file, which throws at others.
 */

const CHART = "deploy/helm/tollgate";
type Section = Record<string, unknown>;
type Values = Section & { replicas: Section; config: Section };
const values = YAML.parse(repositoryText(`${CHART}/values.yaml`)) as Values;
const partOf = (whole: unknown, name: string): unknown => Object(whole)[name];
const check = new Ajv({ strict: false, allErrors: true }).compile(
  JSON.parse(repositoryText(`${CHART}/values.schema.json`)),
);
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

/** The template with the given values. */
function render(template: string, given: Values): string {
  const caddyfile = repositoryText(`${CHART}/files/Caddyfile`);
  const at = (path: string) => {
    const found = path.split(".").reduce<unknown>(partOf, {
      ...{ Values: given, Release: { Namespace: "tollgate" }, Chart: { AppVersion: packageFacts.version } },
    });
    if (found === undefined) throw new Error(`no value ${path}`);
    return found;
  };
  const rendered = template
    .replace(/\s*\{\{- range \$name, \$value := \.([\w.]+) \}\}[\s\S]*?\{\{- end \}\}/g, (_, path: string) =>
      Object.entries(Object(at(path)))
        .map(([name, value]) => `\n  ${name}: ${JSON.stringify(value)}`)
        .join(""),
    )
    .replace(
      /\s*\{\{- range \$i := until \(int \.([\w.]+)\) \}\}(\s+[^{]*)\{\{ \$i \}\}([^\n]*)\s*\{\{- end \}\}/g,
      (_, path: string, before: string, after: string) =>
        Array.from({ length: Number(at(path)) }, (__, i) => `${before}${i}${after}`).join(""),
    )
    .replace(
      /\s*\{\{- if lt \(int \.([\w.]+)\) \(int \.([\w.]+)\) \}\}\s*\{\{- fail "([^"]+)" \}\}\s*\{\{- end \}\}/g,
      (_, less: string, more: string, message: string) => {
        if (Number(at(less)) < Number(at(more))) throw new Error(message);
        return "";
      },
    )
    .replace(/\s*\{\{- \.Files\.Get "files\/Caddyfile" \| nindent 4 \}\}/g, `\n${caddyfile.replace(/^/gm, "    ")}`)
    .replace(/\{\{ \.Files\.Get "files\/Caddyfile" \| sha256sum \}\}/g, sha256(caddyfile))
    .replace(/\{\{ toYaml \.([\w.]+) \| sha256sum \}\}/g, (_, path: string) => sha256(JSON.stringify(at(path))))
    .replace(/\{\{ \.([\w.]+) \| default \.([\w.]+) \}\}/g, (_, path: string, otherwise: string) =>
      String(at(path) || at(otherwise)),
    )
    .replace(/\{\{ \.([\w.]+)( \| quote)? \}\}/g, (_, path: string, quote?: string) =>
      quote ? JSON.stringify(at(path)) : String(at(path)),
    );
  if (/\{\{(?!\$)/.test(rendered.replace(caddyfile.replace(/^/gm, "    "), "")))
    throw new Error(`unknown form of template: ${/\{\{.*/.exec(rendered)}`);
  return rendered;
}
const rendered = (given: Values) =>
  readdirSync(join(REPOSITORY, CHART, "templates"))
    .map((name) => render(repositoryText(`${CHART}/templates/${name}`), given))
    .join("\n---\n");

test("the chart is as `bun scripts/helm_chart.ts` makes it from deploy/kubernetes, and has no other files", () => {
  const files = chartFiles();
  for (const [path, text] of Object.entries(files))
    expect([path, repositoryText(`${CHART}/${path}`)]).toEqual([path, text]);
  const found = readdirSync(join(REPOSITORY, CHART), { recursive: true, withFileTypes: true }).filter((one) =>
    one.isFile(),
  );
  expect(found).toHaveLength(Object.keys(files).length + 1);
});

test("with its own values it renders to the objects of deploy/kubernetes", () => {
  expect(differences(rendered(values))).toEqual([]);
  const other = { ...values, replicas: { ...values.replicas, max: 7 } };
  expect(differences(rendered(other)).join()).toBe("Deployment caddy,HorizontalPodAutoscaler tollgate");
  expect(rendered(other)).toContain("tollgate-6.tollgate:8080");
});

test("its values are valid, and one out of range is refused by name", () => {
  expect(check(values) ? [] : check.errors).toEqual([]);
  const refused: [path: string, value: unknown][] = [
    ["replicas.min", 0],
    ["replicas.max", 65],
    ["replicas.max", "6"],
    ["replicas.cpuPercent", 96],
    ["terminationGraceSeconds", 47],
    ["spoolStorage", "0Gi"],
    ["resources.cpu", "50m"],
    ["resources.memory", "512"],
    ["image.tag", "a b"],
    ["secretName", ""],
    ["caddy.acmeEmail", "nobody"],
    ["config.PANEL_URL", 1],
  ];
  for (const [path, value] of refused) {
    const wrong = structuredClone(values);
    const names = path.split(".");
    const last = names.pop() ?? "";
    Object(names.reduce<unknown>(partOf, wrong))[last] = value;
    check(wrong);
    expect(check.errors?.map(({ instancePath }) => instancePath)).toEqual([`/${path.replace(".", "/")}`]);
  }
  expect(() => rendered({ ...values, replicas: { ...values.replicas, min: 7 } })).toThrow(
    "replicas.max must be at least",
  );
});

test("no secret can be one of its values", () => {
  for (const [name, variable] of Object.entries(VARIABLES)) {
    const isRefused = !check({ ...values, config: { ...values.config, [name]: "x" } });
    expect([name, isRefused]).toEqual([name, "secret" in variable]);
  }
});
