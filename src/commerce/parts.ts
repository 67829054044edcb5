import type { Catalog } from "../catalog/catalog.ts";
import { type Base, close } from "../platform/base.ts";
import { createPdfDrawer } from "./pdf_drawer.ts";
import { openPricesPublicLookup } from "./prices_public_lookup.ts";
import { openStatusLookup } from "./status_lookup.ts";

export type CommerceParts = ReturnType<typeof openCommerce>;

export function openCommerce({ closing, ...base }: Base, { catalog }: { catalog: Catalog }) {
  const pricesPublic = closing.adopt(openPricesPublicLookup(base), close);
  return {
    pricesPublic,
    statusPages: closing.adopt(openStatusLookup({ ...base, catalog, pricesPublic }), close),
    pdfs: closing.adopt(createPdfDrawer(base.log), close),
  };
}
