import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { YAML } from "bun";
import packageFacts from "../package.json" with { type: "json" };
import { VARIABLES } from "../src/config.ts";

/**
 * Makes the Helm chart in `deploy/helm/tollgate` from `deploy/kubernetes`: `bun scripts/helm_chart.ts` writes it. With the
 * chart's own values it renders to those manifests: `helm template … | bun scripts/helm_chart.ts --compare`.
 */

const repository = join(import.meta.dirname, "..");
const CHART = join(repository, "deploy/helm/tollgate");
const NOTE = "# Made from deploy/kubernetes by `bun scripts/helm_chart.ts`.\n";
const IMAGE = `tollgate:${packageFacts.version}`;

/** A text of a manifest that stands there `times` times, and what the chart has in its place. */
type Change = { from: string; to: string; times?: number };

const NAMESPACE: Change = { from: "namespace: tollgate", to: "namespace: {{ .Release.Namespace }}" };
const OUR_IMAGE: Change = {
  from: `image: ${IMAGE}`,
  to: `image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"`,
};
const SECRET: Change = {
  from: "secretRef:\n                name: tollgate",
  to: "secretRef:\n                name: {{ .Values.secretName }}",
};
const CONFIG_REF = "            - configMapRef:\n                name: tollgate\n";

const CHANGES: Record<string, Change[]> = {
  "autoscaling.yaml": [
    NAMESPACE,
    { from: "minReplicas: 3", to: "minReplicas: {{ .Values.replicas.min }}" },
    {
      from: "  # TOLLGATE_REPLICAS in proxy.yaml must have this many names.\n  maxReplicas: 6",
      to: `  {{- if lt (int .Values.replicas.max) (int .Values.replicas.min) }}
  {{- fail "replicas.max must be at least replicas.min" }}
  {{- end }}
  maxReplicas: {{ .Values.replicas.max }}`,
    },
    { from: "averageUtilization: 60", to: "averageUtilization: {{ .Values.replicas.cpuPercent }}" },
  ],
  "config.yaml": [NAMESPACE],
  "disruption.yaml": [NAMESPACE],
  "migrate.yaml": [
    NAMESPACE,
    OUR_IMAGE,
    SECRET,
    {
      from: "# Migrates the schema before the replicas of a release start. To run it again, delete the job first.\n",
      to: "# Migrates the schema before the replicas of a release start. The secret is all that it needs.\n",
    },
    {
      from: "  namespace: {{ .Release.Namespace }}\nspec:",
      to: `  namespace: {{ .Release.Namespace }}
  annotations:
    helm.sh/hook: pre-install,pre-upgrade
    helm.sh/hook-delete-policy: before-hook-creation
spec:`,
    },
    { from: CONFIG_REF, to: "" },
  ],
  "network.yaml": [
    NAMESPACE,
    {
      from: "kubernetes.io/metadata.name: monitoring",
      to: "kubernetes.io/metadata.name: {{ .Values.monitoringNamespace }}",
    },
  ],
  "proxy.yaml": [
    { ...NAMESPACE, times: 3 },
    {
      from: " Its Caddyfile:\n#   kubectl --namespace tollgate create configmap caddy --from-file=deploy/Caddyfile\n",
      to: "\n",
    },
    { from: "image: caddy:2.10.2-alpine", to: "image: {{ .Values.caddy.image | quote }}" },
    { from: "value: hostmaster@example.com", to: "value: {{ .Values.caddy.acmeEmail | quote }}" },
    {
      from: `              value: >-
                tollgate-0.tollgate:8080 tollgate-1.tollgate:8080 tollgate-2.tollgate:8080
                tollgate-3.tollgate:8080 tollgate-4.tollgate:8080 tollgate-5.tollgate:8080`,
      to: `              value: >-
                {{- range $i := until (int .Values.replicas.max) }}
                tollgate-{{ $i }}.tollgate:8080
                {{- end }}`,
    },
    { from: "storage: 1Gi", to: "storage: {{ .Values.caddy.storage }}" },
    {
      from: "      labels:\n        app: caddy\n    spec:",
      to: `      labels:
        app: caddy
      annotations:
        # A changed Caddyfile starts it again.
        checksum/caddyfile: {{ .Files.Get "files/Caddyfile" | sha256sum }}
    spec:`,
    },
  ],
  "replicas.yaml": [
    { ...NAMESPACE, times: 2 },
    OUR_IMAGE,
    SECRET,
    {
      from: "terminationGracePeriodSeconds: 60",
      to: "terminationGracePeriodSeconds: {{ .Values.terminationGraceSeconds }}",
    },
    {
      from: `              cpu: "1"\n              memory: 512Mi\n            limits:\n              memory: 1Gi`,
      to: `              cpu: {{ .Values.resources.cpu | quote }}
              memory: {{ .Values.resources.memory }}
            limits:
              memory: {{ .Values.resources.memoryMax }}`,
    },
    { from: "            storage: 1Gi", to: "            storage: {{ .Values.spoolStorage }}" },
    {
      from: `        prometheus.io/port: "9090"`,
      to: `        prometheus.io/port: "9090"
        # Changed variables start the replicas again, one after another.
        checksum/config: {{ toYaml .Values.config | sha256sum }}`,
    },
  ],
};

