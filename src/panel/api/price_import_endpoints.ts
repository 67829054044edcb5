import { t } from "elysia";
import type { Deps } from "../../deps.ts";
import { perform } from "../../operations/operation.ts";
import { applyPriceImport, getPriceList, previewPriceImport } from "../../operations/price_imports.ts";
import { bodyOf, operate } from "./operate.ts";
import { callBy, signedIn } from "./panel_session.ts";

/** Prices from the installed price list, for admins. Source: IMP-4. */

const PROVIDER_CHARS_MAX = 200;
const MARKUP_CHARS_MAX = 10;

export function priceImportEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .get("/admin/price-list", operate(deps, getPriceList))
    .get(
      "/admin/model-import",
      ({ query: { provider, markup, addsNew }, ...asked }) =>
        perform(deps, previewPriceImport, callBy(deps, asked), {
          ...{ providers: [provider], markup },
          addsNew: addsNew === "true",
        }),
      {
        query: t.Object({
          provider: t.String({ minLength: 1, maxLength: PROVIDER_CHARS_MAX }),
          /** In percent, as typed: "20", "12.5". */
          markup: t.String({ maxLength: MARKUP_CHARS_MAX }),
          addsNew: t.Optional(t.Union([t.Literal("true"), t.Literal("false")])),
        }),
      },
    )
    .post("/admin/model-import", operate(deps, applyPriceImport), { body: bodyOf(applyPriceImport) });
}
