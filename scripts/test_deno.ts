/**
 * Runs the tests that run the product on Deno: `bun run test:deno`. `bun run test` includes them. With `--check`, checks types with
 * Deno's compiler, as `bun run check` does.
 * The npm package `deno` has its binary in a separate package per platform. Bun does not run the script that would link it, and the
 * package's `bin` is a Node script that does not forward signals. So this file finds the binary and runs it directly.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import process from "node:process";

const repository = dirname(import.meta.dirname);
/** Entry points. No file imports the workers. */
const ENTRIES = [
  ...["src/main.ts", "src/cli.ts"],
  ...["src/gateway/tokens_worker.ts", "src/commerce/pdf_worker.ts", "src/accounts/password_worker.ts"],
];

/** The path of Deno's binary. Throws an Error with one sentence if it is not installed. */
export function denoProgram(): string {
  const file = process.platform === "win32" ? "deno.exe" : "deno";
  const libc = process.platform === "linux" ? "-glibc" : "";
  const requireFrom = createRequire(join(repository, "node_modules/deno/package.json"));
  try {
    const manifest = requireFrom.resolve(`@deno/${process.platform}-${process.arch}${libc}/package.json`);
    const program = join(dirname(manifest), file);
    if (existsSync(program)) return program;
  } catch {
    // Not installed as a package of the platform. The script of the package `deno` may have linked it.
  }
  const linked = join(repository, "node_modules/deno", file);
  if (existsSync(linked)) return linked;
  throw new Error("Deno is not installed: run bun install --frozen-lockfile, on a platform that Deno supports.");
}

/**
 * The command that runs one replica on Deno, with additional `options`. `--allow-env` is unrestricted because postgres.js and pino
 * read variables of any name; `--allow-net` because providers may have any address. With `--unstable-no-legacy-abort`, a request's
 * signal aborts only when the client leaves, not also when the response is complete.
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

/** Prints only errors, as the other checks do. */
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
