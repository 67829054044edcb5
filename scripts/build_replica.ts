import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { type BunPlugin, Glob } from "bun";

/**
 * Bundles `src/main.ts` with its packages into one file with compiled bytecode, for the replicas of tests: a start costs half as much
 * processor time as from the sources. Users run the sources, and so do `test/start.test.ts` and the replicas on Deno.
 */

const repository = join(import.meta.dirname, "..");
const main = join(repository, "src", "main.ts");
/** In the repository, because the external packages are looked up from here. */
const FOLDER = join(repository, "dist", "replica");
/** The bundler names the output after the entry. */
const PROGRAM = join(FOLDER, "main.js");
const STAMP = join(FOLDER, "sources.txt");
/** Of this repository: packages have folders of this name too. */
const SOURCES = new RegExp(`^${RegExp.escape(join(repository, "src"))}/.*\\.ts$`);
/** Packages with native code find their binaries beside themselves. */
const EXTERNAL = ["sharp", "@node-rs/argon2"];
/** The source waits for `main` at its top level. CommonJS, which bytecode needs, cannot. Nothing comes after it. */
const TOP_LEVEL_AWAIT = /^await main\(\)/m;

/** The path of a bundle of the current sources, which is built if there is none. Throws an Error if it cannot be built. */
export async function builtReplica(): Promise<string> {
  const hash = await hashSources();
  const isCurrent = existsSync(PROGRAM) && existsSync(STAMP) && (await readFile(STAMP, "utf8")) === hash;
  if (!isCurrent) await build(hash);
  return PROGRAM;
}

async function build(hash: string): Promise<void> {
  await mkdir(dirname(FOLDER), { recursive: true });
  const fresh = await mkdtemp(join(dirname(FOLDER), ".replica-"));
  try {
    await Bun.build({
      entrypoints: [main],
      outdir: fresh,
      target: "bun",
      format: "cjs",
      bytecode: true,
      external: EXTERNAL,
      plugins: [AS_IN_SOURCE],
    });
    await Bun.write(join(fresh, "sources.txt"), hash);
    await rm(FOLDER, { recursive: true, force: true });
    await rename(fresh, FOLDER);
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
}

/**
 * Modules keep the URL of their source: they find their files by it, workers too. Packages that are loaded when they are needed stay
 * outside: a bundle would evaluate their modules in another order.
 */
const AS_IN_SOURCE: BunPlugin = {
  name: "as-in-source",
  setup(builder) {
    builder.onLoad({ filter: SOURCES }, load);
    builder.onResolve({ filter: /^[^./]/ }, ({ path, kind }) =>
      kind === "dynamic-import" ? { path, external: true } : undefined,
    );
  },
};

async function load({ path }: { path: string }): Promise<{ contents: string; loader: "ts" }> {
  const source = await readFile(path, "utf8");
  if (path === main && !TOP_LEVEL_AWAIT.test(source)) throw new Error(`${path} does not begin with "await main()".`);
  const contents = path === main ? source.replace(TOP_LEVEL_AWAIT, "void main()") : source;
  return { contents: contents.replaceAll("import.meta.url", JSON.stringify(pathToFileURL(path).href)), loader: "ts" };
}

/** Hash of everything that the bundle is made of: the sources, the versions and patches of packages, this file, Bun. */
async function hashSources(): Promise<string> {
  const hash = createHash("sha256").update(Bun.version);
  const more = ["package.json", "bun.lock", "scripts/build_replica.ts"];
  const files = [...new Glob("{src,patches}/**/*.{ts,json,patch}").scanSync({ cwd: repository }), ...more];
  for (const path of files.sort())
    hash
      .update(`${path}\0`)
      .update(await readFile(join(repository, path)))
      .update("\0");
  return hash.digest("hex");
}
