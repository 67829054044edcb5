import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import type { Host } from "../http/host.ts";
import type { OpenApi, Place } from "../http/openapi.ts";
import { factsOf } from "../http/request_facts.ts";
import { CSRF_HEADER, cookieName, panelHostOf, siteUrl } from "./api/session_auth.ts";
import { apiPage } from "./api_page.ts";
import { brandOf, escapeHtml, etagOf, file, fill, pageHeaders, type Site } from "./site.ts";

/**
 * What the API is, for people and for tools, on every host of the panel and in its name. Not under /v1: there the contract has every
 * path, and every path wants a key.
 */

const STYLE = new Uint8Array(readFileSync(fileURLToPath(new URL("./api_page.css", import.meta.url).href)));
const STYLE_ETAG = etagOf(STYLE);
const STYLE_VERSION = STYLE_ETAG.replaceAll('"', "");
/** Of the built page's head: the theme that was chosen by hand, before the first paint; the tokens and the fonts. */
const PANEL_LOOKS =
  /<script src="\/assets\/theme-[^>]+><\/script>|<link rel="(?:preload|stylesheet)" href="\/assets\/[^>]+>/g;

export function apiDocsRoutes(deps: Deps, openapi: OpenApi) {
  const template = apiPage(openapi);
  const looks = panelLooks(deps.site);
  return new Elysia({ normalize: false })
    .get("/docs/api", async ({ request }) => {
      const host = await panelHostOf(deps, request);
      const brand = await brandOf(deps, request);
      const [base = ""] = placeOf(deps, host, brand.name).apiUrls;
      const page = fill(template, brand, { BASE: escapeHtml(base), STYLE: STYLE_VERSION, PANEL: looks });
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

/** A reseller's customers are told of its own host alone. */
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

function panelLooks(site: Site | undefined): string {
  return (site?.index.match(PANEL_LOOKS) ?? []).join("\n");
}
