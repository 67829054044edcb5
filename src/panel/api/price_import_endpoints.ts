import { Type } from "@sinclair/typebox";
import { t } from "elysia";
import { DIFF_MODELS_MAX, type ImportRequest } from "../../catalog/price_diff.ts";
import { readMarkup } from "../../catalog/price_import.ts";
import { applyImport, previewImport } from "../../catalog/price_import_store.ts";
import { type PriceList, packagedPriceList } from "../../catalog/price_list.ts";
import type { Deps } from "../../deps.ts";
import { MODEL_ID_CHARS_MAX } from "../../limits.ts";
import { once } from "./form_once.ts";
import { signedIn } from "./panel_session.ts";

/**
 * Prices from the installed price list, for admins: its providers, the changes that an import would make, and the
 * import. The comparison is made with every request, and not stored. Source: IMP-4.
 */

const PROVIDER_CHARS_MAX = 200;
const MARKUP_CHARS_MAX = 10;
const DIGEST = "^[0-9a-f]{32}$";

const requestFields = {
  provider: t.String({ minLength: 1, maxLength: PROVIDER_CHARS_MAX }),
  /** In percent, as typed: "20", "12.5". */
  markup: t.String({ maxLength: MARKUP_CHARS_MAX }),
};

export function priceImportEndpoints(deps: Deps) {
  /** Read once, because it belongs to the installed package. A failure is not cached. */
  let reading: Promise<PriceList> | undefined;
  const priceList = () => {
    reading ??= packagedPriceList().catch((error: unknown) => {
      reading = undefined;
      throw error;
    });
    return reading;
  };
  return signedIn(deps, "admin")
    .get("/admin/price-list", async () => describe(await priceList()))
    .get(
      "/admin/model-import",
      async ({ query }) => await previewImport(deps, await priceList(), toRequest(query, query.addsNew === "true")),
      { query: t.Object({ ...requestFields, addsNew: t.Optional(t.Union([t.Literal("true"), t.Literal("false")])) }) },
    )
    .post(
      "/admin/model-import",
      async ({ person, body, request }) =>
        await once(deps, { person, request }, async () =>
          applyImport({ ...deps, by: person.by }, await priceList(), {
            ...toRequest(body),
            confirmed: body.confirmed,
          }),
        ),
      {
        body: t.Object({
          ...requestFields,
          /** The `digest` of an item as the comparison showed it. */
          confirmed: t.Array(
            t.Object({
              modelId: t.String({ minLength: 1, maxLength: MODEL_ID_CHARS_MAX }),
              digest: Type.String({ pattern: DIGEST, says: "the digest of a comparison" }),
            }),
            { minItems: 1, maxItems: DIFF_MODELS_MAX },
          ),
        }),
      },
    );
}

function toRequest({ provider, markup }: { provider: string; markup: string }, addsNew = false): ImportRequest {
  return { providers: [provider], markup: readMarkup(markup), addsNew };
}

function describe({ source, providers }: PriceList) {
  return { source, providers: providers.map(({ id, name, models }) => ({ id, name, models: models.length })) };
}
