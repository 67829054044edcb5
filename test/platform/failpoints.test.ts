import { describe, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { readConfig } from "../../src/config.ts";
import { createFailpoint, FAILPOINTS, parseFailpoint } from "../../src/platform/failpoints.ts";

/** Places where a test can kill or freeze the process: only when armed, and never in production. */

const ENV = {
  DATABASE_URL: "postgres://nobody@127.0.0.1:1/none",
  SECRET_KEY: Buffer.alloc(32, 1).toString("base64"),
};
const MAIN = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

describe("the form", () => {
  test("is a name, an action, and the number of the visit at which it acts (default: 1)", () => {
    expect(parseFailpoint("after_reserve=kill@3")).toEqual({ name: "after_reserve", signal: "SIGKILL", at: 3 });
    expect(parseFailpoint("before_settle=freeze")).toEqual({ name: "before_settle", signal: "SIGSTOP", at: 1 });
    for (const name of FAILPOINTS) expect(parseFailpoint(`${name}=kill`)?.name).toBe(name);
  });

  test.each([
    "",
    "after_reserve",
    "after_reserve=",
    "=kill",
    "after_reserve=explode",
    "nowhere=kill",
    "toString=kill",
    "after_reserve=kill@0",
    "after_reserve=kill@-1",
    "after_reserve=kill@x",
    "after_reserve=kill@1.5",
    "after_reserve=kill@9999999999",
    "after_reserve=kill@1@2",
    " after_reserve=kill",
    "after_reserve = kill",
    "AFTER_RESERVE=kill",
    "after_reserve=KILL",
    "after_reserve=kill\nbefore_settle=kill",
  ])("%j is none", (text) => {
    expect(parseFailpoint(text)).toBeUndefined();
  });
});

describe("FAILPOINTS in the configuration", () => {
  test("is read as a list", () => {
    expect(readConfig({ ...ENV, FAILPOINTS: "after_reserve=kill@3, before_settle=freeze" }).failpoints).toEqual([
      { name: "after_reserve", signal: "SIGKILL", at: 3 },
      { name: "before_settle", signal: "SIGSTOP", at: 1 },
    ]);
    expect(readConfig(ENV).failpoints).toEqual([]);
    expect(readConfig({ ...ENV, FAILPOINTS: "" }).failpoints).toEqual([]);
  });

  test("a malformed item is reported with a sentence, also among correct ones", () => {
    for (const wrong of ["explode", "after_reserve=kill,explode", "after_reserve=kill@0"])
      expect(() => readConfig({ ...ENV, FAILPOINTS: wrong })).toThrow(
        "FAILPOINTS must be like after_reserve=kill or before_settle=freeze@3",
      );
  });

  test("is refused in production, right or wrong", () => {
    for (const set of ["after_reserve=kill", "explode"])
      expect(() => readConfig({ ...ENV, NODE_ENV: "production", FAILPOINTS: set })).toThrow(
        "FAILPOINTS must be empty in production",
      );
    expect(readConfig({ ...ENV, NODE_ENV: "production" }).failpoints).toEqual([]);
  });

  test("a real start in production ends with code 1 and says why, before it looks for its database", () => {
    const start = (env: Record<string, string>) =>
      spawnSync(process.execPath, [MAIN], {
        env: { PATH: process.env.PATH ?? "", HOME: process.env.HOME ?? "/tmp", ...ENV, ...env },
        encoding: "utf8",
        timeout: 30_000,
      });
    const production = start({ NODE_ENV: "production", FAILPOINTS: "after_reserve=kill" });
    expect(production.status).toBe(1);
    expect(production.stderr).toContain("FAILPOINTS must be empty in production");
    expect(production.stderr).not.toContain("Postgres");
    const misspelt = start({ FAILPOINTS: "after_reserve=explode" });
    expect(misspelt.status).toBe(1);
    expect(misspelt.stderr).toContain("FAILPOINTS must be like");
  });
});

describe("the place itself", () => {
  /** Passes these places in a separate process, which prints each name afterwards. Returns its output and how it ended. */
  function pass(armed: string[], places: string[]) {
    const { stdout, signal, status } = spawnSync(
      process.execPath,
      [
        "-e",
        `const { createFailpoint, parseFailpoint } = await import(${JSON.stringify(new URL("../../src/platform/failpoints.ts", import.meta.url).href)});
        const failpoint = createFailpoint(${JSON.stringify(armed)}.map(parseFailpoint));
        for (const name of ${JSON.stringify(places)}) { failpoint(name); require("fs").writeSync(1, name + " "); }`,
      ],
      { encoding: "utf8", timeout: 30_000 },
    );
    return { said: stdout.trim().split(" ").filter(Boolean), signal, status };
  }

  test("without an armed failpoint it does nothing", () => {
    const failpoint = createFailpoint([]);
    for (const name of FAILPOINTS) failpoint(name);
    expect(pass([], [...FAILPOINTS])).toEqual({ said: [...FAILPOINTS], signal: null, status: 0 });
  });

  test("kills the process the nth time that the place is reached, before later code runs; other places do not count", () => {
    const places = ["after_reserve", "before_settle", "after_reserve", "after_settle"];
    expect(pass(["after_reserve=kill@2"], places)).toEqual({
      said: ["after_reserve", "before_settle"],
      signal: "SIGKILL",
      status: null,
    });
    expect(pass(["before_settle=kill@2"], places)).toMatchObject({ said: places, signal: null });
    expect(pass(["after_settle=kill@1", "before_settle=kill@1"], places).said).toEqual(["after_reserve"]);
  });
});
