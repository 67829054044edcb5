import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { chmodSync, lstatSync, readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { validate } from "dockerfile-utils";
import packageFacts from "../../package.json" with { type: "json" };
import { denoProgram, denoReplicaCommand } from "../../scripts/test_deno.ts";
import { VARIABLES } from "../../src/config.ts";
import { internalOrigin } from "../gateway/metrics_reader.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { PANEL, signInTo } from "../panel/panel_client.ts";
import { COUNTING, type ReplicaProcess, startReplicaProcess } from "../replica.ts";
import {
  filesBelow,
  type Image,
  imageBuilder,
  parseDockerfile,
  parseDockerignore,
  REPOSITORY,
  repositoryText,
} from "./image.ts";

/** The images, built by replaying the Dockerfile's steps in a folder, and run from there. */

setDefaultTimeout(240_000);

const MB = 1_000_000;
/** Size of what our steps add to the base image, uncompressed. */
const BYTES_MAX = 130 * MB;
/** Size of oven/bun:slim without bun itself (Debian slim), as published; it cannot be measured here. */
const BASE_BYTES_ABOUT = 80 * MB;

/** What a replica logs of a machine on which nothing ran for some seconds. */
const STOOD_STILL =
  /"message":"(?:the bus |the changes table |the catalog could not be loaded|the lease of this replica had ended|Redis does not answer in time)|Socket timeout/;

const source = repositoryText("Dockerfile");
const stages = parseDockerfile(source);
const ignored = parseDockerignore(repositoryText(".dockerignore"));
const programs = {
  "oven/bun": { name: "bun", path: process.execPath },
  "denoland/deno": { name: "deno", path: denoProgram() },
};

let folder: string;
let build: ReturnType<typeof imageBuilder>;
let shop: Shop;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tollgate-image-"));
  chmodSync(folder, 0o755); // Another user runs the files in it.
  build = builderOf(source);
  shop = await openShop();
});
afterAll(async () => {
  try {
    expect(await shop.world.unbalanced()).toEqual([]);
    expect(await shop.world.sql`select 1 from escrows where units > 0 or nano_usd > 0`).toHaveLength(0);
  } finally {
    await shop.close();
    await rm(folder, { recursive: true, force: true });
  }
});

const builderOf = (dockerfile: string) =>
  imageBuilder(parseDockerfile(dockerfile), { folder: REPOSITORY, ignored, into: folder, programs });

