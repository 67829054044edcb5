import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import type { Log } from "../platform/log.ts";
import { sha256 } from "../platform/runtime.ts";

/** The panel as `scripts/build_panel.ts` built it, read into memory at start. Serving it: site.ts. */

/** Relative paths in the configuration start here, whatever the working directory. */
const REPOSITORY = fileURLToPath(new URL("../..", import.meta.url).href);
/** Types worth compressing: fonts and pictures already are. */
const COMPRESSIBLE = /^text\/|^image\/svg/;
export const CONTENT_TYPES: Readonly<Record<string, string>> = {
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  woff2: "font/woff2",
  svg: "image/svg+xml",
  png: "image/png",
};

export type Site = {
  /** The HTML template of every page. */
  index: string;
  /** The script with the catalogue of each language but English. */
  texts: ReadonlyMap<string, string>;
  assets: ReadonlyMap<string, Asset>;
};

/** `gzipped`: null if compression is not worth it. */
type Asset = { bytes: Uint8Array<ArrayBuffer>; gzipped: Uint8Array<ArrayBuffer> | null; type: string; etag: string };

/** Reads the built panel. undefined: it was not built, and this replica serves the API only. */
export async function loadSite(panelDir: string, log: Log): Promise<Site | undefined> {
  const folder = resolve(REPOSITORY, panelDir);
  if (!existsSync(join(folder, "index.html"))) {
    log.info(
      { folder },
      "PANEL_DIR has no built panel: only the API is served; to build the panel, run: bun run build",
    );
    return undefined;
  }
  const names = await readdir(join(folder, "assets"));
  const assets = await Promise.all(
    names.map(async (name) => {
      const bytes = new Uint8Array(await readFile(join(folder, "assets", name)));
      const type = CONTENT_TYPES[name.split(".").at(-1) ?? ""] ?? "application/octet-stream";
      const gzipped = COMPRESSIBLE.test(type) ? new Uint8Array(gzipSync(bytes)) : null;
      return [name, { bytes, gzipped, type, etag: etagOf(bytes) }] as const;
    }),
  );
  const texts = names.flatMap((name): [string, string][] => {
    const language = /^texts-([a-z]+)-/.exec(name)?.[1];
    return language === undefined ? [] : [[language, name]];
  });
  const index = await readFile(join(folder, "index.html"), "utf8");
  return { index, texts: new Map(texts), assets: new Map(assets) };
}

export function etagOf(bytes: Uint8Array): string {
  return `"${Buffer.from(sha256(bytes)).toString("base64url").slice(0, 22)}"`;
}
