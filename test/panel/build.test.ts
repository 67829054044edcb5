import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import tailwind from "bun-plugin-tailwind";
import {
  buildPanel,
  FIRST_LOAD_GZIP_MAX_BYTES,
  isPanelBuilt,
  type PanelBuild,
  panelSources,
} from "../../scripts/build_panel.ts";

/** The panel's build: small, complete, fit for a strict CSP, and without the operator's name. */

const repository = join(import.meta.dirname, "..", "..");
const BUILD_MS_MAX = 180_000;
/** Hosts in scripts that no browser fetches: XML namespaces, links in error texts of React, marked and SimpleWebAuthn, eden's placeholder, examples. */
const NEVER_FETCHED =
  /^(?:www\.w3\.org|react\.dev|github\.com|simplewebauthn\.dev|e\.ly|(?:[a-z0-9-]+\.)*(?:example(?:\.(?:com|org|net))?|localhost))$/;

let folder = "";
let build: PanelBuild;
/** Every built file that is text, by its path in the build. */
const texts = new Map<string, string>();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "panel-build-"));
  build = await buildPanel(join(folder, "panel"));
  for (const path of await readdir(build.outDir, { recursive: true })) {
    if (/\.(?:html|js|css|json)$/.test(path)) texts.set(path, await readFile(join(build.outDir, path), "utf8"));
  }
});

afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

function html(): string {
  return texts.get("index.html") ?? "";
}

function textsOf(extension: string): [path: string, text: string][] {
  return [...texts].filter(([path]) => path.endsWith(extension));
}

test("a first visit loads at most 140 KB of scripts, compressed", () => {
  expect(FIRST_LOAD_GZIP_MAX_BYTES).toBe(140 * 1024);
  expect(build.firstLoadGzipBytes).toBeGreaterThan(50 * 1024);
  expect(build.firstLoadGzipBytes).toBeLessThanOrEqual(FIRST_LOAD_GZIP_MAX_BYTES);
});

test("menus, the palette and every page are loaded on demand", () => {
  const lazy = build.scripts.filter(({ isFirstLoad }) => !isFirstLoad).map(({ name }) => name.replace(/-\w+\.js$/, ""));
  expect(lazy).toContain("menu_list");
  expect(lazy).toContain("palette_list");
  for (const page of [
    "sign_in",
    "home",
    "keys",
    "playground",
    "usage",
    "billing",
    "settings",
    "customers",
    "domains",
  ]) {
    expect(lazy).toContain(page);
  }
  for (const page of ["brand", "people", "models", "books"]) expect(lazy).toContain(page);
});

test("every file that the page loads is in the build, with a content hash in its name", () => {
  const named = [...html().matchAll(/(?:src|href)="\/([^"]+)"/g)].map((found) => found[1] ?? "");
  expect(named.length).toBeGreaterThanOrEqual(4);
  for (const path of named) {
    expect(path).toMatch(/^assets\/[\w-]+-[0-9a-z]{8,}\.(?:js|css|woff2)$/);
    expect(existsSync(join(build.outDir, path)), path).toBe(true);
  }
});

test("index.html has the server's placeholders, with the brand's style sheet after the app's", () => {
  for (const placeholder of ["%TITLE%", "%LANG%", "%NONCE%", "%ICON%", "%BRAND%"])
    expect(html()).toContain(placeholder);
  expect(html()).not.toContain("%ASSETS%");
  expect(html().indexOf("%BRAND%")).toBeGreaterThan(html().indexOf('rel="stylesheet"'));
  expect(html()).toContain('<meta name="csp-nonce" content="%NONCE%">');
  expect(html()).toContain('<meta name="color-scheme" content="light dark">');
});

test("index.html has no inline script, style or handler", () => {
  for (const [, attributes, inside] of html().matchAll(/<script\b([^>]*)>([\s\S]*?)<\/script>/g)) {
    expect(attributes).toContain('src="/assets/');
    expect(inside).toBe("");
  }
  expect(html()).not.toMatch(/<style|\sstyle=|\son\w+=|javascript:/i);
});