describe("the Dockerfile", () => {
  const final = stages.filter(({ name }) => name === "bun" || name === "deno");
  const textsOf = (stage: (typeof stages)[number] | undefined, keyword: string) =>
    (stage?.steps ?? []).filter((step) => step.keyword === keyword).map(({ text }) => text);

  test("has Bun's stage last, which is built by default", () => {
    expect(stages.at(-1)?.name).toBe("bun");
    expect(final.map(({ name }) => name)).toEqual(["deno", "bun"]);
  });

  test("pins base images to the versions that the tests run on", () => {
    const { bun, deno } = packageFacts.devDependencies;
    expect(repositoryText(".ci/run")).toContain(`bun@${bun}`);
    const bases = stages.map(({ base }) => base).filter((base) => base.includes(":"));
    expect(new Set(bases)).toEqual(new Set([`oven/bun:${bun}-slim`, `denoland/deno:debian-${deno}`]));
  });

  test("runs as a numeric user other than root, is stopped by SIGTERM, has a health check, and exposes only the public port", () => {
    for (const stage of final) {
      const keywords = stage.steps.map(({ keyword }) => keyword);
      expect(textsOf(stage, "USER")).toEqual(["1000:1000"]);
      expect(textsOf(stage, "STOPSIGNAL")).toEqual(["SIGTERM"]);
      expect(textsOf(stage, "EXPOSE")).toEqual(["8080"]);
      expect(textsOf(stage, "HEALTHCHECK").join()).toContain("/healthz");
      // Files written after USER would belong to it.
      expect(keywords.slice(keywords.indexOf("USER"))).toEqual(
        expect.not.arrayContaining(["COPY", "RUN", "ADD", "WORKDIR"]),
      );
    }
  });

  test("has the spool as a volume, and only configuration in its environment, no secret", () => {
    for (const stage of final) {
      const said = textsOf(stage, "ENV").join(" ");
      const names = [...said.matchAll(/(\w+)=/g)].map(([, name = ""]) => name);
      expect(names.filter((name) => !(name in VARIABLES))).toEqual([]);
      expect(names.filter((name) => /_URL$|SECRET|KEY|TOKEN|PASSWORD/.test(name))).toEqual([]);
      const spool = /SPOOL_DIR=(\S+)/.exec(said)?.[1];
      expect(textsOf(stage, "VOLUME")).toEqual([JSON.stringify([spool])]);
    }
  });

  test("has labels with the release and the licence", () => {
    for (const stage of final) {
      const [label = ""] = textsOf(stage, "LABEL");
      expect(label).toContain(`org.opencontainers.image.version="${packageFacts.version}"`);
      expect(label).toContain(`org.opencontainers.image.licenses="${packageFacts.license}"`);
      expect(label).toContain(`org.opencontainers.image.description="${packageFacts.description}"`);
    }
  });

  test("starts Deno with the flags of the tests", () => {
    const [said = "[]"] = textsOf(final[0], "CMD");
    const flags = (command: string[]) => command.filter((word) => word.startsWith("--"));
    expect(flags(JSON.parse(said))).toEqual(flags(denoReplicaCommand()));
  });
});

describe("the build context", () => {
  test("has only the named files of the repository", () => {
    for (const path of [
      "src/main.ts",
      "src/panel/web/main.tsx",
      "drizzle/meta/_journal.json",
      "bun.lock",
      "package.json",
    ])
      expect([path, ignored(path)]).toEqual([path, false]);
    for (const path of [".env", ".git/config", ".data/pg/PG_VERSION", "node_modules/x.js", "dist/panel/index.html"])
      expect([path, ignored(path)]).toEqual([path, true]);
    for (const path of ["test/world.ts", "scripts/services.ts", "src/demo.ts", "src/demo/seed.ts", "README.md", "srcs"])
      expect([path, ignored(path)]).toEqual([path, true]);
  });

  test("a missing file, a failed step, or a RUN that leaves its folder is an error", async () => {
    let count = 0;
    const broken = (steps: string) => {
      const name = `broken${++count}`;
      return builderOf(`FROM oven/bun:any AS ${name}\nWORKDIR /app\n${steps}\n`)(name);
    };
    const install = "COPY package.json bun.lock bunfig.toml ./\nRUN bun install --frozen-lockfile --production";
    await expect(broken("COPY package.jsonc ./")).rejects.toThrow("COPY package.jsonc: there is no such file");
    await expect(broken("COPY test ./test")).rejects.toThrow("COPY test: there is no such file");
    await expect(broken("COPY src ./src\nRUN bun src/demo.ts")).rejects.toThrow("ended with 1");
    await expect(broken(install)).rejects.toThrow("patches/postgres@3.4.9.patch");
    await expect(broken("RUN mkdir -p /var/lib/x")).rejects.toThrow("outside WORKDIR");
    await expect(broken("ADD package.json ./")).rejects.toThrow("ADD is not known here");
  });
});

test("the linter accepts the Dockerfile, and finds the mistakes of a broken one", () => {
  expect(validate(source)).toEqual([]);
  expect(validate(source.replace(/^USER .*$/m, "USERS")).length).toBeGreaterThan(0);
});

