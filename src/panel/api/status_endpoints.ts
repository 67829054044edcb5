import { gzipSync } from "node:zlib";
import { Elysia } from "elysia";
import { LRUCache } from "lru-cache";
import type { Brand } from "../../accounts/brand_lookup.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import { type StatusPage, statusPageIn } from "../../commerce/status_page.ts";
import type { Deps } from "../../deps.ts";
import { networkOf } from "../../http/client_address.ts";
import { type Host, originOf, panelHostOf } from "../../http/host.ts";
import { factsOf } from "../../http/request_facts.ts";
import type { LanguageTag } from "../../languages/languages.ts";
import { textsIn } from "../../languages/server_texts.ts";
import { inTime } from "../../platform/time_limit.ts";
import { etagOf } from "../built_site.ts";
import { file, languageFor, VARIES } from "../site.ts";
import { signedOut } from "./panel_session.ts";
import { statusFeed } from "./status_feed.ts";

/**
 * The status page of a host's brand, for everyone: its data for the panel, and the same as JSON and as an Atom feed for programs, which may
 * be read from pages of other origins. In the language of the reader. Source: STA-2, STA-7, STA-8, LNG-2.
 */

/** Written and compressed documents: one of each kind for each host and language. */
const WRITTEN_MAX = 500;
/** The page itself is put together every half minute. */
const PUBLIC_HEADERS = {
  "cache-control": "public, max-age=30",
  "access-control-allow-origin": "*",
  "x-robots-tag": "noindex",
  vary: `accept-encoding, ${VARIES}`,
};

/** What the web app shows. */
export function statusEndpoints(deps: Deps) {
  return signedOut().get("/status", async ({ request }) => {
    const { language, page } = await viewOf(deps, request);
    return statusPageIn(textsIn(language), page);
  });
}

/** `/status.json` and `/status.atom`. */
export function statusDocuments(deps: Deps) {
  const json = written(({ brand, origin, language, page }) =>
    JSON.stringify({ name: brand.name, url: `${origin}/status`, ...statusPageIn(textsIn(language), page) }),
  );
  const atom = written(({ brand, origin, language, page }) =>
    statusFeed({ i18n: textsIn(language), name: brand.name, origin, page }),
  );
  return new Elysia({ normalize: false })
    .get("/status.json", async ({ request }) =>
      file(request, { ...json(await viewOf(deps, request)), type: "application/json", headers: PUBLIC_HEADERS }),
    )
    .get("/status.atom", async ({ request }) =>
      file(request, {
        ...atom(await viewOf(deps, request)),
        type: "application/atom+xml; charset=utf-8",
        headers: PUBLIC_HEADERS,
      }),
    );
}

type View = { host: Host; brand: Brand; origin: string; language: LanguageTag; page: StatusPage };

/** Throws host_not_allowed, too_many_requests, service_unavailable. */
async function viewOf(deps: Deps, request: Request): Promise<View> {
  const host = await panelHostOf(deps, request);
  const { url, peerAddress } = factsOf(request);
  await deps.limiter.take(`status:${networkOf(peerAddress())}`);
  const [brand, page] = await Promise.all([
    deps.brands.get(host.resellerId),
    inTime(deps.statusPages.get(host.resellerId ?? OPERATOR)),
  ]);
  return { host, brand, origin: originOf(deps, url), language: languageFor(request, brand), page };
}

type Written = { bytes: Uint8Array<ArrayBuffer>; gzipped: Uint8Array<ArrayBuffer>; etag: string };

/** A document that is written and compressed once for each page that was put together and language, whoever asks. */
function written(write: (view: View) => string) {
  const known = new LRUCache<string, { page: StatusPage; version: string; text: Written }>({ max: WRITTEN_MAX });
  return (view: View): Written => {
    const key = `${view.language} ${view.origin}`;
    const before = known.get(key);
    if (before !== undefined && before.page === view.page && before.version === view.brand.version) return before.text;
    const bytes = new TextEncoder().encode(write(view));
    const text = { bytes, gzipped: new Uint8Array(gzipSync(bytes)), etag: etagOf(bytes) };
    known.set(key, { page: view.page, version: view.brand.version, text });
    return text;
  };
}
