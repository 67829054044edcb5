import { type Base, close } from "../platform/base.ts";
import { createPdfDrawer } from "./pdf_drawer.ts";
import { openPricesPublicLookup } from "./prices_public_lookup.ts";

export type CommerceParts = ReturnType<typeof openCommerce>;

export function openCommerce({ closing, ...base }: Base) {
  return {
    pricesPublic: closing.adopt(openPricesPublicLookup(base), close),
    pdfs: closing.adopt(createPdfDrawer(base.log), close),
  };
}