test("the image on Bun is complete, patched and small, serves as another user from a read-only tree, and exits with 0", async () => {
  const image = await build("bun");
  expectPatched(image);
  tellSize(image);
  const before = treeOf(image);
  const replica = await run(image);
  try {
    await expectServing(image, replica, "bun");
    const picture = `const { default: sharp } = await import("sharp");
      const made = await sharp({ create: { width: 9, height: 9, channels: 3, background: "red" } }).webp().toBuffer();
      process.exit(made.length > 30 ? 0 : 1)`;
    expect(inside(image, ["bun", "-e", picture])).toMatchObject({ status: 0 });
    const migrated = inside(image, ["bun", "src/cli.ts", "migrate"], { DATABASE_URL: shop.world.url });
    expect(migrated).toMatchObject({ status: 0 });
  } finally {
    expect(await replica.stop()).toBe(0);
  }
  expect(treeOf(image)).toEqual(before);
});

test("the image on Deno serves from the same tree", async () => {
  const image = await build("deno");
  expectPatched(image);
  const before = treeOf(image);
  const replica = await run(image);
  try {
    await expectServing(image, replica, "deno");
  } finally {
    expect(await replica.stop()).toBe(0);
  }
  expect(treeOf(image)).toEqual(before);
});

/** Health, the panel's page, argon2 by a sign-in, and a stream, over a socket; and a log without warnings. */
async function expectServing(image: Image, replica: ReplicaProcess, runtime: string): Promise<void> {
  const { origin } = replica;
  const host = "api.tollgate.test";
  expect(replica.logged()).toContain(`"runtime":"${runtime}"`);
  expect(inside(image, image.healthCheck, { PORT: String(replica.port) })).toMatchObject({ status: 0 });
  expect(inside(image, image.healthCheck, { PORT: "1" }).status).not.toBe(0);
  expect((await shop.call("/version", { origin: internalOrigin(replica) })).json.runtime).toBe(runtime);
  const page = await shop.call("/", { origin, host: PANEL, headers: { accept: "text/html" } });
  expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
  const [script] = /\/assets\/[\w.-]+\.js/.exec(page.text) ?? [""];
  expect((await shop.call(script, { origin, host: PANEL })).status).toBe(200);
  const customer = await shop.customer();
  expect((await signInTo(shop, customer, { origin })).csrf).not.toBe("");
  const answer = await shop.chat(customer.secret, { stream: true }, { origin, host });
  expect([answer.status, answer.text.trim().endsWith("[DONE]")]).toEqual([200, true]);
  expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
  // The token worker would log that it does not start; nothing else may be logged either, except that the machine stood still.
  expect(
    replica
      .logged()
      .split("\n")
      .filter((line) => /"level":"(?:warn|error|fatal)"/.test(line) && !STOOD_STILL.test(line)),
  ).toEqual([]);
  // Production: local hosts are not served.
  expect((await shop.call("/v1/models", { origin, secret: customer.secret })).status).toBe(403);
}