/** The chart's files, by their path in it. */
export function chartFiles(): Record<string, string> {
  const files = Object.entries(CHANGES).map(([name, changes]) => [`templates/${name}`, template(name, changes)]);
  return {
    "Chart.yaml": `apiVersion: v2
name: tollgate
description: ${packageFacts.description}
type: application
version: ${packageFacts.version}
appVersion: "${packageFacts.version}"
kubeVersion: ">=1.27.0-0"
`,
    "values.schema.json": `${JSON.stringify(schema(), null, 2)}\n`,
    ...Object.fromEntries(files),
    "templates/caddyfile.yaml": `${NOTE}apiVersion: v1
kind: ConfigMap
metadata:
  name: caddy
  namespace: {{ .Release.Namespace }}
data:
  Caddyfile: |
    {{- .Files.Get "files/Caddyfile" | nindent 4 }}
`,
    "files/Caddyfile": readFileSync(join(repository, "deploy/Caddyfile"), "utf8"),
  };
}

function template(name: string, changes: Change[]): string {
  let text = readFileSync(join(repository, "deploy/kubernetes", name), "utf8");
  // The variables are the chart's values.
  if (name === "config.yaml")
    text = `${text.slice(0, text.indexOf("\ndata:\n"))}
data:
  {{- range $name, $value := .Values.config }}
  {{ $name }}: {{ $value | quote }}
  {{- end }}
`;
  for (const { from, to, times = 1 } of changes) {
    const pieces = text.split(from);
    if (pieces.length - 1 !== times)
      throw new Error(`${name} has ${pieces.length - 1} times, not ${times}: ${JSON.stringify(from)}`);
    text = pieces.join(to);
  }
  return NOTE + text;
}

const text = (pattern: string, description: string) => ({ type: "string", pattern, description });
const whole = (minimum: number, maximum: number, description: string) => ({
  ...{ type: "integer", minimum, maximum, description },
});
const object = (properties: Record<string, object>, required = Object.keys(properties)) => ({
  ...{ type: "object", additionalProperties: false, required, properties },
});
const MEMORY = "^[1-9][0-9]*(Mi|Gi)$";

