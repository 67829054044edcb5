import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { type Host, siteUrl } from "../http/host.ts";
import type { OpenApi, Place } from "../http/openapi.ts";
import { factsOf } from "../http/request_facts.ts";
import { CSRF_HEADER, cookieName, panelHostOf } from "./api/session_auth.ts";
import { apiPage } from "./api_page.ts";
import { etagOf, type Site } from "./built_site.ts";
import { brandOf, escapeHtml, file, fill, pageHeaders } from "./site.ts";

/**
 * The API reference for people (`/docs/api`) and tools (`/docs/openapi.json`), on every panel host, in its brand. Not under /v1: there the
 * contract lists every path, and every path needs a key.
 */

const STYLE = new Uint8Array(readFileSync(fileURLToPath(new URL("./api_page.css", import.meta.url).href)));
const STYLE_ETAG = etagOf(STYLE);
const STYLE_VERSION = STYLE_ETAG.replaceAll('"', "");
/** From the head of the built page: the script that sets the chosen theme before the first paint, the style sheet and the fonts. */
const PANEL_HEAD =
  /<script src="\/assets\/theme-[^>]+><\/script>|<link rel="(?:preload|stylesheet)" href="\/assets\/[^>]+>/g;

export function apiDocsEndpoints(deps: Deps, openapi: OpenApi) {
  const template = apiPage(openapi);
  const head = panelHead(deps.site);
  return new Elysia({ normalize: false })
    .get("/docs/api", async ({ request }) => {
      const host = await panelHostOf(deps, request);
      const brand = await brandOf(deps, request);
      const [base = ""] = placeOf(deps, host, brand.name).apiUrls;
      const page = fill(template, brand, { BASE: escapeHtml(base), STYLE: STYLE_VERSION, PANEL: head });
      return new Response(page, { headers: pageHeaders(request) });
    })
    .get("/docs/api.css", async ({ request }) => {
      await panelHostOf(deps, request);
      return file(request, { bytes: STYLE, type: "text/css; charset=utf-8", etag: STYLE_ETAG });
    })
    .get("/docs/openapi.json", async ({ request }) => {
      const host = await panelHostOf(deps, request);
      const { name } = await brandOf(deps, request);
      return Response.json(openapi.document(placeOf(deps, host, name)), {
        headers: { "x-request-id": factsOf(request).requestId, "x-content-type-options": "nosniff" },
      });
    });
}

/** On a reseller's host, only that host is named. */
function placeOf(deps: Deps, host: Host, name: string): Place {
  const { baseUrl, aliasUrl, panelUrl } = deps.config;
  const isOwn = host.resellerId === null;
  const site = siteUrl(deps, isOwn ? new URL(panelUrl).hostname : host.name);
  return {
    title: `${name} API`,
    apiUrls: isOwn ? [baseUrl, aliasUrl].filter((url) => url !== "") : [`${site}/v1`],
    panelUrl: site,
    cookie: cookieName(deps),
    csrfHeader: CSRF_HEADER,
  };
}

function panelHead(site: Site | undefined): string {
  return (site?.index.match(PANEL_HEAD) ?? []).join("\n");
}
