import { Type } from "@sinclair/typebox";
import {
  type Batch,
  createBatch,
  disableBatch,
  findBatch,
  listBatches,
  listUses,
  type VoucherUse,
} from "../commerce/vouchers_store.ts";
import { Seller, sellerInScope } from "./fence.ts";
import { Amount, At, Instant, orNull, PackagePayment, PositiveNanoUsd, RowId, text } from "./fields.ts";
import { changing, listOperation, operation } from "./operation.ts";

/** Vouchers: sellers make and disable batches of codes. Source: VOU-1. */

const SELLERS = ["reseller", "admin"] as const;
const NAME_LENGTH_MAX = 400;

const OfBatch = { ...Seller, batchId: RowId };

const BatchShape = Type.Object(
  {
    batchId: RowId,
    sellerId: Type.Integer({ minimum: 0 }),
    name: Type.String(),
    offering: orNull(Type.Object({ offeringId: RowId, name: Type.String() })),
    amountNanoUsd: orNull(Amount),
    payWith: PackagePayment,
    codes: Type.Integer(),
    usesPerCode: Type.Integer(),
    used: Type.Integer(),
    left: Type.Integer(),
    state: Type.Union([
      Type.Literal("active"),
      Type.Literal("used_up"),
      Type.Literal("ended"),
      Type.Literal("disabled"),
    ]),
    endsAt: At,
    disabledAt: orNull(At),
    createdAt: At,
    problem: orNull(
      Type.Object({
        why: Type.Union([Type.Literal("balance"), Type.Literal("allotment"), Type.Literal("offering")]),
        count: Type.Integer(),
        lastAt: At,
      }),
    ),
  },
  { title: "VoucherBatch" },
);

export const listVouchers = listOperation({
  name: "vouchers.list",
  says: "Lists the batches of vouchers of a seller, newest first, without their codes.",
  scope: "vouchers:read",
  roles: SELLERS,
  route: "GET /vouchers",
  filter: Seller,
  before: Type.Optional(RowId),
  item: BatchShape,
  cursor: ({ batchId }: Batch) => batchId,
  list: async (deps, { caller }, { sellerId, ...page }) =>
    listBatches(deps, { ...page, sellerId: await sellerInScope(deps, caller, sellerId) }),
});

export const createVouchers = operation({
  name: "vouchers.create",
  says: "Makes a batch of codes for a package or an amount. The codes are shown only in this answer.",
  scope: "vouchers:write",
  roles: SELLERS,
  route: "POST /vouchers",
  input: {
    ...Seller,
    name: text(NAME_LENGTH_MAX),
    offeringId: Type.Optional(orNull(RowId)),
    amountNanoUsd: Type.Optional(orNull(PositiveNanoUsd)),
    payWith: Type.Optional(PackagePayment),
    codes: Type.Integer(),
    usesPerCode: Type.Integer(),
    endsAt: Instant,
  },
  output: Type.Object(
    { batch: BatchShape, codes: Type.Array(Type.Object({ voucherId: RowId, code: Type.String() })) },
    { title: "NewVouchers" },
  ),
  async run(deps, call, { sellerId, offeringId = null, amountNanoUsd = null, ...wanted }) {
    const seller = await sellerInScope(deps, call.caller, sellerId);
    const batch = { ...wanted, offeringId, amountNanoUsd, sellerId: seller };
    return call.makeBatch(seller, () => createBatch(changing(deps, call), batch, { signal: call.signal }));
  },
});

export const getVoucherUses = listOperation({
  name: "vouchers.uses",
  says: "Lists who redeemed codes of a batch, newest first.",
  scope: "vouchers:read",
  roles: SELLERS,
  route: "GET /vouchers/{batchId}/uses",
  filter: OfBatch,
  before: Type.Optional(RowId),
  item: Type.Object(
    {
      useId: RowId,
      voucherId: RowId,
      suffix: Type.String({ description: "The last characters of the code." }),
      account: Type.Object({ accountId: RowId, name: Type.String(), email: Type.String() }),
      at: At,
    },
    { title: "VoucherUse" },
  ),
  cursor: ({ useId }: VoucherUse) => useId,
  list: async (deps, { caller }, { sellerId, ...page }) =>
    listUses(deps, { ...page, sellerId: await sellerInScope(deps, caller, sellerId) }),
});

export const getVouchers = operation({
  name: "vouchers.get",
  says: "Returns a batch of vouchers, without its codes.",
  scope: "vouchers:read",
  roles: SELLERS,
  route: "GET /vouchers/{batchId}",
  input: OfBatch,
  output: BatchShape,
  run: async (deps, { caller }, { sellerId, batchId }) =>
    findBatch(deps, { sellerId: await sellerInScope(deps, caller, sellerId), batchId }),
});

export const disableVouchers = operation({
  name: "vouchers.disable",
  says: "Disables all codes of a batch. What was redeemed stays.",
  scope: "vouchers:write",
  roles: SELLERS,
  route: "POST /vouchers/{batchId}/disable",
  input: OfBatch,
  output: BatchShape,
  run: async (deps, call, { sellerId, batchId }) =>
    disableBatch(changing(deps, call), { sellerId: await sellerInScope(deps, call.caller, sellerId), batchId }),
});
