import { Type } from "@sinclair/typebox";
import { Elysia, t } from "elysia";
import { sellerOfPerson } from "../../commerce/sellers_store.ts";
import { listGuesses, noteGuess } from "../../commerce/voucher_guesses_store.ts";
import { type Redemption, redeemVoucher } from "../../commerce/voucher_redemption_store.ts";
import {
  createBatch,
  disableBatch,
  findBatch,
  listBatches,
  listUses,
  type NewBatch,
} from "../../commerce/vouchers_store.ts";
import type { Deps } from "../../deps.ts";
import { type ErrorCode, InputError, Refusal } from "../../errors.ts";
import { INSTANT } from "../../http/checks.ts";
import { networkOf } from "../../http/client_address.ts";
import { factsOf } from "../../http/request_facts.ts";
import { createSemaphore } from "../../platform/semaphore.ts";
import { viewOf } from "./account_billing.ts";
import { Id, IdInBody, IdParam, orNull, PackagePayment, PositiveNanoUsd, whole } from "./fields.ts";
import { once } from "./form_once.ts";
import { toJson } from "./formats.ts";
import { type Person, type Reader, signedIn } from "./panel_session.ts";
import { limited } from "./sign_in.ts";
import { voucherCsv } from "./voucher_csv.ts";

/** Vouchers: sellers make and disable them; their customers redeem them. Source: VOU-1, VOU-3, VOU-6. */

/** Batches that one replica makes at once; of those that wait, all and one seller's; how long. */
const BATCHES_AT_ONCE = 1;
const BATCHES_WAITING_MAX = 8;
const SELLER_WAITING_MAX = 1;
const BATCH_WAIT_MS_MAX = 10_000;
const RETRY_AFTER_SECONDS = 5;
const PAGE_MAX = 100;
const NAME_LENGTH_MAX = 400;
/** Longer text gets the answer of any text that is not a code. */
const CODE_LENGTH_MAX = 20_000;

const Page = { before: t.Optional(Id), limit: t.Optional(whole(1, PAGE_MAX)) };
const NewBatchBody = t.Object({
  name: t.String({ maxLength: NAME_LENGTH_MAX }),
  offeringId: t.Optional(orNull(IdInBody)),
  amountNanoUsd: t.Optional(orNull(PositiveNanoUsd)),
  payWith: t.Optional(PackagePayment),
  codes: Type.Integer(),
  usesPerCode: Type.Integer(),
  endsAt: t.String(INSTANT),
});

export function vouchersEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(sellingEndpoints(deps)).use(redeemingEndpoints(deps));
}

/** Places in which batches are made, in one replica. */
function createBatchPlaces() {
  const refuse = (code: ErrorCode, words: string) =>
    new Refusal(code, { message: `${words} Try again when it has ended.`, retryAfterSeconds: RETRY_AFTER_SECONDS });
  return createSemaphore({
    max: BATCHES_AT_ONCE,
    waitingMax: BATCHES_WAITING_MAX,
    shareFull: () => refuse("too_many_requests", "A batch of yours is still being made."),
    allFull: () => refuse("service_unavailable", "Another batch is still being made."),
  });
}

function sellingEndpoints(deps: Deps) {
  const places = createBatchPlaces();
  /** Makes one batch at a time, since each writes thousands of rows. Throws as `createBatch`, too_many_requests. */
  const makeBatch = async ({ person, signal }: Reader, wanted: NewBatch) => {
    const share = { id: String(wanted.sellerId), atOnceMax: 1, waitingMax: SELLER_WAITING_MAX };
    const leave = await places.enter([share], { waitMsMax: BATCH_WAIT_MS_MAX, signal });
    try {
      return await createBatch({ ...deps, by: person.by }, wanted, { signal });
    } finally {
      leave();
    }
  };
  return signedIn(deps, "reseller", "admin")
    .get(
      "/vouchers",
      async ({ person, query }) => {
        const { rows, hasMore } = await listBatches(deps, { ...query, sellerId: sellerOfPerson(person) });
        return toJson({ batches: rows, hasMore });
      },
      { query: t.Object(Page) },
    )
    .post(
      "/vouchers",
      async ({ person, body, request }) => {
        const wanted = {
          ...body,
          sellerId: sellerOfPerson(person),
          offeringId: body.offeringId ?? null,
          amountNanoUsd: body.amountNanoUsd ? BigInt(body.amountNanoUsd) : null,
        };
        const { batch, codes } = await once(deps, { person, request }, () =>
          makeBatch({ person, signal: request.signal }, wanted),
        );
        return toJson({ batch, csv: voucherCsv(batch, codes) });
      },
      { body: NewBatchBody },
    )
    .get("/vouchers/guesses", async ({ person }) => ({ guesses: await listGuesses(deps, sellerOfPerson(person)) }))
    .get(
      "/vouchers/:id",
      async ({ person, params, query }) => {
        const owned = { sellerId: sellerOfPerson(person), batchId: params.id };
        const { rows, hasMore } = await listUses(deps, { ...query, ...owned });
        return toJson({ batch: await findBatch(deps, owned), uses: rows, hasMore });
      },
      { params: IdParam, query: t.Object(Page) },
    )
    .post(
      "/vouchers/:id/disable",
      async ({ person, params }) => {
        const owned = { sellerId: sellerOfPerson(person), batchId: params.id };
        return toJson({ batch: await disableBatch({ ...deps, by: person.by }, owned) });
      },
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
