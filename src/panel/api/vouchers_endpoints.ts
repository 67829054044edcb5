import { Elysia, t } from "elysia";
import { sellerOfPerson } from "../../commerce/sellers_store.ts";
import { listGuesses, noteGuess } from "../../commerce/voucher_guesses_store.ts";
import { type Redemption, redeemVoucher } from "../../commerce/voucher_redemption_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { networkOf } from "../../http/client_address.ts";
import { factsOf } from "../../http/request_facts.ts";
import { PAGE_MAX, perform, performJson } from "../../operations/operation.ts";
import { viewOf } from "../../operations/packages.ts";
import {
  createVouchers,
  disableVouchers,
  getVouchers,
  getVoucherUses,
  listVouchers,
} from "../../operations/vouchers.ts";
import { Id, IdParam, whole } from "./fields.ts";
import { once } from "./form_once.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { callBy, type Person, signedIn } from "./panel_session.ts";
import { limited } from "./sign_in.ts";
import { voucherCsv } from "./voucher_csv.ts";

/** Vouchers: sellers make and disable them; their customers redeem them. Source: VOU-1, VOU-3, VOU-6. */

/** Longer text gets the answer of any text that is not a code. */
const CODE_LENGTH_MAX = 20_000;

const Page = { before: t.Optional(Id), limit: t.Optional(whole(1, PAGE_MAX)) };
export function vouchersEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(sellingEndpoints(deps)).use(redeemingEndpoints(deps));
}

function sellingEndpoints(deps: Deps) {
  return signedIn(deps, ...listVouchers.roles)
    .get(
      "/vouchers",
      async ({ person, query, request }) => {
        const call = callBy(deps, { person, request });
        const { rows, hasMore } = await perform(deps, listVouchers, call, { ...query, limit: query.limit ?? PAGE_MAX });
        return toJson({ batches: rows, hasMore });
      },
      { query: t.Object(Page) },
    )
    .post(
      "/vouchers",
      async ({ person, body, request }) => {
        const call = callBy(deps, { person, request });
        const make = () => performJson(deps, createVouchers, call, body);
        const { batch, codes } = await once(deps, { person, request }, make);
        return toJson({ batch, csv: voucherCsv(batch, codes) });
      },
      { body: bodyOf(createVouchers, "sellerId") },
    )
    .get("/vouchers/guesses", async ({ person }) => ({ guesses: await listGuesses(deps, sellerOfPerson(person)) }))
    .get(
      "/vouchers/:id",
      async ({ person, params: { id: batchId }, query, request }) => {
        const call = callBy(deps, { person, request });
        const page = { ...query, batchId, limit: query.limit ?? PAGE_MAX };
        const { rows, hasMore } = await perform(deps, getVoucherUses, call, page);
        return toJson({ batch: await perform(deps, getVouchers, call, { batchId }), uses: rows, hasMore });
      },
      { params: IdParam, query: t.Object(Page) },
    )
    .post(
      "/vouchers/:id/disable",
      async (asked) => ({ batch: await operate(deps, disableVouchers, { path: { id: "batchId" } })(asked) }),
      { params: IdParam },
    );
}

function redeemingEndpoints(deps: Deps) {
  // Admins act for the operator, so they have no seller.
  return signedIn(deps, "customer", "reseller").post(
    "/vouchers/redeem",
    async ({ person, body, request }) => {
      const { package: given, ...redeemed } = await redeem(deps, person, {
        code: body.code,
        address: factsOf(request).peerAddress(),
      });
      return toJson({ ...redeemed, package: given && viewOf(person, given) });
    },
    { body: t.Object({ code: t.String({ maxLength: CODE_LENGTH_MAX }) }) },
  );
}

/**
 * Redeems a code under the limits on wrong codes, which count by account and by address. A valid code does not reset
 * the counts: otherwise the owner of a valid code could continue to guess. Throws InputError, too_many_requests.
 */
async function redeem(
  deps: Deps,
  person: Person,
  { code, address }: { code: string; address: string },
): Promise<Redemption> {
  const { accountId } = person;
  const shared = [`voucher:${accountId}`, `voucher-address:${networkOf(address)}`];
  try {
    return await limited(deps, { shared, own: [] }, async () => {
      const redeemed = await redeemVoucher({ ...deps, by: person.by }, { accountId, code });
      if (redeemed !== "unknown") return redeemed;
      deps.metrics.voucherGuessed("wrong");
      await noteGuess(deps, { accountId, kind: "wrong" });
      return new InputError("This code is not valid here. Check it for mistyped characters.", "code");
    });
  } catch (error) {
    if (error instanceof Refusal && error.code === "too_many_requests") {
      deps.metrics.voucherGuessed("refused");
      deps.log.warn({ accountId, address }, "voucher codes are being guessed: attempts are refused");
      await noteGuess(deps, { accountId, kind: "refused" });
    }
    throw error;
  }
}
