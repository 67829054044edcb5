import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { Elysia } from "elysia";
import type { Brand } from "../accounts/brand_lookup.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { hostOf } from "../http/host.ts";
import { factsOf } from "../http/request_facts.ts";
import { randomToken } from "../platform/crypto.ts";
import { inTime } from "../platform/in_time.ts";
import { sha256 } from "../platform/runtime.ts";
import { prefersPage } from "./accept.ts";
import { panelHostOf } from "./api/session_auth.ts";

/**
 * The panel's pages: what `scripts/build_panel.ts` built, held in memory and served alike on both runtimes. How a page
 * looks is decided by its host, before the first byte.
 */

/** What a path in the configuration starts from: the command may have been called elsewhere. */
const REPOSITORY = fileURLToPath(new URL("../..", import.meta.url).href);
const NONCE_BYTES = 16;
/** Built files have their content's hash in their names; brands have a version in their addresses. */
const FOR_EVER = "public, max-age=31536000, immutable";
/** Fonts and pictures are packed already. */
const PACKED = /^text\/|^image\/svg/;
const TYPES: Readonly<Record<string, string>> = {
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  woff2: "font/woff2",
  svg: "image/svg+xml",
  png: "image/png",
};

export type Site = {
  /** The template of every page. */
  index: string;
  assets: ReadonlyMap<string, Asset>;
};

/** `packed` is the same gzipped, where that is worth it. */
type Asset = { bytes: Uint8Array<ArrayBuffer>; packed: Uint8Array<ArrayBuffer> | null; type: string; etag: string };

/** Reads what was built. undefined: nothing was, and this replica serves the API alone. */
export async function loadSite(panelDir: string): Promise<Site | undefined> {
  const folder = resolve(REPOSITORY, panelDir);
  if (!existsSync(join(folder, "index.html"))) return undefined;
  const names = await readdir(join(folder, "assets"));
  const assets = await Promise.all(
    names.map(async (name) => {
      const bytes = new Uint8Array(await readFile(join(folder, "assets", name)));
      const type = TYPES[name.split(".").at(-1) ?? ""] ?? "application/octet-stream";
      const packed = PACKED.test(type) ? new Uint8Array(gzipSync(bytes)) : null;
      return [name, { bytes, packed, type, etag: etagOf(bytes) }] as const;
    }),
  );
  return { index: await readFile(join(folder, "index.html"), "utf8"), assets: new Map(assets) };
}

/** Scripts, styles, fonts, and what a brand brings. */
export function siteRoutes(deps: Deps) {
  return new Elysia({ normalize: false })
    .get("/assets/:name", async ({ request, params }) => {
      await panelHostOf(deps, request);
      const asset = deps.site?.assets.get(params.name);
      if (asset === undefined) throw new Refusal("not_found");
      return asset.packed !== null && takesGzip(request)
        ? file(request, { ...asset, bytes: asset.packed, etag: asset.etag.replace(/"$/, '-gz"') }, "gzip")
        : file(request, asset);
    })
    .get("/brand.css", async ({ request }) => {
      const { css } = await brandOf(deps, request);
      return file(request, { bytes: new TextEncoder().encode(css), type: TYPES.css ?? "" });
    })
    .get("/brand/:picture", async ({ request, params }) => {
      const { logoLight, logoDark, logoType, icon } = await brandOf(deps, request);
      const pictures: Record<string, { bytes: Uint8Array | null; type: string }> = {
        "logo-light": { bytes: logoLight, type: logoType },
        "logo-dark": { bytes: logoDark, type: logoType },
        icon: { bytes: icon, type: "image/png" },
      };
      const { bytes = null, type = "" } = pictures[params.picture] ?? {};
      if (bytes === null) throw new Refusal("not_found");
      return file(request, { bytes: new Uint8Array(bytes), type });
    });
}

/** The page at any other address on a host of the panel, for whoever does not prefer JSON; undefined for everybody else. */
export async function pageOf(deps: Deps, request: Request): Promise<Response | undefined> {
  const asksForPage = request.method === "GET" && prefersPage(request.headers.get("accept"));
  const { pathname } = new URL(request.url);
  if (!asksForPage || deps.site === undefined || /^\/(?:v1|api)(?:\/|$)/.test(pathname)) return undefined;
  const host = await hostOf(deps, request);
  if (host.resellerId === null && !deps.panelHosts.has(host.name)) return undefined;
  const brand = await inTime(deps.brands.get(host.resellerId));
  const nonce = randomToken(NONCE_BYTES);
  return new Response(fill(deps.site.index, brand, { NONCE: nonce }), { headers: pageHeaders(request, nonce) });
}

/** Of every page. With a nonce, elements of style that bear it may be used too. */
export function pageHeaders(request: Request, nonce?: string): Record<string, string> {
  return {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "content-security-policy": policy(nonce),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-request-id": factsOf(request).requestId,
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
  };
}

/** Puts a host's brand into a template, and `more`, which is HTML already. */
export function fill(
  template: string,
  { name, version, css, icon }: Brand,
  more: Readonly<Record<string, string>>,
): string {
  const values: Record<string, string> = {
    ...more,
    TITLE: escapeHtml(name),
    LANG: "en",
    ICON: icon === null ? "data:," : `/brand/icon?v=${version}`,
    BRAND: css === "" ? "" : `<link rel="stylesheet" href="/brand.css?v=${version}">`,
  };
  return template.replace(/%([A-Z]+)%/g, (placeholder, key: string) => values[key] ?? placeholder);
}

/** Scripts and styles are files of ours; the nonce is for the one style element that open dialogs need. */
function policy(nonce: string | undefined): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    nonce === undefined ? "style-src 'self'" : `style-src 'self' 'nonce-${nonce}'`,
    "font-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data: blob:",
    "manifest-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
  ].join("; ");
}

/** The brand of a host of the panel. Throws host_not_allowed. */
export async function brandOf(deps: Deps, request: Request): Promise<Brand> {
  const { resellerId } = await panelHostOf(deps, request);
  return await inTime(deps.brands.get(resellerId));
}

function takesGzip(request: Request): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/.test(request.headers.get("accept-encoding") ?? "");
}

/** A file for ever: its address holds its version. */
export function file(
  request: Request,
  { bytes, type, etag = etagOf(bytes) }: { bytes: Uint8Array<ArrayBuffer>; type: string; etag?: string },
  encoding?: "gzip",
): Response {
  const headers = {
    "content-type": type,
    ...(encoding && { "content-encoding": encoding }),
    vary: "accept-encoding",
    "cache-control": FOR_EVER,
    etag,
    "x-content-type-options": "nosniff",
    "x-request-id": factsOf(request).requestId,
  };
  if (request.headers.get("if-none-match") === etag) return new Response(null, { status: 304, headers });
  return new Response(bytes, { headers });
}

export function etagOf(bytes: Uint8Array): string {
  return `"${Buffer.from(sha256(bytes)).toString("base64url").slice(0, 22)}"`;
}

/** Text as HTML. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
