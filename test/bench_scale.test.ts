import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeFigures } from "../bench/written.ts";

/** The command lines of the benches of scale, cost and parts. What they measure takes too long for a test. */

const TEST_MS_MAX = 180_000;
const REPOSITORY = join(import.meta.dirname, "..");

function run(name: string, ...args: string[]) {
  const { stdout, stderr, exitCode } = Bun.spawnSync([process.execPath, `bench/${name}.ts`, ...args], {
    cwd: REPOSITORY,
    // Nothing may be started before the command line is read.
    env: { PATH: "", HOME: "/nonexistent" },
  });
  return { stdout: stdout.toString(), stderr: stderr.toString(), exitCode };
}

test.each(["scale", "cost", "parts"])(
  "bench:%s: an error on the command line is reported in one line, with exit code 2, before anything is measured",
  (name) => {
    const folder = mkdtempSync(join(tmpdir(), "tollgate-bench-scale-"));
    try {
      const page = join(folder, "page.md");
      writeFileSync(page, "# No marks\n");
      expect(run(name, "--fast")).toEqual({ stdout: "", stderr: "Unknown option '--fast'\n", exitCode: 2 });
      expect(run(name, "--write", page)).toEqual({
        ...{ stdout: "", exitCode: 2 },
        stderr: `${page} has no <!-- ${name} --> and <!-- /${name} --> behind it\n`,
      });
      expect(run(name, "--write", join(folder, "none.md")).exitCode).toBe(2);
      expect(run(name, "--help")).toMatchObject({ exitCode: 0, stderr: "" });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
  TEST_MS_MAX,
);

test("new figures replace the old ones, and nothing else changes", () => {
  const folder = mkdtempSync(join(tmpdir(), "tollgate-bench-scale-"));
  try {
    const page = join(folder, "page.md");
    writeFileSync(page, "a\n\n<!-- cost -->\n\nold\n\n<!-- /cost -->\n\nb\n<!-- scale -->\n<!-- /scale -->\n");
    writeFigures(page, "cost", "one\n");
    writeFigures(page, "cost", "two\n");
    expect(readFileSync(page, "utf8")).toBe(
      "a\n\n<!-- cost -->\n\ntwo\n\n<!-- /cost -->\n\nb\n<!-- scale -->\n<!-- /scale -->\n",
    );
    expect(() => writeFigures(page, "rates", "one")).toThrow("has no <!-- rates -->");
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
