import { afterAll, beforeAll, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { denoReplicaCommand } from "../scripts/test_deno.ts";
import { freshClone } from "./fresh_clone.ts";

/** Nothing starts with a dependency that is missing, of another version, or without its patch. */

const RUN_MS_MAX = 60_000;
const INSTALLS = "bun scripts/ensure_installed.ts";
const SAYS_HOW = /^[^\n]+ Run: bun install --frozen-lockfile\n$/;

const repository = dirname(import.meta.dirname);
let folder: string;
let clone: string;
let home: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-install-`));
  clone = freshClone(join(folder, "clone"));
  home = join(folder, "home");
  mkdirSync(home);
  mkdirSync(join(folder, "bin"));
  symlinkSync(process.execPath, join(folder, "bin/bun"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Runs a command in the clone with an empty home, where Bun would put what it downloads by itself. */
function inClone(command: string[]): { code: number | null; output: string } {
  const [program = "", ...args] = command;
  const { status, stdout, stderr } = spawnSync(program, args, {
    cwd: clone,
    encoding: "utf8",
    timeout: RUN_MS_MAX,
    env: {
      PATH: `${join(folder, "bin")}:${process.env.PATH}`,
      HOME: home,
      DATABASE_URL: "postgres://nobody@127.0.0.1:1/none",
      SECRET_KEY: "11".repeat(32),
      DB_WAIT_SECONDS: "0",
    },
  });
  return { code: status, output: stdout + stderr };
}

const COMMANDS = [
  ["bun", "run", "start"],
  ["bun", "run", "cli", "migrate"],
  ["bun", "src/main.ts"],
  ["bun", "src/cli.ts", "migrate"],
  ["bun", "src/demo.ts"],
  ["bun", "bench/run.ts"],
  ["bun", "scripts/build_panel.ts"],
  ["bun", "scripts/backup.ts"],
  ["bun", "scripts/screenshots.ts"],
];

test("every script of package.json installs the locked dependencies first, or is a file that bun runs after its check", () => {
  const { scripts } = JSON.parse(readFileSync(join(repository, "package.json"), "utf8")) as {
    scripts: Record<string, string>;
  };
  const others = Object.entries(scripts).filter(([, script]) => !script.startsWith(INSTALLS));
  expect(Object.fromEntries(others)).toEqual({
    start: "NODE_ENV=production bun src/main.ts",
    dev: "bun --watch src/main.ts",
    cli: "bun src/cli.ts",
  });
});

test("without dependencies every command prints one line with what to run, and installs nothing", () => {
  for (const command of COMMANDS) {
    const { code, output } = inClone(command);
    expect({ command, code, output }).toEqual({ command, code: 1, output: expect.stringMatching(SAYS_HOW) });
  }
  expect(existsSync(join(clone, "node_modules"))).toBe(false);
  expect(existsSync(join(home, ".bun/install/cache"))).toBe(false);
});

test("a dependency of another version than in package.json is reported with both versions", () => {
  linkModules((name, place) => {
    if (name !== "postgres") return false;
    mkdirSync(place);
    writeFileSync(join(place, "package.json"), JSON.stringify({ name, version: "3.4.0" }));
    return true;
  });
  for (const command of COMMANDS.slice(0, 4)) {
    const { code, output } = inClone(command);
    expect({ command, code, output }).toEqual({ command, code: 1, output: expect.stringMatching(SAYS_HOW) });
    expect(output).toContain("postgres is installed in version 3.4.0");
  }
});

test("without the patch to postgres.js no replica starts, on Bun or Deno, and no command", () => {
  linkModules((name, place) => {
    if (name !== "postgres") return false;
    cpSync(join(repository, "node_modules", name), place, { recursive: true });
    const file = join(place, "src/index.js");
    const patched = readFileSync(file, "utf8");
    expect(patched).toContain("isPatched");
    writeFileSync(file, patched.replace(/^.*isPatched.*$/m, ""));
    return true;
  });
  const onDeno = denoReplicaCommand().map((word) => word.replace(`${repository}/src`, `${clone}/src`));
  for (const command of [...COMMANDS.slice(0, 4), onDeno]) {
    const { code, output } = inClone(command);
    expect({ command, code, output }).toEqual({ command, code: 1, output: expect.stringMatching(SAYS_HOW) });
    expect(output).toContain("without its patch");
  }
});

/** Links this repository's packages into the clone, except those that `make` creates itself. */
function linkModules(make: (name: string, place: string) => boolean): void {
  const modules = join(clone, "node_modules");
  rmSync(modules, { recursive: true, force: true });
  mkdirSync(modules);
  for (const name of readdirSync(join(repository, "node_modules"))) {
    const place = join(modules, name);
    if (!make(name, place)) symlinkSync(join(repository, "node_modules", name), place);
  }
}
