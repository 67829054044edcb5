import { Elysia } from "elysia";
import type { Brand } from "../accounts/brand_lookup.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { hostOf, panelHostOf } from "../http/host.ts";
import { factsOf } from "../http/request_facts.ts";
import { LANGUAGES, type LanguageTag, languageOf, languageTag } from "../languages/languages.ts";
import { randomToken } from "../platform/crypto.ts";
import { prefersPage } from "./accept.ts";

import { CONTENT_TYPES, etagOf } from "./built_site.ts";

/** Serves the panel's pages, assets and brand pictures. The host decides the brand of a page before the first byte is sent. */

const NONCE_BYTES = 16;
/** For files whose URL contains a hash or a version. */
const FOR_EVER = "public, max-age=31536000, immutable";

/** Scripts, styles, fonts, and a brand's style sheet and pictures. */
export function siteEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .get("/assets/:name", async ({ request, params }) => {
      await panelHostOf(deps, request);
      const asset = deps.site?.assets.get(params.name);
      if (asset === undefined) throw new Refusal("not_found");
      return file(request, asset);
    })
    .get("/brand.css", async ({ request }) => {
      const { css } = await brandOf(deps, request);
      return file(request, { bytes: new TextEncoder().encode(css), type: CONTENT_TYPES.css ?? "" });
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

/** The panel's page, for a GET on a panel host that prefers HTML to JSON and has no API key; undefined for any other request. */
export async function pageOf(deps: Deps, request: Request): Promise<Response | undefined> {
  const { method, headers } = request;
  const asksForPage = method === "GET" && !hasApiKey(headers) && prefersPage(headers.get("accept"));
  const { pathname } = new URL(request.url);
  if (!asksForPage || deps.site === undefined || /^\/(?:v1|api)(?:\/|$)/.test(pathname)) return undefined;
  const host = await hostOf(deps, request);
  if (host.resellerId === null && !deps.panelHosts.has(host.name)) return undefined;
  const brand = await deps.brands.get(host.resellerId);
  const nonce = randomToken(NONCE_BYTES);
  const language = languageFor(request, brand);
  const texts = deps.site.texts.get(language);
  const filled = fill(deps.site.index, brand, {
    NONCE: nonce,
    LANG: language,
    TEXTS: texts === undefined ? "" : `<script src="/assets/${texts}"></script>`,
  });
  return new Response(filled, { headers: pageHeaders(request, nonce) });
}

/** Whether a request has a key of this API, or in the header of another one. No browser opens a page with one. */
function hasApiKey(headers: Headers): boolean {
  return /^bearer\b/i.test(headers.get("authorization") ?? "") || headers.has("api-key") || headers.has("x-api-key");
}

/** The language of what a request is answered with, on a host of this brand. A cache must tell such answers apart: VARIES. */
export function languageFor({ headers }: Request, { language }: Pick<Brand, "language">): LanguageTag {
  return languageOf({ cookie: headers.get("cookie"), brand: language, accepts: headers.get("accept-language") });
}

/** The headers of a request that `languageFor` reads. */
export const VARIES = "accept-language, cookie";

/** The headers of every page. With a nonce, `<style nonce>` elements are allowed too. */
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

/** Fills a template's %PLACEHOLDERS% with a host's brand, and with `more`, which must be HTML already. */
export function fill(
  template: string,
  { name, version, css, icon }: Brand,
  more: Readonly<Record<string, string>>,
): string {
  const values: Record<string, string> = {
    ...more,
    TITLE: escapeHtml(name),
    LANG: more.LANG ?? "en",
    DIR: LANGUAGES[languageTag(more.LANG) ?? "en"].direction,
    ICON: icon === null ? "data:," : `/brand/icon?v=${version}`,
    BRAND: css === "" ? "" : `<link rel="stylesheet" href="/brand.css?v=${version}">`,
  };
  return template.replace(/%([A-Z]+)%/g, (placeholder, key: string) => values[key] ?? placeholder);
}

/** The Content-Security-Policy: own scripts and styles only. The nonce is for the one style element that open dialogs insert. */
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
  return await deps.brands.get(resellerId);
}

function acceptsGzip(request: Request): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))/.test(request.headers.get("accept-encoding") ?? "");
}

/** `gzipped`: the same bytes for clients that accept it; null: not worth it. `headers`: more than those of every file, or others. */
type File = {
  bytes: Uint8Array<ArrayBuffer>;
  type: string;
  etag?: string;
  gzipped?: Uint8Array<ArrayBuffer> | null;
  headers?: Record<string, string>;
};

/**
 * A file that clients may cache for good, because its URL contains its version, unless its headers say otherwise. Answers 304 to a
 * matching If-None-Match.
 */
export function file(
  request: Request,
  { bytes, type, etag = etagOf(bytes), gzipped = null, headers: more }: File,
): Response {
  const zipped = acceptsGzip(request) ? gzipped : null;
  const tag = zipped === null ? etag : etag.replace(/"$/, '-gz"');
  const headers = {
    "content-type": type,
    ...(zipped !== null && { "content-encoding": "gzip" }),
    vary: "accept-encoding",
    "cache-control": FOR_EVER,
    etag: tag,
    "x-content-type-options": "nosniff",
    "x-request-id": factsOf(request).requestId,
    ...more,
  };
  if (request.headers.get("if-none-match") === tag) return new Response(null, { status: 304, headers });
  return new Response(zipped ?? bytes, { headers });
}

/** Escapes text for HTML. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