test("nothing is loaded from another host", () => {
  expect(html()).not.toMatch(/https?:|\/\/[a-z]/i);
  for (const [path, text] of textsOf(".css")) {
    expect(text, path).not.toMatch(/@import|https?:/);
    for (const [, address] of text.matchAll(/url\(\s*["']?([^"')]+)/g)) {
      expect(address, path).toMatch(/^\/assets\/[\w-]+\.woff2$/);
    }
  }
  for (const [path, text] of textsOf(".js")) {
    const imported = new Bun.Transpiler({ loader: "js" }).scanImports(text);
    for (const { path: from } of imported) expect(from, path).toMatch(/^\/assets\/[\w-]+\.js$/);
    for (const [, host] of text.matchAll(/https?:\/\/([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)/gi))
      expect(host, path).toMatch(NEVER_FETCHED);
  }
});

test("there are no source maps", async () => {
  for (const [path, text] of texts) expect(text, path).not.toContain("sourceMappingURL");
  const paths = await readdir(build.outDir, { recursive: true });
  expect(paths.filter((path) => path.endsWith(".map"))).toEqual([]);
});

test("fonts are separate files, and each is used", async () => {
  const paths = await readdir(join(build.outDir, "assets"));
  const fonts = paths.filter((path) => path.endsWith(".woff2"));
  expect(fonts.length).toBeGreaterThanOrEqual(2);
  const css = textsOf(".css").map(([, text]) => text);
  expect(css.join("\n")).not.toContain("data:font");
  for (const font of fonts) {
    expect(
      css.some((text) => text.includes(`/assets/${font}`)),
      font,
    ).toBe(true);
    expect((await stat(join(build.outDir, "assets", font))).size).toBeGreaterThan(1_000);
  }
});

test("no built file contains the product's name, since a reseller's customers load them", () => {
  for (const [path, text] of texts) {
    expect(path).not.toMatch(/tollgate/i);
    expect(/.{0,40}tollgate.{0,40}/i.exec(text)?.[0], path).toBeUndefined();
  }
});

test("no source uses innerHTML, eval, or a component that does or injects styles", async () => {
  const web = join(repository, "src", "panel", "web");
  for (const path of await readdir(web, { recursive: true })) {
    if (!/\.tsx?$/.test(path)) continue;
    const text = await readFile(join(web, path), "utf8");
    expect(text, path).not.toMatch(
      /dangerouslySetInnerHTML|\.(?:inner|outer)HTML\b|insertAdjacentHTML|document\.write|srcDoc|\beval\(|new Function\(/,
    );
    expect(text, path).not.toMatch(/from "(?:@radix-ui\/react-(?:select|scroll-area)|sonner)"/);
  }
});

test(
  "the same sources give the same names; a new build replaces the old one completely",
  async () => {
    const left = join(build.outDir, "assets", "left-over.js");
    await writeFile(left, "");
    const again = await buildPanel(build.outDir);
    expect(again.scripts).toEqual(build.scripts);
    expect(await readFile(join(again.outDir, "index.html"), "utf8")).toBe(html());
    expect(existsSync(left)).toBe(false);
    expect(await readdir(folder)).toEqual(["panel"]);
  },
  BUILD_MS_MAX,
);

test("isPanelBuilt is true for an up-to-date build only", async () => {
  expect(await isPanelBuilt(build.outDir)).toBe(true);
  expect(await isPanelBuilt(join(folder, "none"))).toBe(false);
  await writeFile(join(build.outDir, "build.json"), '{"sourcesHash":"other"}\n');
  expect(await isPanelBuilt(build.outDir)).toBe(false);
});

test("the panel is built again when any file has changed that the bundler reads, those of the server included", async () => {
  const { metafile } = await Bun.build({
    entrypoints: ["main.tsx", "theme_first.ts"].map((name) => join(repository, "src/panel/web", name)),
    root: repository,
    metafile: true,
    external: ["/assets/*"],
    plugins: [tailwind],
  });
  const read = Object.keys(metafile?.inputs ?? {})
    .map((path) => resolve(path))
    .filter((path) => path.startsWith(join(repository, "src/")));
  const hashed = await panelSources();
  expect(read.filter((path) => !path.includes("/panel/web/")).length).toBeGreaterThan(1);
  expect(read.filter((path) => !hashed.has(path))).toEqual([]);
});
