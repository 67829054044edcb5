import { gzipSync } from "node:zlib";
import { Elysia } from "elysia";
import { LRUCache } from "lru-cache";
import type { Brand } from "../../accounts/brand_lookup.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import type { StatusPage } from "../../commerce/status_page.ts";
import type { Deps } from "../../deps.ts";
import { networkOf } from "../../http/client_address.ts";
import { type Host, originOf, panelHostOf } from "../../http/host.ts";
import { factsOf } from "../../http/request_facts.ts";
import { inTime } from "../../platform/time_limit.ts";
import { etagOf } from "../built_site.ts";
import { file } from "../site.ts";
import { signedOut } from "./panel_session.ts";
import { statusFeed } from "./status_feed.ts";

/**
 * The status page of a host's brand, for everyone: its data for the panel, and the same as JSON and as an Atom feed for programs, which may
 * be read from pages of other origins. Source: STA-2, STA-7, STA-8.
 */

/** Written and compressed documents: one of each kind for each host. */
const WRITTEN_MAX = 200;
/** The page itself is put together every half minute. */
const PUBLIC_HEADERS = {
  "cache-control": "public, max-age=30",
  "access-control-allow-origin": "*",
  "x-robots-tag": "noindex",
};

/** What the web app shows. */
export function statusEndpoints(deps: Deps) {
  return signedOut().get("/status", async ({ request }) => (await viewOf(deps, request)).page);
}

/** `/status.json` and `/status.atom`. */
export function statusDocuments(deps: Deps) {
  const json = written(({ brand, origin, page }) =>
    JSON.stringify({ name: brand.name, url: `${origin}/status`, ...page }),
  );
  const atom = written(({ brand, origin, page }) => statusFeed({ name: brand.name, origin, page }));
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

type View = { host: Host; brand: Brand; origin: string; page: StatusPage };

/** Throws host_not_allowed, too_many_requests, service_unavailable. */
async function viewOf(deps: Deps, request: Request): Promise<View> {
  const host = await panelHostOf(deps, request);
  const { url, peerAddress } = factsOf(request);
  await deps.limiter.take(`status:${networkOf(peerAddress())}`);
  const [brand, page] = await Promise.all([
    deps.brands.get(host.resellerId),
    inTime(deps.statusPages.get(host.resellerId ?? OPERATOR)),
  ]);
  return { host, brand, origin: originOf(deps, url), page };
}

type Written = { bytes: Uint8Array<ArrayBuffer>; gzipped: Uint8Array<ArrayBuffer>; etag: string };

/** A document that is written and compressed once for each page that was put together, whoever asks. */
function written(write: (view: View) => string) {
  const known = new LRUCache<string, { page: StatusPage; version: string; text: Written }>({ max: WRITTEN_MAX });
  return (view: View): Written => {
    const before = known.get(view.origin);
    if (before !== undefined && before.page === view.page && before.version === view.brand.version) return before.text;
    const bytes = new TextEncoder().encode(write(view));
    const text = { bytes, gzipped: new Uint8Array(gzipSync(bytes)), etag: etagOf(bytes) };
    known.set(view.origin, { page: view.page, version: view.brand.version, text });
    return text;
  };
}
