import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, copyFile, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import process from "node:process";
import { gzipSync } from "node:zlib";
import tailwind from "bun-plugin-tailwind";
import { compiledTexts, panelCatalogue, panelPath, TRANSLATED } from "./catalogues.ts";
import { linguiMacros } from "./lingui_macros.ts";

/**
 * Builds the panel's web app: `bun scripts/build_panel.ts`; with `--if-needed`, only if its sources have changed.
 *
 * Writes to `dist/panel/`: `index.html` (a template that the server fills for each response) and `assets/*` (names contain a hash
 * of the content, so they can be cached forever). The folder is replaced in one step, so a running server never sees half a
 * build. Throws an Error if the scripts of a first visit are larger than their limit.
 */

/** Limit of the scripts that a first visit loads: the entry and its static imports, compressed. */
export const FIRST_LOAD_GZIP_MAX_BYTES = 140 * 1024;
/** Limit of the texts of one language, compressed. English needs none. */
const TEXTS_GZIP_MAX_BYTES = 120 * 1024;

const repository = join(import.meta.dirname, "..");
const web = join(repository, "src", "panel", "web");
const OUT_DIR = join(repository, "dist", "panel");
const STAMP = "build.json";
const HASH_CHARS = 10;
/** Files that are imported with a name or without; not their types. */
const IMPORTS = /^(?:import|export)(?! type\b)[^"';]*?\bfrom "(\.[^"]+)"|\bimport\(?\s*"(\.[^"]+)"/gm;
const PRODUCTION = { "process.env.NODE_ENV": '"production"' };

/** Latin for the panel's texts, Latin Extended for people's names. The monospace font needs only Latin. */
const FONTS = {
  "geist-latin.woff2": "@fontsource-variable/geist/files/geist-latin-wght-normal.woff2",
  "geist-latin-ext.woff2": "@fontsource-variable/geist/files/geist-latin-ext-wght-normal.woff2",
  "geist-mono-latin.woff2": "@fontsource-variable/geist-mono/files/geist-mono-latin-wght-normal.woff2",
};
/** Loaded in parallel with the styles, not after them. */
const PRELOADED_FONT = "geist-latin.woff2";

export type PanelScript = { name: string; gzipBytes: number; isFirstLoad: boolean };
export type PanelBuild = { outDir: string; scripts: PanelScript[]; firstLoadGzipBytes: number; cssGzipBytes: number };

/** Builds everything and replaces `outDir`. Throws an Error if a source does not compile or a limit is exceeded. */
export async function buildPanel(outDir = OUT_DIR): Promise<PanelBuild> {
  const sourcesHash = await hashSources();
  await mkdir(dirname(outDir), { recursive: true });
  const fresh = await mkdtemp(join(dirname(outDir), `.${basename(outDir)}-`));
  try {
    // Only the owner can read a temporary folder, but the server may run as another user.
    await chmod(fresh, 0o755);
    await mkdir(join(fresh, "assets"));
    const [app, theme, fonts] = await Promise.all([
      bundleApp(fresh),
      bundleThemeFirst(fresh),
      copyFonts(fresh),
      writeTexts(fresh),
    ]);
    const css = await writeCss(fresh, app.css, fonts);
    await writeFile(join(fresh, "index.html"), await page({ css: css.name, entry: app.entry, theme, fonts }));
    await writeFile(join(fresh, STAMP), stampOf(sourcesHash));
    const build = { outDir, ...(await measure(fresh, app, theme)), cssGzipBytes: css.gzipBytes };
    checkFirstLoad(build);
    await replace(fresh, outDir);
    return build;
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
}

/** Whether `outDir` has a build of the current sources. */
export async function isPanelBuilt(outDir = OUT_DIR): Promise<boolean> {
  const stamp = join(outDir, STAMP);
  if (!existsSync(stamp) || !existsSync(join(outDir, "index.html"))) return false;
  return (await readFile(stamp, "utf8")) === stampOf(await hashSources());
}

function stampOf(sourcesHash: string): string {
  return `${JSON.stringify({ sourcesHash })}\n`;
}

/** Hash of everything that the build depends on: the app, what it imports from the server, the catalogues, package versions, this file. */
async function hashSources(): Promise<string> {
  const hash = createHash("sha256");
  const more = [...TRANSLATED.map(panelPath), join(repository, "bun.lock"), import.meta.filename];
  for (const path of [...(await panelSources()), ...more].sort()) {
    hash
      .update(`${path.slice(repository.length)}\0`)
      .update(await readFile(path))
      .update("\0");
  }
  return hash.digest("hex");
}

/** The files of the app, and those of the server that they import. Types are not in the build. */
export async function panelSources(): Promise<Set<string>> {
  const entries = await readdir(web, { recursive: true, withFileTypes: true });
  const files = new Set(
    entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name)),
  );
  // A set's loop also visits what is added meanwhile.
  for (const file of files) {
    if (!/\.tsx?$/.test(file)) continue;
    const text = await readFile(file, "utf8");
    for (const [, named, plain] of text.matchAll(IMPORTS)) files.add(join(dirname(file), named ?? plain ?? ""));
  }
  return files;
}

/** Output of the bundler: file names in assets/, and the static imports of each script. */
type App = { entry: string; css: string; scripts: string[]; importsOf: Map<string, string[]> };

async function bundleApp(fresh: string): Promise<App> {
  const built = await Bun.build({
    entrypoints: [join(web, "main.tsx")],
    root: web,
    outdir: join(fresh, "assets"),
    publicPath: "/assets/",
    naming: { entry: "[name]-[hash].[ext]", chunk: "[name]-[hash].[ext]", asset: "[name]-[hash].[ext]" },
    target: "browser",
    format: "esm",
    splitting: true,
    minify: true,
    sourcemap: "none",
    metafile: true,
    define: PRODUCTION,
    // Bun would inline the fonts in the style sheet, where the CSP forbids them and they cannot be cached.
    external: ["/assets/*"],
    plugins: [tailwind, linguiMacros],
  });
  const names = built.outputs.map((output) => basename(output.path));
  const entry = built.outputs.find((output) => output.kind === "entry-point");
  const css = names.find((name) => name.endsWith(".css"));
  if (entry === undefined || css === undefined || built.metafile === undefined) {
    throw new Error("The bundler produced no script or no style sheet.");
  }
  const importsOf = new Map<string, string[]>();
  for (const [path, output] of Object.entries(built.metafile.outputs)) {
    const statics = output.imports.filter(({ kind }) => kind === "import-statement");
    importsOf.set(
      basename(path),
      statics.map((each) => basename(each.path)),
    );
  }
  return { entry: basename(entry.path), css, scripts: names.filter((name) => name.endsWith(".js")), importsOf };
}

/** The lines that choose the theme before the first paint. Not a module, so that the browser waits for them. */
async function bundleThemeFirst(fresh: string): Promise<string> {
  const built = await Bun.build({
    entrypoints: [join(web, "theme_first.ts")],
    root: web,
    outdir: join(fresh, "assets"),
    naming: { entry: "theme-[hash].[ext]" },
    target: "browser",
    format: "iife",
    minify: true,
    sourcemap: "none",
    define: PRODUCTION,
  });
  const [script] = built.outputs;
  if (script === undefined) throw new Error("The bundler produced no theme script.");
  return basename(script.path);
}

/** Copies the fonts. Returns their names in the style sheet → their names with the content's hash. */
async function copyFonts(fresh: string): Promise<Map<string, string>> {
  const fonts = new Map<string, string>();
  for (const [plain, source] of Object.entries(FONTS)) {
    const path = join(repository, "node_modules", source);
    const name = hashedName(plain, await readFile(path));
    await copyFile(path, join(fresh, "assets", name));
    fonts.set(plain, name);
  }
  return fonts;
}

/** Compiles the catalogue of each language into a script, which the server puts before the app's. Throws an Error if one has a fault. Source: LNG-7. */
async function writeTexts(fresh: string): Promise<void> {
  for (const language of TRANSLATED) {
    const texts = compiledTexts(await panelCatalogue(language));
    const script = Buffer.from(`globalThis.panelTexts=${JSON.stringify(texts)};`);
    const size = gzipSync(script).length;
    if (size > TEXTS_GZIP_MAX_BYTES)
      throw new Error(`The texts of ${language} have ${kilobytes(size)} KB, more than the limit.`);
    await writeFile(join(fresh, "assets", hashedName(`texts-${language}.js`, script)), script);
  }
}

/** Replaces the fonts' names in the style sheet, and renames it. Throws an Error if it uses an unknown font. */
async function writeCss(
  fresh: string,
  bundled: string,
  fonts: Map<string, string>,
): Promise<{ name: string; gzipBytes: number }> {
  const path = join(fresh, "assets", bundled);
  const text = (await readFile(path, "utf8"))
    .replace(/^\/\*![\s\S]*?\*\//, "")
    .replace(/url\(\s*["']?\/assets\/([^"')]+)["']?\s*\)/g, (_, plain: string) => {
      const name = fonts.get(plain);
      if (name === undefined) throw new Error(`The style sheet uses /assets/${plain}, which the build does not copy.`);
      return `url(/assets/${name})`;
    });
  const name = hashedName("app.css", Buffer.from(text));
  await rm(path);
  await writeFile(join(fresh, "assets", name), text);
  return { name, gzipBytes: gzipSync(text).length };
}

function hashedName(plain: string, content: Uint8Array): string {
  const hash = createHash("sha256").update(content).digest("hex").slice(0, HASH_CHARS);
  const dot = plain.lastIndexOf(".");
  return `${plain.slice(0, dot)}-${hash}${plain.slice(dot)}`;
}

/** index.html with the build's assets. The server fills the other placeholders, such as `%TITLE%`. */
async function page(names: { css: string; entry: string; theme: string; fonts: Map<string, string> }): Promise<string> {
  const template = await readFile(join(web, "index.html"), "utf8");
  const font = names.fonts.get(PRELOADED_FONT);
  const assets = [
    `<script src="/assets/${names.theme}"></script>`,
    `<link rel="preload" href="/assets/${font}" as="font" type="font/woff2" crossorigin>`,
    `<link rel="stylesheet" href="/assets/${names.css}">`,
    `<script type="module" src="/assets/${names.entry}"></script>`,
  ];
  for (const placeholder of ["%TITLE%", "%LANG%", "%DIR%", "%NONCE%", "%ICON%", "%TEXTS%", "%ASSETS%", "%BRAND%"]) {
    if (!template.includes(placeholder)) throw new Error(`index.html has no ${placeholder}.`);
  }
  return template.replace(/<!--[\s\S]*?-->\n?/g, "").replace("%ASSETS%", assets.join("\n    "));
}

async function measure(
  fresh: string,
  app: App,
  theme: string,
): Promise<{ scripts: PanelScript[]; firstLoadGzipBytes: number }> {
  const first = new Set([theme]);
  const waiting = [app.entry];
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (first.has(name)) continue;
    first.add(name);
    waiting.push(...(app.importsOf.get(name) ?? []));
  }
  const scripts: PanelScript[] = [];
  for (const name of [theme, ...app.scripts]) {
    const gzipBytes = gzipSync(await readFile(join(fresh, "assets", name))).length;
    scripts.push({ name, gzipBytes, isFirstLoad: first.has(name) });
  }
  scripts.sort((a, b) => Number(b.isFirstLoad) - Number(a.isFirstLoad) || b.gzipBytes - a.gzipBytes);
  const firstLoad = scripts.filter(({ isFirstLoad }) => isFirstLoad);
  return { scripts, firstLoadGzipBytes: firstLoad.reduce((total, { gzipBytes }) => total + gzipBytes, 0) };
}

function checkFirstLoad(build: PanelBuild): void {
  if (build.firstLoadGzipBytes <= FIRST_LOAD_GZIP_MAX_BYTES) return;
  throw new Error(
    `A first visit loads ${kilobytes(build.firstLoadGzipBytes)} KB of scripts, more than the limit of ${kilobytes(FIRST_LOAD_GZIP_MAX_BYTES)} KB.\n${table(build)}`,
  );
}

/** Renames `fresh` to `outDir`. The old folder is moved away first, because a rename cannot replace a folder with files. */
async function replace(fresh: string, outDir: string): Promise<void> {
  const old = `${fresh}-old`;
  if (existsSync(outDir)) await rename(outDir, old);
  await rename(fresh, outDir);
  await rm(old, { recursive: true, force: true });
}

function table({ scripts, firstLoadGzipBytes, cssGzipBytes }: PanelBuild): string {
  const lines = scripts.map(({ name, gzipBytes, isFirstLoad }) => [
    name,
    kilobytes(gzipBytes),
    isFirstLoad ? "first load" : "lazy",
  ]);
  const all = [
    ["script", "KB gzip", ""],
    ...lines,
    ["first load", kilobytes(firstLoadGzipBytes), `of ${kilobytes(FIRST_LOAD_GZIP_MAX_BYTES)}`],
    ["styles", kilobytes(cssGzipBytes), ""],
  ];
  const width = Math.max(...all.map(([name = ""]) => name.length));
  return all
    .map(([name = "", size = "", note = ""]) => `${name.padEnd(width)}  ${size.padStart(8)}  ${note}`.trimEnd())
    .join("\n");
}

function kilobytes(bytes: number): string {
  return (bytes / 1024).toFixed(1);
}

if (import.meta.main) {
  if (!process.argv.includes("--if-needed")) {
    console.log("Building the panel.");
    const build = await buildPanel();
    console.log(`${table(build)}\nBuilt: ${relative(repository, build.outDir)}.`);
  } else if (!(await isPanelBuilt())) {
    console.log("Building the panel.");
    await buildPanel();
  }
}
