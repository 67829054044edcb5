import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { freePort } from "../src/demo/free_port.ts";
import { freshClone } from "./fresh_clone.ts";

/** The package, as npx runs it: with Node and npm alone, an empty home, and no Bun. It fetches what it needs from the registry. */

const SLOW_MS = 15 * 60_000;
const COMMAND_MS_MAX = 10 * 60_000;
/** Compressed; all of the source, the schema and the lock file. */
const PACKAGE_BYTES_MAX = 3 * 1024 * 1024;
const repository = dirname(import.meta.dirname);

let folder: string;
let env: Record<string, string>;
let demo: ChildProcess | undefined;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-npx-`));
  chmodSync(folder, 0o755); // As root, PostgreSQL runs as another user.
  for (const name of ["bin", "home", "project"]) mkdirSync(join(folder, name));
  for (const name of ["node", "npm", "npx"]) symlinkSync(whichProgram(name), join(folder, "bin", name));
  // Without whatever else stands beside them, such as Bun.
  const system = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].filter((place) => !existsSync(join(place, "bun")));
  env = { PATH: [join(folder, "bin"), ...system].join(":"), HOME: join(folder, "home") };
});
afterAll(() => {
  demo?.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

function whichProgram(name: string): string {
  const path = Bun.which(name);
  if (path === null) throw new Error(`${name} is not installed`);
  return path;
}

function command(program: string, args: string[], cwd: string): string {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd, env, encoding: "utf8", timeout: COMMAND_MS_MAX });
  if (status !== 0) throw new Error(`${program} ${args.join(" ")} ended with ${status}:\n${stdout}${stderr}`);
  return stdout;
}

test("the package has what the demo needs, and no tests, pictures or files of a workplace", () => {
  const [packed] = JSON.parse(command("npm", ["pack", "--dry-run", "--json"], repository));
  const paths: string[] = packed.files.map(({ path }: { path: string }) => path);
  const places = new Set(paths.map((path) => path.split("/")[0]));
  expect([...places].sort()).toEqual(
    [
      "CHANGELOG.md",
      "LICENSE",
      "README.md",
      "bun.lock",
      "bunfig.toml",
      "drizzle",
      "lingui.config.ts",
      "package.json",
      "patches",
    ].concat(["scripts", "src", "tsconfig.json"]),
  );
  expect(paths).toEqual(expect.arrayContaining(["bun.lock", "src/demo.ts", "drizzle/meta/_journal.json"]));
  expect(packed.size).toBeLessThan(PACKAGE_BYTES_MAX);
});

test(
  "its command starts the demo, which serves a request; on SIGINT all of it stops, with status 0",
  async () => {
    const clone = freshClone(join(folder, "clone"));
    const tarball = command("npm", ["pack", "--silent", "--pack-destination", folder], clone).trim();
    const project = join(folder, "project");
    writeFileSync(join(project, "package.json"), '{ "private": true }');
    command("npm", ["install", "--no-audit", "--no-fund", join(folder, tarball)], project);
    // An installed package may be read-only.
    command("chmod", ["-R", "a-w", "node_modules/tollgate"], project);
    const port = await freePort();
    const running = spawn(join(project, "node_modules/.bin/tollgate"), [], {
      cwd: project,
      env: { ...env, PORT: String(port) },
      stdio: ["ignore", "pipe", "pipe"],
    });
    demo = running;
    const output = await outputUntil(running, "Ctrl-C stops everything");
    expect(output).toContain(`http://localhost:${port}/v1`);
    const key = /\bsk-\w+/.exec(output)?.[0];
    const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", host: `localhost:${port}` },
      body: JSON.stringify({ model: "sim-small", messages: [{ role: "user", content: "Hi" }] }),
    });
    expect(await answer.json()).toMatchObject({ object: "chat.completion", model: "sim-small" });
    const page = await fetch(`http://localhost:${port}/status`, { headers: { accept: "text/html" } });
    expect([page.status, await page.text()]).toEqual([200, expect.stringContaining("<title>")]);

    const ended = new Promise<number | null>((done) => running.once("exit", done));
    running.kill("SIGINT");
    expect(await ended).toBe(0);
    await expect(fetch(`http://127.0.0.1:${port}/healthz`)).rejects.toThrow();
    // One copy, complete, in the cache folder.
    const copies = readdirSync(join(folder, "home/.cache/tollgate"));
    expect(copies).toEqual([expect.stringMatching(/^\d+\.\d+\.\d+-[0-9a-f]{16}$/)]);
  },
  SLOW_MS,
);

test("an argument that the demo does not know is its error and its exit status", () => {
  const bin = join(folder, "project/node_modules/.bin/tollgate");
  const { status, stderr } = spawnSync(bin, ["--nonsense"], { env, encoding: "utf8", timeout: COMMAND_MS_MAX });
  expect([status, stderr]).toEqual([1, expect.stringContaining("--dialect NAME, and nothing else")]);
});

/** What a process prints until a text is among it. Rejects if it ends before. */
function outputUntil(running: ChildProcess, text: string): Promise<string> {
  return new Promise((done, fail) => {
    let output = "";
    for (const stream of [running.stdout, running.stderr])
      stream?.on("data", (bytes) => {
        output += bytes;
        if (output.includes(text)) done(output);
      });
    running.once("exit", (code) => fail(new Error(`ended with ${code}:\n${output}`)));
  });
}