/** What values may be. Helm refuses others by name. */
function schema(): object {
  const variables = Object.entries(VARIABLES)
    .filter(([, variable]) => !("secret" in variable))
    .map(([name, { what }]) => [name, { type: "string", description: what }]);
  return {
    $schema: "http://json-schema.org/draft-07/schema#",
    title: "Values of the chart tollgate",
    ...object({
      image: object({
        repository: text("^[a-z0-9][a-z0-9./:_-]*$", "the image without its tag"),
        tag: text("^[A-Za-z0-9_.-]{0,128}$", "the tag; empty: the version of the chart"),
      }),
      secretName: text("^[a-z0-9][a-z0-9.-]{0,252}$", "an existing Secret with DATABASE_URL, REDIS_URL and SECRET_KEY"),
      config: {
        ...object(Object.fromEntries(variables), ["BASE_URL", "PANEL_URL", "TRUSTED_PROXIES"]),
        description: "variables that are not secret: docs/configuration.md",
      },
      replicas: object({
        min: whole(1, 64, "replicas at least"),
        max: whole(1, 64, "replicas at most; Caddy is told their names"),
        cpuPercent: whole(10, 95, "CPU above which a replica is added, in percent of what it asks for"),
      }),
      resources: object({
        cpu: text("^([1-9][0-9]*|[1-9][0-9]{2,}m)$", "what a replica asks for: a core, as it uses up to one"),
        memory: text(MEMORY, "what a replica asks for"),
        memoryMax: text(MEMORY, "what ends a replica"),
      }),
      terminationGraceSeconds: whole(48, 3600, "longer than DRAIN_NOTICE_SECONDS, DRAIN_SECONDS and 15 s together"),
      spoolStorage: text("^[1-9][0-9]*Gi$", "disk of a replica's spool; more than twice SPOOL_BYTES_MAX"),
      monitoringNamespace: text("^[a-z0-9][a-z0-9-]{0,62}$", "the namespace of Prometheus, which may read /metrics"),
      caddy: object({
        image: text("^[a-z0-9][a-z0-9./:_@-]*$", "the image of Caddy"),
        acmeEmail: text("^[^\\s@]+@[^\\s@]+$", "for the certificates"),
        storage: text("^[1-9][0-9]*Gi$", "disk for certificates"),
      }),
    }),
  };
}

/** What is read of an object of Kubernetes. */
type Metadata = { name?: string; annotations?: Record<string, unknown> };
type Container = { envFrom: { configMapRef?: unknown }[] };
type Template = { metadata?: Metadata; spec: { containers: Container[] } };
type Manifest = { kind: string; metadata: Metadata; spec?: { template?: Template } };

/** What a rendered chart has otherwise than deploy/kubernetes, beside what Helm alone needs. */
export function differences(rendered: string): string[] {
  const manifests = Object.keys(CHANGES).map((name) =>
    readFileSync(join(repository, "deploy/kubernetes", name), "utf8"),
  );
  const [plain, ours] = [manifests.join("\n---\n"), rendered].map(objects);
  const names = new Set([...Object.keys(plain ?? {}), ...Object.keys(ours ?? {})]);
  return [...names].filter((name) => JSON.stringify(plain?.[name]) !== JSON.stringify(ours?.[name])).sort();
}

function objects(text: string): Record<string, unknown> {
  const parsed = YAML.parse(text) as Manifest | (Manifest | null)[];
  const all = [parsed].flat().filter((object) => object !== null);
  const kept = all.map((object): [string, unknown] => [
    `${object.kind} ${object.metadata.name}`,
    sorted(withoutHelm(object)),
  ]);
  // The chart has the Caddyfile; beside the manifests it is created by a command.
  return Object.fromEntries(kept.filter(([name]) => name !== "ConfigMap caddy"));
}

/** Without the chart's annotations, and the variables of the migration, whose secret is enough. */
function withoutHelm(object: Manifest): Manifest {
  const copy = structuredClone(object);
  for (const metadata of [copy.metadata, copy.spec?.template?.metadata]) {
    const left = Object.entries(metadata?.annotations ?? {}).filter(([name]) => !/^(?:helm\.sh|checksum)\//.test(name));
    if (metadata) metadata.annotations = Object.fromEntries(left);
  }
  if (copy.kind === "Job")
    for (const container of copy.spec?.template?.spec.containers ?? [])
      container.envFrom = container.envFrom.filter((from) => !from.configMapRef);
  return copy;
}

function sorted(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(sorted);
  if (part === null || typeof part !== "object") return typeof part === "string" ? part.trim() : part;
  const entries = Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, value]) => [key, sorted(value)]));
}

if (import.meta.main && process.argv.includes("--compare")) {
  const found = differences(readFileSync(0, "utf8"));
  for (const name of found) console.error(`not as in deploy/kubernetes: ${name}`);
  process.exitCode = found.length === 0 ? 0 : 1;
} else if (import.meta.main) {
  rmSync(join(CHART, "templates"), { recursive: true, force: true });
  for (const [path, content] of Object.entries(chartFiles())) {
    mkdirSync(dirname(join(CHART, path)), { recursive: true });
    writeFileSync(join(CHART, path), content);
  }
}
