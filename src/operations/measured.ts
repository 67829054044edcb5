import { Type } from "@sinclair/typebox";
import { type MeasuredTerms, measuredTermsOf, type PriceKind, setMeasuredTerms } from "../commerce/measured_store.ts";
import { OPERATOR } from "../commerce/sellers_store.ts";
import { Refusal } from "../errors.ts";
import { MEASURED_STEPS_MAX } from "../limits.ts";
import type { Db } from "../platform/db.ts";
import { Seller, sellerInScope } from "./fence.ts";
import { Amount, CurrencyCode, orNull, PositiveNano } from "./fields.ts";
import { type Caller, changing, operation } from "./operation.ts";

/** Prices of made-to-measure packages. Source: MTM-1. */

const SELLERS = ["reseller", "admin"] as const;
const Place = {
  ...Seller,
  kind: Type.Optional(
    Type.Union([Type.Literal("retail"), Type.Literal("wholesale")], {
      description: "What a seller's customers pay, or what resellers pay the operator. retail unless it is given.",
    }),
  ),
};
const BOUNDS = {
  isOpen: Type.Boolean({ description: "It is sold." }),
  daysMin: Type.Integer(),
  daysMax: Type.Integer(),
  dailyMin: Type.Integer({ description: "Requests a day." }),
  dailyMax: Type.Integer(),
};
const FROM = Type.Integer({ description: "Of packages with at least so many requests. The first begins at 0." });
const MeasuredShape = Type.Object(
  {
    prices: orNull(
      Type.Object({
        ...BOUNDS,
        currency: CurrencyCode,
        steps: Type.Array(Type.Object({ fromRequests: FROM, nano: Amount }), {
          description: "Prices for 1,000 requests, in billionths of the currency.",
        }),
      }),
    ),
  },
  { title: "MeasuredPrices" },
);

export const getMeasured = operation({
  name: "measured.get",
  says: "Returns the prices of made-to-measure packages of a seller.",
  scope: "prices:read",
  roles: SELLERS,
  route: "GET /measured_prices",
  input: Place,
  output: MeasuredShape,
  run: async (deps, { caller }, wanted) =>
    shown(await measuredTermsOf(deps, await placeOf(deps, caller, wanted, "read"))),
});

export const setMeasured = operation({
  name: "measured.set",
  says: "Sets the prices of made-to-measure packages of a seller, and whether it sells them.",
  scope: "prices:write",
  roles: SELLERS,
  route: "PUT /measured_prices",
  input: {
    ...Place,
    ...BOUNDS,
    steps: Type.Array(Type.Object({ fromRequests: FROM, nano: PositiveNano }, { additionalProperties: false }), {
      maxItems: MEASURED_STEPS_MAX,
    }),
  },
  output: MeasuredShape,
  async run(deps, call, { sellerId, kind, ...terms }) {
    const place = await placeOf(deps, call.caller, { sellerId, kind }, "write");
    return shown(await setMeasuredTerms(changing(deps, call), { ...place, ...terms }));
  },
});

type Wanted = { sellerId?: number | undefined; kind?: PriceKind | undefined };

/** Resellers read the operator's wholesale prices, which only an admin sets. Throws not_found. */
async function placeOf(
  deps: { db: Db },
  caller: Caller,
  { sellerId, kind = "retail" }: Wanted,
  access: "read" | "write",
): Promise<{ sellerId: number; kind: PriceKind }> {
  if (kind === "wholesale") {
    if (caller.role !== "admin" && access === "write") throw new Refusal("not_found");
    return { sellerId: OPERATOR, kind };
  }
  return { sellerId: await sellerInScope(deps, caller, sellerId), kind };
}

function shown(terms: MeasuredTerms | undefined) {
  return { prices: terms ?? null };
}
