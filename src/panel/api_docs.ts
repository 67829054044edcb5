import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { Elysia } from "elysia";
import { LRUCache } from "lru-cache";
import type { Brand } from "../accounts/brand_lookup.ts";
import type { Model } from "../catalog/catalog.ts";
import { byService, MODALITIES, SERVICE_NAMES, type Service } from "../catalog/modalities.ts";
import type { Deps } from "../deps.ts";
import { EXAMPLE_MODELS, type ExampleModels } from "../gateway/v1_operations.ts";
import { networkOf } from "../http/client_address.ts";
import { apiUrlOf, type Host, panelHostOf, siteUrl } from "../http/host.ts";
import type { OpenApi, Place } from "../http/openapi.ts";
import { factsOf } from "../http/request_facts.ts";
import type { LanguageTag } from "../languages/languages.ts";
import { textsIn } from "../languages/server_texts.ts";
import { CSRF_HEADER, cookieName } from "./api/session_auth.ts";
import { apiPage, modelPlaceholder } from "./api_page.ts";
import { customersPage, type Frame, managementPage, type PageWords } from "./api_page_words.ts";
import { etagOf, type Site } from "./built_site.ts";
import { brandOf, escapeHtml, file, fill, languageFor, pageHeaders, VARIES } from "./site.ts";

/**
 * The API reference for people (`/docs/api`) and tools (`/docs/openapi.json`), on every panel host, in its brand. Not under /v1: there the
 * contract lists every path, and every path needs a key.
 */

/** Rendered texts that are kept, of each kind: some 200 KB each, and a page once for each language of its readers. */
const RENDERED_MAX = 32;
const HTML = { type: "text/html; charset=utf-8" };
/** The text changes with the brand and with the release. */
const CHECKED = { "cache-control": "no-cache" };
const PAGE_VARIES = `accept-encoding, ${VARIES}`;
const STYLE = new Uint8Array(readFileSync(fileURLToPath(new URL("./api_page.css", import.meta.url).href)));
const STYLE_ETAG = etagOf(STYLE);
const STYLE_VERSION = STYLE_ETAG.replaceAll('"', "");
/** From the head of the built page: the script that sets the chosen theme before the first paint, the style sheet and the fonts. */
const PANEL_HEAD =
  /<script src="\/assets\/theme-[^>]+><\/script>|<link rel="(?:preload|stylesheet)" href="\/assets\/[^>]+>/g;

/** The documents of the customers' API and of the management API, each made with its first request. */
type Documents = { customers: () => OpenApi; management: () => OpenApi };

export function apiDocsEndpoints(deps: Deps, documents: Documents) {
  return new Elysia({ normalize: false })
    .use(customersDocs(deps, documents.customers))
    .use(managementDocs(deps, documents.management));
}

/** The reference of the management API. Its document is under its own prefix, as its clients expect. */
function managementDocs(deps: Deps, openapi: () => OpenApi) {
  const template = templates(openapi, managementPage);
  const head = panelHead(deps.site);
  const placeFor = ({ brand, place }: View): Place => ({
    ...place,
    title: `${brand.name} management API`,
    apiUrls: [`${place.panelUrl}/api/v1`],
  });
  const page = rendered((view) =>
    fill(template(view.language), view.brand, {
      BASE: escapeHtml(placeFor(view).apiUrls[0] ?? ""),
      STYLE: STYLE_VERSION,
      PANEL: head,
    }),
  );
  const document = rendered((view) => JSON.stringify(openapi().document(placeFor(view))));
  return new Elysia({ normalize: false })
    .get("/docs/management", async ({ request }) => {
      const text = page(await pageViewOf(deps, request));
      return file(request, { ...text, ...HTML, headers: { ...pageHeaders(request), ...CHECKED, vary: PAGE_VARIES } });
    })
    .get("/api/v1/openapi.json", async ({ request }) => {
      const text = document(await viewOf(deps, request));
      return file(request, { ...text, type: "application/json", headers: CHECKED });
    });
}

