/**
 * Runs the tests that run the product on Deno: `bun run test:deno`. They are a part of `bun run test` as well. With `--check`,
 * checks the types of what Deno runs, by Deno's own compiler; `bun run check` does so too.
 * Deno comes from the npm package `deno`, whose binary lies in a package of the platform's; bun does not run the script that
 * would link it, and its `bin` is a Node script that passes no signals on, so the binary itself is looked for and run.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import process from "node:process";

const repository = dirname(import.meta.dirname);
/** What is started by itself: nobody imports the worker. */
const ENTRIES = ["src/main.ts", "src/cli.ts", "src/gateway/tokens_worker.ts"];

/** The path of Deno's binary. Throws one sentence when the packages are not installed. */
export function denoProgram(): string {
  const file = process.platform === "win32" ? "deno.exe" : "deno";
  const libc = process.platform === "linux" ? "-glibc" : "";
  const requireFrom = createRequire(join(repository, "node_modules/deno/package.json"));
  try {
    const manifest = requireFrom.resolve(`@deno/${process.platform}-${process.arch}${libc}/package.json`);
    const program = join(dirname(manifest), file);
    if (existsSync(program)) return program;
  } catch {
    // Not for this machine, or not installed: perhaps the script of the package itself has put it into place.
  }
  const linked = join(repository, "node_modules/deno", file);
  if (existsSync(linked)) return linked;
  throw new Error("Deno is not installed: run bun install --frozen-lockfile, on a machine that Deno has a build for.");
}

/**
 * The command that runs one replica on Deno, with more options where they are given. Environment: postgres.js and pino look for variables of any name, which needs
 * all of `--allow-env`; network: providers are anywhere; `--unstable-no-legacy-abort`: a request's signal then means that
 * the client has left, and not also that its answer is done.
 */
export function denoReplicaCommand(options: string[] = []): string[] {
  return [
    denoProgram(),
    "run",
    "--no-prompt",
    "--no-check",
    "--no-lock",
    "--node-modules-dir=manual",
    "--unstable-no-legacy-abort",
    "--allow-env",
    "--allow-net",
    "--allow-sys",
    "--allow-ffi",
    "--allow-read",
    "--allow-write",
    ...options,
    join(repository, "src/main.ts"),
  ];
}

function main(): number {
  if (process.argv.includes("--check")) return check();
  const { stdout } = spawnSync(denoProgram(), ["--version"], { encoding: "utf8" });
  console.log(stdout.split("\n", 1)[0]);
  const runner = join(repository, "scripts/run_tests.ts");
  const { status } = spawnSync(process.execPath, [runner, "--deno"], { cwd: repository, stdio: "inherit" });
  return status ?? 1;
}

/** Quiet where all is well, as the other checks are. */
function check(): number {
  const args = ["check", "--quiet", "--no-lock", "--node-modules-dir=manual", ...ENTRIES];
  return spawnSync(denoProgram(), args, { cwd: repository, stdio: "inherit" }).status ?? 1;
}

if (import.meta.main) {
  try {
    process.exit(main());
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exit(1);
  }
}