/** Starts CMD as USER in WORKDIR; only the volume is writable. */
function run(image: Image): Promise<ReplicaProcess> {
  const { world, provider, second } = shop;
  const [program = "", ...args] = commandIn(image, image.command);
  return startReplicaProcess(
    {
      ...environmentOf(image),
      // As in production. Other tests preload a file of this repository, which the image's user may not be able to read.
      ...COUNTING,
      DATABASE_URL: world.url,
      REDIS_URL: process.env.REDIS_URL ?? "",
      PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${provider.port},127.0.0.1:${second.port}`,
      PORT: "0",
      INTERNAL_PORT: "0",
      DRAIN_NOTICE_SECONDS: "0",
    },
    [program, ...args],
  );
}

/** Runs a command to its end, as `docker run` or `docker exec` does. */
function inside(image: Image, command: string[], env: Record<string, string> = {}) {
  const [program = "", ...args] = commandIn(image, command);
  const secrets = { SECRET_KEY: "11".repeat(32), DATABASE_URL: shop.world.url };
  const all = { ...environmentOf(image), ...secrets, ...env };
  const { status, stdout, stderr } = spawnSync(program, args, { env: all, encoding: "utf8", timeout: 60_000 });
  return { status, output: stdout + stderr };
}

function environmentOf({ root, env }: Image): Record<string, string> {
  const nowhere = join(root, "nowhere");
  const spool = join(root, env.SPOOL_DIR ?? "");
  return { ...env, SPOOL_DIR: spool, HOME: nowhere, TMPDIR: nowhere, PATH: join(root, "usr/local/bin") };
}

function commandIn({ root, workdir, user }: Image, [program = "", ...args]: string[]): string[] {
  const inFolder = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', join(root, workdir)];
  const command = [...inFolder, join(root, "usr/local/bin", program), ...args];
  if (process.getuid?.() !== 0) return command;
  const [uid, gid] = user.split(":");
  return ["/usr/bin/setpriv", `--reuid=${uid}`, `--regid=${gid}`, "--clear-groups", "--no-new-privs", ...command];
}

/** Checks every file and folder outside the volumes. As root: none is writable by the image's user. */
function treeOf({ root, volumes, user }: Image): string[] {
  const kept = volumes.map((volume) => join(root, volume));
  const names = readdirSync(root, { recursive: true, encoding: "utf8" }).map((name) => join(root, name));
  const outside = names.filter((name) => !kept.some((volume) => name === volume || name.startsWith(`${volume}/`)));
  return outside.sort().map((name) => {
    const { mode, uid, size, mtimeMs, isSymbolicLink } = pick(lstatSync(name));
    const mayWrite = !isSymbolicLink && (uid === Number(user.split(":")[0]) || (mode & 0o002) !== 0);
    if (process.getuid?.() === 0 && mayWrite) throw new Error(`the image's user may write to ${name}`);
    return `${name} ${size} ${mtimeMs}`;
  });
}

function pick(found: ReturnType<typeof lstatSync> & object) {
  const { mode, uid, size, mtimeMs } = found;
  return { mode: Number(mode), uid: Number(uid), size, mtimeMs, isSymbolicLink: found.isSymbolicLink() };
}

/** Checks that the installed driver is patched: every added line, file by file. */
function expectPatched({ root, workdir }: Image): void {
  const parts = repositoryText("patches/postgres@3.4.9.patch")
    .split(/^--- a\/.*\n/m)
    .slice(1);
  expect(parts.length).toBeGreaterThan(0);
  for (const part of parts) {
    const file = /^\+\+\+ b\/(.+)$/m.exec(part)?.[1] ?? "";
    const added = [...part.matchAll(/^\+(?!\+\+ b\/)(.+)$/gm)].map(([, line = ""]) => line);
    const installed = readFileSync(join(root, workdir, "node_modules/postgres", file), "utf8");
    expect([file, added.filter((line) => !installed.includes(line))]).toEqual([file, []]);
    expect(added.length).toBeGreaterThan(0);
  }
}

/** The image's size is the sum of what goes in. */
function tellSize({ root, workdir }: Image): void {
  const bytesOf = (path: string) =>
    filesBelow(join(root, path)).reduce((sum, name) => sum + lstatSync(join(root, path, name)).size, 0);
  const parts = ["node_modules", "src", "dist", "drizzle"].map((name) => [name, bytesOf(join(workdir, name))] as const);
  const ours = bytesOf(workdir);
  const bun = lstatSync(join(root, "usr/local/bin/bun")).size;
  const told = [...parts, ["bun", bun] as const]
    .map(([name, bytes]) => `${name} ${(bytes / MB).toFixed(1)}`)
    .join(", ");
  const total = ours + bun + BASE_BYTES_ABOUT;
  console.log(`MB: ${told}, Debian slim about ${BASE_BYTES_ABOUT / MB}; together about ${(total / MB).toFixed(0)}`);
  expect(ours).toBeLessThan(BYTES_MAX);
  expect(filesBelow(join(root, workdir)).filter((name) => /(?:^|\/)(?:\.env|.*\.pem|id_rsa)$/.test(name))).toEqual([]);
}