function customersDocs(deps: Deps, openapi: () => OpenApi) {
  const template = templates(openapi, customersPage);
  const head = panelHead(deps.site);
  const page = rendered(({ brand, models, language, place: { apiUrls } }) =>
    fill(template(language), brand, {
      BASE: escapeHtml(apiUrls[0] ?? ""),
      STYLE: STYLE_VERSION,
      PANEL: head,
      ...Object.fromEntries(SERVICE_NAMES.map((service) => [modelPlaceholder(service), escapeHtml(models[service])])),
    }),
  );
  const document = rendered(({ place, models }) => JSON.stringify(openapi().document(place), withModels(models)));
  return new Elysia({ normalize: false })
    .get("/docs/api", async ({ request }) => {
      const text = page(await pageViewOf(deps, request));
      return file(request, { ...text, ...HTML, headers: { ...pageHeaders(request), ...CHECKED, vary: PAGE_VARIES } });
    })
    .get("/docs/api.css", async ({ request }) => {
      await panelHostOf(deps, request);
      return file(request, { bytes: STYLE, type: "text/css; charset=utf-8", etag: STYLE_ETAG });
    })
    .get("/docs/openapi.json", async ({ request }) => {
      const text = document(await viewOf(deps, request));
      return file(request, { ...text, type: "application/json", headers: CHECKED });
    });
}

/** What the reference depends on, beside the code. The document is in English for everybody. */
type View = { brand: Brand; place: Place; models: ExampleModels; language: LanguageTag };

/** Throws host_not_allowed, too_many_requests. */
async function viewOf(deps: Deps, request: Request): Promise<View> {
  const host = await panelHostOf(deps, request);
  await deps.limiter.take(`docs:${networkOf(factsOf(request).peerAddress())}`);
  const brand = await brandOf(deps, request);
  const models = exampleModels(deps.catalog.models());
  return { brand, place: placeOf(deps, host, brand.name), models, language: "en" };
}

/** The same for a page, in the language of its reader. */
async function pageViewOf(deps: Deps, request: Request): Promise<View> {
  const view = await viewOf(deps, request);
  return { ...view, language: languageFor(request, view.brand) };
}

/** The page in each language, made with the first request for it. */
function templates(openapi: () => OpenApi, words: (frame: Frame) => PageWords): (language: LanguageTag) => string {
  const made = new Map<LanguageTag, string>();
  return (language) => {
    const known = made.get(language);
    if (known !== undefined) return known;
    const template = apiPage(openapi(), words, textsIn(language));
    made.set(language, template);
    return template;
  };
}

/**
 * The models of the examples: the oldest that is sold to everybody, which is one with a price. Models of packages alone may be for some
 * customers only, and the reference is public.
 */
export function exampleModels(
  models: readonly Pick<Model, "id" | "modality" | "prices" | "imagePrices">[],
): ExampleModels {
  const sold = models.filter((one) => one.prices !== null || one.imagePrices.size > 0);
  // A model that serves nothing else comes first: one for text before one for text and images.
  const own = (service: Service) =>
    sold.find(({ modality }) => modality === service) ??
    sold.find(({ modality }) => MODALITIES[modality].serves.includes(service));
  return byService((service) => own(service)?.id ?? EXAMPLE_MODELS[service]);
}

/** For JSON.stringify: puts the installation's models in the place of those of the examples. */
function withModels(own: ExampleModels): (key: string, value: unknown) => unknown {
  const byExample = new Map<unknown, string>(SERVICE_NAMES.map((service) => [EXAMPLE_MODELS[service], own[service]]));
  return (key, value) => (key === "model" ? (byExample.get(value) ?? value) : value);
}

/** A text that is rendered and compressed once for each host, version of its brand, choice of models and language: anybody may ask for it. */
export function rendered(render: (view: View) => string) {
  const known = new LRUCache<
    string,
    { bytes: Uint8Array<ArrayBuffer>; gzipped: Uint8Array<ArrayBuffer>; etag: string }
  >({
    max: RENDERED_MAX,
  });
  return (view: View) => {
    const key = JSON.stringify([view.place.panelUrl, view.brand.name, view.brand.version, view.models, view.language]);
    let text = known.get(key);
    if (text === undefined) {
      const bytes = new TextEncoder().encode(render(view));
      text = { bytes, gzipped: new Uint8Array(gzipSync(bytes)), etag: etagOf(bytes) };
      known.set(key, text);
    }
    return text;
  };
}

/** On a reseller's host, only that host is named. */
function placeOf(deps: Deps, host: Host, name: string): Place {
  const { baseUrl, aliasUrl, panelUrl } = deps.config;
  const isOwn = host.resellerId === null;
  const site = siteUrl(deps, isOwn ? new URL(panelUrl).hostname : host.name);
  return {
    title: `${name} API`,
    apiUrls: isOwn ? [baseUrl, aliasUrl].filter((url) => url !== "") : [apiUrlOf(deps, host)],
    panelUrl: site,
    cookie: cookieName(deps),
    csrfHeader: CSRF_HEADER,
  };
}

function panelHead(site: Site | undefined): string {
  return (site?.index.match(PANEL_HEAD) ?? []).join("\n");
}
