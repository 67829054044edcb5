import { describe, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { YAML } from "bun";
import packageFacts from "../../package.json" with { type: "json" };
import { readConfig, VARIABLES } from "../../src/config.ts";
import { clientAddress } from "../../src/http/client_address.ts";
import { parseDockerfile, REPOSITORY, repositoryText } from "./image.ts";

/** The files of `deploy/`, read as their tools do, and compared with the image and the configuration. */

/** After notice and grace: see main.ts. */
const CLOSE_SECONDS_MAX = 15;
const IMAGE = `tollgate:${packageFacts.version}`;

// biome-ignore lint/suspicious/noExplicitAny: what a manifest says is for the tests to say.
type Manifest = any;

const documents = (path: string): Manifest[] => {
  const parsed: unknown = YAML.parse(repositoryText(path));
  return Array.isArray(parsed) ? parsed : [parsed];
};
const kubernetesFiles = readdirSync(join(REPOSITORY, "deploy/kubernetes")).map((name) => `deploy/kubernetes/${name}`);
const kubernetes = kubernetesFiles.flatMap(documents);
const compose: Manifest = documents("deploy/compose.yaml")[0];
const services = Object.entries<Manifest>(compose.services);
const caddyfile = repositoryText("deploy/Caddyfile");

const imageEnv = (() => {
  const steps = parseDockerfile(repositoryText("Dockerfile")).at(-1)?.steps ?? [];
  const text = steps.find(({ keyword }) => keyword === "ENV")?.text ?? "";
  return Object.fromEntries(text.split(" ").map((pair) => pair.split("=")));
})();
const drainSeconds = (() => {
  const config = readConfig({ NODE_ENV: "production", DATABASE_URL: "postgres://x/x", SECRET_KEY: "11".repeat(32) });
  return config.drainNoticeSeconds + config.drainSeconds + CLOSE_SECONDS_MAX;
})();
/** The value of a placeholder of an example. */
const filled: Record<string, string> = { SECRET_KEY: "11".repeat(32), POSTGRES_PASSWORD: "ab".repeat(24) };
const example = Object.fromEntries(
  [...repositoryText("deploy/tollgate.env.example").matchAll(/^(\w+)=(.*)$/gm)].map(([, name = "", value = ""]) => [
    name,
    filled[name] ?? value,
  ]),
);

const unknownTo = (variables: object, env: object) => Object.keys(env).filter((name) => !(name in variables));
const seconds = (text: string) => Number(/^(\d+)s$/.exec(text)?.[1]);
/** `{$NAME}` and `{$NAME:default}` */
const placeholders = new Set([...caddyfile.matchAll(/\{\$(\w+)/g)].map(([, name = ""]) => name));

test("every file parses, and each Kubernetes object has a kind, a name and the same namespace", () => {
  expect(kubernetesFiles.length).toBeGreaterThan(5);
  for (const object of kubernetes) {
    const { apiVersion, kind, metadata } = object;
    expect([apiVersion, kind, metadata.name]).toEqual(Array.from({ length: 3 }, () => expect.stringMatching(/\w/)));
    expect([kind, metadata.namespace]).toEqual([kind, kind === "Namespace" ? undefined : "tollgate"]);
  }
  expect(() => YAML.parse("a: [1")).toThrow();
});

describe("compose.yaml", () => {
  const replicas = services.filter(([name]) => /^tollgate-\d+$/.test(name));
  const ours = services.filter(([, { image }]) => image === IMAGE);
  const inject = (text: string) =>
    text.replace(/\$\{(\w+):\?[^}]+\}/g, (_, name: string) => {
      const value = example[name];
      if (!value) throw new Error(`${name} is not in tollgate.env.example`);
      return value;
    });
  const environment = (env: Record<string, string>) =>
    Object.fromEntries(Object.entries(env).map(([name, value]) => [name, inject(value)]));

  test("the replicas' environment is complete and valid configuration", () => {
    expect(replicas.length).toBeGreaterThan(1);
    expect(ours.map(([name]) => name)).toEqual([...replicas.map(([name]) => name), "migrate"]);
    for (const [, { environment: env }] of ours) {
      expect(unknownTo(VARIABLES, env)).toEqual([]);
      const config = readConfig({ ...imageEnv, ...environment(env) });
      expect(config).toMatchObject({ production: true, port: 8080, internalPort: 9090, internalHost: "0.0.0.0" });
      expect(config.redisUrl).not.toBe("");
      expect(config.serverAddresses).not.toEqual([]);
    }
  });

  test("every variable of tollgate.env reaches the replicas and the migration", () => {
    for (const [name, { env_file: files }] of ours) expect({ name, files }).toEqual({ name, files: ["tollgate.env"] });
  });

  test("Redis keeps idempotency keys over a restart, and never drops one", () => {
    const { command, volumes } = compose.services.redis;
    const options = [...command.join(" ").matchAll(/--([\w-]+) (\w+)/g)].map(([, name, value]) => [name, value]);
    expect(Object.fromEntries(options)).toMatchObject({ appendonly: "yes", "maxmemory-policy": "noeviction" });
    expect(volumes).toEqual(["redis:/data"]);
  });

  test("the documented backup uses the options of scripts/backup.ts", () => {
    const [script, guide] = [repositoryText("scripts/backup.ts"), repositoryText("deploy/README.md")];
    const given = (options: RegExp) => [...(options.exec(script)?.[1] ?? "").matchAll(/"(--[\w-]+(?:=\w+)?)"/g)];
    for (const [program, options] of [
      ["pg_dump", /"pg_dump", \[(.+?)\]/],
      ["pg_restore", /const args = \[(.+?)\]/],
    ] as const) {
      const expected = given(options).map(([, option = ""]) => option);
      const [, documented = ""] = new RegExp(`^ +${program} (--.+) [<>] tollgate\\.dump$`, "m").exec(guide) ?? [];
      expect(expected.length).toBeGreaterThan(2);
      expect(documented.split(" ")).toEqual(["--username=tollgate", "--dbname=tollgate", ...expected]);
    }
    const { POSTGRES_USER: user, POSTGRES_DB: database } = compose.services.postgres.environment;
    expect([user, database]).toEqual(["tollgate", "tollgate"]);
  });

  test("tollgate.env.example has every setting that it reads, and no other", () => {
    const asked = [...repositoryText("deploy/compose.yaml").matchAll(/\$\{(\w+)/g)].map(([, name = ""]) => name);
    expect(new Set(Object.keys(example))).toEqual(new Set(asked));
    for (const secret of ["SECRET_KEY", "POSTGRES_PASSWORD"])
      expect(repositoryText("deploy/tollgate.env.example")).toMatch(new RegExp(`^${secret}=$`, "m"));
  });

  test("each replica has its own spool on a volume, can write nowhere else, and has time to shut down", () => {
    const spools = replicas.map(([, { volumes }]) => volumes.map((volume: string) => volume.split(":")));
    for (const [[name, path]] of spools) {
      expect(path).toBe(imageEnv.SPOOL_DIR);
      expect(Object.keys(compose.volumes)).toContain(name);
    }
    expect(new Set(spools.map(([[name]]) => name)).size).toBe(replicas.length);
    for (const [, service] of ours) {
      expect(service).toMatchObject({ read_only: true, cap_drop: ["ALL"], image: IMAGE });
      expect(seconds(service.stop_grace_period)).toBeGreaterThanOrEqual(drainSeconds);
    }
    for (const [, { depends_on: needs }] of replicas)
      expect(needs.migrate).toEqual({ condition: "service_completed_successfully" });
  });

  test("only Caddy is reachable from outside, and replicas trust its forwarded addresses", () => {
    expect(services.filter(([, { ports }]) => ports).map(([name]) => name)).toEqual(["caddy"]);
    expect(compose.services.caddy.ports.join()).not.toMatch(/8080|9090/);
    for (const name of ["postgres", "redis"]) expect(Object.keys(compose.services[name].networks)).toEqual(["back"]);
    expect(compose.networks.back.internal).toBe(true);
    const { ipv4_address: address } = compose.services.caddy.networks.front;
    for (const [, { environment: env }] of replicas)
      expect(
        clientAddress(address, "203.0.113.1", readConfig({ ...imageEnv, ...environment(env) }).trustedProxies),
      ).toBe("203.0.113.1");
    const [{ subnet }] = compose.networks.front.ipam.config;
    expect(clientAddress(address, "203.0.113.1", [subnet])).toBe("203.0.113.1");
  });

  test("Caddy knows every replica, and checks the right port", () => {
    const { environment: env } = compose.services.caddy;
    expect([...placeholders].filter((name) => name !== "CADDY_OPTIONS").sort()).toEqual(Object.keys(env).sort());
    expect(env.TOLLGATE_REPLICAS.split(" ")).toEqual(replicas.map(([name]) => `${name}:8080`));
    for (const [, { networks }] of replicas)
      expect(networks.front.aliases).toContain(new URL(env.TOLLGATE_ASK).hostname);
    expect([new URL(env.TOLLGATE_ASK).port, new URL(env.TOLLGATE_ASK).pathname]).toEqual(["9090", "/ask"]);
  });

  test("images are pinned, and every used network and volume is declared", () => {
    for (const [name, { image, networks, volumes = [] }] of services) {
      expect([name, image]).toEqual([name, expect.stringMatching(/:\d+\.\d+/)]);
      expect(Object.keys(compose.networks)).toEqual(expect.arrayContaining(Object.keys(networks)));
      const named = volumes
        .map((volume: string) => volume.split(":")[0])
        .filter((from: string) => !from.startsWith("."));
      expect(Object.keys(compose.volumes)).toEqual(expect.arrayContaining(named));
    }
  });
});

describe("Kubernetes", () => {
  const find = (kind: string, name: string): Manifest => {
    const found = kubernetes.filter((object) => object.kind === kind && object.metadata.name === name);
    expect([kind, name, found.length]).toEqual([kind, name, 1]);
    return found[0];
  };
  const replicas = find("StatefulSet", "tollgate").spec;
  const [container] = replicas.template.spec.containers;
  const env = {
    ...find("ConfigMap", "tollgate").data,
    ...find("Secret", "tollgate").stringData,
    SECRET_KEY: filled.SECRET_KEY,
  };
  const workloads = kubernetes.filter(({ spec }) => spec?.template);

  test("the replicas' environment is complete and valid configuration, and secrets are only in the Secret", () => {
    expect(unknownTo(VARIABLES, env)).toEqual([]);
    const config = readConfig({ ...imageEnv, ...env });
    expect(config).toMatchObject({ production: true, port: 8080, internalPort: 9090, internalHost: "0.0.0.0" });
    expect(config.redisUrl).not.toBe("");
    const { data } = find("ConfigMap", "tollgate");
    expect(Object.keys(data).filter((name) => /SECRET|DATABASE|REDIS|KEY/.test(name))).toEqual([]);
    expect(find("Secret", "tollgate").stringData.SECRET_KEY).toBe("");
    // Not applied by `kubectl apply --filename deploy/kubernetes`: it would overwrite the real one.
    expect(kubernetesFiles.filter((path) => /\.ya?ml$/.test(path)).flatMap(documents)).not.toContainEqual(
      expect.objectContaining({ kind: "Secret" }),
    );
    for (const { template } of [replicas, find("Job", "tollgate-migrate").spec]) {
      const [one] = template.spec.containers;
      expect([one.image, one.env]).toEqual([IMAGE, undefined]);
      expect(one.envFrom).toEqual([{ configMapRef: { name: "tollgate" } }, { secretRef: { name: "tollgate" } }]);
    }
  });

  test("each replica keeps its spool, can write nowhere else, has no privileges, and has time to shut down", () => {
    const [claim] = replicas.volumeClaimTemplates;
    expect(container.volumeMounts).toEqual([{ name: claim.metadata.name, mountPath: imageEnv.SPOOL_DIR }]);
    const gib = Number(/^(\d+)Gi$/.exec(claim.spec.resources.requests.storage)?.[1]);
    expect(gib * 2 ** 30).toBeGreaterThan(2 * Number(VARIABLES.SPOOL_BYTES_MAX.default));
    expect(replicas.template.spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(drainSeconds);
    expect(replicas.template.spec.securityContext).toMatchObject({
      runAsNonRoot: true,
      runAsUser: 1000,
      fsGroup: 1000,
    });
    for (const { spec } of workloads) {
      const { automountServiceAccountToken, containers } = spec.template.spec;
      expect(automountServiceAccountToken).toBe(false);
      for (const { securityContext } of containers)
        expect(securityContext).toMatchObject({ readOnlyRootFilesystem: true, allowPrivilegeEscalation: false });
    }
  });

  test("probes of liveness and readiness use the public port", () => {
    const { startupProbe, livenessProbe, readinessProbe } = container;
    for (const [probe, path] of [
      [startupProbe, "/healthz"],
      [livenessProbe, "/healthz"],
      [readinessProbe, "/readyz"],
    ])
      expect(probe.httpGet).toEqual({ path, port: "http" });
    expect(container.ports).toContainEqual({ name: "http", containerPort: 8080 });
    // A draining replica reports not ready for this long.
    expect(readinessProbe.periodSeconds * readinessProbe.failureThreshold).toBeLessThanOrEqual(3);
  });

  test("selectors, references and limits match existing objects", () => {
    for (const { spec } of workloads)
      if (spec.selector) expect(spec.template.metadata.labels).toMatchObject(spec.selector.matchLabels);
    const labels = replicas.template.metadata.labels;
    for (const [kind, name] of [
      ["PodDisruptionBudget", "tollgate"],
      ["NetworkPolicy", "tollgate"],
    ] as const) {
      const { selector, podSelector } = find(kind, name).spec;
      expect(labels).toMatchObject((selector ?? podSelector).matchLabels);
    }
    expect(labels).toMatchObject(find("Service", replicas.serviceName).spec.selector);
    expect(find("PodDisruptionBudget", "tollgate").spec.maxUnavailable).toBe(1);
    const { scaleTargetRef, minReplicas } = find("HorizontalPodAutoscaler", "tollgate").spec;
    find(scaleTargetRef.kind, scaleTargetRef.name);
    // Otherwise each `apply` would undo its decision.
    expect([replicas.replicas, minReplicas > 1, container.resources.requests.cpu]).toEqual([undefined, true, "1"]);
  });

  test("Caddy knows every possible replica, checks the right port, and is the only one reachable from outside", () => {
    const [caddy] = find("Deployment", "caddy").spec.template.spec.containers;
    const told = Object.fromEntries(caddy.env.map(({ name, value }: Manifest) => [name, value]));
    expect([...placeholders].filter((name) => name !== "CADDY_OPTIONS").sort()).toEqual(Object.keys(told).sort());
    const { maxReplicas } = find("HorizontalPodAutoscaler", "tollgate").spec;
    const names = Array.from({ length: maxReplicas }, (_, i) => `tollgate-${i}.${replicas.serviceName}:8080`);
    expect(told.TOLLGATE_REPLICAS.split(" ")).toEqual(names);
    const ask = new URL(told.TOLLGATE_ASK);
    expect([ask.hostname, ask.port, ask.pathname]).toEqual([replicas.serviceName, env.INTERNAL_PORT, "/ask"]);
    const open = kubernetes.filter(({ kind, spec }) => kind === "Service" && spec.clusterIP !== "None");
    expect(open.map(({ metadata }) => metadata.name)).toEqual(["caddy"]);
    const [byCaddy] = find("NetworkPolicy", "tollgate").spec.ingress;
    expect(byCaddy.from).toEqual([{ podSelector: { matchLabels: { app: "caddy" } } }]);
    expect(byCaddy.ports).toEqual([{ port: 8080 }, { port: Number(env.INTERNAL_PORT) }]);
  });
});
